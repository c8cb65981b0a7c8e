"""Rankings along one training: at each checkpoint, how they differ from the last one and from the one before."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from heatcheck.stats.agreement import kendall_tau, kendall_w, spearman
from heatcheck.stats.facts import Facts
from heatcheck.stats.intervals import resampled_means
from heatcheck.stats.multiverse import resampled_kendall_w
from heatcheck.stats.ranks import rank_of, rounded
from heatcheck.stats.table import Array, MetricGroup, Row, groups, nan_to_null

FEWEST = 3
"""Checkpoints of one training that are compared at least."""
_SAME = ("recipe", "variant", "settings", "parent", "data", "held_out", "samples")


@dataclass(frozen=True)
class Checkpoint:
    """Weights that a training kept.

    Args:
        model: the model that has them, as tables call it.
        name: their name in the training.
        step: steps of the optimizer before them.
        epoch: epochs before them, in parts.
        accuracy: on held-out samples; None where not known.
    """

    model: str
    name: str
    step: int
    epoch: float
    accuracy: float | None = None


@dataclass(frozen=True)
class Trajectory:
    """The checkpoints of one training that a run has measured, in the order in which they were reached."""

    name: str
    checkpoints: tuple[Checkpoint, ...]


@dataclass(frozen=True)
class Coefficient:
    """A rank correlation or Kendall's W, with its interval; None where it is not defined."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def record(self, name: str) -> Row:
        """As columns."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    def within(self, least: float, most: float) -> "Coefficient":
        """With an interval that does not leave the range of the coefficient."""
        if self.low is None or self.high is None:
            return self
        return Coefficient(self.value, max(self.low, least), min(self.high, most))


@dataclass(frozen=True)
class AlongTraining:
    """The rankings of one metric at all checkpoints of one training.

    Args:
        training: its name.
        data: the data set's name.
        metric: the metric's name.
        checkpoints: those with scores, in the order of training.
        methods: ranked at all of them, best at the last one first.
        ranks: [checkpoints, methods], 1 is best, ties share their average rank.
        means: [checkpoints, methods], mean scores as the metric has them.
        tau_last: Kendall's τ_b of each ranking and the last.
        rho_last: likewise Spearman's ρ.
        tau_before: Kendall's τ_b of each ranking and the one before; undefined at the first.
        rho_before: likewise Spearman's ρ.
        w: Kendall's W over all of them.
        n: samples that all checkpoints have.
        left_out: methods that are not ranked at some checkpoint, with the first reason.
    """

    training: str
    data: str
    metric: str
    checkpoints: tuple[Checkpoint, ...]
    methods: tuple[str, ...]
    ranks: Array = field(repr=False)
    means: Array = field(repr=False)
    tau_last: tuple[Coefficient, ...]
    rho_last: tuple[Coefficient, ...]
    tau_before: tuple[Coefficient, ...]
    rho_before: tuple[Coefficient, ...]
    w: Coefficient
    n: int
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> Row:
        """The training, data set and metric, as columns."""
        return {"training": self.training, "data": self.data, "metric": self.metric}

    def by_checkpoint(self) -> list[Row]:
        """Per checkpoint: epoch, accuracy, and its correlations with the last one and with the one before."""
        return [
            {
                "checkpoint": c.name,
                "model": c.model,
                "epoch": c.epoch,
                "accuracy": c.accuracy,
                **self.tau_last[i].record("tau_last"),
                **self.rho_last[i].record("spearman_last"),
                **self.tau_before[i].record("tau_before"),
                **self.rho_before[i].record("spearman_before"),
            }
            for i, c in enumerate(self.checkpoints)
        ]

    def by_method(self) -> list[Row]:
        """Per method: its ranks and means at all checkpoints."""
        return [
            {"method": method, "ranks": self.ranks[:, k].tolist(), "means": self.means[:, k].tolist()}
            for k, method in enumerate(self.methods)
        ]

    def record(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {
            **self.key,
            "samples": self.n,
            **self.w.record("kendall_w"),
            "checkpoints": self.by_checkpoint(),
            "methods": self.by_method(),
            "left_out": [{"method": method, "reason": reason} for method, reason in self.left_out],
        }


def trajectories(facts: Mapping[str, Any]) -> list[Trajectory]:
    """The trainings of which a run has measured at least three checkpoints, from the run's facts."""
    found: dict[str, dict[str, Checkpoint]] = {}
    for model in facts.get("models", ()):
        trained = model.get("trained") or {}
        reached = trained.get("reached")
        if reached is None:
            continue
        training = json.dumps({name: trained.get(name) for name in _SAME}, sort_keys=True)
        kept = Checkpoint(
            model["name"], trained["checkpoint"], reached["step"], reached["epoch"], reached.get("accuracy")
        )
        found.setdefault(training, {}).setdefault(kept.name, kept)
    ordered = [sorted(kept.values(), key=lambda c: (c.step, c.name)) for kept in found.values()]
    return [
        Trajectory(kept[0].model.rpartition("@")[0] or kept[0].model, tuple(kept))
        for kept in ordered
        if len(kept) >= FEWEST
    ]


