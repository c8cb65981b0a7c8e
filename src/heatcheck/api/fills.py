"""How far a fill takes a model from what it knows."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heatcheck.api.explain import as_inputs, batches_of
from heatcheck.core import catalogue
from heatcheck.core.types import Batch, HeatcheckError, Inputs, NotApplicable
from heatcheck.domain.base import Units
from heatcheck.fills.base import Fill
from heatcheck.models.layers import Layer
from heatcheck.probe.probe import Probe
from heatcheck.training.defaults import load_model

SHARES = (0.25, 0.5, 0.75)
"""Shares of the units that are deleted, unless others are asked for."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a model makes of inputs after a deletion, on average over the samples.

    Args:
        share: of the units that were deleted.
        distance: between the features of an input and of what is left of it, divided by the mean distance between two
            clean inputs; 1 is as far as another sample, NaN where there is no other to compare with.
        entropy: of the predicted probabilities, in nats; of labels of which several may hold, the sum of theirs.
        confidence: the largest probability.
        kept: share of the samples whose predicted class is still the same.
        seconds: to make one deleted input, without asking the model.
    """

    share: float
    distance: float
    entropy: float
    confidence: float
    kept: float
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class FillEffect:
    """A fill's effects, one per share, or the reason why there are none.

    Args:
        fill: the fill as it was asked for.
        effects: what the model makes of its deletions.
        reason: why the fill cannot be used here; empty if it can.
    """

    fill: str
    effects: tuple[Effect, ...] = ()
    reason: str = ""

    def mean(self, what: str) -> float:
        """The mean of one number over the shares; NaN where there is none."""
        values = [getattr(e, what) for e in self.effects]
        return sum(values) / len(values) if values else float("nan")

    def record(self) -> dict[str, Any]:
        """As plain data: means over the shares, and each share."""
        if self.reason:
            return {"fill": self.fill, "reason": self.reason}
        names = ("distance", "entropy", "confidence", "kept", "seconds")
        return {"fill": self.fill, **{n: self.mean(n) for n in names}, "shares": [vars(e) for e in self.effects]}


@dataclass(frozen=True, kw_only=True)
class FillComparison:
    """Fills beside each other, the one that keeps nearest to clean inputs first; those without effects last.

    Args:
        features: what distances are measured in: a layer's name, or `logits`.
        samples: how many inputs were deleted from.
        clean: the effect of deleting nothing.
        fills: every fill that was tried.
    """

    features: str
    samples: int
    clean: Effect
    fills: tuple[FillEffect, ...]

    def record(self) -> dict[str, Any]:
        """As plain data."""
        fills = [f.record() for f in self.fills]
        return {"features": self.features, "samples": self.samples, "clean": vars(self.clean), "fills": fills}


@dataclass(frozen=True)
class _Features:
    """Features and logits of some inputs; and whether each logit is that of a label of its own."""

    features: Float[Tensor, "n f"]
    logits: Float[Tensor, "n c"]
    multi_label: bool = False

    @staticmethod
    def cat(parts: Sequence["_Features"]) -> "_Features":
        joined = (torch.cat([p.features for p in parts]), torch.cat([p.logits for p in parts]))
        return _Features(*joined, parts[0].multi_label)

    def probabilities(self) -> Float[Tensor, "n k"]:
        """Of each class; of labels, that each holds and that it does not."""
        if self.multi_label:
            return torch.cat([self.logits.sigmoid(), (-self.logits).sigmoid()], 1)
        return self.logits.softmax(1)


def compare_fills(
    model: Any,
    x: Any,
    *,
    fills: Sequence[str] | None = None,
    shares: Sequence[float] = (0.25, 0.5, 0.75),
    units: str = "patch",
    preprocess: Any = None,
    seed: int = 0,
    tell: Callable[[str], None] = lambda name: None,
) -> FillComparison:
    """Delete the same random units with every fill and see how far each takes the model from what it knows.

    >>> compare_fills(net, photos, fills=["zero", "blur", "linear"]).record()   # doctest: +SKIP

    Args:
        model: a module, a name, a callable or an adapter.
        x: inputs, as for `explain`.
        fills: specs such as `"blur(sigma=5)"`; every fill of the modality if None.
        shares: of the units that are deleted.
        units: what is deleted.
        preprocess: how pixels are normalised, for fills defined in pixel space.
        seed: of random streams.
        tell: called with each fill's name before it is tried.
    """
    explained = load_model(model, preprocess=preprocess)
    given = as_inputs(explained, x)
    groups = [(probe, batch) for _, probe, batch in batches_of(explained, given, None, None, seed)]
    return compare(groups, fills, shares=shares, units=units, tell=tell)


def compare(
    groups: Sequence[tuple[Probe, Batch]],
    fills: Sequence[str] | None = None,
    *,
    shares: Sequence[float] = SHARES,
    units: str = "patch",
    tell: Callable[[str], None] = lambda name: None,
) -> FillComparison:
    """Delete the same random units with every fill and see what the model makes of it.

    Features are the last feature map, averaged over its places; a model that has none is judged by its logits.

    Args:
        groups: batches of one shape each, with a probe on the same model.
        fills: specs; every fill of the modality if None.
        shares: of the units that are deleted, drawn by each sample's stream; larger shares contain smaller ones.
        units: what is deleted.
        tell: called with each fill's name before it is tried.
    """
    for share in shares:
        if not 0 <= share <= 1:
            raise HeatcheckError(f"share={share!r} of the units is not between 0 and 1")
    domain = groups[0][0].domain
    place = _last_layer(groups)
    clean = [_look(probe, batch.x, place) for probe, batch in groups]
    whole = _Features.cat(clean)
    spacing = _mean_distance(whole.features)
    names = fills
    if names is None:
        names = [id for id, entry in catalogue.entries("fill").items() if domain.modality in entry.facts["on"]]
    found = []
    for name in names:
        tell(name)
        try:
            fill: Fill = catalogue.build("fill", name).resolve(domain)
            effects = []
            for share in shares:
                parts, seconds = [], 0.0
                for probe, batch in groups:
                    start = time.perf_counter()
                    x = _deleted(probe, batch, fill, units, share)
                    seconds += time.perf_counter() - start
                    parts.append(_look(probe, x, place))
                effect = _effect(share, whole, _Features.cat(parts), spacing)
                effects.append(replace(effect, seconds=seconds / len(whole.logits)))
            found.append(FillEffect(fill=str(name), effects=tuple(effects)))
        except HeatcheckError as problem:
            found.append(FillEffect(fill=str(name), reason=str(problem)))
    found.sort(key=lambda f: (bool(f.reason), f.mean("distance") if f.effects else 0.0))
    return FillComparison(
        features=place.name if place else "logits",
        samples=len(whole.logits),
        clean=_effect(0.0, whole, whole, spacing),
        fills=tuple(found),
    )


def _last_layer(groups: Sequence[tuple[Probe, Batch]]) -> Layer | None:
    """The last layer with a feature map, if the model has one for every shape."""
    try:
        found = [probe.layer("auto", batch.x) for probe, batch in groups]
    except NotApplicable:
        return None
    return found[0] if len({(layer.name, layer.channels) for layer in found}) == 1 else None


def _look(probe: Probe, x: Inputs, place: Layer | None) -> _Features:
    """What the model makes of inputs: one forward pass each."""
    if place is None:
        logits = probe.logits(x).double()
        return _Features(logits, logits, probe.model.multi_label)
    own = probe.layer(place.name, x)

    def read(part: Inputs, _index: Tensor) -> Tensor:
        seen: list[Tensor] = []

        def note(out: Tensor) -> Tensor:
            seen.append(own.maps(out).double().flatten(2).mean(-1))
            return out

        with own.changed(probe.model.module(), note):
            logits = probe.model.logits(part)
        return torch.cat([seen[-1], logits.double()], 1)

    both = torch.cat([out for _, out in probe.read_network(torch.arange(len(x)), x.take, read)])
    return _Features(both[:, : own.channels], both[:, own.channels :], probe.model.multi_label)


def _deleted(probe: Probe, batch: Batch, fill: Fill, units: str, share: float) -> Inputs:
    """Every sample without the first `share` of its units, in an order that its stream draws."""
    partition = probe.units(units, batch)
    gone = torch.stack(list(_chosen(partition, batch, share)))
    full = fill.full(probe.domain, batch)
    return fill.erase(probe.domain, batch.x, ~partition.spread(gone, outside=0).bool(), full)


def _chosen(units: Units, batch: Batch, share: float) -> Iterator[Bool[Tensor, " u"]]:
    for i, n in enumerate(units.count.tolist()):
        order = torch.randperm(n, generator=batch.streams.generator(i, "fills"))
        yield torch.zeros(units.width, dtype=torch.bool).index_fill(0, order[: round(share * n)], True)


def _mean_distance(features: Float[Tensor, "n f"]) -> float:
    n = len(features)
    return float(torch.cdist(features, features).sum()) / (n * (n - 1)) if n > 1 else float("nan")


def _effect(share: float, clean: _Features, after: _Features, spacing: float) -> Effect:
    moved = float((after.features - clean.features).square().sum(1).sqrt().mean())
    chances = after.probabilities()
    return Effect(
        share=share,
        distance=moved / spacing if spacing > 0 else 0.0 if moved == 0 else float("nan"),
        entropy=float(torch.special.entr(chances).sum(1).mean()),
        confidence=float(chances[:, : after.logits.shape[1]].amax(1).mean()),
        kept=float((after.logits.argmax(1) == clean.logits.argmax(1)).double().mean()),
    )
