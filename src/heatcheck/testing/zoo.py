"""Small networks of every architecture that methods must work on, and the table of what works on which.

    python -m heatcheck.testing.zoo docs/architectures.md

writes the table anew; a test compares it with what it would be now.
"""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatcheck.core import catalogue
from heatcheck.core.spec import Spec
from heatcheck.core.types import Inputs, Modality
from heatcheck.models.architectures.bagnet import bagnet9
from heatcheck.models.architectures.bcos import bcos_resnet
from heatcheck.models.architectures.fixup import xfixup_resnet50
from heatcheck.models.architectures.small.source import NETWORKS
from heatcheck.models.base import Model
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.vision import VisionModel
from heatcheck.models.vision_shim import load_timm, load_torchvision
from heatcheck.run.rehearsal import applicable
from heatcheck.testing.text_zoo import FAMILIES, small_text, text_for

CLASSES = 5
EDGE = 64
OTHER_EDGES = {"Inception-v4": 96, "BagNet": 32}
"""Of a network that needs more pixels, and of one whose passes are slow as it keeps their number."""


def _timm(name: str, **how: object) -> nn.Module:
    network: nn.Module = load_timm().create_model(name, pretrained=False, num_classes=CLASSES, **how)
    return network


def _vgg() -> nn.Module:
    vgg = load_torchvision().models.vgg
    network: nn.Module = vgg.VGG(vgg.make_layers([8, "M", 16, "M", 16, 16, "M"]), num_classes=CLASSES)
    network.classifier = nn.Sequential(nn.Linear(16 * 7 * 7, 32), nn.ReLU(True), nn.Dropout(), nn.Linear(32, CLASSES))
    return network


def _densenet() -> nn.Module:
    densenet = load_torchvision().models.densenet.DenseNet
    network: nn.Module = densenet(8, (2, 2, 2), 16, num_classes=CLASSES)
    return network


class _Cosines(nn.Module):
    """CLIP as a classifier: cosines between a picture's embedding and those of the class names."""

    def __init__(self, tower: nn.Module, size: int) -> None:
        super().__init__()
        self.tower, self.names, self.scale = (
            tower,
            nn.Parameter(torch.randn(CLASSES, size)),
            nn.Parameter(torch.ones(())),
        )

    def forward(self, x: Tensor) -> Tensor:
        picture, names = F.normalize(self.tower(x), dim=-1), F.normalize(self.names, dim=-1)
        return self.scale.exp() * picture @ names.T


_VIT = {"img_size": 64, "patch_size": 16, "embed_dim": 32, "depth": 3, "num_heads": 2}

ZOO: dict[str, Callable[[], nn.Module]] = {
    "ResNet": lambda: _timm("test_resnet"),
    "VGG": _vgg,
    "MobileNetV3": lambda: _timm("mobilenetv3_small_050"),
    "EfficientNet": lambda: _timm("test_efficientnet"),
    "DenseNet": _densenet,
    "Inception-v4": lambda: _timm("inception_v4"),
    "ConvNeXt": lambda: _timm("test_convnext"),
    "ViT": lambda: _timm("vit_tiny_patch16_224", **_VIT),
    "DeiT, distilled": lambda: _timm("deit_tiny_distilled_patch16_224", **_VIT),
    "ViT, global pooling": lambda: _timm("vit_tiny_patch16_224", **_VIT, global_pool="avg", class_token=True),
    "Swin": lambda: _timm(
        "swin_tiny_patch4_window7_224", img_size=64, embed_dim=16, depths=(2, 2), num_heads=(2, 2), window_size=4
    ),
    "BagNet": lambda: bagnet9(CLASSES),
    "B-cos": lambda: bcos_resnet(18, CLASSES),
    "bias-free": lambda: xfixup_resnet50(CLASSES),
    "small ResNet": lambda: NETWORKS["resnet"](depth=8, classes=CLASSES),
    "small Fixup": lambda: NETWORKS["fixup"](depth=8, classes=CLASSES),
    "small ViT": lambda: NETWORKS["vit"](dim=32, depth=3, heads=2, patch=16, classes=CLASSES, size=EDGE),
    "small BagNet": lambda: NETWORKS["bagnet"](width=4, depth=14, classes=CLASSES),
    "small B-cos": lambda: NETWORKS["bcos"](depth=8, classes=CLASSES),
    "CLIP, cosine head": lambda: _Cosines(_timm("vit_base_patch16_clip_quickgelu_224", **_VIT), CLASSES),
}


@cache
def small(name: str) -> Model:
    """A small network of an architecture, with random weights that are always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = ZOO[name]()
        for weight in network.parameters():  # heads and scales that begin at zero would hide everything
            if not weight.any():
                nn.init.normal_(weight, std=0.1)
    return VisionModel(
        network, name, preprocess=Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3, size=OTHER_EDGES.get(name, EDGE))
    )


def picture(name: str) -> Inputs:
    """A picture of the size that a small network takes."""
    edge = OTHER_EDGES.get(name, EDGE)
    rng = torch.Generator().manual_seed(1)
    return Inputs({"pixels": torch.randn(1, 3, edge, edge, generator=rng)})


def brief(id: str) -> str:
    """A method's spec with as little work as it can do."""
    few = {"samples": 6, "steps": 6, "designs": 2}
    params = catalogue.find("method", id).params
    return str(Spec(id, {name: n for name, n in few.items() if name in params}))


Table = dict[str, dict[str, str | None]]
"""For every architecture, the reason why each method does not apply, or None."""


def table() -> Table:
    """What applies to the networks that read pictures."""
    return {name: applicable(small(name), picture(name)) for name in ZOO}


def text_table() -> Table:
    """What applies to the networks that read texts."""
    return {name: applicable(small_text(name), text_for(name)) for name in FAMILIES}


def page(pictures: Table, texts: Table) -> str:
    """The tables as a page: which method works on which architecture, and why not."""
    reasons: dict[str, int] = {}
    parts = [_TITLE, *_rows(pictures, Modality.IMAGE, reasons), "", _TEXTS, *_rows(texts, Modality.TEXT, reasons)]
    why = [f"{n}. {reason}" for reason, n in reasons.items()]
    return "\n".join([*parts, "", _REASONS, *why, ""])


def _rows(found: Table, modality: Modality, reasons: dict[str, int]) -> list[str]:
    """One table's lines; new reasons get the next numbers."""
    shipped = (e for e in catalogue.methods_by_family() if e.module.startswith("heatcheck."))
    methods = [e for e in shipped if modality in e.facts["on"]]
    lines = []
    for entry in methods:
        cells = []
        for name in found:
            reason = found[name][entry.id]
            if reason is None:
                cells.append("✓")
            else:
                cells.append(f"[{reasons.setdefault(reason.replace(name, 'the model'), len(reasons) + 1)}]")
        lines.append(f"| `{entry.id}` | " + " | ".join(cells) + " |")
    return ["| method | " + " | ".join(found) + " |", "| --- |" + " :-: |" * len(found), *lines]


_TITLE = """# Which method works on which architecture

Every method at its defaults, tried on a small network of each kind. ✓ works; a number leads to the reason why not.
`heatcheck doctor MODEL` says the same for a model of yours. Written by `make docs`; a test keeps it true.
"""
_TEXTS = """## Texts

Small classifiers of transformers; the last three are decoders, whose head reads the last token. MiniLM is a BERT.
"""
_REASONS = """## Reasons
"""

if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(table(), text_table()), encoding="utf-8")
