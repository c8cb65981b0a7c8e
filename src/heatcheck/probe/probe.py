"""The only road to a model: batches questions, asks none twice, counts what it spends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jaxtyping import Bool
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.types import Batch, NotApplicable
from heatcheck.fills.base import Fill
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

    def blindfolded(self, batch: Batch, keep: Bool[Tensor, "b s"], fill: str) -> tuple["Probe", Batch]:
        r"""A probe on $f(m \odot x + (1 - m) \odot c)$, which cannot see outside $m$, and the samples to ask it about.

        The network is the same, its hooks and layers too: the inputs carry the blindfold. Answers are kept apart from the
        open model's; random streams stay those of the samples. Spends on this probe's account.

        Args:
            batch: the samples.
            keep: $m$, the sites that stay visible.
            fill: $c$, what is seen in place of the others; made once, and a constant from then on.

        Raises:
            NotApplicable: the fill moves what it does not delete, so that sites have no fixed content to hide.
        """
        filler: Fill = catalogue.build("fill", fill)
        if filler.moves:
            raise NotApplicable(f"fill={fill!r} moves what is not deleted, so it cannot hide a place; try another fill")
        cover = filler.erase(self.domain, batch.x, keep, self.full(batch, filler))
        worn = replace(batch, x=self.domain.with_blindfold(batch.x, keep, cover))
        return Probe(self.model, self.numerics, tick=self.tick, spent=self.spent, blind=True), worn
