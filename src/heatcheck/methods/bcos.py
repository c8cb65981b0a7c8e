"""The contribution maps of B-cos networks."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heatcheck.core.types import Batch, NotApplicable
from heatcheck.methods.base import Method, method
from heatcheck.models.architectures.bcos import detachable, explanation_mode
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe


@method(
    "bcos",
    family="intrinsic",
    on=("image",),
    uses=("gradient", "bcos"),
    elsewhere="it reads the weights of a B-cos network for pictures; try integrated_gradients",
)
@dataclass(frozen=True, kw_only=True, repr=False)
class Bcos(Method):
    r"""What each pixel contributes to the score of a B-cos network, from the weights that the network applies to it.

    $a = \tilde x \odot w_t(\tilde x), \quad f_t(x) = w_t(\tilde x)^\top \tilde x + b, \quad \tilde x = [x, 1 - x]$

    The weight $w_t$ is the gradient in explanation mode: the factors $|\cos|^{B-1}$ and the norms in them are treated
    as constants. For the convolutional networks the map therefore sums to the logit minus the network's bias $b$.
    Ordinary input × gradient on $\tilde x$ has nearly the same sum but distributes it differently.

    Paper: boehle2022.  Differs: batches of any size; channels are added up by `reduction`.
    Cost per sample: 1 gradient.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b c h w"]:
        network = probe.model.module()
        encoder = _encoder(network, probe.model.name)
        encoded: list[Tensor] = []
        weights: list[Tensor] = []

        def note(_module: nn.Module, _args: object, out: Tensor) -> None:
            encoded.append(out.detach())
            out.register_hook(weights.append)  # type: ignore[no-untyped-call]

        maps = []
        rows = probe.rows(len(batch))
        with explanation_mode(network), encoder.register_forward_hook(note):
            for index, _ in probe.gradients(batch, rows, batch.x.take, self.output):
                maps.append((encoded.pop() * weights.pop())[: len(index)])
        return torch.cat(maps)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return 1, 1


def _encoder(network: nn.Module, name: str) -> nn.Module:
    """The module that adds the three inverse channels; it has the same name here and in the package `bcos`."""
    if not detachable(network):
        raise NotApplicable(
            f"needs a B-cos network, and {name} has no part that knows explanation mode; "
            "try bcos_resnet50@WEIGHTS as the model, or input_x_gradient as the method"
        )
    found = [part for part in network.modules() if type(part).__name__ == "AddInverse"]
    if len(found) != 1:
        raise NotApplicable(
            f"needs the pictures before and after their three inverse channels are added, and {name} adds them in "
            f"{len(found)} places; wrap the six-channel network in heatcheck.models.architectures.bcos.Encoded"
        )
    return found[0]
