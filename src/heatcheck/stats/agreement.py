"""Agreement of rankings: between metrics, between models, between data sets."""

from collections.abc import Iterator
from itertools import combinations
from typing import Literal

import numpy as np
import polars as pl

from heatcheck.stats.ranks import rank_of
from heatcheck.stats.table import KEYS, Array, Row, nan_to_null

Across = Literal["metric", "model", "data"]
Ranking = dict[str, float]


def kendall_tau(x: Array, y: Array) -> float:
    """Kendall's τ_b (corrected for ties) of two paired sequences; NaN where one of them is constant.

    Example:
        >>> kendall_tau(np.array([1, 2, 3]), np.array([1, 3, 2]))
        0.3333333333333333
    """
    above = np.triu_indices(len(x), k=1)
    dx, dy = (np.sign(v[:, None] - v[None, :])[above] for v in (np.asarray(x), np.asarray(y)))
    scale = np.sqrt(float(np.count_nonzero(dx)) * float(np.count_nonzero(dy)))
    return float(np.sum(dx * dy) / scale) if scale > 0 else float("nan")


def spearman(x: Array, y: Array) -> float:
    """Spearman's ρ of two paired sequences, ties with average ranks; NaN where one of them is constant.

    Example:
        >>> spearman(np.array([1, 2, 3]), np.array([10, 30, 20]))
        0.5
    """
    if len(x) < 2:
        return float("nan")
    dx, dy = (ranks - ranks.mean() for ranks in (rank_of(x), rank_of(y)))
    scale = np.sqrt(np.sum(dx**2) * np.sum(dy**2))
    return float(np.sum(dx * dy) / scale) if scale > 0 else float("nan")


def kendall_w(ranks: Array) -> float:
    r"""Kendall's coefficient of concordance W of [rankings, methods], corrected for ties.

    $W = 12S / (m^2(n^3-n) - m\sum T)$ with $S$ the sum of squared deviations of the rank sums from their mean, and
    $T = \sum(t^3-t)$ over a ranking's groups of $t$ ties.

    Returns:
        1 where all rankings agree, 0 where all rank sums are equal; NaN where every ranking is one tie, or there is no
        ranking, or fewer than two methods.

    Example:
        >>> kendall_w(np.array([[1, 2, 3], [1, 2, 3]])), kendall_w(np.array([[1, 2, 3], [3, 2, 1]]))
        (1.0, 0.0)
    """
    values = np.asarray(ranks, dtype=np.float64)
    m, n = values.shape
    if m == 0 or n < 2:
        return float("nan")
    sums = rank_of(values.T, higher=False).sum(axis=1)
    ties = sum(float(np.sum(t**3 - t)) for t in (np.unique(row, return_counts=True)[1] for row in values))
    scale = m**2 * (n**3 - n) - m * ties
    return float(12 * np.sum((sums - sums.mean()) ** 2) / scale) if scale > 0 else float("nan")


def agreement(board: pl.DataFrame, across: Across = "metric") -> pl.DataFrame:
    """Rank correlation of every pair of rankings, over the methods that both rank.

    Args:
        board: what `leaderboard` returned.
        across: in what two rankings differ; only rankings that share the other two are compared.

    Returns:
        The other two of `model`, `data`, `metric`; `a`, `b`: the two rankings, by their value of `across`; `methods`:
        number of methods ranked in both; `tau`: Kendall's τ_b; `spearman`: Spearman's ρ. Null where undefined.
    """
    kept = _others(across)
    rows: list[Row] = []
    for key, rankings in _rankings(board, across):
        for a, b in combinations(rankings, 2):
            common = sorted(rankings[a].keys() & rankings[b].keys())
            x, y = (np.array([rankings[name][method] for method in common]) for name in (a, b))
            rows.append(
                {
                    **key,
                    "a": a,
                    "b": b,
                    "methods": len(common),
                    "tau": nan_to_null(kendall_tau(x, y)),
                    "spearman": nan_to_null(spearman(x, y)),
                }
            )
    schema = dict.fromkeys([*kept, "a", "b"], pl.String) | {
        "methods": pl.Int64,
        "tau": pl.Float64,
        "spearman": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def concordance(board: pl.DataFrame, across: Across = "metric") -> pl.DataFrame:
    """Concordance of all rankings at once.

    Args:
        board: what `leaderboard` returned.
        across: in what rankings differ; only rankings that share the other two are compared.

    Returns:
        The other two of `model`, `data`, `metric`; `cases`: number of rankings; `methods`: number of methods ranked
        in all of them; `kendall_w` over those; `tau`, `spearman`: means of `agreement` over pairs of rankings, each
        over the methods that both rank. Null for fewer than two rankings.
    """
    kept = _others(across)
    pairs = agreement(board, across)
    rows: list[Row] = []
    for key, rankings in _rankings(board, across):
        common = sorted(set.intersection(*(set(r) for r in rankings.values())))
        matrix = np.array([[r[method] for method in common] for r in rankings.values()])
        setting = pairs.filter(pl.all_horizontal(pl.col(k) == v for k, v in key.items()))
        rows.append(
            {
                **key,
                "cases": len(rankings),
                "methods": len(common),
                "kendall_w": nan_to_null(kendall_w(matrix)) if len(rankings) > 1 else None,
                "tau": setting["tau"].mean(),
                "spearman": setting["spearman"].mean(),
            }
        )
    schema = dict.fromkeys(kept, pl.String) | {
        "cases": pl.Int64,
        "methods": pl.Int64,
        "kendall_w": pl.Float64,
        "tau": pl.Float64,
        "spearman": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def _others(across: Across) -> list[str]:
    if across not in KEYS:
        raise ValueError(f"across={across!r}: expected one of {', '.join(KEYS)}")
    return [key for key in KEYS if key != across]


def _rankings(board: pl.DataFrame, across: Across) -> Iterator[tuple[dict[str, str], dict[str, Ranking]]]:
    """Per setting its rankings, {value of `across`: {method: rank}}, all sorted by name."""
    kept = _others(across)
    found: dict[tuple[str, ...], dict[str, Ranking]] = {}
    for row in board.filter("ranked").sort(*kept, across, "method").iter_rows(named=True):
        setting = tuple(row[key] for key in kept)
        found.setdefault(setting, {}).setdefault(row[across], {})[row["method"]] = row["rank"]
    for setting, rankings in found.items():
        yield dict(zip(kept, setting, strict=True)), rankings
