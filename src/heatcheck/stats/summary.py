"""What a leaderboard amounts to: the best methods, those tied with them, and those that do not beat random."""

import polars as pl

from heatcheck.stats.paired import smallest_p
from heatcheck.stats.table import KEYS, NOT_FINITE, has_score

BEST_AND_TIED: dict[str, pl.DataType | type[pl.DataType]] = {
    "model": pl.String,
    "data": pl.String,
    "metric": pl.String,
    "best": pl.List(pl.String),
    "tied": pl.List(pl.String),
}

NEVER_BETTER: dict[str, pl.DataType | type[pl.DataType]] = {
    "model": pl.String,
    "data": pl.String,
    "methods": pl.List(pl.String),
}

SMALLEST_P = {
    "model": pl.String,
    "data": pl.String,
    "metric": pl.String,
    "samples": pl.Int64,
    "tests": pl.Int64,
    "smallest_p": pl.Float64,
}


def best_and_tied(board: pl.DataFrame) -> pl.DataFrame:
    """The best methods of every metric, and those that may be the best as well.

    Args:
        board: what `leaderboard` returned.

    Returns:
        One row per (model, data, metric) that ranks a method. `best`: methods that share the best rank. `tied`: other
        ranked methods whose confidence set holds rank 1: none is significantly better. Both in the order of the board.
    """
    rows = []
    for key, group in board.filter("ranked").group_by(KEYS, maintain_order=True):
        first = pl.col("rank") == group["rank"].min()
        best = group.filter(first)["method"].to_list()
        rows.append((*key, best, group.filter(~first & (pl.col("rank_low") == 1))["method"].to_list()))
    return pl.DataFrame(rows, schema=BEST_AND_TIED, orient="row")


def not_better_than_random(board: pl.DataFrame) -> pl.DataFrame:
    """The methods that are not significantly better than random, per metric; controls are not listed.

    Args:
        board: what `leaderboard` returned.

    Returns:
        `model`, `data`, `metric`, `methods`: a sorted list; null where random was not measured or has no sample in
        common with any method.
    """
    tested = ~pl.col("control") & pl.col("beats_random").is_not_null()
    return (
        board.group_by(KEYS)
        .agg(
            methods=pl.col("method").filter(tested & ~pl.col("beats_random")).sort(),
            tested=tested.any(),
        )
        .select(*KEYS, methods=pl.when("tested").then("methods"))
        .sort(KEYS)
    )


def never_better_than_random(board: pl.DataFrame) -> pl.DataFrame:
    """The methods that no metric finds significantly better than random.

    Args:
        board: what `leaderboard` returned.

    Returns:
        `model`, `data`, `methods`: a sorted list of the methods that `not_better_than_random` lists under every metric
        that tests any; empty where nothing was tested.
    """
    tested = not_better_than_random(board).filter(pl.col("methods").is_not_null())
    rows = [
        (*key, sorted(set.intersection(*(set(methods) for methods in group["methods"]))))
        for key, group in tested.group_by("model", "data", maintain_order=True)
    ]
    return pl.DataFrame(rows, schema=NEVER_BETTER, orient="row")


def smallest_p_values(board: pl.DataFrame, random: str = "random") -> pl.DataFrame:
    """The smallest p-value that the test against random could give, per metric with such a test.

    Args:
        board: what `leaderboard` returned.
        random: the name of the random control.

    Returns:
        `model`, `data`, `metric`; `samples`: at most so many are common to random and a method; `tests`: number of
        methods tested; `smallest_p`: with that many samples and Holm's correction for that many tests.
    """
    rows = []
    for key, group in board.group_by(KEYS, maintain_order=True):
        tested = group.filter(~pl.col("control") & pl.col("beats_random").is_not_null())
        if tested.height:
            of_random = sum(group.filter(pl.col("method") == random)["n_ok"].to_list())
            samples = min(max(tested["n_ok"].to_list()), of_random)
            rows.append((*key, samples, tested.height, smallest_p(samples, tested.height)))
    return pl.DataFrame(rows, schema=SMALLEST_P, orient="row")


def missing_scores(scores: pl.DataFrame) -> pl.DataFrame:
    """Rows without a score, counted by metric, method and status, most first.

    Args:
        scores: the long table of scores.

    Returns:
        `metric`, `method`, `status`: the reason; `n` of `total` rows; `example`: the first sample concerned.
    """
    names = pl.col("metric", "method").cast(pl.String)
    totals = scores.group_by("metric", "method").agg(total=pl.len()).with_columns(names)
    return (
        scores.filter(~has_score())
        .with_columns(names, pl.col("status", "sample").cast(pl.String))
        .with_columns(status=pl.when(pl.col("status") == "ok").then(pl.lit(NOT_FINITE)).otherwise("status"))
        .group_by("metric", "method", "status")
        .agg(n=pl.len(), example=pl.col("sample").min())
        .join(totals, on=["metric", "method"])
        .sort("n", "metric", "method", "status", descending=[True, False, False, False])
    )
