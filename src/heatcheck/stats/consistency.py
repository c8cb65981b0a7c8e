"""Consistency of rankings over cases: how far they agree, and which contradict the rest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations

import numpy as np
import polars as pl

from heatcheck.stats.agreement import kendall_tau, kendall_w, spearman
from heatcheck.stats.checkpoints import Coefficient, resampled_spearman, resampled_tau
from heatcheck.stats.meta_cases import LEAST_FIRST, MOST_FIRST, CaseTable, MetaCase
from heatcheck.stats.meta_rank import FEWEST_PAIRS, pair_counts
from heatcheck.stats.multiverse import resampled_kendall_w
from heatcheck.stats.student import stretch
from heatcheck.stats.table import Array, Row, nan_to_null

CONTRADICTS, MAY_CONTRADICT, AGREES = "contradicts", "may contradict", "agrees"
_Pairwise = Callable[[Array, Array], float]
_PairResampled = Callable[[Array, Array], Array]
_Resampled = Callable[[Array], Array]
_EQUAL = 1e-9  # differences that are rounding errors


@dataclass(frozen=True)
class CaseAgreement:
    """A case beside all others.

    Args:
        case: which one.
        tau: Kendall's τ_b of its ranking and the mean ranking of the others, with its interval over samples.
        methods: that both rank.
        verdict: `contradicts` where τ's whole interval is below 0, `may contradict` where τ alone is, else `agrees`.
    """

    case: MetaCase
    tau: Coefficient
    methods: int
    verdict: str


@dataclass(frozen=True)
class OrderAgreement:
    """The rankings of one model and data set by MoRF and by LeRF: Kendall's τ_b and Spearman's ρ, over samples."""

    model: str
    data: str
    protocols: tuple[str, str]
    tau: Coefficient
    rho: Coefficient
    methods: int


@dataclass(frozen=True)
class MetaAgreement:
    """How consistent the rankings of all cases are.

    Args:
        tau: mean of Kendall's τ_b over all pairs of cases, each over the methods that both rank, with its interval over
            models and data sets.
        rho: likewise Spearman's ρ.
        top: likewise the share of pairs with the same best method; of ties, the share of common ones.
        bottom: likewise the worst.
        w: Kendall's W over the methods that all cases rank, with its interval over models and data sets.
        w_samples: the same W with its interval over samples.
        tau_samples: likewise the mean τ; this and the following have no interval where there is one over models and data sets.
        rho_samples: likewise.
        top_samples: likewise.
        bottom_samples: likewise.
        order_tau_samples: likewise.
        common: how many methods all cases rank.
        by_case: every case beside the others, the most contrary first.
        orders: every model and data set that has both orders.
        order_tau: the mean of their τ, with its interval over models and data sets.
        matrix: [cases, cases], τ_b of every pair of cases; NaN where undefined.
    """

    tau: Coefficient
    rho: Coefficient
    top: Coefficient
    bottom: Coefficient
    w: Coefficient
    w_samples: Coefficient
    tau_samples: Coefficient
    rho_samples: Coefficient
    top_samples: Coefficient
    bottom_samples: Coefficient
    order_tau_samples: Coefficient
    common: int
    by_case: tuple[CaseAgreement, ...]
    orders: tuple[OrderAgreement, ...]
    order_tau: Coefficient
    matrix: Array = field(repr=False)

    @property
    def contrary(self) -> tuple[CaseAgreement, ...]:
        """The cases that contradict the rest, the most contrary first."""
        return tuple(c for c in self.by_case if c.verdict != AGREES)

    @property
    def measures(self) -> dict[str, tuple[Coefficient, Coefficient]]:
        """By name, each number with its interval over models and data sets, and with that over samples."""
        return {
            "kendall_w": (self.w, self.w_samples),
            "tau": (self.tau, self.tau_samples),
            "spearman": (self.rho, self.rho_samples),
            "top": (self.top, self.top_samples),
            "bottom": (self.bottom, self.bottom_samples),
            "morf_lerf_tau": (self.order_tau, self.order_tau_samples),
        }

    def record(self) -> Row:
        """The numbers over all cases, as columns; intervals over models and data sets, and over samples."""
        found: Row = {}
        for name, (between, within) in self.measures.items():
            found |= between.record(name)
            found |= {f"{name}_samples_low": within.low, f"{name}_samples_high": within.high}
        return {**found, "common_methods": self.common}


def meta_agreement(table: CaseTable, *, seed: int = 0, resamples: int = 1000, level: float = 0.95) -> MetaAgreement:
    r"""How consistent the rankings of all cases are.

    Intervals over models and data sets resample pairs of the two, each with all its protocols; copies of one case are
    not compared with each other, as they would agree by themselves. Percentiles of few pairs are stretched as κ's are, and
    hold what one more pair would make of the mean that ranks methods as all together do, or the reverse. W's follows from
    that of the mean ρ of the methods that all cases rank, $W = (1 + (m-1)\bar\rho)/m$ for m cases.

    Intervals over samples keep the cases. Noise only lowers agreement, and resampling adds to it: such intervals also hold
    their own mirror image around what was found, and 1 where cases that rank alike would often agree no better.

    Args:
        table: what `case_table` gave.
        seed: of the resamples.
        resamples: how many.
        level: of the intervals.

    Paper: duan2024. Differs: any metric; with intervals.
    """
    ranks, many = table.ranks, len(table.cases)
    several = min(c.n for c in table.cases) > 1
    drawn = table.resampled_ranks(resamples, seed, level) if several else None
    alike = table.resampled_ranks(resamples, seed, level, alike=True) if several and many > 1 else None
    weights = case_weights(table, resamples, seed)
    taus = tau_matrix(ranks)
    common = list(table.common)

    def mean(ranks: Array, measure: _Pairwise, least: float = -1.0, matrix: Array | None = None) -> Coefficient:
        each = between_cases(ranks, measure) if matrix is None else matrix
        more = one_more_pair(ranks, each, measure, many / len(table.pairs))
        found = mean_of_pairs(each, weights, level, stretch(len(table.pairs), level), more)
        return found.within(least, 1.0)

    def over_samples(value: float | None, measure: _Resampled, least: float = -1.0) -> Coefficient:
        if value is None or drawn is None or alike is None:
            return Coefficient(value)
        return noisy_interval(value, measure(drawn), measure(alike), level).within(least, 1.0)

    def between(c: Coefficient, measure: _Resampled, least: float = -1.0) -> Coefficient:
        return Coefficient(c.value) if c.low is not None else over_samples(c.value, measure, least)

    rho = mean(ranks, spearman)
    rho_of_common = rho if table.complete else mean(ranks[:, common], spearman)
    w = kendall_w(ranks[:, common]) if many > 1 else np.nan
    orders = _orders(table, drawn, level)
    tau, top, bottom = (
        mean(ranks, kendall_tau, matrix=taus),
        mean(ranks, _same_best, 0.0),
        mean(ranks, _same_worst, 0.0),
    )
    order_tau = mean_over_pairs([o.tau.value for o in orders], level, seed, resamples)
    return MetaAgreement(
        tau=tau,
        rho=rho,
        top=top,
        bottom=bottom,
        w=_w_between(w, rho_of_common, many),
        w_samples=over_samples(nan_to_null(w), lambda drawn: resampled_kendall_w(drawn[:, common]), 0.0),
        tau_samples=between(tau, lambda drawn: _mean_in_resamples(drawn, resampled_tau)),
        rho_samples=between(rho, lambda drawn: _mean_in_resamples(drawn, resampled_spearman)),
        top_samples=between(top, lambda drawn: _mean_in_resamples(drawn, _same_best_in_resamples), 0.0),
        bottom_samples=between(bottom, lambda drawn: _mean_in_resamples(-drawn, _same_best_in_resamples), 0.0),
        order_tau_samples=between(
            order_tau, partial(_mean_in_resamples, measure=resampled_tau, pairs=ordered_pairs(table.cases))
        ),
        common=len(common),
        by_case=tuple(_by_case(table, drawn, level)),
        orders=orders,
        order_tau=order_tau,
        matrix=taus,
    )


def noisy_interval(value: float, drawn: Array, alike: Array, level: float) -> Coefficient:
    """An agreement with its interval over samples.

    Args:
        value: as found.
        drawn: in resamples.
        alike: in resamples of cases that rank alike; NaN in both where undefined.
        level: of the interval.
    """
    found = interval(value, drawn, level)
    if found.low is None or found.high is None:
        return found
    low, high = min(found.low, 2 * value - found.high), max(found.high, 2 * value - found.low)
    known = alike[~np.isnan(alike)]
    if not len(known) or value >= np.quantile(known, (1 - level) / 2) - _EQUAL:
        high = max(high, 1.0)
    return Coefficient(value, low, high)


def _mean_in_resamples(drawn: Array, measure: _PairResampled, pairs: Sequence[tuple[int, int]] | None = None) -> Array:
    """The mean of a measure over pairs of cases, all if None, in every resample: [cases, methods, resamples] to [resamples]."""
    found = []
    for i, k in combinations(range(len(drawn)), 2) if pairs is None else pairs:
        both = ~np.isnan(drawn[i] + drawn[k]).any(axis=1)
        if both.sum() > 1:
            found.append(measure(drawn[i][both], drawn[k][both]))
    if not found:
        return np.empty(0)
    total, known = np.nansum(found, axis=0), (~np.isnan(found)).sum(axis=0)
    return np.asarray(np.divide(total, known, out=np.full(len(known), np.nan), where=known > 0))


def interval(
    value: float, drawn: Array | None, level: float, longer: float = 1.0, others: Sequence[float] = ()
) -> Coefficient:
    """A coefficient with its percentile interval, stretched from it, which holds it and some other values."""
    known = np.empty(0) if drawn is None else drawn[~np.isnan(drawn)]
    if np.isnan(value) or not len(known):
        return Coefficient(nan_to_null(value))
    ends = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    low, high = (float(value + longer * (end - value)) for end in ends)
    return Coefficient(float(value), min(low, value, *others), max(high, value, *others))


def _same_best_in_resamples(a: Array, b: Array) -> Array:
    """1 where two rankings have the same best methods; of ties, the share of those in common."""
    first, second = a == a.min(axis=0), b == b.min(axis=0)
    return np.asarray((first & second).sum(axis=0) / (first | second).sum(axis=0))


def _same_best(a: Array, b: Array) -> float:
    return float(_same_best_in_resamples(a, b))


def _same_worst(a: Array, b: Array) -> float:
    return _same_best(-a, -b)


def tau_matrix(ranks: Array) -> Array:
    """[cases, cases]: Kendall's τ_b of every pair of cases, over the methods that both rank; NaN where undefined.

    Example:
        >>> tau_matrix(np.array([[1, 2, 3], [1, 3, 2]])).round(3).tolist()
        [[nan, 0.333], [0.333, nan]]
    """
    first, second = np.triu_indices(ranks.shape[1], k=1)
    signs = np.sign(ranks[:, first] - ranks[:, second])
    known = (~np.isnan(signs)).astype(np.float64)
    signs = np.nan_to_num(signs, nan=0.0)
    untied = signs**2 @ known.T
    scale = np.sqrt(untied * untied.T)
    found = np.divide(signs @ signs.T, scale, out=np.full(scale.shape, np.nan), where=scale > 0)
    np.fill_diagonal(found, np.nan)
    return np.asarray(found)


def between_cases(ranks: Array, measure: _Pairwise) -> Array:
    """[cases, cases]: a measure of every pair of cases, over the methods that both rank; NaN for fewer than two."""
    found = np.full((len(ranks), len(ranks)), np.nan)
    for i, k in combinations(range(len(ranks)), 2):
        both = ~np.isnan(ranks[i] + ranks[k])
        if both.sum() > 1:
            found[i, k] = found[k, i] = measure(ranks[i, both], ranks[k, both])
    return found


def case_weights(table: CaseTable, resamples: int, seed: int) -> Array | None:
    """How often each case is drawn with its model and data set, [resamples, cases]; None for too few of them."""
    if len(table.pairs) < FEWEST_PAIRS:
        return None
    return pair_counts(len(table.pairs), resamples, seed)[:, table.pair_of]


def one_more_pair(ranks: Array, matrix: Array, measure: _Pairwise, protocols: float) -> list[float]:
    """What one more model and data set would make of the mean, if it ranked methods as all cases together do, or the reverse.

    Where all cases agree, every resample does; that is no certainty about the next one.

    Args:
        ranks: [cases, methods].
        matrix: [cases, cases], the measure of every pair of cases.
        measure: of two rankings.
        protocols: cases of one model and data set.
    """
    known = ~np.isnan(matrix)
    if not known.any():
        return []
    together, found = mean_ranks(ranks), []
    for other in (together, -together):
        ranked = [(case[both], other[both]) for case in ranks if (both := ~np.isnan(case)).sum() > 1]
        fresh = np.array([measure(a, b) for a, b in ranked])
        fresh = fresh[~np.isnan(fresh)]
        total, count = matrix[known].sum() + 2 * protocols * fresh.sum(), known.sum() + 2 * protocols * len(fresh)
        found.append(float(total / count))
    return found


def mean_of_pairs(
    matrix: Array, weights: Array | None, level: float, longer: float = 1.0, others: Sequence[float] = ()
) -> Coefficient:
    """The mean over pairs of cases, with its interval over models and data sets, stretched, which holds some other values."""
    known = ~np.isnan(matrix)
    if not known.any():
        return Coefficient(None)
    value = float(matrix[known].mean())
    if weights is None:
        return Coefficient(value)
    filled = np.where(known, matrix, 0.0)
    total = np.einsum("ri,ik,rk->r", weights, filled, weights)
    pairs = np.einsum("ri,ik,rk->r", weights, known.astype(np.float64), weights)
    drawn = np.divide(total, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
    return interval(value, drawn, level, longer, others)


def _w_between(w: float, rho: Coefficient, cases: int) -> Coefficient:
    """W with the interval that the mean ρ's implies."""
    if np.isnan(w) or rho.low is None or rho.high is None:
        return Coefficient(nan_to_null(w))
    low, high = (float(np.clip((1 + (cases - 1) * end) / cases, 0, 1)) for end in (rho.low, rho.high))
    return Coefficient(w, min(low, w), max(high, w))


