"""What every metric shares: maps of all methods at once, a probe, and a number per method and sample."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.types import OK, Attribution, Batch, HeatcheckError, NotApplicable, Scores
from heatcheck.domain.base import Domain, Units
from heatcheck.domain.component import Component, declare
from heatcheck.probe.asks import Ask, Shape
from heatcheck.probe.probe import Probe

T = TypeVar("T", bound=type)
H = TypeVar("H")
HIGHER, LOWER = "higher", "lower"


def metric(
    id: str,
    *,
    better: str,
    family: str = "own",
    within: tuple[int | float | None, int | float | None] = (None, None),
    on: tuple[str, ...] = ("image", "text"),
    needs: tuple[str, ...] = (),
    invariant: tuple[str, ...] = (),
    version: int = 1,
) -> Callable[[T], T]:
    """Declare a metric.

    Args:
        id: its name everywhere.
        better: `higher` or `lower`.
        family: what it asks: `curve` and `deletion` delete, `imputation` deletes with care, `reference` compares with
            a truth that is given, `sanity` asks whether the map depends on what it should, `form` looks at the map
            alone, `composite` adds up others; those of one's own are `own` where they say nothing.
        within: the range its scores lie in with its default parameters; None for no bound.
        on: modalities it exists for.
        needs: what must be there besides inputs and maps: `reference:mask` (or another kind), `models` (more than one),
            `method` (to explain again), `weights` (to change), `label`, `sign` (maps that can speak against a class).
        invariant: claims that `heatcheck.testing.check_metric` verifies: `monotone` (any increasing change of the
            map), `scale` (positive factors), `sign` (negation), `shift` (an added constant), `map` (any map at all:
            it measures the model).
        version: raised whenever its results change.
    """
    if better not in (HIGHER, LOWER):
        raise ValueError(f"better={better!r} must be higher or lower")
    facts = {
        "better": better,
        "family": family,
        "within": within,
        "on": on,
        "needs": needs,
        "invariant": invariant,
    }
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
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods' names, in order."""
        return tuple(a.method for a in self.items)

    @cached_property
    def status(self) -> tuple[tuple[str, ...], ...]:
        """Per method and sample, `ok` or why there is no map; a map that is not finite is none."""
        return tuple(
            tuple(
                own if own != OK or finite else "failed: the map is not finite"
                for own, finite in zip(a.status, torch.isfinite(a.values).flatten(1).all(1).tolist(), strict=True)
            )
            for a in self.items
        )

    def cached(self, what: str, make: Callable[[], H]) -> H:
        """A value made of these maps alone, made once."""
        if what not in self._cache:
            self._cache[what] = make()
        found: H = self._cache[what]
        return found

    def sites(self) -> Float[Tensor, "m b s"]:
        """Every map carried to sites; what is not finite as zero (its status says so)."""

        def carry(a: Attribution) -> Tensor:
            clean = torch.where(torch.isfinite(a.values), a.values, 0)
            return self.domain.layout(clean, self.batch.x, a.interpolation)

        return self.cached("sites", lambda: torch.stack([carry(a) for a in self.items]))

    def on(self, units: Units, reduce: str = "sum") -> Float[Tensor, "m b u"]:
        """Every map summed (or averaged) over units, whatever its native resolution."""
        if units.index.shape[1] == units.width and bool((units.index == torch.arange(units.width)).all()):
            return self.sites()

        def gather() -> Tensor:
            total = units.sum(self.sites())
            return total / units.area.clamp_min(1).to(total.dtype) if reduce == "mean" else total

        return self.cached(f"on {units.name} {reduce}", gather)

    def explain(self, batch: Batch | Sequence[Batch], probe: Probe) -> list[Attribution]:
        """Explain again, with every method, other inputs or another model.

        A method that cannot gives maps whose status says why; where no method can, the metric does not apply.

        Args:
            batch: what to explain; one for all methods, or one for each.
            probe: whom to ask.
        """
        explainers = self.explainers or (None,) * len(self)
        if not any(explainers):
            raise NotApplicable(f"explains again, but {given_without_method(self.methods)}")
        batches = [batch] * len(self) if isinstance(batch, Batch) else batch
        again = []
        for a, explainer, own in zip(self.items, explainers, batches, strict=True):
            try:
                if explainer is None:
                    raise NotApplicable(f"explains again, but {given_without_method([a.method])}")
                again.append(explainer(probe, own))
            except NotApplicable as reason:
                nothing = a.values.new_zeros(len(own), *a.values.shape[1:])
                again.append(replace(a, values=nothing, target=own.target, status=(f"skipped: {reason}",) * len(own)))
        return again

    def only(self, which: Sequence[int]) -> "Maps":
        """The maps of some methods."""
        if list(which) == list(range(len(self))):
            return self
        explainers = [self.explainers[i] for i in which] if self.explainers else ()
        return Maps([self.items[i] for i in which], self.domain, self.batch, explainers)

    def sample(self, row: int) -> "Maps":
        """The maps of one sample."""
        return Maps([a.take([row]) for a in self.items], self.domain, self.batch.take([row]), self.explainers)


