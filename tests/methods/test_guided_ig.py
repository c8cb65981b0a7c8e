"""Guided IG, feature by feature as its authors describe it, and by its laws."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.testing.models import linear, one_head_attention, tiny_bert, weights_of
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    (
        "methods/guided_ig.py",
        "max(goal - self.max_dist, 0.0)",
        "max(goal + self.max_dist, 0.0)",
        "test_the_path_leads_from_the_baseline_close_to_the_line",
    ),
    (
        "methods/guided_ig.py",
        "total += (done - before) * slope",
        "total += done * slope",
        "test_without_leeway_it_is_the_straight_line",
    ),
    ("methods/guided_ig.py", "steepness <= ALIKE * bound", "steepness >= bound", "test_flat_features_go_first"),
    (
        "methods/guided_ig.py",
        "int(self.fraction * (n - 1)) + 1",
        "int(self.fraction * (n - 1)) + 2",
        "test_one_feature_at_a_time_gives_the_same",
    ),
    (
        "methods/guided_ig.py",
        "free.sum(1) * (",
        "(free | ~free).sum(1) * (",
        "test_special_tokens_and_padding_are_no_features",
    ),
)


def slow(slope, x, start, steps, fraction, max_dist):
    """One picture in pixel values: move the flattest features until the step's distance to the input is reached."""
    x, now = x.astype(float).ravel(), start.astype(float).ravel().copy()
    start = now.copy()
    far = np.abs(x - start).sum()
    out = np.zeros_like(x)
    for k in range(1, steps + 1):
        gradient = slope(now)
        before = now.copy()
        low = start + (x - start) * max(k / steps - max_dist, 0)
        high = start + (x - start) * min(k / steps + max_dist, 1)
        behind = np.abs(now - start) < np.abs(low - start)
        now[behind] = low[behind]
        wanted = far * (1 - k / steps)
        while np.abs(x - now).sum() - wanted > 1e-9 * far:
            free = ~np.isclose(now, high, rtol=1e-13, atol=1e-13)
            cost = np.where(free, np.abs(gradient), np.inf)
            chosen = free & (np.abs(gradient) <= np.sort(cost)[math.floor(fraction * (len(cost) - 1))])
            gain = np.abs(high - now)[chosen].sum()
            pace = min(1, (np.abs(x - now).sum() - wanted) / gain)
            now[chosen] = now[chosen] + pace * (high - now)[chosen] if pace < 1 else high[chosen]
        out += (now - before) * gradient
    return out


@pytest.mark.parametrize(
    ("steps", "fraction", "max_dist"), [(20, 0.25, 0.02), (7, 0.1, 0.3), (5, 0.25, 1.0), (4, 0.0, 0.1)]
)
def test_one_feature_at_a_time_gives_the_same(lab, steps, fraction, max_dist):
    net, samples = lab.network(), lab.batch(lab.pictures(2))
    want = []
    for x, target in zip(samples.x["pixels"], samples.target, strict=True):

        def slope(flat, shape=x.shape, target=target):
            return lab.slope(net, torch.from_numpy(flat).reshape(shape), target).numpy().ravel()

        start = x.mean((1, 2), keepdim=True).expand_as(x)
        want.append(torch.from_numpy(slow(slope, x.numpy(), start.numpy(), steps, fraction, max_dist)).reshape(x.shape))
    spec = f"guided_ig(steps={steps}, fraction={fraction}, max_dist={max_dist}, baseline=channel_mean)"
    torch.testing.assert_close(lab.raw(spec, net, samples), torch.stack(want), rtol=1e-9, atol=1e-9)


def test_special_tokens_and_padding_are_no_features(lab):
    """As if a text had nothing but its words: one coordinate of a word at a time, from a zero embedding."""
    toy = tiny_bert()
    samples = toy_batch(toy, 2)
    leaf, words = toy.domain.leaf(samples.x).detach(), ~samples.x["special"]
    got = lab.raw("guided_ig(steps=5, fraction=0.1, max_dist=0.2)", toy, samples)
    assert (got[~words] == 0).all()
    for i, target in enumerate(samples.target):

        def slope(flat, i=i, target=target):
            point = leaf[i].clone()
            point[words[i]] = torch.from_numpy(flat).reshape(-1, leaf.shape[-1])
            point.requires_grad_()
            toy.module()(point[None], samples.x["attention"][i : i + 1])[0, target].backward(inputs=[point])
            return point.grad[words[i]].numpy().ravel()

        x = leaf[i, words[i]].numpy()
        want = torch.from_numpy(slow(slope, x, np.zeros_like(x), 5, 0.1, 0.2)).reshape(x.shape)
        torch.testing.assert_close(got[i, words[i]], want, rtol=1e-8, atol=1e-10)


