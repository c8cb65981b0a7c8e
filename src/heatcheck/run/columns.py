"""The columns that an index consists of: texts by number, what groups, rows and cells hold, and the numbers themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

Array = np.ndarray


class Texts:
    """Texts by number, each once; number 0 is the empty one."""

    def __init__(self, known: Sequence[str] = ("",)) -> None:
        self.all = list(known)
        self._numbers = {text: i for i, text in enumerate(self.all)}

    def add(self, text: str) -> int:
        """A text's number; a new one where it is not known."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.all)
            self.all.append(text)
        return number

    def find(self, text: str) -> int:
        """A text's number; -1 where it is not known."""
        return self._numbers.get(text, -1)

    def places(self, wanted: Sequence[str]) -> Array:
        """For every known text, its place among those wanted; -1 for the others."""
        found = np.full(len(self.all), -1, np.int32)
        for place, text in enumerate(wanted):
            number = self.find(text)
            if number >= 0 and found[number] < 0:
                found[number] = place
        return found


@dataclass
class Numbers:
    """The numbers themselves.

    Args:
        values: scores, by column, then row.
        prices: seconds, forwards and backwards of maps, by cost, then row.
    """

    values: Array
    prices: Array


@dataclass
class Columns:
    """What chunks hold, without the numbers: an entry per group, per row of a group, and per column of a group.

    Texts and tensors' names are numbers of texts; 0 stands for none. Of statuses, only those that are not ok are there.
    """

    file: Array
    number: Array
    model: Array
    seed: Array
    rows: Array
    logits: Array
    answers: Array
    numerics: Array
    scores: Array
    maps: Array
    costs: Array
    displays: Array

    record: Array

    score_method: Array
    score_metric: Array
    score_curve: Array
    score_share: Array
    status_item: Array
    status_row: Array
    status_text: Array

    map_method: Array
    map_tensor: Array
    map_facts: Array
    failed_item: Array
    failed_row: Array
    failed_text: Array

    cost_method: Array
    display: Array

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Columns":
        """These columns, and none of the others."""
        return cls(**{f.name: np.array(values.get(f.name, ()), np.uint32) for f in fields(cls)})


PER_GROUP = [f.name for f in fields(Columns)][:12]
PER_SCORE = ("score_method", "score_metric", "score_curve", "score_share")
PER_MAP = ("map_method", "map_tensor", "map_facts")
SPARSE = {"scores": ("status_item", "status_row", "status_text"), "maps": ("failed_item", "failed_row", "failed_text")}


def ragged(starts: Array, lengths: Array) -> Array:
    """The numbers from each start on, as many as its length says, one after the other.

    >>> ragged(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    lengths = lengths.astype(np.int64)
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts.astype(np.int64) - (ends - lengths), lengths) + np.arange(total)


def starts_of(lengths: Array) -> Array:
    """Where each of several pieces, laid end to end, begins; and, last, where all of them end."""
    return np.concatenate(([0], np.cumsum(lengths.astype(np.int64))))


def no_numbers() -> Numbers:
    """The numbers of no files."""
    return Numbers(np.empty(0), np.empty((0, 3)))
