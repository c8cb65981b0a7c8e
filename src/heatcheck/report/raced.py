"""What a run's page says where a race decided by looking at scores how many samples there are."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from heatcheck.report.verdict_view import FirstScreen, Wording

Race = Mapping[str, Any]
SO = (
    "Intervals and tests on this page suppose a number of samples that was fixed before, so they are too short and too sure; "
    "the race's own claims stand in heatcheck race. Methods that it left out have fewer samples."
)


def beside_race(screen: FirstScreen, run: Mapping[str, Any], model: str, data: str) -> FirstScreen:
    """The first screen with a sentence about the race that decided on its samples, where there is one.

    Args:
        screen: the first screen of a case.
        run: the run's facts.
        model: of the case.
        data: of the case, as tables name it.
    """
    here = [race for race in run.get("races", ()) if race["data"] == data and model in race["models"]]
    lines = [f"How sure the differences are: {_ended(race, run, model)}. {SO}" for race in here if _early(race)]
    return replace(screen, limits=(*((Wording(line),) for line in lines), *screen.limits))


def race_facts(run: Mapping[str, Any]) -> Iterator[str]:
    """How far the races of a run went, one line for each model; and what that means where not all samples were needed."""
    for race in run.get("races", ()):
        margin = f", margin {race['margin']:g}" if race.get("margin") else ""
        for model in race["models"]:
            if _is_last(race, run, model):
                so = f" {SO}" if _early(race) else ""
                yield f"Race, goal {race['goal']}{margin}, {model} on {race['source']}: {_ended(race, run, model)}.{so}"


def _ended(race: Race, run: Mapping[str, Any], model: str) -> str:
    if not _early(race):
        return f"all {race['of']:,} samples were needed"
    did = "stopped" if _is_last(race, run, model) else "left methods out"
    return f"a race {did} after {race['n']:,} of {race['of']:,} samples by looking at scores"


def _early(race: Race) -> bool:
    """Whether there were more samples."""
    return bool(race["n"] < race["of"])


def _is_last(race: Race, run: Mapping[str, Any], model: str) -> bool:
    """Whether the race of a model on this data went no further."""
    return all(
        race["n"] >= other["n"]
        for other in run.get("races", ())
        if other["source"] == race["source"] and model in other["models"]
    )
