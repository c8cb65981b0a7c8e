"""The public verbs: a benchmark over a grid, and explaining or scoring plain tensors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heatcheck import catalogue
from heatcheck.data.base import Dataset
from heatcheck.data.load import load_data
from heatcheck.engine import progress as progresses
from heatcheck.engine.numerics import Numerics
from heatcheck.engine.planner import Plan, plan
from heatcheck.engine.probe import Probe
from heatcheck.engine.result import Result
from heatcheck.engine.run import Options, Setup, execute
from heatcheck.methods.base import Method
from heatcheck.metrics.base import Maps, Metric
from heatcheck.models.base import Explained
from heatcheck.models.load import load_model
from heatcheck.plugins import load_plugin, plugin_module
from heatcheck.profiles import load_profile
from heatcheck.types import Attribution, Batch, HeatcheckError, Inputs, NotApplicable, Sample, Streams, digest_of_tensor

if TYPE_CHECKING:
    from heatcheck.engine.distance import FillComparison
    from heatcheck.models.preprocess import Preprocess
    from heatcheck.study import Study
    from heatcheck.universes import Multiverse


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Models × data × methods × metrics.

    >>> bench = Benchmark(models="efficientnet_lite0", data="images", profile="quick")   # doctest: +SKIP
    >>> result = bench.run("runs/first", samples=8)                                       # doctest: +SKIP
    >>> result.leaderboard()                                                              # doctest: +SKIP

    Args:
        models: names, modules, callables or adapters; a mapping gives them labels.
        data: a spec, a path, tensors, texts or a torch Dataset.
        methods: specs (`"rise(samples=500)"`), units, or functions declared with `@hc.method`; None for the profile's.
        metrics: likewise; for both, a mapping gives them labels.
        profile: where parameters and lists that are not given come from.
        target: the class to explain: predicted, label, top2 or a number; None for the profile's.
        seed: of every random stream.
        plugins: Python files that declare units of one's own.
        multiverse: what the metrics have in common where they are one question asked in many ways; see `multiverse`.
    """

    models: Any = "efficientnet_lite0"
    data: Any = "images"
    methods: Sequence[Any] | Mapping[str, Any] | None = None
    metrics: Sequence[Any] | Mapping[str, Any] | None = None
    profile: str = "default"
    target: str | int | None = None
    seed: int = 0
    plugins: tuple[str, ...] = ()
    multiverse: Mapping[str, Any] | None = None
    _loaded: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_study(cls, study: "Study") -> "Benchmark":
        """The benchmark that a study file describes."""
        return cls(
            models=list(study.models),
            data=study.data,
            methods=study.methods,
            metrics=study.metrics,
            profile=study.profile,
            target=study.target,
            seed=study.seed,
            plugins=tuple(str(p) for p in study.plugins),
        )

    def run(
        self,
        out: str | Path,
        *,
        samples: int | None = None,
        workers: int | None = None,
        threads: int = 1,
        batch: int | None = None,
        maps: str = "keep",
        budget: float | None = None,
        progress: "str | progresses.Progress" = "auto",
    ) -> Result:
        """Compute what is missing in the folder `out` and read the result back.

        Args:
            out: the run's folder; an existing one is resumed.
            samples: how many samples; all if None.
            workers: processes that share the work; None for one, here.
            threads: threads per process for model passes.
            batch: inputs per model call; measured if None.
            maps: which maps to store: keep, gallery or none.
            budget: seconds after which no new chunk is begun.
            progress: auto, bar, lines, none, or an object with begin, advance, note and end.
        """
        setup = self.setup(samples)
        options = Options(workers=workers or 1, threads=threads, batch=batch, maps=maps, budget=budget)
        return Result(execute(setup, out, options, progresses.choose(progress)))

    def plan(
        self,
        *,
        samples: int | None = None,
        out: str | Path | None = None,
        workers: int | None = None,
        threads: int = 1,
        batch: int | None = None,
        maps: str = "keep",
        calibrate: bool = True,
    ) -> Plan:
        """Predict passes, time, memory and disk before anything is spent."""
        options = Options(workers=workers or 1, threads=threads, batch=batch, maps=maps)
        return plan(self.setup(samples), options, out, calibrate=calibrate)

    def setup(self, samples: int | None = None) -> Setup:
        """Everything resolved: adapters, data, units."""
        for path in self.plugins:
            load_plugin(path)
        profile = load_profile(self.profile)
        methods = profile.methods if self.methods is None else self.methods
        metrics = profile.metrics if self.metrics is None else self.metrics
        if not isinstance(metrics, Mapping):
            metrics = with_parts(list(metrics), self.profile)
        models = label_models(self.models)
        data_key = f"data {samples}"
        if data_key not in self._loaded:
            self._loaded[data_key] = load_data(self.data, samples=samples, seed=self.seed if samples else None)
        for label, spec in models.items():
            if label not in self._loaded:
                self._loaded[label] = load_model(spec, name=label)
        target = profile.target if self.target is None else self.target
        named_methods = name_units("method", methods, self.profile)
        named_metrics = name_units("metric", metrics, self.profile)
        record = {
            "models": {label: spec if isinstance(spec, str) else type(spec).__name__ for label, spec in models.items()},
            "data": self.data if isinstance(self.data, str) else self._loaded[data_key].name,
            "samples": samples,
            "profile": self.profile,
            "profile_note": profile.note,
            "methods": {label: unit.name for label, unit in named_methods},
            "metrics": {label: unit.name for label, unit in named_metrics},
            **({"multiverse": self.multiverse} if self.multiverse else {}),
        }
        portable = all(isinstance(s, str) for s in models.values()) and isinstance(self.data, str | Path)
        units = [spec for many in (methods, metrics) for spec in (many.values() if isinstance(many, Mapping) else many)]
        remote = {
            "models": {label: str(spec) for label, spec in models.items()},
            "data": str(self.data),
            "samples": samples,
            "methods": written(methods),
            "metrics": written(metrics),
            "profile": self.profile,
            "target": target,
            "seed": self.seed,
            "plugins": list(self.plugins),
        }
        return Setup(
            models={label: self._loaded[label] for label in models},
            data=self._loaded[data_key],
            methods=named_methods,
            metrics=named_metrics,
            target=target,
            seed=self.seed,
            record=record,
            remote=remote if portable and all(known_elsewhere(u, self.plugins) for u in units) else None,
        )


