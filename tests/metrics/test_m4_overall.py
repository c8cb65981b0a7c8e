"""M4's overall score: raw sums against the published rows, standardised ones against a slow loop, and in a run."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import OK, NotApplicable, Scores

MUTANTS = (
    ("metrics/m4_overall.py", '"infidelity": -1', '"infidelity": 1', "test_published_rows_add_up"),
    (
        "metrics/m4_overall.py",
        "known.std(correction=0)",
        "known.std()",
        "test_z_scores_are_of_the_means_of_real_methods",
    ),
    ("metrics/m4_overall.py", "/ max(1, n - 1)", "/ n", "test_ranks_are_those_of_each_sample"),
    (
        "metrics/m4_overall.py",
        "(part - known.mean()) / spread",
        "part / spread",
        "test_z_scores_are_of_the_means_of_real_methods",
    ),
    (
        "metrics/m4_overall.py",
        "mean[real & good.any(1)] if",
        "mean[good.any(1)] if",
        "test_z_scores_are_of_the_means_of_real_methods",
    ),
)
SIGN = {"morf": 1, "abpc": 1, "pscore": 1, "infidelity": -1, "synscore": 1}


def overall(**params):
    return catalogue.component_class("metric", "m4_overall")(**params)


def parts(m=5, b=7, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return {id: Scores(torch.rand(m, b, generator=rng, dtype=torch.float64) * 9) for id in SIGN}


def test_the_raw_sum_is_that_of_every_part():
    found = parts()
    got = overall().combine(found, [True] * 5)
    for j in range(5):
        for i in range(7):
            slow = sum(sign * float(found[id].value[j, i]) for id, sign in SIGN.items())
            assert float(got.value[j, i]) == pytest.approx(slow, abs=1e-12)


def test_published_rows_add_up():
    shared = Path(os.environ.get("HEATCHECK_SHARED", Path(__file__).parents[3] / "shared")) / "spec" / "published"
    if not shared.exists():
        pytest.skip("the published numbers are not here")
    with (shared / "m4_table1_scores.csv").open() as table, (shared / "m4_table1_derived.csv").open() as derived:
        rows, sums = list(csv.DictReader(table)), list(csv.DictReader(derived))
    column = {name.lower(): name for name in rows[0]}
    names = {"morf": "morf", "abpc": "abpc", "pscore": "pscore", "infidelity": "infd", "synscore": "synscore"}
    found = {id: Scores(torch.tensor([[float(r[column[n]])] for r in rows]).double()) for id, n in names.items()}
    last = next(name for name in sums[0] if "overall" in name.lower())
    got = overall().combine(found, [True] * len(rows)).value[:, 0].tolist()
    assert got == pytest.approx([float(r[last]) for r in sums], abs=2e-3)


def test_z_scores_are_of_the_means_of_real_methods():
    found = parts()
    real = [True, True, True, False, True]
    got = overall(standardise="zscore").combine(found, real).value.mean(1)
    slow = np.zeros(5)
    for id, sign in SIGN.items():
        mean = found[id].value.mean(1).numpy()
        known = mean[real]
        slow += sign * (mean - known.mean()) / known.std()
    np.testing.assert_allclose(got.numpy(), slow, atol=1e-12)


def test_scaling_a_metric_changes_the_raw_sum_only():
    found = parts()
    scaled = {**found, "infidelity": Scores(found["infidelity"].value * 1000 + 5)}
    for standardise, same in (("none", False), ("zscore", True), ("rank", True)):
        a, b = (overall(standardise=standardise).combine(f, [True] * 5).value for f in (found, scaled))
        assert torch.allclose(a, b) == same, standardise


def test_ranks_are_those_of_each_sample():
    found = parts()
    got = overall(standardise="rank").combine(found, [True] * 5).value
    for i in range(7):
        slow = sum((stats.rankdata(sign * found[id].value[:, i].numpy()) - 1) / 4 for id, sign in SIGN.items())
        np.testing.assert_allclose(got[:, i].numpy(), slow, atol=1e-12)


def test_methods_that_do_not_differ_are_all_average():
    same = {id: Scores(torch.full((3, 4), 2.0, dtype=torch.float64)) for id in SIGN}
    assert not overall(standardise="zscore").combine(same, [True] * 3).value.any()


def test_a_missing_part_is_a_status_that_names_it():
    found = parts()
    value = found["synscore"].value.clone()
    value[1, 2] = torch.nan
    why = "undefined: the mask is empty"
    status = tuple(tuple(why if (j, i) == (1, 2) else OK for i in range(7)) for j in range(5))
    for standardise in ("none", "zscore", "rank"):
        got = overall(standardise=standardise).combine({**found, "synscore": Scores(value, status)}, [True] * 5)
        assert got.status[1][2] == f"undefined: m4_overall needs synscore, which has no score here: {why[11:]}"
        assert int(got.value.isnan().sum()) == 1


def test_parts_that_no_method_has_can_be_left_out():
    found = parts()
    none = Scores(torch.full((5, 7), torch.nan, dtype=torch.float64), (("skipped: one model only",) * 7,) * 5)
    without = {**found, "pscore": none}
    assert overall().combine(without, [True] * 5).value.isnan().all()
    got = overall(incomplete="leave_out").combine(without, [True] * 5)
    full = overall().combine(found, [True] * 5).value
    torch.testing.assert_close(got.value, full - found["pscore"].value)
    nothing = overall(incomplete="leave_out").combine(dict.fromkeys(SIGN, none), [True] * 5)
    assert nothing.value.isnan().all() and "morf" in nothing.status[0][0]


def test_bad_words_are_refused():
    with pytest.raises(SpecError, match="standardise='z'"):
        overall(standardise="z")


def net(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 8), nn.Tanh(), nn.Linear(8, 4)).eval()


def test_a_run_measures_the_parts_and_adds_them_up(tmp_path):
    with torch.random.fork_rng():
        models = {"a": net(1), "b": net(2)}
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    bench = hc.Benchmark(
        models=models,
        data=(x, [0, 1, 2, 3]),
        methods=["saliency", "input_x_gradient", "random"],
        metrics=["morf(steps=4)", "m4_overall(incomplete=leave_out)", "m4_overall"],
    )
    result = bench.run(tmp_path / "run", progress="none")
    table = result.scores()
    wide = table.pivot(on="metric", index=["model", "sample", "method"], values="score")
    assert {"morf(steps=4)", "abpc", "pscore", "infidelity", "synscore"} <= set(wide.columns)
    total = wide["morf(steps=4)"] + wide["abpc"] + wide["pscore"] - wide["infidelity"]
    assert wide["m4_overall(incomplete=leave_out)"].to_list() == pytest.approx(total.to_list(), abs=1e-12)
    strict = table.filter(table["metric"] == "m4_overall")
    assert strict["score"].null_count() == len(strict)
    assert all("synscore" in s and s.startswith("skipped: ") for s in strict["status"])
    assert set(result.leaderboard().full["metric"]) >= {"m4_overall(incomplete=leave_out)"}
    assert not result.check()


def test_tensors_have_no_sum(toys):
    model, batch = toys.stage("image")
    with pytest.raises(NotApplicable, match="score these"):
        toys.score("m4_overall", model, batch, toys.random_maps(model, batch))
