"""Deletion and insertion."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import Batch, Scores
from heatcheck.domain.base import Domain
from heatcheck.metrics.base import Maps, Metric, metric
from heatcheck.metrics.curves import area, mirrored, step_counts
from heatcheck.metrics.removal import LEAST, MOST, RANKED, Removal, curve_scores, relevance_places, removal_curves
from heatcheck.probe.asks import Ask, Shape, removal
from heatcheck.probe.probe import Probe


@metric("deletion", family="curve", better="lower", within=(0, 1), invariant=("monotone", "scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Deletion(Removal):
    r"""How much of the class is left, on average, while the most relevant units are deleted?

    The area under $p_t(x^{(k)})$, $k = 0 … L$, by the trapezoid rule, with $\lfloor kn/L \rfloor$ units deleted at step
    k. It is the raw form of `morf(area=trapezoid)`: the two add up to $p_t(x)$. The stored curve holds the raw outputs.

    Args:
        steps: L, the number of deletions.
        units: what is deleted; pixels or tokens.
        fill: what replaces it.
        output: what is averaged.
        ties: how equal units are ordered, as in `morf`.
        area: the rule: `trapezoid`, `mean`, `left` (incremental deletion, most relevant first) or `quantus` (its pixel
            flipping).
        end: the last point, as in `morf`.

    Paper: petsiuk2018.  Differs: a number of steps, not of pixels per step; 224 steps at 224 pixels are the authors'.
    Cost per sample: `steps` forwards per method; the clean and the fully deleted input are shared.
    """

    orders: ClassVar[tuple[str, ...]] = (MOST,)

    steps: int = 32
    area: str = "trapezoid"

    def summarise(self, curve: Float[Tensor, "m b k"]) -> Float[Tensor, "m b"]:
        return area(curve, self.area)


@metric("insertion", family="curve", better="higher", within=(0, 1), invariant=("monotone", "scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Insertion(Metric):
    r"""How soon does the class appear while the most relevant units are put back?

    The area under $p_t(\tilde x^{(k)})$, $k = 0 … L$, by the trapezoid rule, where the $\lfloor kn/L \rfloor$ most
    relevant units of x are inserted into a start that shows none of them: a blurred picture, or a text without its
    tokens. To insert k of n units is to delete the n − k least relevant ones; the stored curve is in that order, from
    the clean input to the start.

    Args:
        steps: L, the number of insertions.
        units: what is inserted; pixels or tokens.
        fill: the start; `auto` blurs pictures (11 taps, deviation 5 at 224 pixels) and pads texts.
        output: what is averaged.
        ties: how equal units are ordered: `random` (per sample, the same for all methods), `index`, `reverse_index`.
        area: the `trapezoid` rule, or the `mean` of all L + 1 points.

    Paper: petsiuk2018.  Differs: counted in steps, not in pixels; the blur is cut at 11 taps; the authors fold its tails back,
        which `fill=folded_blur` and the profile `rise` do.
    Cost per sample: `steps` forwards per method; the clean input and the start are shared.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"ties": RANKED, "area": ("trapezoid", "mean")}

    steps: int = 32
    units: str = "site"
    fill: str = "auto"
    output: str = "prob"
    ties: str = "random"
    area: str = "trapezoid"

    def resolve(self, domain: Domain) -> "Insertion":
        start = replace(self, fill=domain.insertion_fill) if self.fill == "auto" else self
        return super(Insertion, start).resolve(domain)

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        place = mirrored(relevance_places(maps, units, self.ties), units)
        gone = units.count[:, None] - step_counts(units, self.steps).flip(-1)
        curve = removal_curves(probe, batch, self.fill, units, place, gone, self.output)
        share = tuple(k / self.steps for k in range(self.steps + 1))
        return curve_scores(area(curve, self.area), curve, units, share)

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        n = shape.units(self.units)
        gone = [n - k * n // self.steps for k in range(self.steps + 1)]
        return removal(method, self.fill, self.units, shape, f"{LEAST} {self.ties}", gone)
