"""Texts with human rationales in the layout of the ERASER benchmark: `docs/`, and a JSON-lines file per split."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError, Modality, Sample, digest_of
from heatcheck.data.archives import read_members
from heatcheck.data.base import Listing, SourceOptions, distinct
from heatcheck.data.catalogue import split_place
from heatcheck.data.labels import Labels
from heatcheck.data.places import kind_of, near_names
from heatcheck.data.references import text_with
from heatcheck.data.texts import text_sample

SPLITS = ("test", "val", "train")
"""Parts of a corpus, the first by default."""
_LONGEST_FILE = 100_000_000
_LARGEST_ARCHIVE = 1_000_000_000


@dataclass(frozen=True)
class _Corpus:
    """Documents by name, and the lines of each split."""

    name: str
    documents: Mapping[str, Callable[[], bytes]]
    splits: Mapping[str, Sequence[str]]


@source(
    "eraser",
    form="eraser:PATH[:SPLIT]",
    modality="text",
    about="texts with human rationales in ERASER's layout, a folder or a tar archive; splits test, val, train",
    group="texts",
    position=4,
    splits=SPLITS,
    present="splits_of",
)
def eraser(where: str, options: SourceOptions) -> Listing:
    """One split of a corpus whose documents are classified, such as ERASER's movie reviews.

    Rationales are given as tokens between spaces; they become spans of characters. Documents that are also in a split
    named earlier (test, val, train) are left out, so that nothing is trained on what it is tested with.

    Args:
        where: the corpus's folder or tar archive; then, after a colon, `test` (as without), `val` or `train`.
        options: what else a user says.
    """
    place, split = split_place(where, SPLITS)
    split = split or SPLITS[0]
    corpus = _open(place)
    if split not in corpus.splits:
        raise HeatcheckError(f"{place!r} has no {split}.jsonl; it has {', '.join(corpus.splits) or 'no split at all'}")
    rows = {name: [_row(line) for line in lines] for name, lines in corpus.splits.items()}
    earlier = {row.get("annotation_id") for name in SPLITS[: SPLITS.index(split)] for row in rows.get(name, [])}
    kept = [row for row in rows[split] if "problem" in row or row.get("annotation_id") not in earlier]
    names = distinct([str(row.get("annotation_id", f"line {i + 1}")) for i, row in enumerate(kept)])
    left = len(rows[split]) - len(kept)
    return Listing(
        name=f"{corpus.name}-{split}",
        modality=Modality.TEXT,
        names=names,
        make=lambda i: (_sample(names[i], kept[i], corpus.documents), kept[i].get("classification")),
        label=lambda i: kept[i].get("classification"),
        labels=Labels.of((r.get("classification") for part in rows.values() for r in part), options.classes),
        notes=(f"{left} documents are left out, being in an earlier split",) if left else (),
    )


def splits_of(where: str) -> tuple[str, ...]:
    """The splits that a corpus has."""
    return tuple(_open(where).splits)


def _row(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {"problem": f"the line is not JSON: {error}"}
    return row if isinstance(row, dict) else {"problem": "the line is not a JSON object"}


def _sample(name: str, row: Mapping[str, Any], documents: Mapping[str, Callable[[], bytes]]) -> Sample:
    try:
        if "problem" in row:
            raise HeatcheckError(row["problem"])
        tokens = [evidence for group in row.get("evidences") or [] for evidence in group]
        ids = {*(evidence["docid"] for evidence in tokens), *(row.get("docids") or [])} or {row.get("annotation_id")}
        if len(ids) != 1:
            raise HeatcheckError(f"{len(ids)} documents belong together here; only texts of one can be read")
        document = str(ids.pop())
        if document not in documents:
            raise HeatcheckError(f"there is no document {document!r}")
        text = documents[document]().decode(errors="surrogateescape")
        ranges = [(evidence["start_token"], evidence["end_token"]) for evidence in tokens]
        spans = token_spans(text, ranges)
    except HeatcheckError as error:
        return Sample(name, digest_of("unreadable", name), "", problem=str(error))
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"the line is not in ERASER's form: {type(error).__name__}: {error}"
        return Sample(name, digest_of("unreadable", name), "", problem=problem)
    return text_with(text_sample(name, text), {"spans": spans} if spans else {})


def token_spans(text: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of tokens between spaces, end excluded, as spans of characters, in order; empty ranges are dropped.

    >>> token_spans("a fine film", [(1, 3)])
    [(2, 11)]
    """
    places = [match.span() for match in re.finditer(r"\S+", text)]
    for start, end in ranges:
        if not 0 <= start <= end <= len(places):
            raise HeatcheckError(f"tokens {start} to {end} do not fit a text of {len(places)} tokens")
    return sorted({(places[start][0], places[end - 1][1]) for start, end in ranges if start < end})


def _open(where: str) -> _Corpus:
    path = Path(where).expanduser()
    kind = kind_of(path) if where.strip() else None
    if kind == "folder":
        return _folder(path)
    if kind == "file":
        return _archive(path)
    raise HeatcheckError(f"there is no folder or archive {where!r}{near_names(path)}")


def _folder(root: Path) -> _Corpus:
    documents = {p.name: p.read_bytes for p in (root / "docs").glob("*") if p.is_file()}
    splits = {}
    for split in SPLITS:
        if (file := root / f"{split}.jsonl").is_file():
            splits[split] = _lines(file.read_bytes())
    return _Corpus(root.resolve().name, documents, splits)


def _archive(path: Path) -> _Corpus:
    files = read_members(path, _belongs, longest=_LONGEST_FILE, largest=_LARGEST_ARCHIVE)
    return _Corpus(
        path.name.partition(".")[0],
        {name.name: _content(raw) for name, raw in files.items() if name.parent.name == "docs"},
        {name.stem: _lines(raw) for name, raw in files.items() if _is_split(name)},
    )


def _belongs(name: PurePosixPath) -> bool:
    return name.parent.name == "docs" or _is_split(name)


def _is_split(name: PurePosixPath) -> bool:
    return name.parent.name != "docs" and name.suffix == ".jsonl" and name.stem in SPLITS


def _content(raw: bytes) -> Callable[[], bytes]:
    return lambda: raw


def _lines(raw: bytes) -> list[str]:
    return [line for line in raw.decode(errors="surrogateescape").split("\n") if line.strip()]
