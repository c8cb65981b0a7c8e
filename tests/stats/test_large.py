"""Many samples: the expansions, against resampling at the number of samples where they begin."""

import tracemalloc
from statistics import NormalDist

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from heatcheck.stats import (
    Facts,
    above_zero,
    bootstrap_indices,
    differences,
    intervals,
    leaderboard,
    mean_band,
    mean_interval,
    mean_intervals,
    onesided,
    paired,
    ranks,
    separation,
    sign_flip,
    studentised,
)
from heatcheck.stats.large import MANY, is_regular, moments, share_beyond, share_of_flips_beyond, t_at

MUTANTS = (
    ("stats/large.py", "z - first / np.sqrt(n)", "z + first / np.sqrt(n)", "test_quantiles_are_those_of_the_bootstrap"),
    ("stats/large.py", "near + first / np.sqrt(n)", "near", "test_tails_are_those_of_the_bootstrap"),
    ("stats/large.py", "(t + 2 * fourth", "(t - 0.3 + 2 * fourth", "test_flips_are_those_of_random_patterns"),
    ("stats/large.py", "if fourth > _PEAKED", "if fourth > 2", "test_samples_that_dominate_are_resampled"),
    ("stats/large.py", "MANY = 2000", "MANY = 20", "test_fewer_samples_are_resampled"),
    ("stats/intervals.py", "not is_regular(len(x), skewness, excess)", "False", "test_samples_that_dominate_are_resampled"),
    ("stats/intervals.py", "lean * (z**2 - 1) / 6", "lean * (z**2 - 1)", "test_bands_are_those_of_the_bootstrap"),
    ("stats/paired.py", "1 / (flips + 1))", "0.0)", "test_no_p_value_is_smaller_than_resamples_can_make_it"),
    ("stats/ranks.py", "products / norm / norm[:, None]", "np.eye(len(norm))", "test_pairs_keep_their_correlations"),
    (
        "stats/ranks.py",
        "    resampled = _normal_t(centred, count.astype(np.float64), resamples, seed)\n",
        "    resampled = None\n",
        "test_nothing_is_resampled",
    ),
)  # fmt: skip
UP = Facts({"sds": True, "morf": True})
DRAWS = {
    "normal": lambda rng, *shape: rng.normal(size=shape),
    "skewed": lambda rng, *shape: rng.exponential(size=shape),
    "bounded": lambda rng, *shape: rng.beta(5, 1, shape),
    "two values": lambda rng, *shape: (rng.random(shape) < 0.1) * 1.0,
}
each = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)


def table(n, seed=0, metrics=("sds", "morf")):
    """Three methods and random on n samples, a few without a score."""
    rng = np.random.default_rng(seed)
    parts = []
    for metric in metrics:
        for i, method in enumerate(("a", "b", "c", "random")):
            score = rng.exponential(size=n) - 0.05 * i
            ok = rng.random(n) > 0.02
            parts.append(
                pl.DataFrame(
                    {
                        "sample": [f"s{k:05d}" for k in range(n)],
                        "score": np.where(ok, score, np.nan),
                        "status": np.where(ok, "ok", "failed: it"),
                    }
                ).with_columns(method=pl.lit(method), metric=pl.lit(metric))
            )
    constant = {"run": "r", "model": "net", "data": "pics", "target": 0, "seconds": 1.0, "forwards": 2, "backwards": 3}
    return pl.concat(parts).with_columns(**{k: pl.lit(v) for k, v in constant.items()})


@each
def test_quantiles_are_those_of_the_bootstrap(draw):
    x = draw(np.random.default_rng(1), MANY)
    t = studentised(x[None], 8000, 0)[0]
    shape = moments(x - x.mean())
    for z in (-1.96, 1.96):
        share = NormalDist().cdf(z)
        error = np.sqrt(share * (1 - share) / len(t)) / NormalDist().pdf(z)
        assert t_at(z, MANY, *shape) == pytest.approx(np.quantile(t, share), abs=3 * error)


