"""Shards and merged runs: the same bits as one run, nothing lost, nothing overwritten, every disagreement told."""

import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import heatcheck as hc
from heatcheck.api.result import Result
from heatcheck.cli import app
from heatcheck.core.spec import SpecError
from heatcheck.run import merge as module
from heatcheck.run.compaction import compact
from heatcheck.run.execution import execute
from heatcheck.run.packing import SampleGroup, ScoreColumn, read_chunk
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import Setup
from heatcheck.run.shard import Shard
from heatcheck.run.store import Store

from .conftest import bits

FIXED = Runtime(batch=4, progress="none")
METHODS, METRICS = ["saliency", "occlusion", "random"], ["sds", "morf(steps=4)"]
MUTANTS = (
    (
        "run/shard.py",
        "position % self.of == self.number - 1",
        "position % self.of != self.number - 1",
        "test_shards_are_balanced_and_every_sample_is_in_one",
    ),
    ("run/merge.py", "if other != number:", "if False:", "test_different_values_are_told_and_the_first_is_kept"),
    (
        "run/merge.py",
        "if theirs:\n                self.write_without",
        "if False:\n                self.write_without",
        "test_different_values_are_told_and_the_first_is_kept",
    ),
    (
        "run/merge.py",
        "not same_shape and close(*values)",
        "close(*values)",
        "test_rounding_is_no_conflict_only_where_the_numerics_differ",
    ),
    (
        "run/merge.py",
        "if hashlib.sha256(data).hexdigest() != path.stem:",
        "if False:",
        "test_a_chunk_that_changes_while_it_is_copied_is_left_out",
    ),
    (
        "run/history.py",
        "finished and not elsewhere(manifest)",
        "finished",
        "test_shards_in_folders_of_their_own_merge_into_the_bits_of_the_whole_run",
    ),
    ("cli/folder.py", "if found.damaged:", "if False:", "test_the_command_tells_by_its_exit_code"),
    ("run/history.py", '*other["shards"]', "", "test_shards_in_one_folder_do_not_disturb_each_other"),
)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def setup(make_setup) -> Setup:
    return make_setup(METHODS, METRICS)


@pytest.fixture(scope="module")
def made(setup, tmp_path_factory) -> Path:
    """A whole run, and the same study in three shards."""
    folder = tmp_path_factory.mktemp("made")
    execute(setup, folder / "whole", FIXED)
    for i in (1, 2, 3):
        execute(setup, folder / f"shard-{i}", Runtime.of(FIXED, shard=f"{i}/3"))
    return folder


@pytest.fixture
def whole(made, tmp_path) -> Path:
    return Path(shutil.copytree(made / "whole", tmp_path / "whole"))


@pytest.fixture
def shards(made, tmp_path) -> list[Path]:
    return [Path(shutil.copytree(made / name, tmp_path / name)) for name in ("shard-1", "shard-2", "shard-3")]


@pytest.mark.parametrize(("n", "of"), [(20, 3), (2, 5), (16, 16), (7, 1)])
def test_shards_are_balanced_and_every_sample_is_in_one(n, of):
    parts = [Shard(i, of).share(range(n)) for i in range(1, of + 1)]
    assert sorted(i for part in parts for i in part) == list(range(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "1", "a/b", "-1/4", "1/4/2", 3])
def test_a_shard_that_cannot_be_is_refused_with_what_to_write(text):
    with pytest.raises(SpecError, match=r"should be a number and how many there are, such as 3/16"):
        Runtime.of(shard=text)


def test_shards_in_folders_of_their_own_merge_into_the_bits_of_the_whole_run(whole, shards, tmp_path):
    one = Result.open(shards[0])
    told = "This is shard 1 of 3: 7 of 20 samples. `heatcheck merge` joins the folders of all shards."
    assert told in one.lines and told in str(one.leaderboard()).replace("\n", " ") and told in one.facts["union"]
    assert one.failed == one.missing == 0 and not one.facts["finished"]
    assert {p.name for s in (*shards, whole) for p in s.glob("studies/*")} == {p.name for p in whole.glob("studies/*")}
    before = [snapshot(folder) for folder in shards]
    merged = hc.merge(shards, tmp_path / "all")
    assert (merged.conflicts, merged.maps, merged.rounded, merged.missing, merged.damaged) == (0, 0, 0, 0, [])
    assert merged.linked == merged.chunks and merged.notes == []
    assert bits(tmp_path / "all") == bits(whole)
    assert [snapshot(folder) for folder in shards] == before
    result = Result.open(tmp_path / "all")
    assert result.facts["finished"] and not result.lines and result.check() == []
    spent = [Result.open(folder).facts["passes"]["forwards"] for folder in (*shards, tmp_path / "all")]
    assert sum(spent[:-1]) == spent[-1] == Result.open(whole).facts["passes"]["forwards"]


