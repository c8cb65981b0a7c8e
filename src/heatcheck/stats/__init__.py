"""Means, intervals, ranks and tests of stored scores, without models, torch or files."""

from heatcheck.stats.agreement import agreement, concordance, kendall_tau, kendall_w, spearman
from heatcheck.stats.facts import Facts, outside_mean_rank
from heatcheck.stats.intervals import bca, bootstrap_indices, mean_band, resampled_means
from heatcheck.stats.leaderboard import leaderboard, overall
from heatcheck.stats.multiverse import (
    Rankings,
    Universe,
    rankings,
    rankings_missing,
    resampled_kendall_w,
    universes_of,
)
from heatcheck.stats.paired import differences, holm, sign_flip, smallest_p, too_few, wins_share
from heatcheck.stats.ranks import rank_of
from heatcheck.stats.separation import auroc, eta_squared, separation
from heatcheck.stats.summary import (
    best_and_tied,
    missing_scores,
    never_better_than_random,
    not_better_than_random,
    smallest_p_values,
)
from heatcheck.stats.table import has_score

__all__ = [
    "Facts",
    "Rankings",
    "Universe",
    "agreement",
    "auroc",
    "bca",
    "best_and_tied",
    "bootstrap_indices",
    "concordance",
    "differences",
    "eta_squared",
    "has_score",
    "holm",
    "kendall_tau",
    "kendall_w",
    "leaderboard",
    "mean_band",
    "missing_scores",
    "never_better_than_random",
    "not_better_than_random",
    "outside_mean_rank",
    "overall",
    "rank_of",
    "rankings",
    "rankings_missing",
    "resampled_kendall_w",
    "resampled_means",
    "separation",
    "sign_flip",
    "smallest_p",
    "smallest_p_values",
    "spearman",
    "too_few",
    "universes_of",
    "wins_share",
]