def _by_case(table: CaseTable, drawn: Array | None, level: float) -> list[CaseAgreement]:
    """Every case beside the mean ranking of the others, the most contrary first; none of two, which are each other's rest."""
    if len(table.cases) < 3:
        return []
    found = []
    for i, case in enumerate(table.cases):
        rest = np.delete(np.arange(len(table.cases)), i)
        known = ~np.isnan(table.ranks[i]) & ~np.isnan(table.ranks[rest]).all(axis=0)
        if known.sum() < 2:
            continue
        value = kendall_tau(table.ranks[i, known], mean_ranks(table.ranks[rest][:, known]))
        resampled = None
        if drawn is not None:
            resampled = resampled_tau(drawn[i][known], np.nanmean(drawn[rest][:, known], axis=0))
        tau = interval(value, resampled, level)
        below = tau.value is not None and tau.value < 0
        sure = below and tau.high is not None and tau.high < 0
        verdict = CONTRADICTS if sure else MAY_CONTRADICT if below else AGREES
        found.append(CaseAgreement(case, tau, int(known.sum()), verdict))
    return sorted(found, key=lambda c: 2.0 if c.tau.value is None else c.tau.value)


def mean_ranks(ranks: Array) -> Array:
    """Mean ranks of [cases, methods], over the cases that rank a method; as numbers to be ranked, lower is better."""
    return np.asarray(np.nanmean(ranks, axis=0))


