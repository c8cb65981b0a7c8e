"""Chunks put together: the same tables, maps and answers from fewer files; nothing is lost or counted twice on the way."""

import json
import shutil
from typing import Any

import numpy as np
import pytest
import torch
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from heatcheck.api.result import Result
from heatcheck.cli import app
from heatcheck.run import compaction
from heatcheck.run import store as store_module
from heatcheck.run.compaction import Compacted, compact, merged
from heatcheck.run.execution import execute
from heatcheck.run.packing import SampleGroup, ScoreColumn, read_chunk
from heatcheck.run.runtime import Runtime
from heatcheck.run.store import Store

from .conftest import build_setup

FIXED = Runtime(progress="none", batch=4)
MUTANTS = (
    ("run/compaction.py", "disputed = contradicted(store.index)", "disputed = set()", "test_disputed_chunks_stay"),
    (
        "run/compaction.py",
        "str(start + int(row)): text",
        "row: text",
        "test_statuses_stay_with_their_samples",
    ),
    (
        "run/compaction.py",
        "found.append([start + first, start + last, base + a, base + b])",
        "found.append([start + first, start + last, a, b])",
        "test_answers_of_other_samples_are_not_read",
    ),
    (
        "run/store.py",
        "index = index.keeping(set(index.names) - replaced)",
        "pass",
        "test_killed_before_old_files_are_removed_nothing_counts_twice",
    ),
)


GRID: dict[str, Any] = {"methods": ["saliency", "random"], "metrics": ["sds", "morf(steps=4)"], "n": 20}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of twenty samples in three chunks."""
    folder = tmp_path_factory.mktemp("finished")
    execute(build_setup(**GRID), folder / "r", FIXED)
    return folder / "r"


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it."""
    return shutil.copytree(finished, tmp_path / "r")


def files(folder):
    return sorted(path.name for path in (folder / "chunks").iterdir())


def everything(folder):
    """All that a run shows: tables, curves, maps, pictures."""
    result = Result.open(folder)
    maps = [result.map(model, sample, "saliency") for model, sample in result.gallery()]
    shown = [result.display(model, sample)["rgb"] for model, sample in result.gallery()]
    return result.scores(), result.samples(), result.curves("toy", "morf(steps=4)"), maps, shown


def assert_same(before, after):
    for old, new in zip(before[:3], after[:3], strict=True):
        assert_frame_equal(old, new, check_exact=True)
    for old, new in zip(before[3:], after[3:], strict=True):
        assert len(old) == len(new) > 0 and all(np.array_equal(a, b) for a, b in zip(old, new, strict=True))


def test_a_run_is_the_same_before_and_after(run, make_setup):
    before = everything(run)
    assert compact(Store.open(run, create=True)) == Compacted(3, 1)
    assert len(files(run)) == 1
    assert_same(before, everything(run))
    passes = Result.open(run).manifest["passes"]
    assert execute(make_setup(**GRID), run, FIXED).read("run.json")["passes"] == passes, "nothing is computed again"
    assert compact(Store.open(run, create=True)) == Compacted(1, 1)


def test_statuses_stay_with_their_samples(tmp_path):
    records = [
        {"name": name, "digest": name, "context": "c", "target": 1, "label": None, "top": [1], "prob": [1.0]}
        for name in "abcd"
    ]
    store = Store.open(tmp_path, create=True)
    for two, statuses in ((records[:2], ["ok", "skipped: no label"]), (records[2:], ["failed: torn", "ok"])):
        store.commit([SampleGroup("model", 0, two, scores=[ScoreColumn("m", "k", torch.zeros(2), statuses)])])
    compact(store)
    (group,) = store.chunk(store.index.names[0]).header["groups"]
    assert [sample["name"] for sample in group["samples"]] == [*"abcd"]
    assert group["scores"][0]["status"] == {"1": "skipped: no label", "2": "failed: torn"}


def test_a_run_goes_on_from_compacted_chunks(run, make_setup, tmp_path):
    compact(Store.open(run, create=True))
    before = Result.open(run).manifest["passes"]["forwards"]
    more = {**GRID, "metrics": ["sds", "complexity"]}
    gone_on = Result(execute(make_setup(**more), run, FIXED))
    assert gone_on.manifest["passes"]["forwards"] == before, "maps and answers are found in the compacted file"
    fresh = Result(execute(make_setup(**more), tmp_path / "fresh", FIXED))
    key = ["sample", "method", "metric", "score", "status"]
    assert_frame_equal(gone_on.last().scores().select(key), fresh.scores().select(key), check_exact=True)


