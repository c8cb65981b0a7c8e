"""What the page shows, as plain data: the template only lays it out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heatcheck.report.along import TrajectoryView
from heatcheck.report.charts import Axis, CostChart, CurveChart
from heatcheck.report.exhibits import Exhibit
from heatcheck.report.heat_map import HeatMap
from heatcheck.report.method_view import MethodView
from heatcheck.report.multiverse import MultiverseView
from heatcheck.report.retraining import RetrainingView
from heatcheck.report.verdict_view import FirstScreen

Row = Mapping[str, Any]
_COLUMNS = 3  # of a long text


@dataclass(frozen=True)
class LeaderboardRow:
    """A row of a leaderboard; `x`, `x_low`, `x_high` are positions in per cent.

    `raw` is the row of `heatcheck.stats.leaderboard`; `effect` and `share` are against random; `shade` runs from 8 for the first rank to 0 for the last.
    """

    method: MethodView
    raw: Row
    mean: str
    interval: str
    rank: str
    rank_interval: str
    x: float | None
    x_low: float | None
    x_high: float | None
    against_random: str
    p: str
    effect: str
    share: str
    shade: int | None

    @property
    def partial(self) -> bool:
        """Whether some samples have no score."""
        return bool(self.raw["n_ok"] < self.raw["n"])


@dataclass(frozen=True)
class MetricView:
    """One metric for one model and data set.

    Args:
        name: its full name.
        facts: what the run's facts say about it.
        higher: whether higher is better.
        rows: leaderboard rows, best mean first, with unranked methods and controls among them.
        axis: of the interval plot.
        random: low, mean and high of the random control, in per cent.
        random_mean: the same mean as text.
        best: methods that share the best rank.
        tied: other ranked methods that do not differ significantly from the best.
        not_better: methods not significantly better than random; None where nothing was tested.
        worse: methods significantly worse than random.
        left_out: why it does not count in the mean rank; empty where it does.
        circular: methods that make this metric's own queries.
        remark: what its name stands for on this model, or its scores rest on; empty where there is nothing to say.
        curves: deletion curves, where stored.
        visible: methods whose curves are visible at first.
        cost: cost against faithfulness.
        detectable: what its samples can tell apart, and what a smaller difference would need; empty where unknown.
        gallery_curves: share and curve of each method on each sample of the gallery, where stored.
    """

    name: str
    facts: Row
    higher: bool
    rows: tuple[LeaderboardRow, ...]
    axis: Axis
    random: tuple[float | None, float, float | None] | None
    random_mean: str
    best: tuple[MethodView, ...]
    tied: tuple[MethodView, ...]
    not_better: tuple[MethodView, ...] | None
    worse: tuple[MethodView, ...]
    left_out: str
    circular: tuple[MethodView, ...]
    remark: str
    curves: CurveChart | None
    visible: frozenset[str]
    cost: CostChart | None
    detectable: str = ""
    gallery_curves: Mapping[tuple[str, str], tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)

    @property
    def bounds(self) -> str:
        """Its range, in words."""
        low, high = (*(self.facts.get("within") or ()), None, None)[:2]
        if low is not None and high is not None:
            return f"scores lie between {_bound(low)} and {_bound(high)}"
        if low is not None:
            return f"scores are at least {_bound(low)}"
        return f"scores are at most {_bound(high)}" if high is not None else "scores have no bound"

    @property
    def undecided(self) -> tuple[MethodView, ...]:
        """Methods that may be the best, and are significantly neither better nor worse than random."""
        return tuple(m for m in (*self.best, *self.tied) if m in (self.not_better or ()) and m not in self.worse)

    def row(self, method: MethodView) -> LeaderboardRow | None:
        """A method's row."""
        return next((row for row in self.rows if row.method is method), None)


def _bound(value: float) -> str:
    return f"{value:g}".replace("-", "−")


@dataclass(frozen=True)
class OverallRow:
    """A method over all metrics; `raw` is its mean rank as a number."""

    method: MethodView
    mean_rank: str
    wins: int
    shared: int
    metrics: int
    of: int
    raw: float | None


@dataclass(frozen=True)
class GalleryItem:
    """A sample with the maps of all methods that have one; `details` are its classes and their probability.

    Long texts are shown under a few methods at first, `opening`, and a reader chooses others.
    """

    index: int
    name: str
    details: Mapping[str, str]
    input: Exhibit | None
    maps: tuple[tuple[MethodView, Exhibit], ...]

    @property
    def opening(self) -> tuple[tuple[MethodView, Exhibit], ...]:
        """The maps that are visible at first: all, but of a long text as many as stand side by side."""
        if self.input is None or self.input.get("short", True):
            return self.maps
        return self.maps[: _COLUMNS - bool(self.input["marked"])]


@dataclass(frozen=True)
class CaseView:
    """One model on one data set.

    Args:
        model: the model.
        data: the data set.
        label: the name of the pair on the page.
        n: samples that any method or metric has.
        methods: best overall first, controls last.
        metrics: in the order of the run's facts.
        overall: over all metrics; empty where nothing is ranked.
        never_better: methods that no metric finds better than random.
        verdict: which method to use, and what the run cannot say.
        smallest_p: where the samples are too few for any method to differ from random: the smallest possible p-value.
        agreement: τ of two metrics' rankings, by their indices.
        concordance: Kendall's W over all metrics, as text.
        gallery: samples with the maps of all methods.
        gaps: missing scores, counted by reason.
        ok: number of scores.
        total: number of scores there should be.
        multiverse: the rankings in all universes, where the run is a multiverse.
        retraining: what retrained networks answered, where there are any.
    """

    model: str
    data: str
    label: str
    n: int
    methods: tuple[MethodView, ...]
    metrics: tuple[MetricView, ...]
    overall: tuple[OverallRow, ...]
    never_better: tuple[MethodView, ...]
    verdict: FirstScreen
    smallest_p: str
    agreement: Mapping[tuple[int, int], float]
    concordance: str
    gallery: tuple[GalleryItem, ...]
    gaps: tuple[Row, ...]
    ok: int
    total: int
    multiverse: MultiverseView | None = None
    retraining: RetrainingView | None = None

    @property
    def winner(self) -> OverallRow | None:
        """The method with the best mean rank, where at least two methods were ranked."""
        return next((o for o in self.overall if o.raw is not None), None)

    @property
    def outside_mean_rank(self) -> tuple[MetricView, ...]:
        """Metrics that rank methods and do not count in the mean rank."""
        return tuple(m for m in self.metrics if m.best and m.left_out)


@dataclass(frozen=True)
class PageView:
    """The whole page.

    Args:
        title: its headline.
        facts: the run's facts.
        cases: one per model and data set.
        skips: methods and metrics that were not run, with the reason.
        bad_samples: samples that could not be used.
        data: what the page's script reads.
        along: the rankings along trainings of which there are at least three checkpoints.
        heat_map: models against methods, where there are several models.
        races: how far races went, where the run is one's.
    """

    title: str
    facts: Mapping[str, Any]
    cases: tuple[CaseView, ...]
    skips: tuple[Row, ...]
    bad_samples: tuple[Row, ...]
    data: dict[str, Any] = field(repr=False)
    along: tuple[TrajectoryView, ...] = ()
    heat_map: HeatMap | None = None
    races: tuple[str, ...] = ()
