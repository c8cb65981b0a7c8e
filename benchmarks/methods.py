"""Every method of the catalogue: overhead over the bare passes it needs, and its time against its peers'.

    make bench
    python benchmarks/methods.py --methods rise,lime,grad_cam --samples 4 --json

Every figure is a median of ratios: each repeat measures bare passes, our method and its peers one after the other in
the same process, so that a noisy machine hurts all alike. Methods that draw many samples draw fewer here, and their
peers as many, unless `--full` is given.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from common import Bare, Stage, attempt, clock, measure_bare, median, settle
from peers import PEERS, Explain, Task, as_torch_comes
from rich.console import Console
from rich.table import Table

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.spec import split
from heatcheck.core.types import OK, Batch, NotApplicable
from heatcheck.methods.base import Method
from heatcheck.probe.asks import passes_of
from heatcheck.probe.calls import Spent
from heatcheck.probe.probe import Probe
from heatcheck.run.task import first_line

FEWER = {"samples": 64, "designs": 4}
"""What is drawn without `--full`."""
HEAD_ONLY = {"grad_cam", "grad_cam_pp", "smooth_grad_cam_pp", "xgrad_cam", "layer_cam", "hires_cam"}
"""Methods whose backward passes go through the head alone, so that they owe little more than forwards (P4)."""
IN_STEPS = {"guided_ig"}
"""Methods that ask one question about each sample at a time, and the next when they have heard the answer."""
BAR, PEER_BAR, MANY = 1.15, 1.10, 16
"""Bars P2 and P4, bar P5, and the passes per sample from which P2 counts."""


@dataclass
class Row:
    """What is known about one method; ratios by who it is compared with, one per repeat."""

    method: str
    samples: int = 0
    forwards: float = 0.0
    backwards: float = 0.0
    predicted: float = 0.0
    bar: str = ""
    overheads: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    peers: dict[str, list[float]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As plain data, with medians and verdicts; None where there is nothing to judge."""
        overhead = median(self.overheads)
        peers = {who: median(r) for who, r in self.peers.items()}
        judged = [overhead <= BAR] if overhead is not None and self.bar else []
        judged += [ratio <= PEER_BAR for ratio in peers.values() if ratio is not None]
        return {
            "method": self.method,
            "samples": self.samples,
            "forwards": self.forwards,
            "backwards": self.backwards,
            "predicted": self.predicted,
            "overhead": overhead,
            "own_ms_per_pass": median(self.own),
            "bar": self.bar or None,
            "peers": peers,
            "reasons": self.reasons,
            "repeats": len(self.overheads),
            "pass": all(judged) if judged else None,
        }


@dataclass(frozen=True)
class Bench(Stage):
    """A stage whose batch is for methods that need many passes each.

    Args:
        filled: as many samples as fill a micro-batch, for methods that need few passes, or few at a time: they would
            pay for padding otherwise.
    """

    filled: Batch

    @staticmethod
    def make(model: str, data: str, samples: int) -> "Bench":
        """Load, encode, predict, and find the best micro-batches."""
        stage = Stage.make(model, data, samples)
        fill = min(len(stage.batch), max(stage.numerics.forward, stage.numerics.backward))
        some = stage.batch.take(range(min(samples, len(stage.batch))))
        return Bench(stage.model, some, stage.numerics, stage.batch.take(range(fill)))

    def for_component(self, component: Method) -> "Bench":
        """The same with the samples that suit a method."""
        few = passes_of(component.asks(self.shape(0)), component.passes(self.shape(0)))[0] < MANY
        return replace(self, batch=self.filled) if few or component.id in IN_STEPS else self

    def ours(self, component: Method) -> tuple[float, float, Spent]:
        """Processor seconds, seconds outside the model, and passes of our method with a probe nobody has used."""
        probe = Probe(self.model, self.numerics)
        start, wall = clock(), time.perf_counter()
        got = component(probe, self.batch)
        took, wall = clock() - start, time.perf_counter() - wall
        wrong = next((s for s in got.status if s != OK), None)
        if wrong:
            raise hc.HeatcheckError(wrong)
        return took, wall - probe.spent.seconds - probe.spent.slope_seconds, probe.spent

    def rate(self, component: Method, repeats: int, patience: float) -> Row:
        """Measure one method and its peers; at least three repeats, or as many as asked within `patience` seconds."""
        row = Row(component.name)
        try:
            component = component.resolve(self.model.domain)
            bench = self.for_component(component)
            row.samples = len(bench.batch)
            foretold = [passes_of(component.asks(s), component.passes(s)) for s in map(bench.shape, range(row.samples))]
            row.predicted = sum(f for f, _ in foretold) / row.samples
            peers = dict(bench.ready(component, row))
            began = time.perf_counter()
            for repeat in range(repeats):
                if repeat >= 3 and time.perf_counter() - began > patience:
                    break
                bench.once(component, peers, row)
        except NotApplicable as reason:
            row.reasons["heatcheck"] = str(reason)
        except Exception as problem:
            row.reasons["heatcheck"] = f"failed: {first_line(problem)}"
        return row

    def ready(self, component: Method, row: Row) -> Iterator[tuple[str, Explain]]:
        """Peers that can be asked; for the others the row says why not."""
        for who, make in PEERS.get(component.id, {}).items():
            task = Task(self.model, as_torch_comes(self.model), self.batch, component, self.numerics)
            explain = attempt(lambda make=make, task=task: make(task), who, row.reasons)
            if explain is not None:
                yield who, explain

    def once(self, component: Method, peers: dict[str, Explain], row: Row) -> None:
        """One repeat: bare passes, our method, its peers."""
        bare: Bare = measure_bare(self.model, self.batch.x, self.numerics)
        took, own, spent = self.ours(component)
        n = len(self.batch)
        row.forwards, row.backwards = spent.forwards / n, spent.backwards / n
        head_only = component.id in HEAD_ONLY
        row.bar = "P4" if head_only else "P2" if row.forwards >= MANY else ""
        if spent.forwards:
            row.overheads.append(took / bare.seconds(spent.forwards, 0 if head_only else spent.backwards))
            row.own.append(1000 * own / spent.forwards)
        for who, explain in list(peers.items()):
            start = clock()
            if attempt(lambda explain=explain: (explain(),), who, row.reasons) is None:
                del peers[who]
            else:
                row.peers.setdefault(who, []).append(took / (clock() - start))