def test_tails_are_those_of_the_bootstrap():
    x = np.random.default_rng(2).lognormal(sigma=0.8, size=MANY)
    t = studentised(x[None], 8000, 1)[0]
    shape = moments(x - x.mean())
    assert is_regular(MANY, *shape) and shape[0] > 2.5
    for at in (-2.0, 0.0, 1.5, 2.5):
        share = np.mean(t >= at)
        assert share_beyond(at, MANY, *shape) == pytest.approx(share, abs=2 * np.sqrt(share * (1 - share) / len(t)))


@pytest.mark.parametrize("skewness", [-3.0, 0.0, 3.0])
def test_a_quantile_and_its_share_are_inverse(skewness):
    for z in (-3.0, -1.0, 0.0, 2.0, 3.0):
        t = float(t_at(z, 5000, skewness, 9.0))
        assert share_beyond(t, 5000, skewness, 9.0) == pytest.approx(NormalDist().cdf(-z), rel=0.01)


def test_far_statistics_have_no_p_value_to_speak_of():
    assert share_beyond(400.0, 50_000, -5.0, 60.0) < 1e-6 and share_beyond(-400.0, 50_000, 5.0, 60.0) > 1 - 1e-6


@each
@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
def test_flips_are_those_of_random_patterns(draw, alternative):
    rng = np.random.default_rng(3)
    first = draw(rng, 12 * MANY)
    d = (first - draw(rng, 12 * MANY)) + 0.01 * first.std()
    p = sign_flip(d, alternative=alternative)[0]
    drawn = paired._monte_carlo(d[None], alternative, 4000, 0)[0]
    assert 0.001 < p < 0.999 and p == pytest.approx(drawn, abs=4 * np.sqrt(drawn * (1 - drawn) / 4000))
    assert (share_of_flips_beyond(d[d != 0]) == p) == (alternative == "greater")


def test_pairs_keep_their_correlations():
    """The largest of all statistics, which decides about ranks, has the distribution that resampling gives it."""
    rng = np.random.default_rng(4)
    x = rng.exponential(size=(5, MANY)) + 2 * rng.exponential(size=(1, MANY))
    first, second = np.triu_indices(5, k=1)
    d = x[first] - x[second]
    centred = d - d.mean(axis=1, keepdims=True)
    known = np.ones(d.shape, dtype=bool)
    drawn = ranks._resampled_t(centred, d.var(axis=1, ddof=1), known, 2000, 0)
    normal = ranks._normal_t(centred, np.full(len(d), float(MANY)), 2000, 0)
    np.testing.assert_allclose(np.corrcoef(normal), np.corrcoef(drawn), atol=0.1)
    for share in (0.5, 0.95):
        a, b = (np.quantile(np.abs(t).max(axis=0), share) for t in (drawn, normal))
        assert a == pytest.approx(b, abs=0.12)


def test_bands_are_those_of_the_bootstrap():
    curves = np.random.default_rng(5).lognormal(size=(MANY, 2))
    index = bootstrap_indices(MANY, 4000, 0)
    for k, column in enumerate(curves.T):
        drawn = np.quantile(column[index].mean(axis=1), [0.025, 0.975])
        assert mean_band(curves)[:, k] == pytest.approx(drawn, abs=0.08 * column.std() / np.sqrt(MANY))
    assert (mean_band(np.ones((MANY, 2))) == 1).all()


def test_samples_that_dominate_are_resampled():
    """A heavy tail has no expansion: interval and p-value are those of fewer samples."""
    x = np.random.default_rng(6).lognormal(sigma=2, size=(1, MANY))
    assert not is_regular(MANY, *moments(x[0] - x.mean()))
    ends = mean_intervals(x, seed=0, resamples=50)[0]
    assert tuple(ends) == mean_interval(x[0], studentised(x, 50, 0)[0])
    one = np.concatenate([np.full(MANY, 1e-3), [-1.0]])
    assert share_of_flips_beyond(one) is None


def test_fewer_samples_are_resampled(monkeypatch):
    x = np.random.default_rng(7).normal(size=(1, 1999))
    assert tuple(mean_intervals(x, seed=0, resamples=50)[0]) == mean_interval(x[0], studentised(x, 50, 0)[0])
    monkeypatch.setattr(onesided, "_stretched_bootstrap", lambda d, *_: np.full(len(d), 0.75))
    assert above_zero(x + 0.1, resamples=99)[0] == 0.75


