"""The two classical inpaintings of OpenCV, in bytes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, UInt8
from scipy import ndimage

from heatcheck.core.extras import require
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Inputs
from heatcheck.domain.base import Domain
from heatcheck.domain.image import ImageDomain
from heatcheck.fills.base import fill
from heatcheck.fills.imputation import Imputation, planes


@dataclass(frozen=True, kw_only=True, repr=False)
class OpenCV(Imputation):
    """Colours are rounded to bytes for OpenCV, and what it paints is bytes; kept pixels are not touched.

    OpenCV reads a little of what a hole held. So that this cannot matter, the hole gets its nearest kept colours first.
    """

    flag: ClassVar[str]

    radius: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.radius > 0:
            raise SpecError(f"{self.id}: radius={self.radius!r} must be more than 0")

    def applies_to(self, domain: Domain) -> None:
        super().applies_to(domain)
        require(f"fill {self.id}", "cv2")

    def impute(self, domain: ImageDomain, x: Inputs, hole: Bool[np.ndarray, "h w"]) -> Float[np.ndarray, "n c"]:
        low, high = (bound.double().flatten().numpy() for bound in domain.bounds(x))
        colour = (planes(domain, x) - low) / (high - low)
        painted = self.inpaint(np.rint(colour.clip(0, 1) * 255).astype(np.uint8), hole)
        values: Float[np.ndarray, "n c"] = low + painted[hole] / 255 * (high - low)
        return values

    def inpaint(self, colour: UInt8[np.ndarray, "h w c"], hole: Bool[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w c"]:
        """The picture with its hole painted; OpenCV takes one channel or three, so others go one by one."""
        import cv2

        radius = self.radius * min(hole.shape) / 224
        y, x = ndimage.distance_transform_edt(hole, return_distances=False, return_indices=True)
        colour = colour[y, x]
        parts = [colour] if colour.shape[2] == 3 else np.split(colour, colour.shape[2], axis=2)
        mask = hole.astype(np.uint8)
        painted = [cv2.inpaint(np.ascontiguousarray(part), mask, radius, getattr(cv2, self.flag)) for part in parts]
        return np.concatenate([p.reshape(*hole.shape, -1) for p in painted], axis=2)


@fill("telea", on=("image",), host=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class Telea(OpenCV):
    """A hole painted inwards from its rim, each pixel from the known ones around it along their gradients.

    Args:
        radius: how far to look, in pixels at 224; scaled with the shorter side, and never less than one pixel.

    Paper: telea2004.  Differs: what is deleted may be most of the picture, not a scratch.
    Cost per sample: no passes; 15 to 50 ms per deletion in a picture of 224 × 224 pixels.
    """

    flag: ClassVar[str] = "INPAINT_TELEA"


@fill("navier_stokes", on=("image",), host=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class NavierStokes(OpenCV):
    """A hole painted inwards from its rim, continuing the lines of equal brightness that meet it.

    Args:
        radius: how far to look, in pixels at 224; scaled with the shorter side, and never less than one pixel.

    Paper: bertalmio2001.  Differs: OpenCV marches inwards once instead of evolving the flow to its end.
    Cost per sample: no passes; 10 to 40 ms per deletion in a picture of 224 × 224 pixels.
    """

    flag: ClassVar[str] = "INPAINT_NS"