def test_answers_of_other_samples_are_not_read(run):
    store = Store.open(run)
    model = Result.open(run).facts["models"][0]["identity"]
    digests = [sample["digest"] for sample in Result.open(run).manifest["samples"]]
    before = {digest: store.answers(model, [digest]) for digest in digests}
    compact(Store.open(run, create=True))
    after = Store.open(run)
    for digest, answers in before.items():
        found = after.answers(model, [digest])
        assert found.keys() == answers.keys() and all(np.array_equal(found[k], answers[k]) for k in found)


def test_an_open_reader_goes_on(run):
    before = everything(run)
    reader = Result.open(run)
    compact(Store.open(run, create=True))
    maps = [reader.map(model, sample, "saliency") for model, sample in reader.gallery()]
    assert all(np.array_equal(a, b) for a, b in zip(maps, before[3], strict=True))
    assert_frame_equal(reader.curves("toy", "morf(steps=4)"), before[2])
    assert_frame_equal(reader.scores(), before[0])


def test_a_reader_that_is_opening_meanwhile_sees_everything(run, monkeypatch):
    """The old files go while they are read: the folder is looked at again."""
    before = everything(run)
    writer = Store.open(run, create=True)
    left = iter([True])

    def interrupted(path):
        if next(left, False):
            compact(writer)
        return read_chunk(path)

    monkeypatch.setattr(store_module, "read_chunk", interrupted)
    reader = Result.open(run)
    monkeypatch.undo()
    assert_frame_equal(reader.scores(), before[0])


def test_killed_before_old_files_are_removed_nothing_counts_twice(run):
    before = everything(run)
    store = Store.open(run, create=True)
    old = files(run)
    store.keep(merged(store, old))
    assert len(files(run)) == 4
    opened = Store.open(run)
    assert len(opened.index.names) == 1
    assert_same(before, everything(run))
    (run / "chunks" / old[0]).unlink()
    assert_same(before, everything(run))
    compact(Store.open(run, create=True))
    assert len(files(run)) == 1
    assert_same(before, everything(run))


@pytest.mark.parametrize("call", ["write_atomically", "unlink"])
def test_a_failing_disk_loses_nothing(run, monkeypatch, call):
    before = everything(run)
    store = Store.open(run, create=True)

    def refuse(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    target = "heatcheck.run.store.write_atomically" if call == "write_atomically" else "pathlib.Path.unlink"
    monkeypatch.setattr(target, refuse)
    with pytest.raises(OSError, match="No space"):
        compact(store)
    monkeypatch.undo()
    assert_same(before, everything(run))


def test_old_files_stay_while_the_new_one_is_damaged(run):
    store = Store.open(run, create=True)
    path = store.keep(merged(store, files(run)))
    store.refresh()
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)
    with pytest.warns(store_module.StoreWarning, match="damaged"):
        compaction.compact(Store.open(run, create=True))
    assert len(Result.open(run).scores().filter(status="ok")) == len(everything(run)[0].filter(status="ok")) > 0


def test_disputed_chunks_stay(tmp_path):
    record = {"name": "a", "digest": "d", "context": "c", "target": 1, "label": None, "top": [1], "prob": [1.0]}
    store = Store.open(tmp_path, create=True)
    for i in range(6):
        column = ScoreColumn("m", "k", torch.tensor([float(i // 2)]), ["ok"])
        metric = ScoreColumn("m", f"other {i}", torch.tensor([1.0]), ["ok"])
        store.commit([SampleGroup("model", 0, [record], scores=[metric] if i < 4 else [column])])
    store.commit([SampleGroup("model", 0, [record], scores=[ScoreColumn("m", "k", torch.tensor([9.0]), ["ok"])])])
    store.refresh()
    where = store.index.find("scores", "model", 0, ["d:1:c"], ["m"], ["k"])
    value = store.index.numbers.values[where]
    done = compact(store)
    assert (done.before, done.after, done.disputed) == (6, 3, 2)
    where = store.index.find("scores", "model", 0, ["d:1:c"], ["m"], ["k"])
    assert store.index.numbers.values[where] == value


def test_a_large_run_does_it_by_itself(make_setup, tmp_path, monkeypatch):
    monkeypatch.setattr(compaction, "MANY", 3)
    store = execute(make_setup(["random"], ["sparseness"], n=20), tmp_path / "r", FIXED)
    assert len(files(tmp_path / "r")) == 1 == len(store.index.names)


def test_the_command(run, tmp_path):
    told = CliRunner().invoke(app, ["compact", str(run)])
    assert told.exit_code == 0 and "3 chunk files before, 1 now" in told.output
    told = CliRunner().invoke(app, ["compact", str(run), "--json"])
    assert json.loads(told.stdout)["after"] == 1
    refused = CliRunner().invoke(app, ["compact", str(tmp_path)])
    assert refused.exit_code == 2 and "is not a run folder" in refused.output
