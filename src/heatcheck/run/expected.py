"""How many passes a run will make, and how much of its time each of them takes, so that its progress can be told."""

import math
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import NamedTuple

import torch

from heatcheck.core.progress import Progress
from heatcheck.core.types import Inputs, Sample
from heatcheck.probe.asks import Shape
from heatcheck.run.forecast import forecast
from heatcheck.run.rehearsal import readable
from heatcheck.run.setup import Part

LOOK = 8
"""How often samples of one size are read to foresee their passes; beyond that, where all had one shape, so have the rest.

As many are read at a time where the model tells sizes, for they may still differ in what can be deleted; else one.
"""


class Effort(NamedTuple):
    """Passes, and how much work they are: a pass over a text of 500 tokens takes longer than one over 10.

    >>> Effort(3, 30) * 2
    Effort(passes=6, work=60)

    Args:
        passes: how many, forward and backward.
        work: the sites, pixels or tokens, of the input of each, in all.
    """

    passes: int = 0
    work: int = 0

    def __add__(self, other: object) -> "Effort":
        if not isinstance(other, Effort):
            return NotImplemented
        return Effort(self.passes + other.passes, self.work + other.work)

    def __mul__(self, n: object) -> "Effort":
        if not isinstance(n, int):
            return NotImplemented
        return Effort(self.passes * n, self.work * n)


@dataclass
class Expected:
    """What samples will take, roughly: a few of each model and size are looked at.

    Args:
        blank: count passes on a blank input: a user's function may hang on a sample, and here nothing could stop it.
    """

    blank: bool = False
    _looked: dict[tuple[str, int], int] = field(default_factory=dict)
    _known: dict[tuple[str, int], dict[Hashable, Effort]] = field(default_factory=dict)

    def of(self, part: Part, samples: Sequence[Sample]) -> Effort:
        """What a model's samples take; those of one size, where the model tells sizes, take what the first few of them do."""
        size = part.grid.model.size
        groups = groupby(sorted(samples, key=size), size)
        return sum((self._of_size(part, own, list(alike)) for own, alike in groups), Effort())

    def _of_size(self, part: Part, size: int, samples: Sequence[Sample]) -> Effort:
        """What samples of one size take, by those of them that are read."""
        key, model = (part.label, size), part.grid.model
        known = self._known.setdefault(key, {})
        self._looked[key] = self._looked.get(key, 0) + 1
        if self._looked[key] > LOOK and len(known) == 1:  # reading the first of every chunk would take minutes
            return next(iter(known.values())) * len(samples)
        read = list(islice(readable(model, samples), LOOK if size else 1))
        passes, work = sum((self._of_input(part, known, x) for x in read), Effort())
        return Effort(*(n * len(samples) // max(1, len(read)) for n in (passes, work)))

    def _of_input(self, part: Part, known: dict[Hashable, Effort], x: Inputs) -> Effort:
        """What an input takes; those of one size may have fewer sites that can be deleted, and methods that try fewer sets."""
        grid, domain = part.grid, part.grid.model.domain
        shape = (x.shape_key(), int(domain.deletable(x).sum()))
        if shape not in known:
            x = domain.with_leaf(x, torch.zeros_like(domain.leaf(x))) if self.blank else x
            each = forecast(grid, Shape(domain, x, grid.model))
            known[shape] = Effort(1, domain.site_count(x)) * (each.forwards + each.backwards)
        return known[shape]


@dataclass
class Gauge:
    """Tells a progress how far a run is: work as so many of the expected passes.

    Args:
        shown: who is told.
        total: what is expected.
    """

    shown: Progress
    total: Effort
    _done: int = 0
    _told: int = 0

    def advance(self, work: int) -> None:
        """Some work was done."""
        self._done += work
        passes = self._done * self.total.passes // max(1, self.total.work) - self._told
        self._told += passes
        self.shown.advance(passes)


def seconds_per_site(part: Part, samples: Sequence[Sample]) -> float:
    """Seconds that the model takes for a pixel or token of one input; infinite where it fails."""
    model = part.grid.model
    try:
        x = next(readable(model, samples))
        start = time.perf_counter()
        with torch.inference_mode():
            model.logits(x)
        return (time.perf_counter() - start) / model.domain.site_count(x)
    except Exception:  # the sample's status tells
        return math.inf
