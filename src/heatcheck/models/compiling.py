"""Networks compiled by torch, for forward passes that nothing looks into."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

SHAPES = 1024
"""Shapes of input that a network may be compiled for, such as the lengths of texts; torch gives up at 8."""


def compiled(network: nn.Module) -> Any:
    """The network as one graph, compiled at the first call of every exact shape.

    It shares the network's weights, and knows nothing of hooks that are added later. Kernels are not chosen by trying
    several, where torch can be told so: all processes are to compute alike.
    """
    import torch._inductor.config as inductor

    options: Any = {"deterministic": True} if hasattr(inductor, "deterministic") else None
    return torch.compile(network, dynamic=False, fullgraph=True, options=options)


@contextmanager
def many_shapes() -> Iterator[None]:
    """Let compiled networks be called with many shapes; with one more than that, the call raises."""
    import torch._dynamo

    with torch._dynamo.config.patch(recompile_limit=SHAPES, accumulated_recompile_limit=SHAPES):
        yield
