"""X-VGG-16: VGG-16 without biases, so that input × gradient sums to the class score.

Paper: hesse2021. Names follow github.com/visinf/fast-axiomatic-attribution.
"""

from jaxtyping import Float
from torch import Tensor, nn

from heatcheck.core.sources import source
from heatcheck.models.architectures.fresh import FreshNetwork
from heatcheck.models.architectures.published import IMAGENET, Published, load_published
from heatcheck.models.base import Model
from heatcheck.models.request import Request

_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
_HIDDEN = 4096
_SIDE = 7


class XVgg(FreshNetwork):
    """A VGG without biases.

    Args:
        classes: how many it tells apart.
        shrink: by how much every layer is narrower than in the paper; for tests.
    """

    def __init__(self, classes: int = 1000, *, shrink: int = 1) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for full, depth in _STAGES:
            for _ in range(depth):
                layers += [nn.Conv2d(channels, full // shrink, 3, padding=1, bias=False), nn.ReLU()]
                channels = full // shrink
            layers.append(nn.MaxPool2d(2))
        hidden = _HIDDEN // shrink
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(_SIDE)
        self.classifier = nn.Sequential(
            nn.Linear(channels * _SIDE**2, hidden, bias=False),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(hidden, hidden, bias=False),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(hidden, classes, bias=False),
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n"]:
        scores: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return scores


def xvgg16(classes: int = 1000) -> XVgg:
    """X-VGG-16."""
    return XVgg(classes)


PUBLISHED = {
    "xvgg16": Published(
        xvgg16,
        "classifier.6.weight",
        IMAGENET,
        "xvgg16_model_best.pth.tar",
        "https://github.com/visinf/fast-axiomatic-attribution",
    ),
}


@source(
    "xvgg16",
    form="{id}@WEIGHTS",
    modality="image",
    about="X-VGG-16 on ImageNet: no biases",
    install="the weights are given as a file",
    licence="Apache-2.0",
    group="weights",
    position=2,
)
def published_vgg16(id: str, request: Request) -> Model:
    """X-VGG-16 with its authors' weights."""
    return load_published(id, PUBLISHED[id], request)
