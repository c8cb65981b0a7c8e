"""Cases of a meta-ranking: methods ranked for one model, on one data set, under one protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from heatcheck.stats.facts import Facts
from heatcheck.stats.intervals import resampled_means
from heatcheck.stats.ranks import rank_of, rounded
from heatcheck.stats.student import stretch
from heatcheck.stats.table import Array, MetricGroup, groups

MOST_FIRST, LEAST_FIRST = "morf", "lerf"


@dataclass(frozen=True)
class CaseProtocol:
    """How a case is measured: a metric with its parameters.

    Args:
        name: what tables call it, such as `morf(steps=20)`.
        metric: the metric's id, such as `morf`.
        order: `morf` or `lerf` where the most or the least relevant units are removed first; else empty.
        settings: the same for two protocols that differ in their order alone.
        unit: of its scores; `%` for areas under curves of accuracy.
        accuracy: whether its curves are of accuracy by share removed.
    """

    name: str
    metric: str
    order: str = ""
    settings: str = ""
    unit: str = ""
    accuracy: bool = False


@dataclass(frozen=True)
class MetaCase:
    """One model on one data set under one protocol.

    Args:
        model: its name.
        data: the data set's name.
        protocol: how it is measured.
        n: samples.
        training: the training whose checkpoint the model is; empty for others.
        source: the data set with which this one shares samples; empty for others.
    """

    model: str
    data: str
    protocol: CaseProtocol
    n: int
    training: str = ""
    source: str = ""

    @property
    def name(self) -> str:
        """As people call it."""
        return f"{self.model} · {self.data} · {self.protocol.name}"

    @property
    def pair(self) -> tuple[str, str]:
        """The model and the data set."""
        return self.model, self.data

    @property
    def drawn_with(self) -> tuple[str, str]:
        """What is resampled as one: the model, or the training that it is a checkpoint of, and the data set, or its source."""
        return self.training or self.model, self.source or self.data

    def record(self) -> dict[str, object]:
        """As columns."""
        return {"model": self.model, "data": self.data, "metric": self.protocol.metric, "protocol": self.protocol.name}


@dataclass(frozen=True)
class CaseTable:
    """The rankings of all cases.

    Args:
        cases: those that rank at least two methods.
        methods: ranked in at least one of them, by name.
        means: [cases, methods], mean scores as the protocol has them; NaN where a method is not ranked.
        ranks: [cases, methods], 1 is best, ties share their average rank; NaN likewise.
        scores: per case [methods, samples], higher is better; NaN where there is none.
        missing: (case, method, reason) for every method that a case does not rank.
        left_out: (case, reason) for those that rank fewer than two methods.
    """

    cases: tuple[MetaCase, ...]
    methods: tuple[str, ...]
    means: Array = field(repr=False)
    ranks: Array = field(repr=False)
    scores: tuple[Array, ...] = field(repr=False)
    missing: tuple[tuple[MetaCase, str, str], ...] = ()
    left_out: tuple[tuple[MetaCase, str], ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every case ranks every method."""
        return not bool(np.isnan(self.ranks).any())

    @cached_property
    def common(self) -> tuple[int, ...]:
        """Methods that all cases rank, by number."""
        return tuple(np.flatnonzero(~np.isnan(self.ranks).any(axis=0)).tolist())

    @cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The models and data sets, each once; checkpoints of one training are one model, overlapping samples one data set."""
        return tuple(dict.fromkeys(case.drawn_with for case in self.cases))

    @cached_property
    def pair_of(self) -> NDArray[np.int64]:
        """[cases]: the number of each case's model and data set."""
        return np.array([self.pairs.index(case.drawn_with) for case in self.cases], dtype=np.int64)

    def take(self, chosen: Sequence[int]) -> "CaseTable":
        """Some of the cases, with the methods that they rank."""
        ranks = self.ranks[list(chosen)]
        methods = np.flatnonzero(~np.isnan(ranks).all(axis=0)).tolist()
        cases = tuple(self.cases[i] for i in chosen)
        names = {self.methods[k] for k in methods}
        return CaseTable(
            cases,
            tuple(self.methods[k] for k in methods),
            self.means[list(chosen)][:, methods],
            ranks[:, methods],
            tuple(self.scores[i][methods] for i in chosen),
            tuple(row for row in self.missing if row[0] in cases and row[1] in names),
        )

    @property
    def samples(self) -> int:
        """How many different samples there are, over all data sets."""
        most: dict[str, int] = {}
        for case in self.cases:
            data = case.source or case.data
            most[data] = max(most.get(data, 0), case.n)
        return sum(most.values())

    def resampled_ranks(self, resamples: int, seed: int, level: float = 0.95, *, alike: bool = False) -> Array:
        """Ranks in bootstrap resamples of each case's samples, [cases, methods, resamples].

        Cases on the same data set share their resamples. Means of few samples vary too little in resamples; they are
        stretched as Student's interval of that level is.

        Args:
            resamples: how many.
            seed: of the resamples.
            level: at which intervals are read.
            alike: as if all cases ranked methods in the order of their mean ranks: every case has its own means in that
                order, less the part of their spread that is the samples' noise.
        """
        common = np.nanmean(self.ranks, axis=0)
        data = list(dict.fromkeys(case.data for case in self.cases))
        found = []
        for case, scores, ranks in zip(self.cases, self.scores, self.ranks, strict=True):
            drawn = np.full((len(ranks), resamples), np.nan)
            own = ~np.isnan(ranks)
            known = scores[own]
            means = resampled_means(known, resamples, seed + 7919 * data.index(case.data))
            centre = np.nanmean(known, axis=1, keepdims=True)
            around = centre
            if alike:
                place = np.argsort(np.argsort(common[own], kind="stable"))
                around = -np.sort(-_shrunk(centre, known), axis=0)[place]
            drawn[own] = _ranked(around + stretch(case.n, level) * (means - centre), known)
            found.append(drawn)
        return np.array(found)


