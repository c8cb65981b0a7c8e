"""Networks that know how their own weights begin."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

UNTRAINED = "is untrained"
"""What the note of a model says whose weights are fresh."""


class FreshNetwork(nn.Module):
    """A network whose weights can be drawn anew as its paper draws them.

    What is drawn comes from torch's own generator, so that `initialise` and `draw` belong inside `drawn_from`.
    """

    def initialise(self) -> None:
        """Draw every weight anew, and forget what batch norms have seen."""
        for module in self.modules():
            self.draw(module)

    def draw(self, module: nn.Module) -> None:
        """Draw a module's own weights: by He et al. 2015 from its inputs, biases zero, norms as they begin in torch."""
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
            module.reset_parameters()


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """While inside, weights on the CPU are drawn from a seed; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