def _orders(table: CaseTable, drawn: Array | None, level: float) -> tuple[OrderAgreement, ...]:
    """The agreement of MoRF and LeRF within every model and data set that has both."""
    found = []
    for i, k in ordered_pairs(table.cases):
        both = ~np.isnan(table.ranks[i] + table.ranks[k])
        if both.sum() < 2:
            continue
        a, b = table.ranks[i, both], table.ranks[k, both]
        tau, rho = (
            interval(measure(a, b), None if drawn is None else resampled(drawn[i][both], drawn[k][both]), level)
            for measure, resampled in ((kendall_tau, resampled_tau), (spearman, resampled_spearman))
        )
        names = table.cases[i].protocol.name, table.cases[k].protocol.name
        found.append(OrderAgreement(*table.cases[i].pair, names, tau, rho, int(both.sum())))
    return tuple(found)


def ordered_pairs(cases: Sequence[MetaCase]) -> list[tuple[int, int]]:
    """Numbers of cases that differ in the order of removal alone: MoRF, then LeRF."""
    by_key = {(c.pair, c.protocol.settings, c.protocol.order): i for i, c in enumerate(cases) if c.protocol.order}
    return [
        (i, by_key[pair, settings, LEAST_FIRST])
        for (pair, settings, order), i in by_key.items()
        if order == MOST_FIRST and (pair, settings, LEAST_FIRST) in by_key
    ]


