"""The inpainting metric, against the definition and with a painter that does as it is told."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Inputs, NotApplicable
from heatcheck.domain.image import ImageDomain
from heatcheck.fills.base import Fill, fill
from heatcheck.metrics import inpainting
from heatcheck.models.torch_model import TorchModel

MUTANTS = (
    (
        "metrics/inpainting.py",
        "counts(units, self.steps)[:, 1:-1]",
        "counts(units, self.steps)[:, :-2]",
        "test_validity_is_asked_once_for_the_second_classes_that_occur",
    ),
    (
        "metrics/inpainting.py",
        "valid = 2 * wins > self.validity",
        "valid = 2 * wins >= self.validity",
        "test_classes_that_the_painter_cannot_paint_are_skipped",
    ),
    (
        "metrics/inpainting.py",
        "self._groups(probe, batch, clean[:, 1])",
        "self._groups(probe, batch, clean[:, 0])",
        "test_validity_is_asked_once_for_the_second_classes_that_occur",
    ),
    (
        "metrics/inpainting.py",
        "return fresh / torch.where",
        "return until / torch.where",
        "test_agrees_with_the_definition",
    ),
    (
        "metrics/inpainting.py",
        "replace(painter, seed=i) for i",
        "replace(painter, seed=0) for i",
        "test_the_painter_is_told_the_second_class",
    ),
)
NAMES = ("ant", "bumble bee", "cat")


@dataclass(frozen=True, kw_only=True, repr=False)
class Obedient(Fill):
    """Paints a class's own picture; `fails` of 20 seeds paint the next class instead."""

    prompt: str = ""
    seed: int = 0
    fails: int = 0

    def full(self, domain, batch):
        shown = (NAMES.index(self.prompt) + (self.seed >= 20 - self.fails)) % 3
        leaf = domain.leaf(batch.x)
        shape = torch.zeros_like(leaf[0])
        shape.view(-1)[shown] = 5.0 + self.seed / 10
        return domain.with_leaf(batch.x, shape.expand_as(leaf).clone())


class First(torch.nn.Module):
    """The logits are the first three pixels."""

    def forward(self, pixels):
        return pixels.flatten(1)[:, :3]


@pytest.fixture(autouse=True)
def _obedient():
    """The painter is known for the length of a test, and what it painted is forgotten."""
    fill("test_obedient", on=("image",))(Obedient)
    inpainting._recognised.clear()
    yield
    del catalogue._own["fill", "test_obedient"]


def named(names=NAMES):
    """Three samples of the class `ant`; the first and last come second to `cat`, the other to `bumble bee`."""
    return TorchModel(First(), "first", ImageDomain(), classes=names)


def samples(toys, model):
    pixels = torch.zeros(3, 1, 4, 4, dtype=torch.float64)
    pixels.view(3, -1)[:, :3] = torch.tensor([[3.0, 1.0, 2.0], [3.0, 2.0, 1.0], [4.0, 0.0, 3.0]])
    return toys.batch_of(model, Inputs({"pixels": pixels}))


