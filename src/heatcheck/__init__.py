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

__version__ = "0.1.0"

if TYPE_CHECKING:
    from heatcheck.api import Benchmark, compare_fills, explain, multiverse, score
    from heatcheck.data.base import Dataset
    from heatcheck.data.load import load_data
    from heatcheck.engine.result import Result
    from heatcheck.fills.base import Fill, fill
    from heatcheck.methods.base import Method, method
    from heatcheck.metrics.base import Maps, Metric, metric
    from heatcheck.models.base import Explained
    from heatcheck.models.load import load_model
    from heatcheck.models.preprocess import Preprocess
    from heatcheck.study import Study
    from heatcheck.types import Attribution, Batch, HeatcheckError, NotApplicable, Scores
    from heatcheck.universes import Multiverse

_WHERE = {
    "Attribution": "types",
    "Batch": "types",
    "Benchmark": "api",
    "Dataset": "data.base",
    "Explained": "models.base",
    "Fill": "fills.base",
    "HeatcheckError": "types",
    "Maps": "metrics.base",
    "Method": "methods.base",
    "Metric": "metrics.base",
    "Multiverse": "universes",
    "NotApplicable": "types",
    "Preprocess": "models.preprocess",
    "Result": "engine.result",
    "Scores": "types",
    "Study": "study",
    "compare_fills": "api",
    "explain": "api",
    "fill": "fills.base",
    "load_data": "data.load",
    "load_model": "models.load",
    "method": "methods.base",
    "metric": "metrics.base",
    "multiverse": "api",
    "score": "api",
}

__all__ = [
    "Attribution",
    "Batch",
    "Benchmark",
    "Dataset",
    "Explained",
    "Fill",
    "HeatcheckError",
    "Maps",
    "Method",
    "Metric",
    "Multiverse",
    "NotApplicable",
    "Preprocess",
    "Result",
    "Scores",
    "Study",
    "__version__",
    "compare_fills",
    "explain",
    "fill",
    "load_data",
    "load_model",
    "method",
    "metric",
    "multiverse",
    "score",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'heatcheck' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"heatcheck.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
