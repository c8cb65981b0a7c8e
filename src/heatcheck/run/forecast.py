"""The passes that one sample will need, counted from what methods and metrics say they ask."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heatcheck.core.types import Sample
from heatcheck.models.base import Model
from heatcheck.probe.asks import CLEAN, Ask, Shape, passes_of
from heatcheck.run.grid import ModelGrid


@dataclass(frozen=True)
class Forecast:
    """Passes that one sample needs, in all and by method and metric. `shared` are those that more than one of them asks for."""

    forwards: int
    backwards: int
    shared: int
    rows: tuple[dict[str, Any], ...]


def forecast(grid: ModelGrid, shape: Shape) -> Forecast:
    """Predict the passes of one sample.

    Exact, unless two methods happen to order units alike, or share a pass when a metric explains again: then it is fewer.
    """
    asked: dict[Ask, int] = {CLEAN: 1}
    extra_forwards = extra_backwards = 0
    rows: list[dict[str, Any]] = [{"kind": "clean", "name": "clean outputs", "forwards": 1, "backwards": 0}]

    def add(kind: str, name: str, asks: set[Ask], extra: tuple[int, int]) -> None:
        nonlocal extra_forwards, extra_backwards
        fresh = {a for a in asks if a not in asked}
        for a in asks:
            asked[a] = asked.get(a, 0) + 1
        forwards, backwards = passes_of(fresh, extra)
        extra_forwards += extra[0]
        extra_backwards += extra[1]
        rows.append({"kind": kind, "name": name, "forwards": forwards, "backwards": backwards})

    made: set[str] = set()
    explained: set[tuple[str, Ask]] = set()
    for m in grid.methods:
        fresh = m.component.cache_key not in made
        made.add(m.component.cache_key)
        add("method", m.label, m.component.asks(shape), m.component.passes(shape) if fresh else (0, 0))
    for metric in grid.metrics:
        asks: set[Ask] = set()
        forwards = backwards = 0
        for m in grid.methods:
            asks |= metric.component.asks(shape, m.digest)
            f, b = metric.component.passes(shape)
            again = {(m.digest, e) for e in metric.component.reexplanations(shape)} - explained
            if again:
                explained |= again
                own = passes_of(m.component.asks(shape), m.component.passes(shape))
                f, b = f + len(again) * own[0], b + len(again) * own[1]
            forwards, backwards = forwards + f, backwards + b
        add("metric", metric.label, asks, (forwards, backwards))
    total = passes_of(set(asked), (extra_forwards, extra_backwards))
    return Forecast(*total, sum(1 for n in asked.values() if n > 1), tuple(rows))


def shapes_of(model: Model, samples: Sequence[Sample]) -> list[Shape]:
    """The samples that a model can read, as a plan sees them."""
    found = []
    for sample in samples:
        try:
            x = model.encode(sample)
            found.append(Shape(model.domain, x, model, model.references(sample, x)))
        except Exception:  # noqa: S112 - such a sample costs nothing; the run reports it
            continue
    return found
