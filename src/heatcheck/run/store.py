"""One run is one folder of immutable chunk files; they are the truth, and every index is rebuilt from them.

A chunk holds up to eight samples of one model: maps, scores, statuses, curves and the model's answers, in one
safetensors file whose name is the SHA-256 of its bytes. Adding a method or metric adds files. Two processes
that write the same folder cannot hurt each other.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from heatcheck.core.files import (
    StorageError,
    cannot,
    make_folder,
    read_patiently,
    sha256_of,
    sweep_temporaries,
    write_atomically,
)
from heatcheck.core.types import OK, Attribution, HeatcheckError
from heatcheck.run.records import NUMERICS, RUN, ChunkHeader, DamagedRecord, checked, first_problem, sealed, unsealed

FORMAT = 1


class StoreWarning(UserWarning):
    """A stored file is damaged or no part of a run: what it should hold counts as not computed."""


class Mismatch(ValueError):
    """A file's bytes do not match its checksum."""


@dataclass
class MapColumn:
    """One method's maps for the samples of a group, under the digest that it is filed under.

    The attribution's `method` is the label that tables show.
    """

    method: str
    maps: Attribution


@dataclass
class ScoreColumn:
    """One method's scores under one metric for the samples of a group."""

    method: str
    metric: str
    value: Tensor
    status: list[str]
    curve: Tensor | None = None
    share: tuple[float, ...] = ()


@dataclass
class SampleGroup:
    """Samples of one shape under one model, and everything that was computed for them.

    `samples` holds a record per sample: name, digest, context (label and reference), target, label, top classes
    with their probabilities, and `problem` where it could not be used (then it is the group's only sample).
    `costs` holds, by method, what a map of it costs: forwards, backwards and seconds per sample.
    """

    model: str
    seed: int
    samples: list[dict[str, Any]]
    logits: Tensor | None = None
    maps: list[MapColumn] = field(default_factory=list)
    scores: list[ScoreColumn] = field(default_factory=list)
    answers: dict[bytes, Any] = field(default_factory=dict)
    displays: list[dict[str, Any]] = field(default_factory=list)
    numerics: dict[str, Any] = field(default_factory=dict)
    costs: dict[str, dict[str, float]] = field(default_factory=dict)


def pack(groups: list[SampleGroup]) -> bytes:
    """A chunk file's bytes."""
    tensors: dict[str, Tensor] = {}
    records = []

    def put(name: str, value: Tensor | None) -> str | None:
        if value is None:
            return None
        tensors[name] = value.detach().cpu().contiguous()
        return name

    for g, group in enumerate(groups):
        keys = sorted(group.answers)
        if keys:
            put(f"{g}/answers/keys", torch.from_numpy(np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 16).copy()))
            put(f"{g}/answers/rows", torch.from_numpy(np.stack([group.answers[k] for k in keys])))
        records.append(
            {
                "model": group.model,
                "seed": group.seed,
                "samples": group.samples,
                "numerics": group.numerics,
                "costs": group.costs,
                "logits": put(f"{g}/logits", group.logits),
                "answers": len(keys),
                "maps": [
                    {
                        "method": c.method,
                        "label": c.maps.method,
                        "tensor": put(f"{g}/map/{i}", c.maps.values),
                        "status": exceptions(c.maps.status),
                        "signed": c.maps.signed,
                        "output": c.maps.output,
                        "interpolation": c.maps.interpolation,
                    }
                    for i, c in enumerate(group.maps)
                ],
                "scores": [
                    {
                        "method": c.method,
                        "metric": c.metric,
                        "tensor": put(f"{g}/score/{i}", c.value.double()),
                        "status": exceptions(c.status),
                        "curve": put(f"{g}/curve/{i}", c.curve),
                        "share": list(c.share),
                    }
                    for i, c in enumerate(group.scores)
                ],
                "displays": [
                    {**{k: v for k, v in d.items() if k != "rgb"}, "tensor": put(f"{g}/display/{i}", d.get("rgb"))}
                    for i, d in enumerate(group.displays)
                ],
            }
        )
    header = {"format": FORMAT, "groups": records}
    header_text = json.dumps(header, sort_keys=True, allow_nan=False)
    data: bytes = save(tensors or {"empty": torch.zeros(1)}, {"heatcheck": header_text})
    return data


def exceptions(status: Sequence[str]) -> dict[str, str]:
    """The statuses that are not ok, by row."""
    return {str(i): s for i, s in enumerate(status) if s != OK}


@dataclass(frozen=True)
class At:
    """Where something is stored: a file, a group in it, a record's number, a row."""

    file: Path
    group: int
    item: int
    row: int


