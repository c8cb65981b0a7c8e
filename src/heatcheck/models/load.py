"""Loads models: a spec, a module or a function becomes a `Model`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from heatcheck.core.spec import SpecError, suggest
from heatcheck.core.types import HeatcheckError, Modality, PathLike
from heatcheck.data import cifar10
from heatcheck.models.base import Model
from heatcheck.models.catalogue import IN_FILE, full_spec, models, source_id
from heatcheck.models.devices import check_precision, choose_device, own_device
from heatcheck.models.file_names import CONFIG, RECORD, is_weights_file, recognised
from heatcheck.models.objects import model_of, object_name
from heatcheck.models.preprocess import Cut, Preprocess
from heatcheck.models.request import Request, Trainer
from heatcheck.models.transforms import as_preprocess

_CLASSES_OF = {"cifar10": cifar10.CLASSES}
"""Class names by the data that a file of weights was trained on."""


def load_model(
    spec: Any,
    *,
    name: str | None = None,
    preprocess: Any = None,
    guess: bool = False,
    output: str | int | None = None,
    target: Any = None,
    multi_label: bool | None = None,
    classes: Sequence[str] | None = None,
    checkpoint: PathLike | None = None,
    identity: str | None = None,
    modality: str | None = None,
    headless: bool = False,
    device: str | None = None,
    precision: str | None = None,
    trainers: Mapping[str, Trainer] | None = None,
) -> Model:
    """A classifier that methods and metrics can ask.

    Args:
        spec: a model that `heatcheck list models` shows, such as `efficientnet_lite0`, `timm:NAME`, `FILE.py:NAME` or
            `hf:NAME_OR_FOLDER`, all but the last with `@CHECKPOINT` for local weights; the path of weights whose file
            name tells what they are, such as `cifar10_resnet20_akamaster.safetensors`; the path of a folder that
            transformers or `heatcheck train` saved a model to; a `torch.nn.Module`; a text
            classifier of transformers as `(network, tokenizer)` or as a pipeline; a function from a batch of inputs to
            class scores (a black box); or what this function returned.
        name: what tables call it; by default the spec, or the class or function's name.
        preprocess: what is done to a picture before the model sees it, as a `Preprocess`, a text such as `imagenet`, or
            in any other form that `heatcheck.models.transforms.as_preprocess` reads; by default what the model says. For
            texts `tokens=N`: how many tokens the model sees, where it could read more.
        guess: where a module does not say it, take what its origin makes likely, and note that.
        output: the key, attribute or position of the class scores, where the model returns more than one tensor;
            nested ones joined by dots.
        target: a function from the model's output to one number per input, `column:N` or `FILE.py:FUNCTION`: what is
            explained in the place of a class.
        multi_label: whether each score is a label of its own, of which several may hold: its probability then is a
            sigmoid, not a softmax. By default what the `problem_type` of a network of transformers says, else no.
        classes: class names in the order of the outputs.
        checkpoint: a local file with weights: safetensors, or a state dict that `torch.save` wrote.
        identity: for a function: what its results are filed under. Change it whenever its answers change.
        modality: `image` or `text`, for hub models that exist for both.
        headless: whether a hub model without a classifier's last layer will do, as the start of a training; it gets one
            that has learnt nothing.
        device: `auto` for the best there is, `cpu`, `cuda`, `cuda:1` or `mps`; by default a module stays where it lives,
            and what is loaded by name is on the CPU.
        precision: in what passes are computed: fp32, tf32, bf16 or fp16; part of the model's identity.
        trainers: what trains a model on first use, by its id.

    Raises:
        HeatcheckError: the spec means nothing, something is not installed, or weights cannot be had.

    >>> load_model(lambda x: x.mean((2, 3)), name="colours").name
    'colours'
    """
    spec = str(spec) if isinstance(spec, Path) else spec
    if isinstance(spec, Model):
        if preprocess is not None:
            raise HeatcheckError(f"{spec.name} is loaded already: pass preprocess= to hc.load_model")
        return placed(_read_as(spec, output, target, multi_label), device, precision)
    if modality is not None and modality not in list(Modality):
        raise HeatcheckError(f"modality={modality!r} is neither image nor text")
    known = as_preprocess(preprocess)
    request = Request(
        name=name or _label(spec),
        preprocess=known if isinstance(known, Preprocess) else None,
        tokens=known.tokens if isinstance(known, Cut) else None,
        guess=guess,
        classes=None if classes is None else tuple(classes),
        checkpoint=checkpoint,
        identity=identity,
        modality=modality,
        headless=headless,
        trainers=trainers or {},
    )
    with torch.random.fork_rng(devices=[]):  # building a network draws weights, even those that are replaced
        model = _by_spec(spec, request) if isinstance(spec, str) else model_of(spec, request)
    for asked, reads, other in ((Preprocess, Modality.IMAGE, "pictures"), (Cut, Modality.TEXT, "texts")):
        if isinstance(known, asked) and model.domain.modality != reads:
            raise HeatcheckError(
                f"{model.name} reads {model.domain.modality}s: preprocess={preprocess!r} is for {other}"
            )
    return placed(_read_as(model, output, target, multi_label), device, precision)


def placed(model: Model, device: str | None, precision: str | None = None) -> Model:
    """A model on a device, with passes in a precision; None leaves either as it is.

    Raises:
        HeatcheckError: the machine has no such device, or the device no such precision; says which there are.
    """
    if device is not None:
        model = model.on(own_device(choose_device(device)))
    if precision is not None and precision != model.precision:
        model = model.computing_in(precision)
        check_precision(precision, str(model.device))
    return model


def _read_as(model: Model, output: str | int | None, target: Any, multi_label: bool | None) -> Model:
    as_it_is = multi_label is None or multi_label == model.readout.multi_label
    if output is None and target is None and as_it_is:
        return model
    return model.reading(output=output, target=target, multi_label=multi_label)


def _label(spec: Any) -> str:
    if not isinstance(spec, str):
        return object_name(spec)
    return Path(spec).name.partition(".")[0] if is_weights_file(spec) else spec.partition("@")[0]


def _by_spec(spec: str, request: Request) -> Model:
    known, spec = models(), full_spec(spec)
    if is_weights_file(spec):
        try:
            network, data = recognised(spec)
        except SpecError as problem:
            raise HeatcheckError(str(problem)) from None
        id, inner, _ = _parts(network)
        path: str | None = spec
        request = replace(request, classes=request.classes or _CLASSES_OF.get(data))
    else:
        id, inner, path = _parts(spec)
    if id not in known:
        near = suggest(id, known)
        hint = near if "did you mean" in near else ""
        if Path(spec).expanduser().is_dir():
            raise HeatcheckError(
                f"model={spec!r} is a folder without a model: it has neither a {CONFIG} that save_pretrained of transformers "
                f"wrote nor the {RECORD} of a training{hint}"
            )
        forms = "; ".join(source.form for source in known.values())
        raise HeatcheckError(f"model={spec!r} is not known{hint}; accepted are {forms}; a torch module; a function")
    if not inner:
        raise HeatcheckError(f"model={spec!r} lacks a name: write {known[id].form}")
    if path and request.checkpoint is not None:
        raise HeatcheckError(f"model={spec!r} names a checkpoint, and checkpoint={str(request.checkpoint)!r} another")
    model: Model = known[id].load()(inner, replace(request, checkpoint=path) if path else request)
    return model


def _parts(spec: str) -> tuple[str, str, str | None]:
    """The id of a spec, the name within that family, and the path of a checkpoint."""
    place, _, path = spec.partition("@")
    family = source_id(spec)
    if family == IN_FILE:
        return family, place, path or None
    _, _, rest = spec.partition(":")
    source = models().get(family)
    if source is not None and source.is_family:
        if not source.takes_checkpoint:  # an @ belongs to the name, such as a folder's
            return family, rest, None
        inner, _, path = rest.partition("@")
        return family, inner, path or None
    id, _, path = spec.partition("@")
    return id, id, path or None
