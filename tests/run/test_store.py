"""The chunk store: whole or absent, damage found, nothing lost, nothing executed."""

import json
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.api.result import Result
from heatcheck.core.files import StorageError, sweep_temporaries, write_atomically
from heatcheck.core.types import HeatcheckError
from heatcheck.run.execution import execute
from heatcheck.run.packing import SampleGroup, ScoreColumn, exceptions, pack
from heatcheck.run.runtime import Runtime
from heatcheck.run.store import Store, StoreWarning

FIXED = Runtime(progress="none", batch=4)
MUTANTS = (
    (
        "run/packing.py",
        "if hashlib.sha256(data).hexdigest() != path.stem:",
        "if False:",
        "test_a_flipped_byte_is_found_set_aside_and_computed_again",
    ),
    (
        "run/store.py",
        "path.replace(self.quarantine / path.name)",
        "path.unlink()",
        "test_a_flipped_byte_is_found_set_aside_and_computed_again",
    ),
    (
        "run/packing.py",
        "if form not in (FORMAT, COMPACTED):",
        "if False:",
        "test_a_chunk_of_another_format_is_refused_with_advice",
    ),
    (
        "run/store.py",
        'if found.scores.get(cell, "failed").startswith("failed"):',
        "if cell not in found.scores:",
        "test_a_failed_score_is_superseded_by_a_later_good_one",
    ),
    (
        "run/packing.py",
        'put(f"{g}/score/{i}", c.value.double())',
        'put(f"{g}/score/{i}", c.value.float())',
        "test_what_is_packed_is_read_back_bit_for_bit",
    ),
    (
        "run/packing.py",
        "enumerate(status) if s != OK}",
        "enumerate(status, 1) if s != OK}",
        "test_statuses_are_kept_by_row",
    ),
    (
        "run/packing.py",
        "keys = sorted(group.answers)",
        "keys = list(reversed(sorted(group.answers)))[:1]",
        "test_what_is_packed_is_read_back_bit_for_bit",
    ),
    (
        "core/files.py",
        "temporary.replace(path)",
        "path.write_bytes(data)",
        "test_a_failing_disk_leaves_the_old_file_and_no_temporary",
    ),
    (
        "core/files.py",
        "if name and not alive(int(name[1] or name[2])):",
        "if name:",
        "test_a_temporary_of_a_dead_process_is_swept_and_that_of_a_live_one_kept",
    ),
)


def run(make_setup, out):
    return Result(execute(make_setup(["saliency", "random"], ["sds"]), out, FIXED))


@pytest.mark.parametrize("where", [0.0, 0.01, 0.5, 0.99])
def test_a_flipped_byte_is_found_set_aside_and_computed_again(make_setup, tmp_path, where):
    reference = run(make_setup, tmp_path / "r").scores()
    victim = sorted((tmp_path / "r" / "chunks").iterdir())[0]
    raw = bytearray(victim.read_bytes())
    raw[int(where * (len(raw) - 1))] ^= 0x20
    victim.write_bytes(raw)
    with pytest.warns(StoreWarning, match="damaged"):
        store = Store.open(tmp_path / "r", create=True)
    assert len(store.damaged) == 1
    assert not victim.exists()
    assert (tmp_path / "r" / "quarantine" / victim.name).exists()
    assert run(make_setup, tmp_path / "r").scores()["score"].equals(reference["score"])


@pytest.mark.parametrize("keep", [0, 7, 200, -1])
def test_a_truncated_file_is_found(make_setup, tmp_path, keep):
    reference = run(make_setup, tmp_path / "r").scores()
    victim = sorted((tmp_path / "r" / "chunks").iterdir())[-1]
    victim.write_bytes(victim.read_bytes()[:keep])
    with pytest.warns(StoreWarning):
        again = run(make_setup, tmp_path / "r").scores()
    assert again["score"].equals(reference["score"])


def test_a_deleted_file_is_computed_again(make_setup, tmp_path):
    reference = run(make_setup, tmp_path / "r").scores()
    sorted((tmp_path / "r" / "chunks").iterdir())[1].unlink()
    opened = Result.open(tmp_path / "r")
    missing = opened.scores()["status"].str.starts_with("missing").sum()
    assert 0 < missing <= 16
    assert opened.check() == [f"{missing} cells are not computed; run the study again to fill them in"]
    assert run(make_setup, tmp_path / "r").scores()["score"].equals(reference["score"])


def test_two_runs_can_be_merged_by_copying_their_chunks(make_setup, tmp_path):
    reference = run(make_setup, tmp_path / "r").scores()
    other = tmp_path / "other"
    store = execute(make_setup(["saliency", "random"], ["sds"]), other, Runtime(progress="none", batch=4, budget=1e-9))
    for path in (tmp_path / "r" / "chunks").iterdir():
        (other / "chunks" / path.name).write_bytes(path.read_bytes())
    store.refresh()
    assert Result.open(other).scores()["score"].equals(reference["score"])


