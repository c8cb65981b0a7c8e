"""Consistency over cases: scipy's coefficients pair by pair, known answers, and intervals in a simulation."""

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from scipy.stats import friedmanchisquare, kendalltau, spearmanr
from tests.stats.conftest import build
from tests.stats.test_meta_rank import FACTS, PROTOCOLS, noisy, table_of

from heatcheck.stats.case_factors import by_factor
from heatcheck.stats.consistency import (
    CONTRADICTS,
    MAY_CONTRADICT,
    agreement_tables,
    meta_agreement,
    noisy_interval,
    tau_matrix,
)
from heatcheck.stats.meta_cases import CaseProtocol, CaseTable, MetaCase, case_table
from heatcheck.stats.ranks import rank_of
from heatcheck.stats.removal_orders import FASTER, SLOWER, UNCLEAR, accuracy_by_share, falls_faster_under_lerf

MUTANTS = (
    ("stats/consistency.py", "(first & second).sum(axis=0) / (first | second).sum(axis=0)", "(first & second).any(axis=0) * 1.0", "test_shared_places_agree_in_part"),
    ("stats/consistency.py", "np.delete(np.arange(len(table.cases)), i)", "np.arange(len(table.cases))", "test_a_case_is_compared_with_the_others"),
    ("stats/consistency.py", "(1 + (cases - 1) * end) / cases", "end", "test_intervals_hold_what_was_found"),
    ("stats/consistency.py", "for other in (together, -together):", "for other in (together, together):", "test_unanimity_is_no_certainty"),
    ("stats/consistency.py", "low, high = min(found.low, 2 * value - found.high), max(found.high, 2 * value - found.low)", "low, high = found.low, found.high", "test_an_interval_over_samples_holds_its_mirror_image"),
    ("stats/consistency.py", "high = max(high, 1.0)", "high = high", "test_noise_lowers_agreement_and_its_interval_knows"),
    ("stats/removal_orders.py", "np.mean([share for _, share, _ in rows], axis=0)", "np.array(rows[0][1])", "test_curves_of_as_many_steps_are_averaged_step_by_step"),
    ("stats/case_factors.py", "np.where(same, np.nan, matrix)", "matrix", "test_a_factor_that_divides_the_cases"),
    ("stats/consistency.py", "signs**2 @ known.T", "signs**2 @ np.ones_like(known).T", "test_all_taus_are_scipys_over_common_methods"),
    ("stats/removal_orders.py", "table.scores[i][m] + table.scores[k][m]", "table.scores[i][m] - table.scores[k][m]", "test_who_falls_faster_under_lerf"),
    ("stats/removal_orders.py", "-found.value, -found.high, -found.low", "found.value, found.low, found.high", "test_who_falls_faster_under_lerf"),
)  # fmt: skip


def random_ranks(seed, cases=8, methods=5):
    return rank_of(np.random.default_rng(seed).integers(0, 9, size=(methods, cases)).astype(float)).T


@pytest.mark.parametrize("seed", range(3))
def test_means_over_pairs_are_scipys(seed):
    ranks = random_ranks(seed)
    found = meta_agreement(table_of(ranks))
    pairs = list(combinations(ranks, 2))
    assert found.tau.value == pytest.approx(np.mean([kendalltau(a, b).statistic for a, b in pairs]))
    assert found.rho.value == pytest.approx(np.mean([spearmanr(a, b).statistic for a, b in pairs]))


def test_all_taus_are_scipys_over_common_methods():
    ranks = random_ranks(4)
    ranks[np.random.default_rng(0).random(ranks.shape) < 0.1] = np.nan
    found = tau_matrix(ranks)
    for i, k in combinations(range(len(ranks)), 2):
        both = ~np.isnan(ranks[i] + ranks[k])
        assert both.sum() > 1
        assert found[i, k] == pytest.approx(kendalltau(ranks[i, both], ranks[k, both]).statistic, nan_ok=True)


def test_w_follows_from_friedmans_statistic():
    ranks = random_ranks(5)
    w = friedmanchisquare(*ranks.T).statistic / (len(ranks) * (ranks.shape[1] - 1))
    assert meta_agreement(table_of(ranks)).w.value == pytest.approx(w)


def test_identical_rankings_agree_in_everything():
    found = meta_agreement(table_of(np.tile([2.0, 1, 3.5, 3.5], (6, 1))))
    for each in (found.tau, found.rho, found.w, found.top, found.bottom, found.order_tau):
        assert each.value == pytest.approx(1.0)
    assert not found.contrary


