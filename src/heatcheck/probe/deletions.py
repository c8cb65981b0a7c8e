"""Questions of the form "what if this were deleted?": each is asked once, whichever method or metric asks it."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.devices import CPU, indices
from heatcheck.core.identity import canonical
from heatcheck.core.types import Batch, Inputs
from heatcheck.domain.base import Units
from heatcheck.fills.base import Fill
from heatcheck.probe.answers import Answers, Known
from heatcheck.probe.calls import Calls

BLOCK = 64
"""Masks that are made and looked up at a time."""
COPIED = 1 << 26
"""Bytes of masks that are copied from the model's device at a time."""


@dataclass(frozen=True)
class Masks:
    """Questions of the form "what if this were deleted?", made when they are asked.

    Args:
        rows: the sample of the batch that each question is about.
        keep: masks over sites for the questions with the given numbers.
    """

    rows: Int[Tensor, " n"]
    keep: Callable[[Int[Tensor, " k"]], Bool[Tensor, "k s"]]


@dataclass
class Deletions(Calls):
    """Answers about deletions and other map-independent questions, kept by question.

    Args:
        memo: answers by question; what is in it is not asked again.
    """

    memo: dict[bytes, Float[np.ndarray, "6"]] = field(default_factory=dict)

    @cached_property
    def _known(self) -> Known:
        return Known(self.memo, self.device)

    def _known_about(self, batch: Batch) -> Known:
        """What is known about a batch; about altered inputs nothing is, and nothing is kept."""
        return Known({}, self.device) if batch.altered else self._known

    def answered(self) -> dict[bytes, Float[np.ndarray, "6"]]:
        """All answers by question, on the CPU."""
        return self._known.file()

    def clean(self, batch: Batch) -> Answers:
        """Answers to the inputs as they are."""
        known = self._known_about(batch)
        keys = [self._key(batch, row, b"", b"", whole=True) for row in range(len(batch))]
        new = [row for row, key in enumerate(keys) if key not in known]
        if new:
            some = batch if len(new) == len(batch) else batch.take(new)
            known.add([keys[row] for row in new], Answers.compress(self.logits(some.x), some.target))
        self.spent.asked += len(batch)
        return self._as_answers(known.read(keys), batch.target, batch.label)

    def deleted(self, batch: Batch, fill: str) -> Answers:
        """Answers to the inputs with everything deleted."""
        sites = self.domain.deletable(batch.x).shape[1]
        nothing = Masks(
            self.rows(len(batch)), lambda i: torch.zeros(len(i), sites, dtype=torch.bool, device=self.device)
        )
        return self.deletions(batch, fill, nothing)

    def singles(self, batch: Batch, fill: str, units: Units) -> Answers:
        """Answers to the inputs without one unit each: `[b * u]`; empty places hold the clean answer."""
        width = units.width
        rows = self.rows(len(batch)).repeat_interleave(width)

        def keep(i: Int[Tensor, " k"]) -> Bool[Tensor, "k s"]:
            return units.index[i // width] != (i % width)[:, None]

        return self.deletions(batch, fill, Masks(rows, keep))

    def deletions(self, batch: Batch, fill: str, masks: Masks) -> Answers:
        """Answer every question, asking the model only those that were never asked of these samples."""
        filler: Fill = catalogue.build("fill", fill)
        full = self.full(batch, filler)
        fixed = self.domain.fixed(batch.x)

        def keep(index: Int[Tensor, " k"]) -> Bool[Tensor, "k s"]:
            return masks.keep(index) if fixed is None else masks.keep(index) | fixed[masks.rows[index]]

        how = canonical([filler.identity(), batch.streams.seed if filler.random else None]).encode()
        known = self._known_about(batch)
        samples: list[int] = masks.rows.tolist()
        everything = np.packbits(np.ones(self.domain.deletable(batch.x).shape[1], dtype=bool)).tobytes()
        keys = [
            self._key(batch, row, how, packed, packed == everything)
            for row, packed in zip(samples, packed_masks(keep, len(samples), self.device), strict=True)
        ]
        first = {key: i for i, key in reversed(list(enumerate(keys))) if key not in known}
        new = sorted(first.values())
        numbers = indices(new, self.device)
        at = 0
        while at < len(new):
            some = new[at : at + self.numerics.forward]
            index = numbers[at : at + len(some)]
            rows, one = masks.rows[index], len({samples[i] for i in some}) == 1
            x = filler.erase(self.domain, batch.x.view_of(rows, one=one), keep(index), full.view_of(rows, one=one))
            known.add([keys[i] for i in some], Answers.compress(self.logits(x), batch.target[rows]))
            at += len(some)
        self.spent.asked += len(keys)
        return self._as_answers(known.read(keys), batch.target[masks.rows], batch.label[masks.rows])

    def full(self, batch: Batch, filler: Fill) -> Inputs:
        """The inputs with everything deleted, made once."""
        found: Inputs = self.cached(f"full {filler.name}", batch, lambda: filler.full(self.domain, batch))
        return found

    @staticmethod
    def _key(batch: Batch, row: int, how: bytes, packed: bytes, whole: bool) -> bytes:
        h = hashlib.blake2b(digest_size=16)
        own = f"row {row}" if batch.altered else batch.streams.digests[row]
        h.update(f"{own}|{batch.targets[row]}|".encode())
        h.update(b"clean" if whole else how + packed)
        return h.digest()

    def remember_clean(self, batch: Batch, logits: Float[Tensor, "b c"]) -> None:
        """File clean answers that were read from logits already known."""
        rows = Answers.compress(logits, batch.target.to(logits.device)).cpu().numpy()
        for row, answer in enumerate(rows):
            self.memo[self._key(batch, row, b"", b"", whole=True)] = answer

    def named_answers(
        self, batch: Batch, rows: Int[Tensor, " n"], names: Sequence[str], make: Callable[[Tensor], Inputs]
    ) -> Answers:
        """Answers to inputs made on the fly that do not depend on any map, stored and asked once like deletions.

        Args:
            batch: the samples that the questions are about.
            rows: the sample of each question.
            names: what each question is, in full: "noise 0.2, draw 3, seed 0".
            make: inputs for the questions with the given numbers.
        """
        known = self._known_about(batch)
        keys = [
            self._key(batch, row, b"named|", name.encode(), whole=False)
            for row, name in zip(rows.tolist(), names, strict=True)
        ]
        first = {key: i for i, key in reversed(list(enumerate(keys))) if key not in known}
        waiting = sorted(first.values())
        new = indices(waiting, self.device)
        at = 0
        for index, logits in self._calls(len(new), lambda i: make(new[i]), self._answer, "forward"):
            some = waiting[at : at + len(index)]
            known.add([keys[i] for i in some], Answers.compress(logits, batch.target[rows[new[index]]]))
            at += len(some)
        self.spent.asked += len(keys)
        return self._as_answers(known.read(keys), batch.target[rows], batch.label[rows])


def packed_masks(
    keep: Callable[[Int[Tensor, " k"]], Bool[Tensor, "k s"]], n: int, device: torch.device
) -> Iterator[bytes]:
    """`n` masks as bytes of eight sites each; from another device than the CPU they come many at a time."""
    held: list[Tensor] = []
    for start in range(0, n, BLOCK):
        masks = keep(torch.arange(start, min(start + BLOCK, n), device=device))
        if device == CPU:
            yield from (bits.tobytes() for bits in np.packbits(masks.numpy(), axis=1))
            continue
        held.append(packed_there(masks))
        if start + BLOCK >= n or sum(block.numel() for block in held) >= COPIED:
            yield from (bits.tobytes() for bits in torch.cat(held).cpu().numpy())
            held = []


def packed_there(masks: Bool[Tensor, "k s"]) -> UInt8[Tensor, "k p"]:
    """What `numpy.packbits` gives, computed where the masks are.

    >>> packed_there(torch.tensor([[True, False, False, True, False, False, False, False, True]])).tolist()
    [[144, 128]]
    """
    places = 2 ** torch.arange(7, -1, -1, device=masks.device)
    bits = F.pad(masks, (0, -masks.shape[1] % 8))
    return (bits.reshape(len(masks), -1, 8) * places).sum(-1).to(torch.uint8)
