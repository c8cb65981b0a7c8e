"""Samples, inputs, batches, attributions, scores and random streams."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from heatcheck.core.devices import CPU, indices, moved

OK = "ok"


class Modality(StrEnum):
    """What a classifier reads."""

    IMAGE = "image"
    TEXT = "text"


class HeatcheckError(Exception):
    """A mistake that the user can fix; the message says what was given and what to try."""


class NotApplicable(HeatcheckError):
    """This component cannot work here, for the reason given; the cell becomes a skip with that reason."""


class TextPair(NamedTuple):
    """Two texts that are classified together, such as a premise and a hypothesis."""

    first: str
    second: str

    @property
    def joined(self) -> str:
        r"""Both as one text, the second on a new line; spans of a pair count its characters.

        >>> TextPair("It rains.", "It is wet.").joined
        'It rains.\nIt is wet.'
        """
        return f"{self.first}\n{self.second}"


@dataclass(frozen=True)
class Sample:
    """One thing to classify, before any model has seen it.

    Args:
        name: what people call it (a file name, a row number).
        digest: SHA-256 of its content; what its results are filed under.
        content: a picture's path or array, a text or a pair of texts, or a tensor that is ready for the model.
        label: the class it belongs to, where known.
        reference: what a right map would show, by kind (`mask`, `boxes`, `spans`).
        problem: why it cannot be used; such a sample is reported, never dropped.
    """

    name: str
    digest: str
    content: Any = field(repr=False)
    label: int | None = None
    reference: Mapping[str, Any] = field(default_factory=dict, repr=False)
    problem: str | None = None


def digest_of(*parts: bytes | str) -> str:
    """SHA-256 over the parts, each with its length, as hex."""
    h = hashlib.sha256()
    for part in parts:
        raw = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        h.update(len(raw).to_bytes(8, "little"))
        h.update(raw)
    return h.hexdigest()


def digest_of_tensor(t: Tensor) -> str:
    """SHA-256 of a tensor's dtype, shape and bytes."""
    flat = t.detach().cpu().contiguous()
    return digest_of(str(flat.dtype), str(tuple(flat.shape)), flat.flatten().view(torch.uint8).numpy().tobytes())


