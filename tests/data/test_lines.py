"""Texts in plain files, told from lists of pictures, and JSON in one list."""

import json
from pathlib import Path

import pytest

from heatcheck.api.defaults import with_embedded
from heatcheck.core.types import HeatcheckError, Modality
from heatcheck.data.catalogue import modality_of_data, source_at
from heatcheck.data.load import load_data

MUTANTS = (
    ("data/folders.py", "sum(named) * 2 > len(named)", "any(named)", "test_a_text_file_is_a_list_of_pictures_or_texts"),
    (
        "data/catalogue.py",
        "id for id in named[:-1] if sources()[id].fits(path)",
        "id for id in named[:-1]",
        "test_a_text_file_is_a_list_of_pictures_or_texts",
    ),
    ("data/tables.py", "    rows = _listed(text)\n", "    rows = None\n", "test_a_list_of_objects_is_read_as_lines_of_them_are"),
)  # fmt: skip


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_every_line_is_a_text_without_a_label(tmp_path: Path) -> None:
    path = written(tmp_path, "reviews.txt", b"\xef\xbb\xbfA good film\r\n\n  \nbad\x0bness\nb\xffd\n")
    for spec in (str(path), path, f"lines:{path}"):
        data = load_data(spec)
        assert (data.name, data.modality) == ("reviews", Modality.TEXT)
        assert [s.content for s in data][:2] == ["A good film", "bad\x0bness"]
        assert [s.problem for s in data] == [None, None, "the text is not valid UTF-8"]
        assert [s.label for s in data] == [None] * 3
        assert data.notes[0] == "every line is a text, without a label"
    assert with_embedded(None, str(path)) == (["minilm_sentiment"], str(path))


@pytest.mark.parametrize(
    ("content", "id"),
    [
        ("good film\nbad film\n", "lines"),
        ("I saw cat.jpg\ngood\nbad\n", "lines"),
        ("gone.jpg\nothers/GONE.PNG\t3\nb.jpg,1\n", "files"),
        ("gone.jpg 3\ngone.jpg 4\n", "files"),  # no such list can be read, and it is none of texts
        ("picture\npicture,1\nbad\n", "files"),  # a file without a suffix
        ("folder\nfolder\n", "lines"),
        ("", "lines"),
    ],
)
def test_a_text_file_is_a_list_of_pictures_or_texts(tmp_path: Path, content: str, id: str) -> None:
    (tmp_path / "picture").touch()
    (tmp_path / "folder").mkdir()
    path = written(tmp_path, "some.txt", content)
    assert source_at(path) == id
    assert modality_of_data(str(path)) == {"lines": "text", "files": "image"}[id]
    assert source_at(path.rename(tmp_path / "some.lst")) == "files"


def test_a_list_of_objects_is_read_as_lines_of_them_are(tmp_path: Path) -> None:
    rows = [{"text": "a good film", "label": "pos", "spans": [[2, 6]]}, {"text": "bad", "label": "neg"}]
    lines = load_data(written(tmp_path, "a.jsonl", "\n".join(map(json.dumps, rows))))
    for name, content in (
        ("a.json", json.dumps(rows)),
        ("b.json", "\ufeff" + json.dumps(rows, indent=2)),
        ("c.json", "\n".join(map(json.dumps, rows))),
        ("d.jsonl", json.dumps(rows, indent=2)),
    ):
        found = load_data(str(written(tmp_path, name, content)))
        assert (found.samples, found.classes, found.notes) == (lines.samples, lines.classes, lines.notes)


def test_what_is_no_object_in_a_list_is_a_sample_with_a_problem(tmp_path: Path) -> None:
    data = load_data(written(tmp_path, "a.json", '[{"text": "good"}, "bad", [3]]'))
    assert [s.problem for s in data] == [None, *["the item is not a JSON object"] * 2]


@pytest.mark.parametrize("content", ['{\n"text": ["good", "bad"]\n}', '[\n{"text": "good"},\n{"text": "ba'])
def test_json_in_another_form_is_answered_with_the_forms_that_are_read(tmp_path: Path, content: str) -> None:
    with pytest.raises(HeatcheckError, match=r"neither a JSON object per line, such as .*, nor one whole list of them"):
        load_data(written(tmp_path, "a.json", content))
