"""A vision transformer for small pictures.

Paper: Dosovitskiy et al. 2021, An Image is Worth 16×16 Words; weights begin as in Touvron et al. 2021 (DeiT). Names
follow timm.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from heatcheck.core.types import HeatcheckError
from heatcheck.models.architectures.fresh import FreshNetwork

_SPREAD = 0.02
"""Deviation of the weights at the start."""
_HIDDEN = 4
"""How many times wider the layer between the two linear layers of a block is."""


class Attention(nn.Module):
    """Every token looks at every token, in several heads."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        b, t, d = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed: Tensor = self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return mixed


class TransformerBlock(nn.Module):
    """Attention, then two linear layers on every token, each normalised first and added to the stream."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, _HIDDEN * dim), nn.GELU(), nn.Linear(_HIDDEN * dim, dim))

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        x = x + self.attn(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class SmallVit(FreshNetwork):
    """A vision transformer with a class token and learnt positions.

    Args:
        patch: rows and columns of a patch.
        dim: size of a token.
        depth: blocks.
        heads: of each attention layer.
        classes: how many it tells apart.
        size: rows and columns of the pictures.
    """

    def __init__(self, *, patch: int, dim: int, depth: int, heads: int, classes: int, size: int) -> None:
        super().__init__()
        if size % patch:
            raise HeatcheckError(f"patch={patch} does not divide size={size}")
        if dim % heads:
            raise HeatcheckError(f"heads={heads} does not divide dim={dim}")
        self.patch_embed = nn.Conv2d(3, dim, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + (size // patch) ** 2, dim))
        self.blocks = nn.Sequential(*(TransformerBlock(dim, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b n"]:
        patches = self.patch_embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token.expand(len(x), -1, -1), patches], 1) + self.pos_embed
        scores: Tensor = self.head(self.norm(self.blocks(tokens))[:, 0])
        return scores

    def initialise(self) -> None:
        super().initialise()
        nn.init.trunc_normal_(self.cls_token, std=_SPREAD)
        nn.init.trunc_normal_(self.pos_embed, std=_SPREAD)

    def draw(self, module: nn.Module) -> None:
        super().draw(module)
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=_SPREAD)
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="linear")
