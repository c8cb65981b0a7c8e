"""Noisy copies of samples, for metrics that explain them again."""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.types import OK, Batch, Inputs
from heatcheck.domain.base import Domain
from heatcheck.probe.probe import Probe

Draw = Callable[[Sequence[int], torch.Generator], Tensor]


def gaussian(shape: Sequence[int], rng: torch.Generator) -> Float[Tensor, "..."]:
    """Normal noise with standard deviation one."""
    return torch.randn(tuple(shape), generator=rng, dtype=torch.float32)


def uniform(shape: Sequence[int], rng: torch.Generator) -> Float[Tensor, "..."]:
    """Uniform noise between -1 and 1."""
    return torch.rand(tuple(shape), generator=rng, dtype=torch.float32) * 2 - 1


def noisy_copies(
    probe: Probe, batch: Batch, times: int, draw: Draw, share: float, purpose: str
) -> Iterator[tuple[Int[Tensor, " n"], Batch]]:
    """Copies with noise on pixels or word embeddings, in batches of full calls, each with the rows of its samples.

    Sites that are never deleted (special tokens, padding) get no noise. Copies keep their sample's random streams, so
    that a random method uses the same random numbers for all of them.

    Args:
        probe: the model, whose domain defines pixels or word embeddings.
        batch: the samples.
        times: copies of each.
        draw: noise for one copy.
        share: the factor of the noise, as a share of each input's range.
        purpose: of the random streams.
    """
    domain = probe.domain
    leaf = domain.leaf(batch.x).detach()
    scale = share * domain.leaf_range(batch.x)
    rngs = [batch.streams.generator(i, purpose) for i in range(len(batch))]
    sites = domain.deletable(batch.x).shape[1]
    size = max(probe.numerics.forward, probe.numerics.backward)
    for first, rows in enumerate(torch.split(probe.rows(len(batch)).repeat_interleave(times), size)):
        numbers = [(first * size + k) // times for k in range(len(rows))]
        part = batch.take(numbers, rows)
        noise = _noise(domain, part.x, draw, [rngs[i] for i in numbers]).to(leaf.dtype)
        moved = domain.with_leaf(part.x, leaf[rows] + noise * scale[rows].reshape(-1, *[1] * (leaf.ndim - 1)))
        keep = torch.zeros(len(rows), sites, dtype=torch.bool, device=batch.device)
        yield rows, part.with_inputs(domain.delete(part.x, keep, moved))


def _noise(domain: Domain, x: Inputs, draw: Draw, rngs: Sequence[torch.Generator]) -> Float[Tensor, "b ..."]:
    return domain.leaf_noise(x, lambda row, shape: draw(shape, rngs[row]))


def merge_statuses(status: list[list[str]], rows: Int[Tensor, " n"], theirs: Sequence[Sequence[str]]) -> None:
    """Give every sample, in place, the first problem of one of its copies.

    >>> status = [["ok", "ok"]]
    >>> merge_statuses(status, torch.tensor([0, 1, 1]), [["ok", "failed: a", "failed: b"]])
    >>> status
    [['ok', 'failed: a']]
    """
    for mine, copies in zip(status, theirs, strict=True):
        for row, problem in zip(rows.tolist(), copies, strict=True):
            mine[row] = problem if mine[row] == OK else mine[row]
