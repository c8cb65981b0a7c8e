"""Meta-Rank's claims on made-up cases that hold or break them."""

import numpy as np
import polars as pl
import pytest
from tests.stats.conftest import build
from tests.stats.test_meta_rank import FACTS, PROTOCOLS, table_of

from heatcheck.stats.case_claims import (
    best_and_worst,
    comes_last,
    decay_faster_under_lerf,
    leads,
    orders_differ,
    steadier_along_training,
    time_rises_steeply,
)
from heatcheck.stats.checkpoints import Checkpoint, Trajectory, along_training
from heatcheck.stats.claims import HELD, NOT_HELD, UNDECIDED
from heatcheck.stats.consistency import meta_agreement
from heatcheck.stats.meta_cases import case_table
from heatcheck.stats.meta_rank import kappa_difference
from heatcheck.stats.ranks import rank_of
from heatcheck.stats.removal_orders import falls_faster_under_lerf
from heatcheck.stats.win_matrix import kappa, win_matrix

MUTANTS = (
    ("stats/meta_rank.py", "values[..., rest].max(axis=-1)", "values[..., rest].min(axis=-1)", "test_who_leads_and_who_comes_last"),
    ("stats/case_claims.py", "(tau.value, tau.high, tau.low)", "(tau.value, tau.low, tau.high)", "test_orders_that_differ"),
    ("stats/case_claims.py", "- np.log2(STEEPLY)", "", "test_a_steep_rise_doubles"),
)  # fmt: skip


def noisy(merits, seed=0, pairs=13, noise=0.3):
    rng = np.random.default_rng(seed)
    return table_of(rank_of((np.array(merits) + noise * rng.normal(size=(2 * pairs, len(merits)))).T).T)


def test_who_leads_and_who_comes_last():
    table = noisy([3, 2.8, 0, -3])
    found = leads(table, ["a", "b"])
    assert found.verdict == HELD and found.effect.n == 13
    k = kappa(*win_matrix(table.ranks))
    assert found.effect.value == pytest.approx(min(k[0], k[1]) - max(k[2], k[3]))
    assert leads(table, ["c", "d"]).verdict == NOT_HELD
    assert comes_last(table, "d").verdict == HELD and comes_last(table, "a").verdict == NOT_HELD
    assert leads(noisy([1, 1, 1, 0]), ["a", "b"]).verdict == UNDECIDED
    assert kappa_difference(noisy([2, 1], pairs=2), ["a"]).low is None
    with pytest.raises(ValueError, match="'z' is not ranked; known: a, b, c, d"):
        leads(table, ["z"])
    with pytest.raises(ValueError, match="no other methods"):
        leads(table, list("abcd"))


def test_orders_that_differ():
    rng = np.random.default_rng(0)
    mixed = table_of(rank_of(rng.normal(size=(5, 26))).T)
    found = orders_differ(meta_agreement(mixed))
    assert found.verdict == HELD and found.effect.low < found.effect.value < found.effect.high
    same = table_of(np.tile([1.0, 2, 3], (26, 1)))
    assert orders_differ(meta_agreement(same)).verdict == NOT_HELD
    with pytest.raises(ValueError, match="both MoRF and LeRF"):
        orders_differ(meta_agreement(table_of(np.tile([1.0, 2, 3], (4, 1)), protocols=("morf",))))


def test_methods_that_decay_faster_under_lerf():
    rng = np.random.default_rng(0)
    fall = rng.normal(0.5, 0.1, 40)
    tables = [
        build({"bad": fall - 0.3, "good": fall + 0.3}, metric="morf"),
        build({"bad": fall + 0.01 * rng.normal(size=40), "good": fall}, metric="lerf"),
    ]
    orders = falls_faster_under_lerf(case_table(pl.concat(tables), FACTS, PROTOCOLS))
    found = decay_faster_under_lerf(orders, "bad")
    assert found.verdict == HELD and found.effect.value == pytest.approx(0.3, abs=0.02)
    assert found.effect.low < found.effect.value < found.effect.high
    assert decay_faster_under_lerf(orders, "good").verdict == NOT_HELD
    with pytest.raises(ValueError, match="known: bad, good"):
        decay_faster_under_lerf(orders, "other")


def test_a_steep_rise_doubles():
    rng = np.random.default_rng(0)
    times = np.stack([np.ones(20), np.full(20, 1.5), np.full(20, 5.0)], axis=1) * rng.uniform(0.9, 1.1, (20, 3))
    assert time_rises_steeply(times, 0, 2, "t").verdict == HELD
    assert time_rises_steeply(times, 0, 1, "t").verdict == NOT_HELD
    assert time_rises_steeply(times, 0, 2, "t").effect.value == pytest.approx(np.log2(5) - 1, abs=0.1)


def test_steadier_along_one_training():
    rng = np.random.default_rng(0)
    steps = [Checkpoint(f"r@{i}", f"{i}", i, float(i)) for i in range(1, 5)]
    scores = {m: rng.normal(x, 0.01, 9) for m, x in zip("abcd", (4, 3, 2, 1), strict=True)}
    table = pl.concat([build(scores, model=c.model, metric="morf") for c in steps])
    along = along_training(table, FACTS, [Trajectory("r", tuple(steps))], resamples=20)
    mixed = meta_agreement(table_of(rank_of(rng.normal(size=(4, 26))).T))
    found = steadier_along_training(along, mixed)
    assert found.verdict == HELD and found.effect.value == pytest.approx(1 - mixed.w.value)
    same = meta_agreement(table_of(np.tile([1.0, 2, 3, 4], (8, 1))))
    assert steadier_along_training(along, same).verdict != HELD
    with pytest.raises(ValueError, match="W is needed"):
        steadier_along_training([], mixed)


def test_best_under_one_order_and_worst_under_the_other():
    table = table_of([[1.0, 2, 3], [3, 2, 1], [1, 2, 3], [1, 2, 3]])
    found = best_and_worst(table, "a")
    assert found.verdict == HELD and found.effect.value == 0.5 and "1 of 2" in found.note
    assert best_and_worst(table, "b").verdict == NOT_HELD
