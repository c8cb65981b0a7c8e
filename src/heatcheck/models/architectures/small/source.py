"""The model source `small:`: a network by name and parameters, fresh or with weights from a file."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from heatcheck.core.sources import source
from heatcheck.core.spec import Spec, SpecError, parse, suggest
from heatcheck.core.types import HeatcheckError
from heatcheck.models.architectures.bagnet import BagNet, patch_side
from heatcheck.models.architectures.bcos import RAW, BasicBlock, BcosNet, BcosResNet
from heatcheck.models.architectures.fresh import UNTRAINED, FreshNetwork, drawn_from
from heatcheck.models.architectures.published import IMAGENET
from heatcheck.models.architectures.small.parts import blocks_per_stage
from heatcheck.models.architectures.small.resnet import STAGES, SmallResNet, small_fixup
from heatcheck.models.architectures.small.vgg import SmallVgg
from heatcheck.models.architectures.small.vit import SmallVit
from heatcheck.models.base import Model
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.request import Request
from heatcheck.models.vision import VisionModel
from heatcheck.models.weights import fill_network, load_weights

SEED = 0
"""What fresh weights are drawn from."""
_STRIDES = (2, 1, 1, 1)
"""Of a small BagNet's stages: patches begin two pixels apart."""


def resnet(
    *, depth: int = 20, width: int = 16, norm: str = "batch", bias: bool = True, classes: int = 10
) -> FreshNetwork:
    """A residual network of 6n + 2 layers."""
    return SmallResNet(depth=depth, width=width, norm=norm, bias=bias, classes=classes)


def fixup(*, depth: int = 20, width: int = 16, bias: bool = True, classes: int = 10) -> FreshNetwork:
    """The same with Fixup's scalars in place of batch norm; without biases, X-ResNet."""
    return small_fixup(depth=depth, width=width, bias=bias, classes=classes)


def vgg(
    *, depth: int = 8, width: int = 64, norm: str = "none", bias: bool = True, classes: int = 10, size: int = 32
) -> FreshNetwork:
    """VGG-8, 11, 13 or 16."""
    return SmallVgg(depth=depth, width=width, norm=norm, bias=bias, classes=classes, size=size)


def vit(
    *, patch: int = 4, dim: int = 128, depth: int = 6, heads: int = 4, classes: int = 10, size: int = 32
) -> FreshNetwork:
    """A vision transformer."""
    return SmallVit(patch=patch, dim=dim, depth=depth, heads=heads, classes=classes, size=size)


def bagnet(
    *, receptive_field: int = 9, depth: int = 26, width: int = 16, classes: int = 10, size: int = 32
) -> FreshNetwork:
    """A BagNet that sees small patches, from every second pixel on."""
    wide = {patch_side(w, _STRIDES): w for n in range(1, 5) for w in [tuple(stage < n for stage in range(4))]}
    if receptive_field not in wide:
        raise HeatcheckError(f"receptive_field={receptive_field} is not one of {', '.join(map(str, wide))}")
    if receptive_field > size:
        raise HeatcheckError(f"receptive_field={receptive_field} is larger than the pictures, size={size}")
    blocks, rest = divmod(depth - 2, 12)
    if rest or blocks < 1:
        raise HeatcheckError(
            f"depth={depth} is not 12n + 2: three layers in n blocks of four stages each; try 14 or 26"
        )
    return BagNet(wide[receptive_field], classes, width=width, depths=(blocks,) * 4, strides=_STRIDES)


def bcos(*, depth: int = 20, width: int = 16, classes: int = 10) -> FreshNetwork:
    """A B-cos residual network of 6n + 2 layers, its shortcuts projected."""
    return BcosResNet(BasicBlock, (blocks_per_stage(depth),) * STAGES, classes, width=width, shrink=False)


NETWORKS: Mapping[str, Callable[..., FreshNetwork]] = {
    "resnet": resnet,
    "fixup": fixup,
    "vgg": vgg,
    "vit": vit,
    "bagnet": bagnet,
    "bcos": bcos,
}
"""What builds a network, by name. Its arguments are the network's parameters."""
HEADS = {"resnet": "linear", "fixup": "linear", "vgg": "classifier", "vit": "head", "bagnet": "fc", "bcos": "fc.linear"}
"""The layer with a row per class."""
_SHORT = re.compile(r"(x?)(resnet|fixup|vgg|bagnet|bcos)(\d+)(_bn)?")
_SIZE = 32


