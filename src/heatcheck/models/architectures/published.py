"""Loads the weights that the authors of these networks publish, from a file that the user has fetched."""

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from heatcheck.core.spec import suggest
from heatcheck.core.types import HeatcheckError
from heatcheck.data.imagenet_names import imagenet_classes
from heatcheck.models.architectures.bagnet import bagnet9, bagnet17, bagnet33
from heatcheck.models.architectures.bcos import BcosVgg, Encoded, bcos_densenet, bcos_resnet, bcos_resnext50
from heatcheck.models.architectures.fixup import fixup_resnet50, xfixup_resnet50
from heatcheck.models.architectures.xvgg import xvgg16
from heatcheck.models.base import Model
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.vision import Request, VisionModel
from heatcheck.models.vision_shim import load_torchvision
from heatcheck.models.weights import fill_network, load_weights

IMAGENET = Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), interpolation="bilinear")
RAW = Preprocess(mean=(0.0,) * 3, std=(1.0,) * 3, interpolation="bilinear")
"""Colours in [0, 1]; a B-cos network adds the inverse channels itself. Zero is black."""

_BAGNET = "https://bitbucket.org/wielandbrendel/bag-of-feature-pretrained-models"
_BCOS = "https://github.com/B-cos/B-cos-v2/releases/tag/v0.0.1-weights"
_XDNN = "https://github.com/visinf/fast-axiomatic-attribution"
_CLASSES = 1000


@dataclass(frozen=True)
class Published:
    """A network with published weights.

    Args:
        build: the network for a number of classes.
        head: the tensor with one row per class.
        preprocess: what it wants done to a picture.
        file: what its authors call the file.
        place: where they publish it.
    """

    build: Callable[[int], nn.Module]
    head: str
    preprocess: Preprocess
    file: str
    place: str


PUBLISHED = {
    "bagnet9": Published(bagnet9, "fc.weight", IMAGENET, "bagnet8-34f4ccd2.pth.tar", _BAGNET),
    "bagnet17": Published(bagnet17, "fc.weight", IMAGENET, "bagnet16-105524de.pth.tar", _BAGNET),
    "bagnet33": Published(bagnet33, "fc.weight", IMAGENET, "bagnet32-2ddd53ed.pth.tar", _BAGNET),
    **{
        f"bcos_resnet{depth}": Published(
            partial(bcos_resnet, depth), "fc.linear.weight", RAW, f"resnet_{depth}-*.pth", _BCOS
        )
        for depth in (18, 34, 50, 101, 152)
    },
    "bcos_resnext50_32x4d": Published(
        bcos_resnext50, "fc.linear.weight", RAW, "resnext_50_32x4d-57af241ab9.pth", _BCOS
    ),
    **{
        f"bcos_densenet{depth}": Published(
            partial(bcos_densenet, depth), "classifier.linear.weight", RAW, f"densenet_{depth}-*.pth", _BCOS
        )
        for depth in (121, 161, 169, 201)
    },
    "bcos_vgg11_bnu": Published(BcosVgg, "classifier.2.linear.weight", RAW, "vgg_11_bnu-34036029f0.pth", _BCOS),
    "fixup_resnet50": Published(fixup_resnet50, "fc.weight", IMAGENET, "fixup_resnet50_model_best.pth.tar", _XDNN),
    "xfixup_resnet50": Published(xfixup_resnet50, "fc.weight", IMAGENET, "xfixup_resnet50_model_best.pth.tar", _XDNN),
    "xvgg16": Published(xvgg16, "classifier.6.weight", IMAGENET, "xvgg16_model_best.pth.tar", _XDNN),
}


def published(id: str, request: Request) -> Model:
    """A network of this folder with weights from a file; their number of classes is read from it."""
    source = PUBLISHED[id]
    if request.checkpoint is None:
        raise HeatcheckError(
            f"model {id!r} needs its weights: get {source.file} from {source.place} and write {id}@FILE"
        )
    state = load_weights(request.checkpoint)
    network = source.build(_classes_in(state, source.head)).eval()
    fill_network(network, _renamed(state, network.state_dict().keys()), str(request.checkpoint))
    return _explained(network, _classes_in(state, source.head), source.preprocess, request)


def packaged(name: str, request: Request) -> Model:
    """A B-cos network of the package `bcos`, such as its vision transformers, with weights from a file."""
    if importlib.util.find_spec("bcos") is None:
        raise HeatcheckError(f"bcos:{name} needs the package bcos: pip install bcos einops")
    load_torchvision()
    package = importlib.import_module("bcos.models.pretrained")
    known = [entry for entry in package.list_available() if not entry.startswith("standard_")]
    if name not in known:
        raise HeatcheckError(f"bcos has no B-cos network {name!r}{suggest(name, known)}")
    if request.checkpoint is None:
        raise HeatcheckError(f"bcos:{name} needs its weights: get them from {_BCOS} and write bcos:{name}@FILE")
    network = getattr(package, name)(pretrained=False).eval()
    fill_network(network, load_weights(request.checkpoint), str(request.checkpoint))
    return _explained(Encoded(network), _CLASSES, RAW, request)


def _classes_in(state: Mapping[str, Tensor], head: str) -> int:
    """The rows of a checkpoint's head, under whichever of its names."""
    names = (prefix + name for prefix in ("", "model.") for name in (head, head.replace(".linear.", ".")))
    return next((len(state[name]) for name in names if name in state), _CLASSES)


def _renamed(state: Mapping[str, Tensor], own: Iterable[str]) -> dict[str, Tensor]:
    """The state under the network's names, where others wrapped the network or kept a B-cos filter's plain name."""
    known = set(own)

    def name(theirs: str) -> str:
        short = theirs.removeprefix("model.")
        inner = short.removesuffix("weight") + "linear.weight"
        return inner if short.endswith("weight") and inner in known else short

    return {name(theirs): tensor for theirs, tensor in state.items()}


def _explained(network: nn.Module, classes: int, preprocess: Preprocess, request: Request) -> Model:
    return VisionModel(
        network,
        request.name,
        preprocess=request.preprocess or preprocess,
        classes=request.classes or (imagenet_classes() if classes == _CLASSES else None),
        channels_last=True,
    )