def chosen(methods: str | None, full: bool) -> list[Method]:
    """The units to measure: those named, or the whole catalogue."""
    names = split(methods) if methods else sorted(catalogue.entries("method"))
    units = [catalogue.build("method", name) for name in names]
    if full:
        return units
    given = {u: {k: n for k, n in FEWER.items() if u.params().get(k, 0) > n} for u in units}
    return [replace(u, **fewer) if fewer else u for u, fewer in given.items()]


def show(rows: list[dict[str, Any]], title: str) -> Table:
    """The rows as people read them."""
    table = Table(title=title)
    for name in ("method", "samples", "forwards", "backwards", "to bare passes", "own ms per pass", "to peers", "bars"):
        table.add_column(name, justify="left" if name in ("method", "to peers") else "right")
    for row in rows:
        peers = [f"{who} {ratio:.2f}" for who, ratio in row["peers"].items() if ratio is not None]
        peers += [f"{who}: {why}" for who, why in row["reasons"].items()]
        foretold = "" if row["predicted"] == row["forwards"] else f" (foretold {row['predicted']:g})"
        overhead, own = row["overhead"], row["own_ms_per_pass"]
        verdict = {True: "[green]pass[/]", False: "[red]FAIL[/]", None: ""}[row["pass"]]
        table.add_row(
            row["method"],
            str(row["samples"]) if overhead is not None else "",
            f"{row['forwards']:g}{foretold}" if overhead is not None else "",
            f"{row['backwards']:g}" if overhead is not None else "",
            f"{overhead:.2f}" + (f" {row['bar']}" if row["bar"] else "") if overhead is not None else "",
            f"{own:.2f}" if own is not None else "",
            "\n".join(peers),
            verdict,
        )
    return table


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="efficientnet_lite0")
    options.add_argument("--data", default="images")
    options.add_argument("--methods", help="specs, separated by commas; all by default")
    options.add_argument("--samples", type=int, default=4, help="for methods that need many passes per sample")
    options.add_argument("--repeats", type=int, default=7)
    options.add_argument("--patience", type=float, default=120, help="seconds per method after three repeats")
    options.add_argument("--full", action="store_true", help="every method with its default number of samples")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    settle()
    bench = Bench.make(given.model, given.data, given.samples)
    rows, progress = [], Console(stderr=True)
    for component in chosen(given.methods, given.full):
        start = time.perf_counter()
        rows.append(bench.rate(component, given.repeats, given.patience).record())
        progress.print(f"{component.name}: {time.perf_counter() - start:.0f} s", style="dim")
    if given.json:
        facts = {"model": given.model, "numerics": bench.numerics.record()}
        print(json.dumps({**facts, "rows": rows}, indent=2))
        return
    sizes = f"{bench.numerics.forward} per forward, {bench.numerics.backward} per backward"
    Console().print(show(rows, f"{given.model}, one thread, {sizes}"))


if __name__ == "__main__":
    main()
