"""Rankings over many universes: against loops and formulas, by the laws of rank aggregation, with planted answers."""

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from heatcheck.stats import Facts, Universe, kendall_w, rank_of, rankings, resampled_kendall_w, resampled_means

MUTANTS = (
    (
        "stats/multiverse.py",
        "deviations = ranks - (n + 1) / 2",
        "deviations = ranks - n / 2",
        "test_without_ties_w_is_the_textbook_formula",
    ),
    ("stats/multiverse.py", "(both - ahead - behind) / 2", "(both - ahead - behind)", "test_a_tie_is_half_a_win"),
    (
        "stats/multiverse.py",
        "np.mean(dx * dy < 0)",
        "np.mean(dx * dy > 0)",
        "test_the_factor_that_turns_the_ranking_is_found",
    ),
    (
        "stats/multiverse.py",
        "if self.wins[a, b] >= ROBUST",
        "if self.wins[a, b] <= ROBUST",
        "test_a_method_that_wins_everywhere_ranks_before_in_every_summary",
    ),
    (
        "stats/multiverse.py",
        "out[b, a] = -out[a, b]",
        "out[b, a] = out[a, b]",
        "test_significance_does_not_depend_on_the_order_of_names",
    ),
    (
        "stats/multiverse.py",
        ".mean() >= 0 for d",
        ".mean() <= 0 for d",
        "test_random_ranks_below_the_methods_it_ties_with",
    ),
    (
        "stats/multiverse.py",
        "np.isnan(p), np.nan, p <= 1 - level",
        "np.isnan(p), np.nan, p > 1 - level",
        "test_controls_are_not_ranked",
    ),
    (
        "stats/multiverse.py",
        "np.quantile(values, [(1 - level) / 2, (1 + level) / 2])",
        "np.quantile(values, [1 - level, level])",
        "test_the_interval_is_percentiles_of_w_over_resamples",
    ),
    (
        "stats/multiverse.py",
        "component if component[0] <= 0 else -component",
        "-component if component[0] <= 0 else component",
        "test_universes_with_similar_rankings_are_neighbours",
    ),
    (
        "stats/multiverse.py",
        "universe.methods.get(name, name)",
        "name",
        "test_a_method_can_have_another_label_in_a_universe",
    ),
)
tables = hnp.arrays(
    float, st.tuples(st.integers(2, 6), st.integers(2, 7), st.integers(1, 4)), elements=st.integers(0, 4)
)
merits = hnp.arrays(float, st.tuples(st.integers(2, 5), st.integers(2, 5)), elements=st.integers(0, 6))


def slow_w(ranks):
    """Siegel's definition, one number at a time."""
    m, n = ranks.shape
    sums = [sum(ranks[u, i] for u in range(m)) for i in range(n)]
    s = sum((total - sum(sums) / n) ** 2 for total in sums)
    ties = 0
    for u in range(m):
        for value in set(ranks[u]):
            t = list(ranks[u]).count(value)
            ties += t**3 - t
    scale = m**2 * (n**3 - n) - m * ties
    return 12 * s / scale if scale > 0 else float("nan")


@given(tables)
def test_w_agrees_with_the_slow_loop_in_every_case(values):
    ranks = np.stack([rank_of(case) for case in values])
    found = resampled_kendall_w(ranks)
    for k in range(values.shape[2]):
        expected = slow_w(ranks[:, :, k])
        assert found[k] == pytest.approx(expected, abs=1e-12, nan_ok=True)
        assert found[k] == pytest.approx(kendall_w(ranks[:, :, k]), abs=1e-12, nan_ok=True)


@given(st.lists(st.permutations(range(1, 6)), min_size=2, max_size=6))
def test_without_ties_w_is_the_textbook_formula(orders):
    ranks = np.array(orders, dtype=float)
    m, n = ranks.shape
    sums = ranks.sum(axis=0)
    s = np.sum((sums - sums.mean()) ** 2)
    assert resampled_kendall_w(ranks[:, :, None])[0] == pytest.approx(12 * s / (m**2 * (n**3 - n)))


def test_a_missing_rank_has_no_w():
    assert np.isnan(
        resampled_kendall_w(np.array([[[1.0, np.nan], [2.0, 1.0]], [[1.0, 1.0], [2.0, 2.0]]]))
    ).tolist() == [
        False,
        True,
    ]


# -- planted multiverses -----------------------------------------------------------------------------------------

N = 16