def test_without_leeway_it_is_the_straight_line(lab):
    """Gradients at the beginning of each step."""
    net, samples = lab.network(), lab.batch(lab.pictures(2))
    x = samples.x["pixels"]
    want = torch.zeros_like(x)
    for i, target in enumerate(samples.target):
        for k in range(6):
            want[i] += x[i] * lab.slope(net, x[i] * k / 6, target) / 6
    torch.testing.assert_close(lab.raw("guided_ig(steps=6, max_dist=0)", net, samples), want)


@pytest.mark.parametrize("max_dist", [0.02, 0.2, 1.0])
def test_on_a_linear_model_every_path_is_the_same(lab, max_dist):
    toy = linear()
    samples = toy_batch(toy, 3)
    want = weights_of(toy.module(), samples.x, samples.target) * samples.x["pixels"]
    torch.testing.assert_close(lab.raw(f"guided_ig(steps=9, max_dist={max_dist})", toy, samples), want)


def test_what_is_missing_from_the_sum_shrinks_with_the_steps(lab):
    """On a smooth network; the kinks of a ReLU are where such a path likes to go, and there it loses a little."""
    net, samples = lab.network(), lab.batch(lab.pictures(3))
    with torch.no_grad():
        x = samples.x["pixels"]
        change = (net(x) - net(0 * x)).gather(1, samples.target[:, None])[:, 0]

    def error(steps):
        got = lab.explain(f"guided_ig(steps={steps})", net, samples).values
        return float((got.flatten(1).sum(1) - change).abs().max())

    assert error(200) < 0.05 * float(change.abs().max())
    assert error(800) < 0.4 * error(100)


def test_the_path_leads_from_the_baseline_close_to_the_line(lab):
    """Each point is its share of the whole distance on, and no feature further from the line than allowed."""
    points = []
    model = lab.wrap(lab.network())
    model.module().register_forward_hook(lambda _m, args, _o: points.append(args[0][:1].detach().clone()))
    x = lab.pictures(1)
    lab.explain("guided_ig(steps=10, max_dist=0.15)", model, x, backward=1)
    assert len(points) == 10
    for k, point in enumerate(points):
        done = point / x
        assert abs(float((x - point).abs().sum() / x.abs().sum()) - (1 - k / 10)) < 1e-8
        assert float((done - k / 10).abs().max()) <= (0.15 if k else 0) + 1e-12
    assert any(float((p / x - k / 10).abs().max()) > 0.1 for k, p in enumerate(points))


def test_flat_features_go_first(lab):
    """Without bounds, and with two features, the flatter one goes all its way before the steeper one moves."""

    class Steep(nn.Module):
        def forward(self, x):
            flat = x.flatten(1)
            return torch.stack([flat[:, 0] * (1 + flat[:, 1]), flat[:, 0] * 0], 1)

    x = torch.ones(1, 2, 1, 1, dtype=torch.float64)
    got = lab.raw("guided_ig(steps=4, max_dist=1.0, fraction=0.0)", Steep(), lab.batch(x, target=[0]))
    torch.testing.assert_close(got.flatten(), torch.tensor([2.0, 0.0], dtype=torch.float64))


def test_where_the_input_is_the_baseline_there_is_nothing(lab):
    x = lab.pictures(2)
    x[:, :, 2:4] = 0
    x[1] = 0
    got = lab.raw("guided_ig(steps=5)", lab.network(), x)
    assert (got[:, :, 2:4] == 0).all() and (got[0, :, :2] != 0).all() and (got[1] == 0).all()


def test_broken_gradients_end_in_a_failed_map(lab):
    """Neither an endless loop nor a plausible map."""

    class Broken(nn.Module):
        def forward(self, x):
            high = torch.where(x.flatten(1).amax(1) > 5, torch.nan, 1.0)
            return torch.stack([x.flatten(1).square().sum(1) * high, x.flatten(1).sum(1)], 1)

    x = lab.pictures(2)
    x[0, 0, 0, 0] = 40
    got = lab.explain("guided_ig(steps=3)", Broken(), lab.batch(x, target=[0, 0]))
    assert got.status == ("failed: the map has NaN values", "ok")


def test_special_tokens_of_a_text_stay():
    toy = one_head_attention()
    samples = toy_batch(toy, 3)
    probe = probe_for(toy)
    got = catalogue.build("method", "guided_ig(steps=400)")(probe, samples).values
    assert (got[samples.x["special"]] == 0).all()
    change = probe.clean(samples).read("logit") - probe.deleted(samples, "zero").read("logit")
    torch.testing.assert_close(got.sum(1), change, rtol=0, atol=0.02 * float(change.abs().max()))


@pytest.mark.parametrize("given", ["fraction=1.5", "max_dist=-0.1", "fraction=-1.0"])
def test_shares_lie_between_none_and_all(given):
    name, value = given.split("=")
    with pytest.raises(SpecError, match=f"guided_ig: {name}={value} is a share"):
        catalogue.build("method", f"guided_ig({given})")
