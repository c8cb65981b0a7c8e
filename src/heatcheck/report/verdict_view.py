"""What the first screen shows, as plain data."""

from dataclasses import dataclass

from heatcheck.report.charts import Axis
from heatcheck.report.method_view import MethodView


@dataclass(frozen=True)
class Wording:
    """A piece of a sentence: plain words, or the name of a method or of a metric.

    Args:
        text: the words, or a metric's name.
        method: the method that is named.
        is_metric: whether the text is a metric's name.
    """

    text: str = ""
    method: MethodView | None = None
    is_metric: bool = False


Sentence = tuple[Wording, ...]


@dataclass(frozen=True)
class RankRow:
    """A method in the picture of ranks and costs; `left`, `x` and `right` are positions in per cent.

    Args:
        method: the method.
        brief: whether its name without parameters tells it from the others.
        mean_rank: over the metrics that count.
        ranks: the mean ends of the ranks that it may have.
        left: where these begin.
        x: the mean rank.
        right: where they end.
        cost: of a map, as text.
        chosen: whether it is recommended: nothing tells it apart from the first choice, and no method beats it.
        front: whether no cheaper method has as good a mean rank.
    """

    method: MethodView
    brief: bool
    mean_rank: str
    ranks: str
    left: float
    x: float
    right: float
    cost: str
    chosen: bool
    front: bool


@dataclass(frozen=True)
class RankChart:
    """Ranks of all methods by what a map costs, cheapest first.

    Args:
        axis: ranks, the best on the left.
        rows: one per method.
        cost: what is counted: passes or seconds.
        more: ranked methods that there is no room for.
        counts: whether the ranks are over the metrics that count; over all where none does.
    """

    axis: Axis
    rows: tuple[RankRow, ...]
    cost: str
    more: int
    counts: bool = True


@dataclass(frozen=True)
class Apart:
    """How far the recommended method is from another one under a metric.

    Args:
        effect: the mean difference in standard deviations, positive where the recommended method is better.
        share: the samples on which it is better.
        verdict: whether it is significantly "better" or "worse"; else empty.
    """

    effect: str
    share: str
    verdict: str


@dataclass(frozen=True)
class ApartTable:
    """How far the recommended method is from every other one.

    Args:
        chosen: the recommended method.
        metrics: the columns.
        rows: the others, best mean rank first, each with a cell per metric; None where they are not compared.
    """

    chosen: MethodView
    metrics: tuple[str, ...]
    rows: tuple[tuple[MethodView, tuple[Apart | None, ...]], ...]


@dataclass(frozen=True)
class FirstScreen:
    """What the first screen says about one model on one data set.

    Args:
        headline: which method to use.
        body: how sure, against random, and what a map costs.
        ties: methods that are recommended beside the first choice, where the headline does not name them.
        limits: what the run cannot say.
        chart: ranks and costs.
        apart: how far the recommended method is from the others; None where there is none.
    """

    headline: Sentence
    body: tuple[Sentence, ...]
    ties: tuple[MethodView, ...]
    limits: tuple[Sentence, ...]
    chart: RankChart | None
    apart: ApartTable | None = None