def verse(long, means, levels=None, *, noise=0.0, n=None, lower=(), seed=0, random=0.0, variants=None):
    """Rankings where `means[u][method]` is a method's mean in universe u; a random control has mean `random`."""
    rng = np.random.default_rng(seed)
    n = n or (N if noise else 2)
    frames, universes = [], []
    for u, here in enumerate(means):
        sign = -1 if u in lower else 1
        rows = {m: sign * (v + noise * rng.normal(size=n)) for m, v in here.items()}
        if random is not None:
            rows["random"] = sign * (random + noise * rng.normal(size=n))
        frames.append(long(rows, metric=f"m{u}"))
        own = levels[u] if levels else {"way": str(u)}
        universes.append(Universe(f"u{u}", f"m{u}", own, (variants or {}).get(own.get("sign"), {})))
    facts = Facts({f"m{u}": u not in lower for u in range(len(means))}, controls=frozenset({"random", "sobel"}))
    (found,) = rankings(pl.concat(frames), facts, universes, resamples=200 if noise else 5)
    return found


def named(row):
    return {f"method{i}": v for i, v in enumerate(row)}


def test_rankings_that_agree_and_rankings_that_do_not(long):
    same = verse(long, [named([3, 2, 1])] * 3)
    assert (same.w, same.low, same.high) == (1, 1, 1)
    assert same.methods == ("method0", "method1", "method2")
    assert [r["first"] for r in same.by_method()] == [3, 0, 0]
    turned = verse(long, [named([3, 2, 1]), named([1, 2, 3])])
    assert turned.w == 0
    assert [(r["best"], r["median"], r["worst"]) for r in turned.by_method()] == [(1, 2, 3), (2, 2, 2), (1, 2, 3)]


@settings(max_examples=15)
@given(merit=merits)
def test_w_is_that_of_the_rank_matrix(long, merit):
    found = verse(long, [named(row) for row in merit])
    expected = slow_w(np.stack([rank_of(row) for row in merit]))
    assert found.w == (None if np.isnan(expected) else pytest.approx(expected, abs=1e-12))


# X11: label permutation equivariance, reversal antisymmetry, unanimity.


@settings(max_examples=15)
@given(merit=merits, shuffle=st.randoms(use_true_random=False))
def test_names_do_not_matter(long, merit, shuffle):
    order = list(range(merit.shape[1]))
    shuffle.shuffle(order)
    one = verse(long, [named(row) for row in merit])
    two = verse(long, [{f"method{order[i]}": v for i, v in enumerate(row)} for row in merit])
    assert one.w == two.w or one.w == pytest.approx(two.w)
    ranks = {r["method"]: (r["mean_rank"], r["first"]) for r in one.by_method()}
    assert {f"method{order[int(m[6:])]}": v for m, v in ranks.items()} == {
        r["method"]: (r["mean_rank"], r["first"]) for r in two.by_method()
    }
    assert [f["swapped"] for f in one.by_factor()] == [f["swapped"] for f in two.by_factor()]


@settings(max_examples=15)
@given(merit=merits)
def test_reversing_every_universe_reverses_every_rank(long, merit):
    one, two = verse(long, [named(row) for row in merit]), verse(long, [named(-row) for row in merit])
    assert one.w == two.w or one.w == pytest.approx(two.w)
    n = merit.shape[1]
    first, second = ({m: f.ranks[:, i] for i, m in enumerate(f.methods)} for f in (one, two))
    for method in first:
        np.testing.assert_allclose(first[method], n + 1 - second[method])


@settings(max_examples=15)
@given(merit=merits)
def test_a_method_that_wins_everywhere_ranks_before_in_every_summary(long, merit):
    merit = merit.copy()
    merit[:, 0] = merit[:, 1] + 1
    found = verse(long, [named(row) for row in merit])
    mean = {r["method"]: r["mean_rank"] for r in found.by_method()}
    assert mean["method0"] < mean["method1"]
    i, k = found.methods.index("method0"), found.methods.index("method1")
    assert i < k and found.wins[i, k] == 1 and found.wins[k, i] == 0
    pair = next(p for p in found.by_pair() if {p["a"], p["b"]} == {"method0", "method1"})
    assert (pair["a"], pair["share"], pair["kind"], pair["reversed"]) == ("method0", 1.0, "robust", False)


def test_each_metric_has_its_own_direction(long):
    found = verse(long, [named([3, 2, 1])] * 2, lower={1})
    assert found.w == 1
    np.testing.assert_allclose(found.means[1], [-3, -2, -1])


FILLS = ("zero", "blur")
STEPS = ("4", "8", "16")


