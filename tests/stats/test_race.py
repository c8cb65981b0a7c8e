"""Races: who leaves when, what is claimed, and that no claim is false more often than promised."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.stats.race import Goal, Race, looks

MUTANTS = (
    (
        "stats/race.py",
        "inside, out = better.sum(axis=1) >= m - k,",
        "inside, out = better.sum(axis=1) >= k,",
        "test_the_best_is_found_early_and_the_worst_leave_first",
    ),
    (
        "stats/race.py",
        "(self.goal.margin >= self.high.T)",
        "(self.goal.margin >= self.low.T)",
        "test_equal_methods_need_all_samples_unless_there_is_a_margin",
    ),
    (
        "stats/race.py",
        "if not n and i not in resting]",
        "if not n]",
        "test_whoever_cannot_win_by_more_than_the_margin_rests_while_others_race_on",
    ),
    (
        "stats/race.py",
        "self.n >= self.population and not self.behind",
        "self.n >= self.population",
        "test_whoever_is_woken_by_the_last_samples_is_compared_on_all",
    ),
    (
        "stats/race.py",
        "if x.shape[1] < self.population:",
        "if True:",
        "test_all_samples_decide_even_against_what_was_believed",
    ),
    (
        "stats/race.py",
        "(1 - self.level) / (size * (size - 1) / 2)",
        "1 - self.level",
        "test_the_level_is_shared_by_all_pairs",
    ),
    (
        "stats/race.py",
        "(sure if certain[a] else",
        "(sure if True else",
        "test_whoever_only_the_margin_settles_is_chosen_and_not_the_best",
    ),
    (
        "stats/race.py",
        "return tuple((inside | out).tolist())",
        "return tuple(inside.tolist())",
        "test_whoever_only_the_margin_settles_is_chosen_and_not_the_best",
    ),
    (
        "stats/race.py",
        "told = self.better | self.better.T | np.eye",
        "told = self.better | self.better.T | self._fine() | np.eye",
        "test_an_order_that_only_the_margin_settles_is_not_certain",
    ),
)


def run(scores, goal="best", margin=None, reach=np.inf, control=False):
    """A race to its end; the last row is the control's if there is one."""
    names = [f"m{i}" for i in range(len(scores) - control)]
    race = Race(tuple(names), Goal.parse(goal, margin), scores.shape[1], reach, "random" if control else None)
    for n in looks(scores.shape[1]):
        if not race.settled:
            race = look(race, scores[:, :n])
        while race.behind and not race.settled:
            race = look(race, scores[:, :n])
    return race


def look(race, scores):
    """Who left or rests is not explained."""
    explained = np.array([name in race.racing for name in race.rows])
    return race.after(np.where(explained[:, None], scores, np.nan))


def spaced(means, n=400, sd=0.1, seed=0):
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, sd, (len(means), n))
    return np.clip(np.array(means)[:, None] + noise - noise.mean(axis=1, keepdims=True), -1, 1)


@pytest.mark.parametrize(
    ("text", "goal"), [("best", Goal(1)), ("top=3", Goal(3)), (" top = 1", Goal(1)), ("order", Goal(None))]
)
def test_goals_are_written_in_three_ways(text, goal):
    assert Goal.parse(text) == goal
    assert Goal.parse(str(goal)) == goal


@pytest.mark.parametrize("text", ["top", "top=0", "top=-1", "worst", "", "best=2"])
def test_other_goals_are_refused(text):
    with pytest.raises(ValueError, match=rf"goal {text!r} should be best, top=K"):
        Goal.parse(text)


@pytest.mark.parametrize("margin", [0.0, -0.1, np.inf, np.nan])
def test_a_margin_is_a_positive_number(margin):
    with pytest.raises(ValueError, match="greater than 0"):
        Goal.parse("best", margin)


def test_a_race_needs_somebody_to_lose():
    with pytest.raises(ValueError, match="at least two methods"):
        Race(("one",), Goal(1), 10)
    with pytest.raises(ValueError, match=r"top=2: only 2 methods race \(a, b\)"):
        Race(("a", "b"), Goal(2), 10)


@given(st.integers(1, 60_000))
def test_looks_grow_and_end_with_all(n):
    found = looks(n)
    assert found[-1] == n and found == sorted(set(found))
    assert all(k % 8 == 0 for k in found[:-1]) and len(found) < 50


@pytest.mark.parametrize("reach", [2.0, np.inf])
def test_the_best_is_found_early_and_the_worst_leave_first(reach):
    race = run(spaced([0.5, 0.46, 0.3, -0.5]), reach=reach)
    assert race.settled and race.chosen == ("m0",) and race.n < 400
    assert race.decided[3] < race.decided[1] <= race.n
    assert race.states() == ["best", "not best", "not best", "not best"]


