"""Biharmonic inpainting."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from heatcheck.core.extras import require
from heatcheck.core.types import Inputs
from heatcheck.domain.base import Domain
from heatcheck.domain.image import ImageDomain
from heatcheck.fills.base import fill
from heatcheck.fills.imputation import Imputation, planes


@fill("biharmonic", on=("image",), host=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class Biharmonic(Imputation):
    r"""The smoothest surface that continues both the colours around a hole and their slopes.

    $\Delta^2 x = 0$ inside the hole.

    Where the surface overshoots it is cut to the range of the kept pixels, channel by channel. Computed by
    scikit-image, all channels and all parts of the hole in one system.

    Paper: damelin2018.  Differs: most of a picture may be missing, which leaves little to continue.
    Cost per sample: no passes; 20 ms to delete 10 % of 224 × 224 pixels, 0.2 s for 50 %, 0.7 s for 90 %.
    """

    def applies_to(self, domain: Domain) -> None:
        super().applies_to(domain)
        require(f"fill {self.id}", "skimage")

    def impute(self, domain: ImageDomain, x: Inputs, hole: Bool[np.ndarray, "h w"]) -> Float[np.ndarray, "n c"]:
        from skimage.restoration import inpaint_biharmonic

        known = np.where(hole[..., None], 0.0, planes(domain, x))
        painted: Float[np.ndarray, "n c"] = inpaint_biharmonic(known, hole, channel_axis=-1)[hole]
        return painted
