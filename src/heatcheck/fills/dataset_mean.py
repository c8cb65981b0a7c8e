"""The mean colour of a data set."""

from dataclasses import dataclass

import torch

from heatcheck.core.devices import constants
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Inputs, NotApplicable
from heatcheck.domain.image import ImageDomain
from heatcheck.fills.base import Fill, fill


@fill("dataset_mean", on=("image",))
@dataclass(frozen=True, kw_only=True, repr=False)
class DatasetMean(Fill):
    """The mean colour of the data set, ImageNet's if no other is given; in colours from 0 to 1, before normalisation.

    For models that subtract the same mean this is `zero`; for others, such as those normalised by 0.5, it is not.

    Args:
        red: the mean of the red channel.
        green: the mean of the green channel.
        blue: the mean of the blue channel.

    Paper: hooker2019.  Differs: the mean is in the pictures' own units; ROAR's code takes it times 255.
    """

    red: float = 0.485
    green: float = 0.456
    blue: float = 0.406

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in self.params().items():
            if not 0 <= value <= 1:
                raise SpecError(f"{self.id}: {name}={value!r} is not a colour from 0 to 1")

    def full(self, domain: ImageDomain, batch: Batch) -> Inputs:
        leaf = domain.leaf(batch.x)
        if leaf.shape[1] != 3:
            raise NotApplicable(f"{self.id} is a colour of three channels, and these pictures have {leaf.shape[1]}")
        low, high = (bound.double() for bound in domain.bounds(batch.x))
        colour = constants((self.red, self.green, self.blue), torch.float64, batch.device)[None, :, None, None]
        return domain.with_leaf(batch.x, (low + colour * (high - low)).to(leaf.dtype).expand_as(leaf))
