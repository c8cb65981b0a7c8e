"""What IDSDS's paper claims about models and methods, tested on one's own scores.

Every claim is a number that should be above zero, with an interval over samples. All models and methods saw the same
pictures, so that differences are taken picture by picture.

Paper: hesse2024.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from heatcheck.core.spec import SpecError, parse
from heatcheck.stats.agreement import spearman
from heatcheck.stats.cube import Cube, mean_of, mean_over, means_of
from heatcheck.stats.estimates import LEVEL, RESAMPLES, Estimate, mean_estimate
from heatcheck.stats.intervals import bootstrap_indices
from heatcheck.stats.table import Array

HELD, NOT_HELD, UNDECIDED = "held", "not held", "not enough samples"
MATTERS = 0.01
"""The smallest difference of mean scores that counts: a claim of less is not held, however sure it is."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """What scores say about a claim.

    Args:
        claim: in a sentence.
        effect: what the claim says is above zero.
        verdict: `held` where the whole interval is above zero; `not held` where it leaves room for no effect that
            matters; else `not enough samples`.
        parts: the same for each method, pair or model, as rows.
        note: what a reader must know beside it.
        counted: what the effect's `n` is the number of.
    """

    claim: str
    effect: Estimate
    verdict: str
    parts: tuple[Row, ...] = ()
    note: str = ""
    counted: str = "samples"

    def record(self) -> Row:
        """As plain data."""
        return {
            "claim": self.claim,
            "verdict": self.verdict,
            **self.effect.record(),
            "parts": [dict(part) for part in self.parts],
            "note": self.note,
            "counted": self.counted,
        }

    def __str__(self) -> str:
        e = self.effect
        note = f"; {self.note}" if self.note else ""
        return (
            f"{self.claim}: {self.verdict} ({e.value:+.3f}, {e.low:+.3f} to {e.high:+.3f}, {e.n} {self.counted}{note})"
        )


def judge(effect: Estimate, matters: float = MATTERS) -> str:
    """`held`, `not held` or `not enough samples`.

    >>> judge(Estimate(0.1, 0.05, 0.15, 100)), judge(Estimate(0.0, -0.005, 0.005, 9999)), judge(Estimate(0.1, -1, 1, 3))
    ('held', 'not held', 'not enough samples')
    """
    if effect.low > 0:
        return HELD
    return NOT_HELD if effect.high < matters else UNDECIDED


def falls_with_depth(
    scores: pl.DataFrame,
    depths: Mapping[str, float],
    *,
    methods: Sequence[str],
    metric: str = "idsds",
    matters: float = MATTERS,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Verdict:
    """Do scores fall with a network's depth?

    The effect is how far the fitted line falls between the shallowest and the deepest model, averaged over methods.
    Least squares are linear, so it is a mean over samples of what each of them says. Rows of `parts` have it for each
    method, and Spearman's correlation of depth and mean score.

    Args:
        scores: tables of runs, under one another; models that are not in `depths` are left out.
        depths: of the models to compare, at least two different ones.
        methods: those that count, without controls.
        metric: which scores.
        matters: the smallest fall that counts.
        seed: of the resamples.
        resamples: how many.

    Raises:
        ValueError: a model or a method has no scores, or all depths are equal.
    """
    models = list(depths)
    depth = np.array([float(depths[m]) for m in models])
    if len(set(depth.tolist())) < 2:
        raise ValueError(f"depths={dict(depths)}: at least two models of different depth are needed")
    table = Cube.of(scores, {m: metric for m in models}, methods)
    centred = depth - depth.mean()
    weight = -centred * np.ptp(depth) / (centred @ centred)
    falls = np.einsum("d,dmn->mn", weight, table.values)
    parts: tuple[Row, ...] = tuple(
        {
            "method": method,
            **mean_estimate(fall, seed=seed, resamples=resamples).record(),
            "rho": _rho(depth, np.array([mean_of(row) for row in per_model])),
        }
        for method, fall, per_model in zip(methods, falls, table.values.transpose(1, 0, 2), strict=True)
    )
    effect = mean_estimate(mean_over(falls), seed=seed, resamples=resamples)
    falling = sum(1 for part in parts if part["value"] > 0)
    return Verdict(
        f"{metric} falls with depth ({', '.join(sorted(models, key=lambda m: depths[m]))})",
        effect,
        judge(effect, matters),
        parts,
        f"it falls for {falling} of {len(parts)} methods",
    )


def smoothing_hurts(
    scores: pl.DataFrame,
    pairs: Mapping[str, str],
    *,
    models: Sequence[str],
    metric: str = "idsds",
    matters: float = MATTERS,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Verdict:
    """Do methods score higher than their SmoothGrad versions? The effect is the mean difference over models and pairs.

    Args:
        scores: tables of runs, under one another.
        pairs: the SmoothGrad version of each method; see `smooth_pairs`.
        models: the models that count.
        metric: which scores.
        matters: the smallest difference that counts.
        seed: of the resamples.
        resamples: how many.

    Raises:
        ValueError: there is no pair, or a model or a method has no scores.
    """
    table = Cube.of(scores, {m: metric for m in models}, [*pairs, *pairs.values()])
    return _difference(
        f"SmoothGrad hurts under {metric}",
        table,
        pairs,
        models,
        "smooth",
        matters=matters,
        seed=seed,
        resamples=resamples,
    )


def raw_beats_absolute(
    scores: pl.DataFrame,
    pairs: Mapping[str, str],
    *,
    models: Sequence[str],
    metric: str = "idsds",
    random: str = "random",
    matters: float = MATTERS,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Verdict:
    """Do good methods score higher than their absolute values?

    Good are those of which the raw or the absolute version is better than random, the whole interval of the paired
    difference being above zero. Were raw versions alone asked, luck would choose those that are raw and high.

    Args:
        scores: tables of runs, under one another.
        pairs: the absolute version of each method; see `absolute_pairs`.
        models: the models that count.
        metric: which scores.
        random: the control.
        matters: the smallest difference that counts.
        seed: of the resamples.
        resamples: how many.

    Raises:
        ValueError: there is no pair, or a model or a method has no scores.
    """
    table = Cube.of(scores, {m: metric for m in models}, [*pairs, *pairs.values(), random])
    chance = table.of_method(random)

    def good(method: str) -> bool:
        ahead = mean_over(table.of_method(method) - chance)
        return mean_estimate(ahead, seed=seed, resamples=resamples).low > 0

    chosen = {raw: other for raw, other in pairs.items() if good(raw) or good(other)}
    name = f"raw beats absolute under {metric}, for methods better than random"
    if pairs and not chosen:
        nothing = Estimate(np.nan, np.nan, np.nan, table.values.shape[2])
        return Verdict(name, nothing, UNDECIDED, note=f"none of the {len(pairs)} methods is better than random")
    return _difference(name, table, chosen, models, "absolute", matters=matters, seed=seed, resamples=resamples)


def ranks_alike(
    scores: pl.DataFrame,
    before: tuple[str, str],
    after: tuple[str, str],
    *,
    methods: Sequence[str],
    at_least: float = 0.7,
    published: float | None = 0.89,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Verdict:
    """Do SDS before and IDSDS after alignment rank methods alike?

    The effect is Spearman's correlation of the methods' mean scores, minus `at_least`. Its interval has the percentiles
    of resampled pictures, the same for both models. A resample is noisier than the sample, so that the interval lies
    rather too low, and is widened to hold the correlation itself.

    Args:
        scores: tables of runs, under one another.
        before: model and metric.
        after: model and metric.
        methods: those that are ranked, at least three, without controls.
        at_least: the correlation that the claim asks for.
        published: what the paper found, to say whether the interval holds it; None for nothing.
        seed: of the resamples.
        resamples: how many.

    Raises:
        ValueError: there are fewer than three methods, or a model or a method has no scores.
    """
    if len(methods) < 3:
        raise ValueError(f"methods={list(methods)}: at least three are needed to correlate their ranks")
    old, new = (Cube.of(scores, {model: metric}, methods) for model, metric in (before, after))
    common = sorted(set(old.samples) & set(new.samples))
    values = np.stack([cube.at(common).values[0] for cube in (old, new)])
    n = len(common)
    rho = _rho(*means_of(values))
    claim = (
        f"{before[1]} of {before[0]} and {after[1]} of {after[0]} rank methods alike (correlation above {at_least:g})"
    )
    if n < 2 or np.isnan(rho):
        return Verdict(claim, Estimate(rho - at_least, np.nan, np.nan, n), UNDECIDED)
    resampled = [_rho(*means_of(values[:, :, rows])) for rows in bootstrap_indices(n, resamples, seed)]
    low, high = np.nanquantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    low, high = min(float(low), rho), max(float(high), rho)
    effect = Estimate(rho - at_least, low - at_least, high - at_least, n)
    note = f"correlation {rho:.2f}, {low:.2f} to {high:.2f}, of {len(methods)} methods"
    if published is not None:
        note += f"; the paper's {published:g} is {'inside' if low <= published <= high else 'outside'}"
    rows = tuple(
        {"method": m, before[1]: a, after[1]: b} for m, a, b in zip(methods, *means_of(values).tolist(), strict=True)
    )
    return Verdict(claim, effect, judge(effect, 0.0), rows, note)


def smooth_pairs(methods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The SmoothGrad version of each method that has one, by the names that tables show.

    Args:
        methods: from a run's facts, each with its `name` and `spec`.

    >>> smooth_pairs([{"name": "IG", "spec": "integrated_gradients"}, {"name": "IG-SG", "spec": "smoothgrad(of=integrated_gradients)"}])
    {'IG': 'IG-SG'}
    """
    known = list(_specs(methods))
    found = {}
    for name, (id, params) in known:
        for other, (kind, own) in known:
            plain = {k: v for k, v in params.items() if k != "post"}
            if kind == "smoothgrad" and own.get("post") == params.get("post") and "of" in own:
                inner = parse(str(own["of"]))
                if (inner.id, dict(inner.params)) == (id, plain):
                    found[name] = other
    return found


