"""A toy, its samples, their maps and a probe: the stage on which contracts are checked."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from heatcheck.core.types import Attribution, Batch, Inputs, Sample, Streams, digest_of, digest_of_tensor
from heatcheck.data.documents import Corpus, corpus_of
from heatcheck.metrics.base import Maps
from heatcheck.models.base import Model
from heatcheck.probe.numerics import Numerics
from heatcheck.probe.probe import Probe
from heatcheck.testing.models import Toy


def probe_for(model: Model, *, forward: int = 4, backward: int = 4) -> Probe:
    """A fresh probe with fixed call shapes."""
    return Probe(model, Numerics(forward=forward, backward=backward))


def toy_batch(model: Toy, n: int = 5, seed: int = 0) -> Batch:
    """`n` samples of a toy with the predicted class as target and label, and references `mask` and `parts` each.

    The mask marks the larger half of the true contributions where they are known, else the first half of what
    may be deleted. The parts are the four quarters of what may be deleted, in order.
    """
    return batch_of(model, model.inputs(n, seed), seed=seed)


def batch_of(model: Toy, x: Inputs, *, seed: int = 0) -> Batch:
    """A batch around given inputs, with the predicted class as target and label."""
    with torch.no_grad():
        target = model.logits(x).argmax(1)
    tensors = sorted(x.tensors.items())
    digests = tuple(digest_of(*(k + digest_of_tensor(v[i]) for k, v in tensors)) for i in range(len(x)))
    return Batch(x, target, target.clone(), Streams(seed, digests), _references(model, x, target))


def _references(model: Toy, x: Inputs, target: Tensor) -> tuple[dict[str, Any], ...]:
    free = model.domain.deletable(x)
    if model.adds_up:
        worth = model.contributions(x, target).flatten(1)
    else:
        worth = -torch.arange(free.shape[1], dtype=torch.float64).expand(free.shape)
    order = torch.where(free, worth, -torch.inf).argsort(dim=1, descending=True, stable=True).argsort(1)
    inside = order < (free.sum(1, keepdim=True) // 2)
    shape = model.domain.reduce(model.domain.leaf(x).detach(), "sum").shape[1:]
    quarter = torch.where(free, (free.long().cumsum(1) - 1) * 4 // free.sum(1, keepdim=True).clamp_min(1), -1)
    parts = quarter[:, None] == torch.arange(4)[:, None]
    return tuple(
        {"mask": mask.reshape(shape), "parts": own.reshape(4, *shape)} for mask, own in zip(inside, parts, strict=True)
    )


def toy_corpus() -> Corpus:
    """A few documents; a toy reads of each what the digest decides."""
    return corpus_of(tuple(Sample(str(i), digest_of(str(i)), "") for i in range(6)))


def toy_maps(model: Toy, batch: Batch, kinds: Sequence[str] = ("oracle", "random", "anti_oracle")) -> Maps:
    """Maps that are right, arbitrary, or exactly wrong, in that order.

    Args:
        model: a toy whose contributions add up, for `oracle` and `anti_oracle`.
        batch: its samples.
        kinds: `oracle`, `anti_oracle`, `constant`, or `random` and any other name that begins with it (each name
            has its own draws).
    """
    sites = model.domain.reduce(model.domain.leaf(batch.x).detach(), "sum")

    def values(kind: str) -> Tensor:
        if kind in ("oracle", "anti_oracle"):
            worth = model.contributions(batch.x, batch.target)
            return worth if kind == "oracle" else -worth
        if kind == "constant":
            return torch.ones_like(sites)
        shape = tuple(sites.shape[1:])
        draw = batch.streams.draw(f"toy-{kind}", lambda g: torch.randn(shape, generator=g, dtype=torch.float64))
        return draw.to(sites.dtype)

    items = [Attribution(values(kind), batch.target, method=kind) for kind in kinds]
    return Maps(items, model.domain, batch)


def take_maps(maps: Maps, rows: Sequence[int]) -> Maps:
    """The maps of some samples."""
    return Maps([a.take(rows) for a in maps.items], maps.domain, maps.batch.take(rows), maps.explainers)


def changed_maps(maps: Maps, change: Any) -> Maps:
    """The maps after a change of their values; nobody can explain those again."""
    return Maps([replace(a, values=change(a.values)) for a in maps.items], maps.domain, maps.batch)
