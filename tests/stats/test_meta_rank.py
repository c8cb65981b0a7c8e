"""Cases, and the ranking over them: what is compared with what, known answers, and intervals in simulations."""

import numpy as np
import polars as pl
import pytest
from tests.stats.conftest import build

from heatcheck.stats import Facts, rank_of
from heatcheck.stats.meta_cases import CaseProtocol, CaseTable, MetaCase, accuracy_areas, case_table
from heatcheck.stats.meta_rank import FEWEST_PAIRS, meta_rank
from heatcheck.stats.win_matrix import kappa, win_matrix

MUTANTS = (
    ("stats/meta_cases.py", "_ranked(group.sign * group.means[rows], table[own])", "_ranked(group.means[rows], table[own])", "test_cases_rank_by_the_metrics_direction"),
    ("stats/meta_cases.py", "seed + 7919 * data.index(case.data)", "seed + 7919 * len(found)", "test_cases_on_one_data_set_share_their_resamples"),
    ("stats/meta_cases.py", '100 * (pl.col("correct") - pl.col("score"))', '100 * pl.col("score")', "test_areas_are_those_under_the_curve"),
    ("stats/meta_rank.py", "pair_counts(len(table.pairs), resamples, seed)[:, table.pair_of]", "pair_counts(len(table.cases), resamples, seed)", "test_pairs_are_drawn_whole"),
    ("stats/meta_rank.py", "there / there.sum(axis=1, keepdims=True)", "there * 1.0", "test_places_are_shared"),
    ("stats/meta_cases.py", "stretch(case.n, level) * (means - centre)", "(means - centre)", "test_resampled_means_of_few_samples_are_stretched"),
    ("stats/meta_rank.py", "    p = holm(np.minimum(1.0, 2 * (against + 1) / (many + 1)))", "    p = np.minimum(1.0, (against + 1) / (many + 1))", "test_noise_seldom_tells_methods_apart"),
    ("stats/meta_rank.py", "if too_few(table.samples, count, level):", "if False:", "test_few_pairs_are_tied_over_samples"),
    ("stats/meta_rank.py", "    for other in others or []:\n", "    for other in []:\n", "test_agreement_of_all_is_no_certainty"),
)  # fmt: skip

FACTS = Facts.of(
    {
        "methods": [{"name": "random", "id": "random", "control": True}],
        "metrics": [{"name": "morf", "better": "higher"}, {"name": "lerf", "better": "lower"}],
    }
)
PROTOCOLS = {
    "morf": CaseProtocol("morf", "morf", "morf", "curve"),
    "lerf": CaseProtocol("lerf", "lerf", "lerf", "curve"),
}


def table_of(ranks, protocols=("morf", "lerf"), samples=None):
    """A case table with given ranks; every model has all protocols in turn."""
    ranks = np.asarray(ranks, dtype=float)
    cases = tuple(
        MetaCase(f"m{i // len(protocols)}", "d", PROTOCOLS[protocols[i % len(protocols)]], 1 if samples is None else 4)
        for i in range(len(ranks))
    )
    scores = tuple(-row[:, None] + np.zeros(cases[0].n) for row in ranks)
    methods = tuple("abcdefghijklm"[: ranks.shape[1]])
    return CaseTable(cases, methods, -ranks, ranks, scores)


def test_cases_rank_by_the_metrics_direction():
    morf = build({"a": [0.5, 0.7], "b": [0.1, 0.2], "random": [9, 9]}, metric="morf")
    lerf = build({"a": [0.5, 0.7], "b": [0.1, 0.2], "random": [9, 9]}, metric="lerf")
    found = case_table(pl.concat([morf, lerf]), FACTS, PROTOCOLS)
    assert [case.protocol.name for case in found.cases] == ["lerf", "morf"]
    assert found.methods == ("a", "b")
    assert found.ranks.tolist() == [[2, 1], [1, 2]]
    assert found.means.tolist() == [[0.6, pytest.approx(0.15)]] * 2
    assert found.pairs == (("net", "pics"),)