def test_shared_places_agree_in_part():
    found = meta_agreement(table_of([[1.5, 1.5, 3], [1, 2, 3]]))
    assert found.top.value == 0.5 and found.bottom.value == 1


def test_other_labels_change_nothing():
    ranks = random_ranks(2)
    order = [3, 0, 4, 1, 2]
    a, b = (meta_agreement(table_of(r), resamples=50).record() for r in (ranks, ranks[:, order]))
    assert a == pytest.approx(b)


def test_a_case_is_compared_with_the_others():
    ranks = np.array([[1.0, 2, 3, 4]] * 4 + [[4, 3, 2, 1]])
    found = meta_agreement(table_of(ranks, samples=4))
    first = found.by_case[0]
    assert first.verdict == CONTRADICTS and first.tau.value == pytest.approx(-1)
    assert first.case == table_of(ranks, samples=4).cases[-1]
    assert meta_agreement(table_of(ranks)).by_case[0].verdict == MAY_CONTRADICT  # one sample has no interval
    assert [c.case for c in found.contrary] == [first.case]
    assert not meta_agreement(table_of(ranks[[0, 4]])).by_case  # each is the other's rest
    unlike = table_of([[1.0, 2, 3, 4], [4, 3, 2, 1], [2, 1, 4, 3]])
    alone = {c.case: c.tau.value for c in meta_agreement(unlike).by_case}
    assert alone[unlike.cases[0]] == pytest.approx(kendalltau([1, 2, 3, 4], [3, 2, 3, 2]).statistic)


def test_a_case_that_few_samples_turned_round_may_contradict():
    rng = np.random.default_rng(0)
    sure = {m: rng.normal(x, 0.01, 12) for m, x in zip("abcd", (4, 3, 2, 1), strict=True)}
    noisy = {m: rng.normal(0, 5, 12) for m in "abcd"}
    order = np.argsort([-np.mean(v) for v in noisy.values()])
    noisy = {m: noisy["abcd"[i]] for m, i in zip("dcba", order, strict=True)}
    table = pl.concat(
        [build(sure, metric="morf", model="one"), build(sure, metric="morf", model="two"), build(noisy, metric="morf")]
    )
    found = meta_agreement(case_table(table, FACTS, PROTOCOLS), resamples=200)
    assert [(c.case.model, c.verdict) for c in found.contrary] == [("net", MAY_CONTRADICT)]
    assert found.contrary[0].tau.value == pytest.approx(-1) and found.contrary[0].tau.high > 0


def test_morf_and_lerf_of_one_model_are_compared():
    ranks = np.array([[1.0, 2, 3], [3, 2, 1], [1, 2, 3], [1, 2, 3]])
    found = meta_agreement(table_of(ranks))
    assert [(o.model, o.tau.value) for o in found.orders] == [("m0", pytest.approx(-1)), ("m1", pytest.approx(1))]
    assert found.order_tau.value == pytest.approx(0)
    tables = agreement_tables(found)
    assert tables["orders"].height == 2 and tables["cases"].height == 4


def test_methods_that_a_case_lacks_are_not_compared_there():
    ranks = np.array([[1.0, 2, 3, 4], [1, 2, np.nan, 3], [2, 1, np.nan, np.nan]])
    found = meta_agreement(table_of(ranks))
    assert found.tau.value == pytest.approx(np.mean([1, -1, -1]))
    assert found.common == 2 and found.w.value == pytest.approx(1 / 9)


def test_intervals_hold_what_was_found():
    for seed in range(5):
        found = meta_agreement(table_of(random_ranks(seed), samples=4), resamples=100)
        for each in (found.tau, found.rho, found.top, found.bottom, found.w, found.w_samples):
            assert each.low <= each.value <= each.high
        w = (1 + 7 * found.rho.low) / 8
        assert found.w.low == pytest.approx(min(max(w, 0), found.w.value))
    agreed = meta_agreement(table_of(np.tile([1.0, 2, 3, 4], (24, 1))))
    assert agreed.w.low == pytest.approx((1 + 23 * agreed.rho.low) / 24) and agreed.rho.low > 0


