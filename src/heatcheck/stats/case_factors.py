"""Cases divided by a factor: one ranking for each model, data set, metric or protocol."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heatcheck.stats.agreement import kendall_w
from heatcheck.stats.consistency import mean_ranks, tau_matrix
from heatcheck.stats.meta_cases import CaseTable
from heatcheck.stats.ranks import rank_of
from heatcheck.stats.table import Array, Row, nan_to_null


@dataclass(frozen=True)
class FactorLevelRanking:
    """The cases that share one level of a factor.

    Args:
        level: its name.
        cases: how many.
        ranks: [methods], the ranking by mean rank over these cases; NaN where a method is ranked in none of them.
        mean_ranks: what it is made of.
        w: Kendall's W within; NaN for a single case.
    """

    level: str
    cases: int
    ranks: Array
    mean_ranks: Array
    w: float


@dataclass(frozen=True)
class FactorRankings:
    """One ranking for each level of a factor, and how alike they are.

    Args:
        factor: its name.
        methods: the order of all ranks.
        levels: in the order of their first cases.
        tau: mean of Kendall's τ_b between the rankings of two levels.
        within: mean of τ_b between two cases of one level; None where no level has two.
        between: mean of τ_b between two cases of different levels.
    """

    factor: str
    methods: tuple[str, ...]
    levels: tuple[FactorLevelRanking, ...]
    tau: float | None
    within: float | None
    between: float | None

    def rows(self) -> list[Row]:
        """One row per level and method."""
        return [
            {
                self.factor: level.level,
                "cases": level.cases,
                "kendall_w": nan_to_null(level.w),
                "method": method,
                "rank": nan_to_null(level.ranks[k]),
                "mean_rank": nan_to_null(level.mean_ranks[k]),
            }
            for level in self.levels
            for k, method in enumerate(self.methods)
        ]


def by_factor(table: CaseTable, factor: str, methods: Sequence[str]) -> FactorRankings:
    """The cases divided by a factor: `model`, `data`, `metric` or `protocol`.

    Args:
        table: what `case_table` gave.
        factor: which.
        methods: the order of methods.

    Raises:
        ValueError: there is no such factor.
    """
    levels = [case.record().get(factor) for case in table.cases]
    if None in levels:
        raise ValueError(f"factor={factor!r}: expected model, data, metric or protocol")
    order = [table.methods.index(m) for m in methods]
    ranks = table.ranks[:, order]
    found = []
    for level in dict.fromkeys(levels):
        own = ranks[[i for i, other in enumerate(levels) if other == level]]
        there = ~np.isnan(own).all(axis=0)
        means, places = np.full((2, ranks.shape[1]), np.nan)
        means[there] = mean_ranks(own[:, there])
        places[there] = rank_of(means[there], higher=False)
        everywhere = ~np.isnan(own).any(axis=0)
        w = kendall_w(own[:, everywhere]) if len(own) > 1 else np.nan
        found.append(FactorLevelRanking(str(level), len(own), places, means, w))
    matrix = tau_matrix(ranks)
    same = np.array([[a == b for b in levels] for a in levels])
    alike = tau_matrix(np.array([level.ranks for level in found]))
    return FactorRankings(
        factor,
        tuple(methods),
        tuple(found),
        _mean(alike),
        _mean(np.where(same, matrix, np.nan)),
        _mean(np.where(same, np.nan, matrix)),
    )


def _mean(values: Array) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
