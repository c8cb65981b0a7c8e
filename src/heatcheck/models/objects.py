"""Models that a user holds: a module or a function becomes a `Model`."""

import copy
import functools
from typing import Any

from torch import nn

from heatcheck.core.types import HeatcheckError, Modality, PathLike
from heatcheck.models.base import Model
from heatcheck.models.held import HeldInputs, check_one_input
from heatcheck.models.hubs import NO_HEAD, class_names
from heatcheck.models.request import Request
from heatcheck.models.text import TextModel
from heatcheck.models.transforms import inferred, likely
from heatcheck.models.vision import FunctionModel, VisionModel
from heatcheck.models.weights import fill_network, load_weights


def with_tokenizer(spec: Any) -> tuple[nn.Module, Any] | None:
    """The network and the tokenizer of `(network, tokenizer)` or of a transformers pipeline; None for anything else."""
    piped = hasattr(spec, "task") and isinstance(getattr(spec, "model", None), nn.Module)
    found = (spec.model, spec.tokenizer) if piped else spec
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], nn.Module):
        return None
    return found if hasattr(found[1], "convert_ids_to_tokens") else None


def object_name(model: Any) -> str:
    """What tables call a module or function, unless its user says otherwise."""
    if text := with_tokenizer(model):
        return object_name(text[0])
    held = isinstance(model, functools.partial)
    return object_name(model.func) if held else str(getattr(model, "__name__", type(model).__name__))


def model_of(spec: Any, request: Request) -> Model:
    """A module, a module with its tokenizer or held inputs, a function to class scores or an adapter, as a model.

    Raises:
        HeatcheckError: it is none of these, or needs more than one input.
    """
    if isinstance(spec, Model):
        return spec
    if text := with_tokenizer(spec):
        return _text_model(*text, request)
    if request.modality == Modality.TEXT or "ForSequenceClassification" in type(spec).__name__:
        raise HeatcheckError(
            f"{request.name}: a text classifier needs its tokenizer; pass both as (network, tokenizer), a pipeline of "
            "transformers, or the path of a folder that save_pretrained wrote both to"
        )
    if isinstance(spec, functools.partial) and isinstance(spec.func, nn.Module):
        spec = HeldInputs(spec)
    if isinstance(spec, nn.Module):
        check_one_input(spec.forward, request.name)
        network = _with_weights(spec, request.checkpoint) if request.checkpoint is not None else spec
        preprocess = request.preprocess or inferred(network)
        guess = likely(network) if preprocess is None and request.guess else None
        preprocess = guess.preprocess if guess else preprocess
        model = VisionModel(network, request.name, preprocess=preprocess, classes=request.classes)
        if guess:
            model.notes.append(
                f"{model.name}: the preprocessing is guessed, {guess.because}: {preprocess}; preprocess= sets another"
            )
        return model
    if isinstance(spec, type):
        raise HeatcheckError(f"model={spec.__name__} is a class: pass an instance: {spec.__name__}()")
    if callable(spec):
        check_one_input(spec, request.name)
        return FunctionModel(spec, request)
    raise HeatcheckError(
        f"model={spec!r} is a {type(spec).__name__}; a model is a spec, a torch module, or a function to scores"
    )


def _text_model(network: nn.Module, tokenizer: Any, request: Request) -> Model:
    if getattr(network, "base_model", None) is network:
        raise HeatcheckError(f"{request.name} is a {type(network).__name__}, {NO_HEAD}")
    if request.checkpoint is not None:
        network = _with_weights(network, request.checkpoint)
    config = getattr(network, "config", None)
    named = class_names(config) if hasattr(config, "id2label") else None
    model = TextModel(network, tokenizer, request.name, classes=request.classes or named, tokens=request.tokens)
    model.check()
    return model


def _with_weights(network: nn.Module, checkpoint: PathLike) -> nn.Module:
    twin = copy.deepcopy(network)
    fill_network(twin, load_weights(checkpoint), str(checkpoint))
    return twin
