"""One model and plain tensors: explain them, or score maps of them; no file is written."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heatcheck.api.benchmark import as_component, demand_aligned
from heatcheck.core.types import (
    Attribution,
    Batch,
    HeatcheckError,
    Inputs,
    NotApplicable,
    Sample,
    Streams,
    TextPair,
    digest_of_tensor,
)
from heatcheck.data.base import Dataset
from heatcheck.data.load import load_data
from heatcheck.data.matching import strange_labels
from heatcheck.methods.base import Method
from heatcheck.metrics.base import Maps
from heatcheck.models.base import Model
from heatcheck.models.targets import makes_number, target_of_explanation
from heatcheck.probe.probe import Probe
from heatcheck.probe.tuning import for_tensors, give_back, settle, tune_allocator
from heatcheck.run.task import known_label
from heatcheck.training.defaults import load_model


class Given(NamedTuple):
    """Inputs of any form, one per row.

    Args:
        rows: each as the model takes it, with a batch axis of one.
        digests: of what each contains.
        labels: the right class of each, where known.
        samples: what each was read from; None for ready tensors.
    """

    rows: list[Inputs]
    digests: list[str]
    labels: list[int | None]
    samples: list[Sample | None]


def explain(
    model: Any,
    x: Any,
    *,
    method: Any,
    target: int | Sequence[int] | Tensor | str | Callable[[Any], Any] | None = None,
    preprocess: Any = None,
    output: str | int | None = None,
    seed: int = 0,
    device: str | None = None,
    precision: str | None = None,
) -> Attribution:
    """Explain inputs with one method; no file is written.

    Args:
        model: a module, a name, a callable or an adapter.
        x: inputs ready for the model `[b, …]`, or a picture's path, a PIL picture, a text, a list of any of these; a
            pair of texts that are read together is a `TextPair` or a tuple of two strings, while a list of strings is
            always so many texts.
        method: a spec such as `"integrated_gradients(steps=20)"`, a component or a declared function.
        target: the class to explain, for all or for each; or a number made of the model's output: a function
            `output -> [n]`, `column:N` or `FILE.py:FUNCTION`; the predicted class if None.
        preprocess: what is done to pictures, and how pixels are normalised for fills in pixel space; as for `Benchmark`.
        output: the key, attribute or position of the class scores, where the model returns several tensors.
        seed: of random streams.
        device: auto for the best there is, cpu, cuda, cuda:1 or mps; by default a module stays where it lives, and a model
            loaded by name computes on the CPU.
        precision: in what passes are computed: fp32, tf32, bf16 or fp16.
    """
    explained, classes = asked_model(model, x, target, preprocess, output, device, precision)
    component = as_component("method", method)
    given = as_inputs(explained, x)
    parts, order = [], []
    for rows, probe, batch in batches_of(explained, given, classes, None, seed):
        parts.append(component(probe, batch))
        order += rows
    say_notes(model, explained, given)
    give_back()
    return merge(parts, order)


def asked_model(
    model: Any,
    x: Any,
    target: Any,
    preprocess: Any,
    output: str | int | None,
    device: str | None = None,
    precision: str | None = None,
) -> tuple[Model, Any]:
    """The model, reading its output as asked, and the classes to explain; None for the predicted, or only, ones."""
    ready = isinstance(x, Tensor | Inputs | Mapping)
    target = target_of_explanation(target)
    made = target if makes_number(target) else None
    read_as = {"preprocess": preprocess, "output": output, "device": device, "precision": precision}
    explained = load_model(model, guess=not ready, target=made, **read_as)
    return explained, None if made is not None else target


def say_notes(model: Any, explained: Model, given: Given) -> None:
    """Warn of what the model could not read, and of what was guessed or chosen about it unless it came as an adapter."""
    notes = [] if isinstance(model, Model) else explained.notes
    unread = explained.unread(sample for sample in given.samples if sample is not None)
    for note in [*notes, *([unread] if unread else [])]:
        warnings.warn(note, stacklevel=3)


def score(
    model: Any,
    x: Any,
    maps: Any,
    *,
    metric: Any,
    target: int | Sequence[int] | Tensor | str | Callable[[Any], Any] | None = None,
    reference: Any = None,
    preprocess: Any = None,
    output: str | int | None = None,
    seed: int = 0,
    device: str | None = None,
    precision: str | None = None,
) -> Float[Tensor, "m b"]:
    """Score maps of some methods on inputs; undefined scores are NaN; no file is written.

    Args:
        model: a module, a name, a callable or an adapter.
        x: inputs, as for `explain`.
        maps: a tensor `[m, b, …]`, one attribution, or a list or mapping of attributions or method specs.
        metric: a spec such as `"morf(steps=10)"` or a component.
        target: what the maps explain, as for `explain`; what the attributions say, or the predicted class, if None.
        reference: what a right map would show: masks `[b, …]`, or a mapping by kind.
        preprocess: as for `explain`.
        output: as for `explain`.
        seed: of random streams.
        device: as for `explain`.
        precision: as for `explain`.
    """
    explained, classes = asked_model(model, x, target, preprocess, output, device, precision)
    component = as_component("metric", metric)
    demand_aligned([metric], {explained.name: explained})
    if component.across_models:
        raise NotApplicable(f"{component.id} compares models: use hc.Benchmark(models=[…], metrics=[{component.id!r}])")
    scored = collect(maps)
    check_explains(scored, explained)
    classes = common_target(scored) if classes is None else classes
    values, order, refused = [], [], []
    given = as_inputs(explained, x)
    groups = list(batches_of(explained, given, classes, reference, seed))
    total = sum(len(rows) for rows, _, _ in groups)
    for rows, probe, batch in groups:
        items: list[Attribution] = []
        explainers: list[Method | None] = []
        for item in scored:
            if isinstance(item, Attribution):
                if len(item.values) != total:
                    raise HeatcheckError(f"{item.method}: {len(item.values)} maps were given for {total} inputs")
                items.append(fit(item.take(rows), probe, batch))
                explainers.append(None)
            else:
                items.append(item(probe, batch))
                explainers.append(item)
        try:
            values.append(component(probe, batch, Maps(items, explained.domain, batch, explainers)).value)
        except NotApplicable as reason:  # to these inputs, such as texts of one length of which none has a reference
            refused.append(reason)
            values.append(torch.full((len(items), len(rows)), torch.nan, dtype=torch.float64))
        order += rows
    if refused and len(refused) == len(groups):
        raise refused[0]
    say_notes(model, explained, given)
    read = [sample for sample in given.samples if sample is not None]
    if read and not explained.gives_number:
        strange = strange_labels(read, explained.name, explained.class_count(given.rows[0]))
        if strange:
            warnings.warn(strange, stacklevel=2)
    give_back()
    joined = torch.cat(values, 1)
    return torch.empty_like(joined).index_copy_(1, torch.tensor(order), joined)


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
        return [as_component("method", maps)]
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
    return Attribution(value, method=f"map {label}") if isinstance(value, Tensor) else as_component("method", value)


def common_target(given: Sequence[Any]) -> Tensor | None:
    """The class that all attributions explain; an error if they disagree."""
    targets = [a.target for a in given if isinstance(a, Attribution) and a.target is not None]
    for other in targets[1:]:
        if not torch.equal(targets[0], other):
            raise HeatcheckError("the maps explain different classes; score those of each class apart")
    return targets[0] if targets else None


def check_explains(given: Sequence[Any], explained: Model) -> None:
    """Refuse attributions that explain something else than what the model is asked for."""
    for item in given:
        if isinstance(item, Attribution) and item.target is not None and item.explains != explained.explains:
            raise HeatcheckError(
                f"the maps of {item.method} explain {item.explains or 'a class'}, but {explained.explains or 'a class'} "
                "would be scored; pass the same target= to both"
            )


def fit(item: Attribution, probe: Probe, batch: Batch) -> Attribution:
    """A given map cut to its sample's own length and checked."""
    dims = probe.domain.leaf(batch.x).ndim - 1
    if item.values.ndim != dims:
        raise HeatcheckError(
            f"{item.method}: maps of shape {tuple(item.values.shape)} do not fit inputs "
            f"{tuple(probe.domain.leaf(batch.x).shape)}; give one number per site, {dims} axes with the batch"
        )
    return replace(item, values=probe.domain.cut_to_sites(item.values, batch.x))


