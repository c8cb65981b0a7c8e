"""Fills for texts: what becomes of a deleted token."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Shaped
from torch import Tensor

from heatcheck.core.types import Batch, HeatcheckError, Inputs
from heatcheck.domain.base import Domain
from heatcheck.domain.text import TextDomain, padding_of
from heatcheck.fills.base import Fill, fill


def all_tokens(domain: TextDomain, x: Inputs, token: str, *, attended: bool) -> Inputs:
    """Every token that may go replaced by one id, and hidden from attention if asked."""
    free = domain.deletable(x)
    full = x.replace(ids=torch.where(free, domain.token_id(token), x["ids"]))
    if not attended:
        full = full.replace(attention=torch.where(free, 0, x["attention"]))
    return Inputs({k: v for k, v in full.tensors.items() if k != "embeds"})


@fill("mask", on=("text",))
@dataclass(frozen=True, kw_only=True, repr=False)
class Mask(Fill):
    """The tokenizer's mask token, still attended to."""

    def full(self, domain: TextDomain, batch: Batch) -> Inputs:
        return all_tokens(domain, batch.x, "mask", attended=True)


@fill("unk", on=("text",))
@dataclass(frozen=True, kw_only=True, repr=False)
class Unk(Fill):
    """The tokenizer's unknown-word token, still attended to."""

    def full(self, domain: TextDomain, batch: Batch) -> Inputs:
        return all_tokens(domain, batch.x, "unk", attended=True)


@fill("pad", on=("text",))
@dataclass(frozen=True, kw_only=True, repr=False)
class Pad(Fill):
    """The padding token, hidden from attention; the other tokens keep their positions.

    Paper: li2023.
    """

    def full(self, domain: TextDomain, batch: Batch) -> Inputs:
        return all_tokens(domain, batch.x, "pad", attended=False)


@fill("remove", on=("text",))
@dataclass(frozen=True, kw_only=True, repr=False)
class Remove(Fill):
    """Drop the tokens and close the gap, as if they had never been written."""

    moves: ClassVar[bool] = True

    def full(self, domain: TextDomain, batch: Batch) -> Inputs:
        return all_tokens(domain, batch.x, "pad", attended=False)

    def erase(self, domain: Domain, x: Inputs, keep: Shaped[Tensor, "n s"], full: Inputs) -> Inputs:
        if keep.dtype != torch.bool:
            raise HeatcheckError("fill='remove' cannot delete a part of a token; use mask, pad or unk with soft masks")
        mixed = domain.delete(x, keep, full)
        gone = ~(keep | ~domain.deletable(x))
        behind = padding_of(x)
        if "start" in x:
            behind = behind & (torch.arange(gone.shape[1], device=gone.device) >= x["start"][:, None])
        order = (gone.long() + 2 * behind.long()).argsort(dim=1, stable=True)
        return Inputs({k: _reorder(v, order) for k, v in mixed.tensors.items()})


def _reorder(values: Tensor, order: Tensor) -> Tensor:
    """Values of tokens in another order; what belongs to the whole text stays as it is."""
    if values.ndim == 1:
        return values
    index = order if values.ndim == 2 else order[..., None].expand(-1, -1, values.shape[-1])
    return values.gather(1, index)
