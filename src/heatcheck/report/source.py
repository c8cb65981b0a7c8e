"""What a report reads: a run's stored numbers, maps and facts."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from heatcheck.stats import Facts, apart


class Source(Protocol):
    """A finished or partial run. Every string in it is somebody else's and may be hostile."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Name, settings, environment, models, data, methods, metrics, circular pairs, skips, passes: JSON."""

    def scores(self) -> pl.DataFrame:
        """The long table: run, model, data, sample, target, method, metric, score, status and costs."""

    def samples(self) -> pl.DataFrame:
        """Per model and sample: label, target and predicted class, each with its name; prob; status."""

    def curves(self, model: str, metric: str) -> pl.DataFrame:
        """Columns sample, method, share, curve (the last two are lists); empty if the metric has no curves."""

    def map(self, model: str, sample: str, method: str) -> NDArray[np.floating] | None:
        """A kept map: [h, w] at native resolution, or one value per token."""

    def display(self, model: str, sample: str) -> Mapping[str, Any] | None:
        """`{"kind": "image", "rgb": uint8[h, w, 3]}` or `{"kind": "text", "tokens": [...], "special": [...]}`."""

    def gallery(self) -> Sequence[tuple[str, str]]:
        """The (model, sample) pairs to show under all methods."""


def stats_facts(facts: Mapping[str, Any]) -> Facts:
    """What `heatcheck.stats` needs to know, out of a run's facts."""
    methods = facts.get("methods", ())
    metrics = facts.get("metrics", ())
    of_model = frozenset(m["name"] for m in metrics if "map" in m.get("invariant", ()))
    chance = [m["name"] for m in methods if m.get("id") == "random"]
    return Facts(
        higher_is_better={m["name"]: m["better"] == "higher" for m in metrics},
        controls=frozenset(m["name"] for m in methods if m.get("control")),
        circular=frozenset((method, metric) for method, metric in facts.get("circular", ())),
        random="random" if "random" in chance or not chance else chance[0],
        of_model=of_model,
        apart=apart({m["name"]: m.get("family") for m in metrics}, of_model),
    )
