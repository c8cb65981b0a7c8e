"""What the paper on the meaningful perturbation metric claims about maps and perturbations.

Paper: cohen2025.
"""

import numpy as np
import polars as pl

from heatcheck.stats.claims import Row, Verdict, judge
from heatcheck.stats.estimates import LEVEL, Estimate
from heatcheck.stats.evidence import Evidence, NotTestable, claim, over_models
from heatcheck.stats.intervals import bootstrap_indices
from heatcheck.stats.separation import eta_squared

PAPER = "cohen2025"
CURVES = ("morf", "lerf", "abpc", "deletion", "insertion", "sds", "road", "inpainting")
"""Metrics that perturb the input with a fill."""
NEARLY_NOTHING = 0.05
"""The share of variance between methods below which a metric is said to score them nearly alike."""
APART = 0.5
"""The mean of 1 − Spearman above which maps are said to vary: half way to unrelated."""
DELETES, MEANS, BLURS, PAINTS = ("black",), ("channel_mean", "dataset_mean", "zero"), ("blur",), ("diffusion", "migan")


@claim(PAPER, "Figure 1", "Maps of different methods vary widely for one picture.")
def maps_vary(evidence: Evidence) -> Verdict:
    """The mean of 1 − Spearman between the maps of all pairs of methods."""
    if not evidence.disagreement:
        raise NotTestable("the run keeps no maps of two methods on one sample")
    parts: list[Row] = []
    for model, values in evidence.disagreement.items():
        parts.append({"model": model, **evidence.estimate(values - APART).record()})
    least = min(parts, key=lambda part: part["value"])
    effect = Estimate(**{k: least[k] for k in ("value", "low", "high", "n")})
    note = f"mean disagreement {effect.value + APART:.2f} at least, on {least['model']}"
    return Verdict(f"lowest disagreement above {APART:g}", effect, judge(effect), tuple(parts), note)


@claim(PAPER, "Figure 2", "The violation test ranks a random map between methods, for every classifier.")
def violation_ranks_random_between(evidence: Evidence) -> Verdict:
    """Whether some method is significantly better than random and another significantly worse."""
    found: dict[str, bool | None] = {}
    for model, rows in _rows(evidence, evidence.metrics("violation")):
        better, worse = rows["beats_random"].any(), rows["loses_to_random"].any()
        found[model] = True if better and worse else False if rows["beats_random"].all() else None
    if not found:
        raise NotTestable("violation was not measured together with random")
    return over_models(found, "models where it is so")


@claim(PAPER, "Figure 2", "The saliency metric gives all methods nearly the same score.")
def saliency_metric_is_flat(evidence: Evidence) -> Verdict:
    """The share of the variance that lies between methods, η²."""
    names = evidence.metrics("saliency_metric")
    parts: list[Row] = []
    for name in names:
        for model in evidence.measured.get(name, {}):
            values = evidence.cube(name, [model], evidence.methods(name, model)).values[0]
            value = eta_squared(values)
            drawn = [eta_squared(values[:, i]) for i in bootstrap_indices(values.shape[1], 400, evidence.seed)]
            low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
            parts.append({"model": model, "value": value, "low": min(low, value), "high": high, "n": values.shape[1]})
    if not parts:
        raise NotTestable("the metric saliency_metric was not measured")
    most = max(parts, key=lambda part: part["value"])
    effect = Estimate(
        NEARLY_NOTHING - most["value"], NEARLY_NOTHING - most["high"], NEARLY_NOTHING - most["low"], most["n"]
    )
    note = f"η² is {most['value']:.3f} at most, on {most['model']}"
    return Verdict(f"η² below {NEARLY_NOTHING:g}", effect, judge(effect, 0.0), tuple(parts), note)


@claim(PAPER, "Figure 2", "Deletion (black) does not separate methods from random, for any classifier.")
def deleting_fails(evidence: Evidence) -> Verdict:
    """Whether random is better than some method under a black fill."""
    return _separates(evidence, DELETES, False)


@claim(PAPER, "Figure 2", "The mean colour does not separate methods from random on convolutional networks.")
def mean_fails(evidence: Evidence) -> Verdict:
    """Whether random is better than some method under a mean fill; zero is the mean in normalised space."""
    return _separates(evidence, MEANS, False)


@claim(PAPER, "Figure 2", "Blur does not separate methods from random on AlexNet.")
def blur_fails(evidence: Evidence) -> Verdict:
    """Whether random is better than some method under blur."""
    return _separates(evidence, BLURS, False, model="alexnet")


@claim(PAPER, "Figure 2", "Inpainting separates methods from random, for every classifier.")
def inpainting_separates(evidence: Evidence) -> Verdict:
    """Whether all methods are significantly better than random where holes are painted in."""
    return _separates(evidence, PAINTS, True)


def _separates(evidence: Evidence, fills: tuple[str, ...], wanted: bool, model: str = "") -> Verdict:
    """Whether all methods beat random under metrics with one of these fills (or, if not wanted, one loses to it)."""
    found: dict[str, bool | None] = {}
    alone = ""
    for metric in (m for m in evidence.run.get("metrics", ()) if m["id"] in CURVES):
        name = str(metric["name"])
        measured = [m for m in evidence.measured.get(name, {}) if evidence.fill_of(metric, m) in fills]
        chosen = [m for m in measured if model in m.lower()]
        tested = dict(_rows(evidence, [name]))
        for on in (m for m in chosen if m in tested):
            all_better, one_worse = tested[on]["beats_random"].all(), tested[on]["loses_to_random"].any()
            found[f"{on} under {name}"] = wanted if all_better else not wanted if one_worse else None
        if chosen and not tested:
            alone = name
    if not found and alone:
        raise NotTestable(f"{alone} was not measured together with random")
    if not found:
        where = f" on a model called {model}" if model else ""
        raise NotTestable(f"no curve was measured with the fill {' or '.join(fills)}{where}")
    return over_models(found, "cases where it is so")


def _rows(evidence: Evidence, metrics: list[str]) -> list[tuple[str, pl.DataFrame]]:
    """Per model, the methods that were tested against random under some metrics."""
    tested = evidence.board.filter(
        pl.col("metric").is_in(metrics) & ~pl.col("control") & pl.col("beats_random").is_not_null()
    )
    return [(str(model), rows) for (model,), rows in tested.group_by("model", maintain_order=True)]
