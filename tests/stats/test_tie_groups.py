"""Compact letters, against all groups that could be, and by simulation: equal methods share a letter."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.stats.ranks import significantly_better
from heatcheck.stats.tie_groups import compact_letters

MUTANTS = (
    (
        "stats/tie_groups.py",
        "if not any(group < other for other in unique)",
        "",
        "test_groups_are_the_largest_without_a_difference",
    ),
    (
        "stats/tie_groups.py",
        "for one in (int(a), int(b))",
        "for one in (int(a),)",
        "test_letters_are_shared_by_whom_no_test_tells_apart",
    ),
    (
        "stats/tie_groups.py",
        "sorted(groups, key=sorted)",
        "sorted(groups, key=sorted, reverse=True)",
        "test_the_first_has_the_first_letter",
    ),
)


@st.composite
def relations(draw):
    n = draw(st.integers(1, 6))
    found = np.zeros((n, n), dtype=bool)
    for a, b in combinations(range(n), 2):
        found[a, b] = found[b, a] = draw(st.booleans())
    return found


def largest_groups(different):
    """Every set of methods of which no two differ and to which nobody can be added, by trying all sets."""
    n = len(different)
    alike = [
        set(some)
        for size in range(1, n + 1)
        for some in combinations(range(n), size)
        if not any(different[a, b] for a, b in combinations(some, 2))
    ]
    return [group for group in alike if not any(group < other for other in alike)]


@given(relations())
def test_groups_are_the_largest_without_a_difference(different):
    letters = compact_letters(different)
    names = sorted(set("".join(letters)))
    found = [{i for i, own in enumerate(letters) if name in own} for name in names]
    expected = largest_groups(different)
    assert len(found) == len(expected) and all(group in expected for group in found)


@given(relations())
def test_letters_are_shared_by_whom_no_test_tells_apart(different):
    letters = compact_letters(different)
    for a, b in combinations(range(len(letters)), 2):
        assert bool(set(letters[a]) & set(letters[b])) == (not different[a, b])


def test_the_first_has_the_first_letter():
    chain = np.abs(np.subtract.outer(range(5), range(5))) > 1
    assert compact_letters(chain) == ["a", "ab", "bc", "cd", "d"]
    assert compact_letters(np.zeros((0, 0), dtype=bool)) == []


def test_after_z_letters_are_set_apart():
    everyone = ~np.eye(30, dtype=bool)
    letters = compact_letters(everyone)
    assert letters[:2] == ["a", "b"] and letters[26:28] == ["aa", "ab"] and len(set(letters)) == 30


@pytest.mark.parametrize("wrong", [np.ones((2, 2)), np.array([[0, 1], [0, 0]]), np.zeros((2, 3))])
def test_other_matrices_are_refused(wrong):
    with pytest.raises(ValueError, match="symmetric"):
        compact_letters(wrong.astype(bool))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal", "beta", "spearman", "lognormal"])
def test_equal_methods_share_a_letter(name):
    """300 runs of six equal methods on 28 samples: in at most 5 % (and the error of 300 runs) two are told apart."""
    rng = np.random.default_rng(4)
    draw = {
        "normal": lambda: rng.normal(size=(6, 28)),
        "beta": lambda: rng.beta(2, 5, (6, 28)),
        "lognormal": lambda: rng.lognormal(0, 1, (6, 28)),
        "spearman": lambda: 1 - 6 * ((rng.random((6, 28, 16)).argsort(-1) - np.arange(16)) ** 2).sum(-1) / (16 * 255),
    }[name]
    apart = 0
    for _ in range(300):
        better = significantly_better(draw(), seed=0, resamples=400, level=0.95)
        apart += len(set(compact_letters(better | better.T))) > 1
    assert apart <= 300 * (0.05 + 2 * np.sqrt(0.05 * 0.95 / 300))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["beta", "exponential", "one of six lognormal"])
def test_equal_means_of_other_shapes_share_a_letter(name):
    """300 runs on 28 samples: differences are skewed, so that rare values that decide a mean are often not among them."""
    rng = np.random.default_rng(5)
    steady = lambda mean: mean + rng.normal(0, 0.02, 28)  # noqa: E731
    draw = {
        "beta": lambda: [rng.beta(5, 1, 28), steady(5 / 6)],
        "exponential": lambda: [rng.exponential(1, 28), steady(1.0)],
        "one of six lognormal": lambda: [rng.lognormal(0, 1, 28), *rng.normal(np.exp(0.5), 0.3, (5, 28))],
    }[name]
    apart = sum(significantly_better(np.array(draw()), seed=0, resamples=400, level=0.95).any() for _ in range(300))
    assert apart <= 300 * (0.05 + 2 * np.sqrt(0.05 * 0.95 / 300))