def test_some_of_the_shards_are_told_and_the_rest_is_missing(shards, tmp_path):
    merged = hc.merge(shards[1:], tmp_path / "some")
    assert merged.missing == 7 * 6
    lines = Result.open(tmp_path / "some").lines
    assert lines == ["This is shards 2, 3 of 3: 13 of 20 samples. `heatcheck merge` joins the folders of all shards."]


def test_shards_in_one_folder_do_not_disturb_each_other(setup, whole, tmp_path):
    out = tmp_path / "one"
    for i in (1, 2, 3):
        execute(setup, out, Runtime.of(FIXED, shard=f"{i}/3"))
    assert bits(out) == bits(whole)
    record = json.loads((out / "run.json").read_text())
    assert record["shards"] == ["1/3", "2/3", "3/3"] and record["finished"]
    assert Result.open(out).lines == []


def test_numerics_are_taken_from_another_run(setup, whole, tmp_path):
    execute(setup, tmp_path / "r", Runtime(progress="none", numerics=str(whole), shard="1/4"))
    assert json.loads((tmp_path / "r/numerics.json").read_text()) == json.loads((whole / "numerics.json").read_text())
    with pytest.raises(hc.HeatcheckError, match=r"has no numerics\.json"):
        execute(setup, tmp_path / "s", Runtime(progress="none", numerics=str(tmp_path)))


def test_other_studies_merge_as_if_they_were_run_into_one_folder(make_setup, whole, tmp_path):
    other = make_setup(["saliency", "random"], ["infidelity(samples=8)"])
    execute(other, tmp_path / "other", FIXED)
    hc.merge([whole, tmp_path / "other"], tmp_path / "both")
    execute(other, whole, FIXED)
    assert bits(tmp_path / "both") == bits(whole)


def altered(source: Path, to: Path, change: float, **numerics: object) -> tuple[Path, int]:
    """A copy of a run in which the first chunk's scores differ, and how many these are."""
    shutil.copytree(source, to)
    path = min(to.glob("chunks/*"))
    groups = unpacked(path, change, numerics)
    path.unlink()
    Store.open(to, create=True).commit(groups)
    return to, sum(len(column.value) for group in groups for column in group.scores)


def unpacked(path: Path, change: float, numerics: dict) -> list:
    from safetensors.torch import load_file

    tensors = load_file(path)
    groups = []
    for group in read_chunk(path).header["groups"]:
        scores = [
            ScoreColumn(c["method"], c["metric"], tensors[c["tensor"]] + change, ["ok"] * len(group["samples"]))
            for c in group["scores"]
        ]
        shape = {**group["numerics"], **numerics}
        groups.append(SampleGroup(group["model"], group["seed"], group["samples"], scores=scores, numerics=shape))
    return groups


def test_different_values_are_told_and_the_first_is_kept(whole, tmp_path):
    other, n = altered(whole, tmp_path / "other", 0.5)
    merged = hc.merge([whole, other], tmp_path / "a")
    assert merged.conflicts == n and len(merged.examples) == module.NAMED
    first = merged.examples[0]
    assert first.other == pytest.approx(first.kept + 0.5) and first.runs == ("whole", "other")
    assert f"{first.method} under {first.metric}" in str(first) and first.method in METHODS
    assert bits(tmp_path / "a") == bits(whole)
    reversed_ = hc.merge([other, whole], tmp_path / "b")
    assert reversed_.conflicts == n and bits(tmp_path / "b") == bits(other) != bits(whole)


def test_rounding_is_no_conflict_only_where_the_numerics_differ(whole, tmp_path):
    same, n = altered(whole, tmp_path / "same", 1e-9)
    other, _ = altered(whole, tmp_path / "numerics", 1e-9, forward=2)
    assert hc.merge([whole, same], tmp_path / "a").conflicts == n
    merged = hc.merge([whole, other], tmp_path / "b")
    assert (merged.conflicts, merged.rounded) == (0, n)
    assert bits(tmp_path / "b") == bits(whole)


def test_other_numerics_are_told(setup, whole, tmp_path):
    execute(setup, tmp_path / "other", Runtime.of(FIXED, batch=5, shard="1/2"))
    (note,) = hc.merge([whole, tmp_path / "other"], tmp_path / "a").notes
    assert note.startswith(
        "other was computed with other numerics for toy (forward 5 instead of 4, backward 5 instead of 4)"
    )
    assert json.loads((tmp_path / "a/numerics.json").read_text()) == json.loads((whole / "numerics.json").read_text())


