"""Meta-Rank: one ranking from many cases, by how often each method beats each other one."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from heatcheck.stats.bradley_terry import bradley_terry
from heatcheck.stats.checkpoints import Coefficient
from heatcheck.stats.kemeny import KemenyRanking, kemeny
from heatcheck.stats.meta_cases import CaseTable
from heatcheck.stats.paired import holm, too_few
from heatcheck.stats.student import stretch
from heatcheck.stats.table import Array, nan_to_null
from heatcheck.stats.win_matrix import apart, borda, kappa, outcomes, smoothed_share, win_matrix

_EQUAL = 1e-9  # differences of κ that are rounding errors
FEWEST_PAIRS = 3
"""Pairs of model and data set from which on intervals over them are given."""
OVER_PAIRS, OVER_SAMPLES = "models and data", "samples"
_BLOCK = 1 << 22  # wins of resamples that are held at once
META_BOARD = {
    "method": pl.String,
    "kappa": pl.Float64,
    "kappa_low": pl.Float64,
    "kappa_high": pl.Float64,
    "samples_low": pl.Float64,
    "samples_high": pl.Float64,
    "bradley_terry": pl.Float64,
    "bradley_terry_low": pl.Float64,
    "bradley_terry_high": pl.Float64,
    "mean_rank": pl.Float64,
    "borda": pl.Float64,
    "borda_share": pl.Float64,
    "kemeny": pl.Int64,
    "first": pl.Float64,
    "last": pl.Float64,
    "cases": pl.Int64,
    "of": pl.Int64,
    "tied": pl.Boolean,
    "tied_over": pl.String,
}


@dataclass(frozen=True)
class MetaBoard:
    """The ranking of all methods over all cases.

    Args:
        methods: by name, best κ first.
        wins: [methods, methods], cases in which the first beats the second, ties half.
        cases: [methods, methods], cases that rank both.
        kappa: in closed form, each with its interval over models and data sets.
        kappa_samples: the same numbers with intervals over samples: the same cases, other samples.
        strength: by the model of Bradley and Terry, likewise over models and data sets.
        mean_rank: over the cases that rank a method.
        borda: points, one for each method beaten in each case.
        borda_share: of the points that were possible.
        consensus: Kemeny's ranking; numbers are places in `methods`.
        first: cases in which no method ranks better, shared places in parts.
        last: likewise worse.
        ranked: cases that rank the method.
        of: all cases.
        tied: whether a method may be as good as the best: over other models and data, where the interval of κ's difference
            holds 0; with too few of them over other samples, where resamples do not tell the two apart. False for the best
            itself, None for all where neither is known.
        tied_over: `models and data` or `samples`; empty where neither is known.
        pairs: of model and data set.
    """

    methods: tuple[str, ...]
    wins: Array = field(repr=False)
    cases: Array = field(repr=False)
    kappa: tuple[Coefficient, ...]
    kappa_samples: tuple[Coefficient, ...]
    strength: tuple[Coefficient, ...]
    mean_rank: Array
    borda: Array
    borda_share: Array
    consensus: KemenyRanking
    first: Array
    last: Array
    ranked: Array
    of: int
    tied: tuple[bool | None, ...]
    tied_over: str
    pairs: int

    @property
    def places(self) -> tuple[int, ...]:
        """By κ, 1 is best; methods with the same κ share a place."""
        values = np.array([c.value for c in self.kappa])
        return tuple(int(1 + (values > v + _EQUAL).sum()) for v in values)

    @property
    def leaders(self) -> tuple[str, ...]:
        """Those with the highest κ."""
        return tuple(m for m, place in zip(self.methods, self.places, strict=True) if place == 1)

    def table(self) -> pl.DataFrame:
        """One row per method, best κ first."""
        place = {method: i + 1 for i, method in enumerate(self.consensus.order)}
        rows = [
            {
                "method": method,
                **self.kappa[i].record("kappa"),
                "samples_low": self.kappa_samples[i].low,
                "samples_high": self.kappa_samples[i].high,
                **self.strength[i].record("bradley_terry"),
                "mean_rank": nan_to_null(self.mean_rank[i]),
                "borda": float(self.borda[i]),
                "borda_share": nan_to_null(self.borda_share[i]),
                "kemeny": place[i],
                "first": float(self.first[i]),
                "last": float(self.last[i]),
                "cases": int(self.ranked[i]),
                "of": self.of,
                "tied": self.tied[i],
                "tied_over": self.tied_over or None,
            }
            for i, method in enumerate(self.methods)
        ]
        return pl.DataFrame(rows, schema=META_BOARD, orient="row")

    def win_table(self) -> pl.DataFrame:
        """One row per ordered pair of methods: `wins` of `cases`, ties half, and the smoothed share of wins."""
        share = smoothed_share(self.wins, self.cases, self.cases)
        schema = {"method": pl.String, "against": pl.String, "wins": pl.Float64, "cases": pl.Int64, "share": pl.Float64}
        rows = [
            (a, b, float(self.wins[i, k]), int(self.cases[i, k]), nan_to_null(share[i, k]))
            for i, a in enumerate(self.methods)
            for k, b in enumerate(self.methods)
            if i != k
        ]
        return pl.DataFrame(rows, schema=schema, orient="row")


def meta_rank(table: CaseTable, *, seed: int = 0, resamples: int = 1000, level: float = 0.95) -> MetaBoard:
    """Rank methods over cases.

    Intervals over models and data sets resample pairs of the two, each with all its protocols, as the protocols of
    one pair are not independent; nor are the checkpoints of one training, which count as one model. Percentiles of few
    pairs are too narrow; they are stretched as Student's t is, and hold what one more pair would make of κ in which the
    method beats all others, or loses to all. Intervals over samples keep the cases and resample each one's samples. With
    fewer than three pairs, ties are over samples too: two methods are told apart where hardly any resample turns the
    difference of their κ round, Holm-corrected over all pairs of methods. Coverage in simulations: design/ranking.md.

    Args:
        table: what `case_table` gave.
        seed: of the resamples.
        resamples: how many.
        level: of the intervals.

    Raises:
        ValueError: no case connects some of the methods with the others.

    Paper: duan2024. Differs: any metric; with intervals, Bradley and Terry's model, Borda's and Kemeny's rankings.
    """
    wins, cases = win_matrix(table.ranks)
    groups = apart(cases)
    if len(groups) > 1:
        told = " | ".join(", ".join(table.methods[i] for i in group) for group in groups)
        raise ValueError(
            f"no case ranks methods of two of these groups, so that they cannot be ranked together: {told}"
        )
    value = kappa(wins, cases)
    order = np.lexsort((np.array(table.methods), -value))
    ranks = table.ranks[:, order]
    wins, cases, value = wins[np.ix_(order, order)], cases[np.ix_(order, order)], value[order]
    strength = bradley_terry(wins, cases)
    over_pairs = _over_pairs(table, ranks, seed, resamples)
    drawn, drawn_strength = (None, None) if over_pairs is None else over_pairs
    longer = stretch(len(table.pairs), level)
    one_more = _one_more_pair(wins, cases, len(table.cases) / len(table.pairs))
    more = kappa(*one_more, cases)
    several = min(case.n for case in table.cases) > 1
    samples = _over_samples(table, order.tolist(), cases, seed, resamples, level) if several else None
    tied, over = _tied(value, drawn, level, longer, more), OVER_PAIRS
    if drawn is None and several:
        tied, over = _tied_over_samples(table, order.tolist(), cases, seed, resamples, level), OVER_SAMPLES
    points, share = borda(wins, cases)
    return MetaBoard(
        methods=tuple(table.methods[i] for i in order),
        wins=wins,
        cases=cases,
        kappa=_intervals(value, drawn, level, longer, _own(more)),
        kappa_samples=_intervals(value, samples, level),
        strength=_intervals(strength, drawn_strength, level, longer, _own(bradley_terry(*one_more, cases))),
        mean_rank=np.nanmean(ranks, axis=0),
        borda=points,
        borda_share=share,
        consensus=kemeny(ranks),
        first=_places(ranks, np.nanmin(ranks, axis=1)),
        last=_places(ranks, np.nanmax(ranks, axis=1)),
        ranked=(~np.isnan(ranks)).sum(axis=0),
        of=len(ranks),
        tied=tied,
        tied_over="" if tied[0] is None else over,
        pairs=len(table.pairs),
    )


def kappa_difference(
    table: CaseTable, ahead: Sequence[str], *, seed: int = 0, resamples: int = 1000, level: float = 0.95
) -> Coefficient:
    """The lowest κ of some methods minus the highest of all others, with its interval over models and data sets."""
    first = [table.methods.index(m) for m in ahead]
    rest = [k for k in range(len(table.methods)) if k not in first]

    def gap(values: Array) -> Array:
        return np.asarray(values[..., first].min(axis=-1) - values[..., rest].max(axis=-1))[..., None]

    drawn = _over_pairs(table, table.ranks, seed, resamples)
    value = gap(kappa(*win_matrix(table.ranks)))
    return _intervals(value, None if drawn is None else gap(drawn[0]), level, stretch(len(table.pairs), level))[0]


def _places(ranks: Array, place: Array) -> Array:
    """How often each method has this place of a case, shared places in parts."""
    there = ranks == place[:, None]
    return np.asarray((there / there.sum(axis=1, keepdims=True)).sum(axis=0))


def pair_counts(pairs: int, resamples: int, seed: int) -> Array:
    """How often each pair of model and data set is drawn, [resamples, pairs]."""
    rng = np.random.default_rng([seed, 1])
    return rng.multinomial(pairs, np.full(pairs, 1 / pairs), size=resamples).astype(np.float64)


def _over_pairs(table: CaseTable, ranks: Array, seed: int, resamples: int) -> tuple[Array, Array] | None:
    """κ and Bradley and Terry's strengths in resamples of pairs, [resamples, methods] each; None for too few pairs."""
    if len(table.pairs) < FEWEST_PAIRS:
        return None
    count = pair_counts(len(table.pairs), resamples, seed)[:, table.pair_of]
    points, both = (np.einsum("rc,cpq->rpq", count, x) for x in outcomes(ranks))
    compared = win_matrix(ranks)[1]
    return kappa(points, both, compared), bradley_terry(points, both, compared)


