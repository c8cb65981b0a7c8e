"""Rankings along a training: known answers, scipy's coefficients, and what is compared with what."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau, spearmanr
from tests.stats.conftest import build

from heatcheck.stats import Facts, along_training, kendall_tau, kendall_w, rank_of, spearman, trajectories
from heatcheck.stats.checkpoints import resampled_spearman, resampled_tau

MUTANTS = (
    (
        "stats/checkpoints.py",
        "correlations([last] * len(checkpoints))",
        "correlations([0] * len(checkpoints))",
        "test_the_last_and_the_one_before",
    ),
    (
        "stats/checkpoints.py",
        "correlations(range(-1, last))",
        "correlations(range(len(checkpoints)))",
        "test_the_last_and_the_one_before",
    ),
    (
        "stats/checkpoints.py",
        "key=lambda c: (c.step, c.name)",
        "key=lambda c: c.name",
        "test_checkpoints_are_in_the_order_of_training",
    ),
    ("stats/checkpoints.py", "if not facts.is_control(m)", "if m", "test_controls_are_left_out"),
    (
        "stats/checkpoints.py",
        "group.sign * group.means[at]",
        "group.means[at]",
        "test_lower_is_better_where_the_metric_says_so",
    ),
    (
        "stats/checkpoints.py",
        'filter(pl.col("of") == models)',
        'filter(pl.col("of") > 0)',
        "test_only_samples_of_all_checkpoints_count",
    ),
    (
        "stats/checkpoints.py",
        "(da != 0).sum(axis=0) * (db != 0).sum(axis=0)",
        "(da != 0).sum(axis=0) ** 2",
        "test_resampled_coefficients_are_those_of_every_column",
    ),
    (
        "stats/checkpoints.py",
        "resampled_means(s, resamples, seed)",
        "resampled_means(s, resamples, seed + i)",
        "test_resamples_are_the_same_at_all_checkpoints",
    ),
)

FACTS = Facts.of(
    {
        "metrics": [
            {"name": "sds", "better": "higher"},
            {"name": "morf", "better": "lower"},
            {"name": "rare", "better": "higher"},
            {"name": "alone", "better": "higher"},
        ],
        "methods": [{"name": "random", "control": True}],
    }
)


def model(name, checkpoint, step, seed=0, accuracy=0.5):
    trained = {
        "recipe": "plain",
        "variant": "",
        "settings": {"seed": seed},
        "parent": {"name": "net"},
        "data": "d",
        "held_out": "h",
        "samples": 8,
    }
    reached = None if step is None else {"step": step, "epoch": step / 10, "accuracy": accuracy}
    return {"name": name, "trained": {**trained, "checkpoint": checkpoint, "reached": reached}}


def run(means, n=6, metric="sds", noise=0.0):
    """Scores of methods a, b, c … at checkpoints 01, 02 … with given means; and the trainings of that run."""
    rng = np.random.default_rng(0)
    models = [model(f"trained:t@{i + 1:02d}", f"{i + 1:02d}", 10 * (i + 1)) for i in range(len(means))]
    shift = rng.normal(size=n)
    tables = [
        build(
            {chr(97 + k): m + 1e-3 * shift + noise * rng.normal(size=n) for k, m in enumerate(row)},
            model=models[i]["name"],
            metric=metric,
        )
        for i, row in enumerate(means)
    ]
    return pl.concat(tables), trajectories({"models": models})


def only(found):
    assert len(found) == 1
    return found[0]


class TestTrajectories:
    def test_checkpoints_are_in_the_order_of_training(self):
        models = [model("trained:t@b", "b", 5), model("trained:t@a", "a", 20), model("trained:t@c", "c", 10)]
        (training,) = trajectories({"models": models})
        assert training.name == "trained:t"
        assert [c.name for c in training.checkpoints] == ["b", "c", "a"]
        assert [c.epoch for c in training.checkpoints] == [0.5, 1.0, 2.0]

    def test_two_trainings_are_two_and_fewer_than_three_checkpoints_are_none(self):
        of = [model(f"trained:{s}@{i}", str(i), i, seed=s) for s in (1, 2, 3) for i in range(1, 4 if s < 3 else 3)]
        others = [{"name": "efficientnet_lite0"}, model("trained:1", "chosen", None, seed=1)]
        found = trajectories({"models": [*of, *others]})
        assert [(t.name, len(t.checkpoints)) for t in found] == [("trained:1", 3), ("trained:2", 3)]
        assert trajectories({}) == []


class TestKnownAnswers:
    def test_the_same_ranking_everywhere(self):
        scores, trainings = run([[3, 2, 1], [30, 20, 10], [9, 8, 7]])
        case = only(along_training(scores, FACTS, trainings))
        assert case.methods == ("a", "b", "c") and case.n == 6
        assert case.ranks.tolist() == [[1, 2, 3]] * 3
        assert case.means[1].tolist() == pytest.approx([30, 20, 10], abs=0.01)
        every = (*case.tau_last, *case.rho_last, *case.tau_before[1:], *case.rho_before[1:], case.w)
        assert all((c.value, c.low, c.high) == (1, 1, 1) for c in every)
        assert case.tau_before[0].value is None and case.rho_before[0].value is None

    def test_a_reversed_ranking(self):
        scores, trainings = run([[1, 2, 3], [3, 2, 1], [1, 2, 3], [3, 2, 1]])
        case = only(along_training(scores, FACTS, trainings))
        assert [c.value for c in case.tau_last] == [-1, 1, -1, 1]
        assert [c.value for c in case.rho_before[1:]] == [-1, -1, -1]
        assert case.w.value == 0

    def test_the_last_and_the_one_before(self):
        means = np.random.default_rng(2).normal(size=(5, 7))
        scores, trainings = run(means)
        case = only(along_training(scores, FACTS, trainings))
        order = [ord(m) - 97 for m in case.methods]
        assert order == np.argsort(-means[-1]).tolist()
        for i, row in enumerate(means):
            assert case.tau_last[i].value == pytest.approx(kendalltau(row, means[-1]).statistic)
            assert case.rho_last[i].value == pytest.approx(spearmanr(row, means[-1]).statistic)
            if i:
                assert case.tau_before[i].value == pytest.approx(kendalltau(row, means[i - 1]).statistic)
                assert case.rho_before[i].value == pytest.approx(spearmanr(row, means[i - 1]).statistic)
        assert case.w.value == pytest.approx(kendall_w(np.argsort(np.argsort(-means, axis=1), axis=1) + 1.0))

    def test_lower_is_better_where_the_metric_says_so(self):
        scores, trainings = run([[1, 2], [1, 2], [2, 1]], metric="morf")
        case = only(along_training(scores, FACTS, trainings))
        assert case.methods == ("b", "a") and case.ranks.tolist() == [[2, 1], [2, 1], [1, 2]]
        assert case.means[0].tolist() == pytest.approx([2, 1], abs=0.01)


class TestWhatIsCompared:
    def test_controls_are_left_out(self):
        scores, trainings = run([[1, 2, 3]] * 3)
        scores = scores.with_columns(pl.col("method").replace("c", "random"))
        case = only(along_training(scores, FACTS, trainings))
        assert case.methods == ("b", "a") and case.left_out == ()

    def test_a_method_without_scores_at_one_checkpoint_is_left_out_with_the_reason(self):
        scores, trainings = run([[1, 2, 3]] * 3)
        broken = (pl.col("model") == "trained:t@02") & (pl.col("method") == "b")
        scores = scores.with_columns(
            score=pl.when(broken).then(None).otherwise("score"),
            status=pl.when(broken).then(pl.lit("failed: no")).otherwise("status"),
        )
        case = only(along_training(scores, FACTS, trainings))
        assert case.methods == ("c", "a") and case.left_out == (("b", "trained:t@02: failed: no"),)

    def test_only_samples_of_all_checkpoints_count(self):
        scores, trainings = run([[1, 2]] * 3, n=4)
        odd = build({"a": [0] * 4 + [99, 99], "b": [0] * 6}, model="trained:t@01").filter(pl.col("sample") > "s00003")
        case = only(along_training(pl.concat([scores, odd]), FACTS, trainings))
        assert case.n == 4 and case.ranks[0].tolist() == [1, 2]

    def test_metrics_and_data_sets_are_kept_apart(self):
        a, trainings = run([[1, 2]] * 3)
        b, _ = run([[2, 1]] * 3, metric="morf")
        c = a.with_columns(data=pl.lit("other"))
        few = a.filter(pl.col("model") != "trained:t@02").with_columns(metric=pl.lit("rare"))
        one = a.filter(pl.col("method") == "a").with_columns(metric=pl.lit("alone"))
        found = along_training(pl.concat([a, b, c, few, one]), FACTS, trainings)
        assert [(x.data, x.metric) for x in found] == [("other", "sds"), ("pics", "morf"), ("pics", "sds")]

    def test_the_order_of_rows_has_no_influence(self):
        scores, trainings = run([[1, 2, 3], [1, 3, 2], [3, 1, 2]], noise=1.0)
        a, b = (only(along_training(s, FACTS, trainings)).record() for s in (scores, scores.reverse()))
        assert a == b


class TestIntervals:
    def test_they_hold_the_value_and_shrink_with_samples(self):
        means = [[0, 0.2, 0.4, 0.6], [0, 0.3, 0.2, 0.6], [0.1, 0.2, 0.4, 0.5]]
        few, many = (
            only(along_training(*(lambda s, t: (s, FACTS, t))(*run(means, n=n, noise=1.0)))) for n in (10, 1500)
        )
        for case in (few, many):
            for c in (*case.tau_last, *case.rho_last, *case.tau_before[1:], case.w):
                assert c.low <= c.value <= c.high
        assert few.w.high - few.w.low > many.w.high - many.w.low

    def test_resamples_are_the_same_at_all_checkpoints(self):
        scores, trainings = run([[0.0, 0.1, 0.2, 0.3]], n=12, noise=1.0)
        copies = pl.concat([scores.with_columns(model=pl.lit(f"trained:t@{i:02d}")) for i in (1, 2, 3)])
        _, trainings = run([[0.0]] * 3)
        case = only(along_training(copies, FACTS, trainings))
        assert (case.tau_last[0].low, case.w.low) == (1, 1)

    def test_one_sample_has_none(self):
        scores, trainings = run([[1, 2]] * 3, n=1)
        case = only(along_training(scores, FACTS, trainings))
        assert (case.w.value, case.w.low) == (1, None)

    @given(st.integers(0, 10_000))
    def test_resampled_coefficients_are_those_of_every_column(self, seed):
        rng = np.random.default_rng(seed)
        a, b = rng.integers(0, 4, size=(2, 5, 6)).astype(float)
        for found, plain in ((resampled_tau, kendall_tau), (resampled_spearman, spearman)):
            ra, rb = rank_of(a), rank_of(b)
            expected = [plain(ra[:, i], rb[:, i]) for i in range(6)]
            np.testing.assert_allclose(found(ra, rb), expected, atol=1e-12)


def test_the_record_is_plain_data():
    scores, trainings = run([[1, 2], [2, 1], [1, 2]])
    record = only(along_training(scores, FACTS, trainings)).record()
    assert record["training"] == "trained:t" and record["samples"] == 6
    assert [c["checkpoint"] for c in record["checkpoints"]] == ["01", "02", "03"]
    assert record["checkpoints"][1]["tau_last"] == -1 and record["checkpoints"][0]["tau_before"] is None
    assert record["methods"][0] == {"method": "b", "ranks": [1, 2, 1], "means": pytest.approx([2, 1, 2], abs=0.01)}
