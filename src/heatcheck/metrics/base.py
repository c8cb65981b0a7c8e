"""The base classes of metrics: they score the maps of all methods at once, one number per method and sample."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.devices import CPU, moved
from heatcheck.core.types import OK, Attribution, Batch, HeatcheckError, NotApplicable, Scores, finite_status
from heatcheck.domain.base import Domain, Units
from heatcheck.domain.component import Component, call_with_parameters, declare
from heatcheck.models.base import Model
from heatcheck.probe.asks import Ask, Shape
from heatcheck.probe.calls import count_passes
from heatcheck.probe.probe import Probe

T = TypeVar("T")
H = TypeVar("H")
HIGHER, LOWER = "higher", "lower"
SITE = "site"
"""The units that are one site each, whatever the modality."""


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
    """Declare a metric: a class derived from `Metric`, or your own function.

    A function gets `(model, x, target, maps)`: a differentiable callable from leaf tensors to logits, the leaf tensor
    (pixels `[b, c, h, w]` or token embeddings `[b, t, d]`), the target classes `[b]` and the maps of all methods, one
    number per pixel or token, `[m, b, h, w]` or `[m, b, t]`. It returns scores `[m, b]`, NaN where there is none.

    >>> @metric("brightest_pixel", better="higher")                        # doctest: +SKIP
    ... def brightest_pixel(model, x, target, maps):
    ...     clean = model(x).softmax(1).gather(1, target[:, None])[:, 0]
    ...     brightest = maps.flatten(2).argmax(2)
    ...     drops = []
    ...     for rows in brightest:
    ...         y = x.clone()
    ...         y.flatten(2)[torch.arange(len(x)), :, rows] = 0
    ...         drops.append(clean - model(y).softmax(1).gather(1, target[:, None])[:, 0])
    ...     return torch.stack(drops)

    Args:
        id: the metric's name.
        better: `higher` or `lower`.
        family: `curve` (deletes units step by step), `deletion` (deletes single units or sets), `imputation` (fills
            deleted units in realistically), `reference` (compares with a known truth), `sanity` (checks that the map
            depends on model, class and input), `form` (looks at the map alone), `composite` (sums other metrics), or
            `own` (user-defined).
        within: the range of its scores with default parameters; None for no bound.
        on: the modalities it supports.
        needs: what it needs besides inputs and maps: `reference:mask` (or another kind), `models` (more than one),
            `method` (to explain again), `weights` (to randomise), `label`, `sign` (maps with negative values), `retraining`
            (answers of networks that were retrained).
        invariant: claims that `heatcheck.testing.check_metric` verifies: `monotone` (any increasing change of the
            map), `scale` (positive factors), `sign` (negation), `shift` (an added constant), `map` (the score does
            not depend on the map: it measures the model).
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

    return declare("metric", id, version, facts, FunctionMetric)