def batches_of(
    explained: Model, given: Given, target: Any, reference: Any, seed: int
) -> Iterable[tuple[list[int], Probe, Batch]]:
    """Inputs as batches of one shape each, with the rows they came from."""
    tune_allocator()
    inputs, digests, labels, samples = given
    if inputs:
        settle(explained, inputs[0])
    groups: dict[Any, list[int]] = {}
    for i, one in enumerate(inputs):
        groups.setdefault(one.shape_key(), []).append(i)
    wanted = None if target is None else torch.as_tensor(target).long().reshape(-1).expand(len(inputs))
    for rows in groups.values():
        joined = Inputs.cat([inputs[i] for i in rows])
        probe = Probe(explained, for_tensors(explained, len(rows)))
        logits = probe.logits(joined)
        own = logits.argmax(1) if wanted is None else wanted[rows]
        if bool((own < 0).any()) or bool((own >= logits.shape[1]).any()):
            raise HeatcheckError(f"target {own.tolist()} is not a class of a model with {logits.shape[1]} classes")
        batch = Batch(
            x=joined,
            target=own,
            label=torch.tensor([known_label(labels[i], logits.shape[1]) for i in rows]),
            streams=Streams(seed, tuple(digests[i] for i in rows)),
            references=tuple(reference_of(reference, i, explained, samples[i], inputs[i]) for i in rows),
        )
        probe.remember_clean(batch, logits)
        yield rows, probe, batch


def as_inputs(explained: Model, x: Any) -> Given:
    """Inputs of any form that `explain` takes, read."""
    if isinstance(x, Inputs):
        rows = [x.take(slice(i, i + 1)) for i in range(len(x))]
        digests = [digest_of_tensor(content) for content in explained.domain.content(x)]
        return Given(rows, digests, [None] * len(rows), [None] * len(rows))
    if isinstance(x, Tensor | Mapping):
        return as_inputs(explained, explained.domain.wrap(x))
    x = TextPair(*x) if isinstance(x, tuple) and len(x) == 2 and all(isinstance(part, str) for part in x) else x
    many = isinstance(x, list | tuple | Dataset) and not isinstance(x, TextPair)
    data = load_data(x if many else [x])
    for sample in data:
        if sample.problem:
            raise HeatcheckError(f"{sample.name}: {sample.problem}")
    encoded = [explained.encode(s) for s in data]
    return Given(encoded, [s.digest for s in data], [s.label for s in data], list(data))


def reference_of(reference: Any, i: int, explained: Model, sample: Sample | None, x: Inputs) -> Mapping[str, Any]:
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
        explains=parts[0].explains,
        interpolation=parts[0].interpolation,
        status=tuple(status[i] for i in back.tolist()),
    )
