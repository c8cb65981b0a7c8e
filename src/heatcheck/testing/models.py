"""Toy models whose right answers are known: tiny, made from a seed, in double precision unless told otherwise."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from heatcheck.core.types import HeatcheckError, Inputs, Sample
from heatcheck.domain.base import Domain
from heatcheck.domain.image import ImageDomain
from heatcheck.domain.text import TextDomain
from heatcheck.models.architectures.bagnet import BagNet
from heatcheck.models.architectures.bcos import BasicBlock, BcosResNet
from heatcheck.models.torch_model import TorchModel

PAD, CLS, SEP, MASK, UNK, FIRST_WORD = range(6)
"""The toy vocabulary's special ids, and the first that is a word."""

Truth = Callable[[nn.Module, Inputs, Tensor], Tensor]


class Toy(TorchModel):
    """A toy classifier that can make its own inputs and, where effects add up, knows what each site is worth.

    Args:
        network: the classifier.
        name: what messages call it.
        domain: pictures or texts.
        make: one input (batch axis of one) from a generator.
        truth: the exact contribution of each site to the target's logit; None where contributions do not add up.
    """

    def __init__(
        self,
        network: nn.Module,
        name: str,
        domain: Domain,
        make: Callable[[torch.Generator], Inputs],
        truth: Truth | None = None,
    ) -> None:
        super().__init__(network, name, domain, preprocessing="toy")
        self._make = make
        self._truth = truth

    def inputs(self, n: int, seed: int = 0) -> Inputs:
        """`n` inputs; the first ones are the same whatever `n` is."""
        rng = torch.Generator().manual_seed(seed)
        x = Inputs.cat([self._make(rng) for _ in range(n)])
        return Inputs({k: v.to(self.dtype) if v.is_floating_point() else v for k, v in x.tensors.items()})

    def encode(self, sample: Sample) -> Inputs:
        """An input of the toy's own kind that the sample's digest decides; a toy reads neither files nor words."""
        return self.inputs(1, seed=int(sample.digest[:8], 16))

    @property
    def adds_up(self) -> bool:
        """Whether deleting several sites costs the sum of what each costs alone."""
        return self._truth is not None

    def contributions(self, x: Inputs, target: Int[Tensor, " b"]) -> Float[Tensor, "b ..."]:
        """What each site adds to the target's logit, compared with the domain's default fill.

        Where only whole units have a value, it is spread evenly over their sites.
        """
        if self._truth is None:
            raise HeatcheckError(f"{self.name}: contributions do not add up, so there is no true map")
        with torch.no_grad():
            return self._truth(self.module(), x, target)

    def with_network(self, change: Callable[[nn.Module], nn.Module], name: str) -> "Toy":
        """The same toy around a changed copy of its network."""
        return type(self)(change(copy.deepcopy(self.module())), name, self.domain, self._make, self._truth)


class TextToy(Toy):
    """A toy over token ids; its network takes word embeddings and the attention mask."""

    domain: TextDomain

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._own_embedding()

    def _own_embedding(self) -> None:
        self.domain = replace(self.domain, embed=self.module().get_submodule("embed"))

    def call(self, network: nn.Module, x: Inputs) -> Any:
        return network(self.domain.leaf(x), x["attention"])


# -- pictures --------------------------------------------------------------------------------------------------


def linear(shape: tuple[int, int, int] = (3, 8, 8), classes: int = 3, *, seed: int = 0, **options: Any) -> Toy:
    """Pictures under one linear layer without bias: a site's worth is weight × input, summed over channels."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes, bias=False))

    def truth(net: nn.Module, x: Inputs, target: Tensor) -> Tensor:
        return (weights_of(net, x, target) * x["pixels"]).sum(1)

    return _picture_toy(network, "linear", shape, seed, truth=truth, **options)


def weights_of(network: nn.Module, x: Inputs, target: Int[Tensor, " b"]) -> Float[Tensor, "b c h w"]:
    """The weights of a `linear` network's target, in the shape of the picture."""
    return network.get_submodule("1").get_parameter("weight")[target].reshape(x["pixels"].shape)


