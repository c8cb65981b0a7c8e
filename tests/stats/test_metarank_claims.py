"""Meta-Rank's claims on made-up cases that hold or break them."""

from itertools import permutations

import numpy as np
import polars as pl
import pytest
from scipy.stats import kendalltau, spearmanr
from tests.stats.conftest import build
from tests.stats.test_meta_rank import FACTS, PROTOCOLS, table_of

from heatcheck.stats.certain_agreement import rho_bounds, tau_bounds
from heatcheck.stats.checkpoints import AlongTraining, Coefficient
from heatcheck.stats.claims import HELD, NOT_HELD, UNDECIDED
from heatcheck.stats.consistency import meta_agreement
from heatcheck.stats.evidence import CLAIMS, NOT_TESTABLE, Evidence
from heatcheck.stats.meta_cases import CaseTable, MetaCase, case_table
from heatcheck.stats.meta_rank import kappa_difference
from heatcheck.stats.metarank_claims import PAPER, time_rises_steeply
from heatcheck.stats.ranks import rank_of
from heatcheck.stats.win_matrix import kappa, win_matrix

MUTANTS = (
    ("stats/meta_rank.py", "values[..., rest].max(axis=-1)", "values[..., rest].min(axis=-1)", "test_who_leads_over_many_models"),
    ("stats/metarank_claims.py", "strength[list(ahead)].min() - strength[rest].max()", "strength[list(ahead)].max() - strength[rest].min()", "test_who_leads_on_one_model"),
    ("stats/metarank_claims.py", "limit - max(high, measured), limit - min(low, measured)", "limit - measured, limit - measured", "test_orders_that_differ"),
    ("stats/metarank_claims.py", "errors = 2 if averaged >= FEWEST_PAIRS else len(table.cases)", "errors = 0.1", "test_noise_is_no_disagreement"),
    ("stats/metarank_claims.py", "if orders[i][at, ahead].all() and orders[k][behind, at].all()", "if orders[i][at, ahead].all()", "test_best_under_one_order_and_worst_under_the_other"),
    ("stats/certain_agreement.py", "(first & second.T).sum()", "(first & ~second).sum()", "test_bounds_hold_every_ranking_that_is_possible"),
    ("stats/certain_agreement.py", "np.maximum(high - other_low, other_high - low)", "np.maximum(low - other_low, other_high - high)", "test_bounds_hold_every_ranking_that_is_possible"),
    ("stats/metarank_claims.py", "- np.log2(STEEPLY)", "", "test_a_steep_rise_doubles"),
    ("stats/metarank_claims.py", 'Estimate(-r["difference"], -r["high"], -r["low"], r["n"])', 'Estimate(r["difference"], r["low"], r["high"], r["n"])', "test_methods_that_fall_faster_under_lerf"),
    ("stats/metarank_claims.py", "least[at] == np.nanmax(least)", "least[at] == np.nanmin(least)", "test_best_under_one_order_and_worst_under_the_other"),
    ("stats/metarank_claims.py", "_end(least.low) - _end(w.high)", "_end(least.low) - _end(w.low)", "test_steadier_along_one_training"),
)  # fmt: skip

NAMES = ("IG", "Input⊙Gradient", "LRP", "Saliency", "Deconvolution", "DeepLift")


def evidence(table=None, names=NAMES, **other):
    """Cases whose methods a, b, c … are those of the paper, in this order."""
    named = dict(zip(names, "abcdefghijklm", strict=False))
    return Evidence(pl.DataFrame(), {}, named, cases=table, resamples=200, **other)


def judged(claim, found):
    return next(c for c in CLAIMS[PAPER] if c.id == claim).judged(found)


def noisy(merits, seed=0, pairs=13, noise=0.3):
    rng = np.random.default_rng(seed)
    return table_of(rank_of((np.array(merits) + noise * rng.normal(size=(2 * pairs, len(merits)))).T).T)