def _shrunk(means: Array, scores: Array) -> Array:
    """Means, [methods, 1], drawn towards each other so that they vary as they would without the samples' noise.

    What a sample does to all methods alike is no noise of their differences.
    """
    scores = scores[:, ~np.isnan(scores).all(axis=0)]
    middle = means.mean()
    rest = scores - means - np.nanmean(scores, axis=0) + middle
    freedom = max((len(scores) - 1) * (scores.shape[1] - 1), 1)
    noise = np.nansum(rest**2) / freedom / scores.shape[1]
    spread = float(means.var(ddof=1))
    return np.asarray(middle + np.sqrt(max(0.0, 1 - noise / spread) if spread else 0.0) * (means - middle))


def _ranked(means: Array, scores: Array) -> Array:
    """Ranks by means, [methods] or [methods, resamples]; differences that are rounding errors are ties."""
    return rank_of(rounded(means, float(np.nanmax(np.abs(scores), initial=0.0))))


def case_table(
    scores: pl.DataFrame,
    facts: Facts,
    protocols: Mapping[str, CaseProtocol],
    *,
    trainings: Mapping[str, str] | None = None,
    sources: Mapping[str, str] | None = None,
    coverage_floor: float = 0.5,
) -> CaseTable:
    """The cases of a table of scores. Controls are not ranked.

    Args:
        scores: the long table of scores; metrics that are not in `protocols` are left out.
        facts: directions, controls, circular pairs.
        protocols: by the metric's name in the table.
        trainings: the training of each model that is a checkpoint of one.
        sources: the first of several data sets that share samples, for each of the others.
        coverage_floor: a method scored on a smaller share of the samples is not ranked.

    Raises:
        ValueError: no case ranks two methods.
    """
    found: list[tuple[MetaCase, MetricGroup, dict[str, str | None]]] = []
    left_out: list[tuple[MetaCase, str]] = []
    for group in groups(scores.filter(pl.col("metric").cast(pl.String).is_in(list(protocols))), facts):
        training, source = (trainings or {}).get(group.model, ""), (sources or {}).get(group.data, "")
        case = MetaCase(group.model, group.data, protocols[group.metric], group.n, training, source)
        reasons = dict(zip(group.methods, group.reasons(facts, coverage_floor), strict=True))
        ranked = [m for m, reason in reasons.items() if reason is None]
        if len(ranked) < 2:
            why = next((r for m, r in reasons.items() if r is not None and not facts.is_control(m)), "it has no method")
            only = f"it ranks {ranked[0]} alone; of the others" if ranked else "it ranks no method"
            left_out.append((case, f"{only}: {why}"))
        else:
            found.append((case, group, reasons))
    if not found:
        reasons_told = "; ".join(f"{case.name}: {why}" for case, why in left_out[:3]) or "the table is empty"
        raise ValueError(f"no case ranks two methods ({reasons_told})")
    methods = sorted({m for _, _, reasons in found for m, reason in reasons.items() if reason is None})
    known = {m for _, _, reasons in found for m in reasons if not facts.is_control(m)}
    means, ranks = np.full((2, len(found), len(methods)), np.nan)
    tables = []
    missing: list[tuple[MetaCase, str, str]] = []
    for i, (case, group, reasons) in enumerate(found):
        own = [k for k, m in enumerate(methods) if m in reasons and reasons[m] is None]
        rows = [group.methods.index(methods[k]) for k in own]
        table = np.full((len(methods), group.n), np.nan)
        table[own] = group.oriented[rows]
        means[i, own] = group.means[rows]
        ranks[i, own] = _ranked(group.sign * group.means[rows], table[own])
        tables.append(table)
        missing += [
            (case, m, reasons.get(m, "missing: no row") or "")
            for m in sorted(known)
            if reasons.get(m, "missing") is not None
        ]
    return CaseTable(
        tuple(case for case, _, _ in found),
        tuple(methods),
        means,
        ranks,
        tuple(tables),
        tuple(missing),
        tuple(left_out),
    )


def accuracy_areas(scores: pl.DataFrame, samples: pl.DataFrame, metrics: Sequence[str]) -> pl.DataFrame:
    r"""Scores of MoRF and LeRF under accuracy as areas under the curve in per cent, as Meta-Rank's figures have them.

    A score is the mean fall below the clean answer, so that the area is $100\,(correct - score)$ for each sample.

    Args:
        scores: the long table of scores.
        samples: `model`, `data`, `sample` and `correct`: whether the model is right on the whole input.
        metrics: those that are read as accuracy, by name.

    Returns:
        The same table; after this, a lower MoRF and a higher LeRF are better.
    """
    keys = ["model", "data", "sample"]
    named = scores.with_columns(pl.col(*keys, "metric").cast(pl.String))
    known = samples.select(pl.col(keys).cast(pl.String), correct=pl.col("correct").cast(pl.Float64))
    area = 100 * (pl.col("correct") - pl.col("score"))
    chosen = pl.col("metric").is_in(list(metrics))
    joined = named.join(known, on=keys, how="left", maintain_order="left")
    return joined.with_columns(score=pl.when(chosen).then(area).otherwise("score")).drop("correct")