class Cells(nn.Module):
    """Cells that are each seen through a tanh and then added up: nonlinear within a cell, additive between them."""

    def __init__(self, shape: tuple[int, int, int], classes: int, cells: int, hidden: int = 4) -> None:
        super().__init__()
        self.see = nn.Conv2d(shape[0], hidden, shape[1] // cells, stride=shape[1] // cells, bias=False)
        self.weigh = nn.Linear(hidden * cells * cells, classes, bias=False)

    def worth(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k g g"]:
        """What is seen of each cell."""
        return torch.tanh(self.see(pixels))

    def forward(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n"]:
        out: Tensor = self.weigh(self.worth(pixels).flatten(1))
        return out


def additive(
    shape: tuple[int, int, int] = (3, 8, 8), classes: int = 2, *, cells: int = 4, seed: int = 0, **options: Any
) -> Toy:
    """Pictures whose `grid(cells)` cells add up; what deleting one costs is exactly what it contributes.

    With two classes the second logit is minus the first, so that probability and margin rise with the logit.
    """

    def truth(net: nn.Module, x: Inputs, target: Tensor) -> Tensor:
        if not isinstance(net, Cells):
            raise HeatcheckError("additive: the network was changed, so its true map is not known")
        seen = net.worth(x["pixels"])
        worth = (seen * net.weigh.weight[target].reshape(seen.shape)).sum(1)
        side = shape[1] // cells
        return worth.repeat_interleave(side, 1).repeat_interleave(side, 2) / side**2

    toy = _picture_toy(Cells(shape, classes, cells), "additive", shape, seed, truth=truth, **options)
    _oppose(toy.module().get_submodule("weigh"), classes)
    return toy


def bias_free_relu(shape: tuple[int, int, int] = (3, 8, 8), classes: int = 3, *, seed: int = 0, **options: Any) -> Toy:
    """A convolutional ReLU net without biases: homogeneous, so input × gradient sums to the logit."""
    channels, h, w = shape
    network = nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * h * w, classes, bias=False),
    )
    return _picture_toy(network, "bias_free_relu", shape, seed, **options)


def gap_linear(shape: tuple[int, int, int] = (3, 8, 8), classes: int = 3, *, seed: int = 0, **options: Any) -> Toy:
    """Convolution, ReLU, global average pooling, linear: the network whose CAM is exact."""
    network = nn.Sequential(
        nn.Conv2d(shape[0], 6, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, classes),
    )
    return _picture_toy(network, "gap_linear", shape, seed, **options)


class Same(nn.Module):
    """The same logits for every picture; the gradient exists and is zero."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.empty(classes))

    def forward(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n"]:
        return self.logits + 0 * pixels.flatten(1).sum(1, keepdim=True)


def constant(shape: tuple[int, int, int] = (3, 8, 8), classes: int = 3, *, seed: int = 0, **options: Any) -> Toy:
    """A classifier that does not look: every deletion costs nothing."""

    def truth(_net: nn.Module, x: Inputs, _target: Tensor) -> Tensor:
        return torch.zeros_like(x["pixels"][:, 0])

    return _picture_toy(Same(classes), "constant", shape, seed, truth=truth, **options)


def bcos(shape: tuple[int, int, int] = (3, 16, 16), classes: int = 3, *, seed: int = 0, **options: Any) -> Toy:
    """A small B-cos residual network; its pictures are colours in [0, 1] as they are."""
    network = BcosResNet(BasicBlock, (1, 1), classes, width=4)
    toy = _picture_toy(network, "bcos", shape, seed, **options)

    def make(rng: torch.Generator) -> Inputs:
        return Inputs({"pixels": (toy._make(rng)["pixels"] + 2) / 4})

    return Toy(toy.module(), "bcos", ImageDomain(mean=(0.0,) * 3, std=(1.0,) * 3), make)


def bagnet(shape: tuple[int, int, int] = (3, 20, 20), classes: int = 3, *, seed: int = 0, **options: Any) -> Toy:
    """A small BagNet whose patches are 9 pixels wide."""
    network = BagNet((True, True, False, False), classes, width=2, depths=(1, 1, 1, 1))
    return _picture_toy(network, "bagnet", shape, seed, **options)


class VitBlock(nn.Module):
    """Attention, then two layers on every token, each normalised first and added to the stream."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv = nn.Linear(size, 3 * size)
        self.proj = nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class TinyVit(nn.Module):
    """Patches of 4 × 4 pixels behind a class token, blocks of fused attention, a head on the class token."""

    def __init__(self, shape: tuple[int, int, int], classes: int, depth: int, heads: int, size: int = 8) -> None:
        super().__init__()
        self.patch = nn.Conv2d(shape[0], size, 4, stride=4)
        self.start = nn.Parameter(torch.empty(1, 1, size))
        self.place = nn.Parameter(torch.empty(1, 1 + (shape[1] // 4) * (shape[2] // 4), size))
        self.blocks = nn.Sequential(*(VitBlock(size, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, classes)

    def forward(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n"]:
        patches = self.patch(pixels).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.start.expand(len(pixels), -1, -1), patches], 1) + self.place
        out: Tensor = self.head(self.norm(self.blocks(tokens))[:, 0])
        return out


def tiny_vit(
    shape: tuple[int, int, int] = (3, 8, 12),
    classes: int = 3,
    *,
    depth: int = 2,
    heads: int = 2,
    seed: int = 0,
    **options: Any,
) -> Toy:
    """A small vision transformer with a class token and fused attention, over pictures that are not square."""
    return _picture_toy(TinyVit(shape, classes, depth, heads), "tiny_vit", shape, seed, **options)


def _picture_toy(
    network: nn.Module,
    name: str,
    shape: tuple[int, int, int],
    seed: int,
    *,
    truth: Truth | None = None,
    dtype: torch.dtype = torch.float64,
) -> Toy:
    domain = ImageDomain(mean=(0.5,) * shape[0], std=(0.25,) * shape[0])

    def make(rng: torch.Generator) -> Inputs:
        fine, rough, share = (
            torch.rand(1, *size, generator=rng, dtype=torch.float64) for size in (shape, (shape[0], 2, 2), (1, 1, 1))
        )
        smooth = F.interpolate(rough, shape[1:], mode="bilinear", align_corners=False)
        return Inputs({"pixels": (share * fine + (1 - share) * smooth) * 4 - 2})

    return Toy(fill_weights(network, seed, dtype), name, domain, make, truth)


# -- texts -----------------------------------------------------------------------------------------------------


class Words(nn.Module):
    """Attended tokens, each read on its own, added up."""

    def __init__(self, vocabulary: int, size: int, classes: int, read: nn.Module, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size)
        self.read = read
        self.weigh = nn.Linear(hidden, classes, bias=False)

    def worth(self, embeds: Float[Tensor, "b t d"], attention: Int[Tensor, "b t"]) -> Float[Tensor, "b t k"]:
        """What is read from each token."""
        seen: Tensor = self.read(embeds)
        return seen * attention[..., None].to(seen.dtype)

    def forward(self, embeds: Float[Tensor, "b t d"], attention: Int[Tensor, "b t"]) -> Float[Tensor, "b n"]:
        out: Tensor = self.weigh(self.worth(embeds, attention).sum(1))
        return out


def _words_truth(net: nn.Module, x: Inputs, target: Tensor) -> Tensor:
    if not isinstance(net, Words):
        raise HeatcheckError("the network was changed, so its true map is not known")
    embeds = x["embeds"] if "embeds" in x else net.embed(x["ids"])
    worth = (net.worth(embeds, x["attention"]) * net.weigh.weight[target][:, None]).sum(-1)
    return worth * ~x["special"]


def bag_of_words(tokens: int = 12, classes: int = 3, *, seed: int = 0, **options: Any) -> TextToy:
    """Texts under a linear model of their words: a token's worth is the weight of its embedding."""
    return _text_toy(Words(24, 6, classes, nn.Identity(), 6), "bag_of_words", tokens, seed, _words_truth, **options)


def additive_text(tokens: int = 12, classes: int = 2, *, seed: int = 0, **options: Any) -> TextToy:
    """Texts whose tokens add up, each seen through a tanh; two classes are opposites, as in `additive`."""
    read = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Tanh())
    toy = _text_toy(Words(24, 6, classes, read, 4), "additive_text", tokens, seed, _words_truth, **options)
    _oppose(toy.module().get_submodule("weigh"), classes)
    return toy


class OneHead(nn.Module):
    """Embedding, one attention head, a linear layer on what [CLS] gathers."""

    def __init__(self, vocabulary: int, tokens: int, size: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size)
        self.place = nn.Embedding(tokens, size)
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        self.classify = nn.Linear(size, classes)

    def weights(self, embeds: Float[Tensor, "b t d"], attention: Int[Tensor, "b t"]) -> Float[Tensor, "b t t"]:
        """The head's attention; rows sum to one, and hidden tokens get none of it."""
        seen = embeds + self.place.weight
        match: Tensor = self.query(seen) @ self.key(seen).transpose(1, 2) / seen.shape[-1] ** 0.5
        return match.masked_fill(attention[:, None] == 0, -torch.inf).softmax(-1)

    def forward(self, embeds: Float[Tensor, "b t d"], attention: Int[Tensor, "b t"]) -> Float[Tensor, "b n"]:
        gathered = self.weights(embeds, attention) @ self.value(embeds + self.place.weight)
        out: Tensor = self.classify(gathered[:, 0])
        return out


def one_head_attention(tokens: int = 12, classes: int = 3, *, seed: int = 0, **options: Any) -> TextToy:
    """Texts under embeddings, one attention head and a linear layer."""
    return _text_toy(OneHead(24, tokens, 8, classes), "one_head_attention", tokens, seed, None, **options)


class BertBlock(nn.Module):
    """Attention between the tokens that are not hidden, then two layers on every token, each normalised afterwards."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(size, 3 * size)
        self.proj = nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.ReLU(), nn.Linear(2 * size, size))
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)

    def forward(self, x: Float[Tensor, "b t d"], seen: Bool[Tensor, "b 1 1 t"]) -> Float[Tensor, "b t d"]:
        b, t, d = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        gathered = F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).reshape(b, t, d)
        x = self.norm1(x + self.proj(gathered))
        out: Tensor = self.norm2(x + self.mlp(x))
        return out


class TinyBert(nn.Module):
    """Word and position embeddings under a LayerNorm, blocks of fused attention, a head on [CLS]."""

    def __init__(self, vocabulary: int, longest: int, size: int, classes: int, depth: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size)
        self.place = nn.Embedding(longest, size)
        self.norm = nn.LayerNorm(size)
        self.blocks = nn.ModuleList(BertBlock(size, heads) for _ in range(depth))
        self.head = nn.Linear(size, classes)

    def forward(self, embeds: Float[Tensor, "b t d"], attention: Int[Tensor, "b t"]) -> Float[Tensor, "b n"]:
        tokens = self.norm(embeds + self.place.weight[: embeds.shape[1]])
        for block in self.blocks:
            tokens = block(tokens, attention[:, None, None] > 0)
        out: Tensor = self.head(tokens[:, 0])
        return out


def tiny_bert(
    tokens: int = 16,
    classes: int = 3,
    *,
    longest: int = 512,
    depth: int = 2,
    heads: int = 2,
    seed: int = 0,
    **options: Any,
) -> TextToy:
    """Texts under a small encoder like BERT's, which reads texts padded to any width up to `longest`.

    Its embeddings go straight into a LayerNorm, so that the gradient of each sums to zero over its coordinates.
    """
    network = TinyBert(24, longest, 8, classes, depth, heads)
    return _text_toy(network, "tiny_bert", tokens, seed, None, **options)


def _text_toy(
    network: nn.Module,
    name: str,
    tokens: int,
    seed: int,
    truth: Truth | None,
    *,
    dtype: torch.dtype = torch.float64,
) -> TextToy:
    filled = fill_weights(network, seed, dtype)
    domain = TextDomain(embed=filled.get_submodule("embed"), pad=PAD, mask=MASK, unk=UNK)
    vocabulary = filled.get_parameter("embed.weight").shape[0]

    def make(rng: torch.Generator) -> Inputs:
        length = int(torch.randint(tokens - 6, tokens - 2, (1,), generator=rng))
        words = torch.randperm(vocabulary - FIRST_WORD, generator=rng)[:length] + FIRST_WORD
        return text_inputs(words, tokens)

    return TextToy(filled, name, domain, make, truth)


def text_inputs(words: Int[Tensor, " n"], tokens: int) -> Inputs:
    """`[CLS] words [SEP] padding` as a toy takes it; every second token begins a word, every fourth a sentence."""
    n, room = len(words), tokens - len(words) - 2
    if room < 0:
        raise HeatcheckError(f"{n} words and [CLS], [SEP] do not fit into {tokens} tokens")
    ids = torch.cat([torch.tensor([CLS]), words, torch.tensor([SEP]), torch.full((room,), PAD)])[None]
    place = torch.arange(tokens)[None] - 1
    special: Bool[Tensor, "1 t"] = ids < FIRST_WORD
    return Inputs(
        {
            "ids": ids,
            "attention": (ids != PAD).long(),
            "special": special,
            "word": torch.where(special, -1, place // 2),
            "sentence": torch.where(special, -1, place // 4),
        }
    )


def padded(x: Inputs, tokens: int) -> Inputs:
    """The same texts with padding up to `tokens` tokens."""
    blank = {"ids": PAD, "attention": 0, "special": True, "word": -1, "sentence": -1}
    room = tokens - x["ids"].shape[1]
    return Inputs({name: F.pad(v, (0, room), value=blank[name]) for name, v in x.tensors.items()})


# -- weights ---------------------------------------------------------------------------------------------------


def fill_weights(network: nn.Module, seed: int, dtype: torch.dtype) -> nn.Module:
    """Normal weights scaled by fan-in, drawn in double precision from the seed, then cast."""
    rng = torch.Generator().manual_seed(seed)
    network = network.double()
    with torch.no_grad():
        for weight in network.parameters():
            fan_in = max(1, weight[0].numel()) if weight.ndim > 1 else 4
            weight.copy_(torch.randn(weight.shape, generator=rng, dtype=torch.float64) * (2 / fan_in) ** 0.5)
    return network.to(dtype)


def _oppose(layer: nn.Module, classes: int) -> None:
    if classes == 2:
        with torch.no_grad():
            weight = layer.get_parameter("weight")
            weight[1] = -weight[0]
