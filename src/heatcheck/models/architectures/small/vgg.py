"""VGG for small pictures: the paper's convolutions, then a linear layer on the means.

Paper: Simonyan and Zisserman 2015, Very Deep Convolutional Networks for Large-Scale Image Recognition; VGG-8 and the
single linear layer as in Tian et al. 2020, Contrastive Representation Distillation, and others on CIFAR.
"""

from jaxtyping import Float
from torch import Tensor, nn

from heatcheck.core.types import HeatcheckError
from heatcheck.models.architectures.fresh import FreshNetwork
from heatcheck.models.architectures.small.parts import check_norm, norm_layer

CONVOLUTIONS = {8: (1, 1, 1, 1, 1), 11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3)}
"""Convolutions of each stage by depth, which counts the three linear layers of the paper's networks."""
_WIDER = (1, 2, 4, 8, 8)
_SMALLEST = 4
"""Rows and columns under which a feature map is not pooled."""


class SmallVgg(FreshNetwork):
    """A VGG. A stage ends in max pooling as long as the feature map stays 4 × 4 or larger.

    Args:
        depth: 8, 11, 13 or 16.
        width: channels of the first stage.
        norm: `batch` or `none`.
        bias: whether constants are learnt. Without them and without norms the network is homogeneous.
        classes: how many it tells apart.
        size: rows and columns of the pictures.
    """

    def __init__(self, *, depth: int, width: int, norm: str, bias: bool, classes: int, size: int) -> None:
        super().__init__()
        check_norm(norm)
        if depth not in CONVOLUTIONS:
            raise HeatcheckError(f"depth={depth} is not one of {', '.join(map(str, CONVOLUTIONS))}")
        layers: list[nn.Module] = []
        channels, side = 3, size
        for stage, (wider, count) in enumerate(zip(_WIDER, CONVOLUTIONS[depth], strict=True)):
            for _ in range(count):
                layers.append(nn.Conv2d(channels, width * wider, 3, padding=1, bias=bias and norm == "none"))
                channels = width * wider
                layers += [norm_layer(norm, channels, bias=bias)] if norm == "batch" else []
                layers.append(nn.ReLU())
            if stage < len(_WIDER) - 1 and side // 2 >= _SMALLEST:
                layers.append(nn.MaxPool2d(2))
                side //= 2
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, classes, bias=bias)

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b n"]:
        scores: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return scores