def slow(model, batch, row, heat, steps, fills, read):
    """One input at a time: the top k/L of the pixels replaced by those of each fully painted picture; then the mean."""
    pixels = batch.x["pixels"][row]
    order = sorted(range(heat.numel()), key=lambda s: -float(heat.flatten()[s]))
    points = []
    for k in range(1, steps):
        gone = torch.zeros(heat.numel(), dtype=torch.bool)
        gone[order[: k * heat.numel() // steps]] = True
        values = []
        for painted in fills:
            x = torch.where(gone.reshape(heat.shape), painted, pixels)
            with torch.no_grad():
                logits = model.logits(Inputs({"pixels": x[None]}))[0]
            values.append(read(logits, batch.target[row]))
        points.append(np.mean(values))
    return np.array(points)


def prob(logits, target):
    return float(logits.softmax(0)[target])


@pytest.mark.parametrize("steps", [4, 10])
def test_agrees_with_the_definition(toys, steps):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 2)
    clean = model.logits(batch.x).argmax(1)
    spec = f"inpainting(steps={steps}, fill=zero"
    plain, kept, stratified = (
        toys.score(f"{spec}{more})", model, batch, maps) for more in ("", ", unchanged=true", ", weight=relevance")
    )
    zero = torch.zeros_like(batch.x["pixels"][0])
    for j in range(2):
        for i in range(3):
            heat = maps.items[j].values[i]
            curve = slow(model, batch, i, heat, steps, [zero], prob)
            assert plain.curve[j, i].numpy() == pytest.approx(curve, abs=1e-9)
            assert float(plain.value[j, i]) == pytest.approx(curve.mean(), abs=1e-9)
            same = slow(model, batch, i, heat, steps, [zero], lambda y, t, i=i: float(y.argmax() == clean[i]))
            assert float(kept.value[j, i]) == pytest.approx(same.mean(), abs=1e-9)
            falling = heat.flatten().sort(descending=True).values.clamp_min(0).tolist()
            cut = [k * 36 // steps for k in range(steps)]
            mass = [sum(falling[a:b]) for a, b in itertools.pairwise(cut)]
            assert float(stratified.value[j, i]) == pytest.approx(np.dot(mass, curve) / sum(mass), abs=1e-9)
    assert plain.share == tuple(k / steps for k in range(1, steps))


def test_a_linear_model_has_a_closed_form(toys):
    """With zero as painter and L = n: Σ_k (f(x) − the k largest contributions) / (n − 1); the true order is lowest."""
    model = toys.linear(1, 6)
    batch = toys.pictures(model, 1)
    right = toys.truth(model, batch)
    maps = toys.maps_of(model, batch, right, *(a.values for a in toys.random_maps(model, batch, 5).items), -right)
    got = toys.score("inpainting(steps=36, fill=zero, output=logit)", model, batch, maps).value[:, 0]
    falling = right.flatten().sort(descending=True).values
    start = float(toys.probe_on(model).clean(batch).read("logit")[0])
    closed = np.mean([start - float(falling[:k].sum()) for k in range(1, 36)])
    assert float(got[0]) == pytest.approx(closed, abs=1e-9)
    assert (got >= got[0] - 1e-12).all() and (got <= got[-1] + 1e-12).all()


@pytest.mark.parametrize("seeds", [1, 3])
def test_the_painter_is_told_the_second_class(toys, seeds):
    model = named()
    batch = samples(toys, model)
    maps = toys.random_maps(model, batch, 2)
    got = toys.score(f"inpainting(fill=test_obedient, steps=5, seeds={seeds})", model, batch, maps)
    for i, second in enumerate(("cat", "bumble bee", "cat")):
        told = [Obedient(prompt=second, seed=s).full(model.domain, batch)["pixels"][i] for s in range(seeds)]
        for j in range(2):
            curve = slow(model, batch, i, maps.items[j].values[i], 5, told, prob)
            assert got.curve[j, i].numpy() == pytest.approx(curve, abs=1e-9)
    assert all(s == "ok" for row in got.status for s in row)


@pytest.mark.parametrize(("fails", "valid"), [(9, True), (10, False), (13, False)])
def test_classes_that_the_painter_cannot_paint_are_skipped(toys, fails, valid):
    """More than half of 20: 11 will do, 10 will not."""
    model = named()
    batch = samples(toys, model)
    maps = toys.random_maps(model, batch, 2)
    got = toys.score(f"inpainting(fill=test_obedient(fails={fails}))", model, batch, maps)
    reason = f"skipped: the model recognises {20 - fails} of 20 pictures inpainted as 'cat'; too few"
    assert got.status[0][0] == got.status[1][2] == ("ok" if valid else reason)
    assert got.value.isnan().all() == (not valid) and got.curve.isnan().all() == (not valid)
    trusting = toys.score(f"inpainting(fill=test_obedient(fails={fails}), validity=0)", model, batch, maps)
    assert trusting.value.isfinite().all()


def test_validity_is_asked_once_for_the_second_classes_that_occur(toys):
    model = named()
    batch = samples(toys, model)
    maps = toys.random_maps(model, batch, 1)
    probe = toys.probe_on(model)
    toys.score("inpainting(fill=test_obedient, steps=2)", model, batch, maps, probe)
    assert probe.spent.forwards == 3 + 3 + 2 * 20  # clean, one hole each, two classes
    again = toys.probe_on(model)
    toys.score("inpainting(fill=test_obedient, steps=2)", model, batch, maps, again)
    assert again.spent.forwards == 6
    assert len(inpainting._recognised) == 2


def test_neighbours_with_other_prompts_do_not_matter(toys):
    model = named()
    batch = samples(toys, model)
    maps = toys.random_maps(model, batch, 2)
    together = toys.score("inpainting(fill=test_obedient)", model, batch, maps)
    for i in range(3):
        alone = toys.score("inpainting(fill=test_obedient)", model, batch.take([i]), maps.sample(i))
        assert torch.equal(alone.value[:, 0], together.value[:, i])


def test_prompts_need_names(toys):
    model = named(None)
    batch = samples(toys, model)
    with pytest.raises(NotApplicable, match="prompted with class names, but first has none"):
        toys.score("inpainting(fill=test_obedient)", model, batch, toys.random_maps(model, batch, 1))


def test_a_painter_without_prompts_is_asked_without(toys):
    model = named(None)
    batch = samples(toys, model)
    got = toys.score("inpainting(fill=linear(noise=0), seeds=4)", model, batch, toys.random_maps(model, batch, 1))
    assert got.value.isfinite().all() and not inpainting._recognised


def test_without_positive_relevance_there_is_no_stratified_score(toys):
    model, batch = toys.stage("image")
    maps = toys.maps_of(model, batch, -torch.ones(3, 6, 6), torch.ones(3, 6, 6))
    got = toys.score("inpainting(fill=zero, weight=relevance)", model, batch, maps)
    assert got.status[0] == ("undefined: no unit has positive relevance",) * 3
    assert got.value[1].isfinite().all()


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_monotone_changes_change_nothing(toys, seed):
    """X2 and X3."""
    model, batch = toys.stage("image", n=2)
    maps = toys.random_maps(model, batch, 2, seed=seed)
    moved = toys.increasing(model, batch, maps)
    a, b = (toys.score("inpainting(steps=6, fill=zero)", model, batch, m) for m in (maps, moved))
    assert torch.equal(a.value, b.value)
    assert (a.value >= 0).all() and (a.value <= 1).all()


def test_a_constant_model_never_changes(toys):
    """X8."""
    model = toys.constant()
    batch = toys.pictures(model, 2)
    maps = toys.random_maps(model, batch, 2)
    clean = toys.probe_on(model).clean(batch).read("prob")
    assert torch.allclose(toys.score("inpainting(fill=zero)", model, batch, maps).value, clean.expand(2, 2), atol=1e-12)
    assert (toys.score("inpainting(fill=zero, unchanged=true)", model, batch, maps).value == 1).all()


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ("steps=1", "steps=1 must be at least 2"),
        ("seeds=0", "seeds=0 must be at least 1"),
        ("validity=-1", "validity=-1 must be at least 0"),
        ("weight=heavy", "weight='heavy' is not one of uniform, relevance"),
    ],
)
def test_bad_parameters_are_refused(toys, params, says):
    with pytest.raises(SpecError, match=says):
        toys.metric(f"inpainting({params})")