def absolute_pairs(methods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The absolute version of each method that has one, by the names that tables show.

    Args:
        methods: from a run's facts, each with its `name` and `spec`.

    >>> absolute_pairs([{"name": "I×G", "spec": "input_x_gradient"}, {"name": "I×G abs.", "spec": "input_x_gradient(post=abs)"}])
    {'I×G': 'I×G abs.'}
    """
    known = list(_specs(methods))
    return {
        name: other
        for name, (id, params) in known
        for other, (kind, own) in known
        if "post" not in params and kind == id and own == {**params, "post": "abs"}
    }


def _specs(methods: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, tuple[str, dict[str, Any]]]]:
    for method in methods:
        try:
            spec = parse(str(method.get("spec", method["name"])))
        except SpecError:
            continue
        yield str(method["name"]), (spec.id, dict(spec.params))


def _difference(
    claim: str,
    table: Cube,
    pairs: Mapping[str, str],
    models: Sequence[str],
    what: str,
    *,
    matters: float,
    seed: int,
    resamples: int,
) -> Verdict:
    """Whether methods score higher than their other versions: the mean over models and pairs, and each of them."""
    if not pairs:
        raise ValueError(f"{claim}: no method has a second version to be compared with")
    gaps = {method: table.of_method(method) - table.of_method(other) for method, other in pairs.items()}
    parts: tuple[Row, ...] = tuple(
        {
            "model": model,
            "method": method,
            what: pairs[method],
            **mean_estimate(gap[i], seed=seed, resamples=resamples).record(),
        }
        for i, model in enumerate(models)
        for method, gap in gaps.items()
    )
    effect = mean_estimate(mean_over(np.concatenate(list(gaps.values()))), seed=seed, resamples=resamples)
    above = sum(1 for part in parts if part["value"] > 0)
    note = f"so for {above} of {len(parts)} pairs of {len(models)} model{'' if len(models) == 1 else 's'}"
    return Verdict(claim, effect, judge(effect, matters), parts, note)


def _rho(a: Array, b: Array) -> float:
    """Spearman's correlation; NaN where something is not known."""
    return float("nan") if np.isnan(a).any() or np.isnan(b).any() else spearman(a, b)