def test_the_factor_that_turns_the_ranking_is_found(long):
    levels = [{"fill": f, "steps": s} for f in FILLS for s in STEPS]
    means = [named([3, 2, 1] if u["fill"] == "zero" else [1, 2, 3]) for u in levels]
    fill, steps = verse(long, means, levels).by_factor()
    assert (fill["factor"], fill["tau"], fill["swapped"], fill["pairs"]) == ("fill", -1, 1, 3)
    assert (steps["factor"], steps["tau"], steps["swapped"], steps["pairs"]) == ("steps", 1, 0, 6)
    assert fill["w"] == {"zero": 1, "blur": 1} and fill["w_within"] == 1
    assert steps["w"] == dict.fromkeys(STEPS, 0)


@settings(max_examples=15)
@given(orders=st.lists(st.permutations(range(4)), min_size=6, max_size=6))
def test_pairs_reversed_by_a_factor_agree_with_counting(long, orders):
    levels = [{"fill": f, "steps": s} for f in FILLS for s in STEPS]
    found = verse(long, [named([float(v) for v in row]) for row in orders], levels)
    for row in found.by_factor():
        shares = []
        for i, k in combinations(range(6), 2):
            if all((levels[i][f] == levels[k][f]) == (f != row["factor"]) for f in levels[i]):
                a, b = orders[i], orders[k]
                turned = [(a[x] - a[y]) * (b[x] - b[y]) < 0 for x, y in combinations(range(4), 2)]
                shares.append(np.mean(turned))
        assert row["swapped"] == pytest.approx(np.mean(shares))
        assert row["tau"] == pytest.approx(1 - 2 * np.mean(shares))  # without ties
        assert row["pairs"] == len(shares)


def test_a_factor_of_one_level_is_left_out(long):
    assert (
        verse(long, [named([2, 1])] * 2, [{"fill": "zero", "way": str(u)} for u in range(2)]).by_factor()[0]["factor"]
        == "way"
    )


def test_a_method_can_have_another_label_in_a_universe(long):
    means = [{"a": 1, "b": 2, "a · abs": 3}] * 2
    levels = [{"sign": "signed"}, {"sign": "abs"}]
    found = verse(long, means, levels, variants={"abs": {"a": "a · abs"}})
    assert set(found.methods) == {"a", "b"}
    assert {m: found.ranks[:, i].tolist() for i, m in enumerate(found.methods)} == {"a": [2, 1], "b": [1, 2]}


def test_controls_are_not_ranked(long):
    means = [{"good": 2.0, "bad": -1.0, "sobel": 9.0}] * 2
    found = verse(long, means, noise=0.1)
    assert set(found.methods) == {"good", "bad"}
    assert found.chance.tolist() == [2, 2]
    assert found.by_chance() == {"median": 2, "best": 2, "worst": 2}
    rows = {r["method"]: r for r in found.by_method()}
    assert (rows["good"]["not_better_than_random"], rows["bad"]["not_better_than_random"]) == (0, 2)
    assert rows["good"]["tested"] == 2


def test_without_random_nothing_is_tested(long):
    found = verse(long, [named([2, 1])] * 2, random=None)
    assert found.by_chance() is None and np.isnan(found.better).all()
    assert all(r["not_better_than_random"] is None for r in found.by_method())


def test_a_significantly_reversed_pair_is_marked(long):
    found = verse(long, [named([2, 1, 0]), named([1, 2, 0])], noise=0.1)
    turned = [(p["a"], p["b"], p["significant"], p["against"]) for p in found.by_pair() if p["reversed"]]
    assert turned == [("method0", "method1", 1, 1)]
    assert not any(p["reversed"] for p in verse(long, [named([2, 1, 0]), named([1, 2, 0])], noise=9).by_pair())


def test_what_gives_no_ranking_says_why(long):
    scores = pl.concat(
        [
            long({"a": [1, 2], "b": [2, 3]}, metric="good"),
            long({"a": [None, None], "b": [2, 3]}, metric="poor"),
            long({"a": [None, None], "b": [None, None]}, metric="none", status="skipped: no such units"),
        ]
    )
    universes = [Universe(m, m, {}) for m in ("good", "poor", "none", "absent")]
    facts = Facts(dict.fromkeys(("good", "poor", "none"), True))
    (found,) = rankings(scores, facts, universes)
    assert [u.label for u in found.universes] == ["good"]
    assert found.left_out == (
        ("poor", "undefined: constant map"),
        ("none", "skipped: no such units"),
        ("absent", "nothing was scored"),
    )
    assert found.w is None


