"""Feature ablation."""

from dataclasses import dataclass

from heatcheck.methods.base import method
from heatcheck.methods.occlusion import Occlusion


@method("feature_ablation", family="perturbation", uses=(), properties=("implementation_invariant", "linear"))
@dataclass(frozen=True, kw_only=True, repr=False)
class FeatureAblation(Occlusion):
    r"""What the output loses when each feature is deleted alone, spread evenly over the feature.

    $A_i = \big(f_t(x) - f_t(x^{s_m})\big) / |s_m| \quad \text{for } i \in s_m$

    Occlusion deletes cells of a grid, whatever they show; this deletes features that belong together. The axioms of
    occlusion hold for whole features only: a site that the model ignores still gets its share of its feature's drop.

    Args:
        units: the features; about 50 superpixels on pictures, words on texts.
        fill: what replaces a feature.

    Paper: kokhlikyan2020.  Differs: each site gets its feature's drop divided by the feature's area.
    Cost per sample: 1 + units forwards, shared with `sds` on the same units.
    """

    units: str = "segment"
