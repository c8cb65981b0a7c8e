"""The mean colour of a pixel's own segment."""

from dataclasses import dataclass

from heatcheck.core.types import Batch, Inputs
from heatcheck.domain.image import ImageDomain
from heatcheck.fills.base import Fill, fill


@fill("superpixel_mean", on=("image",), host=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class SuperpixelMean(Fill):
    """Each pixel takes the mean colour of the segment that it lies in; each picture has segments of its own.

    Args:
        units: the segments; about 50 superpixels. For LIME's own deletion, those that LIME deletes.

    Paper: ribeiro2016.  Differs: the mean is not rounded to bytes.
    """

    units: str = "segment"

    def full(self, domain: ImageDomain, batch: Batch) -> Inputs:
        leaf = domain.leaf(batch.x)
        slot = domain.units(self.units, batch.x).slot[:, None].expand(-1, leaf.shape[1], -1)
        colour = leaf.flatten(2).double()
        empty = colour.new_zeros(*colour.shape[:2], int(slot.max()) + 1)
        total = empty.scatter_add(2, slot, colour)
        area = empty.scatter_add(2, slot, colour.new_ones(()).expand_as(colour))
        mean = total / area.clamp_min(1)
        return domain.with_leaf(batch.x, mean.gather(2, slot).to(leaf.dtype).reshape(leaf.shape))