def measured(morf, lerf, n=40, models=("net",), noise=0.05):
    """Cases with samples: mean scores of methods a, b, c … under MoRF and LeRF; lower LeRF is better."""
    rng = np.random.default_rng(0)
    tables = [
        build(
            {m: v + noise * rng.normal(size=n) for m, v in zip("abcdef", means, strict=False)},
            metric=metric,
            model=model,
        )
        for model in models
        for metric, means in (("morf", morf), ("lerf", lerf))
    ]
    return case_table(pl.concat(tables), FACTS, PROTOCOLS)


def test_who_leads_over_many_models():
    table = noisy([3, 2.8, 0, -1, -4])
    found = judged("gradients_lead", evidence(table))
    k = kappa(*win_matrix(table.ranks))
    assert (found["verdict"], found["n"]) == (HELD, 13) and "over models and data sets" in found["note"]
    assert found["counted"] == "models and data sets"
    assert found["value"] == pytest.approx(min(k[0], k[1]) - max(k[2:]))
    assert judged("deconvolution_is_last", evidence(table))["verdict"] == HELD
    turned = evidence(table, names=("Deconvolution", "Saliency", "LRP", "IG", "Input⊙Gradient"))
    assert judged("gradients_lead", turned)["verdict"] == NOT_HELD
    assert judged("deconvolution_is_last", turned)["verdict"] == NOT_HELD
    assert judged("gradients_lead", evidence(noisy([1, 1, 1, 0, 0])))["verdict"] == UNDECIDED
    assert kappa_difference(noisy([2, 1], pairs=2), ["a"]).low is None


def test_who_leads_on_one_model():
    falling, rising = (0.8, 0.7, 0.6, 0.5, 0.4), (0.2, 0.3, 0.4, 0.5, 0.6)
    table = measured(falling, rising)
    found, strength = judged("gradients_lead", evidence(table)), kappa(*win_matrix(table.ranks))
    assert found["value"] == pytest.approx(strength[1] - strength[2]) and strength[1] < strength[0]
    assert (found["verdict"], found["n"]) == (HELD, 40) and "over samples" in found["note"]
    assert found["counted"] == "samples"
    assert judged("gradients_lead", evidence(measured(rising, falling)))["verdict"] == NOT_HELD
    assert judged("deconvolution_is_last", evidence(measured(falling, rising)))["verdict"] == HELD


def sampled(merits, noise, n=40, seed=0):
    """Cases with samples, MoRF and LeRF in turn: the true merits of methods in each, [cases, methods], and the noise of a sample."""
    rng = np.random.default_rng(seed)
    merits = np.asarray(merits, dtype=float)
    scores = tuple(row[:, None] + noise * rng.normal(size=(len(row), n)) for row in merits)
    means = np.array([s.mean(axis=1) for s in scores])
    cases = tuple(
        MetaCase(f"m{i // 2}", "d", PROTOCOLS["morf" if i % 2 == 0 else "lerf"], n) for i in range(len(merits))
    )
    return CaseTable(cases, tuple("abcdefgh"[: merits.shape[1]]), means, rank_of(means.T).T, scores)


def test_cases_that_agree_or_not():
    rng = np.random.default_rng(0)
    mixed = judged("cases_disagree", evidence(sampled(rng.normal(size=(26, 6)), 0.02)))
    assert mixed["verdict"] == HELD and mixed["low"] < mixed["value"] < mixed["high"]
    alike = np.tile([3.0, 2, 1], (26, 1))
    same = judged("cases_disagree", evidence(sampled(alike, 0.1)))
    assert (same["verdict"], same["value"], same["n"]) == (NOT_HELD, pytest.approx(-0.5), 13)
    assert judged("cases_disagree", evidence(sampled(alike, 10)))["verdict"] == UNDECIDED
    two = judged("cases_disagree", evidence(measured((0.8, 0.6, 0.4), (0.2, 0.3, 0.4), models=("a", "b"))))
    assert two["verdict"] == NOT_HELD and "over samples" in two["note"] and two["n"] == 40


