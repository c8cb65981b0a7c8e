"""What must not change while a component runs: weights, hooks, modes, inputs, global randomness."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from heatcheck.core.types import Batch, Inputs, digest_of_tensor
from heatcheck.models.base import Model
from heatcheck.testing.models import Toy

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Broken(RuntimeError):
    """Raised on purpose by a model that fails in the middle."""


def state_of(network: nn.Module) -> dict[str, Any]:
    """Everything about a network that a component could leave changed."""
    return {
        "weights": {k: digest_of_tensor(v) for k, v in network.state_dict().items()},
        "hooks": {n: [len(getattr(m, h)) for h in HOOKS] for n, m in network.named_modules()},
        "modules": {n: type(m).__name__ for n, m in network.named_modules()},
        "mode": {n: m.training for n, m in network.named_modules()},
        "requires_grad": {n: p.requires_grad for n, p in network.named_parameters()},
        "grad": {n: p.grad is None for n, p in network.named_parameters()},
        "grad mode": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
    }


def inputs_of(batch: Batch) -> dict[str, str]:
    """Digests of a batch's tensors."""
    return {k: digest_of_tensor(v) for k, v in {**batch.x.tensors, "target": batch.target}.items()}


@contextmanager
def unchanged(model: Toy, batch: Batch, who: str) -> Iterator[None]:
    """Fail where the network, the inputs or torch's modes are not what they were, also after an exception."""
    before, inputs = state_of(model.module()), inputs_of(batch)
    try:
        yield
    finally:
        after = state_of(model.module())
        for what, value in before.items():
            assert after[what] == value, f"{who} changed the model's {what}: {value} before, {after[what]} after"
        assert inputs_of(batch) == inputs, f"{who} changed its inputs in place"


@contextmanager
def failing_at(model: Model, call: int) -> Iterator[None]:
    """A model whose `call`-th pass (from one) ends in an exception, after the network has run."""
    real, done = model.logits, 0

    def logits(x: Inputs) -> torch.Tensor:
        nonlocal done
        done += 1
        out = real(x)
        if done == call:
            raise Broken(f"broken on purpose at call {call}")
        return out

    model.logits = logits  # type: ignore[method-assign]
    try:
        yield
    finally:
        del model.logits


@contextmanager
def counting(model: Model) -> Iterator[list[int]]:
    """The batch size of every call."""
    real, sizes = model.logits, list[int]()

    def logits(x: Inputs) -> torch.Tensor:
        sizes.append(len(x))
        return real(x)

    model.logits = logits  # type: ignore[method-assign]
    try:
        yield sizes
    finally:
        del model.logits


def global_randomness() -> tuple[str, str]:
    """The state of torch's and numpy's global generators.

    Python's own is not looked at, because run-time type checkers draw from it; `global_seed` shows who listens to it.
    """
    legacy = np.random.get_state()  # noqa: NPY002 - looked at, never drawn from
    return digest_of_tensor(torch.get_rng_state()), repr(legacy)


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Another state of the global generators, put back afterwards."""
    kept = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002, TID251 - shows that nobody depends on it
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002
        random.setstate(kept[2])
