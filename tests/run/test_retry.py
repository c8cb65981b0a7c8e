"""What failed is tried again by the next run, once; what does not apply is a result. One bad sample costs only itself."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import heatcheck as hc
from heatcheck.api.result import Result
from heatcheck.core.types import NotApplicable
from heatcheck.run.execution import execute
from heatcheck.run.runtime import Runtime
from heatcheck.run.task import run_chunk

FIXED = Runtime(progress="none", batch=4)
KEY = ["sample", "method", "metric", "score", "status"]
MUTANTS = (
    (
        "run/lacking.py",
        'return problem is not None and not problem.startswith("failed")',
        "return problem is not None",
        "test_a_sample_that_could_not_be_read_is_tried_again",
    ),
    (
        "run/store.py",
        'if record["context"] == context and record.get("asked", target) == target:',
        "if True:",
        "test_a_problem_belongs_to_its_target_and_label",
    ),
    (
        "run/isolation.py",
        "            return list(probe.logits(x))\n    except Exception as problem:\n        end_if_lost(problem)\n        if len(x) == 1:",
        "            return list(probe.logits(x))\n    except Exception as problem:\n        if len(x) >= 1:",
        "test_a_sample_on_which_the_model_raises_costs_only_itself",
    ),
    (
        "probe/calls.py",
        "self.numerics, self.halved = before\n            raise",
        "raise",
        "test_a_sample_that_does_not_fit_into_memory_leaves_its_neighbours_their_bits",
    ),
)


class Notes:
    """A progress display that keeps its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def begin(self, what: str, passes: int, done: int = 0) -> None: ...

    def advance(self, passes: int) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)

    def end(self) -> None: ...


class Trap(nn.Module):
    """A network that raises on batches with a certain picture in them."""

    def __init__(self, inner: nn.Module, victim: torch.Tensor, problem: Callable[[], Exception]) -> None:
        super().__init__()
        self.inner, self.victim, self.problem = inner, victim, problem

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if any(torch.equal(one, self.victim) for one in x.detach()):
            raise self.problem()
        return self.inner(x)


def trap(setup: Any, row: int, problem: Callable[[], Exception]) -> nn.Module:
    """Make the setup's model raise on one sample; its network as it was."""
    model = setup.models["toy"]
    plain = model.module()
    model._network = Trap(plain, setup.data[row].content, problem)
    return plain


def table(setup: Any, out: Any, runtime: Runtime = FIXED) -> Any:
    return Result(execute(setup, out, runtime)).scores().select(KEY)


def test_a_sample_that_could_not_be_read_is_tried_again(make_setup, tmp_path, monkeypatch):
    setup = make_setup(["saliency", "random"], ["sds"], n=5)
    reference = table(setup, tmp_path / "reference")
    model, victim = setup.models["toy"], setup.data[2].digest
    encode = model.encode

    def torn(sample: Any) -> Any:
        if sample.digest == victim:
            raise OSError(5, "Input/output error")
        return encode(sample)

    monkeypatch.setattr(model, "encode", torn)
    first = table(setup, tmp_path / "r")
    assert Counter(first["status"]) == {"ok": 8, "failed: OSError: [Errno 5] Input/output error": 2}
    monkeypatch.undo()
    shown = Notes()
    assert table(setup, tmp_path / "r", Runtime.of(FIXED, progress=shown)).equals(reference)
    assert shown.notes == ["2 failed cells are tried again"]
    shown = Notes()
    assert table(setup, tmp_path / "r", Runtime.of(FIXED, progress=shown)).equals(reference)
    assert shown.notes == []


def test_a_problem_belongs_to_its_target_and_label(make_setup, tmp_path):
    """A label that is no class cannot be explained; another target and a corrected label do not inherit that."""

    def scores(**changes: Any) -> dict[str, str]:
        setup = make_setup(["saliency"], ["sds"], n=3, target=changes.get("target", "label"))
        object.__setattr__(setup.data.samples[1], "label", changes.get("label", 99))
        found = Result(execute(setup, tmp_path / "r", FIXED)).last().scores()
        return dict(zip(found["sample"], found["status"], strict=True))

    name = make_setup(n=3).data[1].name
    assert scores()[name].startswith("skipped: target='label', but label 99 is not a class")
    assert scores(label=2)[name] == "ok"
    assert scores()[name].startswith("skipped: target='label', but label 99 is not a class")
    assert scores(target=4, label=3)[name] == "ok"
    assert set(scores(label=2).values()) == {"ok"}


