"""Every metric through a whole run on real networks and the default data: a number in its range or a reason.

With two samples a ranking proves little. What must hold is that no cell is lost, that no score leaves its declared
range, and that no metric puts a random map first without anybody being told: either random is last, or the table marks
the methods that are not better than random.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import heatcheck as hc
from heatcheck import stats
from heatcheck.api.result import Result
from heatcheck.core import catalogue

pytestmark = pytest.mark.slow

FEWER = {"steps": 6, "samples": 16, "layers": 2, "sizes": 3}
METHODS = ["grad_cam", "input_x_gradient", "random"]
TEXT_METHODS = ["integrated_gradients(steps=8)", "input_x_gradient", "random"]
SQUEEZENET, RESNET = "squeezenet1_0_imagenet.safetensors", "resnet50_v1_imagenet.safetensors"
BETWEEN = ("pscore", "m4_overall(incomplete=leave_out)")
"""Metrics that compare models, whose maps must have one size: SqueezeNet sees 227 pixels, ResNet-50 and Lite0 see 224."""


def specs(modality: str) -> list[str]:
    """Every metric that exists for a modality, with little work."""
    found = []
    for id, entry in sorted(catalogue.entries("metric").items()):
        if (
            modality in entry.facts["on"]
            and id not in ("pscore", "m4_overall")
            and "retraining" not in entry.facts["needs"]
            and entry.module.startswith("heatcheck.")
        ):
            unit = catalogue.build("metric", id)
            fewer = {k: n for k, n in FEWER.items() if not 0 < unit.params().get(k, n) <= n}
            found.append(catalogue.build("metric", id, **fewer).name)
    return found


def test_pictures(tmp_path: Path, shared: Path) -> None:
    weights = shared / "weights" / SQUEEZENET
    if not weights.exists():
        pytest.skip(f"the weights {SQUEEZENET} are not here")
    bench = hc.Benchmark(
        models={"lite0": "efficientnet_lite0", "squeezenet": f"squeezenet1_0_v1@{weights}"},
        data="images",
        methods=METHODS,
        metrics=specs("image"),
    )
    result = bench.run(tmp_path / "run", samples=2, progress="none")
    assert [problem for metric in specs("image") for problem in problems(result, metric)] == []
    apart = stats.separation(result.scores(), result.stats_facts)
    assert {"morf(steps=6)", "sds", "road"} <= set(apart["metric"])


def test_models_are_compared(tmp_path: Path, shared: Path) -> None:
    weights = shared / "weights" / RESNET
    if not weights.exists():
        pytest.skip(f"the weights {RESNET} are not here")
    bench = hc.Benchmark(
        models={"lite0": "efficientnet_lite0", "resnet50": f"resnet50_v1@{weights}"},
        data="images",
        methods=METHODS,
        metrics=["morf(steps=4)", "abpc(steps=4)", "infidelity(samples=8)", *BETWEEN],
    )
    result = bench.run(tmp_path / "run", samples=3, progress="none")
    assert [problem for metric in BETWEEN for problem in problems(result, metric)] == []
    agreement = result.scores().filter((pl.col("metric") == "pscore") & (pl.col("method") == "random"))["score"]
    assert agreement.max() < 1, "noise of one model agrees with that of another"


def test_texts(tmp_path: Path) -> None:
    bench = hc.Benchmark(
        models={"minilm": "minilm_sentiment", "the same": "minilm_sentiment"},
        data="texts",
        methods=TEXT_METHODS,
        metrics=specs("text"),
    )
    result = bench.run(tmp_path / "run", samples=2, progress="none")
    assert [problem for metric in specs("text") for problem in problems(result, metric)] == []


def problems(result: Result, metric: str) -> Iterator[str]:
    """Cells without a score in range or a reason, models without scores, random maps ahead and nobody told."""
    table = result.scores().filter(pl.col("metric") == metric)
    entry = catalogue.find("metric", metric.split("(")[0])
    low, high = (
        bound if bound is not None else sign * math.inf
        for bound, sign in zip(entry.facts["within"], (-1, 1), strict=True)
    )
    good = table.filter(pl.col("status") == "ok")
    bad = table.filter(pl.col("status").str.contains("^(failed|missing)"))
    yield from (f"{metric}: {status}" for status in bad["status"].unique())
    for model in sorted(set(table["model"]) - set(good["model"])):
        yield f"{metric} has no score on {model}: {table['status'].unique().to_list()}"
    yield from (
        f"{metric}: {s} is outside of {low} … {high}" for s in good["score"] if not low - 1e-9 <= s <= high + 1e-9
    )
    sign = 1 if entry.facts["better"] == "higher" else -1
    board = result.leaderboard().full.filter((pl.col("metric") == metric) & pl.col("mean").is_not_null())
    for (model,), rows in board.group_by("model"):
        mean = dict(zip(rows["method"], rows["mean"], strict=True))
        marked = set(rows.filter(~pl.col("beats_random").fill_null(False))["method"])
        behind = {m for m in mean if m != "random" and sign * mean[m] <= sign * mean.get("random", -sign * math.inf)}
        yield from (f"{metric}: {m} loses to random on {model}, and is not marked" for m in sorted(behind - marked))