@dataclass
class Maps:
    """The maps of all methods for one batch.

    Args:
        items: one attribution per method; each holds a map per sample.
        domain: images or texts.
        batch: the samples that were explained.
        explainers: each method as a function that explains again; None for maps that came without a method.
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
        """Per method and sample, `ok` or why there is no map; a map with a NaN or infinite value has failed."""
        return tuple(first_problem(a.status, finite_status(a.values)) for a in self.items)

    def placed(self, probe: Probe) -> "Maps":
        """These maps, and their samples, where the model lives; moved once for all metrics."""
        if self.batch.device == probe.device and all(a.values.device == probe.device for a in self.items):
            return self

        return self.cached(f"placed {probe.device}", lambda: self.to(probe.device, probe.placed(self.batch)))

    def cached(self, key: str, make: Callable[[], H]) -> H:
        """A value computed from these maps alone, computed once."""
        if key not in self._cache:
            self._cache[key] = make()
        found: H = self._cache[key]
        return found

    def sites(self) -> Float[Tensor, "m b s"]:
        """Every map resized to sites (pixels, tokens); values that are not finite become zero."""

        def carry(a: Attribution) -> Tensor:
            clean = torch.where(torch.isfinite(a.values), a.values, 0)
            if clean.ndim > self.domain.map_axes:  # a number per channel
                clean = self.domain.reduce(clean, "sum")
            return self.domain.layout(clean, self.batch.x, a.interpolation)

        return self.cached("sites", lambda: torch.stack([carry(a) for a in self.items]))

    def on(self, units: Units, reduce: str = "sum") -> Float[Tensor, "m b u"]:
        """Every map summed or averaged over units, whatever its native resolution."""
        if units.are_sites:
            return self.sites()

        def gather() -> Tensor:
            total = units.sum(self.sites())
            return total / units.area.clamp_min(1).to(total.dtype) if reduce == "mean" else total

        return self.cached(f"on {units.name} {reduce}", gather)

    def explain(self, batch: Batch | Sequence[Batch], probe: Probe) -> list[Attribution]:
        """Explain other inputs or another model with every method.

        Where a method cannot explain again, the status of its maps says why.

        Args:
            batch: what to explain; one batch for all methods, or one for each.
            probe: the model to explain.

        Raises:
            NotApplicable: no method can explain again.
        """
        explainers = self.explainers or (None,) * len(self)
        if not any(explainers):
            raise NotApplicable(no_method_reason(self.methods))
        batches = [batch] * len(self) if isinstance(batch, Batch) else batch
        again = []
        for a, explainer, own in zip(self.items, explainers, batches, strict=True):
            try:
                if explainer is None:
                    raise NotApplicable(no_method_reason([a.method]))
                again.append(explainer(probe, own))
            except NotApplicable as reason:
                zeros = a.values.new_zeros(len(own), *a.values.shape[1:])
                again.append(replace(a, values=zeros, target=own.target, status=(f"skipped: {reason}",) * len(own)))
        return again

    def to(self, device: torch.device, batch: Batch | None = None) -> "Maps":
        """These maps and their samples on a device; the maps of all methods are moved together.

        Args:
            device: where to.
            batch: the samples, where they have been moved already.
        """
        batch = batch or self.batch.to(device)
        values = moved(device, *(a.values for a in self.items))
        items = [
            replace(a, values=own, target=None if a.target is None else batch.target)
            for a, own in zip(self.items, values, strict=True)
        ]
        return Maps(items, self.domain, batch, self.explainers)

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
    unit_value: ClassVar[str] = "sum"
    """What a unit has of a map, where there are units: the `sum` over its sites, or their `mean`."""

    @abstractmethod
    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores | Float[Tensor, "m b"]:
        """Score every map of every method; a plain tensor has NaN where there is no score."""

    @final
    def __call__(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        """Score a batch; maps that failed keep their status, and scores that are not finite get one."""
        component = self.resolved_on(probe.domain, number=probe.model.gives_number)
        component.check_needs(batch)
        component.check_records(batch, maps)
        batch, maps = probe.placed(batch), maps.placed(probe)
        return component.with_statuses(component.as_scores(component.score(probe, batch, maps), maps), maps)

    @final
    def across(self, batches: Mapping[str, Batch], maps: Mapping[str, Maps]) -> dict[str, Scores]:
        """Score several models against each other; statuses are set as when scoring one model."""
        component = self.resolved_on(next(iter(maps.values())).domain)
        for model, own in maps.items():
            component.check_records(batches[model], own)
        batches = {model: batch.to(CPU) for model, batch in batches.items()}
        maps = {model: own.to(CPU, batches[model]) for model, own in maps.items()}
        return {
            model: component.with_statuses(s, maps[model]) for model, s in component.score_models(batches, maps).items()
        }

    def comparison(self, models: Mapping[str, Model]) -> str:
        """What a metric that compares models compares, and between which, in a phrase for whoever reads its scores."""
        return ""

    def as_scores(self, found: Scores | Tensor, maps: Maps) -> Scores:
        """What `score` returned as `Scores`.

        Raises:
            HeatcheckError: there is not one number per method and sample.
        """
        value = self._one_per_map(found.value if isinstance(found, Scores) else found, len(maps), len(maps.batch))
        return (found if isinstance(found, Scores) else Scores(value.to(CPU))).to(CPU)

    def _one_per_map(self, value: Any, methods: int, samples: int) -> Tensor:
        if not isinstance(value, Tensor) or tuple(value.shape) != (methods, samples):
            given = f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise HeatcheckError(
                f"{self.name} returned {given} for {methods} methods and {samples} samples; return a tensor "
                f"[methods, samples], here {(methods, samples)}"
            )
        return value

    def with_statuses(self, scores: Scores, maps: Maps) -> Scores:
        """Add the statuses of maps and samples: a score is NaN exactly where its status is not `ok`."""
        needs = [f"skipped: {need}" if need else OK for need in self.missing(maps.batch)]
        finite = [
            [OK if ok else "undefined: the score is not finite" for ok in row]
            for row in torch.isfinite(scores.value).tolist()
        ]
        status = tuple(
            first_problem(own, [self.map_status(a)] * len(needs), needs, mine, last)
            for a, own, mine, last in zip(maps.items, maps.status, scores.status, finite, strict=True)
        )
        value = torch.where(_ok(status), scores.value.double(), torch.nan)
        curve = None if scores.curve is None else torch.where(_ok(maps.status)[..., None], scores.curve, torch.nan)
        return replace(scores, value=value, status=status, curve=curve)

    def score_models(self, batches: Mapping[str, Batch], maps: Mapping[str, Maps]) -> dict[str, Scores]:
        """Score maps of the same samples and methods on several models; for metrics that compare models."""
        raise NotApplicable(f"{self.id} does not compare models")

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        """The deletions of one sample that it needs for one method."""
        return set()

    def passes(self, shape: Shape) -> tuple[int, int]:
        """Forward and backward passes per sample and method, besides those of `asks` and of explaining again."""
        return 0, 0

    def reexplanation_count(self, shape: Shape) -> int:
        """How many times it explains each sample again, per method."""
        return 0

    def reexplanations(self, shape: Shape) -> set[Ask]:
        """Names of these explanations; metrics that use the same names share them."""
        return {("again", self.name, i) for i in range(self.reexplanation_count(shape))}

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher score is better."""
        return bool(self.facts["better"] == HIGHER)

    def missing(self, batch: Batch) -> list[str | None]:
        """Per sample, what the metric needs and the sample lacks; None where nothing is missing."""
        kinds = [need.removeprefix("reference:") for need in self.facts["needs"] if need.startswith("reference:")]
        references = batch.references or ({},) * len(batch)
        reasons: list[str | None] = []
        for label, reference in zip(batch.label.tolist(), references, strict=True):
            lacks = [
                f"{self.id} needs a reference {kind!r}, and none was given (docs/references.md says how to add one)"
                for kind in kinds
                if kind not in reference
            ]
            if self.needs_label and label < 0:
                lacks.append(f"{self.id} needs a label that is a class of the model, and this sample has none")
            reasons.append(lacks[0] if lacks else None)
        return reasons

    @property
    def needs_label(self) -> bool:
        """Whether it compares the model's answers with the sample's label."""
        return "label" in self.facts["needs"] or self.params().get("output") == "accuracy"

    def map_status(self, a: Attribution) -> str:
        """`ok`, or why the metric cannot score this kind of map."""
        if "sign" in self.facts["needs"] and not a.signed:
            return f"skipped: {self.id} needs signed maps, and those of {a.method} are unsigned"
        return OK

    def check_records(self, batch: Batch, maps: Maps) -> None:
        """Check that the maps explain the target classes and that the metric can score at least one of them.

        Raises:
            HeatcheckError: maps explain another class than the batch's target.
            NotApplicable: the metric can score none of the maps.
        """
        for a in maps.items:
            if a.target is not None and a.target is not batch.target and not torch.equal(a.target, batch.target):
                raise HeatcheckError(
                    f"the maps of {a.method} explain classes {a.target.tolist()}, but {self.id} would score classes "
                    f"{batch.target.tolist()}; explain the classes that you want to score"
                )
        reasons = [self.map_status(a) for a in maps.items]
        if reasons and OK not in reasons:
            raise NotApplicable(reasons[0].removeprefix("skipped: "))

    def check_needs(self, batch: Batch) -> None:
        """Raise NotApplicable, naming what is missing, where no sample has what the metric needs."""
        reasons = self.missing(batch)
        if reasons and reasons[0] and all(reasons):
            raise NotApplicable(reasons[0])


