"""What a report needs of a run: its stored scores, maps and facts."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from heatcheck.report.board import Leaderboard


class CaseSource(Protocol):
    """What was measured on one data set. All its strings are untrusted."""

    def samples(self) -> pl.DataFrame:
        """Per model and sample: label, target and predicted class, each with its name; prob; status."""

    def curves(self, model: str, metric: str) -> pl.DataFrame:
        """Columns sample, method, share, curve (the last two are lists); empty if the metric has no curves."""

    def map(self, model: str, sample: str, method: str) -> NDArray[np.floating] | None:
        """A stored map: [h, w] at native resolution, or one value per token; None if it was not stored."""

    def display(self, model: str, sample: str) -> Mapping[str, Any] | None:
        """`{"kind": "image", "rgb": uint8[h, w, 3]}` or `{"kind": "text", "tokens": [...], "special": [...]}`.

        A text may also have, per token, its `word`, `sentence`, the `pieces` of the text that they stand for, and
        whether it is part of the human `rationale`; and the place of the `first` token in a map.
        Each kind has an entry in `heatcheck.report.exhibits.RENDERERS`. None if the sample cannot be shown.
        """

    def gallery(self) -> Sequence[tuple[str, str]]:
        """The (model, sample) pairs to show under all methods."""


class RunSource(Protocol):
    """A finished or partial run. All its strings are untrusted."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Name, settings, environment, models, data, methods, metrics, circular pairs, skips, passes: JSON."""

    def scores(self) -> pl.DataFrame:
        """The long table: run, model, data, sample, target, method, metric, score, status and costs."""

    def leaderboard(self) -> Leaderboard:
        """What `heatcheck.stats.leaderboard` makes of the scores."""

    def samples(self) -> pl.DataFrame:
        """Per model and sample: label, target and predicted class, each with its name; prob; status."""

    def within(self, data: str) -> CaseSource:
        """What was measured on one of the data sets that the tables name."""
