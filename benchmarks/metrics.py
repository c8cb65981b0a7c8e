"""Every metric of the catalogue: overhead over the distinct passes it needs, its own cost, and its time against peers'.

    make bench
    python benchmarks/metrics.py --metrics "sds, morf, infidelity" --maps 4 --json
    python benchmarks/metrics.py --growth

Every figure is a median of ratios: each repeat measures bare passes, our metric and its peers one after the other in
the same process, so that a noisy machine hurts all alike. *Own cost* is measured on a network that looks at one pixel and
so is almost free. Metrics that ask much ask less here, and their peers as much, unless `--full` is given.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from common import Stage, attempt, clock, measure_bare, median, settle
from metric_peers import PEERS, Rate, Task
from peers import as_torch_comes
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from heatcheck.core import catalogue
from heatcheck.core.spec import split
from heatcheck.core.types import Attribution, Batch, NotApplicable
from heatcheck.domain.image import ImageDomain
from heatcheck.metrics.base import Maps, Metric
from heatcheck.models.torch_model import TorchModel
from heatcheck.probe.asks import CLEAN
from heatcheck.probe.calls import Spent
from heatcheck.probe.probe import Probe
from heatcheck.run.forecast import forecast
from heatcheck.run.grid import Labelled, ModelGrid
from heatcheck.run.task import first_line

FEWER = {"steps": 16, "samples": 32, "layers": 2}
"""What is asked without `--full`."""
EXPLAINED = "saliency"
"""Whose maps are scored where a metric explains again: one gradient each."""
BAR, OWN_BAR, PEER_BAR, MANY = 1.15, 0.5, 1.10, 16
"""Bars P2, P3 and P5, and the passes per sample from which P2 counts."""


class Free(nn.Module):
    """A classifier that looks at one pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x[:, :, 0, 0])