def test_missing_methods_are_told():
    one = build({"a": [1, 2], "b": [2, 3], "c": [3, 4]}, metric="morf", model="one")
    two = build({"a": [1, 2], "b": [2, 3], "c": [None, None]}, metric="morf", model="two", status="skipped: no ReLU")
    three = build({"a": [1, 2], "b": [3, 3]}, metric="morf", model="three")
    alone = build({"a": [1, 2], "b": [None, None]}, metric="morf", model="alone")
    found = case_table(pl.concat([one, two, three, alone]), FACTS, PROTOCOLS)
    assert [case.model for case in found.cases] == ["one", "three", "two"]
    assert [(case.model, method, reason) for case, method, reason in found.missing] == [
        ("three", "c", "missing: no row"),
        ("two", "c", "skipped: no ReLU"),
    ]
    assert [(case.model, why) for case, why in found.left_out] == [
        ("alone", "it ranks a alone; of the others: undefined: constant map")
    ]
    assert not found.complete and found.common == (0, 1)
    board = meta_rank(found).table()
    assert dict(zip(board["method"], board["cases"], strict=True)) == {"a": 3, "b": 3, "c": 1}


def test_no_ranking_is_an_error_that_says_why():
    alone = build({"a": [1, 2], "b": [None, None]}, metric="morf")
    with pytest.raises(ValueError, match=r"net · pics · morf: it ranks a alone"):
        case_table(alone, FACTS, PROTOCOLS)


def test_methods_that_never_meet_are_told():
    one = build({"a": [1, 2], "b": [2, 3]}, metric="morf", model="one")
    two = build({"c": [1, 2], "d": [2, 3]}, metric="morf", model="two")
    with pytest.raises(ValueError, match=r"a, b \| c, d"):
        meta_rank(case_table(pl.concat([one, two]), FACTS, PROTOCOLS))


def test_areas_are_those_under_the_curve():
    curve = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]])  # of three samples, one of them wrong when whole
    fall = [np.trapezoid(c[0] - c, dx=1 / 3) for c in curve]
    scores = build({"a": fall}, metric="morf")
    samples = pl.DataFrame(
        {"model": "net", "data": "pics", "sample": scores["sample"], "correct": [c[0] == 1 for c in curve]}
    )
    found = accuracy_areas(scores, samples, ["morf"])["score"].to_list()
    assert found == pytest.approx([100 * np.trapezoid(c, dx=1 / 3) for c in curve])
    assert accuracy_areas(scores, samples, ["lerf"])["score"].to_list() == scores["score"].to_list()


def test_the_board_is_that_of_its_win_matrix():
    ranks = rank_of(np.random.default_rng(0).normal(size=(5, 8))).T
    found = meta_rank(table_of(ranks))
    assert list(found.kappa) == sorted(found.kappa, key=lambda k: -k.value)
    order = ["abcde".index(m) for m in found.methods]
    assert [k.value for k in found.kappa] == pytest.approx(kappa(*win_matrix(ranks))[order].tolist())
    assert found.mean_rank == pytest.approx(ranks[:, order].mean(axis=0))
    board = found.table()
    assert board["mean_rank"].sum() == pytest.approx(5 * 6 / 2)
    assert sorted(board["kemeny"]) == [1, 2, 3, 4, 5]
    wins = found.win_table()
    assert wins.height == 20 and (wins["cases"] == 8).all()


def test_places_are_shared():
    found = meta_rank(table_of([[1.5, 1.5, 3], [1, 2.5, 2.5], [1, 2, 3]]))
    board = {row["method"]: row for row in found.table().iter_rows(named=True)}
    assert [board[m]["first"] for m in "abc"] == [2.5, 0.5, 0]
    assert [board[m]["last"] for m in "abc"] == [0, 0.5, 2.5]


def test_few_pairs_have_no_interval_over_them():
    ranks = np.tile([1.0, 2, 3], (2 * FEWEST_PAIRS, 1))
    assert meta_rank(table_of(ranks)).kappa[0].low is not None
    assert meta_rank(table_of(ranks[:-2])).kappa[0].low is None


