"""Data sources, as they declare themselves, and the reader of declarations."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

import heatcheck
from heatcheck.core import sources as reader
from heatcheck.core.sources import Source, default_source, read_sources
from heatcheck.core.spec import SpecError
from heatcheck.data import sources
from heatcheck.data.catalogue import check_parameters, default_data, parameters, split_spec

MUTANTS = (
    (
        "core/sources.py",
        "key=lambda s: (groups.index(s.group), s.position)",
        "key=lambda s: (s.position, groups.index(s.group))",
        "test_groups_then_positions_then_files_decide_the_order",
    ),
    ("core/sources.py", "if s.default and s.modality", "if s.modality", "test_the_default_is_declared"),
    (
        "data/catalogue.py",
        "if colon and split in splits and not os.path.lexists(place):",
        "if colon:",
        "test_the_path_in_a_spec",
    ),
)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("images", ("images", "", "")),
        ("images:x", ("", "images:x", "")),
        ("some/path", ("", "some/path", "")),
        ("folder", ("", "folder", "")),
        ("folder:val", ("folder:", "val", "")),
        ("squares:images", ("squares:images", "", "")),
        ("squares:folder:val", ("squares:folder:", "val", "")),
        ("squares:val", ("squares:", "val", "")),
        ("eraser:m.tar.gz", ("eraser:", "m.tar.gz", "")),
        ("eraser:m.tar.gz:val", ("eraser:", "m.tar.gz", ":val")),
        ("eraser:c:m", ("eraser:", "c:m", "")),
        ("folder:some:train", ("folder:", "some", ":train")),
        ("train_part:images", ("train_part:images", "", "")),
        ("test_part(seed=3, share=0.1):squares:some", ("test_part(seed=3, share=0.1):squares:", "some", "")),
        ("nwpu(seed=3):some:train", ("nwpu(seed=3):", "some", ":train")),
        ("tensor:x", ("", "tensor:x", "")),
    ],
)
def test_the_path_in_a_spec(spec: str, expected: tuple[str, str, str]) -> None:
    assert split_spec(spec) == expected and "".join(expected) == spec


def test_a_path_that_exists_names_no_split(tmp_path: Path) -> None:
    (tmp_path / "old:val").mkdir()
    assert split_spec(f"folder:{tmp_path}/old:val") == ("folder:", f"{tmp_path}/old:val", "")
    assert split_spec(f"folder:{tmp_path}/old:val:train") == ("folder:", f"{tmp_path}/old:val", ":train")


def test_parameters() -> None:
    assert parameters("test_part(seed=3, share=0.1):nwpu(seed=4):x") == {"seed": 3, "share": 0.1}
    assert parameters("images") == parameters("some(thing):x") == {}
    check_parameters("test_part(seed=3):nwpu(seed=4):x")
    with pytest.raises(SpecError, match=r"'nwpu\(sed=4\):x': no parameter is called 'sed'; did you mean seed"):
        check_parameters("test_part(seed=3):nwpu(sed=4):x")


@pytest.mark.parametrize(("modality", "id"), [("image", "images"), ("text", "texts")])
def test_each_modality_has_one_default(modality: str, id: str) -> None:
    assert [s.id for s in sources().values() if s.default and s.modality == modality] == [id]
    assert default_data(modality) == id


def test_every_declaration_belongs_to_a_loader() -> None:
    for source in sources().values():
        assert callable(source.load())
        assert set(source.record()) == {"id", "form", "modality", "about", "licence"}


def test_one_new_file_adds_a_source_last_in_its_group(tmp_path: Path) -> None:
    copy = tmp_path / "heatcheck"
    shutil.copytree(Path(heatcheck.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "data" / "another.py").write_text(
        "from heatcheck.core.sources import source\n"
        "from heatcheck.data.folders import folder\n\n\n"
        "@source('another', form='another:PATH', modality='image', about='one more', group='images')\n"
        "def another(where, options):\n    return folder(where, options)\n"
    )
    Image.new("RGB", (16, 16)).save(tmp_path / "a.png")
    code = (
        "import sys; from heatcheck.data.catalogue import sources; print(*sources()); print('torch' in sys.modules)\n"
        f"from heatcheck.data import load_data; print(len(load_data('another:{tmp_path}')))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    listed, torch_imported, samples = ran.stdout.splitlines()
    ids = listed.split()
    last = [id for id, source in sources().items() if source.group == "images"][-1]
    assert ids[ids.index("another") - 1 : ids.index("another") + 2] == [last, "another", "csv"]
    assert (torch_imported, samples) == ("False", "1")


@dataclass(frozen=True, kw_only=True)
class Toy(Source):
    """A source with few fields."""

    form: str = "{id}"
    modality: str = "image"
    about: str = ""
    licence: str = ""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty package that the reader looks into as `toys`."""
    monkeypatch.setattr(reader, "__file__", str(tmp_path / "core" / "sources.py"))
    (tmp_path / "toys" / "inner").mkdir(parents=True)
    return tmp_path / "toys"


def test_groups_then_positions_then_files_decide_the_order(package: Path) -> None:
    (package / "b.py").write_text(
        "@source('late', group='first', position=2)\ndef late(): ...\n\n\n"
        "@source('other', group='second', position=1)\ndef other(): ...\n"
    )
    (package / "inner" / "a.py").write_text("@source('new', group='first')\ndef new(): ...\n")
    (package / "c.py").write_text("@source('early', group='first', position=1)\ndef early(): ...\n")
    found = read_sources("toys", Toy, ("first", "second"))
    assert list(found) == ["early", "late", "new", "other"]
    assert (found["new"].module, found["new"].function) == ("heatcheck.toys.inner.a", "new")


def test_one_function_declares_several_sources(package: Path) -> None:
    (package / "a.py").write_text(
        "FORM = '{id}@FILE'\n\n\n"
        "@source('9', '17', prefix='bag', form=FORM, about='sees {name} pixels', group='all')\n"
        "@source('lone', group='all')\n"
        "@unrelated('no', group='all')\n"
        "def bag(): ...\n"
    )
    found = read_sources("toys", Toy, ("all",))
    assert [(s.id, s.form, s.about) for s in found.values()] == [
        ("bag9", "bag9@FILE", "sees 9 pixels"),
        ("bag17", "bag17@FILE", "sees 17 pixels"),
        ("lone", "{id}", ""),
    ]


def test_the_default_is_declared(package: Path) -> None:
    (package / "a.py").write_text(
        "@source('first', group='all')\ndef first(): ...\n\n\n"
        "@source('second', group='all', default=True)\ndef second(): ...\n"
    )
    assert default_source(read_sources("toys", Toy, ("all",)), "image").id == "second"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@source('a', group='all')\ndef a(): ...\n@source('a', group='all')\ndef b(): ...\n", "declared twice: a"),
        ("@source('a', group=name())\ndef a(): ...\n", r"line 1: name\(\) is neither a literal nor a constant"),
    ],
)
def test_declarations_that_cannot_be_read(package: Path, text: str, message: str) -> None:
    (package / "a.py").write_text(text)
    with pytest.raises(RuntimeError, match=message):
        read_sources("toys", Toy, ("all",))
