"""Another class, another map: against a slow loop, and where there is no other class."""

from dataclasses import replace

import pytest
import torch
from scipy import stats

from heatcheck.core import catalogue
from heatcheck.core.types import Attribution, NotApplicable, Streams
from heatcheck.metrics.random_logit import other_classes
from heatcheck.probe.asks import Shape

MUTANTS = (
    (
        "metrics/random_logit.py",
        "target=other_classes(batch.streams, batch.target, classes)",
        "target=batch.target",
        "test_two_classes_that_mirror_each_other_score_minus_one",
    ),
    (
        "metrics/random_logit.py",
        "drawn + (drawn >= target).long()",
        "drawn",
        "test_two_classes_that_mirror_each_other_score_minus_one",
    ),
    ("metrics/random_logit.py", "if classes < 2:", "if False:", "test_one_class_and_constant_maps_have_reasons"),
)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [(kind, spec) for kind in ("image", "text") for spec in ("input_x_gradient", "occlusion")]
    + [("image", "rise(samples=9)"), ("text", "lime(samples=20)")],
)
def test_agrees_with_the_definition(toys, kind, spec):
    """Maps of both classes on one probe: what it remembers of the first does not answer for the second."""
    model, batch = toys.stage(kind)
    free = model.domain.deletable(batch.x)
    other = replace(batch, target=other_classes(batch.streams, batch.target, 3))
    assert (other.target != batch.target).all()
    method = catalogue.build("method", spec)
    one, two = (method(toys.probe_on(model), b) for b in (batch, other))
    one, two = (model.domain.layout(a.values, batch.x, a.interpolation) for a in (one, two))
    assert not torch.equal(one, two)
    probe = toys.probe_on(model)
    got = toys.score("random_logit", model, batch, toys.methods(model, batch, spec, probe=probe), probe)
    for i in range(len(batch)):
        expected = stats.spearmanr(one[i][free[i]], two[i][free[i]]).statistic
        assert float(got.value[0, i]) == pytest.approx(expected, abs=1e-12)


def test_two_classes_that_mirror_each_other_score_minus_one(toys):
    """A linear model whose second logit is minus its first has opposite gradients."""
    model = toys.linear(1, 6, 2)
    with torch.no_grad():
        model.module()[1].weight[1] = -model.module()[1].weight[0]
    batch = toys.pictures(model, 4)
    got = toys.score("random_logit", model, batch, toys.methods(model, batch, "saliency", "saliency(post=abs)"))
    assert torch.allclose(got.value, torch.tensor([[-1.0], [1.0]], dtype=torch.float64).expand(2, 4))


def test_maps_that_ignore_the_class_score_one(toys):
    model, batch = toys.stage("image")
    got = toys.score("random_logit", model, batch, toys.methods(model, batch, "random", "sobel", "input_magnitude"))
    assert torch.allclose(got.value, torch.ones(3, 3, dtype=torch.float64))


def test_every_other_class_is_equally_likely_and_belongs_to_the_sample():
    n = 3000
    streams = Streams(0, tuple(map(str, range(n))))
    target = torch.full((n,), 2)
    drawn = other_classes(streams, target, 5)
    counts = torch.bincount(drawn, minlength=5)
    assert counts[2] == 0 and stats.chisquare(counts[[0, 1, 3, 4]]).pvalue > 1e-3
    assert torch.equal(other_classes(streams.take([7, 3]), target[:2], 5), drawn[[7, 3]])


def test_one_class_and_constant_maps_have_reasons(toys):
    model = toys.linear(1, 6, 1)
    batch = toys.pictures(model, 2)
    unit = toys.metric("random_logit")
    scores = toys.score("random_logit", model, batch, toys.methods(model, batch, "saliency"))
    assert scores.status == (("undefined: the model has only one class",) * 2,)
    assert unit.reexplanation_count(Shape(model.domain, batch.x, model)) == 0
    model, batch = toys.stage("image")
    assert (
        unit.reexplanation_count(Shape(model.domain, batch.x, model))
        == unit.reexplanation_count(Shape(model.domain, batch.x))
        == 1
    )
    maps = toys.random_maps(model, batch, 2)
    flat = Attribution(torch.ones(3, 6, 6, dtype=torch.float64), None, "flat")
    maps.items = [flat, maps.items[1]]
    maps.explainers = [lambda probe, part: maps.items[1], lambda probe, part: flat]
    scores = toys.score("random_logit", model, batch, maps)
    assert scores.status == (("undefined: the map is constant",) * 3, ("ok",) * 3)
    assert scores.value[1].tolist() == [0.0] * 3


def test_brought_maps_do_not_apply(toys):
    model, batch = toys.stage("image")
    with pytest.raises(NotApplicable, match="without a method"):
        toys.score("random_logit", model, batch, toys.random_maps(model, batch, 1))
