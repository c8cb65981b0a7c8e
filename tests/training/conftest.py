"""Small networks and pictures that are learnt within a second."""

import numpy as np
import pytest
import torch
from torch import nn

from heatcheck.core.types import Modality
from heatcheck.data.base import Dataset
from heatcheck.data.images import picture_sample
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.vision import VisionModel

SIDE = 16
CLASSES = ("dark", "bright")


@pytest.fixture
def preprocess():
    return Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3, size=SIDE, resize=SIDE, interpolation="bilinear")


@pytest.fixture
def network():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16, 2),
        )


@pytest.fixture
def model(network, preprocess):
    return VisionModel(network, "toy", preprocess=preprocess, classes=CLASSES)


def pictures(n, seed=0, name="toys"):
    """Noise, dark or bright."""
    rng = np.random.default_rng(seed)
    samples = []
    for i in range(n):
        label = i % 2
        content = rng.integers(0, 128, (SIDE, SIDE, 3)).astype(np.uint8) + np.uint8(110 * label)
        sample = picture_sample(f"{name}-{i:03d}", content)
        samples.append(type(sample)(sample.name, sample.digest, sample.content, label=label))
    return Dataset(name, Modality.IMAGE, tuple(samples), CLASSES)
