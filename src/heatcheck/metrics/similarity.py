"""Similarity of two maps, for metrics that test whether a map changes when it should."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heatcheck.core.extras import require
from heatcheck.core.types import NotApplicable
from heatcheck.domain.base import Units
from heatcheck.metrics.curves import spearman

SIMILARITIES = ("spearman", "ssim")
WINDOW = 11
"""Sites per side of SSIM's Gaussian window, of standard deviation 1.5."""
CONSTANT_MAP = "the map is constant"


def check_package(how: str) -> None:
    """Raise NotApplicable where the package that computes this similarity is missing."""
    if how == "ssim":
        require("similarity=ssim", "skimage")


def check_similarity(how: str, units: Units, shape: tuple[int, int]) -> None:
    """Raise NotApplicable where this similarity cannot be computed on these units."""
    if how != "ssim":
        return
    sites = shape[0] * shape[1]
    if min(shape) < WINDOW or min(units.counts) != sites or units.width != sites:
        raise NotApplicable(
            f"similarity=ssim needs pictures with pixels as units, at least as large as its windows of {WINDOW} × "
            f"{WINDOW}, but got units={units.name} on {shape[0]} × {shape[1]} sites; use similarity=spearman"
        )


def similarity(
    how: str, before: Float[Tensor, "m b u"], after: Float[Tensor, "m b u"], units: Units, shape: tuple[int, int]
) -> Float[Tensor, "m b"]:
    """Similarity of two maps of each sample; 0 where one of them is constant."""
    each = []
    for i, n in enumerate(units.counts):
        one, two = before[:, i, :n].double(), after[:, i, :n].double()
        each.append(spearman(one, two) if how == "spearman" else _ssim(one, two, shape))
    return torch.stack(each, 1).nan_to_num(0.0)


def varied(values: Float[Tensor, "m b u"], units: Units) -> Bool[Tensor, "m b"]:
    """Which maps are not constant."""
    each = [(values[:, i, :n] != values[:, i, :1]).any(-1) for i, n in enumerate(units.counts)]
    return torch.stack(each, 1)


def _ssim(a: Float[Tensor, "m u"], b: Float[Tensor, "m u"], shape: tuple[int, int]) -> Float[Tensor, " m"]:
    """Structural similarity (Wang 2004) of maps scaled to [0, 1], on the CPU; NaN where one of them is constant."""
    from skimage.metrics import structural_similarity

    found = []
    for one, two in zip(_scaled(a.cpu()), _scaled(b.cpu()), strict=True):
        pair = (one.reshape(shape).numpy(), two.reshape(shape).numpy())
        settings = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1.0}
        flat = bool(one.isnan().any() or two.isnan().any())
        found.append(float("nan") if flat else float(structural_similarity(*pair, **settings)))
    return torch.tensor(found, dtype=torch.float64, device=a.device)


def _scaled(values: Float[Tensor, "m u"]) -> Float[Tensor, "m u"]:
    low, high = values.amin(-1, keepdim=True), values.amax(-1, keepdim=True)
    return (values - low) / (high - low)
