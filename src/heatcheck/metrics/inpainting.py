"""Meaningful perturbation: the relevant part is inpainted, not blanked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.devices import indices
from heatcheck.core.identity import digest
from heatcheck.core.spec import SpecError
from heatcheck.core.types import OK, Batch, Inputs, NotApplicable, Scores
from heatcheck.fills.base import Fill
from heatcheck.metrics.base import Maps, Metric, first_problem, metric, undefined
from heatcheck.metrics.curves import step_counts
from heatcheck.metrics.removal import RANKED, relevance_places, removal_curves
from heatcheck.probe.asks import CLEAN, Ask, Shape, removal
from heatcheck.probe.probe import Probe

_recognised: dict[str, int] = {}
"""How many pictures of a class, painted from its name alone, the model recognised; by model, painter and class."""


@metric(
    "inpainting", family="imputation", better="lower", within=(0, 1), on=("image",),
    invariant=("monotone", "scale", "shift"),
)  # fmt: skip
@dataclass(frozen=True, kw_only=True, repr=False)
class Inpainting(Metric):
    r"""How probable is the class still when the relevant part of the picture is inpainted?

    $\sum_{q} w_q\, p_t(\tilde x^{(q)})$, where the most relevant $q = 1/L, \dots, (L-1)/L$ of all units are inpainted

    A painter that takes prompts is prompted with the model's second class. The class is valid only if the model
    recognises more than half of the pictures that the painter makes from the class name alone; samples with another
    second class are skipped, and the reason shows the count. A painter without prompts needs neither step.

    Args:
        steps: L; q runs from 1/L to (L − 1)/L.
        units: what is painted over; pixels.
        fill: the painter. `diffusion` is the paper's; `migan`, `telea` and `linear` take no prompt.
        output: what is read after each painting.
        unchanged: instead of `output`, 1 where the model's predicted class is unchanged, else 0.
        weight: of each q: `uniform`, or `relevance`, the share of the positive relevance inpainted since the last q
            (the paper's own weighting is not public; this is one reading of it).
        seeds: paintings per hole, averaged, for painters that have a seed.
        validity: pictures painted to decide whether a class is valid; 0 accepts every class.
        ties: how equal units are ordered, as in `morf`.

    Paper: cohen2025.  Differs: `linear` stands in for diffusion by default; without prompts no class is checked.
    Cost per sample: `steps − 1` forwards per method and seed; `validity` per second class that occurs.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "weight": ("uniform", "relevance"),
        "ties": RANKED,
    }

    steps: int = 10
    units: str = "site"
    fill: str = "linear"
    output: str = "prob"
    unchanged: bool = False
    weight: str = "uniform"
    seeds: int = 1
    validity: int = 20
    ties: str = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("steps", 2), ("seeds", 1), ("validity", 0)):
            if getattr(self, name) < least:
                raise SpecError(f"metric {self.id}: {name}={getattr(self, name)} must be at least {least}")

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        place = relevance_places(maps, units, self.ties)
        gone = step_counts(units, self.steps)[:, 1:-1]
        clean = probe.clean(batch).rows[:, 4:].long()
        asked = replace(batch, label=clean[:, 0]) if self.unchanged else batch
        read = "accuracy" if self.unchanged else self.output
        curve = torch.full((*place.shape[:2], self.steps - 1), torch.nan, dtype=torch.float64, device=batch.device)
        status = [OK] * len(batch)
        for rows, painters, problem in self._groups(probe, batch, clean[:, 1]):
            if problem:
                status = [problem if i in rows else own for i, own in enumerate(status)]
                continue
            part = asked if len(rows) == len(batch) else asked.take(rows)
            index = indices(rows, batch.device)
            of_part, order, holes = units.take(index), place[:, index], gone[index]
            curves = [removal_curves(probe, part, p.name, of_part, order, holes, read) for p in painters]
            curve[:, index] = torch.stack(curves).mean(0)
        weight, defined = self._weights(maps.on(units), place, gone)
        share = tuple(k / self.steps for k in range(1, self.steps))
        value = (weight * curve).sum(-1)
        scores = undefined(
            value, defined | curve.isnan().any(-1), "no unit has positive relevance", curve=curve, share=share
        )
        return replace(scores, status=tuple(first_problem(status, row) for row in scores.status))

    def _groups(
        self, probe: Probe, batch: Batch, second: Int[Tensor, " b"]
    ) -> Iterator[tuple[list[int], list[Fill], str]]:
        """Groups of samples with the same prompt: their rows, one painter per seed, and why they are skipped, if so."""
        painter: Fill = catalogue.build("fill", self.fill)
        if "prompt" not in painter.parameters():
            yield list(range(len(batch))), self._seeded(painter, self.seeds), ""
            return
        if probe.model.classes is None:
            raise NotApplicable(f"fill={painter.id} is prompted with class names, but {probe.model.name} has none")
        for chosen in sorted(set(second.tolist())):
            rows = torch.nonzero(second == chosen).flatten().tolist()
            prompt = probe.model.class_name(chosen)
            prompted = replace(painter, prompt=prompt)  # type: ignore[call-arg]
            wins = self._recognised_count(probe, batch, prompted, chosen) if self.validity else 1
            valid = 2 * wins > self.validity
            reason = (
                f"skipped: the model recognises {wins} of {self.validity} pictures inpainted as {prompt!r}; too few"
            )
            yield rows, self._seeded(prompted, self.seeds), "" if valid else reason

    def _recognised_count(self, probe: Probe, batch: Batch, painter: Fill, chosen: int) -> int:
        """How many of the pictures painted from the class name alone the model assigns to the class."""
        one = batch.take([0])
        key = digest([probe.model.identity, painter.identity(), chosen, self.validity, list(one.x.shape_key())])
        if key not in _recognised:
            painters = self._seeded(painter, self.validity)

            def pictures(index: Int[Tensor, " n"]) -> Inputs:
                return Inputs.cat([painters[i].full(probe.domain, one) for i in index.tolist()])

            rows = torch.zeros(len(painters), dtype=torch.long, device=batch.device)
            seen = [a.rows[:, 4] for _, a in probe.answers(one, rows, pictures)]
            _recognised[key] = int((torch.cat(seen) == chosen).sum())
        return _recognised[key]

    @staticmethod
    def _seeded(painter: Fill, n: int) -> list[Fill]:
        """The painter with seeds 0 … n − 1, or the painter itself where it has no seed."""
        if "seed" not in painter.parameters():
            return [painter]
        return [replace(painter, seed=i) for i in range(n)]  # type: ignore[call-arg]

    def _weights(
        self, values: Float[Tensor, "m b u"], place: Int[Tensor, "m b u"], gone: Int[Tensor, "b k"]
    ) -> tuple[Float[Tensor, "m b k"], Bool[Tensor, "m b"]]:
        """The weight of each q, and where weights are defined."""
        m, (b, k) = len(values), gone.shape
        if self.weight == "uniform":
            return torch.full((m, b, k), 1 / k, dtype=torch.float64, device=values.device), torch.ones(
                m, b, dtype=torch.bool, device=values.device
            )
        ordered = torch.zeros(values.shape, dtype=torch.float64, device=values.device).scatter_(
            -1, place, values.double().clamp_min(0)
        )
        until = torch.nn.functional.pad(ordered.cumsum(-1), (1, 0)).gather(-1, gone.expand(m, b, k))
        fresh = torch.diff(until, dim=-1, prepend=torch.zeros(m, b, 1, dtype=torch.float64, device=values.device))
        total = until[..., -1:]
        return fresh / torch.where(total > 0, total, 1.0), total[..., 0] > 0

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        n = shape.units(self.units)
        gone = [k * n // self.steps for k in range(1, self.steps)]
        painters = self._seeded(catalogue.build("fill", self.fill), self.seeds)
        asks = (removal(method, p.name, self.units, shape, f"most {self.ties}", gone) for p in painters)
        return {CLEAN}.union(*asks)
