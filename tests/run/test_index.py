"""The index beside the chunks: whatever happens to files, a folder says what reading its chunks one by one says."""

import hashlib
import json
import os
import random
import shutil
import tempfile
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from heatcheck.core.types import OK, Attribution
from heatcheck.run import store as store_module
from heatcheck.run.compaction import batches, compact, contradicted, merged
from heatcheck.run.index import Index, Stale
from heatcheck.run.packing import MapColumn, SampleGroup, ScoreColumn, map_row, read_chunk, score_row
from heatcheck.run.store import Store, StoreWarning

MODELS, SEEDS, METHODS, METRICS = ("model a", "model b"), (0, 7), ("m", "n", "o"), ("k", "l")
MUTANTS = (
    (
        "run/store.py",
        "if there.get(name) == stamp}",
        "if name in there}",
        "test_a_flipped_chunk_is_noticed_though_the_index_is_whole",
    ),
    (
        "run/index.py",
        "    if hashlib.sha256(data).hexdigest() != digest:",
        "    if False:",
        "test_an_index_that_is_damaged_is_made_again",
    ),
    (
        "run/index.py",
        "found[cell[good][::-1]] = where[good][::-1]",
        "found[cell[good]] = where[good]",
        "test_of_several_results_the_first_good_one_counts",
    ),
    (
        "run/index.py",
        "        return joined.take(order)",
        "        return joined",
        "test_of_several_results_the_first_good_one_counts",
    ),
    (
        "run/store.py",
        "empty() if found.digest == self.index.digest else found",
        "found",
        "test_an_index_that_is_damaged_is_made_again",
    ),
)


@pytest.fixture(autouse=True)
def always_indexed(monkeypatch):
    """Folders as small as those here have no index otherwise."""
    monkeypatch.setattr(store_module, "MANY", 0)


def sample(number: int, *, target: int = 1, context: str = "c") -> dict[str, Any]:
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    about = {"name": f"{number}.png", "label": None, "top": [1, 0], "prob": [0.75, 0.25]}
    return {**about, "digest": digest, "context": context, "target": target}


def group(chance: random.Random, samples: list[dict[str, Any]] | None = None) -> SampleGroup:
    """Made-up results of a few samples: some columns, some of them failed."""
    rows = samples or [sample(i) for i in sorted(chance.sample(range(6), chance.randint(1, 3)))]
    n = len(rows)

    def status() -> list[str]:
        return chance.choices([OK, "failed: now", "failed: then", "undefined: so"], (8, 1, 1, 1), k=n)

    def numbers(*shape: int) -> torch.Tensor:
        values = [chance.random() for _ in range(int(np.prod(shape)))]
        return torch.tensor(values, dtype=torch.float64).reshape(shape)

    pairs = [(m, k) for m in METHODS for k in METRICS if chance.random() < 0.6]
    scores = [
        ScoreColumn(m, k, numbers(n), status(), numbers(n, 4) if k == "l" else None, (0.0, 1.0) if k == "l" else ())
        for m, k in pairs
    ]
    some = [m for m in METHODS if chance.random() < 0.5]
    target = torch.tensor([row["target"] for row in rows])
    maps = [MapColumn(m, Attribution(numbers(n, 2, 2).float(), target, m, status=tuple(status()))) for m in some]
    answers = {bytes(chance.randrange(256) for _ in range(16)): np.array([chance.random()] * 3) for _ in range(2)}
    costs = {m: {"seconds": chance.random(), "forwards": 2.0, "backwards": 0.0} for m in some}
    display = {"sample": rows[0]["digest"], "rgb": torch.full((2, 2, 3), chance.randrange(256), dtype=torch.uint8)}
    model, seed = chance.choice(MODELS), chance.choice(SEEDS)
    return SampleGroup(model, seed, rows, numbers(n, 3).float(), maps, scores, answers, [display], {}, costs)


def problem(chance: random.Random) -> SampleGroup:
    record = {**sample(chance.randrange(6), target=1), "problem": "skipped: it has no label", "asked": "label"}
    return SampleGroup(chance.choice(MODELS), chance.choice(SEEDS), [record])


