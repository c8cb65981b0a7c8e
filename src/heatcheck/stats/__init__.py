"""Means, intervals, ranks and tests of stored scores, without models, torch or files."""

from heatcheck.stats.agreement import agreement, concordance, kendall_tau, kendall_w, spearman
from heatcheck.stats.case_factors import FactorRankings, by_factor
from heatcheck.stats.case_random import CasesAgainstRandom, cases_against_random
from heatcheck.stats.checkpoints import AlongTraining, Checkpoint, Coefficient, Trajectory, along_training, trajectories
from heatcheck.stats.consistency import MetaAgreement, agreement_tables, meta_agreement
from heatcheck.stats.facts import Facts, outside_mean_rank
from heatcheck.stats.intervals import (
    bootstrap_indices,
    heavy_tailed,
    mean_band,
    mean_interval,
    mean_intervals,
    resampled_means,
    studentised,
)
from heatcheck.stats.leaderboard import leaderboard, left_out, overall
from heatcheck.stats.meta_cases import CaseProtocol, CaseTable, MetaCase, accuracy_areas, case_table
from heatcheck.stats.meta_rank import MetaBoard, meta_rank
from heatcheck.stats.model_by_method import M4_PARTS, averaged_z, model_by_method, raw_sum
from heatcheck.stats.multiverse import (
    Rankings,
    Universe,
    rankings,
    rankings_missing,
    resampled_kendall_w,
    universes_of,
)
from heatcheck.stats.onesided import above_zero
from heatcheck.stats.paired import against_others, differences, holm, sign_flip, smallest_p, too_few, wins_share
from heatcheck.stats.power import detectable, detectable_on, minimum_detectable_difference, samples_needed
from heatcheck.stats.ranks import rank_of, rank_sets
from heatcheck.stats.recommendation import Recommendation, costs, recommendations
from heatcheck.stats.removal_orders import accuracy_by_share, falls_faster_under_lerf
from heatcheck.stats.retraining import accuracy_curves, population_accuracies
from heatcheck.stats.separation import auroc, eta_squared, separation
from heatcheck.stats.summary import (
    best_and_tied,
    missing_scores,
    never_better_than_random,
    not_better_than_random,
    smallest_p_values,
)
from heatcheck.stats.table import has_score, rows_by
from heatcheck.stats.tie_groups import compact_letters

__all__ = [
    "M4_PARTS",
    "AlongTraining",
    "CaseProtocol",
    "CaseTable",
    "CasesAgainstRandom",
    "Checkpoint",
    "Coefficient",
    "FactorRankings",
    "Facts",
    "MetaAgreement",
    "MetaBoard",
    "MetaCase",
    "Rankings",
    "Recommendation",
    "Trajectory",
    "Universe",
    "above_zero",
    "accuracy_areas",
    "accuracy_by_share",
    "accuracy_curves",
    "against_others",
    "agreement",
    "agreement_tables",
    "along_training",
    "auroc",
    "averaged_z",
    "best_and_tied",
    "bootstrap_indices",
    "by_factor",
    "case_table",
    "cases_against_random",
    "compact_letters",
    "concordance",
    "costs",
    "detectable",
    "detectable_on",
    "differences",
    "eta_squared",
    "falls_faster_under_lerf",
    "has_score",
    "heavy_tailed",
    "holm",
    "kendall_tau",
    "kendall_w",
    "leaderboard",
    "left_out",
    "mean_band",
    "mean_interval",
    "mean_intervals",
    "meta_agreement",
    "meta_rank",
    "minimum_detectable_difference",
    "missing_scores",
    "model_by_method",
    "never_better_than_random",
    "not_better_than_random",
    "outside_mean_rank",
    "overall",
    "population_accuracies",
    "rank_of",
    "rank_sets",
    "rankings",
    "rankings_missing",
    "raw_sum",
    "recommendations",
    "resampled_kendall_w",
    "resampled_means",
    "rows_by",
    "samples_needed",
    "separation",
    "sign_flip",
    "smallest_p",
    "smallest_p_values",
    "spearman",
    "studentised",
    "too_few",
    "trajectories",
    "universes_of",
    "wins_share",
]
