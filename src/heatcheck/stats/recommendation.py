"""Which method to use: the best mean rank, what nothing tells apart from it, and what each costs."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from heatcheck.stats.facts import Facts
from heatcheck.stats.leaderboard import left_out, overall
from heatcheck.stats.table import KEYS


@dataclass(frozen=True)
class Recommendation:
    """The method to use for one model on one data set, and how sure that is.

    Comparisons are those of the leaderboard, all methods of a metric at once, under the metrics that count in the mean
    rank. A method that they compare under fewer than half of the metrics that count is not recommended.

    Args:
        model: the model.
        data: the data set.
        method: the one with the best mean rank.
        ties: methods that are nowhere significantly better or worse than it, best mean rank first.
        behind: methods that are significantly worse under some metric, and better under none.
        ahead: methods that are significantly better under some metric, with these metrics.
        metrics: those under which it was compared.
        tested: those of all metrics under which it was tested against random.
        not_better: those of them under which it is not significantly better than random.
    """

    model: str
    data: str
    method: str
    ties: tuple[str, ...]
    behind: tuple[str, ...]
    ahead: dict[str, tuple[str, ...]]
    metrics: tuple[str, ...]
    tested: tuple[str, ...]
    not_better: tuple[str, ...]


def recommendations(board: pl.DataFrame, facts: Facts) -> Iterator[Recommendation]:
    """One recommendation per model and data set with a mean rank.

    Args:
        board: what `leaderboard` returned.
        facts: directions of the metrics, and which of them do not count.
    """
    totals = overall(board, facts).filter(pl.col("mean_rank").is_not_null() & (2 * pl.col("metrics") >= pl.col("of")))
    counting = board.filter(pl.col("ranked").sum().over(KEYS) > 1)
    counting = counting.join(left_out(board, facts), on=KEYS, how="anti", maintain_order="left")
    for (model, data), case in totals.group_by("model", "data", maintain_order=True):
        here = (pl.col("model") == model) & (pl.col("data") == data)
        chosen, *others = case["method"].to_list()
        ranked = counting.filter(here & pl.col("ranked"))
        metrics = ranked.filter(pl.col("method") == chosen)["metric"]
        compared = set(ranked.filter(pl.col("metric").is_in(metrics.implode()))["method"])
        wins, losses = _comparisons(ranked, chosen)
        own = board.filter(here & (pl.col("method") == chosen))
        tested = own.filter(pl.col("beats_random").is_not_null())
        yield Recommendation(
            model=str(model),
            data=str(data),
            method=chosen,
            ties=tuple(m for m in others if m in compared and m not in wins and m not in losses),
            behind=tuple(m for m in others if m in wins and m not in losses),
            ahead={m: tuple(losses[m]) for m in others if m in losses},
            metrics=tuple(metrics),
            tested=tuple(tested["metric"]),
            not_better=tuple(tested.filter(~pl.col("beats_random"))["metric"]),
        )


def _comparisons(case: pl.DataFrame, chosen: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The metrics under which the chosen method is significantly better than others, and worse, by these others."""
    wins: dict[str, list[str]] = {}
    losses: dict[str, list[str]] = {}
    for metric, method, beaten_by in case.select("metric", "method", "beaten_by").iter_rows():
        if method == chosen:
            for other in beaten_by:
                losses.setdefault(other, []).append(metric)
        elif chosen in beaten_by:
            wins.setdefault(method, []).append(metric)
    return wins, losses


def costs(board: pl.DataFrame) -> pl.DataFrame:
    """What a map of every method costs: `model`, `data`, `method`, `passes` (forward and backward) and `seconds`.

    Args:
        board: what `leaderboard` returned.
    """
    passes = pl.sum_horizontal("forwards", "backwards", ignore_nulls=False)
    return (
        board.group_by("model", "data", "method", maintain_order=True)
        .agg(passes=passes.mean(), seconds=pl.col("seconds").mean())
        .with_columns(passes=pl.when(pl.col("passes") > 0).then("passes"))
    )
