"""What a network makes of labelled pictures, and how far two networks are apart on them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import Attribution, Batch
from heatcheck.domain.image import enlarged
from heatcheck.methods.base import Method
from heatcheck.metrics.base import Maps, Metric
from heatcheck.probe.probe import Probe


@dataclass(frozen=True)
class Look:
    """What one network makes of some pictures.

    Args:
        right: whether the label is predicted.
        worst: whether it is, whichever unit is deleted; NaN where that was not asked.
        probability: the label's.
        cams: Grad-CAM maps of the label, scaled from 0 to 1, as large as the network's input; None where there are none.
        features: mean activations of a layer's channels; None where there are none.
    """

    right: Float[Tensor, " n"]
    worst: Float[Tensor, " n"]
    probability: Float[Tensor, " n"]
    cams: list[Float[Tensor, "h w"]] | None
    features: Float[Tensor, "n c"] | None


def look(probe: Probe, batch: Batch, metric: Metric | None, cam: Method | None) -> Look:
    """What a network makes of pictures of one shape.

    Args:
        probe: asks it.
        batch: the pictures; the target is the label.
        metric: accuracy under the worst deletion, if wanted.
        cam: Grad-CAM, if wanted.

    Raises:
        NotApplicable: the network has no feature map.
    """
    batch = probe.placed(batch)
    clean = probe.clean(batch)
    right, worst = clean.read("accuracy"), torch.full((len(batch),), torch.nan, dtype=torch.float64)
    if metric is not None:
        blank = Attribution(torch.zeros(len(batch), 1, 1, device=batch.device), target=batch.target)
        worst = metric(probe, batch, Maps([blank], probe.domain, batch)).value[0]
    maps, features = None, None
    if cam is not None:
        made = cam(probe, batch)
        sites = probe.domain.layout(made.values.to(batch.device), batch.x, made.interpolation)
        maps = list(min_max(probe.domain.as_map(sites, batch.x)).cpu())
        place = str(cam.params()["layer"])
        features = probe.activations(batch, place, str(cam.output))[0].double().flatten(2).mean(-1).cpu()
    return Look(right.cpu(), worst.cpu(), clean.read("prob").cpu(), maps, features)


def joined(looks: Sequence[Look], order: Sequence[int]) -> Look:
    """Looks at pictures of several shapes as one, in the pictures' order."""
    back = torch.tensor(order).argsort()
    cams: list[Tensor] | None = None
    if all(part.cams is not None for part in looks):
        together = [cam for part in looks for cam in part.cams or ()]
        cams = [together[i] for i in back.tolist()]
    features = [part.features for part in looks if part.features is not None]
    return Look(
        torch.cat([part.right for part in looks])[back],
        torch.cat([part.worst for part in looks])[back],
        torch.cat([part.probability for part in looks])[back],
        cams,
        torch.cat(features)[back] if features else None,
    )


def differences(a: Look, b: Look) -> tuple[Tensor, Tensor | None]:
    """Per picture, how far two networks are apart: in the label's probability, and in their maps, in the size of `a`'s."""
    probability = (a.probability - b.probability).abs()
    if a.cams is None or b.cams is None:
        return probability, None
    maps = [(x.double() - resized(y, x.shape).double()).abs().mean() for x, y in zip(a.cams, b.cams, strict=True)]
    return probability, torch.stack(maps)


def resized(values: Float[Tensor, "h w"], shape: Sequence[int]) -> Float[Tensor, "a b"]:
    """A map in another size, scaled from 0 to 1 again."""
    if tuple(values.shape) == tuple(shape):
        return values
    return min_max(enlarged(enlarged(values[None], shape[0]).transpose(1, 2), shape[1]).transpose(1, 2))[0]


def min_max(maps: Float[Tensor, "n h w"]) -> Float[Tensor, "n h w"]:
    """Each map scaled from 0 to 1; a constant one is 0."""
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return (maps - low) / torch.where(high > low, high - low, torch.ones_like(low))
