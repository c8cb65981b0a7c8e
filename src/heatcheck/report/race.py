"""A race in words and tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from heatcheck.stats.race import Goal, Race

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class RaceCase:
    """The race of one metric on one model.

    Args:
        model: by the name that tables show.
        metric: likewise.
        race: how it stands.
        excluded: methods that do not race, with the reason.
        explained: on how many samples each method was explained, for any metric.
        passes: how many passes its maps took, if nobody shared them.
    """

    model: str
    metric: str
    race: Race
    excluded: Mapping[str, str] = field(default_factory=dict)
    explained: Mapping[str, int] = field(default_factory=dict)
    passes: Mapping[str, int] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """One row per method, best first; those that do not race last, with the reason as their state."""
        costs = {m: {"samples": self.explained.get(m, 0), "passes": self.passes.get(m, 0)} for m in self.explained}
        none = {"samples": 0, "passes": 0}
        found = [{**row, **costs.get(str(row["method"]), none)} for row in self.race.table()]
        beside = [
            {**dict.fromkeys(found[0]), "method": method, "state": why, **costs.get(method, none)}
            for method, why in self.excluded.items()
        ]
        return [{"model": self.model, "metric": self.metric, **row} for row in (*found, *beside)]

    def verdict(self) -> str:
        """What was found, in a sentence or two."""
        race = self.race
        where = f"{self.metric} on {self.model}: "
        if not race.settled:
            still = [m for m, n in zip(race.methods, race.decided, strict=False) if not n]
            return f"{where}not decided after {race.n:,} of {race.population:,} samples; still open: {_listed(still)}."
        return f"{where}{self._found()}{self._cost()}{self._beside_random()}"

    def _found(self) -> str:
        """Who is the best where that is certain; else who is chosen, and what is known of the others."""
        race, k, of = self.race, self.race.goal.best, f"of {len(self.race.methods)} methods"
        if not all(race.certain):
            chosen = f"chosen order: {', '.join(race.chosen)}" if k is None else f"chosen: {_listed(race.chosen)}"
            return f"{chosen}; {self._bound()}"
        if k is None:
            return f"the order is {', '.join(race.chosen)}"
        if k == 1:
            return f"{race.chosen[0]} is the best {of}"
        return f"the best {k} {of} are {_listed(race.chosen)}"

    def _bound(self) -> str:
        """What is known where the scores do not tell all methods' places: who is equal, what the margin excludes."""
        goal, ties = self.race.goal, self._ties()
        if not goal.margin:
            return ties or "the scores tell no more"
        if goal.best is None:
            who = "no method is better than one before it"
        else:
            who = "no other is better" if goal.best == 1 else "no other is better than one of them"
        return f"{ties}{'; ' if ties else ''}{who} by more than {goal.margin:g}"

    def _ties(self) -> str:
        """Methods whose means over all samples are equal, where that concerns the goal."""
        race = self.race
        rows = {row["method"]: row for row in race.table()}
        equal = [
            f"{name} and {row['against']} are equal"
            for name, row in rows.items()
            if row["n"] and row["low"] == row["high"] == 0 and race.n == race.population
        ]
        return "; ".join(dict.fromkeys(equal[:1]))

    def _cost(self) -> str:
        race = self.race
        if race.n == race.population:
            return f" (all {race.n:,} samples were needed)."
        return f" (after {race.n:,} of {race.population:,} samples)."

    def _beside_random(self) -> str:
        """Which of the chosen methods are not better than random, or not told from it."""
        if self.race.control is None or self.race.goal.best is None:
            return ""
        told = {row["method"]: row["beats_random"] for row in self.race.table()}
        worse = [m for m in self.race.chosen if told[m] is False]
        unsure = [m for m in self.race.chosen if told[m] is None]
        said = f" Worse than random: {_listed(worse)}." if worse else ""
        return said + (f" Not told from random yet: {_listed(unsure)}." if unsure else "")


@dataclass(frozen=True)
class RaceReport:
    """All races of a benchmark.

    Args:
        goal: what was to be found.
        samples: how many the benchmark has.
        data: the data's name.
        cases: one for each model and metric.
        passes: how many there were.
        full_passes: how many a full run takes.
        finished: whether everything is settled.
    """

    goal: Goal
    samples: int
    data: str
    cases: tuple[RaceCase, ...]
    passes: int
    full_passes: int
    finished: bool

    @property
    def share(self) -> float:
        """The share of a full run's passes that the race took."""
        return self.passes / max(1, self.full_passes)

    def verdicts(self) -> list[str]:
        """One for each model and metric."""
        return [case.verdict() for case in self.cases]

    def footing(self) -> str:
        """What the verdicts are about, and what they took, in sentences."""
        return (
            f"{self.passes:,} of the {self.full_passes:,} passes of a full run ({100 * self.share:.0f} %). Means are those over "
            f"the {self.samples:,} samples of {self.data}; each metric's claims hold together with 95 % confidence, however "
            "often it was looked at."
        )

    def table(self) -> "pl.DataFrame":
        """One row per model, metric and method."""
        import polars as pl

        return pl.DataFrame([row for case in self.cases for row in case.rows()], infer_schema_length=None)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "goal": str(self.goal),
            "margin": self.goal.margin or None,
            "samples": self.samples,
            "data": self.data,
            "finished": self.finished,
            "passes": self.passes,
            "full_passes": self.full_passes,
            "share": self.share,
            "races": [
                {
                    "model": case.model,
                    "metric": case.metric,
                    "settled": case.race.settled,
                    "n": case.race.n,
                    "chosen": list(case.race.chosen) if case.race.settled else None,
                    "certain": case.race.settled and all(case.race.certain),
                    "verdict": case.verdict(),
                    "methods": case.rows(),
                }
                for case in self.cases
            ],
        }


def _listed(names: Any) -> str:
    """Names with commas, and an `and` before the last.

    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    names = list(names)
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
