"""Consistency of rankings over cases: how far they agree, and which contradict the rest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import polars as pl

from heatcheck.stats.agreement import kendall_tau, kendall_w, spearman
from heatcheck.stats.checkpoints import Coefficient, resampled_spearman, resampled_tau
from heatcheck.stats.meta_cases import LEAST_FIRST, MOST_FIRST, CaseTable, MetaCase
from heatcheck.stats.meta_rank import FEWEST_PAIRS, pair_counts
from heatcheck.stats.multiverse import resampled_kendall_w
from heatcheck.stats.table import Array, Row, nan_to_null

CONTRADICTS, MAY_CONTRADICT, AGREES = "contradicts", "may contradict", "agrees"
_Pairwise = Callable[[Array, Array], float]


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
    common: int
    by_case: tuple[CaseAgreement, ...]
    orders: tuple[OrderAgreement, ...]
    order_tau: Coefficient
    matrix: Array = field(repr=False)

    @property
    def contrary(self) -> tuple[CaseAgreement, ...]:
        """The cases that contradict the rest, the most contrary first."""
        return tuple(c for c in self.by_case if c.verdict != AGREES)

    def record(self) -> Row:
        """The numbers over all cases, as columns."""
        return {
            **self.tau.record("tau"),
            **self.rho.record("spearman"),
            **self.w.record("kendall_w"),
            "kendall_w_samples_low": self.w_samples.low,
            "kendall_w_samples_high": self.w_samples.high,
            **self.top.record("top"),
            **self.bottom.record("bottom"),
            **self.order_tau.record("morf_lerf_tau"),
            "common_methods": self.common,
        }


def meta_agreement(table: CaseTable, *, seed: int = 0, resamples: int = 1000, level: float = 0.95) -> MetaAgreement:
    r"""How consistent the rankings of all cases are.

    Intervals over models and data sets resample pairs of the two, each with all its protocols; copies of one case are
    not compared with each other, as they would agree by themselves. W's follows from that of the mean ρ,
    $W = (1 + (m-1)\bar\rho)/m$ for m cases. Resampling samples stirs methods that are close, so that such intervals
    lean to lower agreement than was found.

    Args:
        table: what `case_table` gave.
        seed: of the resamples.
        resamples: how many.
        level: of the intervals.

    Paper: duan2024. Differs: any metric; with intervals.
    """
    ranks, many = table.ranks, len(table.cases)
    drawn = table.resampled_ranks(resamples, seed) if min(c.n for c in table.cases) > 1 else None
    weights = case_weights(table, resamples, seed)
    taus = tau_matrix(ranks)
    matrices = (taus, *(between_cases(ranks, measure) for measure in (spearman, _same_best, _same_worst)))
    tau, rho, top, bottom = (mean_of_pairs(matrix, weights, level) for matrix in matrices)
    common = list(table.common)
    w = kendall_w(ranks[:, common]) if many > 1 else np.nan
    found = None if drawn is None or len(common) < 2 or many < 2 else resampled_kendall_w(drawn[:, common])
    orders = _orders(table, drawn, level)
    return MetaAgreement(
        tau=tau,
        rho=rho,
        top=top,
        bottom=bottom,
        w=_w_between(w, rho, many),
        w_samples=interval(w, found, level),
        common=len(common),
        by_case=tuple(_by_case(table, drawn, level)),
        orders=orders,
        order_tau=_mean_over_pairs([o.tau.value for o in orders], level, seed, resamples),
        matrix=taus,
    )


def interval(value: float, drawn: Array | None, level: float) -> Coefficient:
    """A coefficient with its percentile interval, which holds it."""
    known = np.empty(0) if drawn is None else drawn[~np.isnan(drawn)]
    if np.isnan(value) or not len(known):
        return Coefficient(nan_to_null(value))
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Coefficient(float(value), min(float(low), float(value)), max(float(high), float(value)))


def _same_best(a: Array, b: Array) -> float:
    """1 where two rankings have the same best methods; of ties, the share of those in common."""
    first, second = a == a.min(), b == b.min()
    return float((first & second).sum() / (first | second).sum())


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


def mean_of_pairs(matrix: Array, weights: Array | None, level: float) -> Coefficient:
    """The mean over pairs of cases, with its interval over models and data sets."""
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
    return interval(value, drawn, level)


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


def _mean_over_pairs(values: Sequence[float | None], level: float, seed: int, resamples: int) -> Coefficient:
    """A mean over models and data sets, with its percentile interval over them."""
    known = np.array([v for v in values if v is not None], dtype=np.float64)
    if len(known) < FEWEST_PAIRS:
        return Coefficient(float(known.mean()) if len(known) else None)
    drawn = pair_counts(len(known), resamples, seed) @ known / len(known)
    return interval(float(known.mean()), drawn, level)


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
