"""How much is computed at a time: portions of seconds, so that what is finished can be saved between them."""

import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from heatcheck.methods.base import FunctionMethod
from heatcheck.metrics.base import FunctionMetric, Metric
from heatcheck.probe.asks import Shape, passes_of
from heatcheck.probe.calls import Spent

SAVE = 40.0
"""Seconds after which finished portions are saved."""
PORTION = 20.0
"""Seconds that a portion should take at most; a single cell may take longer."""
SURE = 2.0
"""Seconds below which a prediction is trusted before anything was measured."""


def now() -> float:
    """A clock that only goes forward."""
    return time.monotonic()


@dataclass
class Pace:
    """How many samples are computed at a time, from what earlier ones took.

    Args:
        seconds: what one sample took, by component; kept as long as the process lives.
        portion: seconds that a portion should take at most.
        alone: whether every cell is computed alone, so that one that ends the process is found.
    """

    seconds: dict[Hashable, float] = field(default_factory=dict)
    portion: float = PORTION
    alone: bool = False

    def samples(self, key: Hashable, left: int, foreseen: float | None) -> int:
        """How many of the samples that are left come next; one where nothing is known.

        >>> pace = Pace()
        >>> pace.samples("rise", 8, None)
        1
        >>> pace.note("rise", 1, 6.0)
        >>> pace.samples("rise", 7, None)
        3
        """
        if self.alone:
            return 1
        each = self.seconds.get(key)
        if each is None:
            return left if foreseen is not None and foreseen * left <= min(SURE, self.portion) else 1
        return left if each * left <= self.portion else max(1, int(self.portion / each))

    def fits(self, key: Hashable, foreseen: float | None) -> bool:
        """Whether one sample is known to take no longer than a portion."""
        if self.alone:
            return False
        each = self.seconds.get(key)
        return each <= self.portion if each is not None else foreseen is not None and foreseen <= SURE

    def next_size(self, size: int, took: float) -> int:
        """How many methods come next where so many took so long: twice as many, or half."""
        if self.alone:
            return 1
        return 2 * size if 2 * took <= self.portion else max(1, size // 2)

    def note(self, key: Hashable, samples: int, seconds: float) -> None:
        """Some samples took so long."""
        self.seconds[key] = seconds / samples

    def note_passes(self, spent: Spent) -> None:
        """What passes have taken so far."""
        if spent.forwards:
            self.seconds["pass"] = (spent.seconds + spent.slope_seconds) / spent.forwards

    def foreseen(self, component: Any, shape: Shape, method: str = "") -> float | None:
        """Seconds for one sample, from the passes that a component declares; None where it declares none."""
        if "pass" not in self.seconds or isinstance(component, FunctionMethod | FunctionMetric):
            return None  # a user's function may take its time besides its passes
        try:
            if isinstance(component, Metric):
                if component.reexplanation_count(shape):
                    return None
                forwards, backwards = passes_of(component.asks(shape, method), component.passes(shape))
            else:
                forwards, backwards = passes_of(component.asks(shape), component.passes(shape))
        except Exception:  # what cannot be predicted is measured
            return None
        return (forwards + 2 * backwards) * self.seconds["pass"] if forwards else None
