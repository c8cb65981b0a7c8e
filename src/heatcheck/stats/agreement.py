"""How far rankings agree: between metrics, between models, between data sets."""

from collections.abc import Iterator
from itertools import combinations
from typing import Literal

import numpy as np
import polars as pl

from heatcheck.stats.ranks import rank_of
from heatcheck.stats.table import KEYS, Array, Row, null

Case = Literal["metric", "model", "data"]
Ranking = dict[str, float]


def kendall_tau(x: Array, y: Array) -> float:
    """Kendall's τ_b of two paired sequences; NaN where one of them is constant."""
    above = np.triu_indices(len(x), k=1)
    dx, dy = (np.sign(v[:, None] - v[None, :])[above] for v in (np.asarray(x), np.asarray(y)))
    scale = np.sqrt(float(np.count_nonzero(dx)) * float(np.count_nonzero(dy)))
    return float(np.sum(dx * dy) / scale) if scale > 0 else float("nan")


def spearman(x: Array, y: Array) -> float:
    """Spearman's ρ of two paired sequences, average ties; NaN where one of them is constant."""
    if len(x) < 2:
        return float("nan")
    dx, dy = (ranks - ranks.mean() for ranks in (rank_of(x), rank_of(y)))
    scale = np.sqrt(np.sum(dx**2) * np.sum(dy**2))
    return float(np.sum(dx * dy) / scale) if scale > 0 else float("nan")


def kendall_w(ranks: Array) -> float:
    r"""Kendall's coefficient of concordance of [cases, methods], corrected for ties.

    $W = 12S / (m^2(n^3-n) - m\sum T)$ with $T = \sum(t^3-t)$ over a case's groups of $t$ ties.

    Returns:
        1 where all cases agree, 0 where their rank sums are equal; NaN where every case is one tie, or
        there is no case, or fewer than two methods.
    """
    values = np.asarray(ranks, dtype=np.float64)
    m, n = values.shape
    if m == 0 or n < 2:
        return float("nan")
    each = rank_of(values.T, higher=False)
    sums = each.sum(axis=1)
    ties = sum(float(np.sum(t**3 - t)) for t in (np.unique(case, return_counts=True)[1] for case in values))
    scale = m**2 * (n**3 - n) - m * ties
    return float(12 * np.sum((sums - sums.mean()) ** 2) / scale) if scale > 0 else float("nan")


def agreement(board: pl.DataFrame, across: Case = "metric") -> pl.DataFrame:
    """Correlation of every two rankings, over the methods that both rank.

    Args:
        board: what `leaderboard` returned.
        across: what tells the rankings apart; rankings are compared where the other two are equal.

    Returns:
        The other two of `model`, `data`, `metric`; `a`, `b`: the two cases; `methods`: ranked in both;
        `tau`: Kendall's τ_b; `spearman`. Null where it does not exist.
    """
    kept = _others(across)
    rows: list[Row] = []
    for key, rankings in _rankings(board, across):
        for a, b in combinations(rankings, 2):
            common = sorted(rankings[a].keys() & rankings[b].keys())
            x, y = (np.array([rankings[case][method] for method in common]) for case in (a, b))
            rows.append(
                {
                    **key,
                    "a": a,
                    "b": b,
                    "methods": len(common),
                    "tau": null(kendall_tau(x, y)),
                    "spearman": null(spearman(x, y)),
                }
            )
    schema = dict.fromkeys([*kept, "a", "b"], pl.String) | {
        "methods": pl.Int64,
        "tau": pl.Float64,
        "spearman": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def concordance(board: pl.DataFrame, across: Case = "metric") -> pl.DataFrame:
    """Agreement of all rankings at once.

    Args:
        board: what `leaderboard` returned.
        across: what tells the rankings apart; rankings are compared where the other two are equal.

    Returns:
        The other two of `model`, `data`, `metric`; `cases`: rankings; `methods`: ranked in all of them;
        `kendall_w` over those; `tau`, `spearman`: means of `agreement` over pairs of cases, each on the
        methods that the pair has in common. Null below two cases.
    """
    kept = _others(across)
    pairs = agreement(board, across)
    rows: list[Row] = []
    for key, rankings in _rankings(board, across):
        common = sorted(set.intersection(*(set(r) for r in rankings.values())))
        matrix = np.array([[r[method] for method in common] for r in rankings.values()])
        mine = pairs.filter(pl.all_horizontal(pl.col(k) == v for k, v in key.items()))
        rows.append(
            {
                **key,
                "cases": len(rankings),
                "methods": len(common),
                "kendall_w": null(kendall_w(matrix)) if len(rankings) > 1 else None,
                "tau": mine["tau"].mean(),
                "spearman": mine["spearman"].mean(),
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


def _others(across: Case) -> list[str]:
    if across not in KEYS:
        raise ValueError(f"across={across!r}: expected one of {', '.join(KEYS)}")
    return [key for key in KEYS if key != across]


def _rankings(board: pl.DataFrame, across: Case) -> Iterator[tuple[dict[str, str], dict[str, Ranking]]]:
    """Per setting the rankings of its cases: {case: {method: rank}}, all sorted by name."""
    kept = _others(across)
    found: dict[tuple[str, ...], dict[str, Ranking]] = {}
    for row in board.filter("ranked").sort(*kept, across, "method").iter_rows(named=True):
        setting = tuple(row[key] for key in kept)
        found.setdefault(setting, {}).setdefault(row[across], {})[row["method"]] = row["rank"]
    for setting, rankings in found.items():
        yield dict(zip(kept, setting, strict=True)), rankings
