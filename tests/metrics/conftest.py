"""Toy models and maps, small enough that every right answer can be computed the slow way.

Layers are eight wide: under MKL a 5 × 5 linear layer gives a row other bits in another place of the batch.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.types import Attribution, Batch, Inputs, Streams, digest_of_tensor
from heatcheck.domain.image import ImageDomain
from heatcheck.domain.text import TextDomain
from heatcheck.metrics.base import Maps
from heatcheck.models.torch_model import TorchModel
from heatcheck.probe.numerics import Numerics
from heatcheck.probe.probe import Probe

PAD, CLS, SEP, FIRST = range(4)


class Words(nn.Module):
    """Attended word embeddings, added up (`bent`: then averaged and bent), under a linear head."""

    def __init__(self, classes, bent):
        super().__init__()
        self.emb = nn.Embedding(30, 8)
        self.mid = nn.Linear(8, 8)
        self.head = nn.Linear(8, classes, bias=False)
        self.bent = bent

    def forward(self, embeds, attention):
        seen = (embeds * attention[..., None].to(embeds.dtype)).sum(1)
        if self.bent:
            seen = torch.tanh(self.mid(seen / attention.sum(1, keepdim=True).clamp_min(1)))
        return self.head(seen)


class TextToy(TorchModel):
    def __init__(self, network):
        super().__init__(network, "words", TextDomain(embed=network.emb, pad=PAD))
        self.bind()

    def bind(self):
        self.domain = replace(self.domain, embed=self._network.emb)

    def call(self, network, x):
        return network(self.domain.leaf(x), x["attention"])

    def randomised(self, layer, seed):
        twin = super().randomised(layer, seed)
        twin.bind()
        return twin


def seeded(network, seed):
    rng = torch.Generator().manual_seed(seed)
    network = network.double()
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(torch.randn(p.shape, generator=rng, dtype=torch.float64) * 0.5)
    return network


def linear(channels=1, size=6, classes=3, seed=0):
    network = nn.Sequential(nn.Flatten(), nn.Linear(channels * size * size, classes))
    return TorchModel(seeded(network, seed), "linear", ImageDomain())


def bent(channels=1, size=6, classes=3, seed=0):
    body = nn.Sequential(nn.Flatten(), nn.Linear(channels * size * size, 8), nn.Tanh(), nn.Linear(8, classes))
    return TorchModel(seeded(body, seed), "bent", ImageDomain())


def words(classes=3, seed=0, bent=False):
    return TextToy(seeded(Words(classes, bent), seed))


def constant(size=6):
    network = nn.Sequential(nn.Flatten(), nn.Linear(size * size, 3))
    with torch.no_grad():
        network[1].weight.zero_()
    return TorchModel(network.double(), "constant", ImageDomain())


def batch_of(model, x, seed=0, **other):
    with torch.no_grad():
        target = model.logits(x).argmax(1)
    first = x["pixels"] if "pixels" in x else x["ids"]
    digests = tuple(digest_of_tensor(row) for row in first)
    return Batch(x, target, target.clone(), Streams(seed, digests), **other)


def pictures(model, n=3, channels=1, size=6, seed=1, **other):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, channels, size, size, generator=rng, dtype=torch.float64)
    return batch_of(model, Inputs({"pixels": x}), **other)


def sentences(model, lengths=(4, 6, 3), seed=1, **other):
    """Texts whose tokens differ as far as there are others: equal ones would be worth the same but for rounding."""
    rng = torch.Generator().manual_seed(seed)
    width = max(lengths) + 2
    ids = torch.full((len(lengths), width), PAD)
    for row, n in zip(ids, lengths, strict=True):
        drawn = torch.cat([torch.randperm(30 - FIRST, generator=rng) for _ in range(0, max(n, 1), 30 - FIRST)])[:n]
        row[: n + 2] = torch.tensor([CLS, *(FIRST + drawn).tolist(), SEP])
    special = ids < FIRST
    place = torch.where(special, -1, (~special).long().cumsum(1) - 1)
    word = torch.where(special, -1, place // 2)
    x = Inputs(
        {
            "ids": ids,
            "attention": (ids != PAD).long(),
            "special": special,
            "word": word,
            "sentence": torch.where(special, -1, 0),
        }
    )
    return batch_of(model, x, **other)


def truth(model, batch):
    """What each site adds to the target's logit of an additive toy, compared with the default fill."""
    if "pixels" in batch.x:
        weight = model.module()[1].weight[batch.target].reshape(batch.x["pixels"].shape)
        return (weight * batch.x["pixels"]).sum(1)
    net = model.module()
    worth = (net.emb(batch.x["ids"]) * net.head.weight[batch.target][:, None]).sum(-1)
    return torch.where(batch.x["special"], 0.0, worth)


