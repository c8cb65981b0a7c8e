"""Questions about annotated parts: what does the output lose without each of them?"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heatcheck.core.devices import moved
from heatcheck.core.types import Batch, HeatcheckError, Inputs, digest_of, digest_of_tensor
from heatcheck.probe.asks import CLEAN, Ask, Shape
from heatcheck.probe.deletions import Masks
from heatcheck.probe.probe import Probe

PartMasks = Bool[Tensor, "_ s"]


def parts_of(probe: Probe, batch: Batch) -> list[PartMasks]:
    """Per sample, the masks of its parts over sites, one row per part; none where it has no annotation."""
    sites = probe.domain.deletable(batch.x).shape[1]
    return list(moved(batch.device, *(part_masks(own.get("parts"), sites) for own in known_of(batch))))


def known_of(batch: Batch) -> Sequence[Mapping[str, Any]]:
    """Per sample, what is known about it; nothing where nobody says anything."""
    return batch.references or ({},) * len(batch)


def part_drops(
    probe: Probe, batch: Batch, parts: Sequence[PartMasks], fill: str, output: str
) -> list[Float[Tensor, " _"]]:
    """Per sample, the drop of the output without each part.

    If the reference `without` holds the sample rendered without each part, the model sees these; else the part is
    replaced by the fill.
    """
    rows = torch.cat([torch.full((len(own),), i, device=batch.device) for i, own in enumerate(parts)])
    rendered = [reference.get("without") for reference in known_of(batch)]
    for own, x in zip(parts, rendered, strict=True):
        check_rendered(own, x, batch.x)
    shown = torch.cat([torch.full((len(o),), x is not None) for o, x in zip(parts, rendered, strict=True)])
    shown = shown.to(batch.device)
    after = torch.empty(len(rows), dtype=torch.float64, device=batch.device)
    hidden, pictures = torch.cat(list(parts))[~shown], [x for x in rendered if x is not None]
    after[~shown] = probe.deletions(batch, fill, Masks(rows[~shown], lambda i: ~hidden[i])).read(output)
    if pictures:
        names = [f"without {rendered_digest(x, part)}" for x in pictures for part in range(len(x))]
        make = Inputs.cat(pictures).to(batch.device).take
        after[shown] = probe.named_answers(batch, rows[shown], names, make).read(output)
    drops = probe.clean(batch).read(output)[rows] - after
    return list(torch.split(drops, [len(own) for own in parts]))


def part_asks(shape: Shape, fill: str) -> set[Ask]:
    """The questions of `part_drops` about one sample."""
    free = shape.domain.deletable(shape.x)[0]
    parts = part_masks(shape.reference.get("parts"), len(free)) & free
    if "without" in shape.reference:
        rendered = shape.reference["without"]
        return {CLEAN} | {("without", rendered_digest(rendered, i)) for i in range(len(parts))}
    named: set[Ask] = {("part", fill, digest_of_tensor(part)) for part in parts if 0 < part.sum() < free.sum()}
    ends: set[Ask] = {("full", fill) for part in parts if part.sum() == free.sum() > 0}
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