def with_parts(metrics: list[Any], profile: str) -> list[Any]:
    """The metrics, and before those that add up others the parts that are not there."""
    built = [unit for _, unit in name_units("metric", metrics, profile)]
    known = {unit.id for unit in built}
    complete: list[Any] = []
    for written, unit in zip(metrics, built, strict=True):
        lacking = [part for part in unit.parts if part not in known] if unit.composite else []
        known.update(lacking)
        complete += [*lacking, written]
    return complete


def setup_from_remote(hello: Mapping[str, Any]) -> Setup:
    """The same setup in a worker process, from plain data."""
    keys = ("models", "data", "methods", "metrics", "profile", "target", "seed")
    bench = Benchmark(**{k: hello[k] for k in keys}, plugins=tuple(hello["plugins"]))
    return bench.setup(hello["samples"])


def known_elsewhere(unit: Any, plugins: Sequence[str]) -> bool:
    """Whether a worker process can build the unit too: it is written as text, and not declared in a script."""
    if not isinstance(unit, str):
        return False
    id = unit.split("(")[0].strip()
    for kind in ("method", "metric"):
        entry = catalogue.entries(kind).get(id)
        if entry is not None and entry.target is not None:
            return entry.module in {plugin_module(p) for p in plugins}
    return True


def label_models(models: Any) -> dict[str, Any]:
    """Models by the label tables show."""
    if isinstance(models, Mapping):
        return dict(models)
    many = list(models) if isinstance(models, list | tuple) else [models]
    labels: dict[str, Any] = {}
    for model in many:
        label = model if isinstance(model, str) else getattr(model, "name", None) or type(model).__name__
        n = sum(1 for k in labels if k == label or k.startswith(f"{label}#"))
        labels[f"{label}#{n + 1}" if n else label] = model
    return labels


def written(specs: Sequence[Any] | Mapping[str, Any]) -> list[str] | dict[str, str]:
    """Specs as text, with their labels where they have some."""
    if isinstance(specs, Mapping):
        return {label: str(spec) for label, spec in specs.items()}
    return [str(spec) for spec in specs]


def name_units(kind: str, specs: Iterable[Any] | Mapping[str, Any], profile: str) -> list[tuple[str, Any]]:
    """Units with the profile's parameters, labelled as they were written, or as a mapping says."""
    if isinstance(specs, Mapping):
        return [(label, as_unit(kind, spec, profile)) for label, spec in specs.items()]
    found: list[tuple[str, Any]] = []
    for spec in specs:
        unit = as_unit(kind, spec, profile)
        label = spec.strip() if isinstance(spec, str) else unit.name
        if any(label == held for held, _ in found):
            raise HeatcheckError(f"{kind} {label!r} is listed twice")
        found.append((label, unit))
    return found