def slowly(folder: Path) -> dict[tuple, Any]:
    """What a folder holds, cell by cell, by reading every chunk that is whole; what another has the content of counts not."""
    found: dict[tuple, Any] = {}
    chunks = {}
    for path in sorted((folder / "chunks").glob("*.safetensors")):
        if hashlib.sha256(path.read_bytes()).hexdigest() == path.stem:
            chunks[path.name] = read_chunk(path)
    replaced = {name for chunk in chunks.values() for name in chunk.replaces}
    for name, chunk in chunks.items():
        if name in replaced:
            continue
        for g, part in enumerate(chunk.header["groups"]):
            key = part["model"], part["seed"]
            costs = chunk.costs(g)
            for row, record in enumerate(part["samples"]):
                if record.get("problem"):
                    found.setdefault(("problem", part["model"], record["digest"]), record["problem"])
                else:
                    found.setdefault(("sample", part["model"], record["digest"]), record["top"])
                for method, prices in costs.items():
                    found["cost", *key, method, map_row(record)] = prices[row].tobytes()
                for column in part["maps"]:
                    status = column["status"].get(str(row), OK)
                    if not status.startswith("failed"):
                        values = chunk.tensor(column["tensor"])[row].numpy().tobytes()
                        found.setdefault(("map", *key, column["method"], map_row(record)), (values, status))
                for column in part["scores"]:
                    cell = ("score", *key, column["method"], column["metric"], score_row(record))
                    status = column["status"].get(str(row), OK)
                    if cell not in found or found[cell][1].startswith("failed"):
                        found[cell] = chunk.tensor(column["tensor"])[row].numpy().tobytes(), status
    return found


def quickly(store: Store) -> dict[tuple, Any]:
    """The same from the index: tables at once, maps and problems one by one."""
    found: dict[tuple, Any] = {}
    records = [sample(i) for i in range(6)]
    index = store.index
    for model in MODELS:
        for digest, record in index.samples_of(model).items():
            found["sample", model, digest] = record["top"]
        for record in records:
            why = store.problem(model, record["digest"], "c", "label")
            if why:
                found["problem", model, record["digest"]] = why
        for seed in SEEDS:
            keys = [score_row(record) for record in records]
            at = index.find("scores", model, seed, keys, METHODS, METRICS)
            status = index.statuses("scores")
            for i, j, k in zip(*np.nonzero(at >= 0), strict=True):
                where = at[i, j, k]
                text = index.texts.all[status[where]] or OK
                assert store.status(model, seed, METHODS[j], METRICS[k], records[i]) == text
                cell = "score", model, seed, METHODS[j], METRICS[k], keys[i]
                found[cell] = index.numbers.values[where].tobytes(), text
            at = index.find("costs", model, seed, [map_row(r) for r in records], METHODS)
            for i, j in zip(*np.nonzero(at >= 0), strict=True):
                cell = "cost", model, seed, METHODS[j], map_row(records[i])
                found[cell] = index.numbers.prices[at[i, j]].tobytes()
                assert store.made_map(model, seed, METHODS[j], records[i])
            for record in records:
                for method in METHODS:
                    kept = store.map(model, seed, method, record)
                    assert (kept is not None) == store.has_map(model, seed, method, record)
                    if kept is not None:
                        cell = "map", model, seed, method, map_row(record)
                        found[cell] = kept.values.numpy().tobytes(), kept.status
    return found


def opened(folder: Path, **options: Any) -> Store:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        return Store.open(folder, **options)


def chunks_of(folder: Path) -> list[Path]:
    return sorted((folder / "chunks").glob("*.safetensors"))


def filled(folder: Path, chunks: int = 5) -> Store:
    store = opened(folder, create=True)
    store.write("run.json", {})
    chance = random.Random(0)
    for _ in range(chunks):
        store.commit([group(chance), group(chance)])
    store.refresh()
    assert (folder / "index" / "index.json").exists()
    return store


