"""Few large chunk files out of thousands of small ones, with the same content, while others read and write the folder.

A new file is written and verified before the files whose content it has are removed, and names them: so a kill at any moment
loses nothing, and whoever finds both counts the new one. Design: design/store.md.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from heatcheck.core.files import cannot
from heatcheck.run.columns import Array
from heatcheck.run.index import Index
from heatcheck.run.packing import COMPACTED, ChunkFile, map_row, score_row, sealed_chunk
from heatcheck.run.store import Store

SMALL, TARGET = 1 << 23, 1 << 26
"""Bytes below which a chunk is put together with others, and of chunks that become one file."""
MANY = 512
"""Small chunks after which a run puts its chunks together by itself."""


@dataclass(frozen=True)
class Compacted:
    """What was done: chunk files before and after, and those left as they were because others contradict them."""

    before: int
    after: int
    disputed: int = 0


def compact(store: Store) -> Compacted:
    """Put small chunks together.

    Raises:
        StorageError: the folder cannot be written; nothing is lost.
    """
    store.refresh()
    remove_replaced(store)
    before = len(store.index.names)
    disputed = contradicted(store.index)
    for batch in batches(store.index, disputed):
        store.keep(store.steadily(partial(merged, store, batch)))
    store.refresh()
    remove_replaced(store)
    if store.index.digest or before > len(store.index.names):
        store.index.save(store.folder)
    return Compacted(before, len(store.index.names), len(disputed))


def compact_when_many(store: Store) -> None:
    """Put a large run's chunks together."""
    if sum(stamp.size < SMALL for stamp in store.index.stamps) >= MANY:
        compact(store)


def remove_replaced(store: Store) -> None:
    """Remove the chunks whose content other files have, once those are read again and found whole."""
    for name, replaced in zip(store.index.names, store.index.replaces, strict=True):
        old = [path for path in (store.chunks / other for other in replaced) if path.exists()]
        if old:
            store.chunk(name)
        for path in old:
            try:
                path.unlink(missing_ok=True)
            except OSError as problem:
                raise cannot("remove", path, problem) from problem


def batches(index: Index, left_out: set[str]) -> Iterator[list[str]]:
    """Names of chunks that become one file, at least two each."""
    batch: list[str] = []
    size = 0
    for name, stamp in sorted(zip(index.names, index.stamps, strict=True)):
        if stamp.size >= SMALL or name in left_out:
            continue
        batch.append(name)
        size += stamp.size
        if size >= TARGET:
            yield batch
            batch, size = [], 0
    if len(batch) > 1:
        yield batch


# -- what may not be moved ----------------------------------------------------------------------------------


def contradicted(index: Index) -> set[str]:
    """Chunks that hold a cell differently from others: which of them counts depends on their names, so they stay."""
    files: set[int] = set()
    records = [json.loads(text) for text in index.records]
    for kind, key_of in (("scores", score_row), ("costs", map_row), ("maps", map_row)):
        files |= _differing(index, kind, _numbered([key_of(record) for record in records]))
    files |= _differing_samples(index, records)
    return {index.names[file] for file in files}


def _numbered(keys: Sequence[str]) -> Array:
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)


def _differing(index: Index, kind: str, keys: Array) -> set[int]:
    """Files with cells that stand elsewhere, too, with another value; of maps, whatever their values."""
    c = index.columns
    group = index.group_of(kind)
    if not len(group):
        return set()
    parts = [c.model[group], c.seed[group]]
    parts += {
        "scores": [c.score_method, c.score_metric],
        "maps": [c.map_method],
        "costs": [c.cost_method],
    }[kind]
    column = np.zeros(len(group), np.int64)
    for part in parts:
        known, inverse = np.unique(part, return_inverse=True)
        column = column * len(known) + inverse
    rows = index.rows_of(group)
    cell = np.repeat(column, c.rows[group]) * (int(keys.max()) + 1) + keys[c.record[rows]]
    order = np.argsort(cell, kind="stable")
    again = np.flatnonzero(cell[order][1:] == cell[order][:-1])
    first, second = order[again], order[again + 1]
    if kind == "scores":
        values, status = index.numbers.values.view(np.int64), index.statuses(kind)
        differ = (values[first] != values[second]) | (status[first] != status[second])
    elif kind == "costs":
        prices = index.numbers.prices.view(np.int64)
        differ = (prices[first] != prices[second]).any(1)
    else:
        differ = np.ones(len(first), bool)
    cells = np.concatenate([first[differ], second[differ]])
    item = np.searchsorted(index.cell_starts[kind], cells, side="right") - 1
    return set(c.file[group[item]].tolist())


def _differing_samples(index: Index, records: Sequence[Mapping[str, Any]]) -> set[int]:
    """Files in which the model's answer to a clean sample is another than elsewhere."""
    group = np.repeat(np.arange(len(index.columns.rows)), index.columns.rows)
    known: dict[tuple[int, str], tuple[str, int]] = {}
    found: set[int] = set()
    triples = np.unique(np.stack([index.columns.model[group], index.columns.record, index.columns.file[group]]), axis=1)
    for model, number, file in triples.T.tolist():
        record = records[number]
        if not record.get("problem"):
            answer = json.dumps([record.get("top"), record.get("prob")])
            other, where = known.setdefault((model, record["digest"]), (answer, file))
            if other != answer:
                found |= {file, where}
    return found


