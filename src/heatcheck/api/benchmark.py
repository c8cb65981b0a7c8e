"""A benchmark over a grid: models × data × methods × metrics."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from heatcheck.api.result import Result
from heatcheck.api.study import Study, folder_name
from heatcheck.core import catalogue
from heatcheck.core.files import printable
from heatcheck.core.plugins import load_plugin
from heatcheck.core.types import HeatcheckError, Modality
from heatcheck.data.base import Dataset, TextColumnArg, causes, unreadable
from heatcheck.data.catalogue import default_data
from heatcheck.data.documents import Corpus, corpus_of
from heatcheck.data.load import load_data
from heatcheck.data.matching import match_labels
from heatcheck.methods.base import Method
from heatcheck.metrics.base import Metric
from heatcheck.models.base import Model
from heatcheck.models.catalogue import default_model, modality_of_model
from heatcheck.models.devices import FP32
from heatcheck.models.objects import with_tokenizer
from heatcheck.models.outputs import Number, as_number
from heatcheck.models.preprocess import SAY_IT
from heatcheck.models.targets import checked_target
from heatcheck.models.training_record import every_checkpoint
from heatcheck.models.transforms import as_preprocess
from heatcheck.models.vision import PictureModel
from heatcheck.profiles import Profile, load_profile, own_name
from heatcheck.run.elsewhere import only_here
from heatcheck.run.execution import execute
from heatcheck.run.naming import aligned, difference
from heatcheck.run.plan import Plan, plan
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import Setup
from heatcheck.run.work import Sources
from heatcheck.training.defaults import load_model

if TYPE_CHECKING:
    from heatcheck.api.race import RaceResult


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Models × data × methods × metrics.

    >>> bench = Benchmark(models="efficientnet_lite0", data="images", profile="quick")   # doctest: +SKIP
    >>> result = bench.run("runs/first", samples=8)                                       # doctest: +SKIP
    >>> result.leaderboard()                                                              # doctest: +SKIP

    Args:
        models: names, modules, callables or adapters; a mapping gives them labels. None for the embedded model that
            reads the data.
        data: a spec, a path, tensors, arrays, texts, pictures, a torch Dataset or DataLoader, or an iterable of items;
            see `load_data`. None for the embedded data that the models read.
        text_column: where the data are a table or dicts, what holds the content, by name or position; two for pairs of
            texts.
        label_column: likewise, what holds the label.
        preprocess: what is done to pictures before the models see them: `imagenet`, `clip`, `inception`,
            `mean=…,std=…,size=…`, a `Preprocess`, torchvision's `weights.transforms()`, timm's `pretrained_cfg` or an
            image processor of transformers; of texts `tokens=N`: how many tokens the models see, where they could read
            more; None for what the models themselves say.
        output: the key, attribute or position of the class scores, for models that return several tensors.
        methods: specs (`"rise(samples=500)"`), units, or functions declared with `@hc.method`; None for the profile's.
            `random` is added to a run as a control where it is not named.
        metrics: likewise; for both, a mapping gives them labels.
        profile: where parameters and lists that are not given come from.
        samples: how many samples, chosen by the seed; all if None. What `run` and `plan` are given wins.
        target: the class to explain: predicted, label, top2 or its number; or a number made of the output: a function
            `output -> [n]`, `column:N` or `FILE.py:FUNCTION`; None for the profile's.
        seed: of every random stream.
        precision: in what passes are computed: fp32, tf32, bf16 or fp16. Part of a model's identity and of its label.
        plugins: Python files that declare methods, metrics or fills.
        multiverse: what the metrics have in common where they are one question asked in many ways; see `multiverse`.
        retraining: how networks that were retrained answered; see `roar`.
    """

    models: Any = None
    data: Any = None
    text_column: TextColumnArg = None
    label_column: str | int | None = None
    preprocess: Any = None
    output: str | int | None = None
    methods: Sequence[Any] | Mapping[str, Any] | None = None
    metrics: Sequence[Any] | Mapping[str, Any] | None = None
    profile: str = "default"
    samples: int | None = None
    target: str | int | Callable[[Any], Any] | None = None
    seed: int = 0
    precision: str = FP32
    plugins: tuple[str, ...] = ()
    multiverse: Mapping[str, Any] | None = None
    retraining: Mapping[str, Any] | None = None
    _loaded: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_study(cls, study: Study) -> "Benchmark":
        """The benchmark that a study file describes."""
        return cls(
            models=list(study.models),
            data=study.data,
            text_column=study.text_column,
            label_column=study.label_column,
            preprocess=study.preprocess,
            output=study.output,
            methods=study.methods,
            metrics=study.metrics,
            profile=study.profile,
            samples=study.samples,
            target=study.target,
            seed=study.seed,
            precision=study.precision,
            plugins=tuple(str(p) for p in study.plugins),
        )

    def run(
        self,
        out: str | Path | None = None,
        *,
        samples: int | None = None,
        runtime: Runtime | None = None,
        **options: Any,
    ) -> Result:
        """Compute what is missing in the folder `out` and read the result back.

        Args:
            out: the run's folder; an existing one is resumed. By default it is in `runs/`, named after models and data.
            samples: how many samples; if None, as many as the benchmark says.
            runtime: how it is computed.
            **options: parts of the runtime by name, such as workers, device, batch or budget; see `Runtime`.

        Raises:
            HeatcheckError: no sample can be read.
            NothingScoredError: every cell has failed.
        """
        return self.with_random(samples).compute(out, samples=samples, runtime=Runtime.of(runtime, **options))

    def compute(self, out: str | Path | None = None, *, samples: int | None = None, runtime: Runtime) -> Result:
        """Run exactly what is listed, without a control beside it; see `run`."""
        setup = self.setup(samples)
        folder = out or Path("runs", folder_name(setup.models, setup.data.name))
        try:
            result = Result(execute(setup, folder, runtime))
        except KeyboardInterrupt as stopped:
            stopped.add_note(f"finished work is saved in {folder}; run again to continue")
            raise
        finally:
            for key in [key for key, known in self._loaded.items() if getattr(known, "released", False)]:
                del self._loaded[key]  # another run loads it again
        demand_scores(result)
        return result

    def race(
        self, out: str | Path | None = None, *, goal: str = "best", margin: float | None = None, **options: Any
    ) -> "RaceResult":
        """Find the best methods, or their order, with as few passes as the samples allow; see `heatcheck.race`.

        Args:
            out: the run's folder; a race there goes on.
            goal: `best`, `top=K` or `order`.
            margin: differences of scores that do not matter.
            **options: samples, runtime, and its parts by name, as for `run`.
        """
        from heatcheck.api.race import run_race

        return run_race(self, out, goal=goal, margin=margin, **options)

    def plan(
        self,
        *,
        samples: int | None = None,
        out: str | Path | None = None,
        runtime: Runtime | None = None,
        calibrate: bool = True,
        **options: Any,
    ) -> Plan:
        """Predict passes, time, memory and disk before anything is spent; arguments as for `run`."""
        return plan(self.with_random(samples).setup(samples), Runtime.of(runtime, **options), out, calibrate=calibrate)

    def settings(self, samples: int | None = None) -> Profile:
        """The profile as it is on the data's modality; they are read for this."""
        samples = self.samples if samples is None else samples
        if self.data is None:
            return self._complete(samples).settings(samples)
        return load_profile(self.profile, self._data(samples).modality)

    def lacks_random(self, samples: int | None = None) -> bool:
        """Whether no method is `random`, the control that nothing is ranked without."""
        for path in self.plugins:
            load_plugin(path)
        profile = self.settings(samples)
        methods = profile.methods if self.methods is None else self.methods
        return all(component.id != "random" for _, component in label_components("method", methods, profile))

    def with_random(self, samples: int | None = None) -> "Benchmark":
        """The same with `random` as a control: what does not beat it says nothing, whatever its rank."""
        if not self.lacks_random(samples):
            return self
        methods = self.settings(samples).methods if self.methods is None else self.methods
        if isinstance(methods, Mapping):
            label = "random" if "random" not in methods else "random (control)"
            return replace(self, methods={**methods, label: "random"})
        return replace(self, methods=[*methods, "random"])

    def setup(self, samples: int | None = None) -> Setup:
        """Models, data, methods and metrics, loaded and built."""
        for path in self.plugins:
            load_plugin(path)
        samples = self.samples if samples is None else samples
        if self.models is None or self.data is None:
            return self.complete(samples).setup(samples)
        profile = self.settings(samples)
        methods = label_components("method", profile.methods if self.methods is None else self.methods, profile)
        metrics = with_parts(profile.metrics if self.metrics is None else self.metrics, profile)
        models = {precise_label(label, self.precision): spec for label, spec in label_models(self.models).items()}
        chosen_by = self.seed if samples else None
        data = self._data(samples)
        methods = [(label, own.for_corpus(functools.partial(self._corpus, data))) for label, own in methods]
        target = self._target(profile.target)
        demand_labels(data, target)
        written = target.written if isinstance(target, Number) else target
        preprocess = as_preprocess(self.preprocess)
        keys = {label: f"model {label} {preprocess} {self.output} {written} {self.precision}" for label in models}
        for label, spec in models.items():
            if keys[label] not in self._loaded:
                self._loaded[keys[label]] = self._model(label, spec, data, target)
        demand_aligned(
            profile.metrics if self.metrics is None else self.metrics,
            {label: self._loaded[key] for label, key in keys.items()},
            profile,
        )
        if not isinstance(target, Number):  # a number of the output has no classes that labels could name
            data = match_labels(data, {label: self._loaded[key].classes for label, key in keys.items()})
        record = {
            "models": {label: spec if isinstance(spec, str) else type(spec).__name__ for label, spec in models.items()},
            "data": printable(self.data) if isinstance(self.data, str) else data.name,
            **({"preprocess": str(preprocess)} if preprocess else {}),
            **({"output": self.output} if self.output is not None else {}),
            **({"precision": self.precision} if self.precision != FP32 else {}),
            "samples": samples,
            "profile": self.profile,
            "profile_note": profile.note,
            "methods": {label: component.name for label, component in methods},
            "metrics": {label: component.name for label, component in metrics},
            **({"multiverse": self.multiverse} if self.multiverse else {}),
            **({"retraining": self.retraining} if self.retraining else {}),
        }
        components = [component for _, component in (*methods, *metrics)]
        data_spec = str(self.data) if isinstance(self.data, str | Path) else ""
        kept = tuple(only_here(models, data_spec, self.target, components, self.plugins))
        return Setup(
            models={label: self._loaded[key] for label, key in keys.items()},
            data=data,
            methods=methods,
            metrics=metrics,
            target=written,
            seed=self.seed,
            record=record,
            sources=Sources(
                models={label: str(spec) for label, spec in models.items() if isinstance(spec, str)},
                preprocess=preprocess.record() if preprocess else None,
                output=self.output,
                precision=self.precision,
                data=data_spec,
                text_column=tuple(self.text_column) if isinstance(self.text_column, list) else self.text_column,
                label_column=self.label_column,
                samples=samples,
                seed=chosen_by,
                plugins=tuple(self.plugins),
                portable=not kept,
                only_here=kept,
            ),
        )

    def complete(self, samples: int | None = None) -> "Benchmark":
        """The same, with the embedded model or data where they are not named."""
        return self._complete(samples) if self.models is None or self.data is None else self

    def _complete(self, samples: int | None) -> "Benchmark":
        """The same with the embedded model that reads the data, or with embedded data that the first model reads."""
        if self.models is not None:
            first = next(iter(label_models(self.models).values()))
            written = isinstance(first, str)
            modality = modality_of_model(first) if written else load_model(first, guess=True).domain.modality
            return replace(self, data=default_data(modality))
        if self.data is None:
            return replace(self, models=default_model(Modality.IMAGE), data=default_data(Modality.IMAGE))
        data = self._data(samples)
        return replace(self, models=default_model(data.modality))

    def _data(self, samples: int | None) -> Dataset:
        """The samples, read once.

        Raises:
            HeatcheckError: none of them can be read.
        """
        key = f"data {samples}"
        if key not in self._loaded:
            if isinstance(self.data, Iterator) and any(known.startswith("data ") for known in self._loaded):
                raise HeatcheckError(
                    f"samples={samples}: the {type(self.data).__name__} was read before, for another number of samples, "
                    "and can be read only once; make a list of it"
                )
            loaded = load_data(
                self.data,
                samples=samples,
                seed=self.seed if samples else None,
                text_column=self.text_column,
                label_column=self.label_column,
            )
            demand_samples(loaded)
            self._loaded[key] = loaded
        data: Dataset = self._loaded[key]
        return data

    def _corpus(self, data: Dataset) -> Corpus:
        """All of the data, of which a run may explain some samples only."""
        all_of_it = data if isinstance(self.data, Iterator) else self._data(None)
        spec = str(self.data) if isinstance(self.data, str | Path) else ""
        columns = self.text_column if isinstance(self.text_column, list | tuple) else (self.text_column,)
        return corpus_of(all_of_it.samples, spec, ",".join(str(column) for column in columns if column is not None))

    def _target(self, usual: str) -> str | int | Number:
        """The class to explain, or the number that is made of the output."""
        target = usual if self.target is None else self.target
        number = as_number(target)
        return checked_target(target) if number is None else number

    def _model(self, label: str, spec: Any, data: Dataset, target: str | int | Number) -> Model:
        """A model that can read the data.

        Raises:
            HeatcheckError: the data are pictures, and it is not known how the model wants them.
        """
        pictures = [s for s in data if s.problem is None and not isinstance(s.content, Tensor)]
        model = load_model(
            spec,
            name=label,
            preprocess=self.preprocess,
            guess=bool(pictures),
            output=self.output,
            target=target if isinstance(target, Number) else None,
        ).computing_in(self.precision)
        if pictures and isinstance(model, PictureModel) and model.preprocessing is None:
            raise HeatcheckError(
                f"{label} cannot read the {len(pictures)} pictures of {data.name!r}: its preprocessing is not known; "
                f"{SAY_IT}"
            )
        return model


