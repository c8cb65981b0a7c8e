"""Runs made on different machines joined into one folder: the union of their chunks and studies.

Chunks are immutable and named by their content, so that joining is copying, or linking where both folders are on one disk.
Where two runs hold different values of one cell, the first run's is kept and both are told. Nothing is written before it is
verified, sources are only read, and a merge that was killed is finished by the same command. Design: design/sharing.md.
"""

import copy
import functools
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save

from heatcheck.core.files import make_folder, read_patiently, write_atomically
from heatcheck.core.types import OK, HeatcheckError
from heatcheck.probe.calls import Spent
from heatcheck.probe.numerics import LATER
from heatcheck.run import history
from heatcheck.run.packing import Mismatch, map_row, read_chunk, score_row
from heatcheck.run.reader import RunReader
from heatcheck.run.records import NUMERICS, RUN
from heatcheck.run.shard import Shard
from heatcheck.run.store import Store, files_in

ROUNDING = 1e-5
"""How far scores may differ, relative to the larger, between runs with other numerics."""
GIVEN_WAY = "failed: another run that was merged has another value, which is shown"
"""The status of a cell that gives way; whatever is stored under it, a value elsewhere counts before it."""
NAMED = 5
"""Conflicts that are named one by one."""
Cell = tuple[int, str, int, int]
Key = tuple[str, int, str]


class Conflict(NamedTuple):
    """A cell that two runs have different values of."""

    model: str
    sample: str
    method: str
    metric: str
    kept: float | str
    other: float | str
    runs: tuple[str, str]

    def __str__(self) -> str:
        kept, other = (f"{v:.9g}" if isinstance(v, float) else repr(v) for v in (self.kept, self.other))
        cell = f"{self.model}, sample {self.sample}, {self.method} under {self.metric}"
        return f"{cell}: {kept} in {self.runs[0]}, which is kept, and {other} in {self.runs[1]}"


@dataclass
class Merged:
    """What became of a merge.

    Args:
        out: the folder that has everything.
        runs: how many were joined.
        chunks: files that are in it now; `linked` of them share their bytes with a source.
        linked: files that need no space of their own.
        conflicts: how many cells two runs have different values of.
        examples: the first of them.
        maps: maps that two runs have with different values, whose scores may agree.
        rounded: cells that two runs have with other numerics, and that agree within rounding.
        damaged: files of the sources that were left out, with the reason.
        missing: cells of the last study that no run has.
        notes: what else is worth knowing.
    """

    out: Path
    runs: int = 0
    chunks: int = 0
    linked: int = 0
    conflicts: int = 0
    examples: list[Conflict] = field(default_factory=list)
    maps: int = 0
    rounded: int = 0
    damaged: list[str] = field(default_factory=list)
    missing: int = 0
    notes: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """What a user should read."""
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        yield f"{runs} in {self.out}: {self.chunks:,} files, {self.linked:,} of them linked"
        yield from self.notes
        if self.rounded:
            yield f"{self.rounded:,} cells were computed with other numerics too and agree within rounding; the first count"
        for what in self.damaged:
            yield f"left out: {what}"
        if self.conflicts:
            yield f"{self.conflicts:,} cells have different values in two runs; the first run's are kept:"
            yield from (f"  {example}" for example in self.examples)
            if self.conflicts > len(self.examples):
                yield f"  … and {self.conflicts - len(self.examples):,} more"
        if self.maps:
            yield f"{self.maps:,} maps differ between two runs; the first run's are kept"
        if self.missing:
            yield f"{self.missing:,} cells are in none of the runs"


def merge_runs(sources: Sequence[Path], out: Path, tell: Callable[[str], object] = lambda line: None) -> Merged:
    """Join runs into a folder of their own.

    Args:
        sources: the runs' folders; where they disagree, an earlier one counts.
        out: where everything goes: a new folder, or that of an earlier merge, which is completed.
        tell: told of each run when its turn comes.

    Raises:
        HeatcheckError: a source is no run, or `out` is a run of its own.
    """
    folders = list(dict.fromkeys(path.expanduser().resolve() for path in sources))
    into = out.expanduser().resolve()
    opened = [open_source(path) for path in folders]
    check_target(into, folders)
    store = Store.open(into, create=True)
    merger = Merger(store, Merged(out, runs=len(folders)))
    merger.unite_records(opened)
    for number, source in enumerate(opened):
        files = files_in(source.chunks, ".safetensors")
        tell(f"{source.folder}: {len(files):,} chunk{'' if len(files) == 1 else 's'}")
        merger.add(number, source, files)
    merger.finish()
    return merger.found


def open_source(path: Path) -> Store:
    """A run's folder, of which nothing is verified yet."""
    if not (path / RUN).exists() and not files_in(path / "studies", ".json"):
        raise HeatcheckError(
            f"{str(path)!r} is not a run folder: it has no run.json; name folders that `heatcheck run` made"
        )
    return Store(path)


