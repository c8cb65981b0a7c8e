"""The base class of attribution methods, the `@method` decorator, and helpers that several methods use."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar, TypeVar, final

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.identity import canonical
from heatcheck.core.spec import SpecError
from heatcheck.core.types import OK, Attribution, Batch, HeatcheckError, Inputs, NotApplicable, finite_status
from heatcheck.data.documents import Corpus
from heatcheck.domain.base import Domain, Units
from heatcheck.domain.component import Component, call_with_parameters, declare
from heatcheck.fills.base import Fill
from heatcheck.probe.asks import Ask, Shape
from heatcheck.probe.calls import count_on, count_passes
from heatcheck.probe.probe import Probe

T = TypeVar("T")

CANCELLED = 1e-6
"""A map that keeps less than this share of its values' absolute sum, when they are summed, is rounding noise."""


def method(
    id: str,
    *,
    family: str = "own",
    on: tuple[str, ...] = ("image", "text"),
    uses: tuple[str, ...] = ("gradient",),
    properties: tuple[str, ...] = (),
    control: bool = False,
    elsewhere: str = "",
    version: int = 1,
) -> Callable[[T], T]:
    """Declare an attribution method: a class derived from `Method`, or your own function.

    A function gets `(model, x, target)`: a differentiable callable from leaf tensors to logits, the leaf tensor
    (pixels or token embeddings) and the target classes; it returns leaf-shaped or site-shaped values.

    >>> @method("grad_times_two")                                          # doctest: +SKIP
    ... def grad_times_two(model, x, target):
    ...     x = x.detach().requires_grad_()
    ...     return 2 * torch.autograd.grad(model(x).gather(1, target[:, None]).sum(), x)[0]

    Args:
        id: its name everywhere.
        family: the group it is listed under; see `catalogue.FAMILIES`.
        on: modalities it is defined for.
        uses: what it needs from a model: `gradient`, `layers` (feature maps), `attention`, `relu`, `bcos`, `bagnet`;
            `encoder` (reads texts by itself); `()` if outputs are enough.
        properties: claims that `heatcheck.testing.check_method` verifies: `complete`, `dummy`, `linear`,
            `implementation_invariant`, `symmetric`, `nonnegative`, `target_free`, `gradient_on_linear`.
        control: whether it is a control, which leaderboards show but never rank.
        elsewhere: why it is not defined for the other modality, and what to try instead.
        version: raised whenever its results change.
    """
    if family not in catalogue.FAMILIES:
        raise SpecError(f"method {id}: family={family!r} is not one of {', '.join(catalogue.FAMILIES)}")
    facts = {
        "family": family,
        "on": on,
        "uses": uses,
        "properties": properties,
        "control": control,
        "elsewhere": elsewhere,
    }

    return declare("method", id, version, facts, FunctionMethod)