class NothingScoredError(HeatcheckError):
    """Every cell of a run has failed.

    Args:
        message: why.
        result: the run, all the same.
    """

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result


def demand_scores(result: Result) -> None:
    """Refuse a run of which every cell failed, or failed or was skipped; controls count if nothing else ran."""
    import polars as pl

    scores = result.last().scores()
    controls = [m["name"] for m in result.facts.get("methods", ()) if m["control"]]
    mine = scores.filter(~scores["method"].cast(pl.String).is_in(controls))["status"]
    mine = scores["status"] if mine.is_empty() else mine
    if not all(status.startswith(("failed", "skipped")) for status in mine.unique()):
        return
    cells = scores.filter(pl.col("status").cast(pl.String).str.starts_with("failed")).select("status", "sample")
    failed = [(status.removeprefix("failed: "), sample) for status, sample in cells.iter_rows()]
    if failed:
        raise NothingScoredError(
            f"nothing could be scored, {len(failed)} of {scores.height} cells failed: {causes(failed)}", result
        )


def demand_samples(data: Dataset) -> None:
    """Refuse data of which nothing can be read."""
    if len(data) and all(sample.problem for sample in data):
        advice = {
            Modality.IMAGE: "check the path, and that its files are whole pictures of a common format",
            Modality.TEXT: "check the file, and which column holds the texts: --text-column, in Python text_column=",
        }[data.modality]
        none = "the only sample" if len(data) == 1 else f"none of the {len(data)} samples"
        can = "cannot" if len(data) == 1 else "can"
        raise HeatcheckError(f"{none} of {data.name!r} {can} be read: {causes(unreadable(data))}; {advice}")


