"""Meta-Rank on real cases: six kinds of networks, three sets of pictures, MoRF and LeRF; and ROAD's limits on two of them."""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import torch
from rich.console import Console
from studies.common import CIFAR10, RUNS, SHARED, needed, table, timed

import heatcheck as hc
from heatcheck.cli.rank import show
from heatcheck.core import catalogue
from heatcheck.core.types import Batch, Streams
from heatcheck.report.terminal import AlongTable
from heatcheck.report.wording import number
from heatcheck.stats import accuracy_by_share
from heatcheck.stats.claims import Verdict
from heatcheck.stats.metarank_claims import time_rises_steeply

WEIGHTS = SHARED / "weights"
DEPTHS = (20, 32, 44, 56)
ROAD_CASES = (("EfficientNet-Lite0", "imagenet-val-300"), ("CIFAR ResNet-20", "cifar10"))
ROAD = ["road(order=morf, output=accuracy)", "road(order=lerf, output=accuracy)"]
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
TIMED = 20
"""Pictures whose imputation is timed."""
REPEATS = 3
"""Of which the fastest counts: what else the machine does only adds."""


def clip() -> hc.Model:
    """CLIP's ViT-B/16 with its zero-shot head, as `benchmarks/vit.py` builds it."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    import vit

    return vit.as_model(vit.load(SHARED))


MODELS: dict[str, str | Callable[[], hc.Model]] = {
    "EfficientNet-Lite0": "efficientnet_lite0",
    "ResNet-50": f"resnet50_v1@{WEIGHTS / 'resnet50_v1_imagenet.safetensors'}",
    "SqueezeNet": f"squeezenet1_0_v1@{WEIGHTS / 'squeezenet1_0_imagenet.safetensors'}",
    "CLIP ViT-B/16": clip,
    **{f"CIFAR ResNet-{d}": str(WEIGHTS / f"cifar10_resnet{d}_akamaster.safetensors") for d in DEPTHS},
}
SAMPLES = {"ResNet-50": 6, "CLIP ViT-B/16": 2, **{f"CIFAR ResNet-{d}": 200 for d in DEPTHS}}
"""Of networks whose passes cost more or less than those of the others, which have 30."""
PICTURES = {
    "imagenet-val-300": f"imagenet:{SHARED / 'data' / 'imagenet-val-300'}",
    "imagenet-val-2000": f"imagenet:{SHARED / 'data' / 'imagenet-val-2000'}",
    "cifar10": f"cifar10:{CIFAR10}",
}


def cases(only: str = "") -> Iterator[tuple[str, str]]:
    """Every network with every set of pictures that has its classes; of `only`, those whose name begins so."""
    for model in MODELS:
        for data in PICTURES:
            if model.startswith("CIFAR") == (data == "cifar10") and model.startswith(only):
                yield model, data


def run(model: str, data: str, scale: float, metrics: list[str] | None = None, kind: str = "case") -> hc.Result:
    """One network on one set of pictures, with the profile's methods."""
    made, samples = MODELS[model], max(1, round(scale * SAMPLES.get(model, 30)))
    bench = hc.Benchmark(
        models={model: made if isinstance(made, str) else made()},
        data=PICTURES[data],
        profile="metarank",
        metrics=metrics,
        samples=samples,
    )
    folder = RUNS / "meta-rank" / f"{kind}-{model}-{data}".replace("/", "-").replace(" ", "-").lower()
    with timed(f"{model} on {data}, {kind}"):
        return bench.run(folder, samples=samples, workers=2 if isinstance(made, str) else None)


def rank_cases(results: list[hc.Result]) -> None:
    """All cases, ranked together."""
    found = hc.rank(results, by="protocol")
    page = found.save(RUNS / "meta-rank" / "rank")
    show(found)
    print("page:", page)