def test_no_p_value_is_smaller_than_resamples_can_make_it():
    d = np.random.default_rng(8).normal(1, 1, MANY)
    assert sign_flip(d, flips=99)[0] == above_zero(d, resamples=99)[0] == 0.01
    assert above_zero(-d, resamples=99)[0] == pytest.approx(1)


def test_nothing_is_resampled(monkeypatch):
    """So that the cost grows with the samples, and not with samples times resamples."""

    def refuse(*_):
        raise AssertionError

    for module, name in ((intervals, "_index_blocks"), (intervals, "bootstrap_indices"), (paired, "_monte_carlo")):
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(intervals, "count_blocks", refuse)
    monkeypatch.setattr(onesided, "count_blocks", refuse)
    monkeypatch.setattr(ranks, "count_blocks", refuse)
    monkeypatch.setattr(paired, "_monte_carlo", lambda d, *_: np.empty(0) if not len(d) else refuse())
    scores = table(MANY + 200)
    board = leaderboard(scores, UP)
    assert board["low"].is_not_null().all() and board["random_p"].drop_nulls().len() == 6
    assert differences(scores, UP).height == 12 and separation(scores, UP).height == 2


def test_memory_grows_with_the_samples():
    def peak(n):
        scores = table(n, metrics=("sds",))
        tracemalloc.start()
        leaderboard(scores, UP)
        differences(scores, UP)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    small, large = peak(MANY + 500), peak(4 * (MANY + 500))
    assert large <= 4.4 * small and large < 400 * 4 * 4 * (MANY + 500)  # bytes per cell


@pytest.mark.parametrize("n", [40, MANY + 1000])
def test_how_names_are_kept_changes_nothing(n):
    scores = table(n)
    shuffled = scores.sample(fraction=0.9, shuffle=True, seed=1)
    names = [c for c, kind in scores.schema.items() if kind == pl.String]
    enumerated = shuffled.with_columns(
        shuffled[c].cast(pl.Enum(["spare", *sorted(shuffled[c].unique(), reverse=True)])) for c in names
    )
    for other in (enumerated, shuffled.with_columns(pl.col(names).cast(pl.Categorical))):
        for made in (leaderboard, differences, separation):
            options = {"resamples": 100}
            assert_frame_equal(made(shuffled, UP, **options), made(other, UP, **options), check_exact=True)


@pytest.mark.slow
@each
def test_intervals_cover(draw):
    rng = np.random.default_rng(9)
    truth = {"normal": 0.0, "skewed": 1.0, "bounded": 5 / 6, "two values": 0.1}[
        next(name for name, known in DRAWS.items() if known is draw)
    ]
    ends = mean_intervals(draw(rng, 3000, MANY), seed=0, resamples=200)
    covered = np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    assert covered >= 0.94 - 0.004  # one standard error of 3,000 replications


@pytest.mark.slow
@pytest.mark.parametrize("methods", [1, 10])
def test_false_alarms_are_as_rare_as_promised(methods):
    """Losses with a longer tail, the case that the stretched bootstrap of fewer samples is made for."""
    rng = np.random.default_rng(10)
    replications = 3000 // methods
    alarms = 0
    for _ in range(replications):
        p = above_zero(1 - rng.exponential(size=(methods, MANY)), resamples=999)
        alarms += paired.holm(p).min() <= 0.05
    assert alarms / replications <= 0.06 + 0.007


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.05])
def test_all_ranks_are_covered_at_once(gap):
    rng = np.random.default_rng(11)
    truth = gap * np.arange(10)[::-1]
    expected = ranks.strict_rank(truth)
    hits = 0
    for _ in range(300):
        x = truth[:, None] + rng.exponential(size=(1, MANY)) + rng.exponential(size=(10, MANY))
        low, high = ranks.rank_sets(x, seed=0, resamples=1000, level=0.95)
        hits += ((low <= expected) & (expected <= high)).all()
    assert hits / 300 >= 0.93 - 0.014
