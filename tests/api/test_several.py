"""Several methods on the same inputs."""

import torch

import heatcheck as hc
from heatcheck.api.several import Explainer
from heatcheck.core import catalogue
from heatcheck.testing import gap_linear

MUTANTS = (
    ("api/several.py", "extra[component.cache_key] = passes", "extra[component.name] = passes",
     "test_the_passes_are_known_before_they_are_made"),
    ("api/several.py", "(forwards - backwards) * forward", "forwards * forward", "test_the_time_is_that_of_its_passes"),
)  # fmt: skip

NAMES = [
    "saliency",
    "input_x_gradient",
    "integrated_gradients(steps=4)",
    "integrated_gradients(steps=4, post=abs)",
    "occlusion",
    "oracle",
    "grad_cam",
    "random",
]


def components() -> dict[str, hc.Method]:
    return {name: catalogue.build("method", name) for name in NAMES}


def test_maps_are_those_of_each_method_alone() -> None:
    toy = gap_linear(dtype=torch.float32)
    x = toy.inputs(3)
    several = Explainer(toy, x)
    for name, method in components().items():
        alone = hc.explain(toy, x, method=name)
        assert torch.allclose(several.explain(method).values, alone.values, rtol=1e-5, atol=1e-7), name


def test_the_passes_are_known_before_they_are_made() -> None:
    toy = gap_linear()
    made = 0

    def count(passes: int) -> None:
        nonlocal made
        made += passes

    several = Explainer(toy, toy.inputs(2))
    several.report_to(count)
    methods = components()
    forwards, backwards = several.passes(methods)
    before = [probe.spent.copy() for _, probe, _ in several.groups]
    for method in methods.values():
        several.explain(method)
    spent = [probe.spent.since(b) for (_, probe, _), b in zip(several.groups, before, strict=True)]
    assert (made, sum(s.backwards for s in spent)) == (forwards + backwards, backwards)
    assert forwards == sum(s.forwards for s in spent)


def test_the_time_is_that_of_its_passes(monkeypatch) -> None:
    toy = gap_linear()
    several = Explainer(toy, toy.inputs(1))
    size = several.groups[0][1].numerics
    monkeypatch.setattr("heatcheck.api.several._timed", lambda call: 1.0)
    assert several.seconds((10, 4)) == 6 / size.forward + 4 / size.backward
    assert several.seconds((10, 0)) == 10 / size.forward


def test_one_picture_does_not_pay_for_a_batch() -> None:
    toy = gap_linear()
    several = Explainer(toy, toy.inputs(1))
    several.explain(catalogue.build("method", "saliency"))
    assert several.groups[0][1].spent.padding <= 3
