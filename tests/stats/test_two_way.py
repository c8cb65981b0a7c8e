"""Means over seeds and samples, against the closed form, nested resampling, and by coverage."""

import numpy as np
import pytest

from heatcheck.stats.two_way import two_way_mean, variance_parts

MUTANTS = (
    (
        "stats/two_way.py",
        "math.sqrt(total / (seeds * samples))",
        "math.sqrt(total / samples)",
        "test_nested_resampling_agrees_where_there_are_many",
    ),
    (
        "stats/two_way.py",
        "samples * (rows**2).sum()",
        "seeds * (rows**2).sum()",
        "test_the_variance_is_that_of_the_model",
    ),
    (
        "stats/two_way.py",
        'if about == "benchmark":',
        'if about == "population":',
        "test_intervals_cover_what_they_are_about",
    ),
)


def draw(rng, runs, seeds, samples, a, b, e):
    """Scores of the two-way model: [runs, seeds, samples], and the samples' own parts."""
    own = rng.normal(0, b, (runs, 1, samples))
    return rng.normal(0, a, (runs, seeds, 1)) + own + rng.normal(0, e, (runs, seeds, samples)), own.mean(axis=(1, 2))


@pytest.mark.parametrize(("a", "b", "e"), [(1.0, 0.0, 0.5), (0.0, 1.0, 0.5), (0.5, 1.0, 1.0)])
def test_the_variance_is_that_of_the_model(a, b, e):
    """Mean squares add up to the closed form, and so do the means of 4,000 runs."""
    y, _ = draw(np.random.default_rng(0), 4000, 4, 12, a, b, e)
    closed = a**2 / 4 + b**2 / 12 + e**2 / 48
    squares = np.array([variance_parts(run) for run in y[:1500]])
    assert np.mean(squares @ [1, 1, -1]) / 48 == pytest.approx(closed, rel=0.08)
    assert y.mean(axis=(1, 2)).var() == pytest.approx(closed, rel=0.08)


def test_nested_resampling_agrees_where_there_are_many():
    """Seeds and samples drawn anew, again and again, give the same error; the rest counts three times there."""
    rng = np.random.default_rng(1)
    y = draw(rng, 1, 60, 80, 0.5, 0.7, 0.3)[0][0]
    means = [y[np.ix_(rng.integers(0, 60, 60), rng.integers(0, 80, 80))].mean() for _ in range(3000)]
    found = two_way_mean(y)
    assert (found.high - found.low) / 2 == pytest.approx(1.99 * np.std(means), rel=0.08)


@pytest.mark.parametrize("about", ["population", "benchmark"])
@pytest.mark.parametrize(("a", "b", "e"), [(1.0, 1.0, 1.0), (0.0, 1.0, 0.3), (0.3, 0.1, 1.0)])
def test_intervals_cover_what_they_are_about(about, a, b, e):
    """500 runs of 5 seeds × 28 samples: 95 %, give or take three standard errors; never far above for equal parts."""
    y, own = draw(np.random.default_rng(2), 500, 5, 28, a, b, e)
    found = [two_way_mean(run, about=about) for run in y]
    truth = own if about == "benchmark" else np.zeros(500)
    covered = np.mean([f.low <= t <= f.high for f, t in zip(found, truth, strict=True)])
    assert covered >= 0.92
    if (a, b) == (1.0, 1.0):
        assert covered <= 0.985


def test_the_benchmarks_mean_is_surer_than_the_populations():
    y, _ = draw(np.random.default_rng(3), 1, 5, 28, 0.1, 2.0, 0.1)
    of, over = two_way_mean(y[0], about="benchmark"), two_way_mean(y[0], about="population")
    assert of.value == over.value and of.high - of.low < (over.high - over.low) / 3


@pytest.mark.parametrize("wrong", [np.zeros((1, 5)), np.zeros(4), np.array([[1.0, np.nan], [1.0, 2.0]])])
def test_other_tables_are_refused(wrong):
    with pytest.raises(ValueError, match="seeds × samples"):
        two_way_mean(wrong)
    with pytest.raises(ValueError, match="about='all'"):
        two_way_mean(np.ones((2, 2)), about="all")


def test_scores_that_do_not_vary_have_no_error():
    found = two_way_mean(np.ones((3, 4)))
    assert (found.low, found.value, found.high, found.n) == (1.0, 1.0, 1.0, 4)