@dataclass(frozen=True, kw_only=True, repr=False)
class Method(Component, ABC):
    """An attribution method. A subclass implements `attribute`; the base class does the rest.

    Args:
        output: the model output that is explained: logit, prob, logprob or margin.
        reduction: how channels or embedding coordinates become one number per site; `auto` is their sum, and their
            Euclidean norm (`l2`) for the plain gradient of a word embedding. `none` keeps them apart, for `heatcheck roar`
            by scalars; metrics then see their sum.
        post: what is applied to the finished map: none, abs or relu.
    """

    output: str = "logit"
    reduction: str = "sum"
    post: str = "none"

    interpolation: ClassVar[str] = "bilinear"
    reads_references: ClassVar[bool] = False
    """Whether its maps depend on what metrics compare with, so that stored ones may not fit; true of oracles alone."""

    @property
    def plain_gradient(self) -> bool:
        """Whether its values are a gradient that nothing has been multiplied with."""
        return False

    @abstractmethod
    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        """Signed values, leaf-shaped or already one per site or feature-map cell."""

    def asks(self, shape: Shape) -> set[Ask]:
        """Its deletions of one sample that a metric may need too: these are shared, and mark circular pairs."""
        return set()

    def passes(self, shape: Shape) -> tuple[int, int]:
        """Forward and backward passes per sample, besides those of `asks`."""
        return 0, 0

    @property
    def uses(self) -> tuple[str, ...]:
        """What it needs from a model, given its parameters."""
        return tuple(self.facts.get("uses", ()))

    @property
    def control(self) -> bool:
        """Whether it is a control, which is shown but never ranked."""
        return bool(self.facts.get("control", False))

    @property
    def signed(self) -> bool:
        """Whether negative values mean evidence against the class."""
        sums = self.reduction in ("sum", "auto", "none")
        return "nonnegative" not in self.facts.get("properties", ()) and self.post == "none" and sums

    def applies_to(self, domain: Domain) -> None:
        try:
            super().applies_to(domain)
        except NotApplicable as reason:
            why = self.facts.get("elsewhere")
            raise NotApplicable(f"{reason}: {why}" if why else str(reason)) from None

    def resolve(self, domain: Domain) -> "Method":
        if self.output == "accuracy":
            raise NotApplicable(
                f"{self.id}: output='accuracy' is a step function; explain logit, prob, logprob or margin"
            )
        return replace(super().resolve(domain), reduction=self.reduction_on(domain))

    def for_corpus(self, corpus: Callable[[], Corpus]) -> "Method":
        """The same method on a run's data, for those that compare a sample with others: all documents of the data."""
        return self

    def reduction_on(self, domain: Domain) -> str:
        """How values become one number per site on a domain, `auto` replaced by what it means there."""
        usual = domain.gradient_reduction if self.plain_gradient else "sum"
        return usual if self.reduction == "auto" else self.reduction

    @property
    def cache_key(self) -> str:
        """The key of the maps before `post`: methods that differ only in `post` share them."""
        return canonical({**self.identity(), "params": {**self.identity()["params"], "post": None}})

    def reduced(self, probe: Probe, batch: Batch) -> tuple[Float[Tensor, "b ..."], tuple[str, ...]]:
        """One number per site or cell, before `post`; and `ok`, or why they are no map, per sample."""
        raw = self.attribute(probe, batch)
        leaf = probe.domain.leaf(batch.x)
        leaf_shaped = raw.ndim == leaf.ndim
        sites = probe.domain.reduce(leaf[:1].detach(), "sum").shape[1:]
        fits = raw.ndim == leaf.ndim - 1 or (leaf_shaped and probe.domain.reduce(raw[:1], "sum").shape[1:] == sites)
        if not fits or len(raw) != len(leaf):
            raise HeatcheckError(
                f"{self.name} returned maps of shape {tuple(raw.shape)} for inputs {tuple(leaf.shape)}; return "
                f"{tuple(leaf.shape)}, or one number per site, {(len(leaf), *sites)}"
            )
        if not leaf_shaped or self.reduction == "none":
            return raw, (OK,) * len(raw)
        maps = probe.domain.reduce(raw, self.reduction)
        if self.reduction != "sum":
            return maps, (OK,) * len(raw)
        noise = share_left(raw, maps) < max(CANCELLED, torch.finfo(probe.model.dtype).eps)
        reason = (
            f"undefined: the values of each {probe.domain.roles['site']} cancel out when they are summed, and the map "
            f"would be rounding noise; try {self.id}(reduction=l2)"
        )
        maps = maps.masked_fill(noise.reshape(-1, *[1] * (maps.ndim - 1)), 0)
        return maps, tuple(reason if bad else OK for bad in noise.tolist())

    @final
    def __call__(self, probe: Probe, batch: Batch) -> Attribution:
        """Explain a batch: one map per sample, or the reason why there is none."""
        component = self.resolved_on(probe.domain, number=probe.model.gives_number)
        batch = probe.placed(batch)
        values, reasons = probe.shared(
            f"{component.cache_key} {list(batch.targets)}", batch, lambda: component.reduced(probe, batch)
        )
        if component.post == "abs":
            values = values.abs()
        elif component.post == "relu":
            values = values.relu()
        values = values.detach().to(torch.promote_types(probe.model.dtype, torch.float32))
        finite = finite_status(values)
        return Attribution(
            values=values,
            target=batch.target,
            method=component.name,
            signed=component.signed,
            output=component.output,
            explains=probe.model.explains,
            interpolation=component.interpolation,
            status=tuple(reason if ok == OK else ok for ok, reason in zip(finite, reasons, strict=True)),
        )


