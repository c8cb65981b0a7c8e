"""One ranking from many runs: Meta-Rank over any models, data and metrics."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heatcheck import stats
from heatcheck.api.joined_runs import JoinedRuns, join_runs
from heatcheck.api.result import Result
from heatcheck.core.types import HeatcheckError

if TYPE_CHECKING:
    import polars as pl

    from heatcheck.report.ranking import RankingView
    from heatcheck.report.tables import MarkedTable

FACTORS = ("model", "data", "metric", "protocol", "checkpoint")
"""What cases may be divided by."""


def rank(
    runs: Iterable[str | Path | Result],
    *,
    by: str | None = None,
    metrics: Sequence[str] | None = None,
    only: bool = False,
    seed: int = 0,
    resamples: int = 1000,
) -> "Ranked":
    """Rank methods over the cases of any number of runs: every model, on every data set, under every metric.

    >>> found = rank(["runs/lite0", "runs/resnet50"], by="protocol")     # doctest: +SKIP
    >>> found.leaderboard()                                              # doctest: +SKIP
    >>> found.save("runs/rank")                                          # doctest: +SKIP

    Args:
        runs: folders that `heatcheck run` made, or results; the same components, any models and data.
        by: show one ranking for each `model`, `data`, `metric`, `protocol` (a metric with its parameters) or `checkpoint`
            of a training.
        metrics: those that make cases, by name or id; all that measure faithfulness if None.
        only: of each folder, the last study alone.
        seed: of the resamples.
        resamples: how many.

    Raises:
        HeatcheckError: there is nothing to rank, or the runs do not fit each other.
    """
    if by is not None and by not in FACTORS:
        raise HeatcheckError(f"by={by!r}: expected one of {', '.join(FACTORS)}")
    joined = join_runs(runs, metrics=metrics, only=only)
    try:
        table = joined.case_table()
        board = stats.meta_rank(table, seed=seed, resamples=resamples)
    except ValueError as problem:
        raise HeatcheckError(str(problem)) from problem
    found = Ranked(joined, table, board, by, seed, resamples)
    if by == "checkpoint" and not found.along_training:
        raise HeatcheckError(
            "by='checkpoint': no training has scores of at least three of its checkpoints in these runs"
        )
    return found


@dataclass(frozen=True)
class Ranked:
    """A ranking over the cases of many runs.

    Args:
        runs: what was joined.
        table: the cases and their rankings.
        board: the ranking over all of them.
        by: what cases are divided by, if anything.
        seed: of the resamples.
        resamples: how many.
    """

    runs: JoinedRuns = field(repr=False)
    table: stats.CaseTable = field(repr=False)
    board: stats.MetaBoard
    by: str | None = None
    seed: int = 0
    resamples: int = 1000

    @cached_property
    def agreement(self) -> stats.MetaAgreement:
        """How far the cases agree, and which contradict the rest."""
        return stats.meta_agreement(self.table, seed=self.seed, resamples=self.resamples)

    @cached_property
    def along_training(self) -> list[stats.AlongTraining]:
        """The rankings along each training of which there are at least three checkpoints."""
        trainings = stats.trajectories(self.runs.facts)
        if not trainings:
            return []
        return stats.along_training(self.runs.scores, self.runs.stats_facts, trainings, seed=self.seed)

    @cached_property
    def factor(self) -> stats.FactorRankings | None:
        """One ranking for each level of the factor that was asked for; of none, by protocol, model or data set."""
        methods = self.board.methods
        if self.by is not None and self.by != "checkpoint":
            return stats.by_factor(self.table, self.by, methods)
        for factor in ("protocol", "model", "data"):
            found = stats.by_factor(self.table, factor, methods)
            if len(found.levels) > 1:
                return found
        return None

    @cached_property
    def removal_orders(self) -> "pl.DataFrame":
        """Which methods let models fall faster when the least relevant units go first; ROAD's limits."""
        return stats.falls_faster_under_lerf(self.table, seed=self.seed, resamples=self.resamples)

    @cached_property
    def against_random(self) -> stats.CasesAgainstRandom:
        """In which cases no method is significantly better than random, and how often each one is not."""
        return stats.cases_against_random(self.runs.scores, self.runs.stats_facts, self.table, seed=self.seed)

    @cached_property
    def accuracy_by_share(self) -> "pl.DataFrame":
        """Accuracy in per cent by share removed, per case of MoRF or LeRF whose curves are of accuracy; ROAD's limits."""
        import polars as pl

        tables = []
        for case in self.table.cases:
            found = self.runs.accuracy_by_share(case, seed=self.seed, resamples=self.resamples)
            if found is not None:
                named = (pl.lit(text).alias(name) for name, text in case.record().items())
                tables.append(found.select(*named, pl.all()))
        if not tables:
            return pl.DataFrame()
        return pl.concat(tables).with_columns(pl.col("accuracy", "low", "high") * 100)

    def leaderboard(self) -> "pl.DataFrame":
        """One row per method, best κ first; `not_better` than random in so many of the `tested` cases."""
        board = self.board.table()
        return board.join(self.against_random.columns(self.board.methods), on="method", maintain_order="left")

    def missing(self) -> list[tuple[str, str, str]]:
        """(case, method, reason) for every method that a case does not rank."""
        return [(case.name, method, reason) for case, method, reason in self.table.missing]

    @cached_property
    def view(self) -> "RankingView":
        """Everything that page, tables and figures show."""
        from heatcheck.report.ranking import ranking_view

        return ranking_view(
            names=self.runs.names,
            facts=self.runs.stats_facts,
            table=self.table,
            board=self.board,
            agreement=self.agreement,
            factor=self.factor,
            along=self.along_training,
            orders=self.removal_orders,
            random=self.against_random,
            by_share=self.accuracy_by_share,
            notes=self.runs.notes,
        )

    def tables(self) -> "tuple[MarkedTable, ...]":
        """All tables, each with its best and its tied cells."""
        return self.view.tables

    def record(self) -> dict[str, Any]:
        """Everything as plain data."""
        agreement = stats.agreement_tables(self.agreement)
        return {
            "runs": self.runs.names,
            "cases": len(self.table.cases),
            "pairs": len(self.table.pairs),
            "by": self.by,
            "methods": self.leaderboard().to_dicts(),
            "kemeny": {
                "order": [self.board.methods[i] for i in self.board.consensus.order],
                "contradicted": self.board.consensus.contradicted,
                "exact": self.board.consensus.exact,
                "optima": self.board.consensus.optima,
            },
            "against_random": {
                "tested": self.against_random.tested,
                "nothing_better": [
                    {**self.table.cases[i].record(), "too_few_samples": bool(self.against_random.few[i])}
                    for i in self.against_random.nothing
                ],
            },
            "wins": self.board.win_table().to_dicts(),
            "agreement": self.agreement.record(),
            "case_agreement": agreement["cases"].to_dicts(),
            "morf_lerf": agreement["orders"].to_dicts(),
            "falls_faster_under_lerf": self.removal_orders.to_dicts(),
            "accuracy_by_share": self.accuracy_by_share.to_dicts(),
            "case_scores": [
                {
                    **case.record(),
                    "samples": case.n,
                    "unit": case.protocol.unit,
                    "higher_is_better": self.runs.stats_facts.higher_is_better[case.protocol.name],
                    "means": dict(zip(self.table.methods, means.tolist(), strict=True)),
                    "ranks": dict(zip(self.table.methods, ranks.tolist(), strict=True)),
                }
                for case, means, ranks in zip(self.table.cases, self.table.means, self.table.ranks, strict=True)
            ],
            "by_factor": None if self.factor is None else {"factor": self.factor.factor, "rows": self.factor.rows()},
            "along_training": [case.record() for case in self.along_training],
            "missing": [{"case": c, "method": m, "reason": r} for c, m, r in self.missing()],
            "left_out": [{"case": case.name, "reason": reason} for case, reason in self.table.left_out],
            "notes": self.runs.notes,
        }

    def report(self, path: str | Path) -> Path:
        """Write the page as one HTML file."""
        from heatcheck.report.ranking_page import write_ranking_page

        return write_ranking_page(self.view, Path(path))

    def save(self, folder: str | Path) -> Path:
        """Write the page, `rank.json`, all tables (CSV, Parquet, Markdown, LaTeX) and all figures (SVG, PNG) into a folder.

        Returns:
            The page.
        """
        from heatcheck.report.ranking_page import save_ranking

        return save_ranking(self.view, self.record(), Path(folder))
