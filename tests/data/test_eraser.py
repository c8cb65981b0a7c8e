"""Texts with rationales in ERASER's layout."""

import io
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from heatcheck.core.types import HeatcheckError, Modality
from heatcheck.data import load_data
from heatcheck.data.eraser import token_spans

MUTANTS = (
    ("data/eraser.py", "places[end - 1][1]", "places[end - 1][0] + 1", "test_token_spans"),
    ("data/eraser.py", "not in earlier]", "is not earlier]", "test_splits"),
)
DOCS = {"n1": "a dull film .\nvery bad", "p1": "fine work", "p2": "good , fun", "n2": "awful"}


def row(id: str, *ranges: tuple[int, int], label: str | None = None, **more: Any) -> dict[str, Any]:
    found = [[{"docid": id, "start_token": a, "end_token": b, "text": ""}] for a, b in ranges]
    return {
        "annotation_id": id,
        "classification": label or ("NEG" if id[0] == "n" else "POS"),
        "evidences": found,
        **more,
    }


SPLITS = {
    "test": [row("n1", (1, 2), (4, 6), (3, 3)), row("p1")],
    "val": [row("p2", (0, 3))],
    "train": [row("p2", (0, 1)), row("n2", (0, 1)), row("n1", (0, 1))],
}


def folder(root: Path, splits: dict[str, Any] = SPLITS, docs: dict[str, str] = DOCS) -> Path:
    (root / "docs").mkdir(parents=True)
    for name, text in docs.items():
        (root / "docs" / name).write_text(text)
    for name, rows in splits.items():
        (root / f"{name}.jsonl").write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    return root


def archive(source: Path, target: Path) -> Path:
    with tarfile.open(target, "w:gz") as tar:
        tar.add(source, arcname="films")
    return target


@pytest.mark.parametrize("packed", [False, True])
def test_splits(tmp_path: Path, packed: bool) -> None:
    where = folder(tmp_path / "films")
    where = archive(where, tmp_path / "films.tar.gz") if packed else where
    data = load_data(f"eraser:{where}")
    assert (data.name, data.modality, data.classes) == ("films-test", Modality.TEXT, ("NEG", "POS"))
    assert [(s.name, s.label) for s in data] == [("n1", 0), ("p1", 1)]
    assert [data[0].content[a:b] for a, b in data[0].reference["spans"]] == ["dull", "very bad"]
    assert data[1].reference == {} and data[1].problem is None
    val, train = load_data(f"eraser:{where}:val"), load_data(f"eraser:{where}:train")
    assert [s.label for s in val] == [1] and val[0].reference["spans"] == [(0, 10)]
    assert [s.name for s in train] == ["n2"]
    assert train.notes == ("2 documents are left out, being in an earlier split",)


def test_token_spans() -> None:
    assert token_spans(" one  two\nthree", [(1, 3), (0, 1), (0, 1), (2, 2)]) == [(1, 4), (6, 15)]
    with pytest.raises(HeatcheckError, match="tokens 1 to 9 do not fit a text of 3"):
        token_spans("a b c", [(1, 9)])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        (row("n1", (0, 99)), "tokens 0 to 99"),
        (row("../../../etc/passwd"), "no document '../../../etc/passwd'"),
        (row("n1", (0, 1), docids=["p1"]), "2 documents"),
        ({**row("n1"), "evidences": [[{"docid": "n1"}]]}, "not in ERASER's form"),
        ({**row("n1"), "evidences": 7}, "not in ERASER's form"),
        (row("n1", ("a", "b")), "not in ERASER's form"),
    ],
)
def test_a_bad_line_is_its_samples_problem(tmp_path: Path, bad: Any, message: str) -> None:
    data = load_data(f"eraser:{folder(tmp_path / 'films', {'test': [bad, row('p1')]})}")
    assert message in str(data[0].problem) and data[1].problem is None


def test_missing_things(tmp_path: Path) -> None:
    where = folder(tmp_path / "films", {"val": [row("p1")]})
    with pytest.raises(HeatcheckError, match=r"has no test\.jsonl; it has val"):
        load_data(f"eraser:{where}")
    with pytest.raises(HeatcheckError, match=r"no folder or archive .*did you mean films"):
        load_data(f"eraser:{tmp_path / 'film'}")
    (tmp_path / "noise.tar.gz").write_bytes(b"\x1f\x8b" + b"noise" * 99)
    with pytest.raises(HeatcheckError, match="not a tar archive"):
        load_data(f"eraser:{tmp_path / 'noise.tar.gz'}")
    whole = archive(where, tmp_path / "whole.tar.gz").read_bytes()
    (tmp_path / "half.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(HeatcheckError, match=r"not a tar archive|has no test"):
        load_data(f"eraser:{tmp_path / 'half.tar.gz'}")


def hostile(target: Path, *members: tarfile.TarInfo, content: bytes = b"secret") -> Path:
    with tarfile.open(target, "w:gz") as tar:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content))
        lines = "\n".join(json.dumps(row(name)) for name in ("a", "b", "c")).encode()
        split = tarfile.TarInfo("x/test.jsonl")
        split.size = len(lines)
        tar.addfile(split, io.BytesIO(lines))
    return target


def test_a_hostile_archive_writes_nothing_and_links_nowhere(tmp_path: Path) -> None:
    link = tarfile.TarInfo("x/docs/c")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    outside, absolute = tarfile.TarInfo("x/../../docs/a"), tarfile.TarInfo("/docs/b")
    where = hostile(tmp_path / "x.tar.gz", outside, absolute, link)
    data = load_data(f"eraser:{where}")
    assert [s.problem for s in data] == [f"there is no document {name!r}" for name in "abc"]
    assert [p.name for p in tmp_path.iterdir()] == ["x.tar.gz"]


def test_a_bomb_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heatcheck.data.eraser._LONGEST_FILE", 1000)
    where = hostile(tmp_path / "x.tar.gz", tarfile.TarInfo("x/docs/a"), content=bytes(2000))
    with pytest.raises(HeatcheckError, match="more than such an archive should hold"):
        load_data(f"eraser:{where}")


def test_real_movie_reviews(shared: Path) -> None:
    where = shared / "data/movies.tar.gz"
    if not where.is_file():
        pytest.skip(f"no {where}")
    test, val, train = (load_data(f"eraser:{where}:{split}") for split in ("test", "val", "train"))
    assert (len(test), len(val), len(train)) == (199, 200, 1600)
    assert test.classes == ("NEG", "POS") and Counter(s.label for s in val) == {0: 100, 1: 100}
    assert not [s.problem for part in (test, val, train) for s in part if s.problem]
    assert not {s.name for s in train} & {s.name for s in val}
    first = val[0]
    assert "definitely the cinematic equivalent of a sleeper car" in [
        " ".join(first.content[a:b].split()) for a, b in first.reference["spans"]
    ]