def test_a_temporary_of_a_dead_process_is_swept_and_that_of_a_live_one_kept(tmp_path):
    dead = 2**22 - 3
    (tmp_path / f".tmp-{dead}-00").write_text("half")
    (tmp_path / f".tmp-{os.getpid()}-00").write_text("half")
    sweep_temporaries(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [f".tmp-{os.getpid()}-00"]


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file_and_no_temporary(tmp_path, monkeypatch, call):
    target = tmp_path / "file"
    write_atomically(target, b"old")

    def fail(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    if call == "replace":
        monkeypatch.setattr("pathlib.Path.replace", fail)
    elif call == "fsync":
        monkeypatch.setattr("os.fsync", fail)
    else:
        monkeypatch.setattr("pathlib.Path.open", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(target, b"new")
    monkeypatch.undo()
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_is_no_run_says_so(tmp_path):
    with pytest.raises(HeatcheckError, match="is not a run folder"):
        Store.open(tmp_path)


def test_a_chunk_of_another_format_is_refused_with_advice(make_setup, tmp_path, monkeypatch):
    monkeypatch.setattr("heatcheck.run.packing.FORMAT", 99)
    run(make_setup, tmp_path / "r")
    monkeypatch.undo()
    with pytest.raises(HeatcheckError, match="store format 99"):
        Store.open(tmp_path / "r")


def test_a_torn_run_record_is_rebuilt_from_the_study(make_setup, tmp_path):
    reference = run(make_setup, tmp_path / "r").scores()
    (tmp_path / "r" / "run.json").write_text('{"half":')
    with pytest.warns(StoreWarning, match=r"run\.json is damaged"):
        assert Result.open(tmp_path / "r").scores().equals(reference)


def test_a_torn_run_record_of_a_folder_without_studies_is_an_error_that_names_the_file(make_setup, tmp_path):
    run(make_setup, tmp_path / "r")
    (tmp_path / "r" / "run.json").write_text('{"half":')
    for study in (tmp_path / "r" / "studies").iterdir():
        study.unlink()
    with pytest.warns(StoreWarning), pytest.raises(StorageError, match=r"run\.json cannot be used: it is no JSON"):
        Result.open(tmp_path / "r")


@given(
    scores=st.lists(st.floats(allow_nan=True, allow_infinity=False), min_size=1, max_size=8),
    answers=st.dictionaries(st.binary(min_size=16, max_size=16), st.floats(-1e6, 1e6), max_size=5),
)
def test_what_is_packed_is_read_back_bit_for_bit(tmp_path_factory, scores, answers):
    import numpy as np

    samples = [
        {
            "name": str(i),
            "digest": f"{i:064d}",
            "context": "c",
            "target": 1,
            "label": None,
            "top": [1, 0],
            "prob": [1, 0],
        }
        for i in range(len(scores))
    ]
    status = ["undefined: made so" if s != s else "ok" for s in scores]
    column = ScoreColumn("m", "k", torch.tensor(scores, dtype=torch.float64), status)
    rows = {k: np.full(6, v) for k, v in answers.items()}
    group = SampleGroup("model", 0, samples, scores=[column], answers=rows)
    folder = tmp_path_factory.mktemp("s")
    store = Store.open(folder, create=True)
    path = store.commit([group])
    assert store.commit([group]) == path
    store.refresh()
    keys = [f"{i:064d}:1:c" for i in range(len(scores))]
    at = store.index.find("scores", "model", 0, keys, ["m"], ["k"])[:, 0, 0]
    assert [store.status("model", 0, "m", "k", sample) for sample in samples] == status
    assert store.index.numbers.values[at].tobytes() == np.array(scores).tobytes()
    back = store.answers("model", [s["digest"] for s in samples])
    assert back.keys() == rows.keys()
    assert all((back[k] == rows[k]).all() for k in rows)


def test_a_row_of_a_tensor_is_the_tensors_row(make_setup, tmp_path):
    execute(make_setup(), tmp_path, Runtime(progress="none"))
    store = Store.open(tmp_path)
    chunk = store.chunk(store.index.names[0])
    for name, about in chunk.tensors.items():
        whole = chunk.tensor(name)
        for row in range(about["shape"][0]):
            assert torch.equal(chunk.row(name, row).nan_to_num(7), whole[row].nan_to_num(7))
        with pytest.raises(IndexError, match=r"and no row"):
            chunk.row(name, about["shape"][0])


def test_statuses_are_kept_by_row():
    assert exceptions(["ok", "failed: x", "ok", "undefined: y"]) == {"1": "failed: x", "3": "undefined: y"}


def test_a_failed_score_is_superseded_by_a_later_good_one(tmp_path):
    sample = {"name": "a", "digest": "d", "context": "c", "target": 1, "label": None, "top": [1], "prob": [1.0]}
    store = Store.open(tmp_path, create=True)
    bad = ScoreColumn("m", "k", torch.tensor([torch.nan]), ["failed: once"])
    good = ScoreColumn("m", "k", torch.tensor([0.5]), ["ok"])
    for column in (bad, good, bad):
        store.commit([SampleGroup("model", 0, [sample], scores=[column], costs={"m": {"seconds": 1.0}})])
    store.refresh()
    assert store.status("model", 0, "m", "k", sample) == "ok"


def test_headers_hold_no_nan(make_setup, tmp_path):
    run(make_setup, tmp_path / "r")
    for header in Store.open(tmp_path / "r").headers.values():
        json.dumps(header, allow_nan=False)


def test_packing_refuses_nan_in_the_header():
    group = SampleGroup("m", 0, [{"digest": "d", "prob": [float("nan")]}])
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack([group])
