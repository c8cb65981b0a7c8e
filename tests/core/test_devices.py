"""Tensors go to a device in one copy; to a GPU of CUDA through pinned memory, and nobody waits."""

import pytest
import torch
from torch import Tensor

from heatcheck.core.devices import sent
from heatcheck.core.types import Inputs

MUTANTS = (
    ("core/devices.py", "non_blocking=True", "non_blocking=False", "test_inputs_are_pinned_for_cuda_alone"),
    ("core/devices.py", 't.device.type == "cpu" and', "", "test_what_is_on_a_device_is_not_pinned"),
)


@pytest.fixture
def done(monkeypatch):
    """What is asked of tensors, which stay where they are: there is no GPU here."""
    asked = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda t: asked.append(f"pin {t.is_contiguous()}") or t)
    monkeypatch.setattr(Tensor, "to", lambda t, device, **how: asked.append((str(device), how)) or t)
    return asked


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cuda:1", ["pin True", ("cuda:1", {"non_blocking": True})]),
        ("mps", [("mps", {})]),
        ("lazy:0", [("lazy:0", {})]),
    ],
)
@pytest.mark.parametrize("names", [("pixels",), ("ids", "attention")])
def test_inputs_are_pinned_for_cuda_alone(done, device, expected, names):
    row = torch.tensor([[1.5, 2.5]])
    there = Inputs({name: row.expand(3, 2) for name in names}).to(torch.device(device))
    assert done == expected, "one copy, of memory that is all its own"
    assert all(torch.equal(there[name], row.expand(3, 2)) for name in names)


def test_what_is_on_a_device_is_not_pinned(done):
    sent(torch.device("cuda"), torch.empty(2, device="meta"))
    sent(torch.device("cuda"), torch.ones(2, requires_grad=True))
    assert done == [("cuda", {})] * 2