class AnythingHappens(RuleBasedStateMachine):
    """Chunks are added, damaged, removed and put together; the index is damaged, removed and swapped."""

    def __init__(self) -> None:
        super().__init__()
        self.many, store_module.MANY = store_module.MANY, 0
        self.folder = Path(tempfile.mkdtemp())
        self.open = opened(self.folder, create=True)
        self.open.write("run.json", {})

    def teardown(self) -> None:
        store_module.MANY = self.many
        shutil.rmtree(self.folder)

    def some(self, number: int, pattern: str) -> Path | None:
        files = sorted(self.folder.glob(pattern))
        return files[number % len(files)] if files else None

    @rule(seed=st.integers(0, 1 << 30), groups=st.integers(1, 3))
    def commit(self, seed, groups):
        chance = random.Random(seed)
        self.open.commit([group(chance) if chance.random() < 0.9 else problem(chance) for _ in range(groups)])

    @rule()
    def refresh(self):
        with warnings.catch_warnings(action="ignore"):
            self.open.refresh()

    @rule(writable=st.booleans())
    def reopen(self, writable):
        self.open = opened(self.folder, create=writable)

    @rule(number=st.integers(0, 100), where=st.floats(0, 1), what=st.sampled_from(["chunks/*.safetensors", "index/*"]))
    def flip(self, number, where, what):
        path = self.some(number, what)
        if path is not None and path.stat().st_size:
            raw = bytearray(path.read_bytes())
            raw[int(where * (len(raw) - 1))] ^= 1
            path.write_bytes(raw)

    @rule(
        number=st.integers(0, 100), what=st.sampled_from(["chunks/*.safetensors", "index/*"]), keep=st.integers(0, 99)
    )
    def cut(self, number, what, keep):
        path = self.some(number, what)
        if path is not None:
            path.write_bytes(path.read_bytes()[: keep * path.stat().st_size // 100])

    @rule(number=st.integers(0, 100), what=st.sampled_from(["chunks/*.safetensors", "index/*"]))
    def remove(self, number, what):
        path = self.some(number, what)
        if path is not None:
            path.unlink()

    @rule()
    def compact(self):
        with warnings.catch_warnings(action="ignore"):
            store = opened(self.folder, create=True)
            before = slowly(self.folder)
            compact(store)
            assert slowly(self.folder) == before

    @rule(removed=st.integers(0, 3))
    def compact_and_be_killed(self, removed):
        with warnings.catch_warnings(action="ignore"):
            store = opened(self.folder, create=True)
            before = slowly(self.folder)
            for batch in batches(store.index, contradicted(store.index)):
                store.keep(merged(store, batch))
                for name in batch[:removed]:
                    (store.chunks / name).unlink()
            assert slowly(self.folder) == before

    @invariant()
    def a_fresh_look_is_right(self):
        truth = slowly(self.folder)
        with warnings.catch_warnings(action="ignore"):
            self.open.refresh()
            for store in (opened(self.folder), self.open):
                assert store.steadily(partial(quickly, store)) == truth


AnythingHappens.TestCase.settings = settings(max_examples=8, stateful_step_count=8, deadline=None)
test_anything_happens = pytest.mark.filterwarnings("ignore")(AnythingHappens.TestCase)


def test_a_flipped_chunk_is_noticed_though_the_index_is_whole(tmp_path):
    filled(tmp_path)
    victim = chunks_of(tmp_path)[2]
    raw = bytearray(victim.read_bytes())
    raw[-5] ^= 1
    victim.write_bytes(raw)
    with pytest.warns(StoreWarning, match="damaged"):
        store = Store.open(tmp_path)
    assert quickly(store) == slowly(tmp_path)
    assert list(store.damaged) == [victim.name]


def test_a_flip_that_keeps_size_and_time_is_found_by_verifying_and_by_whoever_reads_the_chunk(tmp_path):
    filled(tmp_path)
    for victim in chunks_of(tmp_path):
        about, raw = victim.stat(), bytearray(victim.read_bytes())
        raw[-5] ^= 1
        victim.write_bytes(raw)
        os.utime(victim, ns=(about.st_atime_ns, about.st_mtime_ns))
    store = Store.open(tmp_path)
    assert store.damaged == {}
    digests = [sample(i)["digest"] for i in range(6)]
    with pytest.warns(StoreWarning, match="damaged"):
        assert [store.answers(model, digests) for model in MODELS] == [{}, {}]
    assert len(store.damaged) == 5
    assert quickly(store) == {}, "the index is not asked about files that are known to be damaged"
    with pytest.warns(StoreWarning, match="damaged"):
        assert len(Store.open(tmp_path, verify=True).damaged) == 5


@pytest.mark.parametrize("name", ["index.json", "columns", "numbers"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "swap"])
def test_an_index_that_is_damaged_is_made_again(tmp_path, name, harm):
    filled(tmp_path / "r")
    folder = tmp_path / "r" / "index"
    record = json.loads((folder / "index.json").read_text())
    victim = folder / (name if name == "index.json" else f"{record[name]}.safetensors")
    data = victim.read_bytes()
    if harm == "flip":
        victim.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    elif harm == "cut":
        victim.write_bytes(data[: len(data) // 2])
    elif harm == "remove":
        victim.unlink()
    else:
        filled(tmp_path / "other", chunks=2)
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "other" / "index", folder)
    store = Store.open(tmp_path / "r")
    assert store.steadily(partial(quickly, store)) == slowly(tmp_path / "r")
    assert Index.load(tmp_path / "r").names == [path.name for path in chunks_of(tmp_path / "r")] or name == "numbers"


def test_an_index_of_another_version_is_not_read(tmp_path, monkeypatch):
    filled(tmp_path)
    monkeypatch.setattr("heatcheck.run.index.VERSION", 99)
    with pytest.raises(Stale, match="version"):
        Index.load(tmp_path)
    assert quickly(Store.open(tmp_path)) == slowly(tmp_path)


def test_chunks_that_the_index_knows_are_not_read(tmp_path, monkeypatch):
    filled(tmp_path)
    monkeypatch.setattr(store_module, "read_chunk", lambda path: pytest.fail(f"{path} was read"))
    store = Store.open(tmp_path)
    assert len(store.index.names) == 5


def test_of_several_results_the_first_good_one_counts(tmp_path):
    """First and last by the names of the files, which have nothing to do with when they were written."""
    store = opened(tmp_path, create=True)
    store.write("run.json", {})
    for i in range(12):
        status = ["failed: at first" if i % 3 == 0 else OK]
        column = ScoreColumn("m", "k", torch.tensor([float(i)]), status)
        store.commit([SampleGroup("model a", 0, [sample(0)], scores=[column], costs={"m": {"seconds": float(i)}})])
        store.refresh()
    assert quickly(Store.open(tmp_path)) == slowly(tmp_path) == quickly(store)


def test_a_folder_that_cannot_be_written_is_read_all_the_same(tmp_path, monkeypatch):
    filled(tmp_path)
    shutil.rmtree(tmp_path / "index")

    def refuse(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("heatcheck.run.index.write_atomically", refuse)
    assert quickly(Store.open(tmp_path)) == slowly(tmp_path)
    assert not list((tmp_path).glob("index/*"))


def test_numbers_that_are_replaced_meanwhile_are_looked_up_again(tmp_path):
    filled(tmp_path)
    reader = Store.open(tmp_path)
    writer = opened(tmp_path, create=True)
    writer.commit([group(random.Random(99))])
    writer.refresh()
    assert reader.steadily(partial(quickly, reader)) == slowly(tmp_path)


def test_a_small_folder_has_no_index(tmp_path, monkeypatch):
    monkeypatch.undo()
    store = opened(tmp_path, create=True)
    store.write("run.json", {})
    store.commit([group(random.Random(0))])
    store.refresh()
    assert quickly(Store.open(tmp_path)) == slowly(tmp_path)
    assert not (tmp_path / "index").exists()


def test_a_reader_opens_each_chunk_once(tmp_path, monkeypatch):
    filled(tmp_path, chunks=3)
    store = Store.open(tmp_path)
    reads: Counter[str] = Counter()

    def counted(path: Path) -> Any:
        reads[path.name] += 1
        return read_chunk(path)

    monkeypatch.setattr(store_module, "read_chunk", counted)
    for record in [sample(i) for i in range(6)]:
        for model in MODELS:
            store.answers(model, [record["digest"]])
            store.clean_logits(model, record["digest"])
    assert set(reads.values()) == {1}
