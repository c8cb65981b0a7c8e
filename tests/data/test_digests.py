"""Unchanged pictures are read once: their digests are remembered as git remembers files."""

import os

import numpy as np
import pytest
from PIL import Image

from heatcheck.core.files import sha256_of
from heatcheck.data import digests as module
from heatcheck.data import images
from heatcheck.data.digests import Digests, digests
from heatcheck.data.load import load_data
from heatcheck.probe.numerics import Numerics
from heatcheck.run.resources import Resources
from heatcheck.run.work import SampleRef, Sources, Work

MUTANTS = (
    (
        "data/digests.py",
        "if known is not None and known[0] == facts:",
        "if known is not None:",
        "test_a_change_is_seen",
    ),
    ("data/digests.py", "{state.st_ctime_ns} ", "", "test_a_change_with_the_old_time_and_size_is_seen"),
    (
        "data/digests.py",
        "if settled and problem is None",
        "if problem is None",
        "test_what_was_just_changed_is_not_remembered",
    ),
    ("data/digests.py", "if settled and problem is None", "if settled", "test_what_cannot_be_read_is_looked_at_again"),
    (
        "run/resources.py",
        "self._listing = listing_of(sources.data, options)",
        "self._listing = listing_of(sources.data, options); self._listing.collect(None, None)",
        "test_a_worker_reads_only_the_samples_that_its_works_name",
    ),
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Four pictures, and a memory of its own that takes files of any age."""
    place = tmp_path / "pictures"
    place.mkdir()
    rng = np.random.default_rng(0)
    for i in range(4):
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(place / f"{i}.png")
    monkeypatch.setenv("HEATCHECK_DIGESTS", str(tmp_path / "memory" / "digests.sqlite"))
    monkeypatch.setattr(module, "SETTLED", 0)
    return place


@pytest.fixture
def read(monkeypatch):
    """The names of the files that are read from now on."""
    names = []

    def noted(path):
        names.append(path.name)
        return sha256_of(path)

    monkeypatch.setattr(images, "sha256_of", noted)
    return names


def test_unchanged_pictures_are_read_once(folder, read):
    first = load_data(f"folder:{folder}")
    assert read == ["0.png", "1.png", "2.png", "3.png"]
    again = load_data(f"folder:{folder}")
    assert len(read) == 4 and [s.digest for s in again] == [s.digest for s in first]
    assert first[0].digest == sha256_of(folder / "0.png")


def test_a_change_is_seen(folder, read):
    before = load_data(f"folder:{folder}")
    Image.new("RGB", (20, 20)).save(folder / "1.png")
    after = load_data(f"folder:{folder}")
    assert read[4:] == ["1.png"] and after[1].digest == sha256_of(folder / "1.png") != before[1].digest


def test_a_change_with_the_old_time_and_size_is_seen(folder):
    path = folder / "1.png"
    load_data(f"folder:{folder}")
    state, content = path.stat(), bytearray(path.read_bytes())
    content[-1] ^= 1
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert path.stat().st_mtime_ns == state.st_mtime_ns and path.stat().st_size == state.st_size
    assert load_data(f"folder:{folder}")[1].digest == sha256_of(path)


def test_what_was_just_changed_is_not_remembered(folder, read, monkeypatch):
    monkeypatch.setattr(module, "SETTLED", 3600 * 10**9)
    load_data(f"folder:{folder}")
    load_data(f"folder:{folder}")
    assert len(read) == 8


def test_what_cannot_be_read_is_looked_at_again(folder, read):
    (folder / "2.png").write_bytes(b"no picture")
    for _ in range(2):
        assert load_data(f"folder:{folder}")[2].problem is not None
    assert read[4:] == ["2.png"]


@pytest.mark.parametrize("broken", ["not a database", "a folder"])
def test_where_nothing_can_be_remembered_everything_is_read(folder, read, tmp_path, monkeypatch, broken):
    place = tmp_path / "broken"
    place.write_text("x" * 5000) if broken == "not a database" else place.mkdir()
    monkeypatch.setenv("HEATCHECK_DIGESTS", str(place))
    for _ in range(2):
        assert all(s.problem is None for s in load_data(f"folder:{folder}"))
    assert len(read) == 8


def test_it_can_be_turned_off_and_moved(monkeypatch, tmp_path):
    monkeypatch.setenv("HEATCHECK_DIGESTS", "off")
    assert digests() is None
    monkeypatch.setenv("HEATCHECK_DIGESTS", "")
    monkeypatch.setenv("HEATCHECK_CACHE", str(tmp_path))
    found = digests()
    assert isinstance(found, Digests) and found.file == tmp_path / "digests.sqlite"


def test_a_worker_reads_only_the_samples_that_its_works_name(folder, read):
    data = load_data(f"folder:{folder}")
    (folder / "memory").parent.joinpath("..", "memory", "digests.sqlite").resolve().unlink()
    read.clear()
    refs = tuple(SampleRef(s.name, s.digest, 7) for s in data[1:3])
    sources = Sources(data=f"folder:{folder}")
    work = Work(model="m", identity="", samples=refs, methods=(), metrics=(), numerics=Numerics(), sources=sources)
    resources = Resources()
    found = resources.samples(work)
    assert [(s.name, s.digest, s.label) for s in found] == [(r.name, r.digest, 7) for r in refs]
    assert read == ["1.png", "2.png"]
