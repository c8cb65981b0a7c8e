"""Models by name: timm, torchvision, transformers. Weights are downloaded, or read from a local checkpoint."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from heatcheck.core.sources import source
from heatcheck.core.spec import suggest
from heatcheck.core.types import HeatcheckError, Modality
from heatcheck.data.imagenet_names import imagenet_classes
from heatcheck.models.architectures.fresh import drawn_from
from heatcheck.models.base import Model
from heatcheck.models.offline import hub_asked_once
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.request import Request
from heatcheck.models.text import TextModel
from heatcheck.models.transforms import from_processor, from_timm, from_torchvision
from heatcheck.models.vision import VisionModel
from heatcheck.models.vision_shim import (
    load_timm,
    load_torchvision,
    load_transformers,
    without_bars,
    without_reports,
)
from heatcheck.models.weights import fill_network, load_weights

_IMAGENET = 1000
NO_HEAD = (
    "which reads texts but has no layer that classifies them: train one, such as with heatcheck train text "
    "--model FOLDER --data csv:FILE --out NEW"
)


@contextlib.contextmanager
def _fetching(what: str, instead: str) -> Iterator[None]:
    """Turn whatever goes wrong while weights are fetched into an error that says what was tried."""
    try:
        yield
    except HeatcheckError:
        raise
    except Exception as problem:
        why = (
            f"{type(problem).__name__}: {str(problem).strip().splitlines()[0] if str(problem).strip() else 'no reason'}"
        )
        raise HeatcheckError(f"could not get {what} ({why}); {instead}") from problem


@source(
    "timm",
    form="timm:NAME[@CHECKPOINT]",
    modality="image",
    about="any timm classifier, pretrained (downloads) or from a local checkpoint",
    install='pip install "heatcheck[vision]"',
    group="hubs",
    position=1,
)
def timm_model(name: str, request: Request) -> Model:
    """A timm classifier: `resnet50`, or `resnet50.a1_in1k` for certain weights."""
    timm = load_timm(f"model {request.name}")
    if not timm.is_model(name.split(".")[0]):
        raise HeatcheckError(f"timm has no model {name!r}{suggest(name, timm.list_models())}")
    if request.checkpoint is None:
        cfg = timm.get_pretrained_cfg(name)
        place = (cfg.hf_hub_id or cfg.url) if cfg else None
        if not place:
            raise HeatcheckError(
                f"timm has no weights for {name!r}: write timm:{name}@CHECKPOINT for a file of your own"
            )
        what, instead = f"timm's weights of {name!r} from {place}", f"write timm:{name}@CHECKPOINT for a local file"
        with _fetching(what, instead), hub_asked_once(what, instead):
            network = timm.create_model(name, pretrained=True)
    else:
        state = load_weights(request.checkpoint)
        head = (timm.create_model(name).pretrained_cfg or {}).get("classifier")
        network = timm.create_model(name, num_classes=_classes_in(state, head if isinstance(head, str) else None))
        fill_network(network, state, str(request.checkpoint))
    classes = imagenet_classes() if network.num_classes == _IMAGENET else None
    return VisionModel(
        network.eval(),
        request.name,
        preprocess=request.preprocess or from_timm(network.pretrained_cfg),
        classes=request.classes or classes,
        channels_last=True,
    )


@source(
    "torchvision",
    form="torchvision:NAME[.WEIGHTS][@CHECKPOINT]",
    modality="image",
    about="any torchvision classifier, pretrained (downloads) or from a local checkpoint",
    install='pip install "heatcheck[vision]"',
    group="hubs",
    position=1,
)
def torchvision_model(name: str, request: Request) -> Model:
    """A torchvision classifier: `resnet50`, or `resnet50.IMAGENET1K_V1` for certain weights.

    A local checkpoint gets the preprocessing of the named (or default) weights unless another is given.
    """
    models = load_torchvision(f"model {request.name}").models
    name, _, tag = name.partition(".")
    known = models.list_models(module=models)
    if name not in known:
        raise HeatcheckError(f"torchvision has no classifier {name!r}{suggest(name, known)}")
    choices = {w.name: w for w in models.get_model_weights(name)}
    if tag and tag not in choices and tag != "DEFAULT":
        raise HeatcheckError(f"torchvision's {name} has no weights {tag!r}{suggest(tag, choices)}")
    weights = choices[tag] if tag in choices else models.get_model_weights(name).DEFAULT
    if request.checkpoint is None:
        instead = f"write torchvision:{name}@CHECKPOINT for a local file"
        with _fetching(f"torchvision's weights of {name!r} from {weights.url}", instead):
            # torchvision opens the file as a pickle: this opens it safely first, and refuses one that would run code.
            torch.hub.load_state_dict_from_url(weights.url, map_location="cpu", check_hash=True, weights_only=True)
            network = models.get_model(name, weights=weights)
        count = len(weights.meta["categories"])
    else:
        state = load_weights(request.checkpoint)
        count = _classes_in(state, None)
        network = models.get_model(name, weights=None, num_classes=count)
        fill_network(network, state, str(request.checkpoint))
    names = tuple(weights.meta["categories"])
    return VisionModel(
        network.eval(),
        request.name,
        preprocess=request.preprocess or from_torchvision(weights.transforms()),
        classes=request.classes or (names if len(names) == count else None),
        channels_last=True,
    )


def _classes_in(state: dict[str, torch.Tensor], head: str | None) -> int:
    """How many classes a checkpoint has: rows of its head, or of its last tensor."""
    for key in (f"{head}.bias", f"{head}.weight"):
        if key in state:
            return len(state[key])
    last = next(reversed(state.values()))
    return len(last) if last.ndim else _IMAGENET


@source(
    "hf",
    form="hf:NAME_OR_FOLDER",
    modality="image or text",
    about="a transformers image or sequence classifier, from the hub or a folder; never remote code",
    install='pip install "heatcheck[text]"',
    group="hubs",
    position=1,
    reads="hf_modality",
)
def hf_model(name: str, request: Request) -> Model:
    """A transformers classifier from the hub or a folder, for pictures or texts as its configuration says."""
    if request.checkpoint is not None:
        raise HeatcheckError(
            f"hf:{name} brings its own weights; a checkpoint={str(request.checkpoint)!r} has no place in it"
        )
    _, load = _TASKS[_modality(name, request)]
    return load(name, request)


def hf_modality(name: str) -> Modality:
    """Whether a classifier of the hub or of a folder reads pictures or texts, by its configuration."""
    return _modality(name, Request(name=f"hf:{name}"))


def _modality(name: str, request: Request) -> Modality:
    transformers = load_transformers(f"model {request.name}")
    with _hub(name):
        config = transformers.AutoConfig.from_pretrained(name, **_options(name))
    written = " ".join(config.architectures or ())
    found = [modality for modality, (task, _) in _TASKS.items() if task in written]
    if not found and request.headless:
        found = [modality for modality in _TASKS if type(config) in _auto(transformers, modality)._model_mapping]
    if not found:
        remedy = f"; {NO_HEAD}" if type(config) in _auto(transformers, Modality.TEXT)._model_mapping else ""
        raise HeatcheckError(
            f"hf:{name} is {written or 'of unknown architecture'}: no image or sequence classifier{remedy}"
        )
    if request.modality is not None and request.modality not in found:
        raise HeatcheckError(f"hf:{name} is {written}, so modality={request.modality!r} does not fit")
    return Modality(request.modality or found[0])


def text_classifier(name: str, request: Request) -> Model:
    """A sequence classifier with its tokenizer, its attention computed eagerly, so that its weights can be read."""
    if request.preprocess is not None:
        raise HeatcheckError(f"hf:{name} reads texts: this preprocess= is for pictures; write tokens=N to cut texts")
    transformers = load_transformers(f"model {request.name}")
    with _hub(name):
        network, fresh = _pretrained(_auto(transformers, Modality.TEXT), name, headless=request.headless)
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **_options(name))
    classes = request.classes or class_names(network.config)
    model = TextModel(network, tokenizer, request.name, classes=classes, tokens=request.tokens)
    model.check()
    model.fresh_head = fresh
    return model


def _image_classifier(name: str, request: Request) -> Model:
    transformers = load_transformers(f"model {request.name}")
    with _hub(name):
        network, fresh = _pretrained(_auto(transformers, Modality.IMAGE), name, headless=request.headless)
        preprocess = request.preprocess or _processor(transformers, name)
    model = VisionModel(
        network.eval(), request.name, preprocess=preprocess, classes=request.classes or class_names(network.config)
    )
    model.fresh_head = fresh
    return model


_TASKS: Mapping[Modality, tuple[str, Callable[[str, Request], Model]]] = {
    Modality.IMAGE: ("ForImageClassification", _image_classifier),
    Modality.TEXT: ("ForSequenceClassification", text_classifier),
}
"""How transformers calls the classifiers of each modality, and what loads them."""


def _auto(transformers: Any, modality: Modality) -> Any:
    """What builds the classifiers of a modality from their configurations."""
    return getattr(transformers, f"AutoModel{_TASKS[modality][0]}")


def _processor(transformers: Any, name: str) -> Preprocess:
    return from_processor(transformers.AutoImageProcessor.from_pretrained(name, **_options(name)))


def _pretrained(auto: Any, name: str, *, headless: bool) -> tuple[Any, bool]:
    """The pretrained network, and whether its last layer is new.

    One whose file lacks other weights would be filled with random ones and is refused.
    """
    with without_bars(), without_reports(), drawn_from(0):
        network, info = auto.from_pretrained(
            name, **_options(name), attn_implementation="eager", output_loading_info=True, dtype=torch.float32
        )
    inside = f"{network.base_model_prefix}."
    head = {k for k in info["missing_keys"] if not k.startswith(inside) or k.startswith(f"{inside}pooler.")}
    lacking = {*info["missing_keys"], *(str(k) for k in info["mismatched_keys"])} - (head if headless else set())
    if lacking:
        raise HeatcheckError(f"hf:{name} lacks weights of {type(network).__name__}: {', '.join(sorted(lacking)[:3])}")
    return network, bool(head)


def _options(name: str) -> dict[str, Any]:
    return {"trust_remote_code": False, "local_files_only": Path(name).expanduser().is_dir()}


@contextlib.contextmanager
def _hub(name: str) -> Iterator[None]:
    instead = "check the name, or save the model with save_pretrained and write hf:FOLDER"
    asked = contextlib.nullcontext() if _options(name)["local_files_only"] else hub_asked_once(f"hf:{name}", instead)
    with _fetching(f"hf:{name}", instead), asked:
        yield


def class_names(config: Any) -> tuple[str, ...] | None:
    """Class names, unless they are the LABEL_0 … that transformers makes up."""
    names = tuple(str(config.id2label[i]) for i in range(config.num_labels))
    return None if all(n == f"LABEL_{i}" for i, n in enumerate(names)) else names