@dataclass(frozen=True)
class Inputs:
    """What a model takes: named tensors whose first axis is the batch. A domain knows what the names mean."""

    tensors: Mapping[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def take(self, rows: Int[Tensor, " n"] | slice) -> "Inputs":
        """The given rows, in the given order; rows may repeat."""
        return Inputs(
            {k: v[rows] if isinstance(rows, slice) else v.index_select(0, rows) for k, v in self.tensors.items()}
        )

    def view_of(self, rows: Int[Tensor, " n"], *, one: bool) -> "Inputs":
        """The given rows, to be read only; where they are all `one` row, it is copied once."""
        if not one:
            return self.take(rows)
        first = self.take(rows[:1])
        return Inputs({k: v.expand(len(rows), *v.shape[1:]) for k, v in first.tensors.items()})

    def replace(self, **tensors: Tensor) -> "Inputs":
        """The same inputs with some tensors exchanged or added."""
        return Inputs({**self.tensors, **tensors})

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return next(iter(self.tensors.values())).device

    def to(self, device: torch.device) -> "Inputs":
        """The same inputs on a device; these themselves where they are there already."""
        if self.device == device:
            return self
        return Inputs(dict(zip(self.tensors, moved(device, *self.tensors.values()), strict=True)))

    def shape_key(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Shapes without the batch axis. Samples with equal keys can share a batch."""
        return tuple((k, tuple(v.shape[1:])) for k, v in sorted(self.tensors.items()))

    @staticmethod
    def cat(parts: Sequence["Inputs"]) -> "Inputs":
        """Rows of all parts under one another."""
        return Inputs({k: torch.cat([p[k] for p in parts]) for k in parts[0].tensors})


@dataclass(frozen=True)
class Streams:
    """Random numbers that belong to a sample and a purpose, not to a position in a batch.

    Components that name the same purpose share its draws, so equal orderings stay equal; order, neighbours,
    workers and resumption cannot change them.
    """

    seed: int
    digests: tuple[str, ...]
    device: torch.device = CPU
    """Where draws are moved to; they are made on the CPU, so that they are the same on every device."""

    def generator(self, row: int, purpose: str) -> torch.Generator:
        """A fresh generator for one sample and purpose, on the CPU; the same every time it is asked for."""
        raw = hashlib.sha256(f"{self.seed}|{self.digests[row]}|{purpose}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(raw[:8], "little") >> 1)

    def draw(self, purpose: str, make: Callable[[torch.Generator], Tensor]) -> Shaped[Tensor, "b ..."]:
        """One draw per sample, stacked."""
        return torch.stack([make(self.generator(i, purpose)) for i in range(len(self.digests))]).to(self.device)

    def derive(self, *names: str) -> "Streams":
        """Streams with other draws for the same samples: one name for all of them, or one for each."""
        each = names * len(self.digests) if len(names) == 1 else names
        return replace(self, digests=tuple(f"{d}|{name}" for d, name in zip(self.digests, each, strict=True)))

    def shared(self) -> "Streams":
        """Streams without their samples: those derived under the same name draw the same numbers."""
        return replace(self, digests=tuple(d.partition("|")[2] for d in self.digests))

    def take(self, rows: Iterable[int]) -> "Streams":
        """The streams of some samples."""
        return replace(self, digests=tuple(self.digests[i] for i in rows))


@dataclass(frozen=True)
class Batch:
    """Samples of one shape, ready for one model, with the class to explain for each."""

    x: Inputs
    target: Int[Tensor, " b"]
    label: Int[Tensor, " b"]
    streams: Streams
    references: tuple[Mapping[str, Any], ...] = ()
    altered: bool = False
    """Whether the inputs are no longer the samples' own, so that no stored answer fits them."""

    def __len__(self) -> int:
        return len(self.target)

    @property
    def device(self) -> torch.device:
        """Where the inputs are; draws are moved there."""
        return self.x.device

    @cached_property
    def targets(self) -> tuple[int, ...]:
        """The classes to explain, for whoever decides by them; read once."""
        return tuple(self.target.tolist())

    def to(self, device: torch.device, x: Inputs | None = None) -> "Batch":
        """The same samples on a device; this batch itself where it is there already. References stay where they are.

        Args:
            device: where to.
            x: the inputs, where they have been moved already.
        """
        if self.device == device:
            return self
        own = {} if x else self.x.tensors
        target, label, *tensors = moved(device, self.target, self.label, *own.values())
        there = x or Inputs(dict(zip(own, tensors, strict=True)))
        other = replace(self, x=there, target=target, label=label, streams=replace(self.streams, device=device))
        other.__dict__["targets"] = self.targets
        return other

    def take(self, rows: Sequence[int], index: Int[Tensor, " n"] | None = None) -> "Batch":
        """Some of the samples.

        Args:
            rows: their numbers.
            index: the same numbers as a tensor, where there is one on the device already.
        """
        if index is None:
            index = indices(rows, self.device)
        some = replace(
            self,
            x=self.x.take(index),
            target=self.target[index],
            label=self.label[index],
            streams=self.streams.take(rows),
            references=tuple(self.references[i] for i in rows) if self.references else (),
        )
        if "targets" in self.__dict__:
            some.__dict__["targets"] = tuple(self.targets[i] for i in rows)
        return some

    def with_inputs(self, x: Inputs) -> "Batch":
        """The same samples with other inputs (noise added, parts deleted)."""
        other = replace(self, x=x, altered=True)
        if "targets" in self.__dict__:
            other.__dict__["targets"] = self.targets
        return other


@dataclass(frozen=True)
class Attribution:
    """A map per sample, at the resolution its method has, and what it claims to be.

    A map is a density over sites (pixels, tokens): its sum over a region is that region's share.

    Args:
        values: one map per sample, `[b, h, w]` for pictures, `[b, t]` for texts.
        target: the class each map explains.
        method: the method's full name with its parameters.
        signed: whether negative values mean "speaks against the class".
        output: the scalar that was explained.
        explains: the number, made of the model's output, that takes the place of a class; empty for classes.
        interpolation: how a coarse map is carried to sites.
        status: `ok`, or why there is no map, per sample.
    """

    values: Float[Tensor, "b ..."]
    target: Int[Tensor, " b"] | None = None
    method: str = "given"
    signed: bool = True
    output: str = "logit"
    explains: str = ""
    interpolation: str = "bilinear"
    status: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.status:
            object.__setattr__(self, "status", (OK,) * len(self.values))

    def to(self, device: torch.device) -> "Attribution":
        """The same maps on a device; these themselves where they are there already."""
        if self.values.device == device:
            return self
        if self.target is None:
            return replace(self, values=self.values.to(device))
        values, target = moved(device, self.values, self.target)
        return replace(self, values=values, target=target)

    def take(self, rows: Sequence[int]) -> "Attribution":
        """The maps of some samples."""
        index = indices(rows, self.values.device)
        return replace(
            self,
            values=self.values[index],
            target=None if self.target is None else self.target[index],
            status=tuple(self.status[i] for i in rows),
        )


@dataclass(frozen=True)
class Scores:
    """A number per method and sample, always; where there is none, the reason.

    Args:
        value: the scores; NaN exactly where `status` is not `ok`.
        status: `ok`, or `undefined: …`, `failed: …`, `skipped: …`, per method and sample.
        curve: the curve behind each score, where there is one.
        share: the share of units removed at each point of the curves.
    """

    value: Float[Tensor, "m b"]
    status: tuple[tuple[str, ...], ...] = ()
    curve: Float[Tensor, "m b k"] | None = None
    share: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.status:
            status = tuple(
                tuple(OK if ok else "undefined: the score is not finite" for ok in row)
                for row in torch.isfinite(self.value).tolist()
            )
            object.__setattr__(self, "status", status)

    def to(self, device: torch.device) -> "Scores":
        """The same scores on a device; scores and curves are moved together."""
        if self.value.device == device:
            return self
        if self.curve is None:
            return replace(self, value=self.value.to(device))
        value, curve = moved(device, self.value, self.curve)
        return replace(self, value=value, curve=curve)


def finite_status(maps: Float[Tensor, "b ..."]) -> tuple[str, ...]:
    """Per map, `ok`, or which values it has that are no numbers.

    >>> finite_status(torch.tensor([[0.0, 1.0], [torch.nan, torch.inf], [0.0, torch.inf]]))
    ('ok', 'failed: the map has NaN values', 'failed: the map has infinite values')
    """
    rows = maps.flatten(1)
    problems = torch.stack([rows.isnan().any(1), rows.isinf().any(1)], 1).tolist()
    return tuple(
        "failed: the map has NaN values" if nan else "failed: the map has infinite values" if infinite else OK
        for nan, infinite in problems
    )


PathLike = str | Path
