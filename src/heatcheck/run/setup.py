"""What is to be run: every name resolved, every model's share prepared, before anything is computed."""

import contextlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import torch

from heatcheck.core import progress
from heatcheck.core.identity import digest
from heatcheck.core.types import HeatcheckError, Inputs, Sample
from heatcheck.data.base import Dataset, causes, unreadable
from heatcheck.data.matching import strange_labels
from heatcheck.metrics.base import circular
from heatcheck.models.base import Model
from heatcheck.models.devices import check_precision, choose_device, devices, gpus_of, own_device
from heatcheck.models.same_architecture import network_architecture
from heatcheck.models.torch_model import TorchModel
from heatcheck.probe.asks import Shape
from heatcheck.probe.numerics import Numerics, machine, measure
from heatcheck.probe.tuning import settle
from heatcheck.run.apart import apart
from heatcheck.run.behaviour import look_like_probabilities, misbehaviours
from heatcheck.run.compiling import as_begun, decide, foresee
from heatcheck.run.grid import Labelled, ModelGrid, resolve_components
from heatcheck.run.isolation import first_line
from heatcheck.run.lacking import lacking
from heatcheck.run.records import NUMERICS
from heatcheck.run.rehearsal import TRIED, readable, reason_against
from heatcheck.run.resources import Resources
from heatcheck.run.runtime import Runtime
from heatcheck.run.scout import answered
from heatcheck.run.store import Store
from heatcheck.run.work import SampleRef, Sources, Work

PROBABILITIES = (
    "its outputs look like probabilities: gradients saturate and output=prob takes a second softmax; return the scores "
    "before the softmax"
)
"""Said of a model with a softmax inside."""


@dataclass(frozen=True)
class Setup:
    """What is to be run, with every name resolved.

    Args:
        models: adapters by the label tables show.
        data: the samples.
        methods: methods by label.
        metrics: metrics by label.
        target: the class to explain.
        seed: of every random stream.
        record: the study as plain data, for the run's own record.
        sources: where models and data come from, for other processes.
        devices: where each model computes, by label; see `place`.
    """

    models: dict[str, Model]
    data: Dataset
    methods: list[tuple[str, Any]]
    metrics: list[tuple[str, Any]]
    target: str | int = "predicted"
    seed: int = 0
    record: dict[str, Any] = field(default_factory=dict)
    sources: Sources = field(default_factory=Sources)
    devices: dict[str, str] = field(default_factory=dict)


