"""What SynScore rests on: a network that finds what was planted in its samples, because it was trained to."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heatcheck.core.spec import SpecError, parse

SYNSCORE, SYNTHETIC = "synscore", "synthetic"
"""The metric, and the recipe that teaches a network to find squares."""
RELIABLE = 0.99
"""The accuracy from which on what was planted is what a network uses."""


@dataclass(frozen=True)
class Planted:
    """A kind of thing that is planted.

    Args:
        source: the data source that plants it.
        things: what it is, several of it.
        samples: what it is planted in.
        taught: the command that teaches a network to find it, without the model.
        decides: the parameters of the source that say what is planted; a network knows no other.
    """

    source: str
    things: str
    samples: str
    taught: str
    decides: tuple[str, ...] = ()

    def within(self, data: str) -> Mapping[str, Any] | None:
        """What a spec or the name of data plants, as parameters; None where it plants nothing of the kind.

        >>> TRUTHS["text"].within("test_part:planted(trigger=zebra, seed=3):texts")
        {'trigger': 'zebra'}
        """
        found = re.search(rf"(?:^|:)({self.source}(?:\([^()]*\))?)[:-]", data)
        if found is None:
            return None
        try:
            given = parse(found[1]).params
        except SpecError:
            return None
        return {name: given[name] for name in self.decides if name in given}


TRUTHS: Mapping[str, Planted] = {
    "image": Planted("squares", "squares", "pictures", f"heatcheck train {SYNTHETIC}"),
    "text": Planted("planted", "trigger words", "texts", "heatcheck train text --data planted:DATA", ("trigger",)),
}
"""What is planted, by modality."""


def planted_in(study: Mapping[str, Any]) -> Planted | None:
    """What is planted in a study's samples, by the spec or the name that its record has.

    >>> [kind and kind.things for kind in (planted_in({"data": d}) for d in ("squares:images", "planted-texts", "texts"))]
    ['squares', 'trigger words', None]
    """
    data = str(study.get("data", ""))
    return next((kind for kind in TRUTHS.values() if kind.within(data) is not None), None)


def learnt(model: Mapping[str, Any]) -> Planted | None:
    """What a model was trained to find, by the recipe that trained it or the data that it learnt from."""
    trained = model.get("trained") or {}
    if trained.get("recipe") == SYNTHETIC:
        return TRUTHS["image"]
    return planted_in(trained)


def about_planted(kind: Planted, data: str, model: Mapping[str, Any], answers: Sequence[tuple[int | None, int]]) -> str:
    """How often a model sees whether something was planted, with a warning where that is too seldom.

    Args:
        kind: what was planted.
        data: the data's spec or name, as the study's record has it.
        model: its entry in the run's record.
        answers: label and prediction of each sample; without labels, the accuracy of its training counts.

    >>> squares = TRUTHS["image"], "squares:images", {"trained": {"recipe": "synthetic"}}
    >>> about_planted(*squares, [(1, 1), (0, 0), (0, 1), (None, 1)])
    'accuracy 0.667 on 3 pictures, which is below 0.99: the squares are not the truth about what the model uses'
    """
    trained = model.get("trained") or {}
    if learnt(model) is not kind or kind.within(str(trained.get("data", ""))) not in (None, kind.within(data)):
        return (
            f"the model was not trained to find {_these(kind, data)}{kind.things} ({kind.taught}), "
            "so they are not the truth about what it uses"
        )
    judged = [label == answer for label, answer in answers if label is not None]
    known = (trained.get("accuracy") or {}).get("chosen")
    if judged:
        accuracy, where = sum(judged) / len(judged), f"on {len(judged)} {kind.samples}"
    elif known is not None:
        accuracy, where = float(known), f"on the {kind.samples} held out of its training"
    else:
        return f"its accuracy is not known, so neither is whether the {kind.things} are the truth about what it uses"
    said = f"accuracy {accuracy:.3f} {where}"
    if accuracy >= RELIABLE:
        return said
    return f"{said}, which is below {RELIABLE}: the {kind.things} are not the truth about what the model uses"


def _these(kind: Planted, data: str) -> str:
    return "these " if kind.within(data) else ""
