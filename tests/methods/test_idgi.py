"""IDGI, point by point, and by its laws."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heatcheck.core import catalogue
from heatcheck.testing.models import bias_free_relu, constant, linear, one_head_attention, weights_of
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    ("methods/idgi.py", ".square_()", ".abs_()", "test_a_linear_model_shares_out_by_squared_weights"),
    (
        "methods/idgi.py",
        "(i % self.steps).double() / self.steps",
        "(i % self.steps + 1).double() / self.steps",
        "test_one_point_at_a_time_gives_the_same",
    ),
    ("methods/idgi.py", "slope.double() * movable[row]", "slope.double()", "test_special_tokens_of_a_text_get_nothing"),
    ("methods/idgi.py", "total + share * along(rest, way)", "total", "test_one_point_at_a_time_gives_the_same"),
)


def slow(lab, net, x, start, target, steps):
    """One picture, one point after the other."""
    line = [start + (x - start) * k / steps for k in range(steps + 1)]
    with torch.no_grad():
        heights = [net(point[None])[0, target] for point in line]
    total = torch.zeros_like(x)
    for k in range(steps):
        square = lab.slope(net, line[k], target) ** 2
        total += square / square.sum() * (heights[k + 1] - heights[k])
    return total


@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("act", [nn.Tanh, nn.ReLU])
def test_one_point_at_a_time_gives_the_same(lab, act, steps):
    net, samples = lab.network(act=act), lab.batch(lab.pictures(3))
    x = samples.x["pixels"]
    start = x.mean((2, 3), keepdim=True).expand_as(x)
    want = [slow(lab, net, *row, steps) for row in zip(x, start, samples.target, strict=True)]
    got = lab.raw(f"idgi(steps={steps}, baseline=channel_mean)", net, samples)
    torch.testing.assert_close(got, torch.stack(want), rtol=1e-9, atol=1e-12)


@given(st.integers(0, 10_000), st.sampled_from(["zero", "channel_mean"]), st.integers(1, 5),
       st.sampled_from([nn.Tanh, nn.ReLU]), st.sampled_from(["logit", "prob"]))  # fmt: skip
def test_maps_sum_to_the_change_in_output_however_few_the_points(lab, seed, baseline, steps, act, output):
    model, samples = lab.wrap(lab.network(seed, act=act)), lab.batch(lab.pictures(2, seed))
    probe = probe_for(model)
    total = catalogue.build("method", "idgi", steps=steps, baseline=baseline, output=output)(probe, samples).values
    change = probe.clean(samples).read(output) - probe.deleted(samples, baseline).read(output)
    torch.testing.assert_close(total.flatten(1).sum(1), change, rtol=1e-9, atol=1e-10)


def test_a_linear_model_shares_out_by_squared_weights(lab):
    toy = linear()
    samples = toy_batch(toy, 3)
    square = weights_of(toy.module(), samples.x, samples.target) ** 2
    with torch.no_grad():
        score = toy.logits(samples.x).gather(1, samples.target[:, None])
    want = square * (score[:, 0] / square.flatten(1).sum(1))[:, None, None, None]
    torch.testing.assert_close(lab.raw("idgi(steps=3)", toy, samples), want)


def test_points_without_a_gradient_are_passed_over(lab):
    """A network without biases is flat at zero, where the line begins; the first rise goes to the second point."""
    toy = bias_free_relu()
    samples = toy_batch(toy, 2)
    first, second = lab.raw("idgi(steps=2)", toy, samples), lab.raw("idgi(steps=40)", toy, samples)
    with torch.no_grad():
        score = toy.logits(samples.x).gather(1, samples.target[:, None])[:, 0]
    torch.testing.assert_close(first.flatten(1).sum(1), score)
    torch.testing.assert_close(first, second)  # on a ray from zero such a network's gradient does not change


def test_a_flat_model_has_an_empty_map_and_a_jump_has_none(lab):
    toy = constant()
    assert (lab.raw("idgi(steps=3)", toy, toy_batch(toy, 2)) == 0).all()

    class Jump(nn.Module):
        def forward(self, x):
            flat = x.flatten(1)
            return torch.stack([(flat.sum(1) > 0.5).to(x.dtype) + 0 * flat.sum(1), flat.sum(1)], 1)

    got = lab.explain("idgi(steps=4)", Jump(), lab.batch(lab.pictures(3).abs(), target=[0, 1, 0]))
    assert got.status == ("failed: the map has NaN values", "ok", "failed: the map has NaN values")


def test_special_tokens_of_a_text_get_nothing():
    toy = one_head_attention()
    samples = toy_batch(toy, 4)
    probe = probe_for(toy)
    got = catalogue.build("method", "idgi(steps=5)")(probe, samples).values
    assert (got[samples.x["special"]] == 0).all()
    change = probe.clean(samples).read("logit") - probe.deleted(samples, "zero").read("logit")
    torch.testing.assert_close(got.sum(1), change, rtol=1e-9, atol=1e-9)


def test_values_come_with_the_gradients(lab):
    """Beside one gradient per point it costs the clean answer only."""
    probe = probe_for(lab.wrap(lab.network()))
    catalogue.build("method", "idgi(steps=6)")(probe, lab.batch(lab.pictures(2)))
    assert (probe.spent.forwards, probe.spent.backwards) == (14, 12)
