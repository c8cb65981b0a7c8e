"""ROAD's noisy linear imputation."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from scipy import sparse
from scipy.sparse.linalg import splu
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Inputs
from heatcheck.domain.base import Domain
from heatcheck.domain.image import ImageDomain
from heatcheck.fills.base import fill
from heatcheck.fills.imputation import Imputation, planes

BESIDE, ACROSS = 1 / 6, 1 / 12
"""The weights of a pixel's four direct neighbours and of its four diagonal ones."""


@fill("linear", on=("image",), host=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class Linear(Imputation):
    r"""Each deleted pixel is the weighted mean of its eight neighbours, deleted ones included, plus a little noise.

    $\sum_{j \in N_8(i)} w_{ij}\,(x_i - x_j) = 0$, with w = 1/6 beside and 1/12 across; outside the picture is nothing.
    The noise keeps a smooth hole from being recognised by its smoothness: one draw per sample, the same for every
    deletion, on deleted pixels alone. Where everything is deleted, each channel's mean stands in for the solution.

    Args:
        noise: the noise's deviation, in colours from 0 to 1; 0 for none.

    Paper: rong2022.  Differs: one draw per sample instead of one per call; all deleted has a meaning.
    Cost per sample: no passes; 5 ms to delete 10 % of 224 × 224 pixels, 45 ms for 50 %, 120 ms for 90 %.
    """

    random: ClassVar[bool] = True

    noise: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.noise >= 0:
            raise SpecError(f"{self.id}: noise={self.noise!r} is a deviation and cannot be negative")

    def full(self, domain: ImageDomain, batch: Batch) -> Inputs:
        full = super().full(domain, batch)
        if not self.noise:
            return full
        mean = domain.leaf(full)
        low, high = domain.bounds(batch.x)
        shape = tuple(mean.shape[1:])
        draw = batch.streams.draw("fill", lambda g: torch.randn(shape, generator=g, dtype=torch.float64))
        noise = (self.noise * (high - low) * draw).to(mean.dtype)
        return domain.with_leaf(full, mean + noise).replace(noise=noise)

    def erase(self, domain: Domain, x: Inputs, keep: Shaped[Tensor, "n s"], full: Inputs) -> Inputs:
        smooth = super().erase(domain, x, keep, full)
        if not self.noise:
            return smooth
        pixels = domain.leaf(smooth)
        hole = ~keep & keep.any(1, keepdim=True)  # the full deletion has its noise already
        noisy = torch.where(hole.reshape(len(x), 1, *pixels.shape[2:]), pixels + full["noise"], pixels)
        return domain.with_leaf(x, noisy)

    def impute(self, domain: ImageDomain, x: Inputs, hole: Bool[np.ndarray, "h w"]) -> Float[np.ndarray, "n c"]:
        return neighbour_means(planes(domain, x), hole)


def neighbour_means(picture: Float[np.ndarray, "h w c"], hole: Bool[np.ndarray, "h w"]) -> Float[np.ndarray, "n c"]:
    """The values at which each pixel of the hole, row by row, is the weighted mean of its neighbours.

    One sparse factorisation serves all channels. Pixels are numbered in the order of a nested dissection of the grid,
    which keeps the factors small; a frame around the picture spares the border from being a special case.
    """
    order, weight = grid_system(*hole.shape)
    gone = order[hole.ravel()[order]]
    stride = hole.shape[1] + 2
    at = gone + 2 * (gone // hole.shape[1]) + stride + 1  # in the frame
    number = np.full((hole.shape[0] + 2) * stride, -1, dtype=np.int32)
    number[at] = np.arange(len(at), dtype=np.int32)
    steps = np.array([0, -1, 1, -stride, stride, -stride - 1, -stride + 1, stride - 1, stride + 1], dtype=np.int32)
    near = number[at[:, None] + steps]
    value = np.empty(near.shape)
    value[:, 0], value[:, 1:5], value[:, 5:] = weight[gone], -BESIDE, -ACROSS
    there = near >= 0
    ends = np.concatenate([[0], there.sum(1).cumsum()]).astype(np.int32)
    system = sparse.csc_array((value[there], near[there], ends), shape=(len(at), len(at)))  # symmetric: rows as columns
    known = neighbour_sums(np.where(hole[..., None], 0.0, picture)).reshape(-1, picture.shape[2])[gone]
    factors = splu(
        system,
        permc_spec="NATURAL",
        diag_pivot_thresh=0.0,  # diagonally dominant: nothing need be swapped
        relax=4,
        panel_size=4,
        options={"SymmetricMode": True, "Equil": False},
    )
    row_by_row = number.reshape(-1, stride)[1:-1, 1:-1][hole]
    found: Float[np.ndarray, "n c"] = factors.solve(known)[row_by_row]
    return found


def neighbour_sums(picture: Float[np.ndarray, "h w c"]) -> Float[np.ndarray, "h w c"]:
    """The weighted sum of each pixel's eight neighbours; outside the picture is zero."""
    p = np.pad(picture, ((1, 1), (1, 1), (0, 0)))
    beside = p[1:-1, :-2] + p[1:-1, 2:] + p[:-2, 1:-1] + p[2:, 1:-1]
    across = p[:-2, :-2] + p[:-2, 2:] + p[2:, :-2] + p[2:, 2:]
    sums: Float[np.ndarray, "h w c"] = BESIDE * beside + ACROSS * across
    return sums


@lru_cache(maxsize=16)
def grid_system(h: int, w: int) -> tuple[Int[np.ndarray, " s"], Float[np.ndarray, " s"]]:
    """All pixels of a picture in the order of elimination, and the sum of the weights of each one's neighbours."""
    weight = neighbour_sums(np.ones((h, w, 1))).ravel()
    order = np.array(dissected(np.arange(h * w).reshape(h, w)), dtype=np.int32)
    return order, weight


def dissected(grid: Int[np.ndarray, "h w"], leaf: int = 3) -> list[int]:
    """Nested dissection: both halves first, then the line of pixels that parts them."""
    if max(grid.shape) <= leaf or not grid.size:
        return [int(site) for site in grid.ravel()]
    if grid.shape[0] < grid.shape[1]:
        grid = grid.T
    middle = len(grid) // 2
    return dissected(grid[:middle]) + dissected(grid[middle + 1 :]) + [int(site) for site in grid[middle]]
