"""How long texts are to a model: rounded up, so that those of nearly one length can share a call, or cut off.

A text's length decides its shape, whatever its neighbours: equal roundings give equal bits. Another rounding gives the
same scores within rounding errors, so that it belongs to how results are computed, not to what they are.
"""

from collections.abc import Iterable, Sequence
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


class Extent(NamedTuple):
    """How much of a text a model reads.

    Args:
        tokens: how many tokens, special ones included.
        cut: how many are cut off.
        first: the place in the text where the first of them begins.
        last: the place behind the last of them.
    """

    tokens: int
    cut: int = 0
    first: int = 0
    last: int = 0

    def shows(self, span: tuple[int, int]) -> bool:
        """Whether a part of a span of characters is read, as far as the text's ends decide it."""
        return not self.cut or (span[0] < self.last and self.first < span[1])


def cut_off(texts: Sequence[tuple[Extent, Sequence[tuple[int, int]]]]) -> str:
    """What of some texts, and of their rationales, is not read, in a clause; empty where all is.

    >>> cut_off([(Extent(4), []), (Extent(8, 4, 0, 30), [(2, 9), (40, 44)])])
    '1 of 2 texts is longer: what lies beyond is cut off, 25% of all tokens and 1 of 2 rationale spans (50%)'

    Args:
        texts: how much of each is read, and the spans of characters that were marked in it.
    """
    long = sum(extent.cut > 0 for extent, _ in texts)
    if not long:
        return ""
    lost = sum(extent.cut for extent, _ in texts)
    share = lost / sum(extent.tokens + extent.cut for extent, _ in texts)
    marked = [(extent, span) for extent, spans in texts for span in spans]
    gone = sum(not extent.shows(span) for extent, span in marked)
    told = f"{share:.0%} of all tokens" if share >= 0.01 else f"{lost} token{'' if lost == 1 else 's'}"
    if marked:
        told += f" and {gone} of {len(marked)} rationale spans ({gone / len(marked):.0%})"
    longer = "the text is" if len(texts) == 1 else f"{long} of {len(texts)} texts {'is' if long == 1 else 'are'}"
    return f"{longer} longer: what lies beyond is cut off, {told}"
