"""Time of a pass on both roads: in a run's probe, and through `hc.explain` and `hc.score`, beside bare passes (P2)."""

import argparse

import torch
from common import Stage, clock, measure_bare, median, settle

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.types import Attribution, Batch
from heatcheck.metrics.base import Maps
from heatcheck.probe.calls import Spent
from heatcheck.probe.probe import Probe

ASKED = ("rise(samples=64)", "integrated_gradients(steps=32)"), ("morf(steps=32)",)
"""Methods and metrics that are timed."""


def in_a_run(stage: Stage, kind: str, name: str, batch: Batch, maps: torch.Tensor) -> tuple[float, Spent]:
    """Seconds that a run's probe takes, and the passes."""
    component = catalogue.build(kind, name).resolved_on(stage.model.domain, number=False)
    probe = Probe(stage.model, stage.numerics)
    start = clock()
    if kind == "method":
        component(probe, batch)
    else:
        component(probe, batch, Maps([Attribution(maps[0], batch.target)], stage.model.domain, batch))
    return clock() - start, probe.spent


def by_verb(stage: Stage, kind: str, name: str, x: torch.Tensor, maps: torch.Tensor) -> float:
    """Seconds that the verb takes for the same."""
    start = clock()
    if kind == "method":
        hc.explain(stage.model, x, method=name)
    else:
        hc.score(stage.model, x, maps, metric=name)
    return clock() - start


def main() -> None:
    """Time bare passes, the probe and the verbs one after the other, several times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="efficientnet_lite0")
    parser.add_argument("--data", default="images")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    settle()
    stage = Stage.make(given.model, given.data, given.samples)
    batch = stage.batch.take(range(given.samples))
    x = stage.model.domain.leaf(batch.x)
    maps = torch.rand(1, len(batch), *x.shape[-2:], generator=torch.Generator().manual_seed(0))
    print(f"calls of {stage.numerics.forward} and {stage.numerics.backward}; milliseconds of the processor per pass")
    print(f"{'':32}{'bare':>8}{'run':>8}{'verb':>8}{'run/bare':>10}{'verb/bare':>10}", flush=True)
    for kind, names in zip(("method", "metric"), ASKED, strict=True):
        for name in names:
            bare, run, verb = [], [], []
            for _ in range(given.repeats):
                floor = measure_bare(stage.model, stage.batch.x, stage.numerics)
                seconds, spent = in_a_run(stage, kind, name, batch, maps)
                run.append(1000 * seconds / spent.forwards)
                bare.append(1000 * floor.seconds(spent.forwards, spent.backwards) / spent.forwards)
                verb.append(1000 * by_verb(stage, kind, name, x, maps) / spent.forwards)
            a, b, c = (median(times) or 0.0 for times in (bare, run, verb))
            print(f"{name:32}{a:8.1f}{b:8.1f}{c:8.1f}{b / a:10.2f}{c / a:10.2f}", flush=True)


if __name__ == "__main__":
    main()
