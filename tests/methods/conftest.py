"""Small networks, batches around plain tensors, and a way to ask for a method's values by its spec."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.types import Batch, Inputs, Streams, digest_of_tensor
from heatcheck.domain.image import ImageDomain
from heatcheck.models.text import TextModel
from heatcheck.models.torch_model import TorchModel
from heatcheck.models.vision_shim import load_transformers
from heatcheck.testing.models import fill_weights
from heatcheck.testing.scenes import probe_for


def network(seed=0, *, act=nn.Tanh, classes=3, side=8, dtype=torch.float64):
    """Convolution, activation, a smaller convolution, linear: small and thoroughly non-linear."""
    layers = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), act(), nn.Conv2d(4, 5, 3, stride=2, padding=1), act(),
        nn.Flatten(), nn.Linear(5 * (side // 2) ** 2, classes),
    )  # fmt: skip
    return fill_weights(layers, seed, dtype)


def pictures(n=3, seed=0, side=8, dtype=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, side, side, generator=rng, dtype=torch.float64).to(dtype)


def batch(x, target=None, seed=0):
    target = torch.arange(len(x)) % 2 if target is None else torch.as_tensor(target)
    digests = tuple(digest_of_tensor(row) for row in x)
    return Batch(Inputs({"pixels": x}), target, target.clone(), Streams(seed, digests))


def wrap(net):
    return TorchModel(net, "net", ImageDomain())


def explain(spec, model, samples, *, forward=4, backward=4):
    """The attribution that a method gives; plain networks and tensors are wrapped."""
    model = wrap(model) if isinstance(model, nn.Module) else model
    samples = batch(samples) if isinstance(samples, torch.Tensor) else samples
    return catalogue.build("method", spec)(probe_for(model, forward=forward, backward=backward), samples)


def raw(spec, model, samples, **sizes):
    """Values before reduction and post-processing, as `attribute` gives them."""
    model = wrap(model) if isinstance(model, nn.Module) else model
    samples = batch(samples) if isinstance(samples, torch.Tensor) else samples
    return catalogue.build("method", spec).resolve(model.domain).attribute(probe_for(model, **sizes), samples)


def slope(net, x, target):
    """The gradient of one logit at one picture, the plain way."""
    x = x.detach().clone().requires_grad_()
    net(x[None])[0, target].backward(inputs=[x])
    return x.grad


@pytest.fixture(scope="session")
def lab():
    """Everything above, where tests can reach it."""
    return SimpleNamespace(
        network=network, pictures=pictures, batch=batch, wrap=wrap, explain=explain, raw=raw, slope=slope
    )


WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "good",
    "bad",
    "film",
    "##s",
    "the",
    "was",
    "it",
    "is",
    ".",
    "!",
    ",",
]


@pytest.fixture(scope="session")
def text_model(tmp_path_factory):
    """Small classifiers of transformers with a tokenizer of 16 tokens: `text_model("Roberta")`."""
    transformers = load_transformers()
    vocabulary = tmp_path_factory.mktemp("tokenizer") / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS))
    sizes = {
        "vocab_size": len(WORDS), "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 12, "max_position_embeddings": 40, "pad_token_id": 0,
    }  # fmt: skip
    their_names = {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12}

    def make(kind, longest=32):
        tokenizer = transformers.BertTokenizerFast(str(vocabulary), do_lower_case=True, model_max_length=longest)
        config = getattr(transformers, f"{kind}Config")(**sizes, **(their_names if kind == "DistilBert" else {}))
        network = getattr(transformers, f"{kind}ForSequenceClassification")(config).eval()
        fill_weights(network, 1, torch.float64)
        return TextModel(network, tokenizer, kind)

    return make


class SlowVit:
    """One picture through the network of `tiny_vit`, one head at a time, with all that the papers' formulas name.

    `weights[l][h]` is the attention of head h in layer l, `values[l]` what tokens hand over (all heads),
    `entered[l]` and `left[l]` the tokens before and behind a block.
    """

    def __init__(self, net, pixels):
        self.net, self.weights, self.values, self.entered, self.left = net, [], [], [], []
        pixels = pixels.detach().clone().requires_grad_()
        patches = net.patch(pixels[None]).flatten(2).transpose(1, 2)[0]
        x = torch.cat([net.start[0], patches]) + net.place[0]
        for block in net.blocks:
            self.entered.append(x)
            x = self.block(block, x)
            self.left.append(x)
        self.logits = self.head(x)

    def block(self, block, x):
        q, k, v = block.qkv(block.norm1(x)).chunk(3, -1)
        size = q.shape[-1] // block.heads
        maps, mixed = [], []
        for h in range(block.heads):
            part = slice(h * size, (h + 1) * size)
            maps.append((q[:, part] @ k[:, part].T / size**0.5).softmax(-1))
            mixed.append(maps[-1] @ v[:, part])
        self.weights.append(maps)
        self.values.append(v)
        x = x + block.proj(torch.cat(mixed, -1))
        return x + block.mlp(block.norm2(x))

    def head(self, tokens):
        return self.net.head(self.net.norm(tokens)[0])

    def slopes(self, value, layer):
        """The gradient of a number with respect to each head's attention in a layer."""
        return torch.autograd.grad(value, self.weights[layer], retain_graph=True)


@pytest.fixture(scope="session")
def slow_maps():
    """Maps by a formula in loops: `slow_maps(toy, batch, formula, **how)`, where the formula gives a value per token."""

    def maps(toy, samples, formula, **how):
        pairs = zip(samples.x["pixels"], samples.target, strict=True)
        rows = [formula(SlowVit(toy.module(), x), x, t, **how)[1:] for x, t in pairs]
        h, w = samples.x["pixels"].shape[-2:]
        return torch.stack(rows).reshape(-1, h // 4, w // 4).detach()

    return maps
