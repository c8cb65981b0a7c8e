"""A finished run: its tables, leaderboard and report."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from heatcheck import stats
from heatcheck.run.reader import RunReader

if TYPE_CHECKING:
    from heatcheck.report.board import Leaderboard


class Result(RunReader):
    """Scores, curves, maps and facts of one run, what statistics make of them, and its report."""

    def leaderboard(self) -> "Leaderboard":
        """Methods per model and metric: mean, interval, rank, verdict, seconds; `.full` is the data frame of all columns."""
        return self._leaderboard

    @cached_property
    def _leaderboard(self) -> "Leaderboard":
        from heatcheck.report.board import Leaderboard

        return Leaderboard(stats.leaderboard(self.scores(), self.stats_facts), self.stats_facts)

    @cached_property
    def stats_facts(self) -> stats.Facts:
        """What statistics need to know about methods and metrics."""
        return stats.Facts.of(self.facts)

    @property
    def failed(self) -> int:
        """How many cells have no result because something went wrong (skips and undefined scores do not count)."""
        status = self.scores()["status"]
        return int((status.str.starts_with("failed") | status.str.starts_with("missing")).sum())

    def check(self) -> list[str]:
        """Integrity problems of the folder: damaged files and cells that are missing."""
        missing = self.scores()["status"].str.starts_with("missing").sum()
        problems = [f"damaged file set aside: {d}" for d in self.store.damaged]
        if missing:
            problems.append(f"{missing} cells are not computed; run the study again to fill them in")
        return problems

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report as one HTML file."""
        from heatcheck.report import write_report  # charts and templates take a while to import

        return write_report(self, Path(path) if path else self.store.folder / "report.html")