def demand_labels(data: Dataset, target: str | int | Number) -> None:
    """Refuse to explain labels where there are none."""
    if target == "label" and all(sample.label is None for sample in data):
        numbers = f": labels are numbers, such as {data.fractional}, and no classes" if data.fractional else ""
        raise HeatcheckError(
            f"target 'label': no sample of {data.name!r} has a label{numbers}; use target predicted, top2 or the number of a class, "
            "or data with labels"
        )


def demand_aligned(
    metrics: Iterable[Any] | Mapping[str, Any], models: Mapping[str, Model], profile: Profile | None = None
) -> None:
    """Refuse to call a score IDSDS that is not so on any model; where it is on some, the others' is called SDS.

    Raises:
        HeatcheckError: a metric is written as `idsds`, and no model was aligned with its deletions.
    """
    for spec in metrics.values() if isinstance(metrics, Mapping) else metrics:
        if not isinstance(spec, str) or own_name(spec.strip()) == spec.strip():
            continue
        reasons = {}
        for label, model in models.items():
            metric = as_component("metric", spec, profile).resolved_on(model.domain, number=model.gives_number)
            reasons[label] = difference(aligned(model), metric.name)
        if all(reasons.values()):
            told = "; ".join(f"{label}: {reason}" for label, reason in reasons.items())
            raise HeatcheckError(
                f"{spec} is sds on a model that was trained to bear the same deletions. {told}. Write sds, or align the "
                "model first: heatcheck train align --model … --data … --out …"
            )


