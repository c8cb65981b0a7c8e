"""How far maps disagree: 1 − Spearman's correlation over sites, between methods or between models.

Paper: cohen2025, whose Figure 1 shows it in pictures.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import polars as pl

from heatcheck.stats.estimates import RESAMPLES, mean_estimate
from heatcheck.stats.table import Array, nan_to_null

SIDE = 14
"""Cells per side of the grid on which maps of different resolution are compared."""
BETWEEN = {
    "a": pl.String,
    "b": pl.String,
    "disagreement": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
}


def pooled(values: Array, side: int = SIDE) -> Array:
    """A picture's map as means over a grid of `side` × `side` cells; a coarser map is repeated.

    >>> pooled(np.arange(16.0).reshape(4, 4), 2)
    array([[ 2.5,  4.5],
           [10.5, 12.5]])
    """
    for axis in (0, 1):
        n = values.shape[axis]
        starts = [i * n // side for i in range(side)]
        ends = [-(-(i + 1) * n // side) for i in range(side)]
        parts = [values.take(range(a, b), axis=axis).mean(axis=axis) for a, b in zip(starts, ends, strict=True)]
        values = np.stack(parts, axis=axis)
    return values


def on_one_grid(maps: Sequence[Array]) -> list[Array]:
    """Maps as vectors over the same sites: as they are where all have one shape, else pooled.

    Raises:
        ValueError: they are texts of different lengths, or of different kinds.
    """
    shapes = {m.shape for m in maps}
    if len(shapes) <= 1:
        return [np.asarray(m, dtype=np.float64).ravel() for m in maps]
    if any(len(shape) != 2 for shape in shapes):
        told = ", ".join(sorted("×".join(map(str, shape)) for shape in shapes))
        raise ValueError(f"maps of {told} sites cannot be compared site by site")
    return [pooled(np.asarray(m, dtype=np.float64)).ravel() for m in maps]


def map_agreement(a: Array, b: Array) -> float:
    """Spearman's correlation of two maps over their sites; NaN where one is constant.

    >>> round(map_agreement(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])), 12)
    -1.0
    """
    return float(_correlations(np.stack(on_one_grid([a, b])))[0, 1])


def _correlations(maps: Array) -> Array:
    """Spearman's correlation of every pair of rows."""
    ranks = rank_of_rows(maps)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    norm = np.sqrt((centred**2).sum(axis=1))
    scaled = np.divide(centred, norm[:, None], out=np.full(centred.shape, np.nan), where=norm[:, None] > 0)
    return np.asarray(np.clip(scaled @ scaled.T, -1.0, 1.0), dtype=np.float64)


def rank_of_rows(values: Array) -> Array:
    """Average ranks within each row, in n log n.

    >>> rank_of_rows(np.array([[0.3, 0.1, 0.3]]))
    array([[2.5, 1. , 2.5]])
    """
    ranks = np.empty(values.shape)
    for row, own in zip(ranks, values, strict=True):
        _, place, count = np.unique(own, return_inverse=True, return_counts=True)
        last = np.cumsum(count)
        row[:] = (last - (count - 1) / 2)[place]
    return ranks


def disagreement(maps: Mapping[str, Array]) -> Array:
    """[methods, methods]: 1 − Spearman between the maps of one sample; NaN where a map is constant."""
    return 1 - _correlations(np.stack(on_one_grid(list(maps.values()))))


def mean_disagreement(maps: Mapping[str, Array]) -> float:
    """The mean over all pairs of methods; NaN where no pair is defined."""
    found = disagreement(maps)[np.triu_indices(len(maps), k=1)]
    known = found[~np.isnan(found)]
    return float(known.mean()) if len(known) else float("nan")


def between_methods(
    samples: Sequence[Mapping[str, Array]], *, seed: int = 0, resamples: int = RESAMPLES
) -> pl.DataFrame:
    """The disagreement of each pair of methods, averaged over samples, most agreeing first.

    Args:
        samples: of each sample, its maps by method.
        seed: of the intervals' resamples.
        resamples: how many.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for maps in samples:
        names, values = list(maps), disagreement(maps) if maps else np.empty((0, 0))
        for i, j in combinations(range(len(names)), 2):
            found.setdefault((names[i], names[j]), []).append(float(values[i, j]))
    rows = []
    for (a, b), values_of in found.items():
        e = mean_estimate(values_of, seed=seed, resamples=resamples)
        rows.append((a, b, nan_to_null(e.value), nan_to_null(e.low), nan_to_null(e.high), e.n))
    return pl.DataFrame(rows, schema=BETWEEN, orient="row").sort("disagreement", "a", "b", nulls_last=True)