def test_a_failure_that_repeats_itself_writes_nothing_new(make_setup, tmp_path):
    @hc.method("never_works", uses=())
    def never_works(model: Any, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("on purpose")

    setup = make_setup(["never_works", "saliency"], ["sds"], n=4)
    first = table(setup, tmp_path / "r")
    assert Counter(s.split(" (")[0] for s in first["status"]) == {"ok": 4, "failed: ZeroDivisionError: on purpose": 4}
    files = sorted((tmp_path / "r" / "chunks").iterdir())
    assert table(setup, tmp_path / "r").equals(first)
    assert sorted((tmp_path / "r" / "chunks").iterdir()) == files


def test_what_does_not_apply_is_not_tried_again(make_setup, tmp_path):
    calls = []

    @hc.method("refuses_everything", uses=())
    def refuses_everything(model: Any, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        calls.append(len(x))
        raise NotApplicable("not for these")

    setup = make_setup(["refuses_everything"], ["sds"], n=4)
    first = table(setup, tmp_path / "r")
    assert set(first["status"]) == {"skipped: not for these"}
    tried = len(calls)
    shown = Notes()
    assert table(setup, tmp_path / "r", Runtime.of(FIXED, progress=shown)).equals(first)
    assert (len(calls), shown.notes) == (tried, [])


@pytest.mark.parametrize("row", [0, 6])
def test_a_sample_on_which_the_model_raises_costs_only_itself(make_setup, tmp_path, row):
    setup = make_setup(["saliency", "occlusion", "random"], ["sds", "morf(steps=4)"], n=9)
    reference = table(setup, tmp_path / "reference")
    plain = trap(setup, row, lambda: ValueError("not this picture"))
    name = setup.data[row].name
    found = table(setup, tmp_path / "r", Runtime(progress="none", batch=4))
    bad = found.filter(found["sample"] == name)
    assert set(bad["status"]) == {"failed: ValueError: not this picture"} and len(bad) == 6
    assert found.filter(found["sample"] != name).equals(reference.filter(reference["sample"] != name))
    setup.models["toy"]._network = plain
    assert table(setup, tmp_path / "r").equals(reference)


def test_a_sample_that_does_not_fit_into_memory_leaves_its_neighbours_their_bits(make_setup):
    from heatcheck.run.setup import prepare

    setup = make_setup(["saliency", "occlusion"], ["sds"], n=5)
    grid = prepare(setup, FIXED, None)[0].grid
    others = [s for i, s in enumerate(setup.data) if i != 2]
    without = run_chunk(grid, others).groups[0]
    trap(setup, 2, lambda: torch.OutOfMemoryError("out of memory"))
    chunk = run_chunk(grid, list(setup.data))
    (problem,) = [g for g in chunk.groups if g.samples[0].get("problem")]
    assert problem.samples[0]["problem"] == "failed: OutOfMemoryError: out of memory"
    (beside,) = [g for g in chunk.groups if not g.samples[0].get("problem")]
    assert beside.numerics == without.numerics and not beside.numerics["halved"]
    for a, b in zip(without.scores, beside.scores, strict=True):
        assert torch.equal(a.value, b.value)
    assert torch.equal(without.logits, beside.logits)


def test_a_model_that_answers_none_of_the_first_samples_is_an_error_with_the_cause(make_setup, tmp_path):
    setup = make_setup(["saliency"], ["sds"], n=2)
    model = setup.models["toy"]

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("logits")

    model._network = Broken()
    with pytest.raises(
        hc.HeatcheckError, match=r"'toy' gave no output for any of the first 2 samples: KeyError: 'logits'"
    ):
        execute(setup, tmp_path / "r", replace_batch(FIXED))


def test_numerics_are_measured_on_a_sample_that_the_model_can_read(make_setup, tmp_path):
    setup = make_setup(["saliency"], ["sds"], n=3)
    trap(setup, 0, lambda: ValueError("not this picture"))
    found = table(setup, tmp_path / "r", replace_batch(FIXED))
    assert Counter(found["status"]) == {"ok": 2, "failed: ValueError: not this picture": 1}


def replace_batch(runtime: Runtime) -> Runtime:
    return Runtime.of(runtime, batch=None)


def test_a_time_limit_needs_a_study_that_another_process_can_load(make_setup, tmp_path):
    with pytest.raises(hc.HeatcheckError, match="timeout=5 needs a worker process"):
        execute(make_setup(["saliency"], ["sds"], n=2), tmp_path / "r", Runtime.of(FIXED, timeout="5"))


def test_a_failed_cell_is_not_tried_twice_in_one_run(make_setup):
    from heatcheck.run.setup import prepare
    from heatcheck.run.work import Cell, FailedCell

    setup = make_setup(["saliency", "random"], ["sds", "morf(steps=4)"], n=4)
    grid = prepare(setup, FIXED, None)[0].grid
    whole = run_chunk(grid, list(setup.data)).groups[0]
    digests = [s.digest for s in setup.data]
    method, metric = grid.methods[0].digest, grid.metrics[1].digest
    failed = [
        FailedCell(Cell(digests[0]), "failed: a"),
        FailedCell(Cell(digests[1], method), "failed: b"),
        FailedCell(Cell(digests[2], method, metric), "failed: c"),
    ]
    chunk = run_chunk(grid, list(setup.data), failed=failed)
    status: dict[tuple[str, str, str], tuple[str, float]] = {}
    for group in chunk.groups:
        for column in group.scores:
            for i, sample in enumerate(group.samples):
                status[sample["digest"], column.method, column.metric] = column.status[i], float(column.value[i])
    bad = {key: found[0] for key, found in status.items() if found[0] != "ok"}
    assert bad == {
        (digests[1], method, grid.metrics[0].digest): "failed: b",
        (digests[1], method, metric): "failed: b",
        (digests[2], method, metric): "failed: c",
    }
    assert [g.samples[0]["problem"] for g in chunk.groups if g.samples[0].get("problem")] == ["failed: a"]
    for column in whole.scores:
        for i, sample in enumerate(whole.samples):
            key = sample["digest"], column.method, column.metric
            if i > 0 and key not in bad:
                assert status[key] == ("ok", float(column.value[i]))
