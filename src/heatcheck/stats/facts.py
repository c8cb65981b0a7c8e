"""What statistics need to know about methods and metrics beside their scores."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

NOT_FAITHFULNESS = ("form", "sanity")  # families of metrics that do not measure faithfulness


@dataclass(frozen=True)
class Facts:
    """What statistics need to know about methods and metrics beside their scores.

    Args:
        higher_is_better: the direction of every metric in the table.
        controls: methods that are shown and never ranked.
        circular: (method, metric) pairs in which the method makes the metric's own queries.
        random: the control that carries no information; a control even when `controls` omits it.
        of_model: metrics that measure the model: all maps score the same, so none is ranked or tested against random.
        outside_mean_rank: metrics that rank methods, do not measure faithfulness and do not count in the mean rank.
        paper: whether the run has the settings of a paper, whose metrics count even if random does well under them.
        within: lowest and highest possible score of the metrics that have such; None for no bound.
        remarks: what a reader must know about a metric, by model, data set and metric, such as what its name stands for.
    """

    higher_is_better: Mapping[str, bool]
    controls: frozenset[str] = frozenset()
    circular: frozenset[tuple[str, str]] = frozenset()
    random: str = "random"
    of_model: frozenset[str] = frozenset()
    outside_mean_rank: frozenset[str] = frozenset()
    paper: bool = False
    within: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    remarks: Mapping[tuple[str, str, str], str] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> "Facts":
        """From a run's facts: methods and metrics by the names that tables show, and circular pairs."""
        methods, metrics = run.get("methods", ()), run.get("metrics", ())
        of_model = frozenset(m["name"] for m in metrics if "map" in m.get("invariant", ()))
        randoms = [m["name"] for m in methods if m.get("id") == "random"]
        return cls(
            higher_is_better={m["name"]: m["better"] == "higher" for m in metrics},
            controls=frozenset(m["name"] for m in methods if m.get("control")),
            circular=frozenset((method, metric) for method, metric in run.get("circular", ())),
            random="random" if "random" in randoms or not randoms else randoms[0],
            of_model=of_model,
            outside_mean_rank=outside_mean_rank({m["name"]: m.get("family") for m in metrics}, of_model),
            paper=bool(run.get("paper", False)),
            within={m["name"]: (m["within"][0], m["within"][1]) for m in metrics if _has_range(m)},
            remarks={(r["model"], r["data"], r["metric"]): r["remark"] for r in run.get("remarks", ())},
        )

    def is_control(self, method: str) -> bool:
        """Whether `method` is shown for comparison only."""
        return method == self.random or method in self.controls

    def bounds(self, metric: str) -> tuple[float, float]:
        """The lowest and the highest possible score; infinite where none is known."""
        low, high = self.within.get(metric, (None, None))
        return -math.inf if low is None else low, math.inf if high is None else high

    def clipped(self, metric: str, low: float, mean: float, high: float) -> tuple[float, float]:
        """The ends of an interval around a mean, inside the metric's range."""
        lowest, highest = self.bounds(metric)
        return float(np.minimum(np.maximum(low, lowest), mean)), float(np.maximum(np.minimum(high, highest), mean))

    def sign(self, metric: str) -> float:
        """+1 where a higher score is better, −1 where a lower one is."""
        try:
            return 1.0 if self.higher_is_better[metric] else -1.0
        except KeyError:
            known = ", ".join(sorted(self.higher_is_better)) or "none"
            raise ValueError(
                f"no direction for metric {metric!r} (known: {known}); add it to Facts.higher_is_better"
            ) from None


def _has_range(metric: Mapping[str, Any]) -> bool:
    """Whether a metric's range is known: ranges are declared for default parameters, so its id says all of it."""
    return "within" in metric and metric.get("spec", metric["name"]) == metric.get("id")


def outside_mean_rank(families: Mapping[str, str | None], of_model: frozenset[str] = frozenset()) -> frozenset[str]:
    """Metrics that do not count in a run's mean rank: those of the families form and sanity.

    They do count where the run has no other metric that ranks methods.

    Args:
        families: the family of every metric, by name.
        of_model: metrics that rank no method.

    Example:
        >>> sorted(outside_mean_rank({"sds": "deletion", "sparseness": "form", "mprt": "sanity"}))
        ['mprt', 'sparseness']
        >>> sorted(outside_mean_rank({"sparseness": "form", "mprt": "sanity"}))
        []
    """
    found = frozenset(name for name, family in families.items() if family in NOT_FAITHFULNESS)
    return found if families.keys() - found - of_model else frozenset()
