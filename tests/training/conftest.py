"""Small networks and pictures that are learnt within a second, and trainings of them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from heatcheck.core.types import Modality
from heatcheck.data.base import Dataset
from heatcheck.data.images import picture_sample
from heatcheck.models.networks import trainable_copy
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.training_record import Parent, TrainingRecord
from heatcheck.models.vision import VisionModel
from heatcheck.training.loop import fit, numerics, steps_of
from heatcheck.training.pictures import PictureTask
from heatcheck.training.recipe import load_recipe

SIDE = 16
CLASSES = ("dark", "bright")
SMALL = {"epochs": 2, "batch": 8, "lr": 0.05, "augment": "pad_crop"}


def pictures(n, seed=0, name="toys"):
    """Noise, dark or bright."""
    rng = np.random.default_rng(seed)
    samples = []
    for i in range(n):
        content = rng.integers(0, 128, (SIDE, SIDE, 3)).astype(np.uint8) + np.uint8(110 * (i % 2))
        samples.append(replace(picture_sample(f"{name}-{i:03d}", content), label=i % 2))
    return Dataset(name, Modality.IMAGE, tuple(samples), CLASSES)


def toy_network(dropout=0.2, norm=True):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4) if norm else nn.Identity(),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16, 2),
        )


@dataclass
class Toy:
    """A training that is ready to begin, and how to begin it."""

    task: Any
    network: Any
    record: Any

    def fit(self, folder, **options):
        """The record and the weights after training in a folder."""
        network = trainable_copy(self.network)
        record = fit(self.task, network, self.record, Path(folder), progress="none", **options)
        return record, network.state_dict()


@pytest.fixture(name="pictures")
def _pictures():
    return pictures


@pytest.fixture
def preprocess():
    return Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3, size=SIDE, resize=SIDE, interpolation="bilinear")


@pytest.fixture
def toy(preprocess):
    """Makes trainings of a toy network on dark and bright pictures."""

    def make(recipe="align", *, n=24, held_out=6, network=None, task=PictureTask, **settings):
        network = toy_network(**(network or {}))
        model = VisionModel(network, "toy", preprocess=preprocess, classes=CLASSES)
        wanted = load_recipe(recipe, changes={**SMALL, **settings})
        made = task(model, wanted, pictures(n), pictures(held_out, 1, "held"), CLASSES)
        record = TrainingRecord(
            heatcheck="0",
            recipe=wanted.id,
            settings=wanted.settings(),
            parent=Parent(spec="", name="toy", identity=model.identity, architecture="toy", modality="image"),
            classes=list(CLASSES),
            data="toys",
            held_out="held",
            samples=n,
            held_out_samples=held_out,
            data_identity=made.data_identity(),
            numerics=numerics("cpu", 1),
            steps=steps_of(made),
        )
        return Toy(made, network, record)

    return make