def test_agreement_over_samples_is_that_of_every_resample():
    table = noisy(np.random.default_rng(3), (1.0, 0.5, 0.2, 0), cases=3, n=20)
    found = meta_agreement(table, resamples=40)
    drawn = table.resampled_ranks(40, 0)
    pairs = list(combinations(range(3), 2))
    best = drawn.argmin(axis=1)
    taus = [np.mean([kendalltau(drawn[i, :, r], drawn[k, :, r]).statistic for i, k in pairs]) for r in range(40)]
    rhos = [np.mean([spearmanr(drawn[i, :, r], drawn[k, :, r]).statistic for i, k in pairs]) for r in range(40)]
    same = [np.mean([best[i, r] == best[k, r] for i, k in pairs]) for r in range(40)]
    for each, expected in ((found.tau_samples, taus), (found.rho_samples, rhos), (found.top_samples, same)):
        low, high = np.quantile(expected, [0.025, 0.975])
        low, high = min(low, each.value), max(high, each.value)
        assert each.low == pytest.approx(max(min(low, 2 * each.value - high), 0.0 if expected is same else -1.0))
    assert found.tau.low is None and found.tau.value == found.tau_samples.value
    assert found.record()["tau_samples_low"] == found.tau_samples.low


def test_an_interval_over_samples_holds_its_mirror_image():
    drawn = np.linspace(0.1, 0.6, 1001)
    sure = noisy_interval(0.5, drawn, np.ones(9), 0.95)
    assert (sure.low, sure.high) == pytest.approx((0.1125, 0.8875))
    assert noisy_interval(0.5, drawn, drawn, 0.95).high == 1, "cases that rank alike would often agree no better"


def test_many_models_and_data_need_no_interval_over_samples():
    found = meta_agreement(table_of(random_ranks(0), samples=4), resamples=50)
    assert found.tau.low is not None and found.tau_samples.low is None
    assert found.w_samples.low is not None
    alone = meta_agreement(table_of(random_ranks(0, cases=2)))
    assert alone.w.low is None and alone.w_samples.low is None, "one sample says nothing about others"


@pytest.mark.parametrize(("gap", "own", "least"), [(0.1, 0.0, 0.93), (0.5, 1.0, 0.9)])
def test_noise_lowers_agreement_and_its_interval_knows(gap, own, least):
    """The agreement of the true means is within the interval over samples, be the noise large or the cases unlike."""
    rng = np.random.default_rng(5)
    held = []
    for i in range(60):
        merits = gap * np.arange(5) + own * rng.normal(size=(3, 5))
        scores = merits[:, :, None] + rng.normal(size=(3, 5, 12))
        truth, means = rank_of(merits.T).T, scores.mean(axis=2)
        cases = tuple(MetaCase("m", "d", CaseProtocol(f"p{k}", "p"), 12) for k in range(3))
        table = CaseTable(cases, tuple("abcde"), means, rank_of(means.T).T, tuple(scores))
        found = meta_agreement(table, seed=i, resamples=150)
        w = friedmanchisquare(*truth.T).statistic / (3 * 4)
        tau = np.nanmean(tau_matrix(truth))
        pairs = ((found.w_samples, w), (found.tau_samples, tau))
        held.append([c.low - 1e-9 <= true <= c.high + 1e-9 for c, true in pairs])
    assert np.mean(held, axis=0).min() >= least


def test_cases_that_surely_differ_do_not_agree_in_other_samples():
    rng = np.random.default_rng(0)
    one, other = (
        {m: rng.normal(x, 0.1, 12) for m, x in zip("abcd", order, strict=True)}
        for order in ((4, 3, 2, 1), (1, 2, 3, 4))
    )
    table = pl.concat([build(one, metric="morf", model="one"), build(other, metric="morf", model="two")])
    found = meta_agreement(case_table(table, FACTS, PROTOCOLS), resamples=200)
    assert found.w_samples.high == 0 and found.tau_samples.high == found.rho_samples.high == -1
    assert found.top_samples.high == found.bottom_samples.high == 0


def test_a_factor_that_divides_the_cases():
    ranks = np.array([[1.0, 2, 3], [3, 2, 1], [1, 2, 3], [3, 2, 1]])
    table = table_of(ranks)
    found = by_factor(table, "protocol", table.methods)
    assert [(level.level, level.ranks.tolist(), level.w) for level in found.levels] == [
        ("morf", [1, 2, 3], 1),
        ("lerf", [3, 2, 1], 1),
    ]
    assert (found.tau, found.within, found.between) == (-1, 1, -1)
    models = by_factor(table, "model", table.methods)
    assert models.tau is None and models.within == -1 and models.between == 0
    assert models.levels[0].ranks.tolist() == [2, 2, 2] and models.levels[0].w == 0
    assert len(found.rows()) == 6
    with pytest.raises(ValueError, match="factor='colour'"):
        by_factor(table, "colour", table.methods)


