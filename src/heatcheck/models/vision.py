"""Image classifiers: a network or a function, with its preprocessing."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from heatcheck.core.types import Inputs, Sample
from heatcheck.data.references import Region, region, size_of
from heatcheck.domain.image import ImageDomain
from heatcheck.models.base import Model
from heatcheck.models.black_box import CallableModel
from heatcheck.models.preprocess import Preprocess, ready
from heatcheck.models.request import Request
from heatcheck.models.torch_model import TorchModel

_REGIONS = {"mask", "boxes", "parts", "without"}


class PictureModel(Model):
    """A classifier of pictures: carries the references of a picture to the pixels that the model sees."""

    _preprocess: Preprocess | None

    def references(self, sample: Sample, x: Inputs) -> Mapping[str, Any]:
        """Regions of the whole picture become masks over the pixels that the model sees.

        `mask`, else the union of `boxes`, becomes `mask`; `parts` become one mask each, stacked, with their `part_names`;
        pictures `without` each of these parts are encoded. What lies outside the crop is an empty mask.
        """
        known = sample.reference
        if not known.keys() & _REGIONS:
            return known
        size = size_of(sample.content)
        found = {kind: value for kind, value in known.items() if kind not in _REGIONS}
        if "mask" in known or "boxes" in known:
            found["mask"] = self._seen(sample, known["mask"] if "mask" in known else known["boxes"], size)
        if parts := known.get("parts"):
            found["parts"] = torch.stack([self._seen(sample, area, size) for area in parts.values()])
            found["part_names"] = tuple(parts)
            if without := known.get("without"):
                found["without"] = Inputs.cat([self.encode(Sample(name, "", without[name])) for name in parts])
        return found

    def _seen(self, sample: Sample, area: Region, size: tuple[int, int]) -> Bool[Tensor, "h w"]:
        whole = region(area, size)
        if self._preprocess is None or isinstance(sample.content, Tensor):
            return torch.from_numpy(whole)
        return self._preprocess.mask(whole)


class VisionModel(PictureModel, TorchModel):
    """A picture classifier.

    Args:
        network: the classifier.
        name: what tables call it.
        preprocess: what it wants done to a picture; None where only ready tensors will be given.
        classes: class names.
        channels_last: memory format; faster on CPUs, but not every user's network can run in it. None where it is not
            decided.
    """

    def __init__(
        self,
        network: nn.Module,
        name: str,
        *,
        preprocess: Preprocess | None = None,
        classes: tuple[str, ...] | None = None,
        channels_last: bool | None = None,
    ) -> None:
        self._preprocess = preprocess
        super().__init__(network, name, classes=classes, channels_last=channels_last, **_reading(preprocess))

    def seeing(self, preprocess: Preprocess) -> Self:
        """The same model with other preprocessing, which is another identity."""
        twin = copy.copy(self)
        reading = _reading(preprocess)
        twin._preprocess, twin.preprocessing = preprocess, reading["preprocessing"]
        twin.domain, twin._encoder = reading["domain"], reading["encoder"]
        twin.notes, twin.followed, twin._layers = list(self.notes), set(), {}
        twin.__dict__.pop("identity", None)
        return twin


class FunctionModel(PictureModel, CallableModel):
    """A function from a batch of prepared pictures to class scores: a black box."""

    def __init__(self, function: Callable[[Tensor], Any], request: Request) -> None:
        self._preprocess = request.preprocess
        super().__init__(
            function,
            request.name,
            identity=request.identity,
            classes=request.classes,
            **_reading(request.preprocess),
        )


def _reading(preprocess: Preprocess | None) -> dict[str, Any]:
    """Domain, encoder and record that belong to a preprocessing."""
    if preprocess is None:
        return {"domain": ImageDomain(), "encoder": ready, "preprocessing": None}
    return {"domain": preprocess.domain(), "encoder": preprocess, "preprocessing": preprocess.record()}
