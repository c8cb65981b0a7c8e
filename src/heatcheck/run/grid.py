"""One model with the methods and metrics that apply to it, resolved and loaded."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from heatcheck.core.identity import digest
from heatcheck.core.types import NotApplicable
from heatcheck.models.base import Model
from heatcheck.probe.numerics import Numerics
from heatcheck.run.work import ComponentRef


@dataclass(frozen=True)
class Labelled:
    """A component as one model sees it: the label tables show, the resolved component, the digest it is filed under."""

    label: str
    component: Any
    digest: str

    @property
    def ref(self) -> ComponentRef:
        """The same as plain data."""
        return ComponentRef(self.label, self.component.name, self.digest)

    def record(self) -> dict[str, Any]:
        """As a run records it."""
        return {**self.ref._asdict(), "identity": self.component.identity()}


@dataclass(frozen=True, kw_only=True)
class ModelGrid:
    """What is computed for one model, whatever the samples.

    Args:
        model: who is asked.
        numerics: the shape of every call.
        methods: the methods that apply, resolved.
        metrics: the metrics that apply, resolved; those that compare models are left out.
        target: what is explained: predicted, label, top2, the number of a class, or a number made of the output.
        seed: of every random stream.
        maps: which maps are stored: keep, gallery or none.
        gallery: digests of the samples whose maps and pictures the report shows.
    """

    model: Model
    numerics: Numerics = field(default_factory=Numerics)
    methods: tuple[Labelled, ...] = ()
    metrics: tuple[Labelled, ...] = ()
    target: str | int = "predicted"
    seed: int = 0
    maps: str = "keep"
    gallery: frozenset[str] = frozenset()

    def keeps_maps(self, sample: str) -> bool:
        """Whether the maps of the sample with this digest are stored."""
        return self.maps == "keep" or (self.maps == "gallery" and sample in self.gallery)


def resolve_components(
    components: Iterable[tuple[str, Any]], model: Model
) -> tuple[tuple[Labelled, ...], dict[str, str]]:
    """Resolve components for a model; those that do not apply come back with the reason."""
    found, skipped = [], {}
    for label, component in components:
        try:
            resolved = component.resolved_on(model.domain, number=model.gives_number)
            if "gradient" in getattr(component, "uses", ()) and not model.differentiable:
                raise NotApplicable(f"needs gradients, but {model.name} is a black box that gives outputs only")
        except NotApplicable as reason:
            skipped[label] = str(reason)
            continue
        found.append(Labelled(label, resolved, digest(resolved.identity())))
    return tuple(found), skipped