@source(
    "small",
    form="small:NAME[@CHECKPOINT]",
    modality="image",
    about="resnet, fixup, vgg, vit, bagnet or bcos for 32² pictures, such as resnet20 or vgg(depth=8, bias=false); to train",
    install="nothing",
    licence="Apache-2.0",
    group="hubs",
    position=2,
)
def small(name: str, request: Request) -> Model:
    """A small network: fresh, or with weights from a file, which then tells the number of classes."""
    id, settings = read_small(name)
    state = None if request.checkpoint is None else load_weights(request.checkpoint)
    if state is not None and "classes" not in settings:
        settings["classes"] = _rows(state, HEADS[id], request)
    elif request.classes is not None:
        settings.setdefault("classes", len(request.classes))
    size = settings.get("size", _SIZE)
    network = _built(id, name, settings)
    if state is None:
        with drawn_from(SEED):
            network.initialise()
    else:
        fill_network(network, state, str(request.checkpoint))
    model = VisionModel(
        network.eval(),
        request.name,
        preprocess=request.preprocess or _preprocess(network, size),
        classes=request.classes,
        channels_last=True,
    )
    if state is None:
        model.notes.append(
            f"{model.name} {UNTRAINED}: its weights are random, always the same; train it, or write "
            f"small:{name}@CHECKPOINT"
        )
    return model


def read_small(written: str) -> tuple[str, dict[str, Any]]:
    """The name of a network and the parameters that are given for it, short names taken apart.

    >>> read_small("vgg16_bn(width=8)")
    ('vgg', {'depth': 16, 'norm': 'batch', 'width': 8})

    Raises:
        HeatcheckError: there is no such network or parameter, or a value of another kind; says what there is.
    """
    try:
        spec = parse(written)
    except SpecError as problem:
        raise HeatcheckError(f"model small:{written} cannot be read: {problem}") from None
    id, settings = _long(spec.id)
    if id not in NETWORKS:
        raise HeatcheckError(f"small has no network {spec.id!r}{suggest(spec.id, NETWORKS)}")
    known = _defaults(id)
    given = {key: "none" if value is None else value for key, value in spec.params.items()}
    if "n" in given:  # the one that is given without its name
        given = {next(iter(known)): given.pop("n"), **given}
    for key, value in given.items():
        _check(key, value, known, Spec(id))
        if settings.get(key, value) != value:
            raise HeatcheckError(f"small:{written} gives {key} twice: {spec.id} has {key}={settings[key]}")
    return id, {**settings, **given}


def small_settings(spec: str) -> tuple[str, dict[str, Any]] | None:
    """The network that a model's spec stands for and all of its parameters; None where it is of another source.

    >>> small_settings("small:fixup@weights.safetensors")
    ('fixup', {'depth': 20, 'width': 16, 'bias': True, 'classes': 10, 'size': 32})
    """
    if not spec.startswith("small:"):
        return None
    try:
        id, given = read_small(spec.removeprefix("small:").partition("@")[0])
    except HeatcheckError:
        return None
    return id, {**_defaults(id), **given}


def _long(name: str) -> tuple[str, dict[str, Any]]:
    """`vgg16_bn` as `vgg` and its parameters; a name that is not short stays what it is."""
    found = _SHORT.fullmatch(name)
    if found is None:
        return name, {}
    bias_free, id, number, norm = found.groups()
    if (bias_free and id not in ("resnet", "vgg")) or (norm and id != "vgg"):
        return name, {}
    settings: dict[str, Any] = {"receptive_field" if id == "bagnet" else "depth": int(number)}
    if norm:
        settings["norm"] = "batch"
    if bias_free:
        settings["bias"] = False
    return "fixup" if bias_free and id == "resnet" else id, settings


def _defaults(id: str) -> dict[str, Any]:
    """The parameters of a network with their defaults; every one has a size."""
    own = {name: p.default for name, p in inspect.signature(NETWORKS[id]).parameters.items()}
    return {**own, "size": _SIZE}


def _check(key: str, value: Any, known: Mapping[str, Any], spec: Spec) -> None:
    if key not in known:
        raise HeatcheckError(f"small:{spec} has no parameter {key!r}{suggest(key, known)}")
    kind = type(known[key])
    if type(value) is not kind:
        what = {int: "a whole number", bool: "true or false", str: "a word"}[kind]
        raise HeatcheckError(f"small:{spec}: {key}={value} is not {what}, such as {str(known[key]).lower()}")
    least = 2 if key == "classes" else 1
    if kind is int and value < least:
        raise HeatcheckError(f"small:{spec}: {key}={value} is less than {least}")


def _built(id: str, written: str, settings: Mapping[str, Any]) -> FreshNetwork:
    taken = inspect.signature(NETWORKS[id]).parameters
    try:
        return NETWORKS[id](**{key: value for key, value in settings.items() if key in taken})
    except HeatcheckError as problem:
        raise HeatcheckError(f"small:{written}: {problem}") from None


def _rows(state: Mapping[str, Tensor], head: str, request: Request) -> int:
    """The classes of a checkpoint."""
    rows = state.get(f"{head}.weight")
    if rows is None:
        raise HeatcheckError(
            f"{request.checkpoint} does not fit {request.name}: it has no {head}.weight, where the classes would be"
        )
    return len(rows)


def _preprocess(network: FreshNetwork, size: int) -> Preprocess:
    """The whole of a square picture; colours in [0, 1] for B-cos networks, and else normalised as ImageNet's."""
    of = RAW if isinstance(network, BcosNet) else IMAGENET
    return Preprocess(mean=of.mean, std=of.std, size=size, resize=size, interpolation="bilinear")
