"""What all chunks of a folder hold, as columns: made from the chunks, kept beside them, and never the truth.

Groups stand in the order of their files' names, then of their numbers; every other column follows that order. Texts and
sample records are written once and named by their numbers. Two files and a record hold the index on disk: what is needed to
know what is there, and the numbers themselves, which are read when a table is made.
"""

import hashlib
import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save

from heatcheck.core.files import StorageError, as_json, read_patiently, sweep_temporaries, write_atomically
from heatcheck.core.types import OK
from heatcheck.run.columns import (
    PER_GROUP,
    PER_MAP,
    PER_SCORE,
    SPARSE,
    Array,
    Columns,
    Numbers,
    Texts,
    no_numbers,
    ragged,
    starts_of,
)
from heatcheck.run.packing import ChunkFile, Stamp, map_row, score_row
from heatcheck.run.records import DamagedRecord, sealed, unsealed

FOLDER, RECORD, VERSION = "index", "index.json", 1
"""Where it is; raise the version whenever columns change or mean something else."""
_BLOCK = 2_000_000  # cells that are looked up at a time
_COUNTED = ("scores", "maps", "costs", "displays")


class Stale(Exception):
    """The index on disk is gone, damaged, of another version or was replaced."""


class Place(NamedTuple):
    """A row of a group, by its number among all groups."""

    group: int
    row: int