@dataclass
class Part:
    """One model's share of a run.

    Args:
        label: what tables call the model.
        grid: the model with the methods and metrics that apply to it.
        across: metrics that compare models, resolved.
        skipped: what does not apply, by label, with the reason.
        circular: pairs in which a method asks the metric's own questions.
        tried: the first inputs that the model could read.
        notes: what was decided about how it is computed, in sentences.
        compiling: seconds that compiling takes in each process.
        architecture: the digest of its network's architecture, where sums need it; empty where it is not known.
        unread: what of the samples lies beyond what the model reads, in a sentence.
        strange: which of their labels are no classes of the model, in a sentence.
        comparisons: what each metric in `across` compares, and between which models, by label.
    """

    label: str
    grid: ModelGrid
    across: tuple[Labelled, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    circular: list[tuple[str, str]] = field(default_factory=list)
    tried: tuple[Inputs, ...] = ()
    notes: list[str] = field(default_factory=list)
    compiling: float = 0.0
    architecture: str = ""
    unread: str = ""
    strange: str = ""
    comparisons: dict[str, str] = field(default_factory=dict)

    @property
    def remarks(self) -> list[str]:
        """What is to be said about the model, and about how it reads the samples, in sentences."""
        return [*self.grid.model.notes, *(note for note in (self.unread, self.strange) if note)]

    def work(self, samples: Sequence[Sample], store: Store, sources: Sources, timeout: float | None = None) -> Work:
        """A chunk of this part, as plain data."""
        grid = self.grid
        return Work(
            model=self.label,
            identity=grid.model.identity,
            samples=tuple(SampleRef(s.name, s.digest, s.label) for s in samples),
            methods=tuple(m.ref for m in grid.methods),
            metrics=tuple(m.ref for m in grid.metrics),
            target=grid.target,
            seed=grid.seed,
            numerics=grid.numerics,
            maps=grid.maps,
            gallery=tuple(sorted(grid.gallery)),
            out=str(store.folder),
            sources=sources,
            timeout=timeout,
        )


def resources_of(setup: Setup, parts: Sequence[Part]) -> Resources:
    """Everything that works of these parts name, as it is in this process."""
    resources = Resources(dict(setup.models), setup.data)
    for part in parts:
        resources.components |= {("method", m.digest): m.component for m in part.grid.methods}
        resources.components |= {("metric", m.digest): m.component for m in part.grid.metrics}
    return resources


def place(setup: Setup, runtime: Runtime, store: Store | None) -> tuple[Setup, list[str]]:
    """The setup with its models on their devices, and what was chosen, in sentences.

    Where no device is named, models loaded by name go where the run was begun, else to the best device there is; what was
    passed in as a module stays where it lives.

    Raises:
        HeatcheckError: the device is not there, or does not have the study's precision.
    """
    begun = store.numerics() if store is not None else {}
    models: dict[str, Model] = {}
    chosen: dict[str, str] = {}
    notes: dict[str, None] = {}
    for label, model in setup.models.items():
        known = begun.get(model.identity, {}).get("device")
        chosen[label] = device = device_for(label, model, setup, runtime, known)
        check_precision(model.precision, device)
        models[label] = model.on(own_device(device))
        if runtime.device == "auto" or device != "cpu":
            notes[f"models compute on {device}"] = None
        if known is not None and known != device:
            notes[f"{label}: the run was begun on {known} and goes on on {device}; scores agree within rounding"] = None
    return replace(setup, models=models, devices=chosen), list(notes)


def device_for(label: str, model: Model, setup: Setup, runtime: Runtime, known: str | None) -> str:
    """Where a model computes; `known` is where it did when the run was begun."""
    if runtime.device not in (None, "auto"):
        return choose_device(runtime.device)
    if label not in setup.sources.models:
        return str(model.device)
    if known is not None and known in (*devices(), choose_device("auto")):
        return known
    return choose_device("auto")


def prepare(setup: Setup, runtime: Runtime, store: Store | None, *, calibrate: bool = True) -> list[Part]:
    """Resolve components for every model and fix the numerics before anything is computed; say what was chosen.

    Args:
        setup: what is to be run.
        runtime: how.
        store: the run's folder, if it is there.
        calibrate: find out whether compiled passes pay.
    """
    shown = progress.choose(runtime.progress)
    for note in setup.data.notes:
        shown.note(f"{setup.data.name}: {note}")
    parts = [prepare_model(label, setup, runtime, store) for label in setup.models]
    if calibrate:
        parts = [with_compiled_passes(part, setup, runtime, store) for part in parts]
    for note in (note for part in parts for note in part.remarks):
        shown.note(note)
    return parts


def prepare_model(label: str, setup: Setup, runtime: Runtime, store: Store | None) -> Part:
    """One model's share: what applies to it, found out by a rehearsal, and the shape of its calls."""
    model = setup.models[label]
    if model.domain.modality != setup.data.modality:
        raise HeatcheckError(
            f"model {label!r} reads {model.domain.modality}s, but the data {setup.data.name!r} are "
            f"{setup.data.modality}s"
        )
    begun = store.numerics().get(model.identity, {}) if store is not None else {}
    model.round_by(begun.get("rounding"))
    samples: Sequence[Sample] = setup.data
    if runtime.timeout is not None and store is not None and setup.sources.portable:
        samples = answered(label, model, samples, setup.sources, store, runtime.timeout)
    tried = list(itertools.islice(readable(model, samples), TRIED))
    if not tried:
        raise HeatcheckError(nothing_read(label, model, setup.data))
    trial = Trial(label, setup, runtime, store, tried, [*largest(model, samples), *tried])
    found = trial.made()
    methods, no_method = trial.methods
    metrics, no_metric = resolve_components(setup.metrics, model)
    shared, alone = compares_models(metrics, setup)
    grid = ModelGrid(
        model=model,
        numerics=found.numerics,
        methods=tuple(m for m in methods if m.label not in found.refused),
        metrics=tuple(m for m in metrics if not m.component.across_models and not m.component.composite),
        target=setup.target,
        seed=setup.seed,
        maps=runtime.maps,
        gallery=frozenset([s.digest for s in setup.data if not s.problem][: model.domain.gallery]),
    )
    pairs = find_circular(grid, first_shape(model, samples) or Shape(model.domain, tried[0], model))
    skipped = {**no_method, **found.refused, **no_metric, **alone}
    unread = model.unread(sample for sample in setup.data if not sample.problem)
    compared = {m.label: told for m in shared if (told := m.component.comparison(setup.models))}
    return Part(
        label,
        grid,
        shared,
        skipped,
        pairs,
        tuple(tried),
        architecture=found.architecture,
        unread=unread,
        strange=strangers(model, tried[0], setup.data),
        comparisons=compared,
    )


def largest(model: Model, samples: Sequence[Sample]) -> list[Inputs]:
    """The largest of the samples, where they differ in size: calls that have memory for it have it for all."""
    sizes = [0 if sample.problem else model.size(sample) for sample in samples]
    most = max(sizes, default=0)
    return list(readable(model, [samples[sizes.index(most)]])) if most else []


@dataclass(frozen=True)
class TriedOut:
    """What a handful of passes has shown.

    Args:
        channels_last: the memory layout that suits the model; None where it has none.
        refused: methods that cannot explain it, with the reason.
        numerics: the shape of its calls.
        architecture: the digest of its network's architecture; empty where nobody asks, or there is no network.
    """

    channels_last: bool | None
    refused: dict[str, str]
    numerics: Numerics
    architecture: str = ""

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """From plain data."""
        return cls(**{**record, "numerics": Numerics(**record["numerics"])})


@dataclass(frozen=True)
class Trial:
    """Asks a model about its first samples: whether it can be measured, by which methods, and in which calls.

    Args:
        label: what tables call the model.
        setup: what is to be run.
        runtime: how.
        store: the run's folder, if there is one.
        inputs: the first samples that the model can read.
        largest: the inputs on which calls are measured, until it answers one.
    """

    label: str
    setup: Setup
    runtime: Runtime
    store: Store | None
    inputs: Sequence[Inputs]
    largest: Sequence[Inputs]

    @property
    def model(self) -> Model:
        """Who is asked."""
        return self.setup.models[self.label]

    @cached_property
    def methods(self) -> tuple[tuple[Labelled, ...], dict[str, str]]:
        """The methods resolved for the model, once it is known what its output is; and those that are not for it."""
        meet(self.model, self.inputs)
        return resolve_components(self.setup.methods, self.model)

    def made(self) -> TriedOut:
        """What it shows; where other processes compute, it is made in a copy of this one."""
        if not leads(self.setup, self.runtime):
            return self.make()
        found = TriedOut.of(apart(lambda: self.make().record(), f"model {self.label!r}"))
        if isinstance(self.model, TorchModel) and found.channels_last is not None:
            self.model.lay_out(channels_last=found.channels_last)
        return found

    def make(self) -> TriedOut:
        """Make it in this process."""
        refuse_misbehaviour(self.label, self.model, self.inputs)
        settle_layout(self.model, self.inputs[0], self.store)
        methods, _ = self.methods
        device = self.setup.devices.get(self.label, "cpu")
        return TriedOut(
            channels_last=getattr(self.model, "channels_last", None),
            refused={m.label: why for m in methods if (why := reason_against(m.component, self.model, self.inputs))},
            numerics=fixed_numerics(self.model, self.largest, self.runtime, self.store, device),
            architecture=self.architecture(),
        )

    def architecture(self) -> str:
        """The digest of the network's architecture, where it may lend a part of a sum or borrow one; else empty."""
        borrows = any(metric.composite and metric.lent for _, metric in self.setup.metrics)
        if self.model.trained is None and not borrows:
            return ""
        try:
            return network_architecture(self.model, self.inputs[0])
        except HeatcheckError:  # a function, or a last layer like no other
            return ""


def leads(setup: Setup, runtime: Runtime) -> bool:
    """Whether other processes are likely to compute on the CPU, so that this one need not hold what passes need."""
    if any(model.device.type != "cpu" for model in setup.models.values()) or runtime.threads > 1:
        return False  # neither a GPU nor several threads can be used in a copy of a process
    return runtime.on_ray or (setup.sources.portable and runtime.processes(math.inf) > 1)


def refuse_misbehaviour(label: str, model: Model, tried: Sequence[Inputs]) -> None:
    """Stop where a model's answers are not a function of its input; one that fails is left to the samples' statuses.

    Raises:
        HeatcheckError: with everything that is wrong, and what to change.
    """
    try:
        found = misbehaviours(model, tried) if tried else []
    except Exception:
        return
    if found:
        told = "; ".join(f"{m.what}: {m.remedy}" for m in found)
        raise HeatcheckError(f"model {label!r} cannot be measured. {told[0].upper()}{told[1:]}")


def settle_layout(model: Model, x: Inputs, store: Store | None) -> None:
    """The memory layout that the run was begun with, else the one that suits the model."""
    known = store.numerics().get(model.identity) if store is not None else None
    if known is not None and isinstance(model, TorchModel):
        model.lay_out(channels_last=known["channels_last"])
    settle(model, x)


def meet(model: Model, inputs: Sequence[Inputs]) -> None:
    """Let a model answer once, so that it is known what its output is; what goes wrong, a sample's status tells."""
    for x in inputs:
        with contextlib.suppress(Exception):
            model.class_count(x)
            with torch.inference_mode():
                if look_like_probabilities(model.logits(x)) and PROBABILITIES not in model.notes:
                    model.notes.append(PROBABILITIES)
            return


def strangers(model: Model, x: Inputs, data: Dataset) -> str:
    """Which labels are no classes of a model that has been met, in a sentence; one without classes needs none."""
    with contextlib.suppress(Exception):  # what is wrong with its answer, a sample's status tells
        classes = model.class_count(x)
        return "" if model.gives_number else strange_labels(data, model.name, classes, data.fractional)
    return ""


def nothing_read(label: str, model: Model, data: Dataset) -> str:
    """Why a model can read none of the samples."""
    reasons = unreadable(data)
    for sample in (s for s in data if s.problem is None):
        try:
            model.encode(sample)
        except Exception as problem:
            kind = "" if isinstance(problem, HeatcheckError) else f"{type(problem).__name__}: "
            reason = f"{kind}{problem}".replace(f"sample {sample.name!r}", "the sample")
            reasons.append((reason, sample.name))
    return f"model {label!r} can read none of the {len(data)} samples of {data.name!r}: {causes(reasons)}"


def compares_models(metrics: Sequence[Labelled], setup: Setup) -> tuple[tuple[Labelled, ...], dict[str, str]]:
    """The metrics that compare models, filed under the set of models; or why there is nothing to compare."""
    everyone = sorted(m.identity for m in setup.models.values())
    found = [m for m in metrics if m.component.across_models]
    if len(everyone) < 2:
        name = next(iter(setup.models.values())).name
        return (), {m.label: f"{m.component.id} compares models, and there is only {name}" for m in found}
    return tuple(replace(m, digest=digest({"metric": m.digest, "models": everyone})) for m in found), {}


def fixed_numerics(
    model: Model, tried: Sequence[Inputs], runtime: Runtime, store: Store | None, device: str = "cpu"
) -> Numerics:
    """The run's numerics for a model: as written down, else measured now on the first of these inputs that it can answer.

    Raises:
        HeatcheckError: it answers none of them.
    """
    known = store.numerics().get(model.identity) if store is not None else None
    here: dict[str, Any] = {**machine(device), "threads": runtime.threads}
    if known is not None and known["device"] == device:
        begun = {name: known[name] for name in ("forward", "backward", "channels_last")}
        return Numerics(**{**begun, **here, "compiled": known.get("compiled", False), "rounding": model.rounding})
    if runtime.batch is not None:
        here |= {"channels_last": bool(getattr(model, "channels_last", False)), "rounding": model.rounding}
        return Numerics(forward=runtime.batch, backward=runtime.batch, **here)
    problems = []
    for x in tried:
        try:
            gpus = gpus_of([device])
            sharers = 1 if runtime.chooses or not gpus else -(-runtime.processes(0.0) // gpus)
            return measure(model, x, threads=runtime.threads, device=device, sharers=sharers)
        except Exception as problem:  # a sample that the model cannot answer is reported when its chunk is run
            problems.append(problem)
    if isinstance(problems[0], HeatcheckError):
        raise HeatcheckError(str(problems[0])) from problems[0]
    many = "the first sample" if len(tried) == 1 else f"any of the first {len(tried)} samples"
    raise HeatcheckError(
        f"{model.name!r} gave no output for {many}: {first_line(problems[0])}; try the model on one input by hand"
    ) from problems[0]


def with_compiled_passes(part: Part, setup: Setup, runtime: Runtime, store: Store | None) -> Part:
    """A model's share with its forward passes compiled: as the run was begun, else where it is wanted and pays."""
    grid = part.grid
    if not (runtime.compile or grid.numerics.compiled):
        return part
    known = store.numerics().get(grid.model.identity) if store is not None else None
    data = runtime.share(setup.data)
    samples = lacking(store, data, grid) if store is not None else [s for s in data if not s.problem]
    if known is not None and known["device"] == grid.numerics.device:
        chosen = as_begun(part.label, grid, part.tried if samples else (), wanted=runtime.compile)
    else:
        foreseen = foresee(grid, samples, blank=runtime.timeout is not None)
        chosen = decide(part.label, grid, part.tried, foreseen, lambda seconds: processes_of(setup, runtime, seconds))
    notes = [chosen.note] if chosen.note else []
    return replace(part, grid=replace(grid, numerics=chosen.numerics), notes=notes, compiling=chosen.seconds)


def processes_of(setup: Setup, runtime: Runtime, seconds: float) -> int:
    """How many processes share a study's work of so many seconds; by default, each GPU has one."""
    workers = runtime.processes(seconds) if setup.sources.portable else 1
    gpus = gpus_of(setup.devices.values())
    return min(workers, gpus) if runtime.chooses and gpus else workers


def write_numerics(store: Store, parts: Sequence[Part]) -> None:
    """Write down the numerics of models that are new in the run, so that a resumed run has the same."""
    known = store.numerics()
    new = {part.grid.model.identity: part.grid.numerics.record() for part in parts}
    written = (store.folder / NUMERICS).exists() and NUMERICS not in store.unchecked
    if new.keys() - known.keys() or not written:
        store.write(NUMERICS, {**new, **known})


def first_shape(model: Model, samples: Sequence[Sample]) -> Shape | None:
    """The first sample that the model can read and that has references, as a forecast sees it."""
    for sample in samples:
        if not sample.problem and sample.reference:
            try:
                x = model.encode(sample)
                return Shape(model.domain, x, model, model.references(sample, x))
            except Exception:  # noqa: S112 - reported per sample when its chunk is run
                continue
    return None


def find_circular(grid: ModelGrid, shape: Shape) -> list[tuple[str, str]]:
    """Pairs in which a method asks the metric's own questions."""
    return [(m.label, k.label) for m in grid.methods for k in grid.metrics if circular(m.component, k.component, shape)]
