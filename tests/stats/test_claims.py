"""IDSDS's claims on tables with known truth, and how often they are called held where nothing is true."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.stats.claims import (
    HELD,
    NOT_HELD,
    UNDECIDED,
    absolute_pairs,
    falls_with_depth,
    judge,
    ranks_alike,
    raw_beats_absolute,
    smooth_pairs,
    smoothing_hurts,
)
from heatcheck.stats.cube import Cube
from heatcheck.stats.estimates import Estimate, mean_estimate, share_estimate

MUTANTS = (
    ("stats/claims.py", "weight = -centred", "weight = centred", "test_a_fall_with_depth_is_found"),
    (
        "stats/claims.py",
        "np.ptp(depth) / (centred",
        "1 / (centred",
        "test_the_fall_is_that_of_the_line_by_least_squares",
    ),
    ("stats/claims.py", "good(raw) or good(other)", "good(raw)", "test_luck_does_not_choose_the_good_methods"),
    ("stats/claims.py", "effect.high < matters else", "effect.value < matters else", "test_judging"),
    ("stats/estimates.py", "z**2 / (4 * n**2)", "z**2 / (2 * n**2)", "test_shares_have_wilsons_interval"),
)
FEW = {"resamples": 200}


def table(values, models, methods, metrics="idsds", samples=None):
    """The long table of [models, methods, samples]."""
    values = np.asarray(values, dtype=float)
    d, _, n = values.shape
    names = samples or [f"s{i:04d}" for i in range(n)]
    metrics = [metrics] * d if isinstance(metrics, str) else metrics
    at = np.unravel_index(np.arange(values.size), values.shape)
    flat = values.reshape(-1)
    return pl.DataFrame(
        {
            "run": ["r"] * flat.size,
            "model": [models[i] for i in at[0]],
            "data": ["pictures"] * flat.size,
            "sample": [names[i] for i in at[2]],
            "target": [0] * flat.size,
            "method": [methods[i] for i in at[1]],
            "metric": [metrics[i] for i in at[0]],
            "score": [None if np.isnan(v) else float(v) for v in flat],
            "status": ["undefined: why" if np.isnan(v) else "ok" for v in flat],
        },
        schema_overrides={"score": pl.Float64},
    )


def drawn(means, n, seed=0, spread=0.25, picture=0.2):
    """Scores around means [models, methods] with a part that belongs to the picture, as real ones have."""
    rng = np.random.default_rng(seed)
    means = np.asarray(means, dtype=float)
    own = rng.normal(size=(1, 1, n)) * picture
    return means[..., None] + own + rng.normal(size=(*means.shape, n)) * spread


def test_judging():
    assert judge(Estimate(0.1, 0.01, 0.2, 9)) == HELD
    assert judge(Estimate(-0.1, -0.2, 0.005, 9)) == NOT_HELD
    assert judge(Estimate(0.001, -0.003, 0.005, 9)) == NOT_HELD
    assert judge(Estimate(0.005, -0.1, 0.1, 9)) == UNDECIDED
    assert judge(mean_estimate([])) == judge(mean_estimate([0.5])) == UNDECIDED


# -- depth ---------------------------------------------------------------------------------------------------

MODELS, DEPTHS = ("r20", "r32", "r44", "r56"), {"r20": 20, "r32": 32, "r44": 44, "r56": 56}
METHODS = ("a", "b", "c")


def depth_table(slope, n, seed=0):
    means = [[0.4 + 0.1 * k - slope * (i / 3) for k in range(3)] for i in range(4)]
    return table(drawn(means, n, seed), MODELS, METHODS)


def test_a_fall_with_depth_is_found():
    found = falls_with_depth(depth_table(0.1, 400), DEPTHS, methods=METHODS, **FEW)
    assert found.verdict == HELD
    assert found.effect.value == pytest.approx(0.1, abs=0.03)
    assert found.effect.low < 0.1 < found.effect.high
    assert [part["method"] for part in found.parts] == list(METHODS)
    assert "held" in str(found)
    assert found.record()["verdict"] == HELD


def test_a_rise_is_not_held_and_few_pictures_do_not_tell():
    assert falls_with_depth(depth_table(-0.1, 400), DEPTHS, methods=METHODS, **FEW).verdict == NOT_HELD
    assert falls_with_depth(depth_table(0.02, 10), DEPTHS, methods=METHODS, **FEW).verdict == UNDECIDED


def test_nothing_is_not_held_once_there_are_pictures_enough():
    assert falls_with_depth(depth_table(0.0, 2500), DEPTHS, methods=METHODS, matters=0.05, **FEW).verdict == NOT_HELD


def test_the_fall_is_that_of_the_line_by_least_squares():
    values = drawn(np.random.default_rng(1).normal(size=(4, 3)), 30)
    found = falls_with_depth(table(values, MODELS, METHODS), DEPTHS, methods=METHODS, **FEW)
    for k, part in enumerate(found.parts):
        slope = np.polyfit(list(DEPTHS.values()), values[:, k].mean(1), 1)[0]
        assert part["value"] == pytest.approx(-slope * 36)
    assert found.effect.value == pytest.approx(np.mean([part["value"] for part in found.parts]))


def test_the_order_of_rows_and_of_models_has_no_influence():
    rows = depth_table(0.05, 50)
    one = falls_with_depth(rows, DEPTHS, methods=METHODS, **FEW)
    other = falls_with_depth(
        rows.sample(fraction=1, shuffle=True, seed=3), dict(reversed(DEPTHS.items())), methods=METHODS, **FEW
    )
    assert other.effect.value == pytest.approx(one.effect.value)
    assert other.effect.low == pytest.approx(one.effect.low)


def test_undefined_scores_are_left_out_picture_by_picture():
    values = drawn(np.zeros((4, 3)), 40)
    values[1, 2, :10] = np.nan
    values[:, :, 39] = np.nan
    found = falls_with_depth(table(values, MODELS, METHODS), DEPTHS, methods=METHODS, **FEW)
    assert found.effect.n == 39
    assert [part["n"] for part in found.parts] == [39, 39, 29]


@pytest.mark.parametrize(
    ("depths", "methods", "told"),
    [
        ({"r20": 20, "r32": 20}, METHODS, "different depth"),
        ({"r20": 20, "r99": 99}, METHODS, "r99 has no score of a, b, c"),
        ({"r20": 20, "r32": 32}, ("a", "z"), "r20 has no score of z"),
    ],
)
def test_what_is_not_there_is_named(depths, methods, told):
    with pytest.raises(ValueError, match=told):
        falls_with_depth(depth_table(0.1, 5), depths, methods=methods)


def test_two_data_sets_are_refused():
    rows = depth_table(0.1, 5)
    both = pl.concat([rows, rows.with_columns(pl.lit("others").alias("data"))])
    with pytest.raises(ValueError, match="others, pictures"):
        falls_with_depth(both, DEPTHS, methods=METHODS)


# -- pairs ---------------------------------------------------------------------------------------------------

PAIRS = {"IG": "IG abs.", "I×G": "I×G abs."}
PAIRED = ("IG", "I×G", "IG abs.", "I×G abs.", "random")


def paired_table(means, n, seed=0):
    return table(drawn([means, means], n, seed), ("x", "y"), PAIRED)


def test_smoothing_hurts_where_it_does():
    smooth = {"IG": "IG abs.", "I×G": "I×G abs."}
    found = smoothing_hurts(paired_table([0.3, 0.2, 0.2, 0.1, 0], 300), smooth, models=("x", "y"), **FEW)
    assert found.verdict == HELD
    assert found.effect.value == pytest.approx(0.1, abs=0.03)
    assert len(found.parts) == 4
    helps = paired_table([0.1, 0.1, 0.2, 0.2, 0], 300)
    assert smoothing_hurts(helps, smooth, models=("x",), **FEW).verdict == NOT_HELD
    with pytest.raises(ValueError, match="no method has a second version"):
        smoothing_hurts(helps, {}, models=("x",))


def test_raw_beats_absolute_where_it_does():
    found = raw_beats_absolute(paired_table([0.3, 0, 0.1, 0, 0], 300), PAIRS, models=("x", "y"), **FEW)
    assert found.verdict == HELD
    assert {part["method"] for part in found.parts} == {"IG"}, "the other pair is no better than random"


def test_luck_does_not_choose_the_good_methods():
    """An absolute version that is better than random counts, though the raw one is not."""
    found = raw_beats_absolute(paired_table([0, 0.3, 0.3, 0, 0], 300), PAIRS, models=("x", "y"), **FEW)
    assert {part["method"] for part in found.parts} == {"IG", "I×G"}
    assert found.verdict == UNDECIDED or abs(found.effect.value) < 0.05


def test_where_no_method_is_good_nothing_is_claimed():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(1, 5, 60)) * 0.3
    values[:, :4] -= 0.5
    found = raw_beats_absolute(table(values, ("x",), PAIRED), PAIRS, models=("x",), **FEW)
    assert found.verdict == UNDECIDED
    assert "none of the 2 methods" in found.note


# -- ranks before and after ----------------------------------------------------------------------------------


def both(old, new, n, seed=0, spread=0.25):
    values = drawn([old, new], n, seed, spread)
    names = [f"m{i}" for i in range(len(old))]
    return table(values, ("net", "aligned"), names, ["sds", "idsds"]), names


def test_equal_rankings_are_found_alike():
    levels = np.linspace(0, 1, 8)
    rows, names = both(levels, 0.5 * levels, 400, spread=0.1)
    found = ranks_alike(rows, ("net", "sds"), ("aligned", "idsds"), methods=names, **FEW)
    assert found.verdict == HELD
    assert found.effect.value == pytest.approx(0.3, abs=0.02)
    assert "paper's 0.89 is outside" in found.note
    assert set(found.parts[0]) == {"method", "sds", "idsds"}


def test_reversed_rankings_are_not():
    levels = np.linspace(0, 1, 8)
    rows, names = both(levels, -levels, 100, spread=0.1)
    assert ranks_alike(rows, ("net", "sds"), ("aligned", "idsds"), methods=names, **FEW).verdict == NOT_HELD


def test_few_pictures_do_not_tell_about_ranks():
    rows, names = both([0, 0.02, 0.04], [0, 0.02, 0.04], 4)
    assert ranks_alike(rows, ("net", "sds"), ("aligned", "idsds"), methods=names, **FEW).verdict == UNDECIDED
    with pytest.raises(ValueError, match="at least three"):
        ranks_alike(rows, ("net", "sds"), ("aligned", "idsds"), methods=names[:2])


def test_only_common_pictures_count():
    values = drawn([[0, 1, 2]] * 2, 30)
    old = table(values[:1, :, :20], ("net",), METHODS, "sds", [f"s{i}" for i in range(20)])
    new = table(values[1:, :, 10:], ("aligned",), METHODS, "idsds", [f"s{i}" for i in range(10, 30)])
    found = ranks_alike(pl.concat([old, new]), ("net", "sds"), ("aligned", "idsds"), methods=METHODS, **FEW)
    assert found.effect.n == 10


# -- where nothing is true -----------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["depth", "smooth", "absolute", "absolute, all good"])
def test_false_claims_are_rare(what):
    """200 small studies in which no claim is true: at most 5 % are called held."""
    held = 0
    for seed in range(200):
        if what == "depth":
            rows = table(drawn(np.full((4, 3), 0.2), 12, seed), MODELS, METHODS)
            verdict = falls_with_depth(rows, DEPTHS, methods=METHODS, seed=seed, resamples=100).verdict
        else:
            means = [[0.5 if "good" in what else 0.0] * 4 + [0.0]]
            rows = table(drawn(means, 12, seed), ("x",), PAIRED)
            test = smoothing_hurts if what == "smooth" else raw_beats_absolute
            verdict = test(rows, PAIRS, models=("x",), seed=seed, resamples=100).verdict
        held += verdict == HELD
    assert held <= 10


# -- pairs by name -------------------------------------------------------------------------------------------


def test_versions_are_found_by_what_methods_are():
    def method(name, spec):
        return {"name": name, "spec": spec}

    methods = [
        method("I×G", "input_x_gradient"),
        method("I×G-SG", "smoothgrad(of=input_x_gradient, samples=4, sigma=1.0)"),
        method("I×G abs.", "input_x_gradient(post=abs)"),
        method("I×G-SG abs.", "smoothgrad(of=input_x_gradient, samples=4, sigma=1.0, post=abs)"),
        method("IG", "integrated_gradients(steps=8)"),
        method("IG-SG", "smoothgrad(of=integrated_gradients(steps=8), samples=4, sigma=1.0)"),
        method("other", "smoothgrad(of=integrated_gradients(steps=50))"),
        method("mine", "a file.py: something"),
    ]
    assert smooth_pairs(methods) == {"I×G": "I×G-SG", "I×G abs.": "I×G-SG abs.", "IG": "IG-SG"}
    assert absolute_pairs(methods) == {"I×G": "I×G abs.", "I×G-SG": "I×G-SG abs."}


# -- estimates -----------------------------------------------------------------------------------------------


@given(st.integers(1, 300), st.data())
def test_shares_have_wilsons_interval(n, data):
    """Its ends are the shares p at which the observed one is just 1.96 standard errors away."""
    hits = data.draw(st.integers(0, n))
    found = share_estimate([True] * hits + [False] * (n - hits))
    assert 0 <= found.low <= found.value <= found.high <= 1
    for end in (found.low, found.high):
        if 0 < end < 1:
            assert abs(hits / n - end) == pytest.approx(1.959964 * np.sqrt(end * (1 - end) / n), rel=1e-4, abs=1e-9)


def test_a_cube_keeps_rows_that_are_all_ok():
    rows = table(drawn(np.zeros((1, 3)), 4), ("x",), METHODS)
    twice = pl.concat([rows, rows.with_columns(score=pl.lit(None, pl.Float64), status=pl.lit("failed: why")).head(1)])
    assert np.isnan(Cube.of(twice, {"x": "idsds"}, METHODS).values).sum() == 1
