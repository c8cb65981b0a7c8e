"""One run is one folder of immutable chunk files; they are the truth, and every index is rebuilt from them.

Adding a method or metric adds files. Two processes that write the same folder cannot hurt each other.
"""

import contextlib
import hashlib
import json
import os
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from torch import Tensor

from heatcheck.core import progress
from heatcheck.core.files import (
    StorageError,
    cannot,
    make_folder,
    read_patiently,
    sweep_temporaries,
    write_atomically,
)
from heatcheck.core.types import OK, HeatcheckError
from heatcheck.run.columns import SPARSE
from heatcheck.run.index import FOLDER, Index, Place, Stale, empty
from heatcheck.run.packing import ChunkFile, Mismatch, SampleGroup, Stamp, map_row, pack, read_chunk, score_row
from heatcheck.run.records import NUMERICS, RUN, DamagedRecord, checked, sealed, unsealed

MANY, LARGE = 64, 1 << 28
"""Chunks, or bytes, that it pays to keep an index of; fewer are read as fast."""
SLOW = 1000
"""Chunks to index of which a reader is told, because it takes a while."""
_HELD = 1 << 26  # bytes of chunks that are kept after they were read
_KNOWN = 4096  # samples that are remembered
_TRIES = 5
T = TypeVar("T")


class StoreWarning(UserWarning):
    """A stored file is damaged or no part of a run: what it should hold counts as not computed."""


class _Gone(Exception):
    """A chunk was removed, set aside or put together with others while it was read."""


class StoredMap(NamedTuple):
    """A sample's stored map: its values, what is known about it, and its status."""

    values: Tensor
    facts: dict[str, Any]
    status: str


@dataclass
class About:
    """What is stored about one sample under one model.

    Args:
        record: its first record; None where it has none.
        problems: records of why it could not be used.
        places: the groups that it is in, and its rows.
        scores: status and place by seed, method, metric and row key.
        maps: place by seed, method and row key; those that failed are left out.
        made: seed, method and row key of the maps that were made, stored or not.
    """

    record: dict[str, Any] | None = None
    problems: list[dict[str, Any]] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    scores: dict[tuple[str, str, str, str], str] = field(default_factory=dict)
    maps: dict[tuple[str, str, str], tuple[int, Place]] = field(default_factory=dict)
    made: set[tuple[str, str, str]] = field(default_factory=set)