@dataclass
class Store:
    """A run folder and the index of what its chunks hold.

    Index keys: maps by (model, seed, method), scores by (model, seed, method, metric), each then by the row key of
    a sample (`digest:target` for maps, `digest:target:context` for scores); all of them digests of identities. Samples
    that could not be used are in `problems`.

    Args:
        folder: the run's folder.
        writable: whether damaged files may be set aside and half-written ones removed; else no file is touched.
        damaged: files whose bytes do not match their checksums, with the reason.
        foreign: chunks that are as they were written, and hold what this version cannot read.
        unchecked: records from before there were checksums.
    """

    folder: Path
    writable: bool = False
    headers: dict[Path, dict[str, Any]] = field(default_factory=dict)
    maps: dict[tuple[str, int, str], dict[str, At]] = field(default_factory=dict)
    scores: dict[tuple[str, int, str, str], dict[str, At]] = field(default_factory=dict)
    samples: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    problems: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    groups: dict[tuple[str, str], list[tuple[Path, int, int]]] = field(default_factory=dict)
    costs: dict[tuple[str, int, str], dict[str, dict[str, float]]] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)
    unchecked: set[str] = field(default_factory=set)

    @classmethod
    def open(cls, folder: str | Path, *, create: bool = False) -> "Store":
        """Verify every chunk and read its header.

        Args:
            folder: the run's folder.
            create: open it for writing: make it, set damaged files aside, remove half-written ones. Else it is only
                read, and nothing in it is moved or changed.

        Raises:
            HeatcheckError: it is no run folder, or of another format.
            StorageError: a file cannot be read, or the folder not be written.
        """
        path = Path(folder)
        if not create and not (path / RUN).exists() and not files_in(path / "studies", ".json"):
            raise HeatcheckError(
                f"{str(folder)!r} is not a run folder: it has no run.json; `heatcheck run --out` makes one"
            )
        store = cls(path, writable=create)
        if create:
            make_folder(store.chunks)
            store.sweep()
        store.refresh()
        return store

    def sweep(self) -> None:
        """Remove what processes that no longer live left half written."""
        for folder in (self.folder, self.chunks, self.studies):
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

    def refresh(self) -> None:
        """Index the chunk files that appeared since the last look."""
        for path in files_in(self.chunks, ".safetensors"):
            if path in self.headers or path.name in self.damaged or path.name in self.foreign:
                continue
            header = self._verified_header(path)
            if header is not None:
                self.headers[path] = header
                self._index(path, header)

    def _verified_header(self, path: Path) -> dict[str, Any] | None:
        try:
            return read_patiently(path, verified_header)
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

    def _index(self, path: Path, header: dict[str, Any]) -> None:
        for g, group in enumerate(header["groups"]):
            model, seed = group["model"], group["seed"]
            for row, sample in enumerate(group["samples"]):
                key = (model, sample["digest"])
                if sample.get("problem"):
                    self.problems.setdefault(key, []).append(sample)
                    continue
                self.samples.setdefault(key, sample)
                self.groups.setdefault(key, []).append((path, g, row))
            for method, cost in group["costs"].items():
                spent = self.costs.setdefault((model, seed, method), {})
                spent.update((map_row(sample), cost) for sample in group["samples"])
            for i, record in enumerate(group["maps"]):
                column = self.maps.setdefault((model, seed, record["method"]), {})
                for row, sample in enumerate(group["samples"]):
                    if not record["status"].get(str(row), OK).startswith("failed"):
                        column.setdefault(map_row(sample), At(path, g, i, row))
            for i, record in enumerate(group["scores"]):
                scored = self.scores.setdefault((model, seed, record["method"], record["metric"]), {})
                for row, sample in enumerate(group["samples"]):
                    earlier = scored.get(score_row(sample))
                    if earlier is None or self.status(earlier).startswith("failed"):
                        scored[score_row(sample)] = At(path, g, i, row)

    def problem(self, model: str, digest: str, context: str, target: str | int) -> str | None:
        """Why a sample could not be used with this label, reference and target; None if no run says so."""
        for record in self.problems.get((model, digest), ()):
            if record["context"] == context and record.get("asked", target) == target:
                problem: str = record["problem"]
                return problem
        return None

    def status(self, at: At) -> str:
        record = self.headers[at.file]["groups"][at.group]["scores"][at.item]
        status: str = record["status"].get(str(at.row), OK)
        return status

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
        groups = [group for header in self.headers.values() for group in header["groups"] if group["numerics"]]
        groups.sort(key=lambda group: not group["numerics"].get("halved"))  # those that memory allowed count
        found = {g["model"]: {k: v for k, v in g["numerics"].items() if k != "halved"} for g in groups}
        try:
            checked(NUMERICS, found, sealed=True)
        except DamagedRecord:
            return {}
        return found

    def tensor(self, file: Path, name: str) -> Tensor:
        """One tensor of a chunk."""

        def read(file: Path) -> Tensor:
            with safe_open(file, framework="pt") as f:
                value: Tensor = f.get_tensor(name)
            return value

        try:
            return read_patiently(file, read)
        except (FileNotFoundError, SafetensorError) as problem:
            raise StorageError(f"{file} was moved or changed while it was read ({problem}); try again") from problem

    def record(self, at: At, kind: str) -> dict[str, Any]:
        """The header record of a stored map or score."""
        found: dict[str, Any] = self.headers[at.file]["groups"][at.group][kind][at.item]
        return found

    def groups_about(self, model: str, digests: Iterable[str]) -> set[tuple[Path, int]]:
        """Where something is stored about the given samples: files, and groups in them."""
        return {(path, g) for d in digests for path, g, _ in self.groups.get((model, d), ())}

    def answers(self, model: str, digests: list[str]) -> dict[bytes, Any]:
        """Every stored answer about the given samples."""
        wanted = self.groups_about(model, digests)
        found: dict[bytes, Any] = {}
        for path, g in sorted(wanted):
            if self.headers[path]["groups"][g]["answers"]:
                keys = self.tensor(path, f"{g}/answers/keys").numpy()
                rows = self.tensor(path, f"{g}/answers/rows").numpy()
                found.update((k.tobytes(), r) for k, r in zip(keys, rows, strict=True))
        return found

    def clean_logits(self, model: str, digest: str) -> Tensor | None:
        """The stored logits of a clean sample."""
        for path, g, row in self.groups.get((model, digest), ()):
            if self.headers[path]["groups"][g]["logits"]:
                return self.tensor(path, f"{g}/logits")[row]
        return None

    def displays(self) -> Iterator[tuple[Path, int, int, dict[str, Any]]]:
        """Every stored picture or text, with where it is."""
        for path, header in self.headers.items():
            for g, group in enumerate(header["groups"]):
                for i, display in enumerate(group["displays"]):
                    yield path, g, i, {**display, "model": group["model"]}


