"""Single deletion of annotated parts."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heatcheck.core.devices import moved
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, HeatcheckError, Inputs, Scores, digest_of, digest_of_tensor
from heatcheck.metrics.base import Maps, Metric, metric, undefined
from heatcheck.metrics.curves import spearman
from heatcheck.probe.asks import CLEAN, Ask, Shape
from heatcheck.probe.deletions import Masks
from heatcheck.probe.probe import Probe

PartMasks = Bool[Tensor, "_ s"]


@metric(
    "part_deletion", family="deletion", better="higher", within=(0, 1), needs=("reference:parts",), invariant=("scale",)
)
@dataclass(frozen=True, kw_only=True, repr=False)
class PartDeletion(Metric):
    r"""Are the parts with the highest relevance those whose deletion lowers the output most?

    $\tfrac12 + \tfrac12\,\mathrm{Spearman}_m\big(\sum_{i \in \mathrm{dilate}(p_m)} A_i,\; f_t(x) - f_t(x^{p_m})\big)$
    over the parts $p_m$ that the reference `parts` marks

    One half is chance for parts of equal size. Sums grow with the part, so unsigned noise ranks parts by their size:
    where large parts matter more, `random` and `constant` are well above one half, and methods must beat that. If the
    reference `without` holds the sample rendered without each part, the model sees these; else the part is replaced by
    the fill. The score is undefined with fewer than two parts, or where all have the same sum or the same drop.

    Args:
        dilate: side of the square by which parts are dilated before the map is summed; 1 for not at all. Parts of
            texts are not dilated.
        fill: what replaces a part.
        output: where the drop is read.
        raw: the rank correlation itself, between -1 and 1.

    Paper: hesse2023.  Differs: an undefined correlation is a status, not silently left out of the mean.
    Cost per sample: 1 + parts forwards, shared by all methods.
    """

    dilate: int = 5
    fill: str = "auto"
    output: str = "logit"
    raw: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dilate < 1 or self.dilate % 2 == 0:
            raise SpecError(f"metric {self.id}: dilate={self.dilate!r} must be an odd number of sites")

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        free = probe.domain.deletable(batch.x)
        masks = [part_masks(own.get("parts"), free.shape[1]) for own in batch.references]
        parts = list(moved(batch.device, *masks))
        drops = self._drops(probe, batch, parts)
        sites = maps.sites()
        value = torch.full((len(maps), len(batch)), torch.nan, dtype=torch.float64, device=batch.device)
        for i, (own, drop) in enumerate(zip(parts, drops, strict=True)):
            if len(own) > 1:
                near = probe.domain.dilate(own, batch.x.take(slice(i, i + 1)), self.dilate) & free[i]
                sums = [torch.where(part, sites[:, i].double(), 0.0).sum(-1) for part in near]
                value[:, i] = spearman(torch.stack(sums, -1), drop.expand(len(maps), -1))
        score = value if self.raw else 0.5 + 0.5 * value
        return undefined(
            score, ~value.isnan(), "there are fewer than two parts, or all have the same attribution or the same drop"
        )

    def _drops(self, probe: Probe, batch: Batch, parts: Sequence[PartMasks]) -> list[Float[Tensor, " _"]]:
        """Per sample, the drop of the output without each part."""
        rows = torch.cat([torch.full((len(own),), i, device=batch.device) for i, own in enumerate(parts)])
        rendered = [reference.get("without") for reference in batch.references]
        for own, x in zip(parts, rendered, strict=True):
            check_rendered(own, x, batch.x)
        shown = torch.cat([torch.full((len(o),), x is not None) for o, x in zip(parts, rendered, strict=True)])
        shown = shown.to(batch.device)
        after = torch.empty(len(rows), dtype=torch.float64, device=batch.device)
        hidden, pictures = torch.cat(list(parts))[~shown], [x for x in rendered if x is not None]
        after[~shown] = probe.deletions(batch, self.fill, Masks(rows[~shown], lambda i: ~hidden[i])).read(self.output)
        if pictures:
            names = [f"without {rendered_digest(x, part)}" for x in pictures for part in range(len(x))]
            make = Inputs.cat(pictures).to(batch.device).take
            after[shown] = probe.named_answers(batch, rows[shown], names, make).read(self.output)
        drops = probe.clean(batch).read(self.output)[rows] - after
        return list(torch.split(drops, [len(own) for own in parts]))

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        free = shape.domain.deletable(shape.x)[0]
        parts = part_masks(shape.reference.get("parts"), len(free)) & free
        if "without" in shape.reference:
            rendered = shape.reference["without"]
            return {CLEAN} | {("without", rendered_digest(rendered, i)) for i in range(len(parts))}
        named: set[Ask] = {("part", self.fill, digest_of_tensor(part)) for part in parts if 0 < part.sum() < free.sum()}
        ends: set[Ask] = {("full", self.fill) for part in parts if part.sum() == free.sum() > 0}
        return {CLEAN} | named | ends


def rendered_digest(x: Inputs, part: int) -> str:
    """The digest of the sample rendered without one of its parts."""
    return digest_of(*(f"{k}{digest_of_tensor(v[part])}" for k, v in sorted(x.tensors.items())))


def part_masks(parts: Tensor | None, sites: int) -> PartMasks:
    """Masks over sites, one row per part; no rows where there is no annotation."""
    if parts is None:
        return torch.zeros(0, sites, dtype=torch.bool)
    flat = torch.as_tensor(parts).bool().flatten(1)
    if flat.shape[1] != sites:
        raise HeatcheckError(f"the reference `parts` has {flat.shape[1]} sites, but the input has {sites}")
    return flat


def check_rendered(parts: PartMasks, rendered: Inputs | None, x: Inputs) -> None:
    """Raise where renderings do not match the annotated parts in number, or the input in shape."""
    if rendered is not None and (len(rendered) != len(parts) or rendered.shape_key() != x.shape_key()):
        raise HeatcheckError(
            f"the reference `without` holds {len(rendered)} inputs of {dict(rendered.shape_key())}, but there "
            f"are {len(parts)} parts and the sample is {dict(x.shape_key())}"
        )