def test_orders_that_differ():
    rng = np.random.default_rng(0)
    mixed = judged("protocols_disagree", evidence(sampled(rng.normal(size=(26, 5)), 0.02)))
    assert mixed["verdict"] == HELD and mixed["low"] < mixed["value"] < mixed["high"]
    for pairs, verdict in ((13, UNDECIDED), (40, NOT_HELD)):  # one more pair may disagree fully, with 1 − τ = 2
        same = judged("protocols_disagree", evidence(sampled(np.tile([3.0, 2, 1], (2 * pairs, 1)), 0.1)))
        assert same["verdict"] == verdict and same["high"] == pytest.approx(2 / (pairs + 1) - 0.05)
    alone = judged("protocols_disagree", evidence(measured((0.8, 0.6, 0.4), (0.4, 0.3, 0.2))))
    assert alone["verdict"] == HELD and alone["value"] == pytest.approx(2 - 0.05) and alone["n"] == 40


@pytest.mark.parametrize(
    ("claim", "models", "n", "gap"),
    [
        ("protocols_disagree", 1, 30, 0.1),
        *(
            pytest.param(*row, marks=pytest.mark.slow)
            for row in (
                ("protocols_disagree", 1, 30, 0.5),
                ("protocols_disagree", 12, 10, 0.1),
                ("protocols_disagree", 12, 30, 0.3),
                ("cases_disagree", 12, 10, 0.1),
                ("cases_disagree", 12, 30, 0.3),
            )
        ),
    ],
)
def test_noise_is_no_disagreement(claim, models, n, gap):
    """All true rankings are the same, the measured ones are not: six methods, normal scores with sd 1."""
    merits = np.tile(gap * np.arange(6.0), (2 * models, 1))
    found = [judged(claim, evidence(sampled(merits, 1.0, n, seed))) for seed in range(40)]
    assert np.mean([c["verdict"] == HELD for c in found]) <= 0.05
    if gap == 0.1:
        assert np.mean([c["value"] > 0 for c in found]) > 0.9, "as measured, they disagree"


def all_rankings(better):
    """Every ranking that what is certain allows, as ranks."""
    n = len(better)
    for ranks in map(np.array, permutations(range(n))):
        if not any(better[a, b] and ranks[a] > ranks[b] for a in range(n) for b in range(n)):
            yield ranks