class FunctionMethod(Method):
    """A user's function `(model, x, target, *, parameters)` as a method."""

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        return probe.call_function(self._map, batch)

    def _map(self, model: Callable[[Tensor], Tensor], x: Tensor, target: Tensor, _rows: slice) -> Tensor:
        found = call_with_parameters(self)(model, x, target)
        if not isinstance(found, Tensor):
            raise HeatcheckError(f"{self.name} returned {type(found).__name__}, not a tensor of maps")
        return found

    def passes(self, shape: Shape) -> tuple[int, int]:
        return count_passes(self._map, shape)

    @property
    def uses(self) -> tuple[str, ...]:
        """What was declared; a function that takes no gradient of a stand-in for the model needs outputs only."""
        declared = super().uses
        return declared if declared != ("gradient",) or takes_gradients(self) else ()


@cache
def takes_gradients(method: FunctionMethod) -> bool:
    """Whether a function differentiates the model, as far as a small picture or text shows; assumed where it fails."""
    leaves = {"image": torch.zeros(1, 3, 32, 32), "text": torch.zeros(1, 8, 16)}
    found = [count_on(method._map, leaves[modality]) for modality in method.facts["on"]]
    return any(passes is None or passes[1] > 0 for passes in found)


def share_left(raw: Float[Tensor, "b ..."], maps: Float[Tensor, "b ..."]) -> Float[Tensor, " b"]:
    r"""$\sum_s |\sum_c a_{sc}| \,/\, \sum_s \sum_c |a_{sc}|$ per sample: how much of the values their sums keep.

    1 where all values are zero or one is not finite: these are told apart elsewhere.

    >>> share_left(torch.tensor([[[3.0, -2.0], [1.0, 2.0]]]), torch.tensor([[1.0, 3.0]])).tolist()
    [0.5]
    """
    kept, whole = (v.detach().double().abs().flatten(1).sum(1) for v in (maps, raw))
    return torch.where((whole > 0) & torch.isfinite(whole), kept / whole, 1.0)


def repeat_rows(n: int, times: int, device: torch.device) -> Int[Tensor, " k"]:
    """`0 0 0 1 1 1 …`: the sample that each query belongs to, with `times` consecutive queries per sample."""
    return torch.arange(n, device=device).repeat_interleave(times)


def counted_rows(counts: Sequence[int], device: torch.device) -> tuple[Int[Tensor, " k"], Int[Tensor, " k"]]:
    """The sample of each query, with `counts[i]` consecutive queries for sample `i`; and its number among these.

    >>> [found.tolist() for found in counted_rows((2, 0, 3), torch.device("cpu"))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    rows = [torch.full((n,), i, device=device) for i, n in enumerate(counts)]
    return torch.cat(rows), torch.cat([torch.arange(n, device=device) for n in counts])


def stacked(parts: Sequence[Shaped[Tensor, "_ _"]], width: int, device: torch.device) -> Shaped[Tensor, "b k w"]:
    """Tables of different sizes on the CPU, padded with zeros to one size and copied to a device together."""
    whole = parts[0].new_zeros(len(parts), max(map(len, parts)), width)
    for own, part in zip(whole, parts, strict=True):
        own[: len(part), : part.shape[1]] = part
    return whole.to(device)


def spread_density(probe: Probe, batch: Batch, units: Units, values: Float[Tensor, "b u"]) -> Float[Tensor, "b ..."]:
    """Divide each unit's value evenly among its sites, so that the map's sum over a unit is the unit's value."""
    share = torch.where(units.valid, values / units.area.clamp_min(1), 0)
    return probe.domain.as_map(units.spread(share), batch.x)


def eraser(probe: Probe, batch: Batch, fill: str) -> Callable[[Int[Tensor, " n"], Shaped[Tensor, "n s"]], Inputs]:
    """A function that deletes from the given samples all sites that their masks do not keep.

    A random fill draws other values here than for metrics.
    """
    filler: Fill = catalogue.build("fill", fill)
    full = filler.full(probe.domain, replace(batch, streams=batch.streams.derive("method")))

    def erase(rows: Int[Tensor, " n"], keep: Shaped[Tensor, "n s"]) -> Inputs:
        return filler.erase(probe.domain, batch.x.take(rows), keep, full.take(rows))

    return erase


def is_random(fill: str) -> bool:
    """Whether a fill is random. Methods and metrics then delete with different draws, and share no queries."""
    return fill != "auto" and bool(catalogue.build("fill", fill).random)
