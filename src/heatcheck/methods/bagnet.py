"""The evidence that a BagNet finds in each patch."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import Batch, Inputs, NotApplicable
from heatcheck.methods.base import Method, method, repeat_rows
from heatcheck.models.architectures.bagnet import BagNet
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe

_STRIDE = 8
"""Pixels from one patch of a published BagNet to the next."""


@method(
    "bagnet",
    family="intrinsic",
    on=("image",),
    uses=("bagnet",),
    elsewhere="it reads the patch scores of a BagNet; try occlusion",
)
@dataclass(frozen=True, kw_only=True, repr=False)
class BagNetEvidence(Method):
    r"""The class score of the patch around each pixel.

    $A(u, v) = f_t\big(x[u - r : u + r,\; v - r : v + r]\big), \quad r = 16$ for BagNet-33; zeros around the picture

    The network's own score is the mean of the map at every eighth pixel from $r$ on (its stride, which small BagNets
    have a smaller one of), as far as patches fit.

    Args:
        fast: use only the patches that the network itself averages, in one pass, and interpolate between their
            centres; at the centres the map is the same.

    Paper: brendel2019.  Differs: the paper runs every patch by itself; here 8 × 8 shifted passes give the same scores.
    Cost per sample: stride² = 64 forwards on a slightly larger picture, or 1 if `fast`.
    """

    fast: bool = False

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b h w"]:
        network = probe.model.module()
        if not isinstance(network, BagNet):
            raise NotApplicable(
                f"needs a BagNet, and {probe.model.name} is none; "
                "try bagnet33@WEIGHTS as the model, or occlusion as the method"
            )
        return self._between_centres(probe, batch, network) if self.fast else self._everywhere(probe, batch, network)

    def passes(self, shape: Shape) -> tuple[int, int]:
        network = shape.model.module() if shape.model is not None else None
        stride = network.stride if isinstance(network, BagNet) else _STRIDE
        return (1 if self.fast else stride**2), 0

    def _between_centres(self, probe: Probe, batch: Batch, network: BagNet) -> Float[Tensor, "b h w"]:
        rows = probe.rows(len(batch))
        seen = torch.cat(
            [maps for _, maps in probe.read_network(rows, batch.x.take, self._reader(probe, batch, rows, network))]
        )
        inside = tuple(network.stride * (n - 1) + 1 for n in seen.shape[1:])
        fine = F.interpolate(seen[:, None], inside, mode="bilinear", align_corners=True)
        height, width = batch.x["pixels"].shape[-2:]
        before = network.patch // 2
        margins = (before, width - inside[1] - before, before, height - inside[0] - before)
        return F.pad(fine, margins, mode="replicate")[:, 0]

    def _everywhere(self, probe: Probe, batch: Batch, network: BagNet) -> Float[Tensor, "b h w"]:
        visible = probe.visible(batch.x)
        pixels = visible["pixels"]
        height, width = pixels.shape[-2:]
        stride = network.stride
        shifts = stride**2
        down, across = math.ceil(height / stride), math.ceil(width / stride)
        tall, broad = (stride * (n - 1) + network.patch for n in (down, across))
        before = network.patch // 2
        rest = stride - 1 - before
        padded = F.pad(pixels, (before, broad + rest - width, before, tall + rest - height))
        rows = repeat_rows(len(batch), shifts, probe.device)

        def make(index: Tensor) -> Inputs:
            places = [(i // shifts, *divmod(i % shifts, stride)) for i in index.tolist()]
            shifted = [padded[row, :, top : top + tall, left : left + broad] for row, top, left in places]
            return visible.take(rows[index]).replace(pixels=torch.stack(shifted))

        found = pixels.new_empty(len(batch), stride, stride, down, across)
        for index, maps in probe.read_network(rows, make, self._reader(probe, batch, rows, network)):
            found.flatten(0, 2)[index] = maps
        return found.permute(0, 3, 1, 4, 2).reshape(len(batch), down * stride, -1)[:, :height, :width]

    def _reader(self, probe: Probe, batch: Batch, rows: Tensor, network: BagNet) -> Callable[[Inputs, Tensor], Tensor]:
        """The explained scalar of each patch of an input."""

        def read(x: Inputs, index: Tensor) -> Float[Tensor, "n i j"]:
            scores = network.evidence(x["pixels"])
            patches = scores.shape[1] * scores.shape[2]
            target = batch.target[rows[index]].repeat_interleave(patches)
            return probe.scalar(scores.flatten(0, 2), target, self.output).reshape(scores.shape[:3])

        return read
