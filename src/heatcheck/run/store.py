"""One run is one folder of immutable chunk files; they are the truth, and every index is rebuilt from them.

A chunk holds up to eight samples of one model: maps, scores, statuses, curves and the model's answers, in one
safetensors file whose name is the SHA-256 of its bytes. Adding a method or metric adds files. Two processes
that write the same folder cannot hurt each other.
"""

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from heatcheck.core.files import sha256_of, sweep_temporaries, write_atomically, write_json
from heatcheck.core.types import OK, Attribution, HeatcheckError

FORMAT = 1


class StoreWarning(UserWarning):
    """A stored file was damaged; it was set aside and its content will be computed again."""


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
    """

    folder: Path
    headers: dict[Path, dict[str, Any]] = field(default_factory=dict)
    maps: dict[tuple[str, int, str], dict[str, At]] = field(default_factory=dict)
    scores: dict[tuple[str, int, str, str], dict[str, At]] = field(default_factory=dict)
    samples: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    problems: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    groups: dict[tuple[str, str], list[tuple[Path, int, int]]] = field(default_factory=dict)
    costs: dict[tuple[str, int, str], dict[str, dict[str, float]]] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, folder: str | Path, *, create: bool = False) -> "Store":
        """Read every chunk's header, setting damaged files aside."""
        path = Path(folder)
        if not create and not (path / "run.json").exists():
            raise HeatcheckError(
                f"{str(folder)!r} is not a run folder: it has no run.json; `heatcheck run --out` makes one"
            )
        store = cls(path)
        store.chunks.mkdir(parents=True, exist_ok=True)
        store.sweep()
        store.refresh()
        return store

    def sweep(self) -> None:
        """Remove what processes that no longer live left half written."""
        sweep_temporaries(self.folder)
        sweep_temporaries(self.chunks)

    @property
    def chunks(self) -> Path:
        """The folder of chunk files."""
        return self.folder / "chunks"

    def refresh(self) -> None:
        """Index the chunk files that appeared since the last look."""
        for path in sorted(self.chunks.glob("*.safetensors")):
            if path in self.headers:
                continue
            header = self._verified_header(path)
            if header is not None:
                self.headers[path] = header
                self._index(path, header)

    def _verified_header(self, path: Path) -> dict[str, Any] | None:
        try:
            if sha256_of(path) != path.stem:
                raise ValueError("its bytes do not match its name")
            with safe_open(path, framework="pt") as f:
                header: dict[str, Any] = json.loads(f.metadata()["heatcheck"])
        except FileNotFoundError:
            return None
        except Exception as problem:
            self._quarantine(path, str(problem))
            return None
        if header["format"] != FORMAT:
            raise HeatcheckError(
                f"{path} has store format {header['format']}, this version reads {FORMAT}; read it with its own version"
            )
        return header

    def _quarantine(self, path: Path, why: str) -> None:
        aside = self.folder / "quarantine"
        aside.mkdir(exist_ok=True)
        path.replace(aside / path.name)
        self.damaged.append(f"{path.name}: {why}")
        warnings.warn(
            f"{path.name} is damaged ({why}); moved to {aside}, its content will be computed again",
            StoreWarning,
            stacklevel=4,
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
        """Write a chunk under the digest of its bytes; writing the same chunk twice is harmless."""
        data = pack(groups)
        path = self.chunks / f"{hashlib.sha256(data).hexdigest()}.safetensors"
        if not path.exists():
            write_atomically(path, data)
        return path

    def write(self, name: str, value: Any) -> None:
        """Write one of the run's JSON files."""
        write_json(self.folder / name, value)

    def read(self, name: str) -> Any:
        """Read one of the run's JSON files; None if there is none."""
        path = self.folder / name
        if not path.exists():
            return None
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError as problem:
            raise HeatcheckError(
                f"{path} cannot be read ({problem}); restore it, or run again with another --out"
            ) from problem

    def tensor(self, file: Path, name: str) -> Tensor:
        """One tensor of a chunk."""
        with safe_open(file, framework="pt") as f:
            value: Tensor = f.get_tensor(name)
        return value

    def record(self, at: At, kind: str) -> dict[str, Any]:
        """The header record of a stored map or score."""
        found: dict[str, Any] = self.headers[at.file]["groups"][at.group][kind][at.item]
        return found

    def answers(self, model: str, digests: list[str]) -> dict[bytes, Any]:
        """Every stored answer about the given samples."""
        wanted = {(path, g) for d in digests for path, g, _ in self.groups.get((model, d), ())}
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


def map_row(sample: Mapping[str, Any]) -> str:
    """The row key of a sample's maps."""
    return f"{sample['digest']}:{sample['target']}"


def score_row(sample: Mapping[str, Any]) -> str:
    """The row key of a sample's scores: its maps', and what metrics compare with."""
    return f"{sample['digest']}:{sample['target']}:{sample['context']}"
