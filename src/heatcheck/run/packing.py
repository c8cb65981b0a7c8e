"""Chunk files: samples with everything that was computed for them, in one safetensors file named by its SHA-256.

A file of format 1 is what a worker writes: up to eight samples. One of format 2 is what compaction makes of many: the same,
with a cost per sample instead of per group, answers in blocks of rows, and the names of the files that it stands for.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from heatcheck.core.types import OK, Attribution, HeatcheckError
from heatcheck.run.records import ChunkHeader, first_problem

FORMAT, COMPACTED = 1, 2
PRICES = ("seconds", "forwards", "backwards")
"""What a map costs, in the order of a chunk's tensor of costs."""
_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


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
    return sealed_chunk({"format": FORMAT, "groups": records}, tensors)


def sealed_chunk(header: Mapping[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """A header and its tensors as a file's bytes."""
    header_text = json.dumps(header, sort_keys=True, allow_nan=False)
    data: bytes = save(tensors or {"empty": torch.zeros(1)}, {"heatcheck": header_text})
    return data


def exceptions(status: Sequence[str]) -> dict[str, str]:
    """The statuses that are not ok, by row."""
    return {str(i): s for i, s in enumerate(status) if s != OK}


class Stamp(NamedTuple):
    """By what a file is known to be the one that was verified, without reading it."""

    size: int
    mtime: int


@dataclass(frozen=True)
class ChunkFile:
    """A chunk whose bytes match its name.

    Args:
        stamp: its size and time when it was read.
        header: what it says it holds.
        tensors: dtype, shape and place of each tensor.
        start: where the tensors' bytes begin.
        data: all of its bytes.
    """

    stamp: Stamp
    header: dict[str, Any]
    tensors: dict[str, dict[str, Any]]
    start: int
    data: bytes = field(repr=False)

    @property
    def replaces(self) -> list[str]:
        """Names of the chunk files whose content it has."""
        names: list[str] = self.header.get("of", [])
        return names

    def tensor(self, name: str) -> Tensor:
        """One of its tensors, in memory of its own.

        Raises:
            KeyError: it has none of this name.
        """
        about = self.tensors[name]
        first, last = about["data_offsets"]
        dtype = _DTYPES[about["dtype"]]
        if first == last:
            return torch.empty(about["shape"], dtype=dtype)
        piece = bytearray(memoryview(self.data)[self.start + first : self.start + last])
        return torch.frombuffer(piece, dtype=dtype).reshape(about["shape"])

    def row(self, name: str, row: int) -> Tensor:
        """One row of one of its tensors, in memory of its own; of a large chunk nothing else is copied."""
        about = self.tensors[name]
        first, last = about["data_offsets"]
        rows, *shape = about["shape"]
        if not 0 <= row < rows:
            raise IndexError(f"{name} has {rows} rows, and no row {row}")
        size, dtype = (last - first) // rows, _DTYPES[about["dtype"]]
        if not size:
            return torch.empty(shape, dtype=dtype)
        begin = self.start + first + row * size
        return torch.frombuffer(bytearray(memoryview(self.data)[begin : begin + size]), dtype=dtype).reshape(shape)

    def doubles(self) -> np.ndarray:
        """Its tensors' bytes as one row of float64; scores begin at an eighth of their offset."""
        return np.frombuffer(self.data, "<f8", (len(self.data) - self.start) // 8, self.start)

    def answers(self, group: int, row: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """The stored questions about a row of a group, and their answers, block by block."""
        record = self.header["groups"][group]
        if record["answers"]:
            keys, rows = (self.tensor(f"{group}/answers/{part}").numpy() for part in ("keys", "rows"))
            blocks = record.get("blocks", [[0, len(record["samples"]), 0, len(keys)]])
            for i, (first, last, a, b) in enumerate(blocks):
                if first <= row < last:
                    yield i, keys[a:b], rows[a:b].copy()

    def costs(self, group: int) -> dict[str, np.ndarray]:
        """What a map of each method costs, by row: seconds, forwards and backwards; NaN where that is not known."""
        record = self.header["groups"][group]
        if "prices" in record:
            prices = self.tensor(record["prices"]).numpy()
            return dict(zip(record["priced"], prices, strict=True))
        rows = len(record["samples"])
        return {
            method: np.tile([cost.get(name, np.nan) for name in PRICES], (rows, 1))
            for method, cost in record["costs"].items()
        }


def read_chunk(path: Path) -> ChunkFile:
    """Read and verify a chunk.

    Raises:
        Mismatch: its bytes do not match its name.
        ValueError: they do, and it is no chunk all the same.
        HeatcheckError: it is one of another format.
    """
    with path.open("rb") as f:
        before = os.fstat(f.fileno())
        data = f.read()
    if hashlib.sha256(data).hexdigest() != path.stem:
        raise Mismatch("its bytes do not match its name")
    start = 8 + int.from_bytes(data[:8], "little")
    try:
        tensors = json.loads(data[8:start])
        header: dict[str, Any] = json.loads(tensors.pop("__metadata__")["heatcheck"])
        form = header["format"]
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ValueError("it is no chunk of a run: it does not say what it holds") from problem
    if form not in (FORMAT, COMPACTED):
        raise HeatcheckError(
            f"{path} has store format {form}, this version reads {FORMAT} and {COMPACTED}; read it with its own version"
        )
    try:
        check_header(header, tensors)
    except ValueError as problem:
        raise ValueError(f"it is no chunk of a run: {first_problem(problem)}") from problem
    return ChunkFile(Stamp(before.st_size, before.st_mtime_ns), header, tensors, start, data)


def check_header(header: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a header that lacks something, or names tensors that are not there or do not fit.

    Raises:
        ValueError: with what is wrong first.
    """
    ChunkHeader.model_validate(header)
    for g, group in enumerate(header["groups"]):
        rows = len(group["samples"])
        for column in (*group["scores"], *group["maps"]):
            if not all(row.isdecimal() and int(row) < rows for row in column["status"]):
                raise ValueError(f"{column['tensor']} has statuses of rows that are not there")
        prices = group.get("prices")
        if prices is not None and tensors.get(prices, {}).get("shape") != [len(group["priced"]), rows, len(PRICES)]:
            raise ValueError(f"{prices} does not have a cost for each of {rows} samples")
        scores = {column["tensor"] for column in group["scores"]}
        columns = {group["logits"], *scores, *(column["tensor"] for column in group["maps"])}
        columns |= {column["curve"] for column in group["scores"]}
        others = {display["tensor"] for display in group["displays"]} | {prices}
        others |= {f"{g}/answers/keys", f"{g}/answers/rows"} if group["answers"] else set()
        for name in filter(None, sorted(columns | others, key=str)):
            if name not in tensors:
                raise ValueError(f"it has no tensor {name}")
            if name in columns and list(tensors[name]["shape"][:1]) != [rows]:
                raise ValueError(f"{name} does not have a row for each of {rows} samples")
            if name in scores and (tensors[name]["dtype"], len(tensors[name]["shape"])) != ("F64", 1):
                raise ValueError(f"{name} is no row of float64")


def map_row(sample: Mapping[str, Any]) -> str:
    """The row key of a sample's maps."""
    return f"{sample['digest']}:{sample['target']}"


def score_row(sample: Mapping[str, Any]) -> str:
    """The row key of a sample's scores: its maps', and what metrics compare with."""
    return f"{sample['digest']}:{sample['target']}:{sample['context']}"