def _over_samples(table: CaseTable, order: list[int], cases: Array, seed: int, resamples: int, level: float) -> Array:
    """κ in resamples of each case's samples, [resamples, methods]."""
    drawn = table.resampled_ranks(resamples, seed, level)[:, order]
    found, step = [], max(1, _BLOCK // cases.size)
    for start in range(0, resamples, step):
        points = np.asarray(sum(outcomes(case[:, start : start + step].T)[0] for case in drawn))
        found.append(kappa(points, np.broadcast_to(cases, points.shape), cases))
    return np.concatenate(found)


def _tied_over_samples(
    table: CaseTable, order: list[int], cases: Array, seed: int, resamples: int, level: float
) -> tuple[bool | None, ...]:
    """Whether resamples of samples do not tell a method from the first.

    Of every two methods, the smaller share of resamples in which the one's κ is not above the other's is half a p-value,
    Holm-corrected over all pairs of methods, as the first was chosen for its κ. Resamples are stretched at the level of the
    corrected tests; where no test on so many samples could be significant, nothing is told apart.
    """
    count = len(order)
    if too_few(table.samples, count, level):
        return (False, *(True,) * (count - 1))
    tests = count * (count - 1) // 2
    many = max(resamples, int(np.ceil(2.5 * tests / (1 - level))))
    drawn = _over_samples(table, order, cases, seed, many, 1 - (1 - level) / tests)
    first, second = np.triu_indices(count, k=1)
    ahead = drawn[:, first] - drawn[:, second]
    against = np.minimum((ahead <= _EQUAL).sum(axis=0), (ahead >= -_EQUAL).sum(axis=0))
    p = holm(np.minimum(1.0, 2 * (against + 1) / (many + 1)))
    return (False, *(bool(x > 1 - level) for x in p[: count - 1]))


def _one_more_pair(wins: Array, cases: Array, protocols: float) -> tuple[Array, Array]:
    """Wins and cases after one more pair of model and data set, in which each method in turn beats all, then loses to all.

    Returns:
        [2, methods, methods, methods] each.
    """
    each = np.eye(len(wins))[:, :, None] * ((cases > 0) * protocols)
    back = each.transpose(0, 2, 1)
    return wins + np.stack([each, back]), np.broadcast_to(cases + each + back, (2, *each.shape))


def _own(more: Array) -> list[Array]:
    """What each method in turn comes to, [2, methods, methods] to two times [methods]."""
    return [np.diagonal(part) for part in more]


def _intervals(
    values: Array, drawn: Array | None, level: float, longer: float = 1.0, others: list[Array] | None = None
) -> tuple[Coefficient, ...]:
    """Percentile intervals, stretched from the value, that hold it and some other values."""
    if drawn is None:
        return tuple(Coefficient(float(v)) for v in values)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    low, high = values + longer * np.minimum(low - values, 0), values + longer * np.maximum(high - values, 0)
    for other in others or []:
        low, high = np.minimum(low, other), np.maximum(high, other)
    return tuple(Coefficient(float(v), float(a), float(b)) for v, a, b in zip(values, low, high, strict=True))


def _tied(values: Array, drawn: Array | None, level: float, longer: float, more: Array) -> tuple[bool | None, ...]:
    """Whether the interval of the difference from the first method, over models and data, holds 0.

    It also holds what one more pair would make of the difference in which the first loses to all, or the other beats all.
    """
    if drawn is None:
        return (None,) * len(values)
    others = [more[1, 0, 0] - more[1, 0], more[0, :, 0] - np.diagonal(more[0])]
    differences = _intervals(values[0] - values, drawn[:, :1] - drawn, level, longer, others)
    return (False, *(d.low is not None and d.low <= 0 for d in differences[1:]))
