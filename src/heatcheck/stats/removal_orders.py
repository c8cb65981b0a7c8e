"""ROAD's limits: accuracy by share removed, and methods that fall faster when the least relevant units go first."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from heatcheck.stats.claims import HELD, NOT_HELD, judge
from heatcheck.stats.consistency import ordered_pairs
from heatcheck.stats.estimates import LEVEL, mean_estimate
from heatcheck.stats.intervals import mean_intervals
from heatcheck.stats.meta_cases import CaseTable
from heatcheck.stats.table import nan_to_null

FASTER, SLOWER, UNCLEAR = "faster under LeRF", "faster under MoRF", "not enough samples"
ORDERS = {
    "model": pl.String,
    "data": pl.String,
    "protocol": pl.String,
    "method": pl.String,
    "difference": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "verdict": pl.String,
}
BY_SHARE = {
    "method": pl.String,
    "share": pl.Float64,
    "accuracy": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
}


def falls_faster_under_lerf(
    table: CaseTable, *, matters: Mapping[str, float] | None = None, seed: int = 0, resamples: int = 1000
) -> pl.DataFrame:
    """Which methods let the model fall faster when the least relevant units are removed first than the most relevant ones?

    A map that means anything does the opposite. The difference is taken sample by sample.

    Args:
        table: what `case_table` gave; scores are oriented, so that both orders add up to the distance of their curves.
        matters: the smallest difference that counts, by unit; 0.01, and 1 for `%`, where not given.
        seed: of the resamples.
        resamples: how many.

    Returns:
        Per model, data set and method with both orders: `difference` is the area under the LeRF curve minus that under the
        MoRF curve, with its interval over the `n` samples that have both. `verdict`: `faster under LeRF` where the whole
        interval is below 0; `faster under MoRF` where it leaves no room for that; else `not enough samples`.
    """
    smallest = {"": 0.01, "%": 1.0, **(matters or {})}
    rows = []
    for i, k in ordered_pairs(table.cases):
        most, least = table.cases[i], table.cases[k]
        if most.n != least.n:
            raise ValueError(f"{most.name} has {most.n} samples and {least.name} {least.n}: they must have the same")
        for m, method in enumerate(table.methods):
            apart = table.scores[i][m] + table.scores[k][m]
            if np.isnan(apart).all():
                continue
            found = mean_estimate(-apart, seed=seed, resamples=resamples)
            unit = most.protocol.unit
            verdict = {HELD: FASTER, NOT_HELD: SLOWER}.get(judge(found, smallest.get(unit, 0.01)), UNCLEAR)
            names = f"{most.protocol.name}, {least.protocol.name}"
            rows.append((*most.pair, names, method, -found.value, -found.high, -found.low, found.n, verdict))
    return pl.DataFrame(rows, schema=ORDERS, orient="row")


def accuracy_by_share(
    curves: pl.DataFrame, clean: Mapping[str, float] | None = None, *, seed: int = 0, resamples: int = 1000
) -> pl.DataFrame:
    """The mean of curves at each share removed, with intervals over samples.

    Args:
        curves: `sample`, `method`, `share` and `curve`, as a run stores them. Where units differ in number, so do shares: curves
            of as many steps are averaged step by step, at the mean share.
        clean: by sample, the value of the whole input, where curves do not begin with it.
        seed: of the resamples.
        resamples: how many.
    """
    rows = []
    for (method,), part in sorted(curves.group_by("method"), key=lambda item: str(item[0][0])):
        at: dict[float, list[float]] = {}
        for sample, share, curve in _at_steps(part.sort("sample")):
            if clean is not None and share[0] > 0:
                at.setdefault(0.0, []).append(clean[sample])
            for s, value in zip(share, curve, strict=True):
                at.setdefault(s, []).append(value)
        for found in _estimates(at, seed, resamples):
            rows.append((str(method), *found))
    return pl.DataFrame(rows, schema=BY_SHARE, orient="row")


def _at_steps(part: pl.DataFrame) -> Iterator[tuple[str, Sequence[float], Sequence[float]]]:
    """Samples with their curves; where all have as many steps, at the mean share of each step."""
    rows = part.select("sample", "share", "curve").rows()
    if len({len(share) for _, share, _ in rows}) == 1:
        together = np.mean([share for _, share, _ in rows], axis=0).round(6).tolist()
        rows = [(sample, together, curve) for sample, _, curve in rows]
    yield from ((str(sample), share, curve) for sample, share, curve in rows)


def _estimates(
    at: Mapping[float, Sequence[float]], seed: int, resamples: int
) -> Iterator[tuple[float, float, float | None, float | None, int]]:
    """Share, mean, the ends of its interval and the number of samples; shares of as many samples are drawn together."""
    found = []
    for n in {len(values) for values in at.values()}:
        shares = [share for share, values in at.items() if len(values) == n]
        table = np.array([at[share] for share in shares], dtype=np.float64)
        ends = mean_intervals(table, seed=seed, resamples=resamples, level=LEVEL)
        for share, values, (low, high) in zip(shares, table, ends, strict=True):
            found.append((share, float(values.mean()), nan_to_null(low), nan_to_null(high), n))
    yield from sorted(found)