def files_in(folder: Path, suffix: str) -> list[Path]:
    """The files of a folder, sorted; none where there is no such folder."""
    try:
        names = read_patiently(folder, os.listdir)
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names) if name.endswith(suffix) and not name.startswith(".")]


def verified_header(path: Path) -> dict[str, Any]:
    """What a chunk says it holds.

    Raises:
        Mismatch: its bytes do not match its name.
        ValueError: they do, and it is no chunk all the same.
        HeatcheckError: it is one of another format.
    """
    if sha256_of(path) != path.stem:
        raise Mismatch("its bytes do not match its name")
    with path.open("rb") as f:
        size = int.from_bytes(f.read(8), "little")
        head = f.read(size)
    try:
        tensors = json.loads(head)
        header: dict[str, Any] = json.loads(tensors.pop("__metadata__")["heatcheck"])
        form = header["format"]
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ValueError("it is no chunk of a run: it does not say what it holds") from problem
    if form != FORMAT:
        raise HeatcheckError(
            f"{path} has store format {form}, this version reads {FORMAT}; read it with its own version"
        )
    try:
        check_header(header, {name: tensor["shape"] for name, tensor in tensors.items()})
    except ValueError as problem:
        raise ValueError(f"it is no chunk of a run: {first_problem(problem)}") from problem
    return header


def check_header(header: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> None:
    """Refuse a header that lacks something, or names tensors that are not there or do not fit.

    Raises:
        ValueError: with what is wrong first.
    """
    ChunkHeader.model_validate(header)
    for g, group in enumerate(header["groups"]):
        columns = [group["logits"], *(column["tensor"] for column in (*group["maps"], *group["scores"]))]
        columns += [column["curve"] for column in group["scores"]]
        others = [display["tensor"] for display in group["displays"]]
        others += [f"{g}/answers/keys", f"{g}/answers/rows"] if group["answers"] else []
        rows = len(group["samples"])
        for name in filter(None, (*columns, *others)):
            if name not in shapes:
                raise ValueError(f"it has no tensor {name}")
            if name in columns and list(shapes[name][:1]) != [rows]:
                raise ValueError(f"{name} does not have a row for each of {rows} samples")


def map_row(sample: Mapping[str, Any]) -> str:
    """The row key of a sample's maps."""
    return f"{sample['digest']}:{sample['target']}"


def score_row(sample: Mapping[str, Any]) -> str:
    """The row key of a sample's scores: its maps', and what metrics compare with."""
    return f"{sample['digest']}:{sample['target']}:{sample['context']}"