def test_a_method_that_some_universe_cannot_rank_is_left_out_of_w_alone(long):
    scores = pl.concat(
        [
            long({"a": [3, 3], "b": [2, 2], "c": [1, 1]}, metric="one"),
            long({"a": [3, 3], "b": [2, 2], "c": [None, None]}, metric="two"),
        ]
    )
    (found,) = rankings(scores, Facts({"one": True, "two": True}), [Universe(m, m, {"way": m}) for m in ("one", "two")])
    assert found.w == 1 and [found.methods[i] for i in found.common] == ["a", "b"]
    assert found.unranked == {"c": (("undefined: constant map", 1),)}
    assert [r["ranked"] for r in found.by_method()] == [2, 2, 1]


def test_circular_methods_are_not_ranked_where_they_are_circular(long):
    scores = pl.concat([long({"a": [3, 3], "b": [2, 2], "c": [1, 1]}, metric=m) for m in ("one", "two")])
    facts = Facts({"one": True, "two": True}, circular=frozenset({("a", "one")}))
    (found,) = rankings(scores, facts, [Universe(m, m, {"way": m}) for m in ("one", "two")])
    assert found.unranked == {"a": (("circular", 1),)}


def test_the_interval_is_of_samples_and_repeatable(long):
    means = [named([1.2, 1.0, 0.8, 0.6]), named([1.0, 1.2, 0.6, 0.8])] * 2
    one, two = (verse(long, means, noise=0.6) for _ in range(2))
    assert (one.low, one.w, one.high) == (two.low, two.w, two.high)
    assert one.low <= one.w <= one.high and one.low < one.high
    wide, narrow = (verse(long, means, noise=0.6, n=n, seed=3) for n in (8, 400))
    assert narrow.high - narrow.low < wide.high - wide.low


def test_universes_with_similar_rankings_are_neighbours(long):
    means = [named(row) for row in ([3, 2, 1], [1, 2, 3], [3, 2, 1], [1, 2, 3], [2, 3, 1])]
    order = verse(long, means).arranged()
    assert sorted(order) == list(range(5)) and order[0] == 0
    assert abs(order.index(0) - order.index(2)) == 1 and abs(order.index(1) - order.index(3)) == 1
    assert verse(long, [named([2, 1])] * 3).arranged() == [0, 1, 2]


def test_each_model_has_its_own_multiverse(long):
    scores = pl.concat(
        [long({"a": [2, 2], "b": [1, 1]}, metric=m, model=model) for m in ("x", "y") for model in ("one", "two")]
    )
    found = rankings(scores, Facts({"x": True, "y": True}), [Universe(m, m, {"way": m}) for m in ("x", "y")])
    assert [(f.model, f.w) for f in found] == [("one", 1), ("two", 1)]


@pytest.mark.parametrize(("n", "few"), [(4, True), (6, False)])
def test_too_few_samples_are_noticed(long, n, few):
    found = verse(long, [named([9, 8, 7])] * 2, noise=0.01, n=n)
    assert found.too_few() is few
    assert np.nanmax(found.better) == (0 if few else 1)


def test_a_tie_is_half_a_win(long):
    found = verse(long, [named([2, 1]), named([1, 1])])
    assert found.wins.tolist() == [[0.5, 0.75], [0.25, 0.5]]


def test_a_tie_is_not_a_reversed_pair(long):
    (factor,) = verse(long, [named([2, 1, 0]), named([1, 1, 0])]).by_factor()
    assert factor["swapped"] == 0


def test_significance_does_not_depend_on_the_order_of_names(long):
    for better, worse in (("a", "z"), ("z", "a")):
        (pair,) = verse(long, [{better: 2.0, worse: 1.0}] * 2, noise=0.1).by_pair()
        assert (pair["a"], pair["significant"], pair["against"]) == (better, 2, 0)


def test_random_ranks_below_the_methods_it_ties_with(long):
    found = verse(long, [{"a": 2.0, "b": 1.0, "c": 0.0, "d": -1.0}] * 2)
    assert found.chance.tolist() == [4, 4]


def test_the_interval_is_percentiles_of_w_over_resamples(long):
    rng = np.random.default_rng(0)
    scores = {u: {m: rng.normal(i / 3, 1, 12) for i, m in enumerate("abcd")} for u in ("x", "y", "z")}
    table = pl.concat([long(rows, metric=u) for u, rows in scores.items()])
    universes = [Universe(u, u, {"way": u}) for u in scores]
    (found,) = rankings(table, Facts(dict.fromkeys(scores, True)), universes, resamples=100, level=0.8)
    means = [resampled_means(np.array(list(rows.values())), 100, 0) for rows in scores.values()]
    ws = [kendall_w(np.array([rank_of(m[:, i]) for m in means])) for i in range(100)]
    low, high = np.quantile(ws, [0.1, 0.9])
    assert (found.low, found.high) == pytest.approx((min(low, found.w), max(high, found.w)))
    assert found.low < found.high
