"""Class activation maps: feature maps, weighed by what the class makes of them."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from heatcheck.engine.plan import Shape
from heatcheck.engine.probe import Probe
from heatcheck.methods.base import Method, method
from heatcheck.spec import suggest
from heatcheck.types import Batch, HeatcheckError, NotApplicable


@method(
    "grad_cam",
    on=("image",),
    uses=("gradient", "layers"),
    properties=("nonnegative",),
    elsewhere="it weighs the channels of a spatial feature map; try integrated_gradients or occlusion",
)
@dataclass(frozen=True, kw_only=True, repr=False)
class GradCam(Method):
    r"""A layer's feature maps, each weighed by its mean gradient.

    $A = \mathrm{ReLU}\big(\sum_k \alpha_k A_k\big), \quad
    \alpha_k = \mathrm{mean}_{uv}\, \partial f_t / \partial A_k(u, v)$

    The map keeps the layer's resolution; it is carried to pixels bilinearly where that is needed.

    Args:
        layer: the module whose output is looked at; `auto` is the last one that is a feature map.
        relu: whether to keep only what speaks for the class.

    Paper: selvaraju2017.
    Cost per sample: 1 gradient, through the layers behind `layer` only.
    """

    layer: str = "auto"
    relu: bool = True

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b h w"]:
        maps, slopes = probe.activations(batch, target_layer(self.layer, probe, batch), self.output)
        weights = slopes.flatten(2).mean(-1)[..., None, None]
        cam = channel_sum(weights * maps)
        return cam.relu() if self.relu else cam

    @property
    def signed(self) -> bool:
        return not self.relu and self.post == "none"

    def passes(self, shape: Shape) -> tuple[int, int]:
        return 1, 1


def target_layer(layer: str, probe: Probe, batch: Batch) -> str:
    """The module path of the layer to look at; what cannot be looked at is answered with what can."""
    known = [found.name for found in probe.layers(batch.x)]
    if not known:
        raise NotApplicable(
            f"needs a layer whose output is a spatial feature map, and {probe.model.name} has none; "
            "try integrated_gradients, occlusion or rise"
        )
    if layer == "auto":
        return known[-1]
    if layer not in known:
        raise HeatcheckError(f"{probe.model.name} has no feature map at layer={layer!r}{suggest(layer, known)}")
    return layer


def channel_sum(values: Float[Tensor, "b c h w"]) -> Float[Tensor, "b h w"]:
    """Sum over channels, contiguous so that its bits do not depend on the rest of the batch."""
    return values.movedim(1, -1).contiguous().sum(-1)
