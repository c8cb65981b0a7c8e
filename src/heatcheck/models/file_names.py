"""Files and folders that are models by their path alone: weights of a known name, trainings, models of transformers."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from heatcheck.core.spec import SpecError, suggest

TRAINED = "trained:"
"""What the specs of models that were trained here begin with."""
RECORD = "training.json"
"""The file by which the folder of a training is known."""
CONFIG = "config.json"
"""The file by which the folder of a model that transformers saved is known."""
_ENDINGS = (".safetensors", ".pt", ".pth", ".th", ".pth.tar")


@dataclass(frozen=True)
class KnownFile:
    """Files that are recognised by their name.

    Args:
        pattern: the whole name, as a regular expression.
        model: the spec of the network, in which {0} stands for what the first bracket of the pattern found.
        data: the data source whose classes these are, where the model itself does not say it.
    """

    pattern: str
    model: str
    data: str = ""


RECOGNISED = (
    KnownFile(r"cifar10_resnet(\d+)_akamaster\.safetensors", "small:resnet(depth={0})", "cifar10"),
    KnownFile(r"resnet(\d+)-[0-9a-f]{8}\.th", "small:resnet(depth={0})", "cifar10"),  # as akamaster calls them
    KnownFile(r"resnet50_v1_imagenet\.safetensors", "resnet50_v1"),
    KnownFile(r"squeezenet1_0_imagenet\.safetensors", "squeezenet1_0_v1"),
    KnownFile(r"bagnet8-34f4ccd2\.pth\.tar", "bagnet9"),
    KnownFile(r"bagnet16-105524de\.pth\.tar", "bagnet17"),
    KnownFile(r"bagnet32-2ddd53ed\.pth\.tar", "bagnet33"),
    KnownFile(r"(x?fixup_resnet50|xvgg16)_model_best\.pth\.tar", "{0}"),
    KnownFile(r"resnet_(18|34|50|101|152)-[0-9a-f]{10}\.pth", "bcos_resnet{0}"),
    KnownFile(r"resnext_50_32x4d-57af241ab9\.pth", "bcos_resnext50_32x4d"),
    KnownFile(r"densenet_(121|161|169|201)-[0-9a-f]{10}\.pth", "bcos_densenet{0}"),
    KnownFile(r"vgg_11_bnu-34036029f0\.pth", "bcos_vgg11_bnu"),
)
"""Every name that is recognised: those of the files that authors publish, and of the conversions of some."""


def is_weights_file(spec: str) -> bool:
    """Whether a spec is nothing but the path of a file with weights, there or not.

    >>> is_weights_file("weights/net.pt"), is_weights_file("timm:resnet50@net.pt")
    (True, False)
    """
    before = re.split("[:@]", spec)[0]
    return spec.endswith(_ENDINGS) and (Path(spec).expanduser().is_file() or before == spec)


def holds_training(folder: Path) -> bool:
    """Whether a folder is that of a training."""
    return (folder.expanduser() / RECORD).is_file()


def holds_transformers(folder: Path) -> bool:
    """Whether transformers saved a model to a folder, with or without a layer that classifies."""
    try:
        config = json.loads((folder.expanduser() / CONFIG).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "model_type" in config


def recognised(path: str) -> tuple[str, str]:
    """The spec of the network that a file belongs to, without the file, and the data whose classes it knows, or nothing.

    Raises:
        SpecError: there is no such file, or its name is none that is known.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        near = suggest(file.name, (p.name for p in file.parent.iterdir())) if file.parent.is_dir() else ""
        raise SpecError(f"model={path!r}: there is no such file{near if 'did you mean' in near else ''}")
    for known in RECOGNISED:
        if found := re.fullmatch(known.pattern, file.name):
            return known.model.format(*found.groups()), known.data
    raise SpecError(
        f"model={path!r}: its name does not tell what network these weights belong to; write ARCHITECTURE@FILE, such as "
        f"small:resnet20@{path} or timm:resnet50@{path}"
    )
