"""Sobol indices: by the slow formula, by closed forms, and by what they must ignore."""

import math

import pytest
import torch
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import NotApplicable
from heatcheck.methods.sobol import points, total_order
from heatcheck.probe.asks import Shape
from heatcheck.testing.models import additive_text, constant, fill_weights
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    (
        "methods/sobol.py",
        ".square().mean(1) / 2",
        ".square().mean(1)",
        "test_an_additive_function_divides_its_variance_among_its_inputs",
    ),
    (
        "methods/sobol.py",
        "torch.where(at_there, there[own, point], here[own, point])",
        "torch.where(at_there, here[own, point], there[own, point])",
        "test_the_formula_gives_the_same",
    ),
    ("methods/sobol.py", "plain.var()", "plain.var(correction=0)", "test_the_formula_gives_the_same"),
)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def enlarged(cells, side):
    """Each cell as a square of pixels, one pixel at a time."""
    grid = len(cells)
    out = torch.zeros(side, side, dtype=cells.dtype)
    for y in range(side):
        for x in range(side):
            out[y, x] = cells[y * grid // side, x * grid // side]
    return out


def slow_sobol(net, x, target, a, b, fill):
    """Jansen's estimate, one masked picture at a time; variance with n - 1."""
    n, units = a.shape
    grid = math.isqrt(units)

    def ask(mask):
        mask = enlarged(mask.reshape(grid, grid), x.shape[-1])
        with torch.no_grad():
            return float(net((x * mask + fill * (1 - mask))[None]).softmax(1)[0, target])

    plain = [ask(point) for point in a]
    mean = sum(plain) / n
    variance = sum((y - mean) ** 2 for y in plain) / (n - 1)
    index = []
    for m in range(units):
        total = 0.0
        for k in range(n):
            moved = a[k].clone()
            moved[m] = b[k, m]
            total += (plain[k] - ask(moved)) ** 2
        index.append(total / (2 * n * variance))
    area = (x.shape[-1] // grid) ** 2
    return enlarged(torch.tensor(index, dtype=torch.float64).reshape(grid, grid), x.shape[-1]) / area


@pytest.mark.parametrize(("grid", "designs"), [(2, 8), (4, 4)])
def test_the_formula_gives_the_same(lab, grid, designs):
    net, samples = lab.network(), lab.batch(lab.pictures(2))
    want = []
    for i, (x, t) in enumerate(zip(samples.x["pixels"], samples.target, strict=True)):
        a, b = points(grid**2, designs, samples.streams.generator(i, "sobol-masks"))
        want.append(slow_sobol(net, x, t, a, b, x.mean((1, 2), keepdim=True)))
    got = lab.explain(f"sobol(designs={designs}, units=grid({grid}), fill=channel_mean)", net, samples)
    torch.testing.assert_close(got.values, torch.stack(want), rtol=1e-9, atol=1e-12)
    assert got.output == "prob" and not got.signed


def ishigami(x, a=7.0, b=0.1):
    """The standard test function of sensitivity analysis, with the third input only in an interaction."""
    x = math.pi * (2 * x - 1)
    return x[:, 0].sin() + a * x[:, 1].sin() ** 2 + b * x[:, 2] ** 4 * x[:, 0].sin()


def estimate(f, units, n):
    a, b = points(units, n, rng())
    moved = [f(torch.where(torch.arange(units) == m, b, a)) for m in range(units)]
    return total_order(f(a), torch.stack(moved))


def test_estimates_converge_to_ishigamis_indices():
    a, b, pi4 = 7.0, 0.1, math.pi**4
    first = (1 + b * pi4 / 5) ** 2 / 2
    second = a**2 / 8
    both = b**2 * pi4**2 * (1 / 18 - 1 / 50)
    total = first + second + both
    want = torch.tensor([first + both, second, both], dtype=torch.float64) / total
    torch.testing.assert_close(estimate(ishigami, 3, 2**14), want, rtol=0, atol=2e-3)


def test_an_additive_function_divides_its_variance_among_its_inputs():
    weight = torch.tensor([3.0, -2.0, 1.0, 0.0], dtype=torch.float64)
    got = estimate(lambda z: z @ weight, 4, 2**14)
    torch.testing.assert_close(got, weight.square() / weight.square().sum(), rtol=0, atol=2e-3)
    assert got[3] < 1e-25


def test_a_linear_network_gets_the_squares_of_its_cells(lab):
    """Explaining a logit that is linear in the pixels: a cell's index is its worth squared, by the sum of squares."""
    net, x = fill_weights(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), 0, torch.float64), lab.pictures(2)
    got = lab.explain(
        "sobol(designs=8192, units=grid(2), output=logit)", net, lab.batch(x, [0, 1]), forward=4096
    ).values
    worth = (net[1].weight.detach().reshape(2, 3, 8, 8) * x).sum(1).reshape(2, 2, 4, 2, 4).sum((2, 4))
    want = worth.square() / worth.square().sum((1, 2), keepdim=True)
    torch.testing.assert_close(got.reshape(2, 2, 4, 2, 4).sum((2, 4)), want, rtol=0, atol=5e-3)


def test_the_sequence_is_sobols(lab):
    from scipy.stats import qmc
    from torch.quasirandom import SobolEngine

    plain = SobolEngine(20).draw(16, dtype=torch.float64)
    torch.testing.assert_close(plain, torch.from_numpy(qmc.Sobol(20, scramble=False).random(16)))
    a, b = points(10, 16, rng())
    for column in torch.cat([a, b], 1).T:
        assert (column * 16).long().sort().values.tolist() == list(range(16))  # one point in every sixteenth
    assert len(torch.cat([a, b], 1).T.unique(dim=0)) == 20
    again, _ = points(10, 16, rng())
    other, _ = points(10, 16, rng(1))
    assert torch.equal(a, again) and not torch.equal(a, other)


def test_a_model_that_does_not_look_gives_nothing(lab):
    toy = constant()
    assert not lab.explain("sobol(designs=4)", toy, toy_batch(toy, 2)).values.any()


def test_rounding_is_not_variance():
    noise = torch.rand(5, 8, generator=rng(), dtype=torch.float64) * 1e-9 + 0.7
    assert total_order(noise[0], noise[1:]).max() < 1e-5


def test_it_finds_the_only_cells_that_matter(lab):
    class Spot(nn.Module):
        def forward(self, x):
            y = 3 * x[:, 0, 5, 2] * x[:, 1, 0, 7]
            return torch.stack([y, -y], 1)

    got = lab.explain("sobol(designs=8)", Spot(), lab.batch(torch.ones(1, 3, 8, 8).double(), [0])).values[0]
    assert got.nonzero().tolist() == [[0, 7], [5, 2]]
    assert got[5, 2] > 0.2 and got[0, 7] > 0.2


def test_superpixels_are_dimmed_as_a_whole(lab):
    samples = lab.batch(lab.pictures(3, side=16))
    model = lab.wrap(lab.network(side=16))
    probe = probe_for(model)
    component = catalogue.build("method", "sobol(designs=4, units=slic(6))")
    got = component(probe, samples).values.flatten(1)
    units = probe.units("slic(6)", samples)
    for row, index in zip(got, units.index, strict=True):
        assert all(len(row[index == u].unique()) == 1 for u in range(int(index.max()) + 1))
    foretold = [component.passes(Shape(model.domain, samples.x.take(torch.tensor([i]))))[0] for i in range(3)]
    assert probe.spent.forwards == sum(foretold) == 4 * int((units.count + 1).sum())


def test_the_papers_grid_costs_the_papers_passes_less_the_unused_ones(lab):
    model = lab.wrap(lab.network())
    component = catalogue.build("method", "sobol").resolve(model.domain)
    assert component.units == "grid(8)" and component.designs == 32
    assert component.passes(Shape(model.domain, lab.batch(lab.pictures(1)).x)) == (32 * (64 + 1), 0)


def test_texts_are_refused_with_what_to_try():
    toy = additive_text()
    with pytest.raises(NotApplicable, match="try hsic"):
        catalogue.build("method", "sobol")(probe_for(toy), toy_batch(toy, 1))


@pytest.mark.parametrize("designs", [0, 1, 12, -8])
def test_unbalanced_designs_are_refused(designs):
    with pytest.raises(SpecError, match=f"designs={designs} must be a power of two"):
        catalogue.build("method", f"sobol(designs={designs})")
