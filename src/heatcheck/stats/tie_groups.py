"""Tie groups: methods that share a letter were not told apart, so nobody reads an order into noise.

The letters come from the tests that also give the sets of ranks (`significantly_better`): all pairs of a metric at once, so
that with a probability of 95 % no two methods with equal means are in different groups only.
"""

from collections.abc import Sequence
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray


def compact_letters(different: NDArray[np.bool_]) -> list[str]:
    """A letter for every group of methods of which no two differ, by inserting and absorbing.

    Every two methods that do not differ share a letter, and no two that differ do. All start in one group. For each pair
    that differs, a group that holds both is replaced by two, each without one of them; a group inside another is absorbed.

    Args:
        different: whether two methods differ, [methods, methods], symmetric; the methods in the order of the table, so that
            the best has the letter a.

    Returns:
        The letters of every method, sorted. After z come aa, ab …, set apart by commas.

    Example:
        >>> compact_letters(np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=bool))
        ['a', 'ab', 'b']

    Paper: piepho2004.
    """
    told = np.asarray(different, dtype=bool)
    if told.ndim != 2 or told.shape[0] != told.shape[1] or (told != told.T).any() or told.diagonal().any():
        raise ValueError("which methods differ should be a symmetric matrix that is false on its diagonal")
    groups = [frozenset(range(len(told)))] if len(told) else []
    for a, b in zip(*np.nonzero(np.triu(told)), strict=True):
        both = [group for group in groups if a in group and b in group]
        split = [group - {one} for group in both for one in (int(a), int(b))]
        groups = _absorbed([group for group in groups if group not in both] + split)
    names = _letters(len(groups))
    of = [
        [name for name, group in zip(names, sorted(groups, key=sorted), strict=True) if m in group]
        for m in range(len(told))
    ]
    return ["".join(some) if len(groups) <= len(ascii_lowercase) else ",".join(some) for some in of]


def _absorbed(groups: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    """Without those that lie inside another."""
    unique = list(dict.fromkeys(groups))
    return [group for group in unique if not any(group < other for other in unique)]


def _letters(n: int) -> list[str]:
    """The first n names: a to z, then two letters each.

    >>> _letters(28)[-3:]
    ['z', 'aa', 'ab']
    """
    found = list(ascii_lowercase)
    while len(found) < n:
        found += [first + last for first in found for last in ascii_lowercase if len(first) == len(found[-1])]
    return found[:n]
