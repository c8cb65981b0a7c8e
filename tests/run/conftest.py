"""A small real grid: a convolutional toy, twenty pictures, a few methods and metrics."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from heatcheck.api.benchmark import label_components
from heatcheck.api.result import Result
from heatcheck.core.types import Inputs, Sample
from heatcheck.data.load import load_data
from heatcheck.domain.image import ImageDomain
from heatcheck.models.torch_model import TorchModel
from heatcheck.profiles import load_profile
from heatcheck.run.execution import chunks_of, missing
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import Part, Setup, prepare
from heatcheck.run.store import Store
from heatcheck.run.work import Work

PROFILE = load_profile("default")

METHODS = ["saliency", "input_x_gradient", "occlusion", "rise(samples=16)", "random"]
METRICS = ["sds", "morf(steps=4)", "infidelity(samples=8)"]


def encode(sample: Sample) -> Inputs:
    if isinstance(sample.content, str):
        raise ValueError("unreadable")
    return Inputs({"pixels": sample.content[None]})


def network(seed: int = 0) -> nn.Module:
    rng = torch.Generator().manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(96, 5)
    )
    for weight in net.parameters():
        nn.init.normal_(weight, 0, 0.3, generator=rng)
    return net


def explained(seed: int = 0, name: str = "toy") -> TorchModel:
    domain = ImageDomain(mean=(0.5,) * 3, std=(0.5,) * 3)
    return TorchModel(network(seed), name, domain, encoder=encode, preprocessing="as it is")


def pictures(n: int = 20) -> tuple[torch.Tensor, list[int]]:
    x = torch.randn(n, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    return x, [i % 5 for i in range(n)]


def build_setup(
    methods: Any = METHODS, metrics: Any = METRICS, *, n: int = 20, order: Any = None, **rest: Any
) -> Setup:
    x, labels = pictures(n)
    chosen = list(range(n)) if order is None else order
    data = load_data((x[chosen], [labels[i] for i in chosen]))
    models = rest.pop("models", None) or {"toy": explained()}
    named = label_components("method", methods, PROFILE), label_components("metric", metrics, PROFILE)
    return Setup(models, data, *named, **rest)


@pytest.fixture(scope="session")
def make_setup() -> Callable[..., Setup]:
    return build_setup


@pytest.fixture
def ready(make_setup: Callable[..., Setup], tmp_path: Path) -> tuple[Setup, Store, list[Part], list[Work]]:
    """A run that is about to begin, with its works."""
    setup = make_setup(["saliency", "random"], ["sds"])
    store = Store.open(tmp_path / "run", create=True)
    parts = prepare(setup, Runtime(batch=4, progress="none"), store)
    chunks = chunks_of(missing(parts[0], setup.data, store), 1)
    works = [parts[0].work(samples, store, setup.sources) for samples in chunks]
    return setup, store, parts, works


def bits(out: Path) -> list[tuple[Any, ...]]:
    """Every score and status of a run, exactly."""
    columns = ("sample", "method", "metric", "score", "status")
    return Result.open(out).scores().select(columns).sort("sample", "method", "metric").rows()


@pytest.fixture
def make_model() -> Callable[..., TorchModel]:
    return explained
