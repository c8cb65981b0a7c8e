"""The one-sided test against zero: the definition, and false alarms by simulation."""

import numpy as np
import pytest
from scipy import stats as oracle

from heatcheck.stats import above_zero, bootstrap_indices, holm, sign_flip
from heatcheck.stats.onesided import _stretched_bootstrap

MUTANTS = (
    ("stats/residuals.py", "STRETCH = 0.3", "STRETCH = 0.0", "test_the_longer_lower_tail_is_stretched"),
    ("stats/residuals.py", "-STRETCH * (z**3)", "STRETCH * (z**3)", "test_the_longer_lower_tail_is_stretched"),
    ("stats/onesided.py", ", lower_only=True)", ")", "test_the_upper_tail_is_left_alone"),
    (
        "stats/onesided.py",
        "np.maximum(p[left], ",
        "np.minimum(p[left], ",
        "test_it_is_never_below_the_sign_flip_test",
    ),
    ("stats/onesided.py", "t >= observed", "t <= observed", "test_the_bootstrap_is_the_definition"),
)


def slow_bootstrap(d, resamples):
    """Standardise, stretch the lower tail by the skewness, and count the t statistics beyond the observed one."""
    z = (d - d.mean()) / d.std(ddof=1)
    rate = max(0.3 * -np.mean(z**3), 1e-9)
    z = (1 - np.exp(-rate * z)) / rate
    z -= z.mean()
    above = 1
    for index in bootstrap_indices(len(d), resamples, 0):
        error = np.sqrt(max(z[index].var(ddof=1), 0.1 * z.var(ddof=1)) / len(d))
        above += z[index].mean() / error >= d.mean() / d.std(ddof=1) * np.sqrt(len(d))
    return above / (resamples + 1)


@pytest.mark.parametrize("seed", range(3))
def test_the_bootstrap_is_the_definition(seed):
    d = 1 - np.random.default_rng(seed).lognormal(size=20)
    assert _stretched_bootstrap(d[None], 400, 0)[0] == pytest.approx(slow_bootstrap(d, 400))


def test_the_longer_lower_tail_is_stretched():
    d = np.quantile(np.random.default_rng(0).lognormal(size=9999), np.linspace(0.02, 0.98, 28))
    losses, gains = 1.2 + d.mean() - d - 0.7, d - d.mean() + 0.5
    assert losses.mean() == pytest.approx(gains.mean())
    assert above_zero(losses)[0] > 3 * above_zero(gains)[0]
    plain = np.array([losses[i].mean() - losses.mean() for i in bootstrap_indices(28, 4000, 0)])
    assert above_zero(losses)[0] > 2 * np.mean(plain >= losses.mean())


def test_the_upper_tail_is_left_alone():
    d = np.random.default_rng(0).lognormal(size=28) - 1
    assert _stretched_bootstrap(d[None], 400, 0)[0] == pytest.approx(slow_bootstrap(d, 400))


def test_it_is_never_below_the_sign_flip_test():
    d = np.random.default_rng(0).normal(0.3, 1, (30, 15))
    d[:, :3] = np.where(np.random.default_rng(1).random((30, 3)) < 0.5, np.nan, d[:, :3])
    assert (above_zero(d) >= sign_flip(d, alternative="greater")).all()


def test_special_cases():
    assert above_zero(np.zeros(5))[0] == 1 and np.isnan(above_zero(np.full((1, 3), np.nan))).all()
    assert above_zero(np.full(6, 0.2))[0] == 2**-6  # a constant gain has no error: only the signs count
    assert above_zero(np.array([3.0]))[0] == 0.5
    assert above_zero(-np.arange(1.0, 9.0))[0] == 1


def test_a_clear_difference_stays_significant():
    for seed in range(10):
        d = np.random.default_rng(seed).uniform(0.01, 1, 13)
        assert above_zero(d)[0] < 0.01


def false_alarms(draw, methods, replications=1000, n=28, shift=0.0):
    """Share of replications in which any method is found better, Holm-corrected."""
    rng = np.random.default_rng(5)
    d = draw(rng, (replications, methods, n)) + shift
    p = above_zero(d.reshape(-1, n), resamples=1999).reshape(replications, methods)
    return np.mean([holm(row).min() <= 0.05 for row in p])


def lognormal_losses(rng, shape):
    return np.exp(0.5) - rng.lognormal(size=shape)


def shared_random(rng, shape):
    """Every method against the same lognormal scores of random."""
    return np.exp(0.5) + 0.3 * rng.normal(size=shape) - rng.lognormal(size=(shape[0], 1, shape[2]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "methods", "most"),
    [
        (lognormal_losses, 1, 0.06),
        (lambda rng, shape: -lognormal_losses(rng, shape), 5, 0.06),
        (shared_random, 10, 0.06),
        (lambda rng, shape: rng.lognormal(size=shape) - rng.lognormal(size=(shape[0], 1, shape[2])), 10, 0.06),
        (lambda rng, shape: rng.normal(size=shape), 5, 0.06),
    ],
    ids=["losses", "gains", "shared", "both", "normal"],
)
def test_false_alarms_are_as_rare_as_promised(draw, methods, most):
    assert false_alarms(draw, methods, 2000 if methods == 1 else 500) <= most + 0.007


@pytest.mark.slow
def test_power_is_close_to_students_where_differences_are_normal():
    def draw(rng, shape):
        return rng.normal(0.6, 1, shape)

    d = draw(np.random.default_rng(5), (1000, 28))
    student = np.mean(oracle.ttest_1samp(d, 0, axis=1, alternative="greater").pvalue <= 0.05)
    assert false_alarms(draw, 1) >= student - 0.04