@pytest.mark.parametrize("reach", [2.0, np.inf])
def test_the_best_few_are_found(reach):
    race = run(spaced([0.46, 0.9, 0.5, 0.5, -0.3]), "top=3", reach=reach)
    assert set(race.chosen) == {"m1", "m2", "m3"} and race.chosen[0] == "m1"
    assert race.decided[1] < race.n, "a method that is certainly among the best is explained no further"
    assert race.states() == ["not top 3", "top 3", "top 3", "top 3", "not top 3"]


def test_the_order_is_found_and_whoever_is_far_from_all_leaves():
    race = run(spaced([0.1, 0.9, 0.5, 0.47]), "order", reach=2.0)
    assert race.chosen == ("m1", "m2", "m3", "m0") and race.n < 400
    assert race.decided[1] < race.decided[2]
    assert race.states() == ["rank 4", "rank 1", "rank 2", "rank 3"]
    assert [row["against"] for row in race.table()] == ["m2", "m3", "m0", "m3"]


def test_equal_methods_need_all_samples_unless_there_is_a_margin():
    scores = spaced([0.5, 0.5, 0.2])
    exact = run(scores, reach=2.0)
    assert exact.n == 400 and exact.decided[2] < 400
    rough = run(scores, margin=0.1, reach=2.0)
    assert rough.n < 400 and rough.chosen[0] in ("m0", "m1")
    assert run(scores, "order", margin=0.1, reach=2.0).n < 400


@pytest.mark.parametrize(
    ("means", "goal", "margin", "states"),
    [
        ([0.5, 0.49, 0.0], "best", 0.1, ["chosen", "left out", "not best"]),
        ([0.9, 0.5, 0.49, 0.0], "top=2", 0.1, ["top 2", "chosen", "left out", "not top 2"]),
        ([0.9, 0.5, 0.49, 0.0], "best", 0.01, ["best", "not best", "not best", "not best"]),
    ],
)
def test_whoever_only_the_margin_settles_is_chosen_and_not_the_best(means, goal, margin, states):
    race = run(spaced(means), goal, margin=margin, reach=2.0)
    assert race.settled and race.n < 400 and race.states() == states
    k = race.goal.best
    told = [all(race.better[a, b] for b in range(k, len(means))) for a in range(k)]
    assert [state == ("best" if k == 1 else f"top {k}") for state in states[:k]] == told


def test_equal_methods_are_chosen_and_left_out_even_after_all_samples():
    scores = spaced([0.5, 0.3, 0.1], n=40)
    race = run(np.concatenate([scores, scores[:1]]), reach=2.0)
    assert race.n == 40 and race.states() == ["chosen", "not best", "not best", "left out"]


def test_an_order_that_only_the_margin_settles_is_not_certain():
    near = run(spaced([0.5, 0.49, 0.0]), "order", margin=0.1, reach=2.0)
    assert near.settled and near.n < 400 and near.certain == (False, False, True)
    assert run(spaced([0.9, 0.4, 0.0]), "order", margin=0.01, reach=2.0).certain == (True,) * 3


def test_whoever_cannot_win_by_more_than_the_margin_rests_while_others_race_on():
    """Means are too close to put anybody out: only the margin tells that m2 need not be chosen, and of m1 later."""
    scores = spaced([0.5, 0.49, 0.46], sd=0.1, n=800)
    race = run(scores, margin=0.03, reach=2.0)
    assert race.settled and race.decided == (race.n,) * 3 and race.chosen == ("m0",)
    assert race.compared[2] < race.compared[1] == race.n < 800, "it rested while the others went on"


def overtaken(n, turn, by):
    """m1 is behind m0 up to a sample and ahead in the end; it is noisy. m2 moves with m0, a little below."""
    rng = np.random.default_rng(0)
    base, other = rng.uniform(-0.05, 0.05, n), rng.uniform(-0.9, 0.9, n)
    for part, ahead in ((slice(turn), -by), (slice(turn, n), 3 * by * n / (n - turn))):
        other[part] += base[part].mean() - other[part].mean() + ahead
    return np.stack([base, other, base - 0.001])


def test_a_resting_method_is_woken_where_another_is_chosen_and_makes_up_for_what_it_missed():
    scores = overtaken(400, turn=192, by=0.01)
    race = Race(("m0", "m1", "m2"), Goal(1, 0.05), 400, 2.0)
    rested = woken = 0
    for n in looks(400):
        if race.settled:
            break
        race = look(race, scores[:, :n])
        rested = rested or (0 if "m2" in race.racing else n)
        if race.behind:
            woken, missed = n, n - race.compared[2]
            assert race.behind == ("m2",) and race.chosen == ("m1",) and missed > 0
            with pytest.raises(ValueError, match="do not go on"):
                race.after(scores[:, : n - 8])
            race = look(race, scores[:, :n])
            assert race.compared[2] == race.seen[1, 2] == n and not race.behind
    assert 0 < rested < woken < 400
    assert race.settled and race.chosen == ("m1",)


