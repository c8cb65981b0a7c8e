"""Pictures' classifiers: a network, or a function, with its preprocessing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from heatcheck.domain.image import ImageDomain
from heatcheck.models.base import CallableExplained, TorchExplained
from heatcheck.models.preprocess import Preprocess, ready
from heatcheck.types import Inputs, PathLike, Sample


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a user may say about a model beside its spec; None leaves it to the model.

    Args:
        name: what tables call it.
        preprocess: what is done to a picture before the model sees it.
        classes: class names.
        checkpoint: a local file with its weights.
        identity: what a function's results are filed under.
        modality: `image` or `text`, for architectures that exist for both.
    """

    name: str
    preprocess: Preprocess | None = None
    classes: tuple[str, ...] | None = None
    checkpoint: PathLike | None = None
    identity: str | None = None
    modality: str | None = None


class _Pictures:
    """What a picture's adapter knows beside its network."""

    _preprocess: Preprocess | None

    def references(self, sample: Sample, x: Inputs) -> Mapping[str, Any]:
        """Masks over the whole picture become masks over the pixels that the model sees."""
        known = sample.reference
        if self._preprocess is None or isinstance(sample.content, Tensor) or "mask" not in known:
            return known
        return {**known, "mask": self._preprocess.mask(known["mask"])}


class VisionExplained(_Pictures, TorchExplained):
    """A picture classifier.

    Args:
        network: the classifier.
        name: what tables call it.
        preprocess: what it wants done to a picture; None where only ready tensors will be given.
        classes: class names.
        channels_last: memory format; faster on CPUs, but not every network of one's own can be run in it.
    """

    def __init__(
        self,
        network: nn.Module,
        name: str,
        *,
        preprocess: Preprocess | None = None,
        classes: tuple[str, ...] | None = None,
        channels_last: bool = False,
    ) -> None:
        self._preprocess = preprocess
        super().__init__(network, name, classes=classes, channels_last=channels_last, **_reading(preprocess))


class FunctionExplained(_Pictures, CallableExplained):
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
