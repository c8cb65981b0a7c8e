"""Questions of the form "what if this were deleted?": each is asked once, whichever method or metric asks it."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.identity import canonical
from heatcheck.core.types import Batch, Inputs
from heatcheck.domain.base import Units
from heatcheck.fills.base import Fill
from heatcheck.probe.answers import Answers
from heatcheck.probe.calls import Calls

BLOCK = 64
"""Masks that are made and looked up at a time."""


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

    def clean(self, batch: Batch) -> Answers:
        """Answers to the inputs as they are."""
        memo = {} if batch.altered else self.memo
        keys = [self._key(batch, row, b"", b"", whole=True) for row in range(len(batch))]
        new = [row for row, key in enumerate(keys) if key not in memo]
        if new:
            logits = self.logits(batch.x.take(torch.tensor(new)))
            rows = Answers.compress(logits, batch.target[new]).numpy()
            memo.update((keys[row], answer) for row, answer in zip(new, rows, strict=True))
        self.spent.asked += len(batch)
        found = torch.from_numpy(np.stack([memo[key] for key in keys]))
        return Answers(found, batch.target, batch.label)

    def deleted(self, batch: Batch, fill: str) -> Answers:
        """Answers to the inputs with everything deleted."""
        sites = self.domain.deletable(batch.x).shape[1]
        nothing = Masks(torch.arange(len(batch)), lambda i: torch.zeros(len(i), sites, dtype=torch.bool))
        return self.deletions(batch, fill, nothing)

    def singles(self, batch: Batch, fill: str, units: Units) -> Answers:
        """Answers to the inputs without one unit each: `[b * u]`; empty places hold the clean answer."""
        width = units.width
        rows = torch.arange(len(batch)).repeat_interleave(width)

        def keep(i: Int[Tensor, " k"]) -> Bool[Tensor, "k s"]:
            return units.index[i // width] != (i % width)[:, None]

        return self.deletions(batch, fill, Masks(rows, keep))

    def deletions(self, batch: Batch, fill: str, masks: Masks) -> Answers:
        """Answer every question, asking the model only those that were never asked of these samples."""
        filler: Fill = catalogue.build("fill", fill)
        full = self.cached(f"full {filler.name}", batch, lambda: filler.full(self.domain, batch))
        fixed = self.domain.fixed(batch.x)
        how = canonical([filler.identity(), batch.streams.seed if filler.random else None]).encode()
        memo = {} if batch.altered else self.memo
        keys: list[bytes] = []
        waiting: dict[bytes, tuple[int, Tensor]] = {}
        n = len(masks.rows)
        for start in range(0, n, BLOCK):
            index = torch.arange(start, min(start + BLOCK, n))
            rows = masks.rows[index]
            keep = masks.keep(index) if fixed is None else masks.keep(index) | fixed[rows]
            everything = np.packbits(np.ones(keep.shape[1], dtype=bool)).tobytes()
            for row, mask, bits in zip(rows.tolist(), keep, np.packbits(keep.numpy(), axis=1), strict=True):
                packed = bits.tobytes()
                key = self._key(batch, row, how, packed, packed == everything)
                keys.append(key)
                if key not in memo and key not in waiting:
                    waiting[key] = (row, mask)
            while len(waiting) >= self.numerics.forward:
                self._ask_waiting(batch, filler, full, waiting, memo)
        while waiting:
            self._ask_waiting(batch, filler, full, waiting, memo)
        self.spent.asked += n
        found = np.stack([memo[k] for k in keys]) if keys else np.empty((0, 6))
        return Answers(torch.from_numpy(found), batch.target[masks.rows], batch.label[masks.rows])

    def _ask_waiting(
        self,
        batch: Batch,
        filler: Fill,
        full: Inputs,
        waiting: dict[bytes, tuple[int, Tensor]],
        memo: dict[bytes, Float[np.ndarray, "6"]],
    ) -> None:
        """Ask one micro-batch of the questions that wait."""
        keys = list(waiting)[: self.numerics.forward]
        rows = torch.tensor([waiting[k][0] for k in keys])
        keep = torch.stack([waiting[k][1] for k in keys])
        x = filler.erase(self.domain, batch.x.view_of(rows), keep, full.view_of(rows))
        logits = self.logits(x)
        for key, row in zip(keys, Answers.compress(logits, batch.target[rows]).numpy(), strict=True):
            memo[key] = row
            del waiting[key]

    @staticmethod
    def _key(batch: Batch, row: int, how: bytes, packed: bytes, whole: bool) -> bytes:
        h = hashlib.blake2b(digest_size=16)
        own = f"row {row}" if batch.altered else batch.streams.digests[row]
        h.update(f"{own}|{int(batch.target[row])}|".encode())
        h.update(b"clean" if whole else how + packed)
        return h.digest()

    def remember_clean(self, batch: Batch, logits: Float[Tensor, "b c"]) -> None:
        """File clean answers that were read from logits already known."""
        for row, answer in enumerate(Answers.compress(logits, batch.target).numpy()):
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
        memo = {} if batch.altered else self.memo
        keys = [
            self._key(batch, row, b"named|", name.encode(), whole=False)
            for row, name in zip(rows.tolist(), names, strict=True)
        ]
        first = {key: i for i, key in reversed(list(enumerate(keys)))}
        new = torch.tensor([i for key, i in first.items() if key not in memo], dtype=torch.long).sort().values
        for index, logits in self._calls(len(new), lambda i: make(new[i]), self._forward, "forward"):
            answers = Answers.compress(logits, batch.target[rows[new[index]]]).numpy()
            memo.update((keys[i], answer) for i, answer in zip(new[index].tolist(), answers, strict=True))
        self.spent.asked += len(keys)
        found = np.stack([memo[k] for k in keys]) if keys else np.empty((0, 6))
        return Answers(torch.from_numpy(found), batch.target[rows], batch.label[rows])