def test_bounds_hold_every_ranking_that_is_possible():
    """Against brute force: τ's bounds can be reached pair by pair, and no possible ranking leaves those of ρ."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        first, second = (certain(rng, 4) for _ in range(2))
        rankings = [(a, b) for a in all_rankings(first) for b in all_rankings(second)]
        for bounds, measure in ((tau_bounds, kendalltau), (rho_bounds, spearmanr)):
            low, high = bounds(first, second)
            found = [measure(a, b).statistic for a, b in rankings]
            assert low <= min(found) + 1e-9 and max(found) - 1e-9 <= high
    full = np.triu(np.ones((5, 5), dtype=bool), k=1)
    for bounds in (tau_bounds, rho_bounds):
        assert bounds(full, full) == (1, 1) and bounds(full, full.T) == (-1, -1)


def certain(rng, n):
    """Part of a random order, all that follows from it included."""
    rank = rng.permutation(n)
    cut = rng.uniform(0.5, n)
    return rank[None, :] - rank[:, None] >= cut


def test_methods_that_fall_faster_under_lerf():
    def found(a, b):
        return judged("falls_faster_under_lerf", evidence(measured(a, b, noise=0.02)))

    held = found((0.2, 0.3, 0.9), (0.5, 0.5, 0.5))
    assert held["verdict"] == HELD and held["value"] == pytest.approx(0.2, abs=0.02) and "least for b" in held["note"]
    assert {row["method"] for row in held["parts"]} == {"a", "b"}
    assert found((0.2, 0.9, 0.1), (0.5, 0.5, 0.5))["verdict"] == NOT_HELD


def test_best_under_one_order_and_worst_under_the_other():
    merits = [[3.0, 2, 1], [1, 2, 3], [2, 3, 1], [2, 3, 1]]
    found = judged("lrp_first_and_last", evidence(sampled(merits, 0.1), names=("LRP",)))
    assert (found["verdict"], found["value"]) == (HELD, 0.5) and "1 of 2" in found["note"]
    assert [part["verdict"] for part in found["parts"]] == [HELD, NOT_HELD]
    assert judged("lrp_first_and_last", evidence(sampled(merits, 0.1), names=("IG", "LRP")))["verdict"] == NOT_HELD
    unsure = judged("lrp_first_and_last", evidence(sampled(merits, 20), names=("LRP",)))
    assert unsure["verdict"] == UNDECIDED and "in 0 for certain" in unsure["note"]
    half = judged("lrp_first_and_last", evidence(sampled([[3.0, 2, 1], [2, 2, 2]], 0.1), names=("LRP",)))
    assert half["verdict"] == UNDECIDED, "it leads under MoRF, and under LeRF nothing is certain"


def along(w, low, high):
    return AlongTraining(
        "t", "d", "sds", (), (), np.empty(0), np.empty(0), (), (), (), (), Coefficient(w, low, high), 50
    )


def test_checkpoints_agree_by_their_lowest_w():
    held = evidence(along=[along(0.95, 0.9, 0.97), along(0.9, 0.8, 0.95)])
    assert judged("checkpoints_agree", held)["verdict"] == HELD
    low = evidence(along=[along(0.95, 0.9, 0.97), along(0.3, 0.2, 0.4)])
    assert judged("checkpoints_agree", low)["verdict"] == NOT_HELD


def test_steadier_along_one_training():
    rng = np.random.default_rng(0)
    mixed = table_of(rank_of(rng.normal(size=(4, 26))).T)
    steady = [along(0.99, 0.97, 1.0), along(0.98, 0.95, 1.0)]
    found = judged("steadier_along_training", evidence(mixed, along=steady))
    w = meta_agreement(mixed, resamples=200).w
    assert found["verdict"] == HELD and found["value"] == pytest.approx(0.98 - w.value)
    assert found["low"] == pytest.approx(0.95 - w.high) and found["high"] == pytest.approx(1 - w.low)
    same = table_of(np.tile([1.0, 2, 3, 4], (8, 1)))
    assert judged("steadier_along_training", evidence(same, along=steady))["verdict"] != HELD


def test_a_steep_rise_doubles():
    rng = np.random.default_rng(0)
    times = np.stack([np.ones(20), np.full(20, 1.5), np.full(20, 5.0)], axis=1) * rng.uniform(0.9, 1.1, (20, 3))
    assert time_rises_steeply(times, 0, 2, "t").verdict == HELD
    assert time_rises_steeply(times, 0, 1, "t").verdict == NOT_HELD
    assert time_rises_steeply(times, 0, 2, "t").effect.value == pytest.approx(np.log2(5) - 1, abs=0.1)


@pytest.mark.parametrize(
    ("claim", "found", "why"),
    [
        ("gradients_lead", evidence(), "neither MoRF nor LeRF"),
        ("gradients_lead", evidence(noisy([1, 2, 3]), names=("IG",)), "Input⊙Gradient was not run"),
        ("gradients_lead", evidence(noisy([1, 2]), names=("IG", "Input⊙Gradient")), "nothing beside"),
        ("lrp_first_and_last", evidence(noisy([1, 2]), names=("IG", "b", "LRP")), "no case ranks LRP"),
        ("protocols_disagree", evidence(table_of([[1, 2], [2, 1]], protocols=("morf",))), "under MoRF and LeRF"),
        ("falls_faster_under_lerf", evidence(noisy([1, 2]), names=("LRP",)), "it needs one of IG"),
        ("cases_disagree", evidence(measured((0.8, 0.6, 0.4), (0.2, 0.3, 0.4))), "on two models or data sets"),
        ("steadier_along_training", evidence(noisy([1, 2])), "three checkpoints"),
        ("road_takes_longer", evidence(), "does not keep the time"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(claim, found, why):
    row = judged(claim, found)
    assert row["verdict"] == NOT_TESTABLE and why in row["note"]
