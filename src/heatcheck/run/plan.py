"""What a run will cost, before anything is spent."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from heatcheck.core.types import Batch, Inputs, Streams
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe
from heatcheck.run.forecast import Forecast, forecast
from heatcheck.run.manifest import peak_bytes
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import Part, Setup, place, prepare
from heatcheck.run.store import Store
from heatcheck.run.task import done, stored_cells

LOOK = 64
"""Samples that are looked at; beyond them the mean is taken. Exact below, and where all inputs have one shape."""


@dataclass
class Plan:
    """Passes, time, memory and disk of a run, and what will be skipped.

    Passes are exact unless two methods order units alike, which saves some, or some cells of a sample are stored already:
    `stored` of all `cells`. `reused` counts the samples that lack none.
    """

    samples: int = 0
    forwards: int = 0
    backwards: int = 0
    shared: int = 0
    seconds: float | None = None
    memory_bytes: int = 0
    disk_bytes: int = 0
    reused: int = 0
    cells: int = 0
    stored: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return dict(self.__dict__)


def plan(setup: Setup, runtime: Runtime, out: str | Path | None, *, calibrate: bool = True) -> Plan:
    """Predict a run from what its methods and metrics declare to ask, and a short calibration; writes nothing."""
    store = Store.open(out) if out is not None and (Path(out) / "run.json").exists() else None
    setup, notes = place(setup, runtime, store)
    found = Plan(samples=len(setup.data), notes=notes)
    seconds = 0.0
    for part in prepare(setup, runtime if calibrate else Runtime.of(runtime, batch=runtime.batch or 1), store):
        grid = part.grid
        open_samples = [s for s in setup.data if not s.problem and not (store and done(store, s, grid))]
        found.reused += len(setup.data) - len(open_samples)
        found.cells += len(setup.data) * len(grid.methods) * len(grid.metrics)
        found.stored += sum(stored_cells(store, s, grid) for s in setup.data) if store else 0
        found.skipped += [
            {"model": part.label, "component": label, "unit": label, "reason": reason}  # `unit` is its earlier name
            for label, reason in part.skipped.items()
        ]
        shapes = shapes_of(part, open_samples[:LOOK])
        if not shapes:
            continue
        seen = [shape.x for shape in shapes]
        each = [forecast(grid, shape) for shape in shapes]
        scale = len(open_samples) / len(each)
        add_rows(found, part, each, scale)
        sites = [int(torch.tensor(grid.model.domain.shape(x)).prod()) for x in seen]
        kept = {"keep": scale * sum(sites), "gallery": sum(sites[: len(grid.gallery)]), "none": 0}[runtime.maps]
        found.disk_bytes += round(kept * 4 * len(grid.methods))
        if calibrate:
            forward, backward = rates(part, seen[0])
            slopes = scale * sum(f.backwards for f in each)
            seconds += (scale * sum(f.forwards for f in each) - slopes) * forward + slopes * backward
    found.seconds = seconds / runtime.processes(seconds) if calibrate else None
    found.memory_bytes = peak_bytes()
    return found


def shapes_of(part: Part, samples: Sequence[Any]) -> list[Shape]:
    """The samples that can be read, as a plan sees them."""
    found = []
    model = part.grid.model
    for sample in samples:
        try:
            x = model.encode(sample)
            found.append(Shape(model.domain, x, model, model.references(sample, x)))
        except Exception:  # noqa: S112 - such a sample costs nothing; the run reports it
            continue
    return found


def add_rows(found: Plan, part: Part, each: list[Forecast], scale: float) -> None:
    """Add one model's forecast to the plan."""
    found.forwards += round(scale * sum(f.forwards for f in each))
    found.backwards += round(scale * sum(f.backwards for f in each))
    found.shared += round(scale * sum(f.shared for f in each))
    for i, row in enumerate(each[0].rows):
        found.rows.append(
            {
                "model": part.label,
                "kind": row["kind"],
                "name": row["name"],
                "forwards": round(scale * sum(f.rows[i]["forwards"] for f in each)),
                "backwards": round(scale * sum(f.rows[i]["backwards"] for f in each)),
            }
        )


def rates(part: Part, x: Inputs) -> tuple[float, float]:
    """Seconds per forward, and per forward with backward, at the run's own micro-batches."""

    def timed(n: int, call: Any) -> float:
        call()
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) / n

    model, numerics = part.grid.model, part.grid.numerics
    probe = Probe(model, numerics)
    many = x.take(torch.zeros(numerics.forward, dtype=torch.long))
    forward = timed(numerics.forward, lambda: probe.logits(many))
    if not model.differentiable:
        return forward, forward
    n = numerics.backward
    rows = torch.arange(n)
    some = x.take(torch.zeros(n, dtype=torch.long))
    batch = Batch(some, torch.zeros(n, dtype=torch.long), torch.full((n,), -1), Streams(0, ("",) * n), altered=True)
    try:
        backward = timed(n, lambda: list(probe.gradients(batch, rows, some.take, "logit")))
    except RuntimeError:
        return forward, forward
    return forward, backward