def test_agreement_of_all_is_no_certainty():
    board = meta_rank(table_of(np.tile([1.0, 2, 3], (8, 1))))
    assert all(k.low < k.value < k.high for found in (board.kappa, board.strength) for k in found)


def test_pairs_are_drawn_whole():
    """Protocols that agree within a pair add nothing: intervals are about those of one protocol, not narrower by √2."""
    ranks = rank_of(np.random.default_rng(3).normal(size=(4, 12))).T
    alone = meta_rank(table_of(ranks, protocols=("morf",)), resamples=400)
    twice = meta_rank(table_of(np.repeat(ranks, 2, axis=0)), resamples=400)
    lengths = [np.mean([k.high - k.low for k in sorted(found.strength, key=str)]) for found in (alone, twice)]
    assert lengths[1] > 0.9 * lengths[0]


def test_checkpoints_of_one_training_are_drawn_together():
    scores = {"a": [1, 2], "b": [2, 3]}
    table = pl.concat([build(scores, model=m, metric="morf") for m in ("r@1", "r@2", "r@3", "other")])
    found = case_table(table, FACTS, PROTOCOLS, trainings={f"r@{i}": "r" for i in (1, 2, 3)})
    assert found.pairs == (("other", "pics"), ("r", "pics"))
    assert found.pair_of.tolist() == [0, 1, 1, 1]
    assert meta_rank(found).kappa[0].low is None


def test_cases_on_one_data_set_share_their_resamples():
    scores = {"a": np.arange(9.0), "b": np.arange(9.0)[::-1].copy()}
    both = [build(scores, model=m, data=d, metric="morf") for m, d in (("m", "d"), ("n", "d"), ("m", "e"))]
    drawn = case_table(pl.concat(both), FACTS, PROTOCOLS).resampled_ranks(50, 0)
    same = {case: drawn[i] for i, case in enumerate(("md", "me", "nd"))}
    assert (same["md"] == same["nd"]).all() and not (same["md"] == same["me"]).all()


def test_a_close_second_is_tied_and_a_far_last_is_not():
    rng = np.random.default_rng(0)
    ranks = rank_of((rng.normal(size=(26, 3)) * 0.5 + [1.0, 0.98, -3.0]).T).T
    found = meta_rank(table_of(ranks))
    assert found.tied[1] and not found.tied[2] and found.methods[2] == "c"


def test_methods_with_the_same_kappa_share_a_place():
    found = meta_rank(table_of(np.array([[1.0, 2.0, 3.0], [2.0, 1.0, 3.0]])))
    assert found.places == (1, 1, 3) and found.leaders == ("a", "b")
    assert found.tied == (None, None, None), "one pair of model and data set does not tell"


def noisy(rng, merits, cases, n, shared=0.5):
    """A case table of one model and data set: normal scores around merits, of which protocols share a part of their noise."""
    noise = np.sqrt(1 - shared) * rng.normal(size=(cases, len(merits), n)) + np.sqrt(shared) * rng.normal(
        size=(1, len(merits), n)
    )
    scores = np.asarray(merits)[:, None] + noise
    means = scores.mean(axis=2)
    made = tuple(MetaCase("m", "d", CaseProtocol(f"p{i}", "p"), n) for i in range(cases))
    return CaseTable(made, tuple("abcdefgh"[: len(merits)]), means, rank_of(means.T).T, tuple(scores))


def test_few_pairs_are_tied_over_samples():
    rng = np.random.default_rng(0)
    sure = meta_rank(noisy(rng, (9, 8.9, 1), cases=3, n=12))
    assert sure.tied_over == "samples" and sure.tied == (False, True, False) and sure.methods[2] == "c"
    few = meta_rank(noisy(rng, (9, 5, 1), cases=3, n=5))
    assert few.tied == (False, True, True), "five samples tell nothing apart, however far"
    assert few.table()["tied_over"].to_list() == ["samples"] * 3
    many = meta_rank(table_of(np.tile([1.0, 2, 3], (2 * FEWEST_PAIRS, 1)), samples=4))
    assert many.tied_over == "models and data"
    alone = meta_rank(table_of([[1, 2, 3]]))
    assert alone.tied_over == "" and alone.tied == (None, None, None)


