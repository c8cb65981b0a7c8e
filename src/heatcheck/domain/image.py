"""Pictures: sites are pixels, the leaf is the normalised tensor."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from heatcheck.core.devices import CPU, constants
from heatcheck.core.extras import require
from heatcheck.core.types import HeatcheckError, Inputs, Modality, NotApplicable
from heatcheck.domain.base import Domain, Units, Windows, parse_units, reduce_over

MODALITY = "image"
UNITS = {
    "pixel": ("pixel", "Each pixel alone."),
    "grid": ("grid(n)", "n × n square cells, n = 4 if not given."),
    "slic": ("slic(n)", "About n SLIC superpixels, n = 50 if not given."),
    "quickshift": ("quickshift", "Quickshift superpixels."),
}
"""What can be deleted together, by id: how it is written, and what it is."""
HOST_UNITS = ("slic", "quickshift")
"""Superpixels, which scikit-image computes on the CPU alone: from another device each batch goes there and back once."""
GRID = 4
"""The cells along each side of a grid that names no number."""
UNIT_ROLES = {"site": "pixel", "cell": "grid(4)", "patch": "grid(8)", "segment": "slic(50)", "region": "slic(100)"}


@dataclass(frozen=True, kw_only=True)
class ImageDomain(Domain):
    """Pictures as `pixels[b, c, h, w]`, normalised as the model wants them.

    Args:
        mean: channel means subtracted by the model's preprocessing; None if it is not known.
        std: channel deviations it divides by.
    """

    modality: ClassVar[Modality] = Modality.IMAGE
    roles: ClassVar[Mapping[str, str]] = UNIT_ROLES
    usual_levels: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "fill": ("zero", "blur", "channel_mean"),
        "units": ("pixel", "grid(8)"),
    }
    windowed: ClassVar[tuple[str, ...]] = ("grid",)
    map_axes: ClassVar[int] = 3
    default_fill: ClassVar[str] = "zero"
    insertion_fill: ClassVar[str] = "blur(kernel=11, sigma=5.0)"

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def shape(self, x: Inputs) -> tuple[int, int]:
        h, w = x["pixels"].shape[-2:]
        return h, w

    def leaf(self, x: Inputs) -> Float[Tensor, "b c h w"]:
        return x["pixels"]

    def with_leaf(self, x: Inputs, leaf: Float[Tensor, "b c h w"]) -> Inputs:
        return x.replace(pixels=leaf)

    def reduce(self, values: Float[Tensor, "b c h w"], how: str) -> Float[Tensor, "b h w"]:
        return reduce_over(values, how, 1)

    def deletable(self, x: Inputs) -> Bool[Tensor, "b s"]:
        h, w = self.shape(x)
        return torch.ones(1, 1, dtype=torch.bool, device=x.device).expand(len(x), h * w)

    def fixed(self, x: Inputs) -> None:
        return None

    def normalise(self, colour: float, x: Inputs) -> Float[Tensor, "1 c 1 1"]:
        """A grey level in [0, 1] as the model's preprocessing would hand it over."""
        if self.mean is None or self.std is None:
            raise HeatcheckError(
                "this fill is defined in pixel space, but the model's normalisation is not known: "
                "pass preprocess=hc.Preprocess(mean=…, std=…)"
            )
        dtype = x["pixels"].dtype
        mean, std = (constants(v, dtype, x.device)[None, :, None, None] for v in (self.mean, self.std))
        return (colour - mean) / std

    def bounds(self, x: Inputs) -> tuple[Float[Tensor, "1 c 1 1"], Float[Tensor, "1 c 1 1"]]:
        if self.mean is None or self.std is None:
            raise NotApplicable(
                "needs the range of pixels, but the model's normalisation is not known: "
                "pass preprocess=hc.Preprocess(mean=…, std=…)"
            )
        return self.normalise(0.0, x), self.normalise(1.0, x)

    def to_rgb(self, x: Inputs) -> Float[Tensor, "b h w c"]:
        """Colours in [0, 1]; min-max scaled where the normalisation is not known."""
        pixels = x["pixels"].detach().float().cpu()
        if self.mean is None or self.std is None:
            low, high = pixels.amin((1, 2, 3), keepdim=True), pixels.amax((1, 2, 3), keepdim=True)
            rgb = (pixels - low) / (high - low).clamp_min(1e-12)
        else:
            mean, std = (torch.tensor(v)[None, :, None, None] for v in (self.mean, self.std))
            rgb = pixels * std + mean
        return rgb.clamp(0, 1).permute(0, 2, 3, 1)

    def wrap(self, x: Any) -> Inputs:
        if not isinstance(x, Tensor) or x.ndim not in (3, 4) or not x.is_floating_point():
            given = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise HeatcheckError(f"expected pictures as a float tensor [b, c, h, w], got {given}")
        return Inputs({"pixels": x if x.ndim == 4 else x[None]})

    def display(self, x: Inputs) -> dict[str, Any]:
        rgb = self.to_rgb(x.take(slice(0, 1)))[0]
        if rgb.shape[-1] != 3:
            rgb = rgb.mean(-1, keepdim=True).expand(-1, -1, 3)
        return {"kind": "image", "rgb": (rgb * 255).round().to(torch.uint8).contiguous()}

    def check_units(self, name: str) -> None:
        super().check_units(name)
        if name.partition("(")[0] in HOST_UNITS:
            require(f"units={name}", "skimage")

    def partition(self, kind: str, n: int | None, x: Inputs) -> tuple[Int[Tensor, "b s"], int]:
        h, w = self.shape(x)
        if kind == "pixel":
            return torch.arange(h * w, device=x.device).expand(len(x), -1), h * w
        if kind == "grid":
            side = n or GRID
            if side > min(h, w):
                raise HeatcheckError(f"units=grid({side}) has more cells per side than a {h}×{w} picture has pixels")
            cell = grid_cells(h, w, side, x.device)
            return cell.flatten().expand(len(x), -1), side * side
        if kind in HOST_UNITS:
            labels = [superpixels(kind, n or 50, rgb) for rgb in self.to_rgb(x)]
            index = torch.stack(labels).flatten(1)
            return index.to(x.device), int(index.max()) + 1
        raise self.unknown_units(kind)

    def mix(self, x: Inputs, keep: Shaped[Tensor, "b s"], full: Inputs) -> Inputs:
        pixels, gone = x["pixels"], full["pixels"]
        mask = keep.reshape(len(pixels), 1, *pixels.shape[-2:])
        if keep.dtype == torch.bool:
            return x.replace(pixels=torch.lerp(gone, pixels, mask.to(pixels.dtype)))  # exact, and faster than where
        mask = mask.to(pixels.dtype)
        return x.replace(pixels=mask * pixels + (1 - mask) * gone)

    def windows(self, x: Inputs) -> Windows:
        """Squares of side H/7, 2H/7 and 4H/7 of the shorter side H, stride H/28, fully inside: M4's 1,235 at 224."""
        h, w = self.shape(x)
        box = squares(h, w, x.device).expand(len(x), -1, -1)
        return Windows(box, torch.ones(box.shape[:2], dtype=torch.bool, device=x.device), (h, w))

    def unit_windows(self, units: Units, x: Inputs) -> list[list[tuple[int, ...]]]:
        """Squares of a grid's cells, of the sizes that squares of pixels have on a picture with as many; none twice."""
        kind, n = parse_units(units.name)
        if kind != "grid":
            return super().unit_windows(units, x)
        side = n or GRID
        cells = torch.arange(side * side).reshape(side, side)
        boxes = squares(side, side, CPU).tolist()
        found = dict.fromkeys(
            tuple(cells[top:bottom, left:right].flatten().tolist()) for top, bottom, left, right in boxes
        )
        return [list(found)] * len(x)

    def dilate(self, masks: Bool[Tensor, "n s"], x: Inputs, size: int) -> Bool[Tensor, "n s"]:
        """Masks after a maximum over `size` × `size` pixels; `size` is odd."""
        grid = masks.reshape(len(masks), 1, *self.shape(x)).float()
        return F.max_pool2d(grid, size, stride=1, padding=size // 2).flatten(1) > 0

    def layout(self, values: Float[Tensor, "b h w"], x: Inputs, interpolation: str) -> Float[Tensor, "b s"]:
        h, w = self.shape(x)
        if values.shape[-2:] == (h, w):
            return values.flatten(1)
        if interpolation == "nearest":
            up = F.interpolate(values[:, None], (h, w), mode="nearest-exact")
        else:
            up = enlarged(enlarged(values, h).transpose(1, 2), w).transpose(1, 2)
        return up.flatten(1)

    def as_map(self, sites: Float[Tensor, "b s"], x: Inputs) -> Float[Tensor, "b h w"]:
        return sites.reshape(len(sites), *self.shape(x))

    def edges(self, x: Inputs) -> Float[Tensor, "b s"]:
        """Sobel gradient magnitude of the mean channel."""
        grey = x["pixels"].mean(1, keepdim=True)
        weights = (1.0, 0.0, -1.0, 2.0, 0.0, -2.0, 1.0, 0.0, -1.0)
        sobel = constants(weights, grey.dtype, grey.device).reshape(3, 3) / 4
        kernel = torch.stack([sobel, sobel.T])[:, None]
        slopes = F.conv2d(F.pad(grey, (1, 1, 1, 1), mode="replicate"), kernel)
        return slopes.square().sum(1).sqrt().flatten(1)


def enlarged(values: Float[Tensor, "b h w"], n: int) -> Float[Tensor, "b n w"]:
    """Rows interpolated to `n` as `F.interpolate` does, but exactly: between equal values it gives that value."""
    h = values.shape[1]
    at = ((torch.arange(n, dtype=torch.float64, device=values.device) + 0.5) * h / n - 0.5).clamp_min(0)
    above = at.long()
    below = (above + 1).clamp_max(h - 1)
    return torch.lerp(values[:, above], values[:, below], (at - above).to(values.dtype)[:, None])


def squares(h: int, w: int, device: torch.device) -> Int[Tensor, "k 4"]:
    """Top, bottom, left and right of the squares of three sizes in a picture of h × w, or a grid of as many cells."""
    short = min(h, w)
    stride = max(1, round(short / 28))
    boxes = []
    for side in (max(1, round(short * k / 7)) for k in (1, 2, 4)):
        starts = [torch.arange(0, edge - side + 1, stride, device=device) for edge in (h, w)]
        top, left = (start.flatten() for start in torch.meshgrid(*starts, indexing="ij"))
        boxes.append(torch.stack([top, top + side, left, left + side], 1))
    return torch.cat(boxes)


def grid_cells(h: int, w: int, side: int, device: torch.device = CPU) -> Int[Tensor, "h w"]:
    """The cell of each pixel; cells are ⌊h/side⌋ × ⌊w/side⌋, and what is left over belongs to none (-1)."""
    y, x = torch.arange(h, device=device) // (h // side), torch.arange(w, device=device) // (w // side)
    cell = y[:, None] * side + x[None, :]
    return torch.where((y[:, None] < side) & (x[None, :] < side), cell, -1)


def superpixels(kind: str, n: int, rgb: Float[Tensor, "h w c"]) -> Int[Tensor, "h w"]:
    """Segments of one picture, numbered from zero. The number asked for is not always the number got."""
    require(f"units={kind}", "skimage")
    from skimage import segmentation

    picture = rgb.numpy().astype(np.float64)
    if picture.shape[-1] != 3:
        picture = np.repeat(picture.mean(-1, keepdims=True), 3, axis=-1)
    if kind == "slic":
        labels = segmentation.slic(picture, n_segments=n, compactness=10, start_label=0, channel_axis=-1)
    else:
        labels = segmentation.quickshift(picture, kernel_size=5, max_dist=10, ratio=1.0, sigma=1.0, rng=0)
    _, compact = np.unique(labels, return_inverse=True)
    segments = torch.from_numpy(compact.reshape(labels.shape))
    if int(segments.max()) < 1:
        h, w = segments.shape
        return grid_cells(h, w, max(1, min(h, w, round(n**0.5))))
    return segments
