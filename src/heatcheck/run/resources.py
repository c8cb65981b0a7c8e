"""The models, samples and components that works name, each loaded once per process."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from heatcheck.core import catalogue
from heatcheck.core.identity import digest
from heatcheck.core.plugins import load_plugin
from heatcheck.core.types import HeatcheckError, Sample
from heatcheck.data.base import Dataset, Listing, SourceOptions
from heatcheck.data.load import listing_of
from heatcheck.models.base import Model
from heatcheck.models.devices import own_device
from heatcheck.models.targets import makes_number
from heatcheck.models.torch_model import TorchModel
from heatcheck.run.ahead import Ahead
from heatcheck.run.grid import Labelled, ModelGrid
from heatcheck.run.work import ComponentRef, SampleRef, Work
from heatcheck.training.defaults import load_model


@dataclass
class Resources:
    """What a process has at hand; what it lacks, it loads from a work's sources.

    Args:
        models: adapters by the label tables show.
        data: the samples.
        components: methods and metrics by kind and digest, resolved.
        held: samples by name that came with a work, since the data cannot be read here.
        seconds: what computing has taken so far; see `Pace`.
        ahead: samples that are read before their work begins.
    """

    models: dict[str, Model] = field(default_factory=dict)
    data: Dataset | None = None
    components: dict[tuple[str, str], Any] = field(default_factory=dict)
    held: dict[str, Sample] = field(default_factory=dict)
    seconds: dict[Hashable, float] = field(default_factory=dict)
    ahead: Ahead = field(default_factory=Ahead)
    _by_name: dict[str, Sample] = field(default_factory=dict, repr=False)
    _listing: Listing | None = field(default=None, repr=False)
    _places: dict[str, int] = field(default_factory=dict, repr=False)

    def grid(self, work: Work) -> ModelGrid:
        """A work's model, methods and metrics."""
        self.load_plugins(work)
        model = self.model(work)
        return ModelGrid(
            model=model,
            numerics=work.numerics,
            methods=tuple(self._component("method", ref, model) for ref in work.methods),
            metrics=tuple(self._component("metric", ref, model) for ref in work.metrics),
            target=work.target,
            seed=work.seed,
            maps=work.maps,
            gallery=frozenset(work.gallery),
        )

    def load_plugins(self, work: Work) -> None:
        """Make the components known that a work's plugin files declare."""
        for path in work.sources.plugins:
            load_plugin(path)

    def samples(self, work: Work) -> list[Sample]:
        """A work's samples.

        Raises:
            HeatcheckError: a sample is gone, or its content is not what it was when the run was planned.
        """
        return [self._checked(ref, work) for ref in work.samples]

    def look_ahead(self, work: Work) -> None:
        """Begin to read the samples that are likely to come next, where a model does not use the CPU that reads them."""
        model = self.model(work)
        if model.device.type != "cpu" and work.following:
            self.ahead.begin(model, work.following, lambda ref: self._checked(ref, work))

    def _checked(self, ref: SampleRef, work: Work) -> Sample:
        sample = self._sample(ref.name, work)
        if sample is None or sample.digest != ref.digest:
            name = repr(self.data.name if self.data is not None else work.sources.data)
            where = "the run's data" if ref.name in self.held else name
            raise HeatcheckError(f"sample {ref.name!r} of {where} has changed since the run began")
        return replace(sample, label=ref.label)

    def _sample(self, name: str, work: Work) -> Sample | None:
        """A sample by name: of those at hand, else read now, and nothing else with it."""
        if name in self.held:
            return self.held[name]
        if self.data is not None:
            if not self._by_name:
                self._by_name = {sample.name: sample for sample in self.data}
            return self._by_name.get(name)
        if self._listing is None:
            sources = work.sources
            options = SourceOptions(
                samples=sources.samples, text_column=sources.text_column, label_column=sources.label_column
            )
            self._listing = listing_of(sources.data, options)
            self._places = {shown: i for i, shown in enumerate(self._listing.shown_names())}
        at = self._places.get(name)
        return None if at is None else self._listing.sample(at, name)[0]

    def model(self, work: Work) -> Model:
        """A work's model, on the device that this process uses.

        Raises:
            HeatcheckError: it is not the model that the run began with.
        """
        if work.model not in self.models:
            sources = work.sources
            number = work.target if makes_number(work.target) else None
            loaded = load_model(
                sources.models[work.model],
                name=work.model,
                preprocess=sources.preprocess,
                output=sources.output,
                target=number,
            ).computing_in(sources.precision)
            self.hold(work, loaded)
        return self.models[work.model]

    def hold(self, work: Work, loaded: Model) -> None:
        """Keep a work's model, laid out and compiled as the run says.

        Raises:
            HeatcheckError: it is not the model that the run began with.
        """
        if loaded.identity != work.identity:
            raise HeatcheckError(f"model {work.model!r} has changed since the run began")
        if isinstance(loaded, TorchModel):
            loaded.lay_out(channels_last=work.numerics.channels_last)
        loaded.round_by(work.numerics.rounding)
        self.models[work.model] = model = loaded.on(own_device(work.numerics.device))
        if work.numerics.compiled:
            model.compile()

    def _component(self, kind: str, ref: ComponentRef, model: Model) -> Labelled:
        key = (kind, ref.digest)
        if key not in self.components:
            built = catalogue.build(kind, ref.name).resolved_on(model.domain, number=model.gives_number)
            if digest(built.identity()) != ref.digest:
                raise HeatcheckError(f"{kind} {ref.name} is another one in this process than where the run began")
            self.components[key] = built
        return Labelled(ref.label, self.components[key], ref.digest)
