"""What a run will cost, told before it is spent."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from heatcheck.engine.plan import Forecast, Shape, forecast
from heatcheck.engine.probe import Probe
from heatcheck.engine.run import Options, Part, Setup, peak_bytes, prepare
from heatcheck.engine.store import Store
from heatcheck.engine.task import done
from heatcheck.types import Batch, Inputs, Streams

LOOK = 64
"""Samples that are looked at; beyond them the mean is taken. Exact below, and where all inputs have one shape."""


@dataclass
class Plan:
    """Passes, time, memory and disk of a run, and what will be skipped.

    Passes are exact unless two methods order units alike, which saves some.
    """

    samples: int = 0
    forwards: int = 0
    backwards: int = 0
    shared: int = 0
    seconds: float | None = None
    memory_bytes: int = 0
    disk_bytes: int = 0
    reused: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return dict(self.__dict__)


def plan(setup: Setup, options: Options, out: str | Path | None, *, calibrate: bool = True) -> Plan:
    """Predict a run from the declared questions of its units and a short calibration."""
    store = Store.open(out) if out is not None and (Path(out) / "run.json").exists() else None
    told = Plan(samples=len(setup.data))
    seconds = 0.0
    for part in prepare(setup, options if calibrate else Options(batch=options.batch or 1, maps=options.maps), store):
        open_samples = [
            s for s in setup.data if not s.problem and not (store and done(store, part.model.identity, s, part.work))
        ]
        told.reused += len(setup.data) - len(open_samples)
        told.skipped += [{"model": part.label, "unit": unit, "reason": reason} for unit, reason in part.skipped.items()]
        shapes = shapes_of(part, open_samples[:LOOK])
        if not shapes:
            continue
        seen = [shape.x for shape in shapes]
        each = [forecast(part.work.methods, part.work.metrics, shape) for shape in shapes]
        scale = len(open_samples) / len(each)
        add_rows(told, part, each, scale)
        sites = [int(torch.tensor(part.model.domain.shape(x)).prod()) for x in seen]
        kept = {"keep": scale * sum(sites), "gallery": sum(sites[: len(part.work.gallery)]), "none": 0}[options.maps]
        told.disk_bytes += round(kept * 4 * len(part.work.methods))
        if calibrate:
            forward, backward = rates(part, seen[0])
            slopes = scale * sum(f.backwards for f in each)
            seconds += (scale * sum(f.forwards for f in each) - slopes) * forward + slopes * backward
    told.seconds = seconds / max(1, options.workers) if calibrate else None
    told.memory_bytes = peak_bytes()
    return told


def shapes_of(part: Part, samples: Sequence[Any]) -> list[Shape]:
    """The samples that can be read, as a plan sees them."""
    found = []
    for sample in samples:
        try:
            x = part.model.encode(sample)
            found.append(Shape(part.model.domain, x, part.model, part.model.references(sample, x)))
        except Exception:  # noqa: S112 - such a sample costs nothing; the run reports it
            continue
    return found


def add_rows(told: Plan, part: Part, each: list[Forecast], scale: float) -> None:
    """Add one model's forecast to the plan."""
    told.forwards += round(scale * sum(f.forwards for f in each))
    told.backwards += round(scale * sum(f.backwards for f in each))
    told.shared += round(scale * sum(f.shared for f in each))
    for i, row in enumerate(each[0].rows):
        told.rows.append(
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

    probe = Probe(part.model, part.numerics)
    many = x.take(torch.zeros(part.numerics.forward, dtype=torch.long))
    forward = timed(part.numerics.forward, lambda: probe.logits(many))
    if not part.model.differentiable:
        return forward, forward
    n = part.numerics.backward
    rows = torch.arange(n)
    some = x.take(torch.zeros(n, dtype=torch.long))
    batch = Batch(some, torch.zeros(n, dtype=torch.long), torch.full((n,), -1), Streams(0, ("",) * n), altered=True)
    try:
        backward = timed(n, lambda: list(probe.gradients(batch, rows, some.take, "logit")))
    except RuntimeError:
        return forward, forward
    return forward, backward