def test_compiled_passes_are_other_numerics(whole, tmp_path):
    other = Store.open(shutil.copytree(whole, tmp_path / "other"))
    other.write("numerics.json", {model: {**n, "compiled": True} for model, n in other.numerics().items()})
    (note,) = hc.merge([whole, tmp_path / "other"], tmp_path / "a").notes
    assert "for toy (compiled True instead of False)" in note and note.endswith("--numerics makes them equal")


def test_damaged_chunks_are_left_out_and_told(shards, tmp_path):
    path = min(shards[0].glob("chunks/*"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    before = snapshot(shards[0])
    merged = hc.merge(shards, tmp_path / "all")
    assert merged.damaged == [f"{path.resolve()}: its bytes do not match its name"] and merged.missing
    assert snapshot(shards[0]) == before and not (tmp_path / "all/chunks" / path.name).exists()


def test_compacted_runs_merge_and_their_conflicts_are_told(whole, tmp_path):
    other, n = altered(whole, tmp_path / "other", 0.5)
    expected = bits(other)
    for folder in (whole, other):
        assert compact(Store.open(folder, create=True)).after == 1
    merged = hc.merge([whole, other], tmp_path / "a")
    assert merged.conflicts == n and bits(tmp_path / "a") == bits(whole)
    assert hc.merge([other, whole], tmp_path / "b").conflicts == n and bits(tmp_path / "b") == expected


def test_the_command_tells_by_its_exit_code(whole, shards, tmp_path):
    def merge(*runs: Path, out: str) -> tuple[int, dict]:
        told = CliRunner().invoke(app, ["merge", *map(str, runs), "--out", str(tmp_path / out), "--json", "--quiet"])
        return told.exit_code, json.loads(told.stdout)

    assert merge(*shards, out="all")[0] == 0
    code, told = merge(*shards[1:], out="some")
    assert code == 3 and told["missing"] == 7 * 6
    code, told = merge(whole, altered(whole, tmp_path / "other", 0.5)[0], out="differing")
    assert code == 3 and told["conflicts"] and told["examples"][0]["runs"] == ["whole", "other"]
    path = min(shards[0].glob("chunks/*"))
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    code, told = merge(*shards, out="damaged")
    assert code == 4 and path.name in told["damaged"][0]


def test_without_links_chunks_are_copied(shards, tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(module.os, "link", refuse)
    merged = hc.merge(shards, tmp_path / "all")
    assert merged.linked == 0 and merged.missing == 0


def test_a_chunk_that_changes_while_it_is_copied_is_left_out(shards, tmp_path, monkeypatch):
    def refuse(path: Path, _: object) -> None:
        Path(path).write_bytes(b"changed")
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(module.os, "link", refuse)
    merged = hc.merge(shards[:1], tmp_path / "all")
    assert len(merged.damaged) == len(list(shards[0].glob("chunks/*")))
    assert list((tmp_path / "all/chunks").iterdir()) == []


@pytest.mark.parametrize("k", range(3))
def test_a_merge_that_is_killed_is_finished_by_the_same_command(whole, shards, tmp_path, monkeypatch, k):
    other, _ = altered(whole, tmp_path / "other", 0.5)
    sources = [shards[0], other, *shards[1:]]
    link, calls = os.link, []

    def killed(*args: object) -> None:
        calls.append(args)
        if len(calls) > k:
            raise KeyboardInterrupt
        link(*args)

    monkeypatch.setattr(module.os, "link", killed)
    with pytest.raises(KeyboardInterrupt):
        hc.merge(sources, tmp_path / "all")
    monkeypatch.setattr(module.os, "link", link)
    again = hc.merge(sources, tmp_path / "all")
    clean = hc.merge(sources, tmp_path / "clean")
    assert again.conflicts == clean.conflicts > 0
    assert snapshot(tmp_path / "all/chunks") == snapshot(tmp_path / "clean/chunks")
    assert bits(tmp_path / "all") == bits(tmp_path / "clean")


def test_runs_are_never_written_into(whole, shards, tmp_path):
    with pytest.raises(hc.HeatcheckError, match="is one of the runs that are merged"):
        hc.merge([whole, *shards], whole)
    with pytest.raises(hc.HeatcheckError, match="no merge has put there"):
        hc.merge(shards, whole)
    with pytest.raises(hc.HeatcheckError, match="not a run folder"):
        hc.merge([tmp_path / "absent"], tmp_path / "all")
    with pytest.raises(hc.HeatcheckError, match="got none"):
        hc.merge([], tmp_path / "all")
    assert not (tmp_path / "all").exists()