@dataclass(frozen=True, kw_only=True, repr=False)
class SiteMetric(Metric):
    """The base of metrics that look at sites unless other units are asked for.

    They had no `units` once: on sites they keep the name and the identity that they had then, with all stored results.
    """

    units: str = "site"

    def resolve(self, domain: Domain) -> Self:
        found, usual = super().resolve(domain), self.parameters()["units"]
        return replace(found, units=usual) if found.units == domain.resolve_units(usual) else found

    def identity(self) -> dict[str, Any]:
        known = super().identity()
        if self.units == SITE:
            del known["params"]["units"]
        return known


class FunctionMetric(Metric):
    """A user's function `(model, x, target, maps, *, parameters)` as a metric."""

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Float[Tensor, "m b"]:
        precision = probe.domain.leaf(batch.x).dtype  # one for all methods, whoever is beside them
        shaped = torch.stack([probe.domain.as_map(own, batch.x) for own in maps.sites()]).to(precision)

        def function(model: Callable[[Tensor], Tensor], x: Tensor, target: Tensor, rows: slice) -> Tensor:
            return self._scores(model, x, target, shaped[:, rows])

        return probe.call_function(function, batch, dim=1)

    def _scores(self, model: Callable[[Tensor], Tensor], x: Tensor, target: Tensor, maps: Tensor) -> Tensor:
        return self._one_per_map(call_with_parameters(self)(model, x, target, maps), *maps.shape[:2])

    def passes(self, shape: Shape) -> tuple[int, int]:
        one = shape.domain.reduce(shape.domain.leaf(shape.x).detach(), "sum")[None]
        return count_passes(lambda model, x, target, _rows: self._scores(model, x, target, one), shape)


