"""What a run will cost, before anything is spent."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from heatcheck.core.types import Batch, Inputs, Streams
from heatcheck.probe.memory import needed, resident_bytes
from heatcheck.probe.probe import Probe
from heatcheck.probe.tuning import give_back, tune_allocator
from heatcheck.run.forecast import Forecast, forecast, shapes_of
from heatcheck.run.lacking import lacking, records_for, stored_scores
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import Part, Setup, place, prepare, processes_of
from heatcheck.run.store import Store
from heatcheck.run.task import CHUNK

LOOK = 64
"""Samples that are looked at; beyond them the mean is taken. Exact below, and where all inputs have one shape."""
MAP = 12
"""Bytes that a map in flight takes per pixel or token: its values, and its order while a metric deletes along it."""
WORKING = 150 << 20
"""Bytes that a process needs beside models, passes and maps: libraries that load late, masks, a chunk being written."""


@dataclass
class Plan:
    """Passes, time, memory and disk of a run, and what will be skipped.

    Passes are exact unless two methods order units alike, which saves some, or some cells of a sample are stored already:
    `stored` of all `cells`. `reused` counts the samples that lack none. `memory` has a row for each kind of process and
    device, with the most that one such process holds; `memory_bytes` is the largest of them on the CPU.
    """

    samples: int = 0
    forwards: int = 0
    backwards: int = 0
    shared: int = 0
    seconds: float | None = None
    memory_bytes: int = 0
    memory: list[dict[str, Any]] = field(default_factory=list)
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
    data = runtime.share(setup.data)
    found = Plan(samples=len(data), notes=notes)
    seconds = compiling = 0.0
    tune_allocator()
    needs: dict[str, int] = {}
    shaped = runtime if calibrate else Runtime.of(runtime, batch=runtime.batch or 1)
    for part in prepare(setup, shaped, store, calibrate=calibrate):
        grid = part.grid
        found.notes += part.notes
        compiling += part.compiling
        open_samples = lacking(store, data, grid) if store else [s for s in data if not s.problem]
        found.reused += len(data) - len(open_samples)
        found.cells += len(data) * len(grid.methods) * len(grid.metrics)
        found.stored += int(stored_scores(store, grid, records_for(store, data, grid)).sum()) if store else 0
        found.skipped += [
            {"model": part.label, "component": label, "unit": label, "reason": reason}  # `unit` is its earlier name
            for label, reason in part.skipped.items()
        ]
        shapes = shapes_of(grid.model, open_samples[:LOOK])
        if not shapes:
            continue
        seen = [shape.x for shape in shapes]
        each = [forecast(grid, shape) for shape in shapes]
        scale = len(open_samples) / len(each)
        add_rows(found, part, each, scale)
        sites = [grid.model.domain.site_count(x) for x in seen]
        kept = {"keep": scale * sum(sites), "gallery": sum(sites[: len(grid.gallery)]), "none": 0}[runtime.maps]
        found.disk_bytes += round(kept * 4 * len(grid.methods))
        if calibrate:
            most_sites = max(sites)
            largest = seen[sites.index(most_sites)]
            for device, most in needs_of(part, largest, most_sites).items():
                needs[device] = max(needs.get(device, 0), most)
            forward, backward = rates(part, largest)
            shares = [scale * own / most_sites for own in sites]
            slopes = sum(share * f.backwards for share, f in zip(shares, each, strict=True))
            forwards = sum(share * f.forwards for share, f in zip(shares, each, strict=True))
            seconds += (forwards - slopes) * forward + slopes * backward
    workers = processes_of(setup, runtime, seconds)
    found.seconds = seconds / workers + compiling if calibrate else None
    found.memory = memory_rows(needs, workers)
    found.memory_bytes = max(row["bytes"] for row in found.memory if row["device"] == "cpu")
    return found


def memory_rows(needs: Mapping[str, int], workers: int) -> list[dict[str, Any]]:
    """The most that each process holds, by device; several workers are told apart from the process that leads them."""
    give_back(0)
    base = resident_bytes()
    who = f"each of {workers} workers" if workers > 1 else "this process"
    rows = [{"process": who, "processes": workers, "device": "cpu", "bytes": base + WORKING + needs.get("cpu", 0)}]
    rows += [
        {"process": who, "processes": workers, "device": device, "bytes": most}
        for device, most in needs.items()
        if device != "cpu"
    ]
    return rows + ([{"process": "the driver", "processes": 1, "device": "cpu", "bytes": base}] if workers > 1 else [])


def needs_of(part: Part, x: Inputs, sites: int) -> dict[str, int]:
    """Bytes beside what a process holds at rest: passes at the run's micro-batches, and the maps of a chunk in flight."""
    probe = Probe(part.grid.model, part.grid.numerics)
    found = needed(lambda: passes(probe, x), part.grid.model.device)
    home = "cpu" if len(found) == 1 else next(name for name in found if name != "cpu")
    found[home] += CHUNK * len(part.grid.methods) * sites * MAP
    return found


def passes(probe: Probe, x: Inputs) -> None:
    """A forward call and a backward call as the run makes them."""
    n, m = probe.numerics.forward, probe.numerics.backward
    probe.logits(x.take(torch.zeros(n, dtype=torch.long)))
    if probe.model.differentiable:
        with suppress(RuntimeError):  # where gradients do not flow, none are asked for
            slopes(probe, x.take(torch.zeros(m, dtype=torch.long)))


def slopes(probe: Probe, some: Inputs) -> None:
    """A backward call."""
    n = len(some)
    batch = Batch(some, torch.zeros(n, dtype=torch.long), torch.full((n,), -1), Streams(0, ("",) * n), altered=True)
    batch = probe.placed(batch)
    for _ in probe.gradients(batch, probe.rows(n), batch.x.take, "logit"):
        pass


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
    some = x.take(torch.zeros(numerics.backward, dtype=torch.long))
    try:
        backward = timed(numerics.backward, lambda: slopes(probe, some))
    except RuntimeError:
        return forward, forward
    return forward, backward
