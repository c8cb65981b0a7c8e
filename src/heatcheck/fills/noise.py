"""Gaussian noise in leaf space, for every modality."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Inputs
from heatcheck.domain.base import Domain
from heatcheck.fills.base import Fill, fill


@fill("noise", on=("image", "text"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Noise(Fill):
    """Noise from N(0, sigma²) in normalised space, one draw per sample, the same for every deletion.

    On texts, in the space of word embeddings, whose values are often far below 1; special tokens keep theirs.

    Args:
        sigma: the noise's deviation.
        additive: whether the noise is added to what is deleted instead of replacing it.
        shared: whether one draw serves all samples of a shape.
    """

    random: ClassVar[bool] = True

    sigma: float = 1.0
    additive: bool = False
    shared: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sigma >= 0:
            raise SpecError(f"{self.id}: sigma={self.sigma!r} is a deviation and cannot be negative")

    def full(self, domain: Domain, batch: Batch) -> Inputs:
        leaf = domain.leaf(batch.x).detach()
        streams = batch.streams.shared() if self.shared else batch.streams

        def draw(row: int, shape: Sequence[int]) -> Tensor:
            return torch.randn(tuple(shape), generator=streams.generator(row, "fill"), dtype=torch.float64)

        noise = domain.leaf_noise(batch.x, draw) * self.sigma
        noisy = (leaf + noise if self.additive else noise).to(leaf.dtype)
        nothing = torch.zeros_like(domain.deletable(batch.x))
        return domain.delete(batch.x, nothing, domain.with_leaf(batch.x, noisy))
