"""Overhead over the bare model passes: a grid of methods × metrics, as ratios measured in one run.

    make bench

Every time is a ratio to bare passes measured in the same process, so that a noisy machine hurts both sides alike.
"""

import argparse
import statistics
import time

from common import clock, measure_bare, settle
from rich.console import Console
from rich.table import Table

import heatcheck as hc
from heatcheck.engine.plan import Shape, forecast
from heatcheck.engine.run import Options, prepare
from heatcheck.engine.task import Work, run_chunk


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", default="efficientnet_lite0")
    options.add_argument("--data", default="images")
    options.add_argument("--samples", type=int, default=4)
    options.add_argument("--repeats", type=int, default=5)
    given = options.parse_args()
    settle()
    bench = hc.Benchmark(models=given.model, data=given.data, profile="quick")
    setup = bench.setup(given.samples)
    part = prepare(setup, Options(), None)[0]
    samples = list(setup.data)
    x = part.model.encode(samples[0])
    methods = {m.label: m for m in part.work.methods}
    grids: list[tuple[str, Work]] = [
        (m.label, Work((m,), ()))
        for m in part.work.methods
        if m.unit.passes(Shape(part.model.domain, x, part.model))[0] >= 8
    ]
    controls = tuple(methods[n] for n in ("random", "sobel", "center", "constant") if n in methods)
    grids += [(f"{k.label} × {len(controls)} maps", Work(controls, (k,))) for k in part.work.metrics]
    grids.append(("whole grid", part.work))
    table = Table(title=f"{given.model}, {len(samples)} samples, one thread, {part.numerics.forward} per forward")
    for column in ("what", "passes", "predicted", "ratio to bare passes", "own ms per pass"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for name, work in grids:
        told = [
            forecast(work.methods, work.metrics, Shape(part.model.domain, part.model.encode(s), part.model))
            for s in samples
        ]
        predicted = sum(t.forwards for t in told)
        ratios, own, run = [], [], 0
        for _ in range(given.repeats):
            bare = measure_bare(part.model, x, part.numerics)
            start, wall = clock(), time.perf_counter()
            spent = run_chunk(part.model, part.numerics, samples, work).spent
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
