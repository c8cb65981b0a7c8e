"""The micro-batch is measured, and running out of memory is recognised."""

import pytest
import torch

from heatcheck.core.types import HeatcheckError
from heatcheck.models.black_box import CallableModel
from heatcheck.probe import numerics
from heatcheck.probe.numerics import SIZES, Numerics, Room, fastest, is_device_lost, is_out_of_memory, machine, measure
from heatcheck.testing import gap_linear, one_head_attention

MUTANTS = (
    (
        "probe/numerics.py",
        "if rate < best_rate * 0.9:",
        "if rate < best_rate:",
        "test_a_larger_size_must_win_by_a_margin",
    ),
    (
        "probe/numerics.py",
        "rate = (time.perf_counter() - start) / size",
        "rate = time.perf_counter() - start",
        "test_the_best_rate_wins",
    ),
)


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances only when a call says how long it took."""
    now = [0.0]
    monkeypatch.setattr(numerics.time, "perf_counter", lambda: now[0])

    def taking(seconds):
        def call(n):
            now[0] += seconds(n)

        return call

    return taking


def test_the_best_rate_wins(clock):
    assert fastest(clock(lambda n: 1 + 0.1 * n), SIZES) == 16
    assert fastest(clock(lambda n: 0.1 * n**2), SIZES) == 1
    assert fastest(clock(lambda n: {1: 1, 4: 1.4}.get(n, 0.5 * n)), SIZES) == 4


def test_a_larger_size_must_win_by_a_margin(clock):
    assert fastest(clock(lambda n: n * (1 - 0.01 * (n > 1))), SIZES) == 1


def test_the_search_stops_at_the_largest(clock):
    assert fastest(clock(lambda n: 1.0), (1, 2, 4, 8)) == 8


def test_running_out_of_memory_ends_the_search(clock):
    time_passes = clock(lambda n: 1.0)

    def call(n):
        if n > 4:
            raise torch.OutOfMemoryError
        time_passes(n)

    assert fastest(call, SIZES) == 4


def test_a_single_input_that_does_not_fit_is_an_error():
    def call(n):
        raise MemoryError

    with pytest.raises(HeatcheckError, match="does not fit"):
        fastest(call, SIZES)


def test_other_errors_are_not_swallowed():
    def call(n):
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        fastest(call, SIZES)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (torch.OutOfMemoryError("x"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_out_of_memory_is_recognised(problem, expected):
    assert is_out_of_memory(problem) is expected


@pytest.mark.parametrize("make", [gap_linear, one_head_attention])
def test_measuring_gives_sizes_and_the_machine(make):
    model = make()
    found = measure(model, model.inputs(2), largest=4)
    assert found.forward in (1, 2, 4) and found.backward in (1, 2, 4)
    assert found.torch == torch.__version__ and found.capability
    assert found.record() == {**Numerics(forward=found.forward, backward=found.backward).record(), **machine()}


def test_a_black_box_is_measured_forwards_only():
    toy = gap_linear(dtype=torch.float32)
    box = CallableModel(lambda x: toy.module()(x), "box", toy.domain)
    found = measure(box, toy.inputs(1), largest=2)
    assert found.backward == found.forward


class Small(Room):
    """Memory for a call of so many rows; remembers the last call."""

    def __init__(self, rows):
        self.rows, self.last = rows, 0

    def bears(self, times):
        return self.last * times <= self.rows


def test_no_call_is_tried_that_memory_does_not_bear(clock):
    room, tried = Small(20), []
    timed = clock(lambda n: 1.0)

    def call(n):
        tried.append(n)
        room.last = n
        timed(n)

    assert fastest(call, numerics.GPU_SIZES, room) == 16 and max(tried) == 16
    assert numerics.GPU_SIZES[-1] >= 256 and numerics.SIZES[-1] == 16


@pytest.mark.parametrize(
    ("problem", "lost"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), True),
        (type("AcceleratorError", (RuntimeError,), {})("unspecified launch failure"), True),
        (RuntimeError("CUDA error: out of memory"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("CUDA error"), False),
    ],
)
def test_a_lost_device_is_told_from_other_problems(problem, lost):
    assert is_device_lost(problem) is lost