@dataclass(frozen=True, kw_only=True, repr=False)
class Composite(Metric):
    """A weighted sum of other metrics, computed whenever a run is read; a run that asks for it measures its parts."""

    composite: ClassVar[bool] = True
    parts: ClassVar[Mapping[str, float]]
    """The metrics that are summed, by id, and the sign of each."""
    lent: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Parts by id that a network of the same architecture lends, and the recipe that has trained it."""

    @abstractmethod
    def combine(self, found: Mapping[str, Scores], real: Sequence[bool]) -> Scores:
        """One model's scores from those of its parts; `real` is false for methods that are controls."""

    @final
    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        raise NotApplicable(
            f"{self.id} is a sum of {', '.join(self.parts)}, made when a run is read; score these instead"
        )


def first_problem(*statuses: Sequence[str]) -> tuple[str, ...]:
    """Per sample, the first status that is not `ok`.

    >>> first_problem(["ok", "ok", "failed: a"], ["ok", "skipped: b", "skipped: c"])
    ('ok', 'skipped: b', 'failed: a')
    """
    return tuple(next((s for s in own if s != OK), OK) for own in zip(*statuses, strict=True))


def no_method_reason(methods: Sequence[str]) -> str:
    """Why maps that came without a method cannot be computed again."""
    which = ", ".join(map(repr, methods))
    return f"must explain again, but the maps {which} were passed without a method; pass a method's id instead"


def no_units_reason(units: str) -> str:
    """Why a sample without units has no score.

    >>> no_units_reason("token")
    'the input has no token units to delete'
    """
    return f"the input has no {units} units to delete"


def _ok(status: Sequence[Sequence[str]]) -> Tensor:
    return torch.tensor([[s == OK for s in row] for row in status], dtype=torch.bool)


def circular(method: Any, metric: Metric, shape: Shape) -> bool:
    """Whether a method makes the metric's own deletions, so that the metric cannot judge it.

    What units are called does not matter: a word of one token is that token.
    """
    trivial = {"clean", "full"}
    own = {a for a in method.asks(shape) if a[0] not in trivial}
    asked = {a for a in metric.asks(shape, method.name) if a[0] not in trivial and a[0] != "removal"}
    single = _single_deletions(own, shape)
    return bool(own & asked) or bool(single and single & _single_deletions(asked, shape))


def _single_deletions(asks: set[Ask], shape: Shape) -> set[tuple[str, tuple[int, ...]]]:
    """Deletions of single units: the fill, and the sites that are deleted."""
    found: set[tuple[str, tuple[int, ...]]] = set()
    wanted = {(str(ask[1]), str(ask[2])) for ask in asks if ask[0] == "single"}
    for fill, name in wanted:
        sites: dict[int, list[int]] = {}
        for site, unit in enumerate(shape.partition(name).index[0].tolist()):
            sites.setdefault(unit, []).append(site)
        found |= {(fill, tuple(sites[ask[3]])) for ask in asks if ask[:3] == ("single", fill, name) and ask[3] in sites}
    return found


def undefined(value: Float[Tensor, "m b"], ok: Tensor, reason: str, **extra: Any) -> Scores:
    """Scores, undefined for the given reason wherever `ok` is false.

    >>> undefined(torch.tensor([[0.5, 9.0]]), torch.tensor([[True, False]]), "the map is constant")
    Scores(value=tensor([[0.5000,    nan]]), status=(('ok', 'undefined: the map is constant'),), curve=None, share=())
    """
    status = tuple(tuple(OK if good else f"undefined: {reason}" for good in row) for row in ok.tolist())
    return Scores(torch.where(ok, value, torch.nan), status, **extra)


def spread_rows(
    m: int, b: int, k: int, device: torch.device = CPU
) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"], Int[Tensor, " n"]]:
    """Method, sample and step of `m * b * k` queries; samples vary slowest, so that neighbours share an input.

    >>> [index.tolist() for index in spread_rows(2, 2, 1)]
    [[0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0]]
    """
    bb, mm, kk = torch.meshgrid(*(torch.arange(n, device=device) for n in (b, m, k)), indexing="ij")
    return mm.flatten(), bb.flatten(), kk.flatten()
