"""What every attribution method shares, so that a method's file holds only its paper's idea."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar, final

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.identity import canonical
from heatcheck.core.spec import SpecError
from heatcheck.core.types import OK, Attribution, Batch, HeatcheckError, Inputs, NotApplicable
from heatcheck.domain.base import Domain, Units
from heatcheck.domain.component import Component, declare
from heatcheck.fills.base import Fill
from heatcheck.probe.asks import Ask, Shape
from heatcheck.probe.probe import Probe

T = TypeVar("T")


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
    """Declare an attribution method: a class derived from `Method`, or a function of one's own.

    A function gets `(model, x, target)`: a differentiable callable from leaf tensors to logits, the leaf tensor
    (pixels or token embeddings) and the target classes; it returns leaf-shaped or site-shaped values.

    >>> @method("grad_times_two")                                          # doctest: +SKIP
    ... def grad_times_two(model, x, target):
    ...     x = x.detach().requires_grad_()
    ...     return 2 * torch.autograd.grad(model(x).gather(1, target[:, None]).sum(), x)[0]

    Args:
        id: its name everywhere.
        family: its kin, by which lists and contact sheets are sorted; see `catalogue.FAMILIES`.
        on: modalities it exists for.
        uses: what it needs of a model: `gradient`, `layers` (feature maps), `attention`, `relu`, `bcos`, `bagnet`, or
            nothing but outputs (`()`).
        properties: claims that `heatcheck.testing.check_method` verifies: `complete`, `dummy`, `linear`,
            `implementation_invariant`, `symmetric`, `nonnegative`, `target_free`, `gradient_on_linear`.
        control: whether it is a yardstick, shown but never ranked.
        elsewhere: why it does not exist for the other modality, and what to try there.
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

    def decorate(target: T) -> T:
        if inspect.isclass(target):
            return declare("method", id, version, facts)(target)
        declare("method", id, version, facts)(_from_function(target))  # type: ignore[arg-type]
        return target

    return decorate


@dataclass(frozen=True, kw_only=True, repr=False)
class Method(Component, ABC):
    """An attribution method. Authors write `attribute`; calling is the base class's business.

    Args:
        output: the scalar explained: logit, prob, logprob or margin.
        reduction: how channels or embedding coordinates become one number per site.
        post: what is done to the finished map: none, abs, relu.
    """

    output: str = "logit"
    reduction: str = "sum"
    post: str = "none"

    interpolation: ClassVar[str] = "bilinear"

    @abstractmethod
    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        """Signed values, leaf-shaped or already one per site or feature-map cell."""

    def asks(self, shape: Shape) -> set[Ask]:
        """The deletions it asks of one sample that a metric may ask too; for sharing and circularity."""
        return set()

    def passes(self, shape: Shape) -> tuple[int, int]:
        """Forward and backward passes per sample beside those of `asks`."""
        return 0, 0

    @property
    def uses(self) -> tuple[str, ...]:
        """What it needs of a model, with the parameters it has."""
        return tuple(self.facts.get("uses", ()))

    @property
    def control(self) -> bool:
        """Whether it is a yardstick rather than a contestant."""
        return bool(self.facts.get("control", False))

    @property
    def signed(self) -> bool:
        """Whether negative values mean "against"."""
        return "nonnegative" not in self.facts.get("properties", ()) and self.post == "none" and self.reduction == "sum"

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
        return super().resolve(domain)

    @property
    def cache_key(self) -> str:
        """What this method's maps are made of before `post`; methods that differ in it alone share the work."""
        return canonical({**self.identity(), "params": {**self.identity()["params"], "post": None}})

    def reduced(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        """One number per site or cell, before `post`."""
        raw = self.attribute(probe, batch)
        if len(raw) != len(batch):
            raise HeatcheckError(f"{self.name} gave {len(raw)} maps for {len(batch)} samples")
        return probe.domain.reduce(raw, self.reduction) if raw.ndim == probe.domain.leaf(batch.x).ndim else raw

    @final
    def __call__(self, probe: Probe, batch: Batch) -> Attribution:
        """Explain a batch: one map per sample, or the reason why there is none."""
        component = self.resolved_on(probe.domain)
        values = probe.shared(
            f"{component.cache_key} {batch.target.tolist()}", batch, lambda: component.reduced(probe, batch)
        )
        if component.post == "abs":
            values = values.abs()
        elif component.post == "relu":
            values = values.relu()
        values = values.detach().to(torch.promote_types(probe.model.dtype, torch.float32))
        finite = torch.isfinite(values).flatten(1).all(1)
        status = tuple(OK if ok else "failed: the map is not finite" for ok in finite.tolist())
        return Attribution(
            values=values,
            target=batch.target,
            method=component.name,
            signed=component.signed,
            output=component.output,
            interpolation=component.interpolation,
            status=status,
        )


def _from_function(function: Callable[..., Tensor]) -> type[Method]:
    """A method class around a user's `(model, x, target)` function; keyword parameters become its parameters."""
    extras = {
        name: p.default
        for name, p in inspect.signature(function).parameters.items()
        if p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is not inspect.Parameter.empty
    }

    def attribute(self: Method, probe: Probe, batch: Batch) -> Tensor:
        given = {name: getattr(self, name) for name in extras}
        return probe.call_function(lambda model, x, target: function(model, x, target, **given), batch)

    space: dict[str, Any] = {
        "attribute": attribute,
        "__doc__": function.__doc__,
        "__module__": function.__module__,
    }
    space["__annotations__"] = {name: type(default) for name, default in extras.items()}
    space.update(extras, function=staticmethod(function))
    cls = type(function.__name__, (Method,), space)
    return dataclass(frozen=True, kw_only=True, repr=False)(cls)


def repeat_rows(n: int, times: int) -> Int[Tensor, " k"]:
    """`0 0 0 1 1 1 …`: the sample of each question when every sample gets `times` of them in a row."""
    return torch.arange(n).repeat_interleave(times)


def spread_density(probe: Probe, batch: Batch, units: Units, worth: Float[Tensor, "b u"]) -> Float[Tensor, "b ..."]:
    """Give every site its unit's worth divided by the unit's area, so that a map's sum over a unit is its worth."""
    share = torch.where(units.valid, worth / units.area.clamp_min(1), 0)
    return probe.domain.as_map(units.spread(share), batch.x)


def eraser(probe: Probe, batch: Batch, fill: str) -> Callable[[Int[Tensor, " n"], Shaped[Tensor, "n s"]], Inputs]:
    """A function of samples (by number) and masks that deletes what is not kept.

    What a random fill draws here is not what metrics delete with.
    """
    filler: Fill = catalogue.build("fill", fill)
    full = filler.full(probe.domain, replace(batch, streams=batch.streams.derive("method")))

    def erase(rows: Int[Tensor, " n"], keep: Shaped[Tensor, "n s"]) -> Inputs:
        return filler.erase(probe.domain, batch.x.take(rows), keep, full.take(rows))

    return erase
