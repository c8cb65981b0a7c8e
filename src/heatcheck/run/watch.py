"""Who is told what a work does while it is under way."""

from collections.abc import Callable
from dataclasses import dataclass

from heatcheck.run.work import Cell, FailedCell


def _ignore(_: object) -> None:
    return None


@dataclass(frozen=True)
class Watch:
    """Functions that are called while a work is computed.

    Args:
        tick: with the sites of all inputs that passes were made over, whenever some were: pixels or tokens.
        begin: with a cell, before it is computed; with the first, where several are computed at a time.
        failed: with every cell that could not be computed.
    """

    tick: Callable[[int], None] = _ignore
    begin: Callable[[Cell], None] = _ignore
    failed: Callable[[FailedCell], None] = _ignore