def along_training(
    scores: pl.DataFrame,
    facts: Facts,
    trainings: Sequence[Trajectory],
    *,
    seed: int = 0,
    resamples: int = 1000,
    level: float = 0.95,
    coverage_floor: float = 0.5,
) -> list[AlongTraining]:
    """The rankings of every metric at the checkpoints of each training.

    Methods are ranked by their mean over samples, without controls. All checkpoints are compared on the samples that
    all of them have, and over the methods that all of them rank. Intervals are percentiles of bootstrap resamples of
    the samples, the same ones at all checkpoints. Resampling adds noise to every mean, so that it stirs rankings whose
    methods are close: an interval leans to lower agreement than was found.

    Args:
        scores: the long table of scores.
        facts: directions, controls, circular pairs.
        trainings: what `trajectories` gave.
        seed: of the resamples.
        resamples: bootstrap resamples of the samples.
        level: of the intervals.
        coverage_floor: a method scored on a smaller share of the samples is not ranked.

    Returns:
        One for every training, data set and metric with at least three checkpoints that rank at least two methods.

    Paper: duan2024. Differs: the paper ranks by the area under accuracy curves, this by any metric; with intervals.
    """
    found: list[AlongTraining] = []
    for training in trainings:
        models = [c.model for c in training.checkpoints]
        mine = scores.filter(pl.col("model").cast(pl.String).is_in(models))
        for (data, metric), part in _common(mine):
            by_model = {group.model: group for group in groups(part, facts)}
            kept = [c for c in training.checkpoints if c.model in by_model]
            if len(kept) >= FEWEST:
                ranked = _compared([by_model[c.model] for c in kept], facts, coverage_floor)
                if len(ranked.methods) > 1:
                    found.append(_along(training.name, data, metric, kept, ranked, seed, resamples, level))
    return found


def _common(scores: pl.DataFrame) -> Iterator[tuple[tuple[str, str], pl.DataFrame]]:
    """The rows of each data set and metric whose sample was scored with every model, in order of name."""
    names = scores.with_columns(pl.col("data", "metric", "model", "sample").cast(pl.String))
    for (data, metric), part in sorted(names.group_by("data", "metric"), key=lambda item: tuple(map(str, item[0]))):
        models = part["model"].n_unique()
        everywhere = part.group_by("sample").agg(pl.col("model").n_unique().alias("of")).filter(pl.col("of") == models)
        yield (str(data), str(metric)), part.filter(pl.col("sample").is_in(everywhere["sample"].implode()))


@dataclass(frozen=True)
class _Compared:
    """The scores of the methods that all checkpoints rank.

    Args:
        methods: their names.
        scores: [checkpoints, methods, samples], higher is better.
        means: [checkpoints, methods], likewise.
        sign: +1 where the metric itself is so, else −1.
        left_out: the others, controls excepted, with a reason.
    """

    methods: tuple[str, ...]
    scores: Array
    means: Array
    sign: float
    left_out: tuple[tuple[str, str], ...]

    def ranks(self, means: Array, checkpoint: int) -> Array:
        """Ranks by means, [methods] or [methods, resamples]; differences that are rounding errors are ties."""
        return rank_of(rounded(means, float(np.abs(self.means[checkpoint]).max())))