@dataclass
class Store:
    """A run folder and the index of what its chunks hold.

    Maps are keyed by model, seed, method and the row key of a sample (`digest:target`), scores by the metric as well, and by
    `digest:target:context`; all of them digests of identities.

    Args:
        folder: the run's folder.
        writable: whether damaged files may be set aside and half-written ones removed; else no file but the index is
            touched.
        verify: whether every byte is read and compared with its checksum, whatever the index says.
        damaged: files whose bytes do not match their checksums, with the reason.
        foreign: chunks that are as they were written, and hold what this version cannot read.
        unchecked: records from before there were checksums.
    """

    folder: Path
    writable: bool = False
    verify: bool = False
    damaged: dict[str, str] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)
    unchecked: set[str] = field(default_factory=set)
    _index: Index | None = None
    _unsaved: tuple[int, int] = (0, 0)
    _abouts: dict[tuple[str, str], About] = field(default_factory=dict)
    _files: "OrderedDict[str, ChunkFile]" = field(default_factory=OrderedDict)

    @classmethod
    def open(cls, folder: str | Path, *, create: bool = False, verify: bool = False) -> "Store":
        """Look what its chunks hold; those that the index does not know are read and verified.

        Args:
            folder: the run's folder.
            create: open it for writing: make it, set damaged files aside, remove half-written ones. Else it is only
                read, and nothing in it but the index is changed.
            verify: read every byte again, whatever the index says.

        Raises:
            HeatcheckError: it is no run folder, or of another format.
            StorageError: a file cannot be read, or the folder not be written.
        """
        path = Path(folder)
        if not create and not (path / RUN).exists() and not files_in(path / "studies", ".json"):
            raise HeatcheckError(
                f"{str(folder)!r} is not a run folder: it has no run.json; `heatcheck run --out` makes one"
            )
        store = cls(path, writable=create, verify=verify)
        if create:
            make_folder(store.chunks)
            store.sweep()
        store.refresh()
        return store

    def sweep(self) -> None:
        """Remove what processes that no longer live left half written."""
        for folder in (self.folder, self.chunks, self.studies, self.folder / FOLDER):
            sweep_temporaries(folder)

    @property
    def chunks(self) -> Path:
        """The folder of chunk files."""
        return self.folder / "chunks"

    @property
    def studies(self) -> Path:
        """The folder of the studies that were run."""
        return self.folder / "studies"

    @property
    def quarantine(self) -> Path:
        """Where damaged files are moved."""
        return self.folder / "quarantine"

    # -- the index ---------------------------------------------------------------------------------------------

    @property
    def index(self) -> Index:
        """What all chunks hold."""
        if self._index is None:
            self._index = self._loaded()
        return self._index

    def _loaded(self) -> Index:
        if self.verify:
            return empty()
        try:
            return Index.load(self.folder)
        except Stale:
            return empty()

    def _load_again(self) -> None:
        """The numbers of the index are gone or damaged: another process has replaced it, or it is made anew."""
        found = self._loaded()
        self._follow_index(empty() if found.digest == self.index.digest else found)

    def _follow_index(self, index: Index) -> None:
        """Go on with another index; what was looked up in the one before is forgotten."""
        self._index = index
        self._abouts.clear()
        self._files.clear()

    def refresh(self) -> None:
        """Index the chunk files that appeared since the last look, and forget those that are gone or changed."""
        for _ in range(_TRIES):
            there = listed(self.chunks)
            try:
                if self._follow(there):
                    break
            except Stale:
                self._load_again()
        self._save_index()

    def _follow(self, there: Mapping[str, Stamp]) -> bool:
        """Bring the index to these files; whether none of them vanished meanwhile."""
        known = dict(zip(self.index.names, self.index.stamps, strict=True))
        kept = {name for name, stamp in known.items() if there.get(name) == stamp} - self.damaged.keys()
        replaced = {old for i, name in enumerate(self.index.names) if name in kept for old in self.index.replaces[i]}
        left_out = {*kept, *replaced, *self.damaged, *self.foreign}
        fresh = [name for name in there if name not in left_out]
        if len(kept) == len(known) and not fresh and not kept & replaced:
            return True
        if len(fresh) >= SLOW:
            progress.choose("auto").note(f"indexing {len(fresh):,} chunk files of {self.folder}")
        vanished = False

        def chunks() -> Iterator[tuple[str, ChunkFile]]:
            nonlocal vanished
            for name in fresh:
                chunk = self._verified(self.chunks / name)
                vanished = vanished or (chunk is None and name not in self.damaged and name not in self.foreign)
                if chunk is not None:
                    yield name, chunk

        index = self.index.keeping(kept - replaced)
        if fresh:
            index = index.adding(chunks())
            replaced = {old for names in index.replaces for old in names}
            index = index.keeping(set(index.names) - replaced)
        self._follow_index(index)
        sizes = [there[name].size for name in fresh]
        self._unsaved = self._unsaved[0] + len(fresh) + len(known) - len(kept), self._unsaved[1] + sum(sizes)
        return not vanished

    def _save_index(self) -> None:
        """Write the index where many chunks, or a share of all, are not in the one on disk."""
        files, size = self._unsaved
        if (files < MANY and size < LARGE) or files * 16 < len(self.index.names):
            return
        try:
            self.index.save(self.folder)
            self._unsaved = 0, 0
        except OSError:  # a folder that cannot be written is read without one
            return

    def _verified(self, path: Path) -> ChunkFile | None:
        try:
            return read_patiently(path, read_chunk)
        except FileNotFoundError:
            return None
        except Mismatch as problem:
            self._set_aside(path, str(problem))
        except ValueError as problem:
            self.foreign[path.name] = str(problem)
            warnings.warn(f"{path} is left out: {problem}", StoreWarning, stacklevel=4)
        return None

    def _set_aside(self, path: Path, why: str) -> None:
        """Note a damaged file and, in a folder that is open for writing, move it out of the way."""
        known = path.name in self.damaged
        self.damaged[path.name] = why
        if not self.writable and known:
            return
        if not self.writable:
            warnings.warn(
                f"{path} is damaged ({why}) and left out; run the study again to compute its content",
                StoreWarning,
                stacklevel=5,
            )
            return
        make_folder(self.quarantine)
        try:
            path.replace(self.quarantine / path.name)
        except FileNotFoundError:  # another process was faster
            return
        except OSError as problem:
            raise cannot("set aside", path, problem) from problem
        warnings.warn(
            f"{path.name} is damaged ({why}); moved to {self.quarantine}, its content will be computed again",
            StoreWarning,
            stacklevel=5,
        )

    def chunk(self, name: str) -> ChunkFile:
        """A chunk, read in one go, verified and closed; the last ones are kept, as far as they are small."""
        found = self._files.pop(name, None)
        if found is None:
            found = self._verified(self.chunks / name)
            if found is None:
                raise _Gone(name)
        self._files[name] = found
        while len(self._files) > 1 and sum(len(chunk.data) for chunk in self._files.values()) > _HELD:
            self._files.popitem(last=False)
        return found

    @property
    def headers(self) -> dict[str, dict[str, Any]]:
        """What every chunk says it holds, read from the files one after the other."""
        return {name: self.chunk(name).header for name in self.index.names}

    def steadily(self, read: Callable[[], T]) -> T:
        """What `read` makes of the chunks; again after a look at the folder where one has gone meanwhile.

        Raises:
            StorageError: chunks keep going.
        """
        for _ in range(_TRIES):
            try:
                return read()
            except (_Gone, Stale) as problem:
                gone = str(problem)
                if isinstance(problem, Stale):
                    self._load_again()
                self.refresh()
        raise StorageError(f"{self.chunks / gone} was moved or changed while it was read; try again")

    def commit(self, groups: list[SampleGroup]) -> Path:
        """Write a chunk; writing the same one twice is harmless."""
        return self.keep(pack(groups))

    def keep(self, data: bytes) -> Path:
        """Write a chunk's bytes under their digest."""
        path = self.chunks / f"{hashlib.sha256(data).hexdigest()}.safetensors"
        if not path.exists():
            write_atomically(path, data)
        return path

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Write one of the run's JSON files, with its checksum."""
        write_atomically(self.folder / name, sealed(value))
        self.unchecked.discard(name)

    def read(self, name: str) -> Any:
        """Read one of the run's JSON files; None if there is none, or if it is damaged."""
        path = self.folder / name
        try:
            value, has_seal = unsealed(read_patiently(path, Path.read_bytes))
            checked(name, value, has_seal)
        except FileNotFoundError:
            return None
        except DamagedRecord as problem:
            self._set_aside(path, str(problem))
            return None
        if not has_seal:
            self.unchecked.add(name)
        return value

    def check_records(self) -> None:
        """Read all of the run's JSON files, so that what is damaged or unchecked is noted."""
        for name in (RUN, NUMERICS, *(f"studies/{path.name}" for path in files_in(self.studies, ".json"))):
            self.read(name)

    def numerics(self) -> dict[str, dict[str, Any]]:
        """The shape of every model's calls: as written down, or where that is lost, as the chunks hold it."""
        known: dict[str, dict[str, Any]] | None = self.read(NUMERICS)
        if known is not None:
            return known
        columns, texts = self.index.columns, self.index.texts.all
        pairs = [(texts[m], json.loads(texts[n])) for m, n in zip(columns.model, columns.numerics, strict=True) if n]
        pairs.sort(key=lambda pair: not pair[1].get("halved"))  # those that memory allowed count
        found = {model: {k: v for k, v in numerics.items() if k != "halved"} for model, numerics in pairs}
        try:
            checked(NUMERICS, found, sealed=True)
        except DamagedRecord:
            return {}
        return found

    # -- one sample --------------------------------------------------------------------------------------------

    def about(self, model: str, digest: str) -> About:
        """What is stored about a sample under a model."""
        found = self._abouts.get((model, digest))
        if found is None:
            if len(self._abouts) >= _KNOWN:
                self._abouts.clear()
            found = self._abouts[model, digest] = self._find(model, digest)
        return found

    def _find(self, model: str, digest: str) -> About:
        index, found = self.index, About()
        columns, texts = index.columns, index.texts.all
        for place, record in index.places(model, digest):
            group, row = place
            if record.get("problem"):
                found.problems.append(record)
            else:
                found.record = found.record or record
                found.places.append(place)
            seed = texts[columns.seed[group]]
            key, scored = map_row(record), score_row(record)
            items = _items(index, "costs", group)
            found.made.update((seed, texts[method], key) for method in columns.cost_method[items])
            statuses = _statuses_of(index, "maps", items := _items(index, "maps", group), row)
            for item in range(items.start, items.stop):
                if not statuses.get(item, OK).startswith("failed"):
                    found.maps.setdefault((seed, texts[columns.map_method[item]], key), (item, place))
            statuses = _statuses_of(index, "scores", items := _items(index, "scores", group), row)
            pairs = zip(columns.score_method[items].tolist(), columns.score_metric[items].tolist(), strict=True)
            for item, (method, metric) in enumerate(pairs, items.start):
                cell = seed, texts[method], texts[metric], scored
                if found.scores.get(cell, "failed").startswith("failed"):
                    found.scores[cell] = statuses.get(item, OK)
        return found

    def sample(self, model: str, digest: str) -> dict[str, Any] | None:
        """A sample's record under a model, if it was used."""
        return self.about(model, digest).record

    def problem(self, model: str, digest: str, context: str, target: str | int) -> str | None:
        """Why a sample could not be used with this label, reference and target; None if no run says so."""
        for record in self.about(model, digest).problems:
            if record["context"] == context and record.get("asked", target) == target:
                problem: str = record["problem"]
                return problem
        return None

    def status(self, model: str, seed: int, method: str, metric: str, record: Mapping[str, Any]) -> str | None:
        """The status of a stored score; None if there is none."""
        return self.about(model, record["digest"]).scores.get((str(seed), method, metric, score_row(record)))

    def has_map(self, model: str, seed: int, method: str, record: Mapping[str, Any]) -> bool:
        """Whether a map is stored."""
        return (str(seed), method, map_row(record)) in self.about(model, record["digest"]).maps

    def made_map(self, model: str, seed: int, method: str, record: Mapping[str, Any]) -> bool:
        """Whether a map was made, stored or not."""
        return (str(seed), method, map_row(record)) in self.about(model, record["digest"]).made

    def map(self, model: str, seed: int, method: str, record: Mapping[str, Any]) -> StoredMap | None:
        """A stored map, if it did not fail."""

        def read() -> StoredMap | None:
            place = self.about(model, record["digest"]).maps.get((str(seed), method, map_row(record)))
            if place is None:
                return None
            index, (item, (group, row)) = self.index, place
            texts = index.texts.all
            chunk = self.chunk(index.names[index.columns.file[group]])
            values = chunk.row(texts[index.columns.map_tensor[item]], row)
            status = _statuses_of(index, "maps", slice(item, item + 1), row).get(item, OK)
            return StoredMap(values, json.loads(texts[index.columns.map_facts[item]]), status)

        return self.steadily(read)

    def chunks_about(self, model: str, digests: Sequence[str]) -> dict[str, bytes]:
        """The chunk files, name and bytes, that hold something about the given samples."""

        def read() -> dict[str, bytes]:
            groups = {place.group for d in digests for place in self.about(model, d).places}
            names = {self.index.names[self.index.columns.file[group]] for group in groups}
            return {name: self.chunk(name).data for name in sorted(names)}

        return self.steadily(read)

    def answers(self, model: str, digests: list[str]) -> dict[bytes, Any]:
        """Every stored answer about the given samples."""

        def read() -> dict[bytes, Any]:
            columns = self.index.columns
            places = sorted({place for d in digests for place in self.about(model, d).places})
            found: dict[bytes, Any] = {}
            seen: set[tuple[int, int]] = set()
            for group, row in places:
                if not columns.answers[group]:
                    continue
                chunk = self.chunk(self.index.names[columns.file[group]])
                for block, keys, rows in chunk.answers(int(columns.number[group]), row):
                    if (group, block) not in seen:
                        seen.add((group, block))
                        found.update((k.tobytes(), r) for k, r in zip(keys, rows, strict=True))
            return found

        return self.steadily(read)

    def clean_logits(self, model: str, digest: str) -> Tensor | None:
        """The stored logits of a clean sample."""

        def read() -> Tensor | None:
            index = self.index
            for group, row in self.about(model, digest).places:
                if index.columns.logits[group]:
                    chunk = self.chunk(index.names[index.columns.file[group]])
                    return chunk.row(index.texts.all[index.columns.logits[group]], row)
            return None

        return self.steadily(read)

    # -- many samples ------------------------------------------------------------------------------------------

    def displays(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every stored picture or text, with the file that it is in."""
        index = self.index
        columns, texts = index.columns, index.texts.all
        for group in columns.displays.nonzero()[0]:
            for number in columns.display[_items(index, "displays", int(group))]:
                display = {**json.loads(texts[number]), "model": texts[columns.model[group]]}
                yield index.names[columns.file[group]], display


def _items(index: Index, kind: str, group: int) -> slice:
    """A group's scores, maps, costs or displays among all."""
    starts = index.starts[kind]
    return slice(int(starts[group]), int(starts[group + 1]))


def _statuses_of(index: Index, kind: str, items: slice, row: int) -> dict[int, str]:
    """The statuses of a row that are not ok, by item."""
    item, rows, text = (getattr(index.columns, name) for name in SPARSE[kind])
    some = slice(*np.searchsorted(item, (items.start, items.stop)))
    return {int(item[i]): index.texts.all[text[i]] for i in np.flatnonzero(rows[some] == row) + some.start}


def files_in(folder: Path, suffix: str) -> list[Path]:
    """The files of a folder, sorted; none where there is no such folder."""
    try:
        names = read_patiently(folder, os.listdir)
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names) if name.endswith(suffix) and not name.startswith(".")]


def listed(folder: Path) -> dict[str, Stamp]:
    """The chunk files of a folder by name, sorted, with size and time.

    A folder that changes while it is listed can hide a file and the one that replaces it, so it is listed again.
    """
    for _ in range(_TRIES):
        try:
            before = folder.stat().st_mtime_ns
            found = read_patiently(folder, _listed)
            if folder.stat().st_mtime_ns == before:
                break
        except FileNotFoundError:
            return {}
        time.sleep(0.01)
    return found


def _listed(folder: Path) -> dict[str, Stamp]:
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".safetensors") and not entry.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):
                    about = entry.stat()
                    found[entry.name] = Stamp(about.st_size, about.st_mtime_ns)
    return dict(sorted(found.items()))