@dataclass
class Row:
    """What is known about one metric; ratios by who it is compared with, one per repeat."""

    metric: str
    maps: int = 0
    samples: int = 0
    forwards: int = 0
    distinct: int = 0
    overheads: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    peers: dict[str, list[float]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As plain data, with medians and verdicts; None where there is nothing to judge."""
        overhead, own = median(self.overheads), median(self.own)
        peers = {who: median(r) for who, r in self.peers.items()}
        many = self.samples > 0 and self.forwards / self.samples >= MANY
        judged = {
            "P1": self.forwards <= self.distinct if self.distinct else None,
            "P2": overhead <= BAR if overhead is not None and many else None,
            "P3": own <= OWN_BAR if own is not None and many else None,
            "P5": all(r <= PEER_BAR for r in peers.values() if r is not None) if peers else None,
        }
        return {
            "metric": self.metric,
            "maps": self.maps,
            "samples": self.samples,
            "forwards": self.forwards,
            "distinct": self.distinct,
            "overhead": overhead,
            "own_ms_per_pass": own,
            "ms_per_map": median(self.seconds),
            "peers": peers,
            "reasons": self.reasons,
            "bars": {bar: ok for bar, ok in judged.items() if ok is not None},
        }


@dataclass(frozen=True)
class Bench(Stage):
    """A stage with maps to score.

    Args:
        count: how many methods' maps are scored together.
    """

    count: int

    @staticmethod
    def make(model: str, data: str, samples: int, count: int) -> "Bench":
        """Load, encode, predict, and find the best micro-batches."""
        stage = Stage.make(model, data, samples)
        return Bench(stage.model, stage.batch.take(range(min(samples, len(stage.batch)))), stage.numerics, count)

    def free(self) -> "Bench":
        """The same samples before a network that costs nothing."""
        domain = self.model.domain
        known = {"mean": domain.mean, "std": domain.std} if isinstance(domain, ImageDomain) else {}
        nothing = replace(self.batch, target=self.batch.target % 10, label=self.batch.label % 10)
        return replace(self, model=TorchModel(Free(), "free", ImageDomain(**known)), batch=nothing)

    def maps(self, component: Metric) -> Maps:
        """Random maps, smooth like real ones; or those of a method where the metric explains again."""
        if "method" in component.facts["needs"] or component.reexplanation_count(self.shape(0)):
            method = catalogue.build("method", EXPLAINED).resolve(self.model.domain)
            made = method(Probe(self.model, self.numerics), self.batch)
            return Maps([made] * self.count, self.model.domain, self.batch, [method] * self.count)
        return random_maps(self.batch, self.model.domain, self.count)

    def ours(self, component: Metric, maps: Maps) -> tuple[float, Spent]:
        """Processor seconds and passes; clean answers are known, as in a run, and maps and probe otherwise fresh."""
        fresh = Maps(maps.items, maps.domain, maps.batch, maps.explainers)
        probe = Probe(self.model, self.numerics)
        probe.clean(self.batch)
        before, start = probe.spent.copy(), clock()
        component(probe, self.batch, fresh)
        return clock() - start, probe.spent.since(before)

    def distinct(self, component: Metric, maps: Maps) -> int:
        """How many different passes the plan foresees, clean ones aside."""
        method = catalogue.build("method", EXPLAINED).resolve(self.model.domain)
        total = 0
        for i in range(len(self.batch)):
            shape = self.shape(i)
            asks = set().union(*(component.asks(shape, f"map {j}") for j in range(len(maps)))) - {CLEAN}
            own = forecast(ModelGrid(model=self.model, methods=(Labelled("", method, ""),)), shape).forwards - 1
            total += len(asks) + len(maps) * (
                component.passes(shape)[0] + component.reexplanation_count(shape) * max(1, own)
            )
        return total

    def rate(self, component: Metric, repeats: int, patience: float) -> Row:
        """Measure one metric and its peers; at least three repeats, or as many as asked within `patience` seconds."""
        row = Row(component.name, self.count, len(self.batch))
        try:
            component = component.resolve(self.model.domain)
            maps = self.maps(component)
            row.distinct = self.distinct(component, maps)
            peers = dict(self.ready(component, maps, row))
            began = time.perf_counter()
            for repeat in range(repeats):
                if repeat >= 3 and time.perf_counter() - began > patience:
                    break
                self.once(component, maps, peers, row)
        except NotApplicable as reason:
            row.reasons["heatcheck"] = str(reason)
        except Exception as problem:
            row.reasons["heatcheck"] = f"failed: {first_line(problem)}"
        return row

    def ready(self, component: Metric, maps: Maps, row: Row) -> Iterator[tuple[str, Rate]]:
        """Peers that can be asked; for the others the row says why not."""
        for who, make in PEERS.get(component.id, {}).items():
            task = Task(self.model, as_torch_comes(self.model), self.batch, maps, component, self.numerics)
            rate = attempt(lambda make=make, task=task: make(task), who, row.reasons)
            if rate is not None:
                yield who, rate

    def once(self, component: Metric, maps: Maps, peers: dict[str, Rate], row: Row) -> None:
        """One repeat: bare passes, our metric, its own cost, its peers."""
        bare = measure_bare(self.model, self.batch.x, self.numerics)
        took, spent = self.ours(component, maps)
        row.forwards = spent.forwards
        row.seconds.append(1000 * took / len(maps) / len(self.batch))
        if spent.forwards:
            row.overheads.append(took / bare.seconds(spent.forwards, spent.backwards))
        if spent.forwards and component.facts["needs"] == () and component.reexplanation_count(self.shape(0)) == 0:
            free = self.free()
            mine, passes = free.ours(component, random_maps(free.batch, free.model.domain, self.count))
            row.own.append(1000 * mine / passes.forwards)
        for who, rate in list(peers.items()):
            start = clock()
            if attempt(lambda rate=rate: (rate(),), who, row.reasons) is None:
                del peers[who]
            else:
                row.peers.setdefault(who, []).append(took / (clock() - start))


def random_maps(batch: Batch, domain: Any, count: int) -> Maps:
    """Noise of the size of the picture, the same every time."""
    rng = torch.Generator().manual_seed(0)
    shape = domain.reduce(domain.leaf(batch.x), "sum").shape
    items = [Attribution(torch.randn(shape, generator=rng), batch.target, f"map {j}") for j in range(count)]
    return Maps(items, domain, batch)


def growth(bench: Bench, repeats: int) -> Iterator[dict[str, Any]]:
    """How passes and time grow with methods, steps, samples and the size of pictures (P6)."""
    for spec in ("sds", "infidelity(samples=32)", "morf(steps=16)"):
        for count in (1, 2, 4, 8):
            yield grown(replace(bench, count=count), spec, "methods", count, repeats)
    for steps in (8, 16, 32, 64):
        yield grown(bench, f"morf(steps={steps})", "steps", steps, repeats)
    for n in (1, 2, 4):
        if n <= len(bench.batch):
            yield grown(replace(bench, batch=bench.batch.take(range(n))), "morf(steps=16)", "samples", n, repeats)
    for side in (56, 112, 224, 448):
        x = bench.batch.x.replace(pixels=nn.functional.interpolate(bench.batch.x["pixels"], (side, side)))
        sized = replace(bench, batch=replace(bench.batch, x=x, references=()))
        yield grown(sized.free(), "morf(steps=16)", "side, free model", side, repeats)


def grown(bench: Bench, spec: str, what: str, value: int, repeats: int) -> dict[str, Any]:
    """One point of a curve."""
    component = catalogue.build("metric", spec).resolve(bench.model.domain)
    maps = bench.maps(component)
    runs = [bench.ours(component, maps) for _ in range(repeats)]
    seconds = median([took for took, _ in runs])
    return {"metric": spec, "grows": what, "to": value, "forwards": runs[0][1].forwards, "seconds": seconds}


def chosen(metrics: str | None, full: bool) -> list[Metric]:
    """The units to measure: those named, or the whole catalogue but what has no score on one model alone."""
    names = split(metrics) if metrics else sorted(catalogue.entries("metric"))
    units = [catalogue.build("metric", name) for name in names]
    units = [u for u in units if not u.across_models and not u.composite and "retraining" not in u.facts["needs"]]
    if full:
        return units
    # zero samples mean all of them: infidelity's windows
    given = {u: {k: n for k, n in FEWER.items() if not 0 < u.params().get(k, n) <= n} for u in units}
    return [replace(u, **fewer) if fewer else u for u, fewer in given.items()]


def show(rows: list[dict[str, Any]], title: str) -> Table:
    """The rows as people read them."""
    table = Table(title=title)
    names = ("metric", "passes", "distinct", "to bare passes", "own ms per pass", "ms per map", "to peers", "bars")
    for name in names:
        table.add_column(name, justify="left" if name in ("metric", "to peers", "bars") else "right")
    for row in rows:
        peers = [f"{who} {ratio:.2f}" for who, ratio in row["peers"].items() if ratio is not None]
        peers += [f"{who}: {why}" for who, why in row["reasons"].items()]
        bars = [f"[{'green' if ok else 'red'}]{bar}[/]" for bar, ok in row["bars"].items()]
        numbers = [row["overhead"], row["own_ms_per_pass"], row["ms_per_map"]]
        shown = ["" if v is None else f"{v:.2f}" for v in numbers]
        table.add_row(
            row["metric"], str(row["forwards"]), str(row["distinct"]), *shown, "\n".join(peers), " ".join(bars)
        )
    return table


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="efficientnet_lite0")
    options.add_argument("--data", default="images")
    options.add_argument("--metrics", help="specs, separated by commas; all by default")
    options.add_argument("--samples", type=int, default=4)
    options.add_argument("--maps", type=int, default=4, help="methods whose maps are scored together")
    options.add_argument("--repeats", type=int, default=7)
    options.add_argument("--patience", type=float, default=60, help="seconds per metric after three repeats")
    options.add_argument("--full", action="store_true", help="every metric with its defaults")
    options.add_argument("--growth", action="store_true", help="how cost grows, instead of the table")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    settle()
    bench = Bench.make(given.model, given.data, given.samples, given.maps)
    facts = {"model": given.model, "numerics": bench.numerics.record()}
    if given.growth:
        points = list(growth(bench, given.repeats))
        print(json.dumps({**facts, "growth": points}, indent=2)) if given.json else show_growth(points)
        return
    rows, progress = [], Console(stderr=True)
    for component in chosen(given.metrics, given.full):
        start = time.perf_counter()
        rows.append(bench.rate(component, given.repeats, given.patience).record())
        progress.print(f"{component.name}: {time.perf_counter() - start:.0f} s", style="dim")
    if given.json:
        print(json.dumps({**facts, "rows": rows}, indent=2))
        return
    title = (
        f"{given.model}, {given.samples} samples, {given.maps} maps, one thread, {bench.numerics.forward} per forward"
    )
    Console().print(show(rows, title))


def show_growth(points: list[dict[str, Any]]) -> None:
    """Growth as a table."""
    table = Table(title="How cost grows")
    for name in ("metric", "grows", "to", "forwards", "seconds"):
        table.add_column(name, justify="left" if name in ("metric", "grows") else "right")
    for p in points:
        table.add_row(p["metric"], p["grows"], str(p["to"]), str(p["forwards"]), f"{p['seconds']:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