def as_unit(kind: str, spec: Any, profile: str = "default") -> Any:
    """A unit from text, a unit, a unit's class or a declared function."""
    if isinstance(spec, str):
        return catalogue.build(kind, load_profile(profile).apply(kind, spec))
    if callable(spec) and not isinstance(spec, type | Method | Metric):
        for entry in catalogue.entries(kind).values():
            if getattr(entry.target, "function", None) is spec:
                return entry.target()
        raise HeatcheckError(f"{spec!r} is not a {kind}: declare it with @hc.{kind}('its_id')")
    unit = catalogue.build(kind, spec)
    if getattr(unit, "kind", None) != kind:
        raise HeatcheckError(f"{spec!r} is not a {kind}")
    return unit


def multiverse(
    model: Any = "efficientnet_lite0",
    data: Any = "images",
    *,
    metric: str = "morf",
    factors: Mapping[str, Sequence[Any]] | None = None,
    methods: Sequence[Any] | None = None,
    profile: str = "default",
    target: str | int | None = None,
    seed: int = 0,
    plugins: tuple[str, ...] = (),
    out: str | Path = "runs/multiverse",
    samples: int | None = None,
    **options: Any,
) -> "Multiverse":
    """Ask one question in many ways that are as defensible, and see how far the ranking of methods moves.

    >>> many = multiverse(net, photos, factors={"fill": ["zero", "blur"], "sign": ["signed", "abs"]})  # doctest: +SKIP
    >>> many.w, many.table(), many.factors()                                                           # doctest: +SKIP

    Args:
        model: a model, or several, as for `Benchmark`.
        data: as for `Benchmark`.
        metric: the question, such as `morf`, `sds` or `abpc(ties=index)`.
        factors: levels by factor: a parameter of the metric (fill, steps, units, output, ties, …), `sign` or `dialect`;
            see `heatcheck.universes.expand`. The usual ones if None.
        methods: as for `Benchmark`; the profile's, with no control but random, if None. Random is added.
        profile: where parameters and lists that are not given come from.
        target: the class to explain.
        seed: of every random stream.
        plugins: Python files that declare units of one's own.
        out: the run's folder; an existing one is resumed.
        samples: how many samples; all if None.
        **options: workers, threads, batch, maps, budget and progress, as for `Benchmark.run`.
    """
    from heatcheck.universes import Multiverse, over

    bench = Benchmark(
        models=model, data=data, methods=methods, profile=profile, target=target, seed=seed, plugins=plugins
    )
    everywhere, _ = over(bench, metric, factors, samples)
    return Multiverse(everywhere.run(out, samples=samples, **options))


# -- one model, plain tensors ------------------------------------------------------------------------------------


def explain(
    model: Any,
    x: Any,
    *,
    method: Any,
    target: "int | Sequence[int] | Tensor | None" = None,
    preprocess: "Preprocess | None" = None,
    seed: int = 0,
) -> Attribution:
    """Explain inputs with one method; no file is written.

    Args:
        model: a module, a name, a callable or an adapter.
        x: inputs ready for the model `[b, …]`, or a picture's path, a PIL picture, texts.
        method: a spec such as `"integrated_gradients(steps=20)"`, a unit or a declared function.
        target: the class to explain, for all or for each; the predicted class if None.
        preprocess: how pixels are normalised, for fills defined in pixel space.
        seed: of random streams.
    """
    explained = load_model(model, preprocess=preprocess)
    unit = as_unit("method", method)
    parts, order = [], []
    for rows, probe, batch in batches_of(explained, x, target, None, seed):
        parts.append(unit(probe, batch))
        order += rows
    return merge(parts, order)