@dataclass(frozen=True, kw_only=True, repr=False)
class Metric(Component, ABC):
    """A faithfulness metric: one score per method and sample, never a mean."""

    across_models: ClassVar[bool] = False
    composite: ClassVar[bool] = False

    @abstractmethod
    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        """Score every map of every method."""

    @final
    def __call__(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        """Score a batch. A map that failed keeps its own status; a score that is not finite is never a number."""
        component = self.resolved_on(probe.domain)
        component.check_needs(batch)
        component.check_records(batch, maps)
        return component.with_statuses(component.score(probe, batch, maps), maps)

    @final
    def across(self, batches: Mapping[str, Batch], maps: Mapping[str, Maps]) -> dict[str, Scores]:
        """Score several models against each other, with the same care for statuses as a call on one."""
        component = self.resolved_on(next(iter(maps.values())).domain)
        for model, own in maps.items():
            component.check_records(batches[model], own)
        return {
            model: component.with_statuses(s, maps[model]) for model, s in component.score_models(batches, maps).items()
        }

    def with_statuses(self, scores: Scores, maps: Maps) -> Scores:
        """Scores under the statuses of their maps, NaN exactly where there is a reason; no map, no curve."""
        needs = [f"skipped: {need}" if need else OK for need in self.missing(maps.batch)]
        finite = [
            [OK if ok else "undefined: the score is not finite" for ok in row]
            for row in torch.isfinite(scores.value).tolist()
        ]
        status = tuple(
            first_problem(own, [self.misfit(a)] * len(needs), needs, mine, last)
            for a, own, mine, last in zip(maps.items, maps.status, scores.status, finite, strict=True)
        )
        value = torch.where(_ok(status), scores.value.double(), torch.nan)
        curve = None if scores.curve is None else torch.where(_ok(maps.status)[..., None], scores.curve, torch.nan)
        return replace(scores, value=value, status=status, curve=curve)

    def score_models(self, batches: Mapping[str, Batch], maps: Mapping[str, Maps]) -> dict[str, Scores]:
        """Score maps of the same samples and methods on several models; for metrics that compare models."""
        raise NotApplicable(f"{self.id} scores one model at a time")

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        """The deletions it asks about one sample for one method."""
        return set()

    def passes(self, shape: Shape) -> tuple[int, int]:
        """Forward and backward passes per sample and method beside those of `asks` (explaining again excluded)."""
        return 0, 0

    def reexplanation_count(self, shape: Shape) -> int:
        """How many times it explains each sample again, per method."""
        return 0

    def reexplanations(self, shape: Shape) -> set[Ask]:
        """Those explanations by name; metrics that name the same ones share them."""
        return {("again", self.name, i) for i in range(self.reexplanation_count(shape))}

    @property
    def higher_is_better(self) -> bool:
        """The direction."""
        return bool(self.facts["better"] == HIGHER)

    def missing(self, batch: Batch) -> list[str | None]:
        """Per sample, what the metric needs and did not get."""
        kinds = [need.removeprefix("reference:") for need in self.facts["needs"] if need.startswith("reference:")]
        references = batch.references or ({},) * len(batch)
        reasons: list[str | None] = []
        for label, reference in zip(batch.label.tolist(), references, strict=True):
            lacks = [
                f"{self.id} needs a reference {kind!r}, and none was given (docs/references.md says how to bring one)"
                for kind in kinds
                if kind not in reference
            ]
            if self.wants_label and label < 0:
                lacks.append(f"{self.id} needs a label here, and none was given")
            reasons.append(lacks[0] if lacks else None)
        return reasons

    @property
    def wants_label(self) -> bool:
        """Whether it compares the model's answers with the sample's label."""
        return "label" in self.facts["needs"] or self.params().get("output") == "accuracy"

    def misfit(self, a: Attribution) -> str:
        """`ok`, or why these maps, by their own record, are not what the metric can score."""
        if "sign" in self.facts["needs"] and not a.signed:
            return f"skipped: {self.id} needs maps that can speak against a class, and those of {a.method} cannot"
        return OK

    def check_records(self, batch: Batch, maps: Maps) -> None:
        """Refuse maps of another class than the one asked about, and NotApplicable where no map fits the metric."""
        for a in maps.items:
            if a.target is not None and not torch.equal(a.target, batch.target):
                raise HeatcheckError(
                    f"the maps of {a.method} explain the classes {a.target.tolist()}, but {self.id} would ask about "
                    f"{batch.target.tolist()}; explain the classes that are to be scored"
                )
        reasons = [self.misfit(a) for a in maps.items]
        if reasons and OK not in reasons:
            raise NotApplicable(reasons[0].removeprefix("skipped: "))

    def check_needs(self, batch: Batch) -> None:
        """Raise NotApplicable, naming what is missing, where no sample has what the metric needs."""
        reasons = self.missing(batch)
        if reasons and reasons[0] and all(reasons):
            raise NotApplicable(reasons[0])


@dataclass(frozen=True, kw_only=True, repr=False)
class Composite(Metric):
    """A metric that adds up what others found, whenever a run is read; a run that asks for it measures its parts."""

    composite: ClassVar[bool] = True
    parts: ClassVar[Mapping[str, float]]
    """The metrics it is made of, by id, and the sign of each."""

    @abstractmethod
    def combine(self, found: Mapping[str, Scores], real: Sequence[bool]) -> Scores:
        """One model's scores from those of all parts; `real` says which methods are no controls."""

    @final
    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        raise NotApplicable(f"{self.id} adds up {', '.join(self.parts)} when a run is read; score these")


def first_problem(*statuses: Sequence[str]) -> tuple[str, ...]:
    """Per sample, the first status that is not `ok`."""
    return tuple(next((s for s in own if s != OK), OK) for own in zip(*statuses, strict=True))


def given_without_method(methods: Sequence[str]) -> str:
    """Why maps that somebody brought cannot be made again."""
    which = ", ".join(map(repr, methods))
    return f"the maps {which} were brought without a method; pass a method's id instead of its maps"


def _ok(status: Sequence[Sequence[str]]) -> Tensor:
    return torch.tensor([[s == OK for s in row] for row in status], dtype=torch.bool)


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
