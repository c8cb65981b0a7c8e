"""The run in tests/fixtures/old_layout, made before the floors were laid: its network, inputs and grid."""

import torch
from torch import nn

METHODS = [
    "saliency",
    "integrated_gradients(steps=4)",
    "grad_cam",
    "occlusion",
    "smoothgrad(samples=3)",
    "random",
    "constant",
]
METRICS = ["sds(units=grid(2))", "morf(steps=4)", "infidelity(samples=8)", "sparseness", "relevance_mass"]


def network() -> nn.Module:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    with torch.no_grad():
        for k, weight in enumerate(net.parameters()):
            n = torch.arange(weight.numel(), dtype=torch.float64)
            weight.copy_((torch.sin(n * (0.7 + 0.13 * k) + k) * 0.5).reshape(weight.shape).float())
    return net.eval()


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    n = torch.arange(5 * 3 * 16 * 16, dtype=torch.float64)
    x = (torch.sin(n * 0.37) + torch.cos(n * 0.011)).reshape(5, 3, 16, 16).float()
    return x, torch.tensor([0, 1, 2, 3, 1])
