"""What fills share that paint a hole from the pixels around it: one picture at a time, kept pixels untouched."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from heatcheck.core.types import Batch, HeatcheckError, Inputs
from heatcheck.domain.base import Domain
from heatcheck.domain.image import ImageDomain
from heatcheck.fills.base import HostFill


@dataclass(frozen=True, kw_only=True, repr=False)
class Imputation(HostFill):
    """A hole painted from the pixels around it; where nothing is kept, each channel's mean."""

    @abstractmethod
    def impute(self, domain: Any, x: Inputs, hole: Bool[np.ndarray, "h w"]) -> Float[np.ndarray, "n c"]:
        """The values of the hole's pixels, row by row, in one picture that keeps at least one pixel."""

    def full(self, domain: Any, batch: Batch) -> Inputs:
        leaf = domain.leaf(batch.x).detach()
        return domain.with_leaf(batch.x, leaf.mean((2, 3), keepdim=True).expand_as(leaf))  # type: ignore[no-any-return]

    def erase_here(self, domain: Domain, x: Inputs, keep: Shaped[Tensor, "n s"], full: Inputs) -> Inputs:
        if keep.dtype != torch.bool:
            raise HeatcheckError(f"fill='{self.id}' cannot delete a part of a pixel; use zero or blur with soft masks")
        pixels, nothing = domain.leaf(x).detach(), domain.leaf(full)
        painted = pixels.clone(memory_format=torch.contiguous_format)
        for i, hole in enumerate((~keep).reshape(len(x), *pixels.shape[2:])):
            if hole.all():
                painted[i] = nothing[i]
            elif hole.any():
                values = self.impute(domain, x.take(slice(i, i + 1)), hole.numpy())
                painted[i][:, hole] = torch.from_numpy(values.T).to(painted.dtype)
        return domain.with_leaf(x, painted)


def planes(domain: ImageDomain, x: Inputs) -> Float[np.ndarray, "h w c"]:
    """One picture as the model takes it, channels last, in double precision."""
    return domain.leaf(x)[0].detach().permute(1, 2, 0).double().numpy()