def check_target(out: Path, sources: Sequence[Path]) -> None:
    """Refuse to write where a run is: sources are never changed."""
    if out in sources:
        raise HeatcheckError(f"--out {str(out)!r} is one of the runs that are merged; choose a new folder")
    if not out.exists():
        return
    record = Store(out).read(RUN)
    begun = {"chunks", "studies", NUMERICS}
    empty = all(path.name in begun for path in files_in(out, "")) and not files_in(out / "chunks", "")
    if empty or (record is not None and "merged" in record):
        return
    raise HeatcheckError(
        f"--out {str(out)!r} has something in it that no merge has put there; choose a new folder, and name this one among "
        "the runs if it is one"
    )


@dataclass
class Merger:
    """Adds one run after the other to a folder."""

    store: Store
    found: Merged
    places: dict[Key, list[tuple[int, Path, int, int]]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    folders: dict[int, str] = field(default_factory=dict)

    # -- records -------------------------------------------------------------------------------------------

    def unite_records(self, sources: Sequence[Store]) -> None:
        """Studies, numerics and the last study's record, before any chunk is copied."""
        lasts = [history.last_study(source) for source in sources]
        numerics: dict[str, dict[str, Any]] = {}
        for source, last in zip(sources, lasts, strict=True):
            for study in history.studies(source, last):
                self.add_labels(study)
                name = f"studies/{history.study_digest(study)}.json"
                if not (self.store.folder / name).exists():
                    self.store.write(name, {k: v for k, v in study.items() if k not in history.PROGRESS})
            for model, shape in (source.read(NUMERICS) or {}).items():
                if numerics.setdefault(model, shape) != shape:
                    self.note_numerics(source, model, numerics[model], shape)
            self.found.damaged += [f"{source.folder / name}: {why}" for name, why in source.damaged.items()]
        if numerics:
            self.store.write(NUMERICS, numerics)
        newest = max(lasts, key=lambda last: str(last["created"]))
        passes: Counter[str] = Counter()
        for last in lasts:
            passes.update(last["passes"])
        record = {k: v for k, v in newest.items() if k not in history.PROGRESS}
        record |= {"passes": {**asdict(Spent()), **passes}, "finished": False, **shards_of(newest, lasts)}
        record["peak_bytes"] = max(last.get("peak_bytes", 0) for last in lasts)
        history.write_run(self.store, {**record, "merged": [source.folder.name for source in sources]})

    def add_labels(self, study: Mapping[str, Any]) -> None:
        """What tables call the models, methods and metrics that chunks know by digests."""
        for model in study["models"]:
            self.labels[model["identity"]] = model["name"]
            self.labels |= {entry["digest"]: entry["label"] for entry in (*model["methods"], *model["metrics"])}

    def note_numerics(self, source: Store, model: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
        """Say that a run called a model otherwise than an earlier one."""
        mine, theirs = ({**LATER, **numerics} for numerics in (mine, theirs))
        differing = [name for name in mine if mine[name] != theirs.get(name)]
        told = ", ".join(f"{name} {theirs.get(name)} instead of {mine[name]}" for name in differing)
        remedy = (
            "--numerics makes them equal" if LATER.keys() & set(differing) else "--numerics or --batch make them equal"
        )
        self.found.notes.append(
            f"{source.folder.name} was computed with other numerics for {self.labels.get(model, model[:8])} ({told}): its "
            f"scores agree with the others within rounding, not bit by bit; {remedy}"
        )

    # -- chunks --------------------------------------------------------------------------------------------

    def add(self, number: int, source: Store, files: Sequence[Path]) -> None:
        """Copy or link a run's chunks; cells that an earlier run has otherwise give way."""
        self.folders[number] = source.folder.name
        for path in files:
            try:
                header = read_patiently(path, read_chunk).header
            except FileNotFoundError:
                continue
            except (Mismatch, ValueError) as problem:
                self.found.damaged.append(f"{path}: {problem}")
                continue
            theirs = list(self.given_way(number, path, header))
            if theirs:
                self.write_without(path, header, theirs)
            else:
                self.place(path)
            self.found.chunks += 1
            for g, group in enumerate(header["groups"]):
                for row, sample in enumerate(group["samples"]):
                    key = group["model"], group["seed"], sample["digest"]
                    self.places.setdefault(key, []).append((number, path, g, row))

    def given_way(self, number: int, path: Path, header: Mapping[str, Any]) -> Iterator[Cell]:
        """The cells of a chunk that an earlier run has with another value: group, kind, column and row."""
        for g, group in enumerate(header["groups"]):
            for row, sample in enumerate(group["samples"]):
                known = self.places.get((group["model"], group["seed"], sample["digest"]), ())
                for other, earlier, h, r in known:
                    if other != number:
                        yield from self.compare((number, path, g, row), (other, earlier, h, r))

    def compare(self, mine: tuple[int, Path, int, int], theirs: tuple[int, Path, int, int]) -> Iterator[Cell]:
        """The cells of one sample in a group that an earlier group has with another value."""
        number, path, g, row = mine
        other, earlier, h, r = theirs
        group, before = loaded(path).groups[g], loaded(earlier).groups[h]
        sample, known = group["samples"][row], before["samples"][r]
        same_shape = shape_of(group) == shape_of(before)
        for kind, row_key in (("maps", map_row), ("scores", score_row)):
            if row_key(sample) != row_key(known):
                continue
            columns = {(c["method"], c.get("metric")): c for c in before[kind]}
            for i, column in enumerate(group[kind]):
                kept = columns.get((column["method"], column.get("metric")))
                if kept is None:
                    continue
                values = loaded(path).value(column, row), loaded(earlier).value(kept, r)
                if any(isinstance(v, str) and v.startswith("failed") for v in values) or equal(*values):
                    continue
                yield g, kind, i, row
                if kind == "maps":
                    self.found.maps += same_shape
                elif not same_shape and close(*values):
                    self.found.rounded += 1
                else:
                    self.found.conflicts += 1
                    if len(self.found.examples) < NAMED:
                        method, metric = (self.labels.get(d, d[:8]) for d in (column["method"], column["metric"]))
                        model = self.labels.get(group["model"], group["model"][:8])
                        runs = self.folders[other], self.folders[number]
                        shown = [v.item() if isinstance(v, torch.Tensor) else v for v in values]
                        self.found.examples.append(
                            Conflict(model, str(sample.get("name")), method, metric, shown[1], shown[0], runs)
                        )

    def place(self, path: Path) -> None:
        """Put a verified chunk into the folder, without copying its bytes where the disk allows it."""
        target = self.store.chunks / path.name
        if target.exists():
            self.found.linked += target.samefile(path)
            return
        try:
            os.link(path, target)
            self.found.linked += 1
        except OSError:  # another disk, or one without links
            data = read_patiently(path, Path.read_bytes)
            if hashlib.sha256(data).hexdigest() != path.stem:
                self.found.damaged.append(f"{path}: its bytes changed while they were read")
                return
            write_atomically(target, data)

    def write_without(self, path: Path, header: Mapping[str, Any], cells: Sequence[Cell]) -> None:
        """Write a chunk in which some cells give way to those of an earlier run."""
        changed = copy.deepcopy(dict(header))
        changed.pop("of", None)  # it no longer has all that the chunks had that were put together in it
        for g, kind, column, row in cells:
            changed["groups"][g][kind][column]["status"][str(row)] = GIVEN_WAY
        text = json.dumps(changed, sort_keys=True, allow_nan=False)
        data: bytes = save(load_file(path), {"heatcheck": text})
        target = self.store.chunks / f"{hashlib.sha256(data).hexdigest()}.safetensors"
        if not target.exists():
            write_atomically(target, data)

    def finish(self) -> None:
        """Make links last, and say what the last study lacks."""
        make_folder(self.store.chunks)
        handle = os.open(self.store.chunks, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        loaded.cache_clear()
        self.store.refresh()
        last = RunReader(self.store, only=True)
        counts = last.scores()["status"].value_counts(name="cells").iter_rows()
        self.found.missing = sum(cells for status, cells in counts if status.startswith("missing"))
        record = {**last.manifest, "finished": not self.found.missing}
        if not self.found.missing:
            record.pop("shards", None)
        history.write_run(self.store, record)


@dataclass(frozen=True)
class Loaded:
    """A chunk that is compared with others."""

    path: Path
    groups: list[dict[str, Any]]
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    def value(self, column: Mapping[str, Any], row: int) -> torch.Tensor | str:
        """A cell's value, or its status where it has none."""
        status: str = column["status"].get(str(row), OK)
        if status != OK:
            return status
        name = column["tensor"]
        if name not in self.tensors:
            with safe_open(self.path, framework="pt") as file:
                self.tensors[name] = file.get_tensor(name)
        return self.tensors[name][row]


@functools.lru_cache(maxsize=64)
def loaded(path: Path) -> Loaded:
    """A chunk that was verified before, kept for the next comparison."""
    return Loaded(path, read_chunk(path).header["groups"])


def shape_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """A group's numerics; groups of metrics that compare models have none."""
    return {name: value for name, value in group["numerics"].items() if name != "halved"}


def equal(a: torch.Tensor | str, b: torch.Tensor | str) -> bool:
    """Whether two values, or two reasons for having none, are the same."""
    if isinstance(a, str) or isinstance(b, str):
        return a is b or (isinstance(a, str) and isinstance(b, str) and a == b)
    return a.shape == b.shape and bool(torch.equal(a.nan_to_num(), b.nan_to_num()))


def close(a: torch.Tensor | str, b: torch.Tensor | str) -> bool:
    """Whether two scores agree within rounding."""
    if isinstance(a, str) or isinstance(b, str):
        return False
    return bool(torch.isclose(a.double(), b.double(), rtol=ROUNDING, atol=ROUNDING, equal_nan=True))


def shards_of(newest: Mapping[str, Any], lasts: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The shards of the newest study that the runs have; nothing where one of them is not a shard."""

    def samples(study: Mapping[str, Any]) -> list[str]:
        return [sample["digest"] for sample in study["samples"]]

    same = [last for last in lasts if samples(last) == samples(newest)]
    if not all(last.get("shards") for last in same):
        return {}
    return {"shards": sorted({shard for last in same for shard in last["shards"]}, key=Shard.parse)}