def score(
    model: Any,
    x: Any,
    maps: Any,
    *,
    metric: Any,
    target: "int | Sequence[int] | Tensor | None" = None,
    reference: Any = None,
    preprocess: "Preprocess | None" = None,
    seed: int = 0,
) -> Float[Tensor, "m b"]:
    """Score maps of some methods on inputs; undefined scores are NaN; no file is written.

    Args:
        model: a module, a name, a callable or an adapter.
        x: inputs, as for `explain`.
        maps: a tensor `[m, b, …]`, one attribution, or a list or mapping of attributions or method specs.
        metric: a spec such as `"morf(steps=10)"` or a unit.
        target: the class the maps explain; what the attributions say, or the predicted class, if None.
        reference: what a right map would show: masks `[b, …]`, or a mapping by kind.
        preprocess: how pixels are normalised.
        seed: of random streams.
    """
    explained = load_model(model, preprocess=preprocess)
    unit = as_unit("metric", metric)
    if unit.across_models:
        raise NotApplicable(f"{unit.id} compares models: use hc.Benchmark(models=[…], metrics=[{unit.id!r}])")
    given = collect(maps)
    target = common_target(given) if target is None else target
    values, order = [], []
    groups = list(batches_of(explained, x, target, reference, seed))
    total = sum(len(rows) for rows, _, _ in groups)
    for rows, probe, batch in groups:
        items: list[Attribution] = []
        explainers: list[Method | None] = []
        for item in given:
            if isinstance(item, Attribution):
                if len(item.values) != total:
                    raise HeatcheckError(f"{item.method}: {len(item.values)} maps were given for {total} inputs")
                items.append(fit(item.take(rows), probe, batch))
                explainers.append(None)
            else:
                items.append(item(probe, batch))
                explainers.append(item)
        values.append(unit(probe, batch, Maps(items, explained.domain, batch, explainers)).value)
        order += rows
    joined = torch.cat(values, 1)
    return torch.empty_like(joined).index_copy_(1, torch.tensor(order), joined)


def compare_fills(
    model: Any,
    x: Any,
    *,
    fills: Sequence[str] | None = None,
    shares: Sequence[float] = (0.25, 0.5, 0.75),
    units: str = "patch",
    preprocess: "Preprocess | None" = None,
    seed: int = 0,
    tell: Callable[[str], None] = lambda name: None,
) -> "FillComparison":
    """Delete the same random units with every fill and see how far each takes the model from what it knows.

    >>> compare_fills(net, photos, fills=["zero", "blur", "linear"]).record()   # doctest: +SKIP

    Args:
        model: a module, a name, a callable or an adapter.
        x: inputs, as for `explain`.
        fills: specs such as `"blur(sigma=5)"`; every fill of the modality if None.
        shares: of the units that are deleted.
        units: what is deleted.
        preprocess: how pixels are normalised, for fills defined in pixel space.
        seed: of random streams.
        tell: called with each fill's name before it is tried.
    """
    from heatcheck.engine.distance import compare

    explained = load_model(model, preprocess=preprocess)
    groups = [(probe, batch) for _, probe, batch in batches_of(explained, x, None, None, seed)]
    return compare(groups, fills, shares=shares, units=units, tell=tell)


def collect(maps: Any) -> list[Any]:
    """Maps in any of their forms as a list of attributions and methods."""
    if isinstance(maps, Attribution):
        return [maps]
    if isinstance(maps, Tensor):
        if maps.ndim < 3:
            raise HeatcheckError(f"maps of shape {tuple(maps.shape)}: expected [methods, samples, …]")
        return [Attribution(m, method=f"map {i}") for i, m in enumerate(maps)]
    if isinstance(maps, Mapping):
        return [named(k, v) for k, v in maps.items()]
    if isinstance(maps, str):
        return [as_unit("method", maps)]
    if isinstance(maps, list | tuple):
        return [m if isinstance(m, Attribution) else as_map_or_method(m, i) for i, m in enumerate(maps)]
    raise HeatcheckError(
        f"maps must be a tensor, an attribution, or a list or mapping of them, not {type(maps).__name__}"
    )


def named(label: str, value: Any) -> Any:
    """One entry of a mapping of maps."""
    return value if isinstance(value, Attribution) else as_map_or_method(value, label)


def as_map_or_method(value: Any, label: Any) -> Any:
    """A tensor `[b, …]` as an attribution, anything else as a method."""
    return Attribution(value, method=f"map {label}") if isinstance(value, Tensor) else as_unit("method", value)


def common_target(given: Sequence[Any]) -> Tensor | None:
    """The class that all attributions explain; an error if they disagree."""
    targets = [a.target for a in given if isinstance(a, Attribution) and a.target is not None]
    for other in targets[1:]:
        if not torch.equal(targets[0], other):
            raise HeatcheckError("the maps explain different classes; score those of each class apart")
    return targets[0] if targets else None


