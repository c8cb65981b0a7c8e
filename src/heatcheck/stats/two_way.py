r"""The mean of scores that vary over seeds and over samples, with an interval that counts both.

Two-way random model: $y_{ij} = \mu + a_i + b_j + e_{ij}$ with the seed's part $a_i$, the sample's part $b_j$ and the rest; the mean over
$I$ seeds and $J$ samples has the variance $\sigma_a^2/I + \sigma_b^2/J + \sigma_e^2/(IJ)$. With mean squares $M_a$, $M_b$ (of rows and
columns) and $M_e$ (of the rest), its estimate is $(M_a + M_b - M_e)/(IJ)$. Where the samples are the benchmark's own, all of
them, only seeds are drawn: $M_a/(IJ)$.
"""

import math
from typing import Literal

import numpy as np

from heatcheck.stats.estimates import LEVEL, Estimate
from heatcheck.stats.student import t_quantile
from heatcheck.stats.table import Array

About = Literal["benchmark", "population"]


def variance_parts(values: Array) -> tuple[float, float, float]:
    """Mean squares of seeds, of samples and of the rest, from [seeds, samples].

    Example:
        >>> variance_parts(np.array([[1.0, 2.0], [3.0, 4.0]]))
        (4.0, 1.0, 0.0)
    """
    y = _checked(values)
    seeds, samples = y.shape
    rows, columns = y.mean(axis=1) - y.mean(), y.mean(axis=0) - y.mean()
    rest = y - y.mean() - rows[:, None] - columns[None]
    return (
        float(samples * (rows**2).sum() / (seeds - 1)),
        float(seeds * (columns**2).sum() / (samples - 1)),
        float((rest**2).sum() / ((seeds - 1) * (samples - 1))),
    )


def two_way_mean(values: Array, *, about: About = "population") -> Estimate:
    """The mean over seeds and samples with its 95 % interval.

    Args:
        values: scores, or paired differences, [seeds, samples]; at least two of each, none missing.
        about: `population`: the mean over all samples there could be, of which these were drawn, and over seeds;
            `benchmark`: the mean over these very samples, with other seeds. Say which beside the number.

    Returns:
        `n` is the number of samples. The degrees of freedom are Satterthwaite's.
    """
    y = _checked(values)
    seeds, samples = y.shape
    of_seeds, of_samples, rest = variance_parts(y)
    parts: tuple[tuple[float, int], ...]
    if about == "benchmark":
        parts = ((of_seeds, seeds - 1),)
    elif about == "population":
        parts = ((of_seeds, seeds - 1), (of_samples, samples - 1), (-rest, (seeds - 1) * (samples - 1)))
    else:
        raise ValueError(f"about={about!r} should be benchmark (these very samples) or population (all there could be)")
    total = sum(square for square, _ in parts)
    least = max(of_seeds, 0.0 if about == "benchmark" else of_samples)
    if total < least:
        # Negative estimates of a part count as zero: the larger mean square holds all of the other's noise.
        parts = ((of_seeds, seeds - 1),) if of_seeds == least else ((of_samples, samples - 1),)
        total = least
    freedom = total**2 / sum(square**2 / f for square, f in parts) if total > 0 else math.inf
    half = t_quantile(LEVEL, max(1, math.floor(min(freedom, 1e6)))) * math.sqrt(total / (seeds * samples))
    mean = float(y.mean())
    return Estimate(mean, mean - half, mean + half, samples)


def _checked(values: Array) -> Array:
    y = np.asarray(values, dtype=np.float64)
    if y.ndim != 2 or min(y.shape) < 2 or not np.isfinite(y).all():
        raise ValueError(
            f"scores of shape {list(y.shape)} with {int(np.sum(~np.isfinite(y)))} missing: this needs seeds × samples, at least two "
            "of each, and every score"
        )
    return y
