"""Which method to use: the best mean rank of those that no other method dominates, its ties, and what each costs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from heatcheck.stats.facts import Facts
from heatcheck.stats.leaderboard import left_out, overall
from heatcheck.stats.table import KEYS

Pairs = Mapping[tuple[str, str], Sequence[str]]
"""The metrics under which the first method is significantly better than the second; pairs without one are absent."""


@dataclass(frozen=True)
class Recommendation:
    """The method to use for one model on one data set, and how sure that is.

    Comparisons are those of the leaderboard, all methods of a metric at once, under the metrics that count in the mean
    rank. A method *dominates* another if it is significantly better under some metric and significantly worse under none. A
    method that is compared under fewer than half of the metrics that count is not recommended, and dominates none.

    Args:
        model: the model.
        data: the data set.
        method: the one with the best mean rank among those that no other dominates (`undominated`).
        ties: methods that are nowhere significantly better or worse than it, and that no other dominates; best mean rank
            first.
        lesser: methods that are nowhere significantly better or worse than it either, but that another one dominates.
        behind: methods that it dominates.
        ahead: methods that are significantly better under some metric, with these metrics.
        wins: methods that it is significantly better than under some metric, with these metrics.
        dominated: methods that another one dominates: that one (the recommended method where it does), and the metrics
            under which it is better. It holds the recommended method only where every method is dominated.
        seldom: methods that would dominate it if they were compared under enough metrics, with those under which they are
            better.
        metrics: those under which it was compared.
        tested: those of all metrics under which it was tested against random.
        not_better: those of them under which it is not significantly better than random.
    """

    model: str
    data: str
    method: str
    ties: tuple[str, ...]
    lesser: tuple[str, ...]
    behind: tuple[str, ...]
    ahead: dict[str, tuple[str, ...]]
    wins: dict[str, tuple[str, ...]]
    dominated: dict[str, tuple[str, tuple[str, ...]]]
    seldom: dict[str, tuple[str, ...]]
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
        methods = case["method"].to_list()
        ranked = counting.filter(here & pl.col("ranked"))
        better = _pairs(ranked)
        chosen = undominated(methods, better)[0]
        others = [m for m in methods if m != chosen]
        metrics = ranked.filter(pl.col("method") == chosen)["metric"]
        compared = (
            ranked.filter(pl.col("metric").is_in(metrics.implode()))["method"].unique(maintain_order=True).to_list()
        )
        dominated = {m: by for m in methods if (by := _dominated_by(m, [chosen, *others], better))}
        own = board.filter(here & (pl.col("method") == chosen))
        tested = own.filter(pl.col("beats_random").is_not_null())
        alike = [m for m in others if m in compared and (m, chosen) not in better and (chosen, m) not in better]
        yield Recommendation(
            model=str(model),
            data=str(data),
            method=chosen,
            ties=tuple(m for m in alike if m not in dominated),
            lesser=tuple(m for m in alike if m in dominated),
            behind=tuple(m for m in others if _dominates(chosen, m, better)),
            ahead={m: tuple(better[m, chosen]) for m in others if (m, chosen) in better},
            wins={m: tuple(better[chosen, m]) for m in others if (chosen, m) in better},
            dominated=dominated,
            seldom={
                m: tuple(better[m, chosen]) for m in compared if m not in methods and _dominates(m, chosen, better)
            },
            metrics=tuple(metrics),
            tested=tuple(tested["metric"]),
            not_better=tuple(tested.filter(~pl.col("beats_random"))["metric"]),
        )


def _pairs(case: pl.DataFrame) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for metric, method, beaten_by in case.select("metric", "method", "beaten_by").iter_rows():
        for other in beaten_by:
            found.setdefault((other, method), []).append(metric)
    return found


def _dominates(one: str, other: str, better: Pairs) -> bool:
    return (one, other) in better and (other, one) not in better


def _dominated_by(method: str, others: Sequence[str], better: Pairs) -> tuple[str, tuple[str, ...]] | None:
    """The first of the others that dominates a method, and the metrics under which it is better."""
    by = next((m for m in others if _dominates(m, method, better)), None)
    return None if by is None else (by, tuple(better[by, method]))


def undominated(methods: Sequence[str], better: Pairs) -> list[str]:
    """The methods that no other dominates, in their order.

    Where three metrics put three methods in a circle, there may be none. Then it is those that nothing outside of their
    own circle dominates, at however many removes.

    Args:
        methods: to choose from.
        better: which of them are significantly better than which, and where.

    Example:
        >>> undominated(["a", "b", "c"], {("c", "a"): ["sds"], ("b", "c"): ["sds"], ("c", "b"): ["morf"]})
        ['b', 'c']
    """
    above = {m: {k for k in methods if _dominates(k, m, better)} for m in methods}
    free = [m for m in methods if not above[m]]
    if free:
        return free
    for between in methods:
        for m in methods:
            if between in above[m]:
                above[m] |= above[between]
    return [m for m in methods if all(m in above[k] for k in above[m])]


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
