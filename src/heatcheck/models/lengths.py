"""How the lengths of texts are rounded up, so that texts of nearly one length can share a call.

A text's length decides its shape, whatever its neighbours: equal roundings give equal bits. Another rounding gives the
same scores within rounding errors, so that it belongs to how results are computed, not to what they are.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Rounding(NamedTuple):
    """Short lengths become multiples of a small step, longer ones of a large step.

    >>> [Rounding().up(n) for n in (1, 23, 64, 65, 500)]
    [4, 24, 64, 80, 512]

    Args:
        small: the step up to `until`.
        until: the longest length that counts as short; a multiple of both steps.
        large: the step beyond.
    """

    small: int = 4
    until: int = 64
    large: int = 16

    def up(self, n: int) -> int:
        """The smallest length of the grid that holds `n`."""
        step = self.small if n <= self.until else self.large
        return -(-n // step) * step


def padding_share(pairs: Iterable[tuple[int, int]]) -> float:
    """The share of padding among all tokens that are computed.

    >>> padding_share([(9, 12), (12, 12)])
    0.125

    Args:
        pairs: the length of every text, and the length that it is padded to, as often as it is asked about.
    """
    every = list(pairs)
    total = sum(padded for _, padded in every)
    return 1 - sum(n for n, _ in every) / total if total else 0.0
