"""Quick dropout: what it drops, what its gradient is, and that torch's random state alone decides it."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from heatcheck.training.dropout import QuickDropout

MUTANTS = (
    (
        "training/dropout.py",
        "_LEVELS / (_LEVELS - dropped)",
        "1.0",
        "test_values_are_dropped_or_raised_so_that_their_mean_stays",
    ),
    (
        "training/dropout.py",
        "drawn >= dropped - _LEVELS // 2",
        "drawn >= dropped",
        "test_values_are_dropped_or_raised_so_that_their_mean_stays",
    ),
    (
        "training/dropout.py",
        "int(torch.randint(1 << 62, ()))",
        "7",
        "test_the_random_state_decides_what_is_dropped",
    ),
)


def dropped(x, p=0.1, seed=0):
    with torch.random.fork_rng(), QuickDropout():
        torch.manual_seed(seed)
        return nn.Dropout(p)(x)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 1e-3])
def test_values_are_dropped_or_raised_so_that_their_mean_stays(p):
    n = 400_003  # no multiple of four, as many as are drawn at once
    out = dropped(torch.ones(n), p)
    kept = out[out != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)), rtol=2e-4, atol=0)
    spread = (p * (1 - p) / n) ** 0.5
    assert abs(float((out == 0).double().mean()) - p) < 5 * spread + 1 / 65536
    assert abs(float(out.double().mean()) - 1) < 5 * spread / (1 - p)


def test_neighbours_are_dropped_independently():
    gone = (dropped(torch.ones(1000, 1000), 0.3) == 0).double()
    for one, other in ((gone[:, 1:], gone[:, :-1]), (gone[1:], gone[:-1])):
        assert abs(float(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1])) < 0.005


def test_gradients_pass_where_values_do():
    x = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)
    out = dropped(x, 0.4)
    (slope,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(slope, (out / x).detach())
    assert out.dtype == torch.float64


def test_the_random_state_decides_what_is_dropped():
    x = torch.ones(64)
    assert torch.equal(dropped(x, 0.5, seed=1), dropped(x, 0.5, seed=1))
    assert not torch.equal(dropped(x, 0.5, seed=1), dropped(x, 0.5, seed=2))
    with torch.random.fork_rng(), QuickDropout():
        torch.manual_seed(1)
        first, state = functional.dropout(x), torch.get_rng_state()
        second = functional.dropout(x)
        torch.set_rng_state(state)
        assert torch.equal(functional.dropout(x), second) and not torch.equal(first, second)


@pytest.mark.parametrize(
    ("p", "training", "expected"), [(0.5, False, 1.0), (0.0, True, 1.0), (1.0, True, 0.0)], ids=["off", "none", "all"]
)
def test_where_nothing_is_drawn_it_is_torch_s_own(p, training, expected):
    with QuickDropout():
        out = functional.dropout(torch.ones(9), p, training)
    assert torch.equal(out, torch.full((9,), expected))


def test_in_place_means_in_place():
    x = torch.ones(1000)
    with QuickDropout():
        out = functional.dropout(x, 0.5, inplace=True)
    assert out is x and 0 < int((x == 0).sum()) < 1000


def test_an_empty_tensor_stays_empty():
    assert dropped(torch.ones(0, 4)).shape == (0, 4)