def test_resampled_means_of_few_samples_are_stretched():
    """A difference of two standard errors in resamples is turned round about as often as Student's t says."""
    x = np.array([-1.0, 1, -1, 1, -1, 1])
    x = (
        x / x.std(ddof=1) * np.sqrt(6) + 2.571
    )  # the mean is at the two-sided 5 % point of Student's t with five freedoms
    scores = np.stack([x, np.zeros(6)])
    case = MetaCase("m", "d", PROTOCOLS["morf"], 6)
    table = CaseTable((case,), ("a", "b"), scores.mean(axis=1)[None], np.array([[1.0, 2]]), (scores,))
    turned = (table.resampled_ranks(20000, 0)[0, 0] > 1).mean()
    assert turned == pytest.approx(0.025, abs=0.015)


def test_data_sets_have_their_samples_once():
    cases = [
        MetaCase("m", "d", PROTOCOLS["morf"], 6),
        MetaCase("m", "d", PROTOCOLS["lerf"], 6),
        MetaCase("m", "part", PROTOCOLS["morf"], 4, source="d"),
        MetaCase("m", "e", PROTOCOLS["morf"], 5),
    ]
    ranks = np.tile([1.0, 2], (4, 1))
    assert CaseTable(tuple(cases), ("a", "b"), -ranks, ranks, ()).samples == 11


@pytest.mark.parametrize(("cases", "n"), [(1, 12), (3, 8)])
def test_noise_seldom_tells_methods_apart(cases, n):
    """Four equal methods: in at most one of twenty tables any is told from the first, which was chosen for its κ."""
    rng = np.random.default_rng(cases)
    found = [meta_rank(noisy(rng, [0] * 4, cases, n), seed=i, resamples=300).tied[1:] for i in range(100)]
    assert np.mean([not all(tied) for tied in found]) <= 0.08
    clear = [meta_rank(noisy(rng, (4, 0, 0, 0), cases, n), seed=i, resamples=300).tied[1:] for i in range(20)]
    assert np.mean([not any(tied) for tied in clear]) >= 0.9


def coverage(draw, pairs, replications, resamples=200):
    """How often the intervals of κ hold the κ of very many cases, over methods and replications."""
    rng = np.random.default_rng([pairs, 1])
    many = draw(rng, 20000)
    points, cases = (sum(x) for x in zip(*(win_matrix(part) for part in np.array_split(many, 20)), strict=True))
    truth = kappa(points, cases)
    held = []
    for i in range(replications):
        found = meta_rank(table_of(draw(rng, pairs)), seed=i, resamples=resamples)
        values = dict(zip(found.methods, found.kappa, strict=True))
        held += [values[m].low <= truth[k] <= values[m].high for k, m in enumerate("abcdef")]
    return float(np.mean(held))


def normal_pairs(rng, pairs):
    """Two protocols of each pair, which share half of its normal deviation from the merits of six methods."""
    merit = np.linspace(0.8, -0.8, 6)
    own = rng.normal(size=(pairs, 1, 6)) + rng.normal(size=(pairs, 2, 6))
    return rank_of((merit + own).reshape(2 * pairs, 6).T).T


def lognormal_pairs(rng, pairs):
    """The same, with lognormal deviations, σ = 1."""
    merit = np.linspace(0.8, -0.8, 6)
    own = rng.lognormal(size=(pairs, 1, 6)) + rng.lognormal(size=(pairs, 2, 6))
    return rank_of((merit + own).reshape(2 * pairs, 6).T).T


@pytest.mark.slow
@pytest.mark.parametrize("draw", [normal_pairs, lognormal_pairs])
@pytest.mark.parametrize(("pairs", "least"), [(6, 0.88), (13, 0.91)])
def test_intervals_over_pairs_cover(draw, pairs, least):
    assert coverage(draw, pairs, replications=120) >= least
