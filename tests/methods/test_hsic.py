"""HSIC attribution: by the slow formula, by closed forms, and by what is independent."""

import itertools
import math

import pytest
import torch
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.methods.hsic import BLOCK, dependence, design
from heatcheck.probe.asks import Shape
from heatcheck.testing.models import additive_text, constant
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    (
        "methods/hsic.py",
        "spread = 2 * outputs.quantile(0.5)",
        "spread = outputs.quantile(0.5)",
        "test_an_output_that_follows_one_unit_has_a_closed_form",
    ),
    (
        "methods/hsic.py",
        "2 * total / len(outputs) ** 2",
        "2 * total / len(outputs)",
        "test_an_output_that_follows_one_unit_has_a_closed_form",
    ),
    ("methods/hsic.py", "kept - kept.mean(0)", "kept", "test_the_quadratic_form_is_the_trace"),
    (
        "methods/hsic.py",
        "stratum >= samples // 2",
        "stratum >= samples // 3",
        "test_every_unit_is_there_in_half_of_the_questions",
    ),
)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def median(values):
    values = sorted(values)
    n = len(values)
    return (values[(n - 1) // 2] + values[n // 2]) / 2


def slow_hsic(kept, heard):
    """tr(K H L H) / N², with every matrix written out, for one unit after another."""
    n, units = kept.shape
    width = median(heard.tolist())
    centre = torch.eye(n, dtype=torch.float64) - 1 / n
    y = heard.tolist()
    outputs = torch.tensor([[math.exp(-((a - b) ** 2) / (2 * width**2)) for a in y] for b in y], dtype=torch.float64)
    found = []
    for m in range(units):
        z = kept[:, m].tolist()
        inputs = torch.tensor([[0.5 - (a - b) ** 2 for a in z] for b in z], dtype=torch.float64)
        found.append(torch.trace(inputs @ centre @ outputs @ centre) / n**2)
    return torch.stack(found)


@pytest.mark.parametrize("n", [30, 31, BLOCK + 5])
def test_the_quadratic_form_is_the_trace(n):
    kept = design(9, n, rng())
    heard = torch.rand(n, generator=rng(1), dtype=torch.float64)
    torch.testing.assert_close(dependence(kept.double(), heard), slow_hsic(kept.double(), heard), rtol=1e-9, atol=1e-13)


def test_the_formula_gives_the_same(lab):
    net, samples = lab.network(), lab.batch(lab.pictures(2))
    want = []
    for i, (x, t) in enumerate(zip(samples.x["pixels"], samples.target, strict=True)):
        kept = design(16, 40, samples.streams.generator(i, "hsic-masks"))
        mean = x.mean((1, 2), keepdim=True)
        heard = []
        for row in kept:
            mask = row.reshape(4, 4).repeat_interleave(2, 0).repeat_interleave(2, 1)
            with torch.no_grad():
                heard.append(net(torch.where(mask, x, mean)[None]).softmax(1)[0, t])
        score = slow_hsic(kept.double(), torch.stack(heard)).reshape(4, 4)
        want.append(score.repeat_interleave(2, 0).repeat_interleave(2, 1) / 4)
    got = lab.explain("hsic(samples=40, units=grid(4), fill=channel_mean)", net, samples)
    torch.testing.assert_close(got.values, torch.stack(want), rtol=1e-9, atol=1e-12)
    assert got.output == "prob" and not got.signed


def test_an_output_that_follows_one_unit_has_a_closed_form():
    """On all 2³ ways, y = c where unit 0 is there and d where not: HSIC is (1 - k(c, d)) / 4, and zero elsewhere."""
    kept = design(3, 8, rng())
    c, d = 0.9, 0.1
    got = dependence(kept.double(), d + (c - d) * kept[:, 0].double())
    width = (c + d) / 2
    want = (1 - math.exp(-((c - d) ** 2) / (2 * width**2))) / 4
    torch.testing.assert_close(got, torch.tensor([want, 0, 0], dtype=torch.float64), rtol=0, atol=1e-12)


def test_what_is_independent_gets_almost_nothing():
    kept = design(20, 2000, rng())
    heard = torch.rand(2000, generator=rng(1), dtype=torch.float64)
    assert dependence(kept.double(), heard).max() < 2e-3
    follows = dependence(kept.double(), torch.where(kept[:, 4], heard, heard / 4))
    assert follows[4] > 20 * follows[torch.arange(20) != 4].max()


def test_interactions_are_seen_beside_lone_effects():
    """Half the units matter only through a product; they still rank before those that do not matter at all."""
    kept = design(8, 4000, rng())
    z = kept.double()
    got = dependence(z, 0.2 + z[:, 0] + z[:, 1] * z[:, 2])
    assert got[[0, 1, 2]].min() > 5 * got[3:].max()


def test_every_unit_is_there_in_half_of_the_questions():
    kept = design(64, 500, rng())
    assert kept.sum(0).tolist() == [250] * 64
    assert len(kept.T.unique(dim=0)) == 64
    assert torch.equal(kept, design(64, 500, rng())) and not torch.equal(kept, design(64, 500, rng(1)))
    assert abs(float((kept[:, 0] == kept[:, 1]).double().mean()) - 0.5) < 0.1


def test_few_units_are_asked_in_every_way_once(lab):
    kept = design(3, 500, rng())
    assert {tuple(row) for row in kept.tolist()} == set(itertools.product([False, True], repeat=3)) and len(kept) == 8
    model, samples = lab.wrap(lab.network()), lab.batch(lab.pictures(2))
    probe = probe_for(model)
    component = catalogue.build("method", "hsic(units=grid(2))")
    component(probe, samples)
    assert probe.spent.forwards == 2 * 16
    assert component.passes(Shape(model.domain, samples.x.take(torch.tensor([0])))) == (16, 0)
    assert catalogue.build("method", "hsic").resolve(model.domain).passes(Shape(model.domain, samples.x)) == (500, 0)


def test_a_model_that_does_not_look_gives_nothing(lab):
    toy = constant()
    assert not lab.explain("hsic(samples=20)", toy, toy_batch(toy, 2)).values.any()
    silent = dependence(design(9, 20, rng()).double(), torch.zeros(20, dtype=torch.float64))
    assert torch.equal(silent, torch.zeros(9, dtype=torch.float64))


def test_what_the_model_ignores_comes_last(lab):
    class Half(nn.Module):
        def forward(self, x):
            y = x[:, :, :4].sum((1, 2, 3)) / 8
            return torch.stack([y, -y], 1)

    x = torch.ones(1, 3, 8, 8, dtype=torch.float64)
    got = lab.explain("hsic(samples=2000, units=grid(4))", Half(), lab.batch(x, [0]), forward=500).values[0]
    assert got[:4].min() > 4 * got[4:].max()


def test_words_are_switched_as_the_metrics_delete_them(lab):
    toy = additive_text()
    samples = toy_batch(toy, 3)
    got = lab.explain("hsic", toy, samples).values
    worth = toy.contributions(samples.x, samples.target)
    assert not got[samples.x["special"]].any()
    for row, true, special in zip(got, worth, samples.x["special"], strict=True):
        assert row.argmax() == true.abs().argmax()
        assert torch.equal(row[~special] > 0, torch.ones(int((~special).sum()), dtype=torch.bool))


def test_one_question_is_not_enough():
    with pytest.raises(SpecError, match="samples=1 must be at least 2"):
        catalogue.build("method", "hsic(samples=1)")