def with_parts(metrics: Sequence[Any] | Mapping[str, Any], profile: Profile) -> list[tuple[str, Any]]:
    """Labelled metrics, and before those that add up others the parts that are not there; a mapping stays as it is."""
    found = label_components("metric", metrics, profile)
    if isinstance(metrics, Mapping):
        return found
    known = {metric.id for _, metric in found}
    complete: list[tuple[str, Any]] = []
    for label, metric in found:
        lacking = [part for part in metric.parts if part not in known] if metric.composite else []
        known.update(lacking)
        complete += [*label_components("metric", lacking, profile), (label, metric)]
    return complete


def label_models(models: Any) -> dict[str, Any]:
    """Models by the label tables show; `trained:FOLDER@*` is one for each checkpoint."""
    if isinstance(models, Mapping):
        return {name: model for label, spec in models.items() for name, model in _each_of(label, spec)}
    one = not isinstance(models, list | tuple) or with_tokenizer(models) is not None
    many = [models] if one else list(models)
    labels: dict[str, Any] = {}
    for model in (each for spec in many for _, each in _each_of("", spec)):
        label = model if isinstance(model, str) else getattr(model, "name", None) or _type_name(model)
        n = sum(1 for k in labels if k == label or k.startswith(f"{label}#"))
        labels[f"{label}#{n + 1}" if n else label] = model
    return labels