def random_maps(model, batch, m=3, seed=5, shape=None, ties=False):
    """Maps of `m` methods; each method's are drawn for the sample, so that neighbours do not matter."""
    shape = shape or (batch.x["pixels"].shape[2:] if "pixels" in batch.x else batch.x["ids"].shape[1:])
    streams = replace(batch.streams, seed=seed)
    items = []
    for j in range(m):
        values = streams.draw(f"map {j}", lambda g: torch.randn(*shape, generator=g, dtype=torch.float64))
        items.append(Attribution(values.round() if ties else values, batch.target, f"method {j}"))
    return Maps(items, model.domain, batch)


def maps_of(model, batch, *values):
    items = [Attribution(v, batch.target, f"map {i}") for i, v in enumerate(values)]
    return Maps(items, model.domain, batch)


def increasing(model, batch, maps):
    """The same maps under an increasing function: every order stays."""
    return maps_of(model, batch, *(torch.exp(a.values) * 7 - 3 for a in maps.items))


def methods(model, batch, *specs, probe=None):
    """Maps of real methods, which can explain again."""
    probe = probe or probe_on(model)
    explainers = [catalogue.build("method", s) for s in specs]
    return Maps([e(probe, batch) for e in explainers], model.domain, batch, explainers)


def probe_on(model, **numerics):
    return Probe(model, Numerics(**{"forward": 4, "backward": 4, **numerics}))


def metric(spec):
    return catalogue.build("metric", spec)


def score(spec, model, batch, maps, probe=None):
    """A metric's scores on a fresh probe."""
    return metric(spec)(probe or probe_on(model), batch, maps)


def ask(model, batch, row, site_keep, output="logit"):
    """The slow way: one input, zero (or pad) where not kept."""
    x = batch.x.take(torch.tensor([row]))
    if "pixels" in x:
        keep = site_keep.reshape(x["pixels"].shape[2:])
        x = x.replace(pixels=torch.where(keep, x["pixels"], 0.0))
    else:
        keep = (site_keep | x["special"][0])[None]
        x = x.replace(ids=torch.where(keep, x["ids"], PAD), attention=torch.where(keep, x["attention"], 0))
    with torch.no_grad():
        logits = model.logits(x)[0]
    t = batch.target[row]
    return float(logits[t] if output == "logit" else logits.softmax(0)[t])


def stage(kind, bent_model=True, n=3):
    """A model with samples, by modality."""
    if kind == "image":
        model = bent(2, 6) if bent_model else linear(2, 6)
        return model, pictures(model, n, 2, 6)
    model = words(bent=bent_model)
    return model, sentences(model, (4, 6, 3, 5, 2)[:n])


@pytest.fixture(scope="session")
def toys():
    names = (
        linear, bent, words, constant, batch_of, pictures, sentences, truth, random_maps, maps_of, increasing, methods,
        probe_on, metric, score, ask, stage,
    )  # fmt: skip
    return SimpleNamespace(**{f.__name__: f for f in names})
