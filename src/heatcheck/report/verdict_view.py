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
        chosen: whether it is the recommended method, or nothing tells it apart from that.
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
class FirstScreen:
    """What the first screen says about one model on one data set.

    Args:
        headline: which method to use.
        body: how sure, against random, and what a map costs.
        ties: methods that nothing tells apart from the recommended one, where the headline does not name them.
        limits: what the run cannot say.
        chart: ranks and costs.
    """

    headline: Sentence
    body: tuple[Sentence, ...]
    ties: tuple[MethodView, ...]
    limits: tuple[Sentence, ...]
    chart: RankChart | None
