"""Preprocessing: pictures are scaled, cropped and normalised; texts are cut."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from heatcheck.core.types import HeatcheckError, Inputs, Sample
from heatcheck.data.images import decode_image
from heatcheck.domain.image import ImageDomain

CROP = 0.875
"""The share of the scaled picture's shorter side that the usual centre crop keeps."""
SAY_IT = (
    'pass preprocess="imagenet", "clip", "inception" or hc.Preprocess(mean=…, std=…, size=…) as the model was trained, '
    "or tensors that are ready for it"
)
"""What to do where a model's preprocessing is not known."""
_FITS = ("crop", "squash")
_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How much of a text a model sees.

    Args:
        tokens: how many of its first tokens, special ones included; a model that reads fewer sees fewer.
    """

    tokens: int

    def __post_init__(self) -> None:
        if type(self.tokens) is not int or self.tokens < 1:
            raise HeatcheckError(f"tokens={self.tokens!r} must be a whole number, 1 or more")

    def __str__(self) -> str:
        return f"at most {self.tokens} tokens"

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """What is done to a picture before a model sees it.

    The picture's shorter side is scaled to `resize`, the centre is cropped to `size`, colours in [0, 1] get `mean`
    subtracted and are divided by `std`. A tensor is taken as it is: ready for the model.

    Args:
        mean: per channel; one number for models of grey pictures.
        std: per channel.
        size: side of the model's square input, or its height and width.
        resize: shorter side before the crop; by default the crop keeps 87.5 % of it.
        fit: `crop` as above, or `squash` to scale to `size` whatever the proportions.
        interpolation: bilinear, bicubic, nearest, lanczos, box or hamming, each with antialiasing.
    """

    mean: Sequence[float]
    std: Sequence[float]
    size: int | tuple[int, int] = 224
    resize: int | None = None
    fit: str = "crop"
    interpolation: str = "bicubic"

    def __post_init__(self) -> None:
        mean, std = (tuple(float(v) for v in values) for values in (self.mean, self.std))
        size = (self.size, self.size) if isinstance(self.size, int) else tuple(self.size)
        if len(mean) != len(std) or len(mean) not in (1, 3):
            raise HeatcheckError(f"mean={mean} and std={std} must both have one value per channel, 1 or 3")
        if min(std) <= 0:
            raise HeatcheckError(f"std={std} must be positive")
        if len(size) != 2 or min(size) < 1:
            raise HeatcheckError(f"size={self.size} must be a side, or a height and a width")
        if self.fit not in _FITS:
            raise HeatcheckError(f"fit={self.fit!r} is not one of {', '.join(_FITS)}")
        if self.interpolation not in _FILTERS:
            raise HeatcheckError(f"interpolation={self.interpolation!r} is not one of {', '.join(_FILTERS)}")
        resize = int(min(size) / CROP) if self.resize is None else self.resize
        if self.fit == "crop" and resize < 1:
            raise HeatcheckError(f"resize={self.resize} must be positive")
        for name, value in (("mean", mean), ("std", std), ("size", size)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "resize", resize if self.fit == "crop" else None)

    def __call__(self, sample: Sample) -> Inputs:
        """The sample as `pixels` with a batch axis of one."""
        if isinstance(sample.content, Tensor):
            return ready(sample)
        return Inputs({"pixels": self.normalised(decode_image(sample.content))})

    def normalised(self, picture: Image.Image) -> Float[Tensor, "1 c h w"]:
        """An RGB picture as the model's input."""
        return self.colours(self.fitted(picture if len(self.mean) == 3 else picture.convert("L")))

    def colours(self, fitted: Image.Image) -> Float[Tensor, "1 c h w"]:
        """A picture in the model's size as its input."""
        fitted = fitted if len(self.mean) == 3 else fitted.convert("L")
        values = torch.from_numpy(np.array(fitted, dtype=np.uint8))
        values = values[None] if values.ndim == 2 else values.permute(2, 0, 1)
        mean, std = (torch.tensor(v)[:, None, None] for v in (self.mean, self.std))
        return ((values.float() / 255 - mean) / std)[None].contiguous()

    def fitted(self, picture: Image.Image, interpolation: str | None = None) -> Image.Image:
        """The part of the picture that the model sees, in its size."""
        height, width = self.size
        sampling = _FILTERS[interpolation or self.interpolation]
        if self.resize is None:
            return picture.resize((width, height), sampling)
        short, long = sorted(picture.size)
        longer = int(self.resize * long / short)
        scaled = (self.resize, longer) if picture.width <= picture.height else (longer, self.resize)
        if scaled != picture.size:
            picture = picture.resize(scaled, sampling)
        left, top = round((picture.width - width) / 2), round((picture.height - height) / 2)
        return picture.crop((left, top, left + width, top + height))

    @property
    def filter(self) -> Image.Resampling:
        """How pictures are scaled."""
        return _FILTERS[self.interpolation]

    def mask(self, mask: Any) -> Tensor:
        """A mask over the whole picture, carried to the sites that the model sees."""
        whole = Image.fromarray(np.asarray(mask, dtype=bool).astype(np.uint8) * 255)
        return torch.from_numpy(np.array(self.fitted(whole, "nearest")) > 127)

    def domain(self) -> ImageDomain:
        """The domain of preprocessed pictures."""
        return ImageDomain(mean=tuple(self.mean), std=tuple(self.std))

    def __str__(self) -> str:
        mean, std = (" ".join(f"{v:.4g}" for v in values) for values in (self.mean, self.std))
        height, width = self.size
        size = f"{height}" if height == width else f"{height}×{width}"
        how = "squashed" if self.resize is None else f"centre of {self.resize}"
        return f"mean {mean}, std {std}, {size} pixels ({how}, {self.interpolation})"

    def record(self) -> dict[str, Any]:
        """Everything that decides what comes out of it, as plain data."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def ready(sample: Sample) -> Inputs:
    """A sample that holds the model's input itself."""
    content = sample.content
    if not isinstance(content, Tensor):
        raise HeatcheckError(
            f"sample {sample.name!r} is a {type(content).__name__}, but the model's preprocessing is not known: {SAY_IT}"
        )
    pixels = content[None] if content.ndim == 3 else content
    if pixels.ndim != 4 or len(pixels) != 1 or not pixels.is_floating_point():
        raise HeatcheckError(
            f"sample {sample.name!r} is a tensor of {content.dtype} {list(content.shape)}; "
            "one that is ready for the model is floating point [channels, height, width]"
        )
    return Inputs({"pixels": pixels})