def test_whoever_is_woken_by_the_last_samples_is_compared_on_all():
    scores = overtaken(240, turn=192, by=0.002)
    race = run(scores, margin=0.05, reach=2.0)
    assert race.settled and race.n == 240 and race.chosen == ("m1",)
    assert race.low[1, 2] == race.high[1, 2] == pytest.approx(np.mean(scores[1] - scores[2]))


def test_all_samples_decide_even_against_what_was_believed():
    """The first half misleads: what was believed of a pair is taken back, if both are still in the race."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.4, 0.6, (2, 64))
    a[:40] += 0.05
    a[40:] -= 0.2
    scores = np.stack([a, b, b - 0.001])
    race = Race(("a", "b", "c"), Goal(None), 64, reach=1.0).after(scores[:, :40])
    low = np.full((3, 3), -np.inf)
    low[0, 1], low[1, 0] = 0.01, -0.09
    wrong = replace(race, low=low, high=-low.T)
    assert wrong.chosen[:2] == ("a", "b") and wrong.better[0, 1]
    ended = wrong.after(scores)
    assert ended.chosen == ("b", "c", "a")
    assert ended.low[0, 1] == ended.high[0, 1] == pytest.approx(np.mean(a - b))


def test_the_level_is_shared_by_all_pairs():
    assert Race(("a", "b", "c"), Goal(1), 10, control="random").alpha == pytest.approx(0.05 / 6)


def test_random_is_compared_with_and_leaves_when_all_are_told_from_it():
    scores = np.concatenate([spaced([0.6, 0.55, 0.0]), spaced([0.0], seed=1)])
    race = run(scores, control=True, reach=2.0)
    assert race.chosen == ("m0",) and race.rows[-1] == "random"
    assert race.decided[3] < race.n
    assert [row["beats_random"] for row in race.table()] == [True, True, None]


def test_samples_without_a_score_count_for_nothing():
    scores = spaced([0.7, 0.5, 0.45, -0.5])
    gaps = scores.copy()
    gaps[1, ::3] = np.nan
    race = run(gaps, reach=2.0)
    assert race.chosen == ("m0",) and race.n < 400
    assert race.seen[0, 1] == np.isfinite(gaps[1, : race.decided[1]]).sum()


@pytest.mark.parametrize("goal", ["best", "top=2", "order"])
def test_names_have_no_influence(goal):
    scores = spaced([0.5, 0.1, 0.4, 0.3], seed=4)
    order = [2, 0, 3, 1]
    plain, moved = run(scores, goal, reach=2.0), run(scores[order], goal, reach=2.0)
    assert [order[int(m[1:])] for m in moved.chosen] == [int(m[1:]) for m in plain.chosen]
    assert [moved.decided[i] for i in range(4)] == [plain.decided[j] for j in order]


def test_scores_must_go_on_where_they_were():
    race = Race(("a", "b"), Goal(1), 50).after(np.zeros((2, 20)))
    for wrong in (np.zeros((2, 20)), np.zeros((3, 30)), np.zeros((2, 51))):
        with pytest.raises(ValueError, match="do not go on from 2 on 20 of 50"):
            race.after(wrong)


@given(st.integers(0, 10_000), st.sampled_from(["best", "top=2", "order"]), st.sampled_from([None, 0.05]))
@settings(max_examples=10)
def test_claims_hold_in_all_samples(seed, goal, margin):
    """Of all samples' means: whoever is chosen, or stands before another, is not worse by more than the margin."""
    rng = np.random.default_rng(seed)
    scores = np.clip(rng.uniform(-0.5, 0.5, 4)[:, None] + rng.normal(0, 0.15, (4, 160)), -1, 1)
    race = run(scores, goal, margin, reach=2.0)
    means = dict(zip(race.methods, scores.mean(axis=1), strict=True))
    assert race.settled and all(0 < n <= race.n for n in race.decided)
    ranked = [row["method"] for row in race.table()]
    k = race.goal.best
    for i, before in enumerate(ranked):
        for after in ranked[i + 1 :] if k is None else ranked[k:] if i < k else ():
            assert means[after] <= means[before] + (margin or 0) + 1e-12


@pytest.mark.slow
def test_races_claim_falsely_in_at_most_one_run_of_twenty():
    """1,000 races of 5 methods with equal means of lognormal scores, σ = 1."""
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(1000):
        values = rng.lognormal(0, 1, 80)
        scores = np.stack([rng.permutation(values) for _ in range(5)])
        race = Race(tuple("abcde"), Goal(None), 80)
        for n in (32, 56, 72):
            race = race.after(scores[:, :n])
        wrong += bool(race.better.any())
    assert wrong <= 50
