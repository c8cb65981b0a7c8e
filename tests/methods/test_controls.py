"""Controls have answers that can be written down."""

import math

import pytest
import torch
import torch.nn.functional as F

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.metrics.base import Maps
from heatcheck.testing.models import additive, additive_text
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    (
        "methods/controls.py",
        "batch.streams.derive(probe.model.lineage)",
        "batch.streams",
        "test_random_agrees_with_no_other_model_but_does_not_mind_random_weights",
    ),
    (
        "methods/controls.py",
        "(first + last) / 2",
        "(first + last + 1) / 2",
        "test_center_is_a_gaussian_around_the_middle",
    ),
    (
        "methods/controls.py",
        "-away.square().sum(-1) / 2",
        "-away.square().sum(-1)",
        "test_center_is_a_gaussian_around_the_middle",
    ),
    ("methods/controls.py", "- free.cumsum(1) + 1", "- free.cumsum(1)", "test_position_falls_evenly_in_reading_order"),
    (
        "methods/controls.py",
        "return 2 * super().attribute(probe, batch) - 1",
        "return 2 * super().attribute(probe, batch)",
        "test_signed_noise_is_uniform_around_zero",
    ),
    (
        "methods/controls.py",
        "return -super().attribute(probe, batch)",
        "return super().attribute(probe, batch)",
        "test_oracles_are_the_best_and_the_worst_that_single_deletion_can_see",
    ),
)


CONTROLS = (
    "random",
    "signed_random",
    "constant",
    "sobel",
    "center",
    "input_magnitude",
    "position",
    "oracle",
    "anti_oracle",
)


@pytest.mark.parametrize("id", CONTROLS)
def test_controls_are_never_ranked_and_need_no_gradients(id):
    component = catalogue.build("method", id)
    assert component.control and component.uses == ()


@pytest.mark.parametrize("id", [c for c in CONTROLS if "oracle" not in c])
@pytest.mark.parametrize("make", [additive, additive_text])
def test_they_do_not_ask_the_model(id, make):
    toy = make()
    probe = probe_for(toy)
    got = catalogue.build("method", id)(probe, toy_batch(toy, 3))
    assert probe.spent.forwards == 0 and got.status == ("ok",) * 3


def test_random_is_the_samples_own_uniform_noise(lab):
    x = lab.pictures(4, side=40)
    model = lab.wrap(lab.network(side=40))
    got = lab.explain("random", model, x).values
    assert got.min() >= 0 and got.max() <= 1
    assert abs(float(got.mean()) - 0.5) < 0.02 and abs(float(got.var()) - 1 / 12) < 0.005
    assert not torch.equal(got[0], got[1])
    streams = lab.batch(x).streams.derive(model.identity)
    want = torch.rand(40, 40, generator=streams.generator(1, "random-map"), dtype=torch.float64)
    torch.testing.assert_close(got[1], want)


def test_signed_noise_is_uniform_around_zero(lab):
    model, x = lab.wrap(lab.network(side=40)), lab.pictures(4, side=40)
    plain, got = (lab.explain(id, model, x) for id in ("random", "signed_random"))
    torch.testing.assert_close(got.values, 2 * plain.values - 1)
    assert got.signed and not plain.signed
    assert -1 <= got.values.min() < -0.99 and 0.99 < got.values.max() <= 1


def test_random_agrees_with_no_other_model_but_does_not_mind_random_weights(lab):
    """A control of agreement between models, and one that must be caught by randomising weights."""
    x, model = lab.pictures(2), lab.wrap(lab.network())
    own = lab.explain("random", model, x).values
    assert not torch.equal(own, lab.explain("random", lab.wrap(lab.network(seed=1)), x).values)
    assert torch.equal(own, lab.explain("random", model.randomised("0", 3).randomised("2", 4), x).values)


def test_coarse_noise_is_enlarged_bilinearly(lab):
    samples, model = lab.batch(lab.pictures(2)), lab.wrap(lab.network())
    streams = samples.streams.derive(model.identity)
    cells = streams.draw("random-map", lambda g: torch.rand(3, 3, generator=g, dtype=torch.float64))
    want = F.interpolate(cells[:, None], (8, 8), mode="bilinear", align_corners=False)[:, 0]
    torch.testing.assert_close(lab.explain("random(grid=3)", model, samples).values, want)
    toy = additive_text()
    assert lab.explain("random(grid=3)", toy, toy_batch(toy, 2)).values.shape == (2, 12)