def test_who_falls_faster_under_lerf():
    rng = np.random.default_rng(1)
    good, bad, unclear = rng.normal(0.3, 0.1, 40), rng.normal(-0.3, 0.1, 40), rng.normal(0, 0.4, 40)
    fall = rng.normal(0.5, 0.1, 40)
    morf = build({"good": fall + good, "bad": fall + bad, "unclear": fall + unclear}, metric="morf")
    lerf = build({"good": fall, "bad": fall, "unclear": fall}, metric="lerf")
    table = case_table(pl.concat([morf, lerf]), FACTS, PROTOCOLS)
    found = {row["method"]: row for row in falls_faster_under_lerf(table).iter_rows(named=True)}
    assert {m: row["verdict"] for m, row in found.items()} == {"good": SLOWER, "bad": FASTER, "unclear": UNCLEAR}
    assert found["bad"]["difference"] == pytest.approx(bad.mean()) and found["bad"]["n"] == 40
    assert all(row["low"] < row["difference"] < row["high"] for row in found.values())


def test_accuracies_at_each_share():
    curves = pl.DataFrame(
        {
            "sample": ["s1", "s2"],
            "method": ["a", "a"],
            "share": [[0.5, 1.0], [0.5, 1.0]],
            "curve": [[1.0, 0.0], [0.0, 0.0]],
        }
    )
    found = accuracy_by_share(curves, {"s1": 1.0, "s2": 1.0})
    assert found.select("share", "accuracy", "n").rows() == [(0.0, 1.0, 2), (0.5, 0.5, 2), (1.0, 0.0, 2)]
    assert accuracy_by_share(curves.head(1))["low"].to_list() == [None, None]


def test_curves_of_as_many_steps_are_averaged_step_by_step():
    curves = pl.DataFrame(
        {"sample": ["s", "t"], "method": "a", "share": [[0.4, 1.0], [0.6, 1.0]], "curve": [[1.0, 0.0], [0.0, 0.0]]}
    )
    assert accuracy_by_share(curves).select("share", "accuracy", "n").rows() == [(0.5, 0.5, 2), (1.0, 0.0, 2)]
    uneven = pl.concat([curves, pl.DataFrame({"sample": ["u"], "method": "a", "share": [[1.0]], "curve": [[1.0]]})])
    assert accuracy_by_share(uneven)["share"].to_list() == [0.4, 0.6, 1.0]


@pytest.mark.parametrize("pairs", [3, 12])
def test_unanimity_is_no_certainty(pairs):
    """What one more model and data set could do that ranks the other way round is within the intervals."""
    found = meta_agreement(table_of(np.tile([1.0, 2.0, 3.0, 4.0], (2 * pairs, 1))))
    old, new = 2 * pairs * (2 * pairs - 1), 2 * 2 * 2 * pairs
    assert found.tau.value == found.rho.value == found.top.value == 1
    assert found.tau.low == found.rho.low == pytest.approx((old - new) / (old + new))
    assert found.top.low == found.bottom.low == pytest.approx(old / (old + new))
    assert found.tau.high == found.w.high == 1 and found.w.low < 1


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [3, 6, 13])
def test_intervals_of_agreement_cover(pairs):
    """Normal deviations from six merits, two protocols of each pair share half of theirs."""
    rng = np.random.default_rng(pairs)
    merit = np.linspace(1, -1, 6)

    def draw(pairs):
        own = rng.normal(size=(pairs, 1, 6)) + rng.normal(size=(pairs, 2, 6))
        return rank_of((merit + own).reshape(2 * pairs, 6).T).T

    def same_best(ranks):
        best = ranks.argmin(axis=1)
        return np.mean([a == b for i, a in enumerate(best) for k, b in enumerate(best) if i != k])

    truths = [(np.nanmean(tau_matrix(ranks)), same_best(ranks)) for ranks in (draw(pairs) for _ in range(1000))]
    tau, top = np.mean(truths, axis=0)
    found = [meta_agreement(table_of(draw(pairs)), seed=i, resamples=200) for i in range(200)]
    assert np.mean([f.tau.low <= tau <= f.tau.high for f in found]) >= 0.93
    assert np.mean([f.top.low <= top <= f.top.high for f in found]) >= 0.9
