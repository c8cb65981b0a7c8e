"""Do your heatmaps tell the truth? Heatcheck measures how faithful feature attributions are.

import heatcheck as hc

result = hc.Benchmark(models="efficientnet_lite0", data="images", profile="quick").run("runs/first")
print(result.leaderboard())
result.report("report.html")

heat = hc.explain(model, x, method="integrated_gradients")
scores = hc.score(model, x, heat, metric="sds")
"""

import importlib
from typing import TYPE_CHECKING, Any

from heatcheck.core.version import __version__

if TYPE_CHECKING:
    from heatcheck.api.alignment import compare_alignment
    from heatcheck.api.benchmark import Benchmark
    from heatcheck.api.compare import PaperComparison, compare
    from heatcheck.api.explain import explain, score
    from heatcheck.api.fills import compare_fills
    from heatcheck.api.gate import Gate, gate
    from heatcheck.api.merge import merge
    from heatcheck.api.multiverse import Multiverse, multiverse
    from heatcheck.api.race import RaceResult, race
    from heatcheck.api.rank import Ranked, rank
    from heatcheck.api.result import Result
    from heatcheck.api.roar import roar
    from heatcheck.api.study import Study
    from heatcheck.api.train import plan_training, train
    from heatcheck.core.types import Attribution, Batch, HeatcheckError, NotApplicable, Scores, TextPair
    from heatcheck.data.base import Dataset
    from heatcheck.data.load import load_data
    from heatcheck.fills.base import Fill, fill
    from heatcheck.methods.base import Method, method
    from heatcheck.metrics.base import Maps, Metric, metric
    from heatcheck.models.base import Model
    from heatcheck.models.preprocess import Preprocess
    from heatcheck.run.runtime import Runtime
    from heatcheck.training.defaults import load_model

    Explained = Model

_WHERE = {
    "Attribution": "core.types",
    "Batch": "core.types",
    "Benchmark": "api.benchmark",
    "Dataset": "data.base",
    "Explained": "models.base:Model",
    "Fill": "fills.base",
    "Gate": "api.gate",
    "HeatcheckError": "core.types",
    "Maps": "metrics.base",
    "Method": "methods.base",
    "Metric": "metrics.base",
    "Model": "models.base",
    "Multiverse": "api.multiverse",
    "NotApplicable": "core.types",
    "PaperComparison": "api.compare",
    "Preprocess": "models.preprocess",
    "RaceResult": "api.race",
    "Ranked": "api.rank",
    "Result": "api.result",
    "Runtime": "run.runtime",
    "Scores": "core.types",
    "Study": "api.study",
    "TextPair": "core.types",
    "compare": "api.compare",
    "compare_alignment": "api.alignment",
    "compare_fills": "api.fills",
    "explain": "api.explain",
    "fill": "fills.base",
    "gate": "api.gate",
    "load_data": "data.load",
    "load_model": "training.defaults",
    "merge": "api.merge",
    "method": "methods.base",
    "metric": "metrics.base",
    "multiverse": "api.multiverse",
    "plan_training": "api.train",
    "race": "api.race",
    "rank": "api.rank",
    "roar": "api.roar",
    "score": "api.explain",
    "train": "api.train",
}
"""Where each public name is defined; `Explained` is what `Model` was called before."""

__all__ = [
    "Attribution",
    "Batch",
    "Benchmark",
    "Dataset",
    "Fill",
    "Gate",
    "HeatcheckError",
    "Maps",
    "Method",
    "Metric",
    "Model",
    "Multiverse",
    "NotApplicable",
    "PaperComparison",
    "Preprocess",
    "RaceResult",
    "Ranked",
    "Result",
    "Runtime",
    "Scores",
    "Study",
    "TextPair",
    "__version__",
    "compare",
    "compare_alignment",
    "compare_fills",
    "explain",
    "fill",
    "gate",
    "load_data",
    "load_model",
    "merge",
    "method",
    "metric",
    "multiverse",
    "plan_training",
    "race",
    "rank",
    "roar",
    "score",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'heatcheck' has no attribute {name!r}")
    module, _, original = _WHERE[name].partition(":")
    value = getattr(importlib.import_module(f"heatcheck.{module}"), original or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
