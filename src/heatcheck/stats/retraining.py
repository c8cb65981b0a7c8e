"""How accurate retrained networks are, with intervals over seeds, or over seeds and pictures."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from heatcheck.stats.student import t_quantile
from heatcheck.stats.two_way import two_way_mean

CELL = ("protocol", "method", "level")


def accuracy_curves(cells: Sequence[Mapping[str, Any]], level: float = 0.95) -> pl.DataFrame:
    """The mean accuracy of each protocol, method and level over its seeds, with Student's interval.

    The interval shows how far accuracies vary between trainings that differ in nothing but their seed: weights, order and
    crops. The test pictures are the same, so that which of them were chosen does not show in it. Two or three seeds tell
    too little about one cell, so the variance is pooled over all cells that have several.

    Args:
        cells: a row per training: protocol, method, level, seed and accuracy.
        level: nominal coverage.

    Returns:
        protocol, method, level, accuracy, low, high and seeds; low and high are null where no cell has two seeds.
    """
    table = pl.DataFrame(
        [{k: row[k] for k in (*CELL, "accuracy")} for row in cells],
        schema={"protocol": pl.String, "method": pl.String, "level": pl.Float64, "accuracy": pl.Float64},
    )
    found = table.group_by(CELL, maintain_order=True).agg(
        pl.col("accuracy").mean(),
        seeds=pl.len(),
        squares=((pl.col("accuracy") - pl.col("accuracy").mean()) ** 2).sum(),
    )
    freedom = int((found["seeds"] - 1).sum())
    if not freedom:
        nothing = pl.lit(None, dtype=pl.Float64)
        return found.with_columns(low=nothing, high=nothing).select(*CELL, "accuracy", "low", "high", "seeds")
    spread = math.sqrt(float(found["squares"].sum()) / freedom)
    half = t_quantile(level, freedom) * spread / pl.col("seeds").sqrt()
    low, high = (pl.col("accuracy") - half).clip(0, 1), (pl.col("accuracy") + half).clip(0, 1)
    return found.with_columns(low=low, high=high).select(*CELL, "accuracy", "low", "high", "seeds")


def population_accuracies(answers: pl.DataFrame) -> pl.DataFrame:
    """The mean accuracy of each protocol, method and level, with an interval that counts seeds and pictures.

    The test pictures are taken for a sample of all there could be, and the seeds likewise: two-way, as both vary. So the
    interval is about the population's mean, where that of `accuracy_curves` is about these very pictures.

    Args:
        answers: a row per network and picture: protocol, method, level, seed, sample and whether it is right.

    Returns:
        protocol, method, level, accuracy, low, high, seeds and samples; low and high are null where there is only one seed.
    """
    rows = []
    for cell, part in answers.group_by(CELL, maintain_order=True):
        right = part.pivot("sample", index="seed", values="right").drop("seed").to_numpy().astype(float)
        seeds, samples = right.shape
        low, high = None, None
        if min(seeds, samples) > 1:
            found = two_way_mean(right, about="population")
            low, high = max(0.0, found.low), min(1.0, found.high)
        rows.append((*cell, right.mean(), low, high, seeds, samples))
    schema = {"protocol": pl.String, "method": pl.String, "level": pl.Float64}
    schema |= dict.fromkeys(("accuracy", "low", "high"), pl.Float64) | dict.fromkeys(("seeds", "samples"), pl.Int64)
    return pl.DataFrame(rows, schema=schema, orient="row")
