"""Means, intervals, ranks and tests, on stored scores: no model, no torch, no file."""

from heatcheck.stats.agreement import agreement, concordance, kendall_tau, kendall_w, spearman
from heatcheck.stats.facts import Facts, outside_mean_rank
from heatcheck.stats.intervals import bca, bootstrap_indices, resampled_means
from heatcheck.stats.leaderboard import leaderboard, not_better_than_random, overall
from heatcheck.stats.multiverse import (
    Rankings,
    Universe,
    concordance_of,
    rankings,
    rankings_missing,
    universes_of,
)
from heatcheck.stats.paired import differences, holm, sign_flip, wins_share
from heatcheck.stats.ranks import rank_of
from heatcheck.stats.separation import auroc, eta_squared, separation

__all__ = [
    "Facts",
    "Rankings",
    "Universe",
    "agreement",
    "auroc",
    "bca",
    "bootstrap_indices",
    "concordance",
    "concordance_of",
    "differences",
    "eta_squared",
    "holm",
    "kendall_tau",
    "kendall_w",
    "leaderboard",
    "not_better_than_random",
    "outside_mean_rank",
    "overall",
    "rank_of",
    "rankings",
    "rankings_missing",
    "resampled_means",
    "separation",
    "sign_flip",
    "spearman",
    "universes_of",
    "wins_share",
]