# -- one file out of many -----------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A group of a chunk, with its columns in a fixed order."""

    chunk: ChunkFile
    number: int
    group: Mapping[str, Any]
    maps: list[dict[str, Any]]
    scores: list[dict[str, Any]]
    costs: dict[str, Array]

    @property
    def rows(self) -> int:
        """How many samples it has."""
        return len(self.group["samples"])

    def kind(self) -> str:
        """What groups must have in common to become one."""

        def form(name: str | None) -> Any:
            return None if name is None else [self.chunk.tensors[name]["dtype"], self.chunk.tensors[name]["shape"][1:]]

        facts = [
            [{**column, "tensor": form(column["tensor"]), "status": None} for column in self.maps],
            [(c["method"], c["metric"], form(c["curve"]), c["share"]) for c in self.scores],
            form(f"{self.number}/answers/rows" if self.group["answers"] else None),
            form(self.group["logits"]),
        ]
        same = [self.group[name] for name in ("model", "seed", "numerics")]
        return json.dumps([same, facts, sorted(self.costs)], sort_keys=True)


def merged(store: Store, names: Sequence[str]) -> bytes:
    """The bytes of one chunk that has the content of several; groups with the same columns become one."""
    kinds: dict[str, list[Piece]] = {}
    for name in names:
        chunk = store.chunk(name)
        for number, group in enumerate(chunk.header["groups"]):
            maps = sorted(group["maps"], key=lambda column: str(column["method"]))
            scores = sorted(group["scores"], key=lambda column: (column["method"], column["metric"]))
            piece = Piece(chunk, number, group, maps, scores, chunk.costs(number))
            kinds.setdefault(piece.kind(), []).append(piece)
    tensors: dict[str, Tensor] = {}
    groups = [_joined(g, pieces, tensors) for g, pieces in enumerate(kinds.values())]
    return sealed_chunk({"format": COMPACTED, "of": list(names), "groups": groups}, tensors)


def _joined(g: int, pieces: Sequence[Piece], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """One group out of several of a kind."""
    first = pieces[0]
    starts = np.cumsum([0, *(piece.rows for piece in pieces)]).tolist()

    def put(name: str, parts: Sequence[Tensor]) -> str:
        tensors[name] = torch.cat(list(parts)).contiguous()
        return name

    def columns(kind: str, i: int) -> list[tuple[Piece, dict[str, Any]]]:
        return [(piece, getattr(piece, kind)[i]) for piece in pieces]

    def tensor(name: str, kind: str, i: int, part: str = "tensor") -> str | None:
        if getattr(first, kind)[i][part] is None:
            return None
        return put(name, [piece.chunk.tensor(column[part]) for piece, column in columns(kind, i)])

    def status(kind: str, i: int) -> dict[str, str]:
        return {
            str(start + int(row)): text
            for start, (_, column) in zip(starts, columns(kind, i), strict=False)
            for row, text in column["status"].items()
        }

    methods = sorted(first.costs)
    record = {
        "model": first.group["model"],
        "seed": first.group["seed"],
        "samples": [sample for piece in pieces for sample in piece.group["samples"]],
        "numerics": first.group["numerics"],
        "costs": {},
        "logits": None,
        "answers": sum(piece.group["answers"] for piece in pieces),
        "maps": [
            {**column, "tensor": tensor(f"{g}/map/{i}", "maps", i), "status": status("maps", i)}
            for i, column in enumerate(first.maps)
        ],
        "scores": [
            {
                **column,
                "tensor": tensor(f"{g}/score/{i}", "scores", i),
                "status": status("scores", i),
                "curve": tensor(f"{g}/curve/{i}", "scores", i, "curve"),
            }
            for i, column in enumerate(first.scores)
        ],
        "displays": [],
    }
    if first.group["logits"]:
        record["logits"] = put(f"{g}/logits", [piece.chunk.tensor(piece.group["logits"]) for piece in pieces])
    if methods:
        prices = [np.stack([piece.costs[method] for method in methods]) for piece in pieces]
        tensors[f"{g}/prices"] = torch.from_numpy(np.concatenate(prices, axis=1))
        record |= {"priced": methods, "prices": f"{g}/prices"}
    if record["answers"]:
        record["blocks"] = _blocks(pieces, starts)
        for part in ("keys", "rows"):
            put(f"{g}/answers/{part}", [piece.chunk.tensor(f"{piece.number}/answers/{part}") for piece in pieces])
    for piece in pieces:
        for display in piece.group["displays"]:
            name = f"{g}/display/{len(record['displays'])}"
            if display["tensor"]:
                tensors[name] = piece.chunk.tensor(display["tensor"])
            record["displays"].append({**display, "tensor": name if display["tensor"] else None})
    return record


def _blocks(pieces: Sequence[Piece], starts: Sequence[int]) -> list[list[int]]:
    """Which rows' answers stand where: first and last row, first and last answer."""
    found, base = [], 0
    for start, piece in zip(starts, pieces, strict=False):
        n = piece.group["answers"]
        for first, last, a, b in piece.group.get("blocks", [[0, piece.rows, 0, n]]):
            found.append([start + first, start + last, base + a, base + b])
        base += n
    return found