@dataclass
class Index:
    """What a folder's chunks hold.

    Args:
        names: of the chunk files.
        stamps: by what each is known again.
        replaces: for each, the names of the files whose content it has.
        texts: texts by number.
        records: sample records as JSON, by number.
        columns: everything else, except numbers.
        folder: where the numbers are read from when they are needed.
        digest: the file that has the numbers.
    """

    names: list[str] = field(default_factory=list)
    stamps: list[Stamp] = field(default_factory=list)
    replaces: list[list[str]] = field(default_factory=list)
    texts: Texts = field(default_factory=Texts)
    records: list[str] = field(default_factory=list)
    columns: Columns = field(default_factory=lambda: Columns.of({}))
    folder: Path | None = None
    digest: str = ""
    _numbers: Numbers | None = None

    # -- where things are --------------------------------------------------------------------------------------

    @cached_property
    def row_starts(self) -> Array:
        """Where each group's rows begin."""
        return starts_of(self.columns.rows)

    @cached_property
    def starts(self) -> dict[str, Array]:
        """Where each group's scores, maps, costs and displays begin."""
        return {kind: starts_of(getattr(self.columns, kind)) for kind in _COUNTED}

    def group_of(self, kind: str) -> Array:
        """The group of each score, map or cost."""
        counts = getattr(self.columns, kind)
        return np.repeat(np.arange(len(counts)), counts)

    @cached_property
    def cell_starts(self) -> dict[str, Array]:
        """Where the cells of each score, map and cost begin: as many as its group has rows."""
        return {kind: starts_of(self.columns.rows[self.group_of(kind)]) for kind in ("scores", "maps", "costs")}

    @property
    def numbers(self) -> Numbers:
        """Scores and costs.

        Raises:
            Stale: their file is gone or damaged.
        """
        if self._numbers is None:
            found = load(_verified(self.folder or Path(), self.digest))
            self._numbers = Numbers(found["values"], found["prices"])
        return self._numbers

    def statuses(self, kind: str) -> Array:
        """The status of every cell, as the number of its text; 0 for ok."""
        item, row, text = (getattr(self.columns, name) for name in SPARSE[kind])
        starts = self.cell_starts[kind]
        found = np.zeros(int(starts[-1]), np.uint32)
        found[starts[item] + row] = text
        return found

    @cached_property
    def failing(self) -> Array:
        """Which texts are statuses of what failed."""
        return np.array([text.startswith("failed") for text in self.texts.all])

    # -- one sample --------------------------------------------------------------------------------------------

    @cached_property
    def _by_digest(self) -> tuple[Array, Array]:
        digests = np.array([_digest(text).encode() for text in self.records], dtype=np.bytes_)
        order = np.argsort(digests, kind="stable")
        return digests[order], order

    @cached_property
    def _by_record(self) -> tuple[Array, Array]:
        order = np.argsort(self.columns.record, kind="stable")
        return self.columns.record[order], order

    def places(self, model: str, digest: str) -> list[tuple[Place, dict[str, Any]]]:
        """Where a sample stands in groups of a model, in order, with its record there."""
        digests, order = self._by_digest
        if not len(digests):
            return []
        key = np.bytes_(digest.encode())
        first, last = np.searchsorted(digests, key), np.searchsorted(digests, key, side="right")
        numbers, rows = self._by_record
        known = self.texts.find(model)
        found = []
        for record in order[first:last]:
            a, b = np.searchsorted(numbers, record), np.searchsorted(numbers, record, side="right")
            for at in rows[a:b]:
                group = int(np.searchsorted(self.row_starts, at, side="right")) - 1
                if self.columns.model[group] == known:
                    found.append((Place(group, int(at - self.row_starts[group])), int(record)))
        return [(place, json.loads(self.records[record])) for place, record in sorted(found)]

    # -- whole tables ------------------------------------------------------------------------------------------

    def groups_of(self, model: str, seed: int | None = None) -> Array:
        """The groups of a model, with a seed if one is given."""
        chosen = self.columns.model == self.texts.find(model)
        if seed is not None:
            chosen = chosen & (self.columns.seed == self.texts.find(str(seed)))
        return np.flatnonzero(chosen)

    def rows_of(self, groups: Array) -> Array:
        """The numbers of the groups' rows, one after the other."""
        return ragged(self.row_starts[groups], self.columns.rows[groups])

    def samples_of(self, model: str) -> dict[str, dict[str, Any]]:
        """Every sample of a model by its digest, with its first record that is no problem."""
        found: dict[str, dict[str, Any]] = {}
        for record in self._records_of(self.groups_of(model)):
            if not record.get("problem"):
                found.setdefault(record["digest"], record)
        return found

    def _records_of(self, groups: Array) -> Iterable[dict[str, Any]]:
        numbers = self.columns.record[self.rows_of(groups)]
        _, first = np.unique(numbers, return_index=True)
        for number in numbers[np.sort(first)]:
            yield json.loads(self.records[number])

    def find(
        self, kind: str, model: str, seed: int, keys: Sequence[str], methods: Sequence[str], metrics: Sequence[str] = ()
    ) -> Array:
        """Where the cells of samples are, [sample, method] or [sample, method, metric]; -1 where there is none.

        Of several, the first that has not failed counts, else the last; of costs, the last.

        Args:
            kind: scores, maps or costs.
            model: the model's identity.
            seed: of every random stream.
            keys: row keys of samples, no two alike: with what metrics compare with for scores, without it for others.
            methods: digests of methods.
            metrics: digests of metrics, for scores.
        """
        shape = (len(keys), len(methods), len(metrics)) if kind == "scores" else (len(keys), len(methods))
        found = np.full(int(np.prod(shape)), -1, np.int64)
        groups = self.groups_of(model, seed)
        wide = int(np.prod(shape[1:]))
        if not (len(groups) and wide):
            return found.reshape(shape)
        of_row = self._keys_of_rows(groups, keys, score_row if kind == "scores" else map_row)
        of_method, of_metric = self.texts.places(methods), self.texts.places(metrics)
        statuses = self.statuses(kind) if kind in SPARSE else None

        def cells(some: Array) -> tuple[Array, Array]:
            """Where cells of some groups belong, and where they are."""
            counts = getattr(self.columns, kind)[some]
            items = ragged(self.starts[kind][some], counts)
            group = np.repeat(some, counts)
            if kind == "scores":
                method, metric = (
                    of_method[self.columns.score_method[items]],
                    of_metric[self.columns.score_metric[items]],
                )
                column = np.where((method >= 0) & (metric >= 0), method * len(metrics) + metric, -1)
            else:
                column = of_method[(self.columns.map_method if kind == "maps" else self.columns.cost_method)[items]]
            wanted = column >= 0
            items, group, column = items[wanted], group[wanted], column[wanted].astype(np.int64)
            rows = self.columns.rows[group]
            where = ragged(self.cell_starts[kind][items], rows)
            sample = of_row[self.rows_of(group)]
            cell = sample * wide + np.repeat(column, rows)
            known = sample >= 0
            return cell[known], where[known]

        weight = self.columns.rows[groups].astype(np.int64) * getattr(self.columns, kind)[groups]
        cuts = np.flatnonzero(np.diff(np.cumsum(weight) // _BLOCK)) + 1
        blocks = np.split(groups, cuts)
        if statuses is None:
            for block in blocks:
                cell, where = cells(block)
                found[cell] = where
            return found.reshape(shape)
        if self.failing.any():
            for block in blocks:
                cell, where = cells(block)
                failed = self.failing[statuses[where]]
                found[cell[failed]] = where[failed]
        for block in reversed(blocks):
            cell, where = cells(block)
            good = ~self.failing[statuses[where]]
            found[cell[good][::-1]] = where[good][::-1]
        return found.reshape(shape)

    def count(
        self, kind: str, model: str, seed: int, keys: Sequence[str], methods: Sequence[str], metrics: Sequence[str]
    ) -> Array:
        """How many cells of each sample are there and did not fail; see `find`."""
        found = self.find(kind, model, seed, keys, methods, metrics)
        good = found >= 0
        if kind in SPARSE and self.failing.any():
            good &= ~np.append(self.failing[self.statuses(kind)], False)[found]
        counts: Array = good.sum(tuple(range(1, good.ndim)))
        return counts

    def _keys_of_rows(self, groups: Array, keys: Sequence[str], key_of: Any) -> Array:
        """For every row of the folder, the place of its key; -1 where it is not among the keys or of other groups."""
        rows = self.rows_of(groups)
        numbers = self.columns.record[rows]
        places = {key: i for i, key in enumerate(keys)}
        used = np.unique(numbers)
        by_number = np.full(len(self.records), -1, np.int64)
        by_number[used] = [places.get(key_of(json.loads(self.records[n])), -1) for n in used]
        found = np.full(int(self.row_starts[-1]), -1, np.int64)
        found[rows] = by_number[numbers]
        return found

    # -- change ------------------------------------------------------------------------------------------------

    def take(self, order: Array) -> "Index":
        """The same with some of its groups, in this order; all names stay."""
        c, old = self.columns, self.numbers
        columns = Columns.of({name: getattr(c, name)[order] for name in PER_GROUP})
        columns.record = c.record[self.rows_of(order)]
        numbers = no_numbers()
        for kind, names in (("scores", PER_SCORE), ("maps", PER_MAP), ("costs", ("cost_method",))):
            items = ragged(self.starts[kind][order], getattr(c, kind)[order])
            for name in names:
                setattr(columns, name, getattr(c, name)[items])
            lengths = np.diff(self.cell_starts[kind])[items]
            if kind == "costs":
                numbers.prices = old.prices[ragged(self.cell_starts[kind][items], lengths)]
                continue
            if kind == "scores":
                numbers.values = old.values[ragged(self.cell_starts[kind][items], lengths)]
            item, row, text = SPARSE[kind]
            became = np.full(len(self.group_of(kind)), -1, np.int64)
            became[items] = np.arange(len(items))
            new = became[getattr(c, item)]
            kept = np.flatnonzero(new >= 0)
            kept = kept[np.argsort(new[kept], kind="stable")]
            setattr(columns, item, new[kept].astype(np.uint32))
            setattr(columns, row, getattr(c, row)[kept])
            setattr(columns, text, getattr(c, text)[kept])
        columns.display = c.display[ragged(self.starts["displays"][order], c.displays[order])]
        return self._with(columns, numbers)

    def _with(self, columns: Columns, numbers: Numbers) -> "Index":
        return Index(self.names, self.stamps, self.replaces, self.texts, self.records, columns, _numbers=numbers)

    def keeping(self, names: set[str]) -> "Index":
        """The same without other files."""
        kept = [i for i, name in enumerate(self.names) if name in names]
        if len(kept) == len(self.names):
            return self
        became = np.full(len(self.names), -1, np.int64)
        became[kept] = np.arange(len(kept))
        found = self.take(np.flatnonzero(became[self.columns.file] >= 0)) if self.names else self
        found.columns.file = became[found.columns.file].astype(np.uint32)
        found.names, found.stamps = [self.names[i] for i in kept], [self.stamps[i] for i in kept]
        found.replaces = [self.replaces[i] for i in kept]
        return found

    def adding(self, chunks: Iterable[tuple[str, ChunkFile]]) -> "Index":
        """The same with more files, in the order of all names."""
        builder = Builder(self)
        for name, chunk in chunks:
            builder.add(name, chunk)
        return builder.index()

    # -- on disk -----------------------------------------------------------------------------------------------

    def save(self, run: Path) -> None:
        """Write it beside the chunks; the record, which names the other files, last.

        Raises:
            StorageError: the folder cannot be written.
        """
        folder = run / FOLDER
        sweep_temporaries(folder)
        numbers = self.numbers
        about = {"names": self.names, "replaces": self.replaces, "texts": self.texts.all, "records": self.records}
        light: dict[str, Array] = {name: np.frombuffer(as_json(value), np.uint8) for name, value in about.items()}
        light["stamps"] = np.array(self.stamps, np.int64).reshape(-1, 2)
        light |= {f.name: getattr(self.columns, f.name) for f in fields(Columns)}
        heavy = {"values": numbers.values, "prices": numbers.prices}
        written = {"columns": _write(folder, light), "numbers": _write(folder, heavy)}
        write_atomically(folder / RECORD, sealed({"version": VERSION, **written}))
        for path in folder.glob("*.safetensors"):
            if path.stem not in written.values():
                path.unlink(missing_ok=True)
        self.folder, self.digest = folder, written["numbers"]

    @staticmethod
    def load(run: Path) -> "Index":
        """The index of a run's folder.

        Raises:
            Stale: there is none that can be used.
        """
        folder = run / FOLDER
        try:
            record, has_seal = unsealed(read_patiently(folder / RECORD, Path.read_bytes))
        except (FileNotFoundError, StorageError, DamagedRecord) as problem:
            raise Stale(str(problem)) from problem
        if not has_seal or record.get("version") != VERSION:
            raise Stale("it is of another version")
        found = load(_verified(folder, record["columns"]))
        about = {name: json.loads(found.pop(name).tobytes()) for name in ("names", "replaces", "texts", "records")}
        stamps = [Stamp(*stamp) for stamp in found.pop("stamps").tolist()]
        texts = Texts(about["texts"])
        columns = Columns(**found)
        names, replaces, records = about["names"], about["replaces"], about["records"]
        return Index(names, stamps, replaces, texts, records, columns, folder, record["numbers"])


def _write(folder: Path, tensors: Mapping[str, Array]) -> str:
    """Write columns under the digest of their bytes."""
    data = save({name: np.ascontiguousarray(value) for name, value in tensors.items()})
    name = hashlib.sha256(data).hexdigest()
    write_atomically(folder / f"{name}.safetensors", data)
    return name


def _verified(folder: Path, digest: str) -> bytes:
    try:
        data = read_patiently(folder / f"{digest}.safetensors", Path.read_bytes)
    except (FileNotFoundError, StorageError) as problem:
        raise Stale(str(problem)) from problem
    if hashlib.sha256(data).hexdigest() != digest:
        raise Stale("its bytes do not match its checksum")
    return data


def _digest(record: str) -> str:
    digest: str = json.loads(record)["digest"]
    return digest


class Builder:
    """Adds chunk files to an index."""

    def __init__(self, before: Index) -> None:
        self.before = before
        self.texts = Texts(before.texts.all)
        self.records = Texts(before.records)
        self.names, self.stamps, self.replaces = list(before.names), list(before.stamps), list(before.replaces)
        self.lists: dict[str, array[int]] = {f.name: array("I") for f in fields(Columns)}
        self.values: list[Array] = []
        self.prices: list[Array] = []

    def add(self, name: str, chunk: ChunkFile) -> None:
        """Take in what a chunk says it holds, and its numbers."""
        doubles = chunk.doubles()
        for number, group in enumerate(chunk.header["groups"]):
            self._group(len(self.names), number, group, chunk, doubles)
        self.names.append(name)
        self.stamps.append(chunk.stamp)
        self.replaces.append(chunk.replaces)

    def _group(self, file: int, number: int, group: Mapping[str, Any], chunk: ChunkFile, doubles: Array) -> None:
        put, text = self.lists, self.texts.add
        costs = chunk.costs(number)
        rows = len(group["samples"])
        facts = {
            "file": file,
            "number": number,
            "model": text(group["model"]),
            "seed": text(str(group["seed"])),
            "rows": rows,
            "logits": text(group["logits"] or ""),
            "answers": group["answers"],
            "numerics": text(_json(group["numerics"])) if group["numerics"] else 0,
            "scores": len(group["scores"]),
            "maps": len(group["maps"]),
            "costs": len(costs),
            "displays": len(group["displays"]),
        }
        for name, value in facts.items():
            put[name].append(value)
        put["record"].extend(self.records.add(_json(sample)) for sample in group["samples"])
        self._scores(group["scores"], chunk, doubles, rows)
        for column in group["maps"]:
            self._statuses("maps", len(put["map_method"]), column["status"])
            put["map_method"].append(text(column["method"]))
            put["map_tensor"].append(text(column["tensor"]))
            put["map_facts"].append(text(_json({k: v for k, v in column.items() if k not in ("tensor", "status")})))
        for method, prices in costs.items():
            put["cost_method"].append(text(method))
            self.prices.append(prices)
        put["display"].extend(text(_json(display)) for display in group["displays"])

    def _scores(self, columns: Sequence[Mapping[str, Any]], chunk: ChunkFile, doubles: Array, rows: int) -> None:
        if not columns:
            return
        put, text = self.lists, self.texts.add
        first = len(put["score_method"])
        put["score_method"].extend(text(column["method"]) for column in columns)
        put["score_metric"].extend(text(column["metric"]) for column in columns)
        put["score_curve"].extend(text(column["curve"] or "") for column in columns)
        put["score_share"].extend(text(_json(column["share"])) if column["share"] else 0 for column in columns)
        for i, column in enumerate(columns):
            if column["status"]:
                self._statuses("scores", first + i, column["status"])
        starts = np.array([chunk.tensors[column["tensor"]]["data_offsets"][0] // 8 for column in columns])
        self.values.append(doubles[(starts[:, None] + np.arange(rows)).reshape(-1)])

    def _statuses(self, kind: str, item: int, status: Mapping[str, str]) -> None:
        names = SPARSE[kind]
        for row, words in status.items():
            if words != OK:
                for name, value in zip(names, (item, int(row), self.texts.add(words)), strict=True):
                    self.lists[name].append(value)

    def index(self) -> Index:
        """All files, in the order of their names."""
        before = self.before
        old = before.numbers if before.names else no_numbers()
        fresh = Columns.of(self.lists)
        fresh.status_item += np.uint32(len(before.columns.score_method))
        fresh.failed_item += np.uint32(len(before.columns.map_method))
        both = {
            f.name: np.concatenate([getattr(before.columns, f.name), getattr(fresh, f.name)]) for f in fields(fresh)
        }
        numbers = Numbers(
            np.concatenate([old.values, *self.values]),
            np.concatenate([old.prices, *self.prices]),
        )
        joined = Index(
            self.names, self.stamps, self.replaces, self.texts, self.records.all, Columns(**both), _numbers=numbers
        )
        rank = np.argsort(np.argsort(np.array(self.names))) if self.names else np.empty(0, np.int64)
        order = np.lexsort((joined.columns.number, rank[joined.columns.file]))
        if (order == np.arange(len(order))).all():
            return joined
        return joined.take(order)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def empty() -> Index:
    """The index of no files."""
    return Index(_numbers=no_numbers())
