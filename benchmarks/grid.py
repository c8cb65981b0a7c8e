"""Overhead over the bare model passes: a grid of methods × metrics, as ratios measured in one run.

    make bench
    python benchmarks/grid.py --peers --samples 16

Every time is a ratio to bare passes measured in the same process, so that a noisy machine hurts both sides alike. With
`--peers`, the grid of SDS, MoRF, LeRF and infidelity is scored for eight maps per picture by us, all at once, and by
Quantus and the papers' procedures, one method and metric after the other.
"""

import argparse
import statistics
import time
from dataclasses import replace

from common import attempt, clock, measure_bare, median, settle
from metric_peers import PEERS, Task, flipping, quantus
from peers import as_torch_comes
from rich.console import Console
from rich.table import Table

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.metrics.base import Maps
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe
from heatcheck.run.forecast import forecast
from heatcheck.run.grid import ModelGrid
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import prepare
from heatcheck.run.task import run_chunk
from metrics import Bench

MAPS = 8
GRID = {
    "sds": PEERS["sds"]["IDSDS"],
    "morf(steps=32)": quantus("PixelFlipping", flipping),
    "lerf(steps=32)": quantus("PixelFlipping", flipping),
    "infidelity(samples=32)": PEERS["infidelity"]["Captum"],
}
"""Metrics of the grid, and who scores them otherwise."""


def compare(model: str, data: str, samples: int, repeats: int) -> None:
    """The same grid by us and by peers, in turns."""
    bench = Bench.make(model, data, samples, MAPS)
    built = {spec: catalogue.build("metric", spec).resolve(bench.model.domain) for spec in GRID}
    maps = bench.maps(built["sds"])
    reasons: dict[str, str] = {}
    task = {
        s: Task(bench.model, as_torch_comes(bench.model), bench.batch, maps, u, bench.numerics)
        for s, u in built.items()
    }
    peers = {s: attempt(lambda s=s: GRID[s](task[s]), s, reasons) for s in GRID}
    ratios, spent = [], None
    for _ in range(repeats):
        probe, start = Probe(bench.model, bench.numerics), clock()
        given = Maps(maps.items, maps.domain, maps.batch)
        for component in built.values():
            component(probe, bench.batch, given)
        ours, start, spent = clock() - start, clock(), probe.spent
        if not all(peers.values()) or not all(attempt(lambda p=p: (p(),), s, reasons) for s, p in peers.items()):
            break
        ratios.append((clock() - start) / ours)
    table = Table(title=f"{', '.join(GRID)} × {MAPS} maps × {len(bench.batch)} pictures on {model}")
    for column in ("our passes", "passes without sharing", "peers' time ÷ ours"):
        table.add_column(column, justify="right")
    said = "; ".join(f"{who} {why}" for who, why in reasons.items())
    table.add_row(str(spent.forwards), str(spent.asked), said or f"{median(ratios):.2f}")
    Console().print(table)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", default="efficientnet_lite0")
    options.add_argument("--data", default="images")
    options.add_argument("--samples", type=int, default=4)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--peers", action="store_true", help="the grid against Quantus and the papers' procedures")
    given = options.parse_args()
    settle()
    if given.peers:
        compare(given.model, given.data, given.samples, given.repeats)
        return
    bench = hc.Benchmark(models=given.model, data=given.data, profile="quick")
    setup = bench.setup(given.samples)
    part = prepare(setup, Runtime(), None)[0]
    samples = list(setup.data)
    whole, model, numerics = part.grid, part.grid.model, part.grid.numerics
    x = model.encode(samples[0])
    methods = {m.label: m for m in whole.methods}
    grids: list[tuple[str, ModelGrid]] = [
        (m.label, replace(whole, methods=(m,), metrics=()))
        for m in whole.methods
        if m.component.passes(Shape(model.domain, x, model))[0] >= 8
    ]
    controls = tuple(methods[n] for n in ("random", "sobel", "center", "constant") if n in methods)
    grids += [
        (f"{k.label} × {len(controls)} maps", replace(whole, methods=controls, metrics=(k,))) for k in whole.metrics
    ]
    grids.append(("whole grid", whole))
    table = Table(title=f"{given.model}, {len(samples)} samples, one thread, {numerics.forward} per forward")
    for column in ("what", "passes", "predicted", "ratio to bare passes", "own ms per pass"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for name, grid in grids:
        told = [forecast(grid, Shape(model.domain, model.encode(s), model)) for s in samples]
        predicted = sum(t.forwards for t in told)
        ratios, own, run = [], [], 0
        for _ in range(given.repeats):
            bare = measure_bare(model, x, numerics)
            start, wall = clock(), time.perf_counter()
            spent = run_chunk(grid, samples).spent
            took, wall = clock() - start, time.perf_counter() - wall
            ratios.append(took / bare.seconds(spent.forwards, spent.backwards))
            own.append(1000 * (wall - spent.seconds - spent.slope_seconds) / max(1, spent.forwards))
            run = spent.forwards
        table.add_row(
            name, str(run), str(predicted), f"{statistics.median(ratios):.2f}", f"{statistics.median(own):.2f}"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
