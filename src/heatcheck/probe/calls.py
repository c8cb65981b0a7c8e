"""Calls of a model: batches of one exact shape, timed, counted, and halved when memory runs out."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.devices import home
from heatcheck.core.types import Batch, HeatcheckError, Inputs, NotApplicable
from heatcheck.domain.base import KEEP, Domain, Units
from heatcheck.models.base import Model
from heatcheck.probe.answers import Answers, scalar
from heatcheck.probe.asks import Shape
from heatcheck.probe.numerics import Numerics, is_out_of_memory

T = TypeVar("T")
UserFunction = Callable[[Callable[[Tensor], Tensor], Tensor, Tensor, slice], Tensor]
"""A user's method or metric: gets the model as a function of leaf tensors, the leaf, the targets and the rows of the
batch that these are."""
BLOCK = 8
"""Rows that matrix products take at a time."""


@dataclass
class Spent:
    """Passes and time. `asked` and `slopes` are the forwards and backwards without sharing: what a component would cost alone.

    `seconds` and `slope_seconds` are those with a pass in flight, `elapsed` all that works took, `loading` those of them in
    which the first pass of a work waited for its samples.
    """

    forwards: int = 0
    backwards: int = 0
    asked: int = 0
    slopes: int = 0
    seconds: float = 0.0
    slope_seconds: float = 0.0
    padding: int = 0
    graphs: int = 0
    elapsed: float = 0.0
    loading: float = 0.0

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
        """What the shared answers would have taken, at the mean time of a pass in `overall`."""
        forward = overall.seconds / max(1, overall.forwards - overall.backwards)
        backward = overall.slope_seconds / max(1, overall.backwards)
        slopes = self.slopes - self.backwards
        return slopes * backward + (self.asked - self.forwards - slopes) * forward


@dataclass
class Calls:
    """Everything that is asked of a model, in calls of one exact shape.

    Args:
        model: who is asked.
        numerics: the shape of every call.
        tick: called with the number of passes, forward and backward, after each call, for progress bars.
        blind: whether the model is asked behind a blindfold, which all inputs then carry.
    """

    model: Model
    numerics: Numerics = field(default_factory=Numerics)
    tick: Callable[[int], None] = lambda n: None
    spent: Spent = field(default_factory=Spent)
    halved: bool = False
    blind: bool = False
    _cache: dict[tuple[str, int], tuple[Any, Any]] = field(default_factory=dict, repr=False)
    _gives_number: bool | None = None
    """Whether its answers are one number each; None before the first."""
    _placed: dict[int, tuple[Batch, Batch]] = field(default_factory=dict, repr=False)

    @property
    def domain(self) -> Domain:
        """Pictures or texts, as the model takes them."""
        return self.model.domain

    @property
    def device(self) -> torch.device:
        """Where inputs, masks, orders and maps live: with the model, wherever its device has double precision."""
        return home(self.model.device)

    def placed(self, batch: Batch) -> Batch:
        """The batch where the model lives; moved once, however many components ask about it."""
        if batch.device == self.device:
            return batch
        if id(batch) not in self._placed:
            shared = [there.x for here, there in self._placed.values() if here.x is batch.x]
            self._placed[id(batch)] = (batch, batch.to(self.device, shared[0] if shared else None))
        return self._placed[id(batch)][1]

    def rows(self, n: int, first: int = 0) -> Int[Tensor, " n"]:
        """The numbers `first`, `first` + 1 … of `n` rows, where the model lives."""
        return torch.arange(first, first + n, device=self.device)

    def _there(self, t: Tensor) -> Tensor:
        """A tensor on the model's own device, which is another one where that has no double precision."""
        return t.to(self.model.device)

    def logits(self, x: Inputs) -> Float[Tensor, "n c"]:
        """Class scores of any number of inputs, without a graph, in calls of the exact shape."""
        x = x.to(self.device)

        def rows(index: Tensor) -> Inputs:
            return x if len(index) == len(x) else x.take(index)  # a call that fits needs no copy

        return torch.cat([out for _, out in self._calls(len(x), rows, self._answer, "forward")])

    def answers(
        self, batch: Batch, rows: Int[Tensor, " n"], make: Callable[[Tensor], Inputs]
    ) -> Iterator[tuple[Tensor, Answers]]:
        """Stream answers to inputs made on the fly: question `i` is about sample `rows[i]`."""
        self.spent.asked += len(rows)
        for index, logits in self._calls(len(rows), make, self._answer, "forward"):
            target = batch.target[rows[index]]
            yield index, self._as_answers(Answers.compress(logits, target), target, batch.label[rows[index]])

    def _as_answers(self, rows: Float[Tensor, "n 6"], target: Int[Tensor, " n"], label: Int[Tensor, " n"]) -> Answers:
        """What was kept of some answers, to be read as this model's are."""
        return Answers(rows, target, label, self._gives_number, self.model.multi_label)

    def scalar(self, logits: Float[Tensor, "n c"], target: Int[Tensor, " n"], output: str) -> Float[Tensor, " n"]:
        """The differentiable scalar that a method explains, of this model's class scores."""
        return scalar(logits, target, output, multi_label=self.model.multi_label)

    def gradients(
        self, batch: Batch, rows: Int[Tensor, " n"], make: Callable[[Tensor], Inputs], output: str
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Stream leaf gradients of the target's scalar at inputs made on the fly."""
        self.spent.asked += len(rows)
        self.spent.slopes += len(rows)
        yield from self._slopes(batch, rows, make, output)

    def values_and_gradients(
        self, batch: Batch, rows: Int[Tensor, " n"], make: Callable[[Tensor], Inputs], output: str
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Stream the target's scalar and its leaf gradient, both of one pass, at inputs made on the fly."""
        self.spent.asked += len(rows)
        self.spent.slopes += len(rows)
        height: dict[str, Tensor] = {}
        for index, slope in self._slopes(batch, rows, make, output, lambda value: height.update(now=value)):
            yield index, height["now"][: len(index)].double(), slope

    def _slopes(
        self,
        batch: Batch,
        rows: Int[Tensor, " n"],
        make: Callable[[Tensor], Inputs],
        output: str,
        note: Callable[[Tensor], None] = lambda value: None,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        self._needs_gradients()

        def slope(x: Inputs, index: Tensor) -> Tensor:
            leaf = self.domain.leaf(x).detach().requires_grad_()
            with torch.enable_grad():
                scores = self._scores(self.domain.with_leaf(x, leaf), len(index))
                out = self.scalar(scores, self._there(batch.target[rows[index]]), output)
                (grad,) = torch.autograd.grad(out.sum(), leaf)
            note(out.detach().to(self.device))
            return grad.detach()

        yield from self._calls(len(rows), make, slope, "backward")

    def gradient(self, batch: Batch, output: str) -> Float[Tensor, "b ..."]:
        """Leaf gradients at the batch itself; asked once however many methods want them."""
        rows = self.rows(len(batch))

        def run() -> Tensor:
            return torch.cat([g for _, g in self._slopes(batch, rows, batch.x.take, output)])

        self.spent.asked += len(batch)
        self.spent.slopes += len(batch)
        found: Tensor = self.cached(f"gradient {output} {list(batch.targets)}", batch, run)
        return found

    def units(self, name: str, batch: Batch) -> Units:
        """The batch's partition called `name`, computed once."""
        found: Units = self.cached(f"units {name}", batch, lambda: self.domain.units(name, batch.x))
        return found

    # -- users' functions ----------------------------------------------------------------------------------

    def call_function(self, function: UserFunction, batch: Batch, dim: int = 0) -> Float[Tensor, "..."]:
        """What a user's function makes of a batch, given to it in parts of at most one backward call.

        The function gets the model as a differentiable function of the leaf; its passes have the same exact shape, are
        counted and timed as all others, and where memory runs out the part is halved and tried again.

        Args:
            function: the user's function.
            batch: the samples.
            dim: the axis of the function's results that counts samples.
        """
        leaf = self.domain.leaf(batch.x).detach()
        parts: list[Tensor] = []
        at = 0
        while at < len(batch):
            size = self.numerics.backward
            rows = slice(at, min(at + size, len(batch)))
            part = batch.take(range(rows.start, rows.stop))
            start, before = time.perf_counter(), self.spent.copy()
            try:
                with threads(self.numerics.threads):
                    found = function(self._as_function(part), leaf[rows], part.target, rows)
            except (RuntimeError, MemoryError) as problem:
                self._halve("backward", size, problem)
                self.spent.add(before.since(self.spent).__dict__)  # the attempt does not count
                continue
            used = self.spent.since(before)
            if used.backwards:  # their backward passes are taken by the function itself
                self.spent.slope_seconds += time.perf_counter() - start - used.seconds
            parts.append(found.detach())
            at = rows.stop
        return torch.cat(parts, dim)

    def _as_function(self, batch: Batch) -> Callable[[Tensor], Tensor]:
        """The model as a function of leaf tensors: of the batch's own rows, or of several copies of them in a row."""

        def call(leaf: Tensor) -> Tensor:
            if not len(leaf) or len(leaf) % len(batch):
                raise HeatcheckError(
                    f"the model was called with {len(leaf)} inputs in a part of {len(batch)} samples; call it with all of "
                    "them, or with whole copies of all of them (x.repeat(k, …))"
                )
            rows = self.rows(len(batch)).repeat(len(leaf) // len(batch))
            graph = torch.is_grad_enabled() and leaf.requires_grad
            if graph:
                self._needs_gradients()

            def make(index: Tensor) -> Inputs:
                return self.domain.with_leaf(batch.x.take(rows[index]), leaf[index])

            self.spent.asked += len(leaf)
            self.spent.slopes += len(leaf) if graph else 0
            run, direction = (self._with_graph, "backward") if graph else (self._answer, "forward")
            return torch.cat([out for _, out in self._calls(len(leaf), make, run, direction, timed=not graph)])

        return call

    def _with_graph(self, x: Inputs, index: Tensor) -> Float[Tensor, "n c"]:
        with torch.enable_grad():
            return self._scores(x, len(index))

    # -- calls of one exact shape --------------------------------------------------------------------------

    def _calls(
        self,
        n: int,
        make: Callable[[Tensor], Inputs],
        run: Callable[[Inputs, Tensor], Tensor],
        direction: str,
        *,
        timed: bool = True,
        share: int = 1,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Split `n` questions into calls; the last one is padded with its first row, and what that gives dropped.

        Where a question needs as much memory as several inputs, a call has that `share` of the usual rows, in whole blocks,
        or one: matrix products treat the rows behind the last block otherwise, and a row's last bits would depend on its place.
        """
        at = 0
        while at < n:
            usual = getattr(self.numerics, direction)
            size = usual if share == 1 else (usual // share) // BLOCK * BLOCK or 1
            index = self.rows(min(size, n - at), at)
            short = size - len(index)
            padded = torch.cat([index, index[:1].expand(short)]) if short else index
            try:
                out = self._timed(run, make(padded), padded, direction if timed else "")
            except (RuntimeError, MemoryError) as problem:
                self._halve(direction, usual, problem)
                continue
            self.spent.padding += short
            self.spent.forwards += len(index)
            self.spent.backwards += len(index) if direction == "backward" else 0
            self.tick(len(index) * (2 if direction == "backward" else 1))
            yield index, out[: len(index)]
            at += len(index)

    def _timed(self, run: Callable[[Inputs, Tensor], Tensor], x: Inputs, index: Tensor, direction: str) -> Tensor:
        start = time.perf_counter()
        with threads(self.numerics.threads):
            out = run(x.to(self.model.device), index).to(self.device)
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)  # calls return before they are done, and time is booked by call
        if direction == "backward":
            self.spent.slope_seconds += time.perf_counter() - start
        elif direction == "forward":
            self.spent.seconds += time.perf_counter() - start
        return out

    def _halve(self, direction: str, size: int, problem: Exception) -> None:
        """Go on with smaller calls where memory ran out; anything else, or a single input too large, is raised."""
        if not is_out_of_memory(problem) or size == 1:
            raise problem
        smaller: dict[str, Any] = {direction: size // 2}
        self.numerics = replace(self.numerics, **smaller)
        self.halved = True

    @contextmanager
    def undone_on_failure(self) -> Iterator[None]:
        """Where an attempt fails, calls have their shape of before again: its neighbours must not be asked otherwise."""
        before = self.numerics, self.halved
        try:
            yield
        except Exception:
            self.numerics, self.halved = before
            raise

    def _answer(self, x: Inputs, index: Tensor) -> Float[Tensor, "n c"]:
        """A forward pass that nothing looks into, compiled if the numerics say so."""
        return self._forward(x, index, self.model.answer if self.numerics.compiled else None)

    def _forward(self, x: Inputs, index: Tensor, ask: Callable[[Inputs], Tensor] | None = None) -> Float[Tensor, "n c"]:
        with torch.inference_mode():
            out = self._scores(x, len(index), ask)
        self.spent.graphs += int(out.requires_grad)
        return out.clone()

    def _scores(self, x: Inputs, rows: int, ask: Callable[[Inputs], Tensor] | None = None) -> Float[Tensor, "n c"]:
        out = (ask or self.model.logits)(self.visible(x))
        self._gives_number = out.ndim == 2 and out.shape[1] == 1 and not self.model.multi_label
        if len(out) != rows:
            raise HeatcheckError(
                f"{self.model.name} returned {tuple(out.shape)} for {rows} inputs; return one row of class scores per "
                "input, [n, classes]"
            )
        return out

    def visible(self, x: Inputs) -> Inputs:
        """What the network gets of inputs: themselves, or what their blindfold leaves of them.

        Raises:
            HeatcheckError: a blindfold is missing where the model is asked behind one, or is there where it is not.
        """
        if (KEEP in x) != self.blind:
            how, what = ("behind a blindfold", "without one") if self.blind else ("as it is", "with a blindfold")
            raise HeatcheckError(
                f"{self.model.name} is asked {how}, but about inputs {what}; make them from the inputs of the batch that "
                "belongs to the probe (take, replace, domain.with_leaf, domain.delete)"
            )
        return self.domain.visible(x)

    def _needs_gradients(self) -> None:
        if not self.model.differentiable:
            raise NotApplicable(f"needs gradients, but {self.model.name} is a black box that gives outputs only")

    # -- what is computed once ------------------------------------------------------------------------------

    def shared(self, what: str, batch: Batch, make: Callable[[], T]) -> T:
        """A value that several methods are made of; each is charged what it cost, whoever made it."""
        before = self.spent.copy()
        fresh = False

        def run() -> tuple[T, Spent]:
            nonlocal fresh
            fresh = True
            return make(), self.spent.since(before)

        value, cost = self.cached(what, batch, run)
        if not fresh:
            self.spent.asked += cost.asked
            self.spent.slopes += cost.slopes
        return value  # type: ignore[no-any-return]

    def cached(self, what: str, batch: Batch, make: Callable[[], Any]) -> Any:
        """A value that belongs to exactly these inputs; holding them keeps their identity from being reused."""
        if batch.altered:
            return make()
        key = (f"{what} {batch.streams.seed}", id(batch.x))
        if key not in self._cache:
            self._cache[key] = (batch.x, make())
        return self._cache[key][1]

    def cached_for_model(self, what: str, make: Callable[[], Any]) -> Any:
        """A value that belongs to the model alone, whatever is asked about."""
        key = (what, 0)
        if key not in self._cache:
            self._cache[key] = (None, make())
        return self._cache[key][1]


def count_passes(function: UserFunction, shape: Shape) -> tuple[int, int]:
    """Forward and backward passes that a user's function makes for one sample, counted with a stand-in for the model.

    A function whose passes depend on what the model answers may need others; one that fails on the stand-in is taken for
    a single gradient.
    """
    classes = shape.model.class_count(shape.x) if shape.model else 2
    return count_on(function, shape.domain.leaf(shape.x).detach(), classes) or (1, 1)


def count_on(function: UserFunction, leaf: Float[Tensor, "1 ..."], classes: int = 2) -> tuple[int, int] | None:
    """The passes of a function on one leaf, with a linear stand-in for the model that costs nothing; None if it fails."""
    forwards = backwards = 0

    def stand_in(leaf: Tensor) -> Tensor:
        nonlocal forwards, backwards
        forwards += len(leaf)
        backwards += len(leaf) if torch.is_grad_enabled() and leaf.requires_grad else 0
        return leaf.flatten(1).mean(1, keepdim=True) * torch.linspace(
            1, 2, classes, dtype=leaf.dtype, device=leaf.device
        )

    try:
        function(stand_in, leaf, torch.zeros(1, dtype=torch.long, device=leaf.device), slice(0, 1))
    except Exception:
        return None
    return forwards, backwards


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