def mean_over_pairs(values: Sequence[float | None], level: float, seed: int, resamples: int) -> Coefficient:
    """A mean of correlations over models and data sets, with its interval over them, which one more could not leave."""
    known = np.array([v for v in values if v is not None], dtype=np.float64)
    n = len(known)
    if n < FEWEST_PAIRS:
        return Coefficient(float(known.mean()) if n else None)
    drawn = pair_counts(n, resamples, seed) @ known / n
    one_more = [float((known.sum() + end) / (n + 1)) for end in (-1, 1)]
    return interval(float(known.mean()), drawn, level, stretch(n, level), one_more).within(-1.0, 1.0)


def agreement_tables(found: MetaAgreement) -> dict[str, pl.DataFrame]:
    """Cases beside the others, and MoRF beside LeRF, as tables."""
    cases = [
        {**c.case.record(), "samples": c.case.n, **c.tau.record("tau"), "methods": c.methods, "verdict": c.verdict}
        for c in found.by_case
    ]
    orders = [
        {
            "model": o.model,
            "data": o.data,
            "morf": o.protocols[0],
            "lerf": o.protocols[1],
            **o.tau.record("tau"),
            **o.rho.record("spearman"),
            "methods": o.methods,
        }
        for o in found.orders
    ]
    unknown = pl.col(pl.Null).cast(pl.Float64)
    frames = (("cases", cases), ("orders", orders))
    return {name: pl.DataFrame(rows, infer_schema_length=None).with_columns(unknown) for name, rows in frames}
