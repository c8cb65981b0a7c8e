"""What a study of retraining would cost, and what a finished one found."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heatcheck import stats
from heatcheck.api.result import Result
from heatcheck.core.types import HeatcheckError
from heatcheck.metrics.roar import ANSWERS, STUDY
from heatcheck.stats.two_way import About

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class RetrainingPlan:
    """What a study of retraining would cost.

    Args:
        trainings: networks in all.
        done: those that are trained already.
        samples: pictures to learn from.
        judged: pictures to judge by.
        epochs: of each training.
        map_forwards: passes of the model that is explained.
        map_backwards: likewise.
        forwards: passes of the networks that are trained.
        backwards: likewise.
        training_seconds: about how long one training takes on one core.
        seconds: about how long everything that is left takes.
        disk_bytes: about what the folder takes in the end.
    """

    trainings: int
    done: int
    samples: int
    judged: int
    epochs: int
    map_forwards: int
    map_backwards: int
    forwards: int
    backwards: int
    training_seconds: float
    seconds: float
    disk_bytes: int

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return dict(vars(self))


@dataclass(frozen=True)
class RetrainingResult:
    """A finished study of retraining.

    Args:
        folder: where it is.
        result: its scores as a run: one number per method, picture and protocol.
    """

    folder: Path
    result: Result

    @classmethod
    def open(cls, folder: str | Path) -> "RetrainingResult":
        """Open the folder of a finished study."""
        return cls(Path(folder), Result.open(folder))

    @cached_property
    def study(self) -> dict[str, Any]:
        """What the study was, and the accuracy of every network."""
        found: dict[str, Any] = json.loads((self.folder / STUDY).read_text(encoding="utf-8"))
        return found

    def answers(self) -> "pl.DataFrame":
        """A row per network and picture: whether the answer was right, the probability of the label, the class."""
        import polars as pl

        return pl.read_parquet(self.folder / ANSWERS)

    def accuracies(self, about: About = "benchmark") -> "pl.DataFrame":
        """Mean accuracy per protocol, method and level, with its interval.

        Args:
            about: `benchmark`: on these very pictures, with other seeds; `population`: on other pictures, too.
        """
        if about == "benchmark":
            return stats.accuracy_curves(self.study["cells"])
        if about == "population":
            return stats.population_accuracies(self.answers())
        raise HeatcheckError(f"about={about!r} is neither benchmark (these very pictures) nor population (others, too)")
