"""What SynScore rests on: a network that finds the squares in its pictures, because it was trained to."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

SYNSCORE, SYNTHETIC = "synscore", "synthetic"
"""The metric, and the recipe that teaches a network to find squares."""
RELIABLE = 0.99
"""The accuracy from which on the squares are what a network uses."""
_SQUARES = re.compile(r"(^|:)squares[:-]")


def is_squares(study: Mapping[str, Any]) -> bool:
    """Whether a study's pictures are those of `squares:SOURCE`, by the spec or the name that its record has.

    >>> is_squares({"data": "squares:images"}), is_squares({"data": "squares-images"}), is_squares({"data": "images"})
    (True, True, False)
    """
    return _SQUARES.search(str(study.get("data", ""))) is not None


def about_squares(model: Mapping[str, Any], answers: Sequence[tuple[int | None, int]]) -> str:
    """How often a model sees whether a picture carries a square, with a warning where that is too seldom.

    Args:
        model: its entry in the run's record.
        answers: label and prediction of each sample; without labels, the accuracy of its training counts.

    >>> about_squares({"trained": {"recipe": "synthetic"}}, [(1, 1), (0, 0), (0, 1), (None, 1)])
    'accuracy 0.667 on 3 pictures, which is below 0.99: the squares are not the truth about what the model uses'
    """
    trained = model.get("trained") or {}
    if trained.get("recipe") != SYNTHETIC:
        return (
            "the model was not trained to find squares (heatcheck train synthetic), "
            "so they are not the truth about what it uses"
        )
    judged = [label == answer for label, answer in answers if label is not None]
    known = (trained.get("accuracy") or {}).get("chosen")
    if judged:
        accuracy, where = sum(judged) / len(judged), f"on {len(judged)} pictures"
    elif known is not None:
        accuracy, where = float(known), "on the pictures held out of its training"
    else:
        return "its accuracy is not known, so neither is whether the squares are the truth about what it uses"
    said = f"accuracy {accuracy:.3f} {where}"
    if accuracy >= RELIABLE:
        return said
    return f"{said}, which is below {RELIABLE}: the squares are not the truth about what the model uses"