def claims(kind: str, results: list[hc.Result]) -> Iterator[tuple[str, ...]]:
    """Meta-Rank's claims on the cases of some runs, a row each."""
    found = hc.compare(results[0], "metarank", others=results[1:])
    print("page:", found.save(RUNS / "meta-rank" / f"claims-{kind}"))
    for row in found.claims:
        told = (number(row["value"], 2), told_ends(row["low"], row["high"]))
        yield f"{kind}: {row['says']}", row["verdict"], *told, row["note"]


def seconds_of(call: Callable[[], object]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def imputation_times(model: str, data: str, samples: int) -> np.ndarray:
    """Seconds of ROAD's imputation at each share removed, [samples, shares]; pixels are removed at random."""
    made = MODELS[model]
    net = hc.load_model(made) if isinstance(made, str) else made()
    fill = catalogue.build("fill", "linear")
    generator = torch.Generator().manual_seed(0)
    times = []
    for sample in hc.load_data(PICTURES[data], samples=samples):
        x = net.encode(sample)
        nobody = torch.zeros(1, dtype=torch.long)
        full = fill.full(net.domain, Batch(x, nobody, nobody, Streams(0, (sample.digest,))))
        sites = net.domain.leaf(x).shape[-2:].numel()
        order = torch.randperm(sites, generator=generator)
        row = []
        for share in SHARES:
            keep = torch.ones(1, sites, dtype=torch.bool)
            keep[0, order[: int(share * sites)]] = False
            row.append(min(seconds_of(partial(fill.erase, net.domain, x, keep, full)) for _ in range(REPEATS)))
        times.append(row)
    return np.array(times)


def road_limits(results: dict[tuple[str, str], hc.Result]) -> Iterator[Verdict]:
    """Fig. S7: accuracy and time by share removed."""
    for (model, data), result in results.items():
        answers = result.samples()
        clean = dict(zip(answers["sample"], (answers["predicted"] == answers["label"]).cast(pl.Float64), strict=True))
        for metric in result.facts["metrics"]:
            shown = accuracy_by_share(result.curves(model, metric["name"]), clean)
            shares = shown["share"].unique().sort().to_list()
            rows = []
            for (method,), part in shown.group_by("method", maintain_order=True):
                rows.append((method, *(f"{100 * a:.0f}" for a in part.sort("share")["accuracy"])))
            table((f"{model} on {data}, {metric['name']}: accuracy in %", *(f"{s:.0%}" for s in shares)), rows)
        times = imputation_times(model, data, TIMED)
        table(("milliseconds", *(f"{s:.0%}" for s in SHARES)), [("linear", *(f"{1e3 * t:.1f}" for t in times.mean(0)))])
        yield time_rises_steeply(times, 1, 6, f"ROAD's time rises steeply with the share removed ({model} on {data})")


def told_ends(low: float, high: float) -> str:
    """An interval; a dash where there is none."""
    return "–" if np.isnan(low) else f"{number(low, 2)} to {number(high, 2)}"


def main(scale: float = 1.0, only: str = "") -> None:
    """All of it; `scale` multiplies the numbers of pictures, `only` is the beginning of some networks' names."""
    needed(*(SHARED / "data" / name for name in ("imagenet-val-300", "imagenet-val-2000")))
    if any(model.startswith(only) for model in MODELS if model.startswith("CIFAR")):
        needed(CIFAR10)
    results = [run(model, data, scale) for model, data in cases(only)]
    rank_cases(results)
    rows = list(claims("masking", results))
    along = RUNS / "r20-checkpoints"
    if along.is_dir():
        trained = hc.Result.open(along)
        Console().print(AlongTable(trained.along_training()))
        rows += claims("checkpoints", [trained])
    where = [case for case in ROAD_CASES if case in cases(only)]
    road = {case: run(*case, scale, metrics=ROAD, kind="road") for case in where}
    timed_claims = list(road_limits(road))
    if road:
        rows += claims("ROAD", list(road.values()))
    for v in timed_claims:
        rows.append((v.claim, v.verdict, number(v.effect.value, 2), told_ends(v.effect.low, v.effect.high), v.note))
    table(("claim of Meta-Rank", "verdict", "effect", "interval", "note"), rows)


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else 1.0, *sys.argv[2:])
