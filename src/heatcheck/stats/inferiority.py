"""Whether scores of a candidate are not inferior to those of a base, by more than a margin, on the same samples.

The null hypothesis is that the candidate's mean is worse by the margin or more, so that few samples never pass. Two
one-sided rules must agree: the test of `onesided` and the lower bound of the studentised bootstrap; the first is exact for
symmetric differences, the second is not fooled by seldom losses that are many times as large as the others.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heatcheck.stats.intervals import mean_intervals
from heatcheck.stats.onesided import above_zero
from heatcheck.stats.paired import FLIPS, holm, too_few
from heatcheck.stats.table import Array

NOT_INFERIOR, INFERIOR, UNDECIDED = "not inferior", "inferior", "undecided"
ERROR = 0.025
"""Of each one-sided rule, so that its bound is an end of the 95 % interval; at the margin, few heavy losses double it."""
LOST = 0.05
"""The share of the base's samples that a candidate may have no score of."""
CHANGED = 0.25
"""The share of samples on which a candidate may explain another class than the base; they are not compared."""
_RESAMPLES = 2000


@dataclass(frozen=True)
class Inferiority:
    """What is known about one method under one metric.

    Args:
        verdict: `not inferior`, `inferior` or `undecided`.
        base: the base's mean over the common samples.
        candidate: the candidate's.
        difference: the mean difference, above zero where the candidate is better.
        low: the lower end of its 95 % interval.
        high: the upper end.
        margin: by how much the candidate may be worse.
        p: of the test that it is not.
        n: common samples.
        lost: samples that the base has a score of and the candidate has none.
        why: why it is undecided, where the samples do not decide it.
    """

    verdict: str
    base: float
    candidate: float
    difference: float
    low: float
    high: float
    margin: float
    p: float
    n: int
    lost: int
    why: str = ""

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return dict(vars(self))


def bounds(differences: Array, *, seed: int = 0, resamples: int = _RESAMPLES) -> Array:
    """[rows, 2]: the ends of the 95 % interval of the mean; NaN for fewer than two samples."""
    ends = [
        mean_intervals(row[None, ~np.isnan(row)], seed=seed, resamples=resamples, level=1 - 2 * ERROR)[0]
        if (~np.isnan(row)).sum() > 1
        else (np.nan, np.nan)
        for row in np.atleast_2d(differences)
    ]
    return np.array(ends, dtype=np.float64)


def passes(differences: Array, margin: float, *, seed: int = 0, flips: int = FLIPS) -> tuple[Array, NDArray[np.bool_]]:
    """p-values and bounds' verdicts of the hypothesis that the mean is above −margin, per row of differences.

    Returns:
        The p-value of the test, and whether the row passes: p at most 2.5 % and the lower bound above −margin.
    """
    shifted = np.atleast_2d(differences) + margin
    p = above_zero(shifted, resamples=flips, seed=seed)
    low = bounds(shifted, seed=seed)[:, 0]
    return p, (p <= ERROR) & (low > 0)


def inferiority(
    base: Array,
    candidate: Array,
    margin: float,
    *,
    same: NDArray[np.bool_] | None = None,
    sign: float = 1.0,
    seed: int = 0,
    flips: int = FLIPS,
) -> list[Inferiority]:
    """Whether each method's candidate is not inferior.

    A gate that asks all methods needs no correction for `not inferior`: all of them must pass. `inferior` is corrected by
    Holm, as any of them is enough.

    Args:
        base: scores, [methods, samples]; NaN where there is none.
        candidate: scores of the same methods and samples.
        margin: by how much a candidate's mean may be worse, in the metric's own unit; above zero.
        same: [samples], whether both explain the same class; the others are not compared, and where they are more than
            a quarter, nothing passes. None where all are.
        sign: +1 where a higher score is better, else −1.
        seed: of resamples and sign patterns.
        flips: sign patterns and resamples of the test.

    Raises:
        ValueError: the margin is not a number above zero, or the tables have different shapes.

    Example:
        >>> same = np.tile(np.linspace(0, 1, 9), (1, 1))
        >>> inferiority(same, same, 0.1)[0].verdict, inferiority(same, same - 0.3, 0.1)[0].verdict
        ('not inferior', 'inferior')
    """
    if not (np.isfinite(margin) and margin > 0):
        raise ValueError(f"margin={margin}: it must be a number above zero, in the unit of the metric")
    if base.shape != candidate.shape:
        raise ValueError(f"scores of the shapes {base.shape} and {candidate.shape} cannot be paired")
    changed, samples = (0, base.shape[1]) if same is None else (int((~same).sum()), len(same))
    if same is not None:
        base, candidate = base[:, same], candidate[:, same]
    d = sign * (candidate - base)
    known = ~np.isnan(d)
    p, ok = passes(d, margin, seed=seed, flips=flips)
    against = holm(above_zero(-(d + margin), resamples=flips, seed=seed))
    ends = bounds(d, seed=seed)
    lost = (~np.isnan(base) & np.isnan(candidate)).sum(axis=1)
    had = (~np.isnan(base)).sum(axis=1)
    found = []
    for i, row in enumerate(known):
        n = int(row.sum())
        why = _why_classes(changed, samples) or _why(n, int(lost[i]), int(had[i]))
        verdict = UNDECIDED
        if n:
            if against[i] <= ERROR and ends[i, 1] < -margin:
                verdict, why = INFERIOR, ""
            elif ok[i] and not why:
                verdict = NOT_INFERIOR
        old, new, change = (float(x[i, row].mean()) if n else float("nan") for x in (base, candidate, d))
        low, high = ends[i].tolist()
        found.append(Inferiority(verdict, old, new, change, low, high, margin, float(p[i]), n, int(lost[i]), why))
    return found


def _why_classes(changed: int, samples: int) -> str:
    """Why scores do not answer the question where the classes differ; empty where they do."""
    if changed <= CHANGED * samples:
        return ""
    return f"on {changed} of {samples} samples the candidate explains another class than the base"


def _why(n: int, lost: int, had: int) -> str:
    """Why samples cannot show that a candidate is not inferior; empty where they can."""
    if not n:
        return "no sample has a score of both"
    if too_few(n, 1, 1 - ERROR):
        return f"{n} common sample{'' if n == 1 else 's'}: at least 6 are needed"
    if lost > LOST * had:
        return f"{lost} of the base's {had} samples have no score of the candidate"
    return ""


def overall_verdict(verdicts: list[str]) -> str:
    """That of all together: not inferior if all are, inferior if one is.

    >>> overall_verdict(["not inferior", "undecided"])
    'undecided'
    """
    if not verdicts or INFERIOR in verdicts:
        return INFERIOR if verdicts else UNDECIDED
    return NOT_INFERIOR if set(verdicts) == {NOT_INFERIOR} else UNDECIDED
