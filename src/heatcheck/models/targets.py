"""Targets as a user writes them: a class by a rule or its number, or a number that is made of the model's output."""

import re
from pathlib import Path
from typing import Any

from heatcheck.core.spec import SpecError, suggest

POLICIES = ("predicted", "label", "top2")
"""Rules that choose a class for each sample."""
FORM = (
    "predicted, label, top2, the number of a class, column:N for one column of the output without a softmax, or "
    "FILE.py:FUNCTION for what a function makes of the output"
)
_COLUMN = re.compile(r"column:(\d+)")
_FUNCTION = re.compile(r"(.+\.py):([^\W\d]\w*)")


def column_of(target: Any) -> int | None:
    """The column that `column:N` names; None for any other target."""
    found = _COLUMN.fullmatch(target) if isinstance(target, str) else None
    return int(found[1]) if found else None


def function_of(target: Any) -> tuple[str, str] | None:
    """The file and function that `FILE.py:FUNCTION` names; None for any other target."""
    found = _FUNCTION.fullmatch(target) if isinstance(target, str) else None
    return (found[1], found[2]) if found else None


def makes_number(target: Any) -> bool:
    """Whether a target is a number that is made of the output, not a class."""
    is_function = callable(target) and not hasattr(target, "shape")
    return is_function or column_of(target) is not None or function_of(target) is not None


def checked_target(value: Any) -> str | int:
    """A written target; a number in a text is the number of a class.

    Raises:
        SpecError: it is none; repeats it, and says what is.
    """
    if isinstance(value, str) and value.lstrip("-").isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (value in POLICIES or column_of(value) is not None):
        return value
    if (named := function_of(value)) is not None:
        if not Path(named[0]).expanduser().is_file():
            raise SpecError(f"target {value!r}: there is no file {named[0]!r}")
        return str(value)
    near = suggest(value, POLICIES) if isinstance(value, str) else ""
    near = near if "did you mean" in near else ""
    raise SpecError(f"{value!r} is no target{near}; it is {FORM}")


def target_of_explanation(value: Any) -> Any:
    """What one explanation is asked for; None for the predicted class.

    Raises:
        SpecError: it is no target, or one that needs the labels or ranks of a run.
    """
    target = checked_target(value) if isinstance(value, str) else value
    if isinstance(target, str) and target in ("label", "top2"):
        raise SpecError(
            f"target {target!r} is for runs; an explanation takes the number of a class, column:N, FILE.py:FUNCTION or, "
            "from Python, a function of the output"
        )
    return None if isinstance(target, str) and target == "predicted" else target
