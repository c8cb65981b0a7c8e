"""The only road to a model: batches questions, asks none twice, counts what it spends."""

from collections.abc import Sequence
from dataclasses import dataclass

from heatcheck.probe.deletions import Deletions
from heatcheck.probe.inside import Inside


@dataclass
class Probe(Deletions, Inside):
    """A model that can only be asked in batches of one exact shape.

    `calls.py` has plain questions and gradients, `deletions.py` what is shared by all methods and metrics, `inside.py`
    layers and rules.

    Args:
        model: who is asked.
        numerics: the shape of every call.
        tick: called with the number of passes after each call, for progress bars.
        spent: the account that passes and time go to.
        memo: answers by question; what is in it is not asked again.
    """

    def randomised(self, layer: str | Sequence[str], seed: int) -> "Probe":
        """A probe on a copy of the model with random weights in some layers; spends on this probe's account."""
        return Probe(self.model.randomised(layer, seed), self.numerics, tick=self.tick, spent=self.spent)
