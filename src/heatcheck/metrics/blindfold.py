"""The blindfold: a model that provably cannot see a part of its input, and maps that point there."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, NotApplicable, Scores, Streams
from heatcheck.domain.base import Domain, Units
from heatcheck.metrics.base import Maps, Metric, first_problem, metric, undefined
from heatcheck.metrics.form import ZERO_MAP
from heatcheck.probe.asks import Ask, Shape
from heatcheck.probe.deletions import Masks
from heatcheck.probe.probe import Probe


@metric(
    "blindfold",
    family="sanity",
    better="lower",
    within=(0, None),
    needs=("method",),
    invariant=("scale", "sign"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class Blindfold(Metric):
    r"""Does the map point at what the model cannot see?

    $\frac1q \sum_{i \in H} |a_i| \,/\, \sum_i |a_i|$, with $H$ the hidden sites, a share $q$ of all, and $a$ the map for the
    class that $f(m \odot x + (1 - m) \odot c)$ predicts, where $m$ is 0 on $H$: 0 for a map without anything there, 1 for as
    much as a random map has

    Whatever the network, the model behind the blindfold cannot depend on anything in $H$: a truth that needs neither
    training nor labels. Methods fail it for different reasons, and a low score does not make a map right, so it counts in
    no mean rank.

    Zero by construction: gradients and what is multiplied by them (`saliency`, `integrated_gradients`, `smoothgrad`,
    `deep_lift`), because derivatives at $H$ are zero; differences between answers with and without a unit that lies on one
    side of the edge (`occlusion`, `shapley_sampling`, `sobol`), because the answer stays.

    Above zero by construction: coarse maps that are enlarged (`grad_cam` and its kin), units that cross the edge,
    attention, rules that spread relevance evenly or give it to biases (`lrp` in its first layer, `full_grad`), and `rise`,
    which gives every site the mean answer, however many masks it draws.

    Above zero by sampling noise, less with more samples: `lime`, `kernel_shap`, `hsic`.

    About one: controls that do not ask the model (`random`, `sobel`, `input_magnitude`); `constant` exactly.

    Args:
        units: what is hidden together.
        fill: what is seen in place of what is hidden; a constant, whatever the method does to the input.
        hidden: the share of units that are hidden, at least one and never all.

    Paper: rao2022.  Differs: DiFull, the nearest idea, lays pictures out in a grid and rebuilds the network so that each
    head is connected to one cell; here a part of the sample's own input is hidden from any model, text models and black
    boxes included. The share outside is relative to a random map's.
    Cost per sample: 1 forward, and one explanation per method.
    """

    units: str = "cell"
    fill: str = "auto"
    hidden: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.hidden < 1:
            raise SpecError(f"metric blindfold: hidden={self.hidden} is a share of units and must be between 0 and 1")

    def applies_to(self, domain: Domain) -> None:
        super().applies_to(domain)
        if self.fill != "auto" and catalogue.build("fill", self.fill).moves:
            raise NotApplicable(f"fill={self.fill} moves what is not deleted, so it cannot hide a place; try fill=auto")

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        unseen = units.spread(hidden_units(batch.streams, units, self.hidden))
        enough = (units.count > 1).expand(len(maps), -1)
        reason = f"the input has fewer than two {units.name} units, so that none can be hidden"
        if not enough.any():
            return undefined(torch.zeros(enough.shape, device=batch.device), enough, reason)
        answers = probe.deletions(batch, self.fill, Masks(probe.rows(len(batch)), lambda rows: ~unseen[rows]))
        blind, worn = probe.blindfolded(batch, ~unseen, self.fill)
        worn = replace(worn, target=answers.predicted)
        again = Maps(maps.explain(worn, blind), maps.domain, worn)
        value = share_outside(again.sites(), unseen, probe.domain.deletable(batch.x))
        there = undefined(value, enough, reason)
        full = undefined(value, ~value.isnan(), ZERO_MAP)
        return Scores(value, tuple(map(first_problem, maps.status, again.status, there.status, full.status)))

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        return {("blindfold", self.fill, self.units, self.hidden)} if shape.units(self.units) > 1 else set()

    def reexplanation_count(self, shape: Shape) -> int:
        return int(shape.units(self.units) > 1)


def hidden_units(streams: Streams, units: Units, share: float) -> Bool[Tensor, "b u"]:
    """Units drawn without replacement for each sample: the given share of them, at least one of several, never all."""
    gone = torch.zeros(len(units.counts), units.width, dtype=torch.bool)
    for row, n in enumerate(units.counts):
        some = min(n - 1, max(1, round(share * n)))
        gone[row, torch.randperm(n, generator=streams.generator(row, "blindfold"))[:some]] = True
    return gone.to(units.index.device)


def share_outside(
    maps: Float[Tensor, "m b s"], unseen: Bool[Tensor, "b s"], sites: Bool[Tensor, "b s"]
) -> Float[Tensor, "m b"]:
    """The share of a map's size that lies on unseen sites, relative to their share of all sites; NaN for a map of zeros.

    >>> maps = torch.tensor([[[2.0, -1.0, 1.0, 9.0]]])
    >>> share_outside(maps, torch.tensor([[False, False, True, False]]), torch.tensor([[True, True, True, False]])).tolist()
    [[0.75]]
    """
    size = maps.double().abs() * sites
    share = unseen.sum(1).double() / sites.sum(1)
    return (size * unseen).sum(-1) / size.sum(-1) / torch.where(share > 0, share, 1)
