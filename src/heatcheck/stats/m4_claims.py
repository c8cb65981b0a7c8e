"""What M4's slides and tables claim, as statements that a run can test.

Paper: li2023.
"""

from itertools import combinations

import numpy as np
import polars as pl

from heatcheck.stats.claims import HELD, NOT_HELD, UNDECIDED, Row, Verdict, judge
from heatcheck.stats.cube import means_of
from heatcheck.stats.estimates import LEVEL, Estimate, share_estimate
from heatcheck.stats.evidence import Evidence, NotTestable, all_above, claim
from heatcheck.stats.m4 import metric_correlation, pearson
from heatcheck.stats.published import drawn_means
from heatcheck.stats.table import Array
from heatcheck.stats.timings import times_as_long, timings

PAPER = "li2023"
CORRELATED = ("abpc", "pscore", "infidelity")
STRONG = 0.4
"""Pearson's correlation that is called strong here: the lowest of the paper's own three is 0.44."""
LEAST_ROWS = 5
_RESAMPLES = 400
LEARNT = 0.95
"""The share of pictures on which a network must find the square, for its square to be the truth."""
VISIBLE = 0.01
"""The excess of the autocorrelation below which borders of patches do not show, for sure: that of noise strays by 0.003."""
FAST, SLOW = ("GradCAM", "GA"), ("SG", "IG", "BT/H", "BT/T", "LIME")


@claim(PAPER, "slides, question 1", "ABPC, PScore and INFD are strongly correlated over models and methods.")
def metrics_correlate(evidence: Evidence) -> Verdict:
    """The lowest Pearson correlation of the three pairs; the note has Spearman's and what one row does to it."""
    rows = _rows(evidence)
    pairs = list(combinations(range(len(CORRELATED)), 2))

    def lowest(means: Array) -> float:
        return float(np.nanmin([pearson(means[:, i], means[:, j]) for i, j in pairs]))

    means = np.stack([means_of(row) for row in rows.values()])
    value, n = lowest(means), min(row.shape[1] for row in rows.values())
    if n < 2 or np.isnan(value):
        raise NotTestable("a metric is the same for all rows, or there is one sample")
    resamples = min(evidence.resamples, _RESAMPLES)
    each = np.stack([drawn_means(row, resamples, evidence.seed) for row in rows.values()])
    drawn = [lowest(each[:, i]) for i in range(resamples)]
    low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    effect = Estimate(value - STRONG, min(float(low), value) - STRONG, max(float(high), value) - STRONG, n)
    cells = pl.DataFrame(
        [
            {"model": model, "method": method, "metric": name, "mean": float(mean)}
            for (model, method), row in zip(rows, means, strict=True)
            for name, mean in zip(CORRELATED, row, strict=True)
        ]
    )
    parts = tuple(metric_correlation(cells, dict.fromkeys(CORRELATED, 1.0)).iter_rows(named=True))
    told = "; ".join(
        f"{p['a']}–{p['b']} Pearson {_two(p['pearson'])} ({_two(p['pearson_lowest'])} to {_two(p['pearson_highest'])} "
        f"without one row), Spearman {_two(p['spearman'])}"
        for p in parts
    )
    return Verdict(f"lowest Pearson correlation above {STRONG:g}", effect, judge(effect, 0.0), parts, told)


