"""The pretend accelerator moves and converts tensors, and counts what it moves, as an accelerator would."""

import pytest
import torch

from heatcheck.testing.pretend import Misplaced, Transfers, pretend_device

MUTANTS = (
    (
        "testing/pretend.py",
        "if func is _TO_DEVICE_AND_TYPE:",
        "if False:",
        "test_a_tensor_is_moved_and_converted_at_once",
    ),
    ("testing/pretend.py", "raise Misplaced(f\"{_origin(others)} meets", "print(f\"{_origin(others)} meets",
     "test_tensors_of_two_devices_do_not_meet"),
)  # fmt: skip


@pytest.mark.parametrize("inference", [False, True])
def test_a_tensor_is_moved_and_converted_at_once(inference: bool) -> None:
    with torch.inference_mode(inference), pretend_device() as device:
        there = torch.arange(3).to(device=device.name, dtype=torch.float32)
        assert (there.device, there.dtype, device.counted()) == (device.name, torch.float32, Transfers(ins=1))
        mask = there.to(device=device.name, dtype=torch.bool)
        assert (mask.device, mask.dtype, device.counted()) == (device.name, torch.bool, Transfers(ins=1))
        back = mask.to(device="cpu", dtype=torch.long)
        assert (back.tolist(), device.counted()) == ([0, 1, 1], Transfers(ins=1, outs=1))


def test_tensors_of_two_devices_do_not_meet() -> None:
    with (
        pretend_device() as device,
        pytest.raises(Misplaced, match=r"torch\.ones in test_pretend\.py, line \d+ creates"),
    ):
        torch.ones(2).to(device.name) + torch.ones(2)
