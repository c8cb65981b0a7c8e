"""The only road to a model: batches questions, asks none twice, counts what it spends."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

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
from heatcheck.models.base import Explained
from heatcheck.models.layers import Layer
from heatcheck.models.rules import Rules
from heatcheck.spec import suggest
from heatcheck.types import Batch, HeatcheckError, Inputs, NotApplicable

BLOCK = 64
"""Masks that are made and looked up at a time."""
BACKGROUND = 100
"""Samples of a data set that serve as background."""


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


R = TypeVar("R", bound=Rules)


@dataclass(frozen=True)
class Seen(Generic[R]):
    """One call of the network under rules, its graph still alive.

    Args:
        rules: the rules, with what they noted.
        leaf: pixels or embeddings; differentiate with respect to it.
        logits: class scores.
        target: the class of each question.
        value: the scalar explained, one per question.
    """

    rules: R
    leaf: Tensor
    logits: Float[Tensor, "m c"]
    target: Int[Tensor, " n"]
    value: Float[Tensor, " n"]

    def gradients(self, of: Sequence[Tensor], keep: bool = False) -> tuple[Tensor, ...]:
        """Derivatives of the value, as the rules pass them back; `keep` the graph if another is to be taken."""
        return torch.autograd.grad(self.value.sum(), list(of), retain_graph=keep)

    def slope(self) -> Float[Tensor, "m ..."]:
        """The derivative with respect to the leaf."""
        return self.gradients([self.leaf])[0]


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

    def named(
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

    def gradients(
        self, batch: Batch, rows: Int[Tensor, " n"], make: Callable[[Tensor], Inputs], output: str
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Stream leaf gradients of the target's scalar at inputs made on the fly."""
        self.spent.asked += len(rows)
        self.spent.slopes += len(rows)
        yield from self._slopes(batch, rows, make, output)

    def climbs(
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
                out = scalar(self.model.logits(self.domain.with_leaf(x, leaf)), batch.target[rows[index]], output)
                (grad,) = torch.autograd.grad(out.sum(), leaf)
            note(out.detach())
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
        """A layer's feature maps and the scalar's gradient there; asked once however many methods want them.

        Only the head behind the layer is differentiated. Prefix tokens take part in it and are left out of the maps.
        """
        self._needs_gradients()
        place = self.layer(layer, batch.x)

        def look(x: Inputs, index: Tensor) -> Tensor:
            seen: list[Tensor] = []

            def cut(out: Tensor) -> Tensor:
                seen.append(out.detach().requires_grad_())
                return seen[-1].clone()  # what comes next may work in place

            with torch.enable_grad(), place.changed(self.model.module(), cut):
                out = scalar(self.model.logits(x), batch.target[index], output)
                (grad,) = torch.autograd.grad(out.sum(), seen[-1])
            return torch.stack([place.maps(seen[-1].detach()), place.maps(grad)], 1).contiguous()

        def run() -> Tensor:
            return torch.cat([out for _, out in self._calls(len(batch), batch.x.take, look, "backward")])

        self.spent.asked += len(batch)
        self.spent.slopes += len(batch)
        pairs: Tensor = self._once(f"activations {place.name} {output} {batch.target.tolist()}", batch, run)
        return pairs[:, 0], pairs[:, 1]

    def feature_maps(self, batch: Batch, layer: str) -> Float[Tensor, "b c h w"]:
        """A layer's feature maps, without gradients; asked once however many methods want them."""
        place = self.layer(layer, batch.x)

        def look(x: Inputs, index: Tensor) -> Tensor:
            seen: list[Tensor] = []

            def note(out: Tensor) -> Tensor:
                seen.append(place.maps(out).clone(memory_format=torch.contiguous_format))
                return out

            with place.changed(self.model.module(), note):
                self._forward(x, index)
            return seen[-1]

        def run() -> Tensor:
            return torch.cat([out for _, out in self._calls(len(batch), batch.x.take, look, "forward")])

        self.spent.asked += len(batch)
        found: Tensor = self._once(f"maps {place.name}", batch, run)
        return found

    def edited(
        self, batch: Batch, layer: str, times: int, edit: Callable[[Float[Tensor, "m c h w"], Int[Tensor, " m"]], None]
    ) -> Iterator[tuple[int, Tensor, Answers]]:
        """Stream `times` answers about each sample, with a layer's feature maps edited in place on their way.

        `edit` gets the feature maps and the numbers of the questions they are for. What comes before the layer is run
        on one input per call, where the network bears that its rows are multiplied at the layer.
        """
        place = self.layer(layer, batch.x)
        narrow = self._multiplies_at(place, batch.x)
        self.spent.asked += times * len(batch)
        for row in range(len(batch)):

            def make(index: Tensor, row: int = row) -> Inputs:
                return batch.x.take(torch.full((1 if narrow else len(index),), row))

            for index, logits in self._calls(times, make, lambda x, i: self._edited(place, x, i, edit), "forward"):
                target, label = (t[row].expand(len(index)) for t in (batch.target, batch.label))
                yield row, index, Answers(Answers.compress(logits, target), target, label)

    def _edited(
        self, place: Layer, x: Inputs, index: Tensor, edit: Callable[[Tensor, Tensor], None]
    ) -> Float[Tensor, "m k"]:
        def change(out: Tensor) -> Tensor:
            wide = out.expand(len(index), *out.shape[1:]).clone()
            edit(place.maps(wide), index)
            return wide

        with place.changed(self.model.module(), change):
            return self._forward(x, index)

    def _multiplies_at(self, place: Layer, x: Inputs) -> bool:
        """Whether one input that becomes two at a layer gets the answers that two inputs get; tried once, not counted."""
        key = (f"multiplies at {place.name} {x.shape_key()}", 0)
        if key not in self._held:

            def hide(maps: Tensor, _index: Tensor) -> None:
                maps[1] = 0

            two = torch.zeros(2, dtype=torch.long)
            wide = self._edited(place, x.take(two), two, hide)
            try:
                narrow = self._edited(place, x.take(two[:1]), two, hide)
                same = torch.allclose(narrow, wide, rtol=1e-4, atol=1e-4 * float(wide.abs().max()))
            except (RuntimeError, ValueError, IndexError):
                same = False
            self._held[key] = (None, same)
        return bool(self._held[key][1])

    def look(
        self,
        batch: Batch,
        rows: Int[Tensor, " n"],
        make: Callable[[Tensor], Inputs],
        rules: Callable[[], R],
        read: Callable[["Seen[R]"], Tensor],
        output: str,
        *,
        forwards: int = 1,
        backwards: int = 1,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Run the network on inputs made on the fly while `rules` hold, and stream what `read` makes of it.

        Args:
            batch: the samples that the questions are about.
            rows: the sample of each question.
            make: inputs for the questions with the given numbers; `forwards` blocks of them, one after another.
            rules: makes the rules of one call.
            read: turns what was seen into a tensor with one row per question; it does the differentiating.
            output: the scalar explained.
            forwards: blocks of inputs that `make` gives: 2 where each input is run together with a baseline.
            backwards: gradients that `read` takes.
        """
        self._needs_gradients()
        self._same_under(rules, batch, forwards)

        def run(x: Inputs, index: Tensor) -> Tensor:
            leaf = self.domain.leaf(x).detach().requires_grad_()
            held = rules()
            with torch.enable_grad():
                with held:
                    logits = self.model.logits(self.domain.with_leaf(x, leaf))
                own = batch.target[rows[index]]
                return read(Seen(held, leaf, logits, own, scalar(logits[: len(own)], own, output))).detach()

        self.spent.asked += forwards * len(rows)
        self.spent.slopes += backwards * len(rows)
        for index, out in self._calls(len(rows), make, run, "backward"):
            self.spent.forwards += (forwards - 1) * len(index)
            self.spent.backwards += (backwards - 1) * len(index)
            yield index, out

    def _same_under(self, rules: Callable[[], R], batch: Batch, copies: int) -> None:
        """Refuse a network that answers otherwise while rules hold; tried once for a model, and not counted."""
        held = rules()
        key = f"{type(held).__qualname__} {batch.x.shape_key()}"
        if key in self.model.followed:
            return
        x = batch.x.take(torch.zeros(copies, dtype=torch.long))
        leaf = self.domain.leaf(x).detach().requires_grad_()
        with torch.enable_grad():
            plain = self.model.logits(self.domain.with_leaf(x, leaf)).detach()
            with held:
                ruled = self.model.logits(self.domain.with_leaf(x, leaf)).detach()
        tolerance = 1e-3 if plain.dtype == torch.float32 else 1e-8
        if not (ruled - plain).abs().max() <= tolerance * plain.abs().max().clamp_min(1e-3):
            raise NotApplicable(
                f"cannot follow what {self.model.name} computes (a result is written in place and not returned); "
                "try integrated_gradients or occlusion"
            )
        self.model.followed.add(key)

    def looks(
        self, rows: Int[Tensor, " n"], make: Callable[[Tensor], Inputs], read: Callable[[Inputs, Tensor], Tensor]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Stream what `read` sees in the network at inputs made on the fly; one forward pass each, without a graph."""

        def run(x: Inputs, index: Tensor) -> Tensor:
            with torch.inference_mode():
                out = read(x, index)
            return out.clone()

        self.spent.asked += len(rows)
        yield from self._calls(len(rows), make, run, "forward")

    def randomised(self, layer: str | Sequence[str], seed: int) -> "Probe":
        """A probe on a copy of the model with random weights in some layers; spends on this probe's account."""
        return Probe(self.model.randomised(layer, seed), self.numerics, tick=self.tick, spent=self.spent)

    def units(self, name: str, batch: Batch) -> Units:
        """The batch's partition called `name`, computed once."""
        found: Units = self._once(f"units {name}", batch, lambda: self.domain.units(name, batch.x))
        return found

    def background(self, data: str, x: Inputs) -> Inputs:
        """A hundred samples of a data set, or all if it has fewer, as the model reads them; encoded once.

        Args:
            data: the data set's spec, such as `images` or `folder:train`.
            x: inputs of the shape that is wanted.
        """
        key = (f"background {data}", 0)
        if key not in self._held:
            self._held[key] = (None, self._encoded(data))
        found: Inputs = self._held[key][1]
        if found.shape_key() != x.shape_key():
            raise NotApplicable(
                f"the pictures of {data!r} reach {self.model.name} as {dict(found.shape_key())}, "
                f"but those explained are {dict(x.shape_key())}; explain pictures, or tensors of that shape"
            )
        return found

    def _encoded(self, data: str) -> Inputs:
        from heatcheck.data.load import load_data

        if self.model.preprocessing is None:
            raise NotApplicable(
                f"needs other pictures to compare with, but the preprocessing of {self.model.name} is not known: "
                "pass preprocess=hc.Preprocess(mean=…, std=…)"
            )
        good = [sample for sample in load_data(data, samples=BACKGROUND) if sample.problem is None]
        if not good:
            raise NotApplicable(f"none of the samples of {data!r} can be read")
        return Inputs.cat([self.model.encode(sample) for sample in good])

    def layers(self, x: Inputs) -> list[Layer]:
        """The layers of the model whose output is a feature map, looked for once per input shape."""
        key = (f"layers {x.shape_key()}", 0)
        if key not in self._held:
            self._held[key] = (None, self.model.layers(x))
        found: list[Layer] = self._held[key][1]
        return found

    def layer(self, name: str, x: Inputs) -> Layer:
        """The layer of that name; what cannot be looked at is answered with what can. `auto` is the last one."""
        known = self.layers(x)
        if not known:
            raise NotApplicable(
                f"needs a layer whose output is a spatial feature map, and {self.model.name} has none; "
                "try integrated_gradients, occlusion or rise"
            )
        if name == "auto":
            return known[-1]
        found = {layer.name: layer for layer in known}
        if name not in found:
            raise HeatcheckError(
                f"{self.model.name} has no feature map that its output depends on at layer={name!r}"
                f"{suggest(name, list(found))}"
            )
        return found[name]

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

    def shared(self, what: str, batch: Batch, make: Callable[[], Tensor]) -> Tensor:
        """A value that several methods are made of; each is charged what it cost, whoever made it."""
        before = self.spent.copy()
        fresh = False

        def run() -> tuple[Tensor, Spent]:
            nonlocal fresh
            fresh = True
            return make(), self.spent.since(before)

        value, cost = self._once(what, batch, run)
        if not fresh:
            self.spent.asked += cost.asked
            self.spent.slopes += cost.slopes
        return value  # type: ignore[no-any-return]

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
