"""Models whose answers are not a function of their input are refused before anything is measured."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import heatcheck as hc
from heatcheck.api.doctor import examine
from heatcheck.core.types import HeatcheckError, Inputs
from heatcheck.run.behaviour import misbehaviours
from heatcheck.testing import additive, gap_linear, one_head_attention
from heatcheck.training.defaults import load_model

MUTANTS = (
    (
        "run/behaviour.py",
        "if is_out_of_memory(problem):",
        "if False:",
        "test_a_model_that_has_memory_for_one_input_alone_is_not_refused",
    ),
    (
        "run/behaviour.py",
        "elif not _same(alone[0], beside[0]):",
        "elif not _same(alone[0], beside[1]):",
        "test_a_healthy_model_passes",
    ),
    ("run/behaviour.py", "if _state(model) != state:", "if _state(model) == state:", "test_a_healthy_model_passes"),
    ("run/behaviour.py", "if _state(model) != state:", "if False:", "test_it_is_noticed"),
    ("run/behaviour.py", "if any(not torch.equal(kept[name], given)", "if any(False", "test_it_is_noticed"),
)


class Head(nn.Module):
    """A linear classifier of 3 × 8 × 8 pictures; subclasses misbehave."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
        self.norm = nn.BatchNorm1d(5, track_running_stats=False)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out


class InPlace(Head):
    def forward(self, x: Tensor) -> Tensor:
        x -= 0.5
        return super().forward(x)


class Counting(Head):
    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return super().forward(x)


class Drifting(Head):
    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.seen + 1
        return super().forward(x) * self.seen


class Dropout(Head):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.dropout(x, 0.5))


class BatchStatistics(Head):
    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        return out if len(x) == 1 else F.batch_norm(out, None, None, training=True)


class Centred(Head):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(0))


class Widths(Head):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:, : 3 + int(x[0, 0, 0, 0] > 0.5)]


class OneRow(Head):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[:1]


WORDS = {
    InPlace: "changes its input in place",
    Counting: "changes its own weights or buffers",
    Drifting: "differently each time",
    Dropout: "differently each time",
    BatchStatistics: "other inputs of the batch",
    Centred: "other inputs of the batch",
    Widths: "3 or 4 classes",
    OneRow: "fails on a batch of two",
}


def pictures() -> list[tuple[Tensor, int]]:
    made = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    made[0, 0, 0, 0], made[1, 0, 0, 0] = 0.1, 0.9
    return [(x, i % 3) for i, x in enumerate(made)]


@pytest.mark.parametrize("kind", WORDS)
def test_it_is_noticed(kind: type[Head], tmp_path: Path) -> None:
    with pytest.raises(HeatcheckError, match="cannot be measured") as told:
        hc.Benchmark(models=[kind()], data=pictures(), methods=["random"], metrics=["sparseness"]).run(tmp_path / "run")
    assert WORDS[kind] in str(told.value)


@pytest.mark.parametrize("kind", [k for k in WORDS if k is not Widths])
def test_doctor_calls_it_an_error(kind: type[Head]) -> None:
    x = Inputs({"pixels": pictures()[0][0][None]})
    errors = [f.what for f in examine(load_model(kind()), x) if f.severity == "error"]
    assert any(WORDS[kind] in what for what in errors)


def test_a_function_around_a_module_in_training_mode_is_noticed() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 5), nn.BatchNorm1d(5), nn.Dropout(0.5)).train()
    net(torch.rand(4, 3, 8, 8))

    def predict(x: Any) -> Any:
        with torch.no_grad():
            return net.train()(torch.cat([x, torch.zeros_like(x)]))[: len(x)]

    x = Inputs({"pixels": torch.rand(1, 3, 8, 8)})
    assert [m.what.partition(" (")[0] for m in misbehaviours(load_model(predict), [x])] == [
        "it answers the same input differently each time"
    ]


@pytest.mark.parametrize("toy", [additive(), gap_linear(), one_head_attention()], ids=lambda toy: toy.name)
def test_a_healthy_model_passes(toy: Any) -> None:
    x = toy.inputs(3)
    each = [x.take(slice(i, i + 1)) for i in range(3)]
    assert misbehaviours(toy, each) == []
    assert misbehaviours(toy, each[:1]) == []


def test_a_model_that_has_memory_for_one_input_alone_is_not_refused() -> None:
    class Large(Head):
        def forward(self, x: Tensor) -> Tensor:
            if len(x) > 1:
                raise torch.OutOfMemoryError("out of memory")
            return super().forward(x)

    x = Inputs({"pixels": pictures()[0][0][None]})
    assert misbehaviours(load_model(Large()), [x]) == []
