"""Times of portions: equal seconds are one timing, and the ratio has scipy's interval of Welch."""

import numpy as np
import polars as pl
import pytest
from scipy import stats as scipy_stats

from heatcheck.stats.timings import times_as_long, timings

MUTANTS = (
    (
        "stats/timings.py",
        "x.var(ddof=1)) / len(x), len(x) - 1",
        "x.var(ddof=1)) / len(x), len(x)",
        "test_the_ratio_has_welchs_interval",
    ),
    ("stats/timings.py", ".unique(maintain_order=True)", "", "test_samples_of_one_portion_are_one_timing"),
)


def test_samples_of_one_portion_are_one_timing():
    scores = pl.DataFrame(
        {
            "model": ["a"] * 7 + ["b"],
            "method": ["IG"] * 4 + ["CAM"] * 3 + ["IG"],
            "seconds": [2.0, 2.0, 3.0, None, 0.1, 0.1, 0.0, 9.0],
        }
    )
    found = timings(scores, "a")
    assert {name: times.tolist() for name, times in found.items()} == {"IG": [2.0, 3.0], "CAM": [0.1]}


def test_the_ratio_has_welchs_interval():
    rng = np.random.default_rng(0)
    slow, fast = np.exp(rng.normal(2, 0.3, 7)), np.exp(rng.normal(0, 0.1, 4))
    theirs = scipy_stats.ttest_ind(np.log(slow), np.log(fast), equal_var=False)
    ends = theirs.confidence_interval(0.95)
    found = times_as_long(slow, fast)
    assert found.value == pytest.approx(np.exp(np.log(slow).mean() - np.log(fast).mean()))
    # degrees of freedom are rounded down, so that ours is slightly longer
    assert np.log(found.low) == pytest.approx(ends.low, abs=0.01) and np.log(found.low) <= ends.low
    assert np.log(found.high) == pytest.approx(ends.high, abs=0.01) and np.log(found.high) >= ends.high
    assert found.n == 4


def test_one_timing_has_no_interval():
    found = times_as_long(np.array([3.0]), np.array([1.0, 1.1]))
    assert found.n == 1 and np.isnan(found.low) and np.isnan(found.high)
    same = times_as_long(np.array([2.0, 2.0]), np.array([1.0, 1.0]))
    assert (same.low, same.value, same.high) == (2, 2, 2)