def _compared(along: Sequence[MetricGroup], facts: Facts, coverage_floor: float) -> _Compared:
    names = sorted({m for group in along for m in group.methods if not facts.is_control(m)})
    why: dict[str, str] = {}
    for group in along:
        reasons = dict(zip(group.methods, group.reasons(facts, coverage_floor), strict=True))
        for name in names:
            reason = reasons.get(name, "missing: no row")
            if reason is not None:
                why.setdefault(name, f"{group.model}: {reason}")
    methods = tuple(name for name in names if name not in why)
    rows = [[group.methods.index(m) for m in methods] for group in along]
    return _Compared(
        methods,
        np.array([group.oriented[at] for group, at in zip(along, rows, strict=True)]),
        np.array([group.sign * group.means[at] for group, at in zip(along, rows, strict=True)]),
        along[0].sign,
        tuple(why.items()),
    )


def _along(
    training: str,
    data: str,
    metric: str,
    checkpoints: Sequence[Checkpoint],
    compared: _Compared,
    seed: int,
    resamples: int,
    level: float,
) -> AlongTraining:
    ranks = np.array([compared.ranks(means, i) for i, means in enumerate(compared.means)])
    drawn = np.array([compared.ranks(resampled_means(s, resamples, seed), i) for i, s in enumerate(compared.scores)])
    n = compared.scores.shape[2]

    def coefficient(value: float, resampled: Array) -> Coefficient:
        return _with_interval(value, resampled if n > 1 else np.empty(0), level)

    def correlations(other: Sequence[int]) -> tuple[tuple[Coefficient, ...], ...]:
        """Both coefficients of every checkpoint and another one; −1 for none."""
        tau, rho = [], []
        for i, k in enumerate(other):
            if k < 0:
                tau.append(Coefficient(None))
                rho.append(Coefficient(None))
                continue
            tau.append(coefficient(kendall_tau(ranks[i], ranks[k]), resampled_tau(drawn[i], drawn[k])))
            rho.append(coefficient(spearman(ranks[i], ranks[k]), resampled_spearman(drawn[i], drawn[k])))
        return tuple(tau), tuple(rho)

    last = len(checkpoints) - 1
    tau_last, rho_last = correlations([last] * len(checkpoints))
    tau_before, rho_before = correlations(range(-1, last))
    order = np.argsort(ranks[last], kind="stable")
    return AlongTraining(
        training=training,
        data=data,
        metric=metric,
        checkpoints=tuple(checkpoints),
        methods=tuple(compared.methods[i] for i in order),
        ranks=ranks[:, order],
        means=compared.sign * compared.means[:, order],
        tau_last=tau_last,
        rho_last=rho_last,
        tau_before=tau_before,
        rho_before=rho_before,
        w=coefficient(kendall_w(ranks), resampled_kendall_w(drawn)),
        n=n,
        left_out=compared.left_out,
    )


def resampled_tau(a: Array, b: Array) -> Array:
    """Kendall's τ_b of two rankings in every resample, [methods, resamples] to [resamples]; NaN where one is constant."""
    first, second = np.triu_indices(len(a), k=1)
    da, db = (np.sign(ranks[first] - ranks[second]) for ranks in (a, b))
    scale = np.sqrt((da != 0).sum(axis=0) * (db != 0).sum(axis=0))
    return np.asarray(np.divide((da * db).sum(axis=0), scale, out=np.full(len(scale), np.nan), where=scale > 0))


def resampled_spearman(a: Array, b: Array) -> Array:
    """Spearman's ρ of two rankings in every resample, [methods, resamples] to [resamples]; NaN where one is constant."""
    da, db = (ranks - ranks.mean(axis=0) for ranks in (a, b))
    scale = np.sqrt((da**2).sum(axis=0) * (db**2).sum(axis=0))
    return np.asarray(np.divide((da * db).sum(axis=0), scale, out=np.full(len(scale), np.nan), where=scale > 0))


def _with_interval(value: float, resampled: Array, level: float) -> Coefficient:
    """A coefficient with its percentile interval, which holds it."""
    known = resampled[~np.isnan(resampled)]
    if np.isnan(value) or not len(known):
        return Coefficient(nan_to_null(value))
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Coefficient(float(value), min(float(low), float(value)), max(float(high), float(value)))