def fit(item: Attribution, probe: Probe, batch: Batch) -> Attribution:
    """A given map cut to its sample's own length and checked."""
    dims = probe.domain.leaf(batch.x).ndim - 1
    if item.values.ndim != dims:
        raise HeatcheckError(
            f"{item.method}: maps of shape {tuple(item.values.shape)} do not fit inputs "
            f"{tuple(probe.domain.leaf(batch.x).shape)}; give one number per site, {dims} axes with the batch"
        )
    sites = probe.domain.shape(batch.x)
    if dims == 2 and item.values.shape[1] > sites[1]:
        item = Attribution(**{**item.__dict__, "values": item.values[:, : sites[1]]})
    bad = ~torch.isfinite(item.values).flatten(1).all(1)
    if bad.any():
        status = tuple("failed: the map is not finite" if b else s for b, s in zip(bad, item.status, strict=True))
        item = Attribution(**{**item.__dict__, "status": status})
    return item


def batches_of(
    explained: Explained, x: Any, target: Any, reference: Any, seed: int
) -> Iterable[tuple[list[int], Probe, Batch]]:
    """Inputs of any form as batches of one shape each, with the rows they came from."""
    inputs, digests, labels, samples = as_inputs(explained, x)
    groups: dict[Any, list[int]] = {}
    for i, one in enumerate(inputs):
        groups.setdefault(one.shape_key(), []).append(i)
    wanted = None if target is None else torch.as_tensor(target).long().reshape(-1).expand(len(inputs))
    for rows in groups.values():
        joined = Inputs.cat([inputs[i] for i in rows])
        probe = Probe(explained, Numerics(threads=torch.get_num_threads()))
        logits = probe.logits(joined)
        own = logits.argmax(1) if wanted is None else wanted[rows]
        if bool((own < 0).any()) or bool((own >= logits.shape[1]).any()):
            raise HeatcheckError(f"target {own.tolist()} is not a class of a model with {logits.shape[1]} classes")
        batch = Batch(
            x=joined,
            target=own,
            label=torch.tensor([-1 if labels[i] is None else labels[i] for i in rows]),
            streams=Streams(seed, tuple(digests[i] for i in rows)),
            references=tuple(reference_of(reference, i, explained, samples[i], inputs[i]) for i in rows),
        )
        probe.remember_clean(batch, logits)
        yield rows, probe, batch


def as_inputs(explained: Explained, x: Any) -> tuple[list[Inputs], list[str], list[int | None], list[Sample | None]]:
    """One input per row, with digests and labels where known."""
    if isinstance(x, Inputs):
        rows = [x.take(slice(i, i + 1)) for i in range(len(x))]
        digests = [digest_of_tensor(next(iter(r.tensors.values()))) for r in rows]
        return rows, digests, [None] * len(rows), [None] * len(rows)
    if isinstance(x, Tensor | Mapping):
        return as_inputs(explained, explained.domain.wrap(x))
    data = load_data([x] if not isinstance(x, list | tuple | Dataset) else x)
    for sample in data:
        if sample.problem:
            raise HeatcheckError(f"{sample.name}: {sample.problem}")
    encoded = [explained.encode(s) for s in data]
    return encoded, [s.digest for s in data], [s.label for s in data], list(data)


def reference_of(reference: Any, i: int, explained: Explained, sample: Sample | None, x: Inputs) -> Mapping[str, Any]:
    """What a right map of input `i` would show."""
    if reference is None:
        return explained.references(sample, x) if sample is not None else {}
    if isinstance(reference, Mapping):
        return {k: v[i] for k, v in reference.items()}
    return {"mask": reference[i]}


def merge(parts: list[Attribution], order: list[int]) -> Attribution:
    """Attributions of batches in the order of the inputs; shorter maps are padded with zeros."""
    widest = [max(p.values.shape[d] for p in parts) for d in range(1, parts[0].values.ndim)]
    padded = []
    for part in parts:
        room = [n - have for n, have in zip(widest, part.values.shape[1:], strict=True)]
        padded.append(nn.functional.pad(part.values, [v for r in reversed(room) for v in (0, r)]))
    back = torch.tensor(order).argsort()
    status = [s for p in parts for s in p.status]
    target = torch.cat([p.target for p in parts if p.target is not None])
    return Attribution(
        values=torch.cat(padded)[back],
        target=target[back],
        method=parts[0].method,
        signed=parts[0].signed,
        output=parts[0].output,
        interpolation=parts[0].interpolation,
        status=tuple(status[i] for i in back.tolist()),
    )
