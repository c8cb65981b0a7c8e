"""What every metric shares: maps of all methods at once, a probe, and a number per method and sample."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.domain.base import Domain, Units
from heatcheck.engine.plan import Ask, Shape
from heatcheck.engine.probe import Probe
from heatcheck.types import OK, Attribution, Batch, NotApplicable, Scores
from heatcheck.unit import Unit, declare

T = TypeVar("T", bound=type)
HIGHER, LOWER = "higher", "lower"


def metric(
    id: str,
    *,
    better: str,
    within: tuple[float | None, float | None] = (None, None),
    on: tuple[str, ...] = ("image", "text"),
    needs: tuple[str, ...] = (),
    invariant: tuple[str, ...] = (),
    version: int = 1,
) -> Callable[[T], T]:
    """Declare a metric.

    Args:
        id: its name everywhere.
        better: `higher` or `lower`.
        within: the range its scores lie in; None for no bound.
        on: modalities it exists for.
        needs: what must be there besides inputs and maps: `reference:mask`, `models`, `method`, `weights`, `label`.
        invariant: claims that `heatcheck.testing.check_metric` verifies: `monotone` (any increasing change of the
            map), `scale` (positive factors), `sign` (negation), `shift` (an added constant).
        version: raised whenever its results change.
    """
    if better not in (HIGHER, LOWER):
        raise ValueError(f"better={better!r} must be higher or lower")
    facts = {"better": better, "within": within, "on": on, "needs": needs, "invariant": invariant}
    return declare("metric", id, version, facts)


@dataclass
class Maps:
    """The maps of all methods for one batch.

    Args:
        items: one attribution per method; each holds a map per sample.
        domain: where they live.
        batch: the samples they belong to.
        explainers: how to explain again, per method; None for maps that somebody brought.
    """

    items: Sequence[Attribution]
    domain: Domain
    batch: Batch
    explainers: Sequence[Callable[[Probe, Batch], Attribution] | None] = ()
    _held: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods' names, in order."""
        return tuple(a.method for a in self.items)

    def sites(self) -> Float[Tensor, "m b s"]:
        """Every map carried to sites; non-finite maps as zeros (their status says so)."""
        if "" not in self._held:
            carried = []
            for a in self.items:
                clean = torch.where(torch.isfinite(a.values), a.values, 0)
                carried.append(self.domain.layout(clean, self.batch.x, a.interpolation))
            self._held[""] = torch.stack(carried)
        return self._held[""]

    def on(self, units: Units, reduce: str = "sum") -> Float[Tensor, "m b u"]:
        """Every map summed (or averaged) over units, whatever its native resolution."""
        if units.index.shape[1] == units.width and units.name in ("pixel",):
            return self.sites()
        key = f"{units.name} {reduce}"
        if key not in self._held:
            total = units.sum(self.sites())
            self._held[key] = total / units.area.clamp_min(1).to(total.dtype) if reduce == "mean" else total
        return self._held[key]

    def explain(self, batch: Batch, probe: Probe) -> list[Attribution]:
        """Explain again, with every method, other inputs or another model."""
        again = []
        for a, explainer in zip(self.items, self.explainers or (None,) * len(self.items), strict=True):
            if explainer is None:
                raise NotApplicable(
                    f"explains again, but the map {a.method!r} was brought without a method; "
                    "pass a method's id instead of its maps"
                )
            again.append(explainer(probe, batch))
        return again

    def only(self, which: Sequence[int]) -> "Maps":
        """The maps of some methods."""
        explainers = [self.explainers[i] for i in which] if self.explainers else ()
        return Maps([self.items[i] for i in which], self.domain, self.batch, explainers)


@dataclass(frozen=True, kw_only=True, repr=False)
class Metric(Unit, ABC):
    """A faithfulness metric: one score per method and sample, never a mean."""

    across_models: ClassVar[bool] = False

    @abstractmethod
    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        """Score every map of every method."""

    @final
    def __call__(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        """Score a batch. A map that failed keeps its own status; a score that is not finite is never a number."""
        unit = self.resolve(probe.domain)
        unit.check_needs(batch)
        return unit.settled(unit.score(probe, batch, maps), maps)

    def settled(self, scores: Scores, maps: Maps) -> Scores:
        """Scores under the statuses of their maps, NaN exactly where there is a reason."""
        status = [
            [
                own if own != OK else (mine if mine != OK or finite else "undefined: the score is not finite")
                for own, mine, finite in zip(item.status, row, ok, strict=True)
            ]
            for item, row, ok in zip(
                maps.items, scores.status, torch.isfinite(scores.value).tolist(), strict=True
            )
        ]
        good = torch.tensor([[s == OK for s in row] for row in status], dtype=torch.bool).reshape(
            scores.value.shape
        )
        value = torch.where(good, scores.value.double(), torch.nan)
        return replace(scores, value=value, status=tuple(map(tuple, status)))

    def score_models(self, batches: Mapping[str, Batch], maps: Mapping[str, Maps]) -> dict[str, Scores]:
        """Score maps of the same samples and methods on several models; for metrics that compare models."""
        raise NotApplicable(f"{self.id} scores one model at a time")

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        """The deletions it asks about one sample for one method."""
        return set()

    def passes(self, shape: Shape) -> tuple[int, int]:
        """Forward and backward passes per sample and method beside those of `asks` (explaining again excluded)."""
        return 0, 0

    def again(self, shape: Shape) -> int:
        """How many times it explains each sample again, per method."""
        return 0

    @property
    def higher_is_better(self) -> bool:
        """The direction."""
        return bool(self.facts["better"] == HIGHER)

    def check_needs(self, batch: Batch) -> None:
        """Raise NotApplicable, naming what is missing, where the batch does not carry what the metric needs."""
        for need in self.facts.get("needs", ()):
            if need.startswith("reference:"):
                kind = need.removeprefix("reference:")
                if not batch.references or all(kind not in r for r in batch.references):
                    raise NotApplicable(
                        f"{self.id} needs a reference {kind!r} for each sample, and none was given"
                    )
            if need == "label" and bool((batch.label < 0).all()):
                raise NotApplicable(f"{self.id} needs labels, and none were given")


def circular(method: Any, metric: Metric, shape: Shape) -> bool:
    """Whether a method asks the metric's own questions, so that scoring it there says nothing."""
    trivial = {"clean", "full"}
    own = {a for a in method.asks(shape) if a[0] not in trivial}
    asked = {a for a in metric.asks(shape, method.name) if a[0] not in trivial and a[0] != "removal"}
    return bool(own & asked)


def undefined(value: Float[Tensor, "m b"], ok: Tensor, reason: str, **extra: Any) -> Scores:
    """Scores with a reason wherever `ok` is false."""
    status = tuple(tuple(OK if good else f"undefined: {reason}" for good in row) for row in ok.tolist())
    return Scores(torch.where(ok, value, torch.nan), status, **extra)


def spread_rows(m: int, b: int, k: int) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"], Int[Tensor, " n"]]:
    """Method, sample and step of each question, samples slowest so that neighbours share an input."""
    bb, mm, kk = torch.meshgrid(torch.arange(b), torch.arange(m), torch.arange(k), indexing="ij")
    return mm.flatten(), bb.flatten(), kk.flatten()
