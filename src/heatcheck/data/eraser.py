"""Texts with human rationales in the layout of the ERASER benchmark: documents, and a JSON-lines file per split."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError, Modality, Sample, TextPair, digest_of
from heatcheck.data.archives import read_members
from heatcheck.data.base import Listing, SourceOptions, distinct
from heatcheck.data.catalogue import split_place
from heatcheck.data.labels import Labels
from heatcheck.data.places import kind_of, near_names
from heatcheck.data.references import text_with
from heatcheck.data.texts import text_sample

SPLITS = ("test", "val", "train")
"""Parts of a corpus, the first by default."""
_LEFT = "{} documents are left out, being in an earlier split"
_PAIRED = "queries differ, so a query and its document are a pair of texts, unless two documents belong together"
_TOGETHER = "docs.jsonl"
"""A file with all documents, a line each."""
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
    recognises="is_eraser",
)
def eraser(where: str, options: SourceOptions) -> Listing:
    """One split of a corpus whose documents are classified, such as ERASER's movie reviews.

    Documents are files in `docs/`, or lines of `docs.jsonl`. Two that belong together are a pair: a premise and a
    hypothesis (e-SNLI), or the two that `docids` lists, in its order. Where queries differ (BoolQ, MultiRC), a query and
    its document are a pair.

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
    asked = {row["query"] for part in rows.values() for row in part if isinstance(row.get("query"), str)}
    with_query = len(asked) > 1
    return Listing(
        name=f"{corpus.name}-{split}",
        modality=Modality.TEXT,
        names=names,
        make=lambda i: (_sample(names[i], kept[i], corpus.documents, with_query), kept[i].get("classification")),
        label=lambda i: kept[i].get("classification"),
        labels=Labels.of((r.get("classification") for part in rows.values() for r in part), options.classes),
        notes=(*([_LEFT.format(left)] if left else []), *([_PAIRED] if with_query else [])),
    )


def is_eraser(root: Path) -> bool:
    """Whether a folder has documents and a split."""
    documents = (root / "docs").is_dir() or (root / _TOGETHER).is_file()
    return documents and any((root / f"{split}.jsonl").is_file() for split in SPLITS)


def splits_of(where: str) -> tuple[str, ...]:
    """The splits that a corpus has."""
    return tuple(_open(where).splits)


def _row(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {"problem": f"the line is not JSON: {error}"}
    return row if isinstance(row, dict) else {"problem": "the line is not a JSON object"}


def _sample(
    name: str, row: Mapping[str, Any], documents: Mapping[str, Callable[[], bytes]], with_query: bool
) -> Sample:
    try:
        if "problem" in row:
            raise HeatcheckError(row["problem"])
        tokens = [evidence for group in row.get("evidences") or [] for evidence in group]
        ids = _documents_of(row, [str(evidence["docid"]) for evidence in tokens], documents)
        texts = [documents[id]().decode(errors="surrogateescape") for id in ids]
        if with_query and len(ids) == 1:
            ids, texts = ("", *ids), [str(row.get("query") or ""), *texts]
        spans, start = list[tuple[int, int]](), 0
        for id, text in zip(ids, texts, strict=True):
            ranges = [(e["start_token"], e["end_token"]) for e in tokens if id and str(e["docid"]) == id]
            spans += [(start + a, start + b) for a, b in token_spans(text, ranges)]
            start += len(text) + 1  # TextPair.joined has one character between them
        content = TextPair(*texts) if len(texts) == 2 else texts[0]
    except HeatcheckError as error:
        return Sample(name, digest_of("unreadable", name), "", problem=str(error))
    except (KeyError, TypeError, AttributeError) as error:
        problem = f"the line is not in ERASER's form: {type(error).__name__}: {error}"
        return Sample(name, digest_of("unreadable", name), "", problem=problem)
    return text_with(text_sample(name, content), {"spans": spans} if spans else {})


def _documents_of(row: Mapping[str, Any], evidence: Sequence[str], documents: Collection[str]) -> tuple[str, ...]:
    """The one or two documents that a line is about, in their order.

    Raises:
        HeatcheckError: there are more, one is missing, or nothing says which of two comes first.
    """
    parts = tuple(f"{row.get('annotation_id')}_{part}" for part in ("premise", "hypothesis"))
    listed = tuple(map(str, row.get("docids") or ()))
    if not listed and all(part in documents for part in parts):
        listed = parts
    ids = tuple(dict.fromkeys((*listed, *evidence))) or (str(row.get("annotation_id")),)
    if set(ids) == set(parts):
        ids = parts
    elif len(ids) == 2 and ids != listed:
        raise HeatcheckError("2 documents belong together here, and docids does not say which is the first")
    if len(ids) > 2:
        raise HeatcheckError(f"{len(ids)} documents belong together here; only one can be read, or a pair")
    for id in ids:
        if id not in documents:
            raise HeatcheckError(f"there is no document {id!r}")
    return ids


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
    if (file := root / _TOGETHER).is_file():
        documents |= _documents(file.read_bytes())
    splits = {}
    for split in SPLITS:
        if (file := root / f"{split}.jsonl").is_file():
            splits[split] = _lines(file.read_bytes())
    return _Corpus(root.resolve().name, documents, splits)


def _archive(path: Path) -> _Corpus:
    files = read_members(path, _belongs, longest=_LONGEST_FILE, largest=_LARGEST_ARCHIVE)
    documents = {name.name: _content(raw) for name, raw in files.items() if name.parent.name == "docs"}
    for raw in (raw for name, raw in files.items() if name.name == _TOGETHER):
        documents |= _documents(raw)
    return _Corpus(
        path.name.partition(".")[0],
        documents,
        {name.stem: _lines(raw) for name, raw in files.items() if _is_split(name)},
    )


def _belongs(name: PurePosixPath) -> bool:
    return name.parent.name == "docs" or name.name == _TOGETHER or _is_split(name)


def _is_split(name: PurePosixPath) -> bool:
    return name.parent.name != "docs" and name.suffix == ".jsonl" and name.stem in SPLITS


def _content(raw: bytes) -> Callable[[], bytes]:
    return lambda: raw


def _documents(raw: bytes) -> dict[str, Callable[[], bytes]]:
    """The documents of one file, by id; lines that are in another form name none."""
    found = {}
    for row in map(_row, _lines(raw)):
        if isinstance(row.get("document"), str):
            found[str(row.get("docid"))] = _content(row["document"].encode(errors="surrogateescape"))
    return found


def _lines(raw: bytes) -> list[str]:
    return [line for line in raw.decode(errors="surrogateescape").split("\n") if line.strip()]
