"""SynScore of another network in m4_overall, and the accuracy that SynScore rests on; against slow sums."""

import io
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.run.conftest import build_setup, encode, explained
from tests.run.test_naming import training
from torch import nn

from heatcheck.api.benchmark import with_parts
from heatcheck.api.result import Result
from heatcheck.core.types import OK, Scores
from heatcheck.data.load import load_data
from heatcheck.domain.image import ImageDomain
from heatcheck.models.torch_model import TorchModel
from heatcheck.profiles import load_profile
from heatcheck.report import write_report
from heatcheck.report.terminal import leaderboard
from heatcheck.run.execution import execute
from heatcheck.run.lending import Candidate, Loan, lender, why_nobody
from heatcheck.run.planted import TRUTHS, about_planted, learnt, planted_in
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import Setup

MUTANTS = (
    ("run/lending.py", "float(own.mean())", "float(own.median())", "test_the_sum_has_the_mean_of_the_other_network"),
    ("run/lending.py", '== b.get("architecture")', "!= None", "test_only_the_same_architecture_lends"),
    ("run/lending.py", '(parent_of(c.model) == model["identity"], c.number)', "c.number", "test_a_child_comes_first"),
    ("run/lending.py", "c.measured and", "", "test_a_network_that_was_not_measured_does_not_lend"),
    ("run/lending.py", "/ len(own) ** 0.5", "", "test_a_loan_has_means_and_standard_errors"),
    (
        "run/lending.py",
        'if len(kin) == 1 else ""',
        'if kin else ""',
        "test_settings_may_differ_if_there_is_one_of_a_kind",
    ),
    ("run/planted.py", "accuracy >= RELIABLE", "accuracy > RELIABLE", "test_the_accuracy_is_measured_and_judged"),
    ("run/planted.py", "if label is not None]", "]", "test_the_accuracy_is_measured_and_judged"),
)
FIXED = Runtime(progress="none", batch=4)
METHODS = ["saliency", "input_x_gradient", "random"]
LENIENT = "m4_overall(incomplete=leave_out)"
PARTS = ["morf(steps=4)", "abpc(steps=4)", "pscore", "infidelity(samples=8)", "synscore"]


def network(seed, classes, hidden=6):
    rng = torch.Generator().manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, hidden, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * hidden, classes),
    )
    for weight in net.parameters():
        nn.init.normal_(weight, 0, 0.3, generator=rng)
    return net


def model(seed=0, classes=5, hidden=6, **trained):
    domain = ImageDomain(mean=(0.5,) * 3, std=(0.5,) * 3)
    made = TorchModel(network(seed, classes, hidden), f"toy {seed}", domain, encoder=encode, preprocessing="as it is")
    if trained:
        made.trained = training(delete=0.0, recipe="synthetic", **trained)
    return made


def twin(seed=9, hidden=6, parent="f" * 64, **trained):
    """A network of two classes, as if it had been trained to find squares."""
    made = model(seed, 2, hidden, **(trained or {"variant": "small"}))
    made.trained["parent"]["identity"] = parent
    return made


def squares(n=6):
    """Noise; every picture has a mask, the labels alternate."""
    rng = np.random.default_rng(4)
    items = []
    for i in range(n):
        mask = np.zeros((16, 16), bool)
        mask[2:6, i : i + 4] = True
        content = torch.from_numpy(rng.normal(size=(3, 16, 16)).astype(np.float32))
        items.append({"image": content, "label": i % 2, "mask": mask})
    return load_data(items)


def plain_run(out):
    setup = build_setup(METHODS, ["sds"], n=4, models={"a": model(0), "b": model(1)})
    named = with_parts([*PARTS, "m4_overall", LENIENT], load_profile("default"))
    return Result(execute(Setup(**{**vars(setup), "metrics": named, "record": {"data": "pictures"}}), out, FIXED))