def _two(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _rows(evidence: Evidence) -> dict[tuple[str, str], Array]:
    """Signed scores of every model and method: [metrics, samples]."""
    names = {id: evidence.metrics(id) for id in CORRELATED}
    lacking = [id for id, found in names.items() if not any(name in evidence.measured for name in found)]
    if lacking:
        raise NotTestable(f"not measured: {', '.join(lacking)}")
    metrics = [next(n for n in names[id] if n in evidence.measured) for id in CORRELATED]
    models = set.intersection(*({*evidence.measured[metric]} for metric in metrics))
    found: dict[tuple[str, str], Array] = {}
    for model in sorted(models):
        common = set.intersection(*({*evidence.methods(metric, model)} for metric in metrics))
        for method in sorted(common):
            cubes = [evidence.cube(metric, [model], [method]) for metric in metrics]
            common_samples = sorted(set.intersection(*(set(cube.samples) for cube in cubes)))
            found[model, method] = np.stack([cube.at(common_samples).values[0, 0] for cube in cubes])
    if len(found) < LEAST_ROWS:
        raise NotTestable(f"{len(found)} rows of a model and a method have all three; {LEAST_ROWS} are needed")
    return found


@claim(PAPER, "Table 2", "GradCAM and GA are faster than SG, IG, BT and LIME.")
def cams_are_fast(evidence: Evidence) -> Verdict:
    """How many times as long the slow ones take as the fast ones, less one: the smallest of all pairs on all models.

    Times are those of the portions in which the run computed maps. One portion has no interval, and decides nothing.
    """
    pairs: dict[tuple[str, str, str], tuple[Array, Array]] = {}
    for model in dict.fromkeys(str(m["name"]) for m in evidence.run.get("models", ())):
        seconds = timings(evidence.scores, model)
        fast, slow = ([evidence.named[n] for n in names if evidence.named.get(n) in seconds] for names in (FAST, SLOW))
        pairs |= {(model, a, b): (seconds[a], seconds[b]) for a in slow for b in fast}
    if not pairs:
        raise NotTestable("it needs GradCAM or GA and one of SG, IG, BT and LIME on one model")
    each = {names: times_as_long(*times) for names, times in pairs.items()}
    level = 1 - (1 - LEVEL) / len(pairs)
    if all(e.low > 1 for e in each.values()):
        verdict = HELD
    else:
        verdict = NOT_HELD if any(times_as_long(*t, level=level).high < 1 for t in pairs.values()) else UNDECIDED
    model, a, b = nearest = min(each, key=lambda names: each[names].value)
    parts: tuple[Row, ...] = tuple(
        {"model": model, "method": slow, "other": fast, **e.record()} for (model, slow, fast), e in each.items()
    )
    e = each[nearest]
    effect = Estimate(e.value - 1, e.low - 1, e.high - 1, e.n)
    told = f"{a} takes {e.value:.3g} times as long as {b} on {model}, as timed here"
    alone = sum(part["n"] < 2 for part in parts)
    if alone:
        told += f"; {alone} of {len(parts)} pairs were timed once, which gives no interval: more samples are timed more often"
    return Verdict("times as long at least, less one", effect, verdict, parts, told, "portions timed")


@claim(PAPER, "Table 1", "Every method's SynScore is above chance, 0.5.")
def synscore_above_chance(evidence: Evidence) -> Verdict:
    """The lowest mean SynScore over models and methods, minus one half."""
    names = evidence.metrics("synscore", kind="auc")
    above = {
        (model, method): evidence.cube(name, [model], [method]).values[0, 0] - 0.5
        for name in names
        for model in evidence.measured.get(name, {})
        for method in evidence.methods(name, model)
    }
    if not above:
        raise NotTestable("SynScore was not measured; profile m4_squares does")
    each, verdict = all_above(evidence, above)
    model, method = min(each, key=lambda pair: each[pair].value)
    parts: tuple[Row, ...] = tuple({"model": a, "method": b, **e.record()} for (a, b), e in each.items())
    return Verdict("lowest SynScore above 0.5", each[model, method], verdict, parts, f"{method} on {model}")


@claim(PAPER, "supplement", "The networks of SynScore find the square, so that it is what a right map shows.")
def squares_are_learnt(evidence: Evidence) -> Verdict:
    """The lowest accuracy of a network that SynScore was measured on."""
    models = {model for name in evidence.metrics("synscore") for model in evidence.measured.get(name, {})}
    found = {model: share_estimate(evidence.right[model]) for model in sorted(models) if model in evidence.right}
    if not found:
        raise NotTestable("SynScore was not measured on labelled pictures; profile m4_squares does")
    model = min(found, key=lambda name: found[name].value)
    e = found[model]
    effect = Estimate(e.value - LEARNT, e.low - LEARNT, e.high - LEARNT, e.n)
    return Verdict(f"lowest accuracy above {LEARNT:g}", effect, judge(effect, 0.0), (), f"{e.value:.1%} of {model}")


@claim(PAPER, "supplement, Figure 3", "Maps of IG and SG on vision transformers show the borders of patches.")
def patches_show(evidence: Evidence) -> Verdict:
    """How much more |A| repeats itself at the side of a patch than at neighbouring lags, the lowest over models and methods."""
    if not evidence.borders:
        raise NotTestable(
            "it needs IG or SG on a network that cuts pictures into patches, and their maps, stored pixel by pixel"
        )
    each, verdict = all_above(evidence, evidence.borders, matters=VISIBLE)
    model, method = min(each, key=lambda pair: each[pair].value)
    parts: tuple[Row, ...] = tuple({"model": a, "method": b, **e.record()} for (a, b), e in each.items())
    return Verdict(
        "autocorrelation at the side of a patch", each[model, method], verdict, parts, f"{method} on {model}"
    )