def _each_of(label: str, spec: Any) -> Iterator[tuple[str, Any]]:
    """The models of one spec, labelled after it."""
    if not isinstance(spec, str | Path):
        yield label, spec
        return
    for each in every_checkpoint(str(spec)):
        yield label if each == str(spec) else f"{label}@{each.rpartition('@')[2]}", each


def precise_label(label: str, precision: str) -> str:
    """A model's label, with the precision of its passes where that is not the usual one.

    >>> precise_label("timm:resnet50", "bf16")
    'timm:resnet50 (bf16)'
    """
    return label if precision == FP32 else f"{label} ({precision})"


def _type_name(model: Any) -> str:
    if text := with_tokenizer(model):
        return type(text[0]).__name__
    return type(model.func if isinstance(model, functools.partial) else model).__name__


def label_components(kind: str, specs: Iterable[Any] | Mapping[str, Any], profile: Profile) -> list[tuple[str, Any]]:
    """Components with the profile's parameters, labelled as they were written, or as a mapping says."""
    if isinstance(specs, Mapping):
        return [(label, as_component(kind, spec, profile)) for label, spec in specs.items()]
    found: list[tuple[str, Any]] = []
    for spec in specs:
        component = as_component(kind, spec, profile)
        label = own_name(spec.strip()) if isinstance(spec, str) else component.name
        if any(label == known for known, _ in found):
            also = f", once as {spec}, which it is called on aligned models by itself" if label != spec else ""
            raise HeatcheckError(f"{kind} {label!r} is listed twice{also}")
        found.append((label, component))
    return found


def as_component(kind: str, spec: Any, profile: Profile | None = None) -> Any:
    """A component from text, a component, a component's class or a declared function."""
    if isinstance(spec, str):
        return catalogue.build(kind, (profile or load_profile("default")).apply(kind, spec))
    if callable(spec) and not isinstance(spec, type | Method | Metric):
        for entry in catalogue.entries(kind).values():
            if getattr(entry.target, "function", None) is spec:
                return entry.target()
        raise HeatcheckError(f"{spec!r} is not a {kind}: declare it with @hc.{kind}('its_id')")
    component = catalogue.build(kind, spec)
    if getattr(component, "kind", None) != kind:
        raise HeatcheckError(f"{spec!r} is not a {kind}")
    return component
