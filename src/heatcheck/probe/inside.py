"""Inside the network: feature maps, gradients at a layer, edited layers, other derivatives for its operations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.core.spec import suggest
from heatcheck.core.types import Batch, HeatcheckError, Inputs, NotApplicable
from heatcheck.models.devices import HALF
from heatcheck.models.layers import Layer
from heatcheck.probe.answers import Answers
from heatcheck.probe.calls import Calls
from heatcheck.probe.rules import Rules

R = TypeVar("R", bound=Rules)


@dataclass(frozen=True)
class Seen(Generic[R]):
    """One call of the network under rules, its graph still alive.

    Args:
        rules: the rules, with what they noted.
        leaf: pixels or embeddings; differentiate with respect to it.
        entered: what of them the network got: the leaf itself, or what a blindfold leaves of it.
        logits: class scores.
        target: the class of each question.
        value: the scalar explained, one per question.
        given: the inputs, as the network got them.
        read: the sites that the network reads, and not padding, in its own order; None where it reads all.
        multi_label: whether each class is a label of its own.
    """

    rules: R
    leaf: Tensor
    entered: Tensor
    logits: Float[Tensor, "m c"]
    target: Int[Tensor, " n"]
    value: Float[Tensor, " n"]
    given: Inputs
    read: Bool[Tensor, "m s"] | None = None
    multi_label: bool = False

    def gradients(self, of: Sequence[Tensor], keep: bool = False) -> tuple[Tensor, ...]:
        """Derivatives of the value, as the rules pass them back; `keep` the graph if another is to be taken."""
        return torch.autograd.grad(self.value.sum(), list(of), retain_graph=keep)

    def slope(self) -> Float[Tensor, "m ..."]:
        """The derivative with respect to the leaf."""
        return self.gradients([self.leaf])[0]


@dataclass
class Inside(Calls):
    """What methods see and change inside the network."""

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
                out = self.scalar(self.model.logits(self.visible(x)), self._there(batch.target[index]), output)
                (grad,) = torch.autograd.grad(out.sum(), seen[-1])
            return torch.stack([place.maps(seen[-1].detach()), place.maps(grad)], 1).contiguous()

        def run() -> Tensor:
            return torch.cat([out for _, out in self._calls(len(batch), batch.x.take, look, "backward")])

        self.spent.asked += len(batch)
        self.spent.slopes += len(batch)
        pairs: Tensor = self.cached(f"activations {place.name} {output} {list(batch.targets)}", batch, run)
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
        found: Tensor = self.cached(f"maps {place.name}", batch, run)
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
                return batch.x.take(torch.full((1 if narrow else len(index),), row, device=self.device))

            for index, logits in self._calls(times, make, lambda x, i: self._edited(place, x, i, edit), "forward"):
                target, label = (t[row].expand(len(index)) for t in (batch.target, batch.label))
                yield row, index, self._as_answers(Answers.compress(logits, target), target, label)

    def _edited(
        self, place: Layer, x: Inputs, index: Tensor, edit: Callable[[Tensor, Tensor], None]
    ) -> Float[Tensor, "m k"]:
        def change(out: Tensor) -> Tensor:
            wide = out.expand(len(index), *out.shape[1:]).clone()
            edit(place.maps(wide), self._there(index))
            return wide

        with place.changed(self.model.module(), change):
            return self._forward(x, index)

    def _multiplies_at(self, place: Layer, x: Inputs) -> bool:
        """Whether one input that becomes two at a layer gets the answers that two inputs get; tried once, not counted."""

        def hide(maps: Tensor, _index: Tensor) -> None:
            maps[1] = 0

        def same() -> bool:
            two = self.rows(2) * 0
            there = x.take(two).to(self.model.device)
            wide = self._edited(place, there, two, hide)
            try:
                narrow = self._edited(place, there.take(slice(0, 1)), two, hide)
            except (RuntimeError, ValueError, IndexError, HeatcheckError):
                return False
            return torch.allclose(narrow, wide, rtol=1e-4, atol=1e-4 * float(wide.abs().max()))

        return bool(self.cached_for_model(f"multiplies at {place.name} {x.shape_key()}", same))

    def run_with_rules(
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
            active = rules()
            with torch.enable_grad():
                given = self.visible(self.domain.with_leaf(x, leaf))
                with active:
                    logits = self.model.logits(given)
                own = self._there(batch.target[rows[index]])
                value = self.scalar(logits[: len(own)], own, output)
                entered = self.domain.leaf(given)
                seen = self.domain.seen(given)
                order = None if seen is None else self.domain.entering(seen, given)
                seen_by = Seen(active, leaf, entered, logits, own, value, given, order, self.model.multi_label)
                return read(seen_by).detach()

        self.spent.asked += forwards * len(rows)
        self.spent.slopes += backwards * len(rows)
        share = forwards * rules().graphs
        for index, out in self._calls(len(rows), make, run, "backward", share=share):
            self.spent.forwards += (forwards - 1) * len(index)
            self.spent.backwards += (backwards - 1) * len(index)
            yield index, out

    def _same_under(self, rules: Callable[[], R], batch: Batch, copies: int) -> None:
        """Refuse a network that answers otherwise while rules hold; tried once for a model, and not counted."""
        if self.model.precision in HALF:
            raise NotApplicable(
                f"follows the network's arithmetic step by step, and {self.model.name} computes in {self.model.precision}; use "
                "precision fp32"
            )
        active = rules()
        key = f"{type(active).__qualname__} {batch.x.shape_key()}"
        if key in self.model.followed:
            return
        x = batch.x.take(self.rows(copies) * 0).to(self.model.device)
        leaf = self.domain.leaf(x).detach().requires_grad_()
        with torch.enable_grad():
            given = self.visible(self.domain.with_leaf(x, leaf))
            plain = self.model.logits(given).detach()
            with active:
                ruled = self.model.logits(given).detach()
        tolerance = 1e-3 if plain.dtype == torch.float32 else 1e-8
        if not (ruled - plain).abs().max() <= tolerance * plain.abs().max().clamp_min(1e-3):
            raise NotApplicable(
                f"cannot follow what {self.model.name} computes (a result is written in place and not returned); "
                "try integrated_gradients or occlusion"
            )
        self.model.followed.add(key)

    def read_network(
        self, rows: Int[Tensor, " n"], make: Callable[[Tensor], Inputs], read: Callable[[Inputs, Tensor], Tensor]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Stream what `read` sees in the network at inputs made on the fly; one forward pass each, without a graph.

        Inputs of other sizes than the samples' own are made from what is `visible` of these.
        """

        def run(x: Inputs, index: Tensor) -> Tensor:
            with torch.inference_mode():
                out = read(self.domain.visible(x), index)
            return out.clone()

        self.spent.asked += len(rows)
        yield from self._calls(len(rows), make, run, "forward")

    def layers(self, x: Inputs) -> list[Layer]:
        """The layers of the model whose output is a feature map, looked for once per input shape."""
        found: list[Layer] = self.cached_for_model(f"layers {x.shape_key()}", lambda: self.model.layers(x))
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
