"""The only road to a model: batches questions, asks none twice, counts what it spends."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck import catalogue
from heatcheck.domain.base import Domain, Units
from heatcheck.engine.answers import Answers, scalar
from heatcheck.engine.identity import canonical
from heatcheck.engine.numerics import Numerics, is_out_of_memory
from heatcheck.fills.base import Fill
from heatcheck.models.base import Explained, Layer, captured
from heatcheck.types import Batch, HeatcheckError, Inputs, NotApplicable

BLOCK = 64
"""Masks that are made and looked up at a time."""


@dataclass
class Spent:
    """Passes and time. `asked` and `slopes` are the forwards and backwards without sharing: a unit's price alone."""

    forwards: int = 0
    backwards: int = 0
    asked: int = 0
    slopes: int = 0
    seconds: float = 0.0
    slope_seconds: float = 0.0
    padding: int = 0
    graphs: int = 0

    def copy(self) -> "Spent":
        """The state now."""
        return replace(self)

    def since(self, before: "Spent") -> "Spent":
        """What was spent since an earlier state."""
        return Spent(*(getattr(self, f) - getattr(before, f) for f in self.__dataclass_fields__))

    def add(self, more: Mapping[str, float | int]) -> None:
        """Add what was spent elsewhere."""
        for name, value in more.items():
            setattr(self, name, getattr(self, name) + value)

    def shared_seconds(self, overall: "Spent") -> float:
        """What the shared answers in this account would have taken, at the mean price of passes in `overall`."""
        forward = overall.seconds / max(1, overall.forwards - overall.backwards)
        backward = overall.slope_seconds / max(1, overall.backwards)
        slopes = self.slopes - self.backwards
        return slopes * backward + (self.asked - self.forwards - slopes) * forward


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
class Probe:
    """A model that can only be asked in batches of one exact shape.

    Args:
        model: who is asked.
        numerics: the shape of every call.
        memo: answers by question; what is in it is not asked again.
        tick: called with the number of passes after each call, for progress bars.
    """

    model: Explained
    numerics: Numerics = field(default_factory=Numerics)
    memo: dict[bytes, Float[np.ndarray, "6"]] = field(default_factory=dict)
    tick: Callable[[int], None] = lambda n: None
    spent: Spent = field(default_factory=Spent)
    halved: bool = False
    _held: dict[tuple[str, int], tuple[Any, Any]] = field(default_factory=dict, repr=False)

    @property
    def domain(self) -> Domain:
        """Pictures or texts, as the model takes them."""
        return self.model.domain

    # -- questions about deletions, memoised ---------------------------------------------------------------

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
        full = self._once(f"full {filler.name}", batch, lambda: filler.full(self.domain, batch))
        fixed = ~self.domain.deletable(batch.x)
        how = canonical([filler.identity(), batch.streams.seed if filler.random else None]).encode()
        memo = {} if batch.altered else self.memo
        keys: list[bytes] = []
        waiting: dict[bytes, tuple[int, Tensor]] = {}
        n = len(masks.rows)
        for start in range(0, n, BLOCK):
            index = torch.arange(start, min(start + BLOCK, n))
            rows = masks.rows[index]
            keep = masks.keep(index) | fixed[rows]
            for row, mask, packed in zip(rows.tolist(), keep, np.packbits(keep.numpy(), axis=1), strict=True):
                key = self._key(batch, row, how, packed.tobytes(), bool(mask.all()))
                keys.append(key)
                if key not in memo and key not in waiting:
                    waiting[key] = (row, mask)
            while len(waiting) >= self.numerics.forward:
                self._settle(batch, filler, full, waiting, memo)
        while waiting:
            self._settle(batch, filler, full, waiting, memo)
        self.spent.asked += n
        found = np.stack([memo[k] for k in keys]) if keys else np.empty((0, 6))
        return Answers(torch.from_numpy(found), batch.target[masks.rows], batch.label[masks.rows])

    def _settle(
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
        x = filler.erase(self.domain, batch.x.take(rows), keep, full.take(rows))
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

    # -- any other question --------------------------------------------------------------------------------

    def logits(self, x: Inputs) -> Float[Tensor, "n c"]:
        """Class scores of any number of inputs, without a graph, in calls of the exact shape."""

        def rows(index: Tensor) -> Inputs:
            return x if len(index) == len(x) else x.take(index)  # a call that fits needs no copy

        return torch.cat([out for _, out in self._calls(len(x), rows, self._forward, "forward")])

    def answers(
        self, batch: Batch, rows: Int[Tensor, " n"], make: Callable[[Tensor], Inputs]
    ) -> Iterator[tuple[Tensor, Answers]]:
        """Stream answers to inputs made on the fly: question `i` is about sample `rows[i]`."""
        self.spent.asked += len(rows)
        for index, logits in self._calls(len(rows), make, self._forward, "forward"):
            own = rows[index]
            yield (
                index,
                Answers(Answers.compress(logits, batch.target[own]), batch.target[own], batch.label[own]),
            )

    def gradients(
        self, batch: Batch, rows: Int[Tensor, " n"], make: Callable[[Tensor], Inputs], output: str
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Stream leaf gradients of the target's scalar at inputs made on the fly."""
        self.spent.asked += len(rows)
        self.spent.slopes += len(rows)
        yield from self._slopes(batch, rows, make, output)

    def _slopes(
        self, batch: Batch, rows: Int[Tensor, " n"], make: Callable[[Tensor], Inputs], output: str
    ) -> Iterator[tuple[Tensor, Tensor]]:
        self._needs_gradients()

        def slope(x: Inputs, index: Tensor) -> Tensor:
            leaf = self.domain.leaf(x).detach().requires_grad_()
            with torch.enable_grad():
                out = scalar(self.model.logits(self.domain.with_leaf(x, leaf)), batch.target[rows[index]], output)
                (grad,) = torch.autograd.grad(out.sum(), leaf)
            return grad.detach()

        yield from self._calls(len(rows), make, slope, "backward")

    def gradient(self, batch: Batch, output: str) -> Float[Tensor, "b ..."]:
        """Leaf gradients at the batch itself; asked once however many methods want them."""
        rows = torch.arange(len(batch))

        def run() -> Tensor:
            return torch.cat([g for _, g in self._slopes(batch, rows, batch.x.take, output)])

        self.spent.asked += len(batch)
        self.spent.slopes += len(batch)
        found: Tensor = self._once(f"gradient {output} {batch.target.tolist()}", batch, run)
        return found

    def activations(
        self, batch: Batch, layer: str, output: str
    ) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b c h w"]]:
        """A layer's output and the scalar's gradient there. Only the head behind the layer is differentiated."""
        self._needs_gradients()
        module = self.model.module().get_submodule(layer)

        def look(x: Inputs, index: Tensor) -> Tensor:
            seen: list[Tensor] = []

            def cut(out: Tensor) -> Tensor:
                seen.append(out.detach().requires_grad_())
                return seen[-1].clone()  # what comes next may work in place

            with torch.enable_grad(), captured(module, cut):
                out = scalar(self.model.logits(x), batch.target[index], output)
                (grad,) = torch.autograd.grad(out.sum(), seen[-1])
            return torch.stack([seen[-1].detach(), grad], 1)

        self.spent.asked += len(batch)
        self.spent.slopes += len(batch)
        pairs = torch.cat([out for _, out in self._calls(len(batch), batch.x.take, look, "backward")])
        return pairs[:, 0], pairs[:, 1]

    def randomised(self, layer: str, seed: int) -> "Probe":
        """A probe on a copy of the model whose layer has random weights; spends on this probe's account."""
        return Probe(self.model.randomised(layer, seed), self.numerics, tick=self.tick, spent=self.spent)

    def units(self, name: str, batch: Batch) -> Units:
        """The batch's partition called `name`, computed once."""
        found: Units = self._once(f"units {name}", batch, lambda: self.domain.units(name, batch.x))
        return found

    def layers(self, x: Inputs) -> list[Layer]:
        """The layers of the model whose output is a feature map, looked for once per input shape."""
        key = (f"layers {x.shape_key()}", 0)
        if key not in self._held:
            self._held[key] = (None, self.model.layers(x))
        found: list[Layer] = self._held[key][1]
        return found

    # -- calls of one exact shape --------------------------------------------------------------------------

    def _calls(
        self,
        n: int,
        make: Callable[[Tensor], Inputs],
        run: Callable[[Inputs, Tensor], Tensor],
        direction: str,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Split `n` questions into calls; the last one is padded with its first row, and what that gives dropped."""
        at = 0
        while at < n:
            size = getattr(self.numerics, direction)
            index = torch.arange(at, min(at + size, n))
            short = size - len(index)
            padded = torch.cat([index, index[:1].expand(short)]) if short else index
            try:
                out = self._timed(run, make(padded), padded, direction)
            except (RuntimeError, MemoryError) as problem:
                if not is_out_of_memory(problem) or size == 1:
                    raise
                self.numerics = replace(self.numerics, **{direction: size // 2})
                self.halved = True
                continue
            self.spent.padding += short
            self.spent.forwards += len(index)
            self.spent.backwards += len(index) if direction == "backward" else 0
            self.tick(len(index))
            yield index, out[: len(index)]
            at += len(index)

    def _timed(self, run: Callable[[Inputs, Tensor], Tensor], x: Inputs, index: Tensor, direction: str) -> Tensor:
        start = time.perf_counter()
        with threads(self.numerics.threads):
            out = run(x, index)
        if direction == "backward":
            self.spent.slope_seconds += time.perf_counter() - start
        else:
            self.spent.seconds += time.perf_counter() - start
        return out

    def _forward(self, x: Inputs, _index: Tensor) -> Float[Tensor, "n c"]:
        with torch.inference_mode():
            out = self.model.logits(x)
        self.spent.graphs += int(out.requires_grad)
        return out.clone()

    def _needs_gradients(self) -> None:
        if not self.model.differentiable:
            raise NotApplicable(f"needs gradients, but {self.model.name} is a black box that gives outputs only")

    def _once(self, what: str, batch: Batch, make: Callable[[], Any]) -> Any:
        """A value that belongs to exactly these inputs; holding them keeps their identity from being reused."""
        if batch.altered:
            return make()
        key = (f"{what} {batch.streams.seed}", id(batch.x))
        if key not in self._held:
            self._held[key] = (batch.x, make())
        return self._held[key][1]


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Run with `n` intra-op threads. All other arithmetic runs on one, so that its bits do not depend on shapes."""
    before = torch.get_num_threads()
    if before == n:
        yield
        return
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def require_finite(values: Tensor, what: str) -> None:
    """Refuse NaN and infinity with a message that says where they came from."""
    if not torch.isfinite(values).all():
        raise HeatcheckError(f"{what} is not finite")