def test_constant_is_one_everywhere(lab):
    assert torch.equal(lab.explain("constant", lab.network(), lab.pictures(2)).values, torch.ones(2, 8, 8).double())


def test_sobel_sees_an_edge_and_nothing_else(lab):
    x = torch.zeros(1, 3, 8, 8, dtype=torch.float64)
    x[..., 4:] = 2.0
    got = lab.explain("sobel", lab.network(), x).values[0]
    want = torch.zeros(8, 8, dtype=torch.float64)
    want[:, 3:5] = 2.0
    torch.testing.assert_close(got, want)


def test_center_is_a_gaussian_around_the_middle(lab):
    got = lab.explain("center(sigma=0.5)", lab.network(), lab.pictures(1)).values[0]
    for y in range(8):
        for x in range(8):
            want = math.exp(-((y - 3.5) ** 2 + (x - 3.5) ** 2) / (2 * 4**2))
            assert float(got[y, x]) == pytest.approx(want)


def test_the_middle_of_a_text_is_that_of_its_words(lab):
    toy = additive_text()
    samples = toy_batch(toy, 4)
    got = lab.explain("center", toy, samples).values
    for row, special in zip(got, samples.x["special"], strict=True):
        words = (~special).nonzero().flatten().double()
        away = (torch.arange(12) - words.mean()).abs()
        assert torch.equal(row.argsort(descending=True, stable=True), away.argsort(stable=True))


def test_input_magnitude_adds_up_channels(lab):
    x = lab.pictures(2)
    torch.testing.assert_close(lab.explain("input_magnitude", lab.network(), x).values, x.abs().sum(1))


def test_position_falls_evenly_in_reading_order(lab):
    got = lab.explain("position", lab.network(), lab.pictures(2)).values
    want = torch.arange(64, 0, -1).double().reshape(8, 8) / 64
    assert torch.equal(got, want.expand(2, -1, -1))


def test_the_first_word_of_a_text_comes_first(lab):
    toy = additive_text()
    samples = toy_batch(toy, 4)
    got = lab.explain("position", toy, samples).values
    for row, special in zip(got, samples.x["special"], strict=True):
        n = int((~special).sum())
        torch.testing.assert_close(row[~special], torch.arange(n, 0, -1).double() / n)
        assert not row[special].any()


@pytest.mark.parametrize("grid", [14, 7])
def test_m4s_coarse_noise_has_its_resolution(lab, grid):
    """At the centres of the coarse cells the enlarged noise is the noise itself, where a cell has a centre pixel."""
    side = 3 * grid
    samples = lab.batch(lab.pictures(2, side=side))
    model = lab.wrap(lab.network(side=side - side % 2))
    got = lab.explain(f"random(grid={grid})", model, samples).values
    cells = samples.streams.derive(model.identity).draw(
        "random-map", lambda g: torch.rand(grid, grid, generator=g, dtype=torch.float64)
    )
    torch.testing.assert_close(got[:, 1::3, 1::3], cells)
    assert len(got[0].unique()) > grid**2


@pytest.mark.parametrize("make", [additive, additive_text])
def test_oracles_are_the_best_and_the_worst_that_single_deletion_can_see(make):
    toy = make()
    samples = toy_batch(toy, 4)
    probe = probe_for(toy)
    best, worst = (catalogue.build("method", id)(probe, samples) for id in ("oracle", "anti_oracle"))
    torch.testing.assert_close(best.values, toy.contributions(samples.x, samples.target))
    assert torch.equal(worst.values, -best.values)
    score = catalogue.build("metric", "sds")(probe, samples, Maps([best, worst], toy.domain, samples)).value
    torch.testing.assert_close(score, torch.tensor([[1.0], [-1.0]], dtype=torch.float64).expand(2, 4))


@pytest.mark.parametrize("spec", ["random(grid=0)", "random(grid=true)", "center(sigma=0.0)"])
def test_mistakes_are_named(spec):
    with pytest.raises(SpecError, match="must be"):
        catalogue.build("method", spec)