def squares_run(out, models=None, methods=METHODS):
    setup = build_setup(methods, ["synscore"], n=1, models=models or {"twin": twin()})
    changes = {"data": squares(), "record": {"data": "squares:toys"}}
    return Result(execute(Setup(**{**vars(setup), **changes}), out, FIXED))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of a study of two models that asks for the sum."""
    folder = tmp_path_factory.mktemp("measured") / "run"
    plain_run(folder)
    return folder


@pytest.fixture
def out(measured, tmp_path):
    """A folder of its own with that study."""
    return Path(shutil.copytree(measured, tmp_path / "run"))


def table(result, metric, model):
    rows = result.scores().filter((pl.col("metric") == metric) & (pl.col("model") == model))
    return {(r["method"], r["sample"]): (r["score"], r["status"]) for r in rows.iter_rows(named=True)}


def remark(result, model, metric):
    return next((r["remark"] for r in result.facts["remarks"] if (r["model"], r["metric"]) == (model, metric)), "")


def test_the_sum_has_the_mean_of_the_other_network(out):
    squares_run(out)
    result = Result.open(out)
    theirs = table(result, "synscore", "twin")
    for name in ("a", "b"):
        own = {metric: table(result, metric, name) for metric in PARTS}
        for (method, sample), (value, status) in table(result, "m4_overall", name).items():
            lent = [score for (m, _), (score, _) in theirs.items() if m == method and score is not None]
            slow = sum(lent) / len(lent)
            for metric, sign in zip(PARTS[:4], (1, 1, 1, -1), strict=True):
                slow += sign * own[metric][method, sample][0]
            assert status == OK and value == pytest.approx(slow, abs=1e-12)
        said = remark(result, name, "m4_overall")
        assert "synscore is from twin, the network of the same architecture" in said and "over 6 pictures" in said
        assert "standard errors of at most" in said


def test_the_order_of_the_runs_does_not_matter(out, tmp_path):
    squares_run(out)
    squares_run(tmp_path / "other")
    plain_run(tmp_path / "other")
    folders = (out, tmp_path / "other")
    a, b = (Result.open(folder).scores().sort("model", "metric", "method", "sample") for folder in folders)
    assert a["score"].to_list() == b["score"].to_list() and a["status"].to_list() == b["status"].to_list()


def test_without_another_network_the_status_says_what_to_do(out):
    (status,) = {status for _, status in table(Result.open(out), "m4_overall", "a").values()}
    assert status.startswith("skipped: m4_overall needs synscore, which has no score here: ")
    assert "heatcheck train synthetic --model a" in status and "squares:DATA" in status


def test_only_the_same_architecture_lends(out):
    squares_run(out, {"wider": twin(hidden=7)})
    (status,) = {status for _, status in table(Result.open(out), "m4_overall", "a").values()}
    assert "(wider has another)" in status


def test_a_network_that_squares_were_not_taught_does_not_lend(out):
    squares_run(out, {"two classes": model(9, 2)})
    (status,) = {status for _, status in table(Result.open(out), "m4_overall", "a").values()}
    assert status.startswith("skipped: ")


def test_a_method_without_a_counterpart_has_a_reason(out):
    squares_run(out, methods=["saliency", "random"])
    rows = table(Result.open(out), "m4_overall", "a")
    assert {m for (m, _), (score, _) in rows.items() if score is not None} == {"saliency", "random"}
    assert {status for (m, _), (_, status) in rows.items() if m == "input_x_gradient"} == {
        "skipped: m4_overall needs synscore, which has no score here: twin, which lends synscore, has none under "
        "input_x_gradient"
    }


def test_a_model_with_masks_of_its_own_borrows_all_the_same(tmp_path):
    """M4's SynScore is that of the trained network, whatever masks the data have; without one, the model's own counts."""
    setup = build_setup(METHODS, ["sds"], models={"a": model(0), "b": model(1)})
    changes = {
        "data": squares(4),
        "metrics": with_parts([*PARTS, "m4_overall"], load_profile("default")),
        "record": {"data": "masks"},
    }
    alone = Result(execute(Setup(**{**vars(setup), **changes}), tmp_path, FIXED))
    mine = table(alone, "m4_overall", "a")
    assert all(status == OK for _, status in mine.values()) and remark(alone, "a", "m4_overall") == ""
    squares_run(tmp_path)
    result = Result.open(tmp_path)
    lent = pl.Series([s for (m, _), (s, _) in table(result, "synscore", "twin").items() if m == "saliency"]).mean()
    own = table(result, "synscore", "a")
    for key, (value, _) in table(result, "m4_overall", "a").items():
        if key[0] == "saliency":
            assert value == pytest.approx(mine[key][0] - own[key][0] + lent, abs=1e-12)


def test_leaving_out_is_not_needed_where_a_network_lends(out):
    before = table(Result.open(out), LENIENT, "a")
    squares_run(out)
    after = table(Result.open(out), LENIENT, "a")
    assert table(Result.open(out), "m4_overall", "a") == after != before
    assert all(status == OK for _, status in before.values())


def candidate(name, number=0, architecture="x", recipe="synthetic", parent="", measured=True):
    trained = {"recipe": recipe, "parent": {"identity": parent}}
    return Candidate({"name": name, "architecture": architecture, "trained": trained}, number, measured, Loan)


PLAIN = {"name": "plain", "identity": "me", "architecture": "x", "modality": "image"}


def test_a_child_comes_first():
    child, later = candidate("child", 1, parent="me"), candidate("later", 2)
    assert lender(PLAIN, "synthetic", [later, child]) is child
    assert lender(PLAIN, "synthetic", [candidate("first", 1), later]) is later
    youngest = candidate("youngest", 3, parent="me")
    assert lender(PLAIN, "synthetic", [child, youngest, later]) is youngest
    first, second = candidate("first", 3), candidate("second", 3)
    assert lender(PLAIN, "synthetic", [first, second]) is second


def test_a_network_that_was_not_measured_does_not_lend():
    idle = candidate("idle", measured=False)
    assert lender(PLAIN, "synthetic", [idle]) is None
    assert "idle could lend it, but was not run with --metrics synscore" in why_nobody(
        PLAIN, "synscore", "synthetic", [idle]
    )


@pytest.mark.parametrize("architecture", ["", None])
def test_what_is_not_recorded_is_not_equal(architecture):
    unknown = {**PLAIN, "architecture": architecture}
    assert lender(unknown, "synthetic", [candidate("old", architecture=architecture)]) is None
    assert "does not say of which architecture plain is" in why_nobody(unknown, "synscore", "synthetic", [])


def test_each_modality_is_told_its_own_command():
    said = why_nobody({**PLAIN, "modality": "text"}, "synscore", "synthetic", [])
    assert "heatcheck train text --data planted:DATA --model plain" in said and "planted:DATA into" in said
    assert "squares" not in said
    assert "heatcheck train synthetic --model plain" in why_nobody(PLAIN, "synscore", "synthetic", [])


@given(st.lists(st.lists(st.floats(-5, 5) | st.just(float("nan")), min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_loan_has_means_and_standard_errors(rows):
    methods = [{"label": str(i), "id": "x"} for i in range(len(rows))]
    loan = Loan.of("synscore", "twin", "good", methods, Scores(torch.tensor(rows, dtype=torch.float64)))
    for label, row in zip(map(str, range(len(rows))), rows, strict=True):
        own = np.array([v for v in row if v == v])
        assert (label in loan.mean) == (len(own) > 0) and (label in loan.error) == (len(own) > 1)
        if len(own):
            assert loan.mean[label] == pytest.approx(own.mean(), abs=1e-12)
        if len(own) > 1:
            assert loan.error[label] == pytest.approx(own.std(ddof=1) / len(own) ** 0.5, abs=1e-12)
    assert loan.samples == max(sum(v == v for v in row) for row in rows)


def test_settings_may_differ_if_there_is_one_of_a_kind():
    theirs = [{"label": "IG (steps=20)", "id": "ig"}, {"label": "r7", "id": "random"}, {"label": "r14", "id": "random"}]
    loan = Loan("synscore", "twin", "good", "", theirs, {"IG (steps=20)": 0.9, "r7": 0.4, "r14": 0.5}, {}, 3)
    mine = [{"label": "IG (steps=50)", "id": "ig"}, {"label": "r14", "id": "random"}, {"label": "r28", "id": "random"}]
    given = loan.given(Scores(torch.full((3, 2), torch.nan, dtype=torch.float64)), mine)
    assert given.value[:2].tolist() == [[0.9, 0.9], [0.5, 0.5]] and given.value[2].isnan().all()
    assert given.status[2][0].endswith("has none under r28")
    assert "IG (steps=50) is IG (steps=20) there" in loan.remark(mine)


# -- accuracy -----------------------------------------------------------------------------------------------


def entry(**accuracy):
    return {"trained": {"recipe": "synthetic", "accuracy": accuracy}}


def about_squares_of(model, answers):
    return about_planted(TRUTHS["image"], "squares:images", model, answers)


def test_a_model_of_texts_is_judged_by_its_own_trigger():
    zebra, plain = "planted(trigger=zebra):reviews", "test_part:planted(seed=3):reviews"
    taught = {"modality": "text", "trained": {"recipe": "text", "data": "planted:reviews:train"}}
    answers = [(i % 2, i % 2) for i in range(100)]
    kind = planted_in({"data": plain})
    assert kind is TRUTHS["text"] is learnt(taught)
    assert about_planted(kind, plain, taught, answers) == "accuracy 1.000 on 100 texts"
    assert "below 0.99: the trigger words are not" in about_planted(kind, plain, taught, [(1, 0)])
    assert "was not trained to find these trigger words (heatcheck train text" in about_planted(
        kind, zebra, taught, answers
    )
    other = {"trained": {"recipe": "text", "data": zebra}}
    assert about_planted(kind, zebra, other, answers) == "accuracy 1.000 on 100 texts"
    assert "was not trained" in about_planted(kind, plain, other, answers)
    assert "was not trained" in about_planted(kind, plain, {"trained": {"recipe": "text", "data": "reviews"}}, answers)


def test_a_network_that_learnt_trigger_words_lends_as_one_that_learnt_squares():
    taught = {"recipe": "text", "data": "planted:reviews:train"}
    text = {**PLAIN, "modality": "text"}
    able, other = (
        Candidate({"name": data, "architecture": "x", "trained": {**taught, "data": data}}, 0, True, Loan)
        for data in ("planted:reviews:train", "reviews:train")
    )
    assert lender(text, "synthetic", [able, other]) is able
    assert lender({**text, "trained": taught}, "synthetic", [able]) is None


def test_the_accuracy_is_measured_and_judged():
    answers = [(i % 2, i % 2) for i in range(99)] + [(0, 1)]
    assert about_squares_of(entry(chosen=0.5), answers) == "accuracy 0.990 on 100 pictures"
    assert about_squares_of(entry(chosen=0.5), [*answers, (None, 0)]) == "accuracy 0.990 on 100 pictures"
    said = about_squares_of(entry(chosen=1.0), [*answers, (1, 0)])
    assert said.startswith("accuracy 0.980 on 101 pictures, which is below 0.99: the squares are not the truth")


def test_without_labels_the_accuracy_of_the_training_counts():
    assert (
        about_squares_of(entry(chosen=0.995), [(None, 1)]) == "accuracy 0.995 on the pictures held out of its training"
    )
    assert "below 0.99" in about_squares_of(entry(chosen=0.9), [])
    assert "not known" in about_squares_of(entry(), [])


@pytest.mark.parametrize("other", [{}, {"trained": None}, {"trained": {"recipe": "align"}}])
def test_a_model_that_never_learnt_squares_is_named(other):
    assert "was not trained to find squares" in about_squares_of(other, [(1, 1)])


@pytest.mark.parametrize(
    ("data", "yes"),
    [
        ("squares:images", True),
        ("squares:test_part:imagenet:x", True),
        ("test_part:squares:images", True),
        ("squares-images", True),
        ("folder:my-squares", False),
        ("images", False),
    ],
)
def test_squares_are_known_by_their_spec(data, yes):
    assert (planted_in({"data": data}) is TRUTHS["image"]) == yes


def test_the_accuracy_stands_beside_synscore(tmp_path):
    result = squares_run(tmp_path, {"twin": twin(), "untaught": model(3, 2)})
    answers = result.samples().filter(pl.col("model") == "twin")
    right = int((answers["label"] == answers["predicted"]).sum())
    said = remark(result, "twin", "synscore")
    assert f"accuracy {right / 6:.3f} on 6 pictures" in said and "below 0.99" in said
    assert "was not trained to find squares" in remark(result, "untaught", "synscore")
    console = Console(file=io.StringIO(), width=300)
    console.print(leaderboard(result))
    shown = " ".join(console.file.getvalue().split())
    page = write_report(result, tmp_path / "report.html").read_text()
    for text in (shown, " ".join(str(result.leaderboard()).split()), page):
        assert "the squares are not the truth about what the model uses" in text


def test_masks_of_other_kinds_need_no_squares(tmp_path):
    setup = build_setup(METHODS, ["synscore"], models={"a": model(0, 2)})
    result = Result(execute(Setup(**{**vars(setup), "data": squares(), "record": {"data": "masks"}}), tmp_path, FIXED))
    assert result.facts["remarks"] == []


def test_the_record_has_an_architecture_where_a_sum_needs_it(out, tmp_path):
    (a, b) = Result.open(out).manifest["models"]
    (other,) = squares_run(tmp_path / "twin").manifest["models"]
    assert a["architecture"] == b["architecture"] == other["architecture"]
    (plain,) = squares_run(tmp_path / "none", {"a": explained()}).manifest["models"]
    assert "architecture" not in plain
