"""A finished run: its tables, leaderboard and report."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from heatcheck import stats
from heatcheck.core.files import left_behind, printable
from heatcheck.run.history import forgotten
from heatcheck.run.reader import RunReader
from heatcheck.run.shard import elsewhere
from heatcheck.run.store import files_in

if TYPE_CHECKING:
    import polars as pl

    from heatcheck.report.board import Leaderboard


def cells_failed(n: int) -> str:
    """How many cells failed, in words."""
    return f"{'1 cell has' if n == 1 else f'{n} cells have'} no score because something failed"


class Result(RunReader):
    """Scores, curves, maps and facts of one run, what statistics make of them, and its report."""

    def __repr__(self) -> str:
        facts = self.facts
        counts = {"model": len(facts["models"]), "sample": facts["data"]["n"]}
        counts |= {"method": len(facts["methods"]), "metric": len(facts["metrics"])}
        words = ", ".join(f"{n} {noun}{'' if n == 1 else 's'}" for noun, n in counts.items())
        return f"<Result {printable(str(self.store.folder))}: {words}>"

    def leaderboard(self) -> "Leaderboard":
        """Methods per model and metric: mean, interval, rank, verdict, seconds; `.full` is the data frame of all columns."""
        return self._leaderboard

    @cached_property
    def _leaderboard(self) -> "Leaderboard":
        from heatcheck.report.board import Leaderboard

        broken = self.failed - self.missing
        lines = [*([cells_failed(broken)] if broken else []), *self.incomplete(), *self.lines]
        return Leaderboard(stats.leaderboard(self.scores(), self.stats_facts), self.stats_facts, tuple(lines))

    @cached_property
    def stats_facts(self) -> stats.Facts:
        """What statistics need to know about methods and metrics."""
        return stats.Facts.of(self.facts)

    def along_training(self) -> list[stats.AlongTraining]:
        """The ranking at each checkpoint of a training, and how alike they are; empty for fewer than three checkpoints."""
        return self._along_training

    @cached_property
    def _along_training(self) -> list[stats.AlongTraining]:
        trainings = stats.trajectories(self.facts)
        return stats.along_training(self.scores(), self.stats_facts, trainings) if trainings else []

    def lacking(self) -> "pl.DataFrame":
        """The cells without a result because something went wrong or is missing; those of other shards are neither."""
        import polars as pl

        status, sample = pl.col("status").cast(pl.String), pl.col("sample").cast(pl.String)
        others = elsewhere(self.manifest)
        missing = status.str.starts_with("missing") & (~sample.is_in(others) if others else True)
        return self.scores().filter(status.str.starts_with("failed") | missing)

    @property
    def failed(self) -> int:
        """How many cells have no result because something went wrong (skips and undefined scores do not count)."""
        return self._having_status("failed", "missing")

    @property
    def missing(self) -> int:
        """How many cells are not computed, or lost with a damaged file."""
        return self._having_status("missing")

    def _having_status(self, *beginnings: str) -> int:
        """How many cells have a status that begins so; what other shards compute does not count."""
        cells = self.lacking() if elsewhere(self.manifest) else self.scores()
        counts = cells["status"].value_counts(name="cells").iter_rows()
        return sum(n for status, n in counts if status.startswith(beginnings))

    def check(self) -> list[str]:
        """What is wrong with the folder: files that are damaged or in the way, and cells that are missing."""
        store = self.store
        store.check_records()
        problems = [f"{name} is damaged: {why}" for name, why in store.damaged.items()]
        problems += [f"{name} is left out: {why}" for name, why in store.foreign.items()]
        problems += [f"the study {name} is gone from {store.studies}" for name in forgotten(store, self.manifest)]
        if store.quarantine.is_file():
            problems.append(f"{store.quarantine} is a file; a run needs a folder of that name: rename it")
        return problems + self.incomplete()

    def incomplete(self) -> list[str]:
        """What is not computed, which is no damage; empty where nothing is missing."""
        if not self.missing:
            return []
        are = "cell is" if self.missing == 1 else "cells are"
        return [f"{self.missing} {are} not computed; run the study again to fill them in"]

    def remarks(self) -> list[str]:
        """What is worth knowing about the folder, and no damage."""
        store = self.store
        store.check_records()
        old = "is from before there were checksums and opened unchecked; run the study again to write one"
        found = [f"{name} {old}" for name in sorted(store.unchecked)]
        aside = files_in(store.quarantine, "") if store.quarantine.is_dir() else []
        found += [f"{path.relative_to(store.folder)} was damaged, and was set aside by a run" for path in aside]
        for folder in (store.folder, store.chunks, store.studies):
            found += [f"{path.name} was left half written by a process that died" for path in left_behind(folder)]
        return found

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report as one HTML file."""
        from heatcheck.report import write_report  # charts and templates take a while to import

        return write_report(self, Path(path) if path else self.store.folder / "report.html")
