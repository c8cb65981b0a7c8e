"""Loads the weights that the authors of a network publish, from a file that the user has fetched."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from heatcheck.core.types import HeatcheckError
from heatcheck.data.imagenet_names import imagenet_classes
from heatcheck.models.base import Model
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.request import Request
from heatcheck.models.vision import VisionModel
from heatcheck.models.weights import fill_network, load_weights

IMAGENET = Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), interpolation="bilinear")
CLASSES = 1000
"""Classes of ImageNet."""


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


def load_published(id: str, network: Published, request: Request) -> Model:
    """A network with weights from a file; their number of classes is read from it."""
    if request.checkpoint is None:
        raise HeatcheckError(
            f"model {id!r} needs its weights: get {network.file} from {network.place} and write {id}@FILE"
        )
    state = load_weights(request.checkpoint)
    classes = _classes_in(state, network.head)
    module = network.build(classes).eval()
    fill_network(module, _renamed(state, module.state_dict().keys()), str(request.checkpoint))
    return imagenet_model(module, classes, network.preprocess, request)


def _classes_in(state: Mapping[str, Tensor], head: str) -> int:
    """The rows of a checkpoint's head, under whichever of its names."""
    names = (prefix + name for prefix in ("", "model.") for name in (head, head.replace(".linear.", ".")))
    return next((len(state[name]) for name in names if name in state), CLASSES)


def _renamed(state: Mapping[str, Tensor], own: Iterable[str]) -> dict[str, Tensor]:
    """The state under the network's names, where others wrapped the network or kept a B-cos filter's plain name."""
    known = set(own)

    def name(theirs: str) -> str:
        short = theirs.removeprefix("model.")
        inner = short.removesuffix("weight") + "linear.weight"
        return inner if short.endswith("weight") and inner in known else short

    return {name(theirs): tensor for theirs, tensor in state.items()}


def imagenet_model(network: nn.Module, classes: int, preprocess: Preprocess, request: Request) -> Model:
    """A model with ImageNet's class names, if it has as many classes."""
    return VisionModel(
        network,
        request.name,
        preprocess=request.preprocess or preprocess,
        classes=request.classes or (imagenet_classes() if classes == CLASSES else None),
        channels_last=True,
    )
