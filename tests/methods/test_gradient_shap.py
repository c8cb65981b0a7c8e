"""GradientSHAP and expected gradients, draw by draw, against Captum on the same draws, and by their laws."""

from dataclasses import replace

import pytest
import torch
from captum.attr import GradientShap as Captum
from captum.attr._core import gradient_shap as captum_module
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import NotApplicable
from heatcheck.methods.gradient_shap import background_of
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.vision import VisionModel
from heatcheck.testing.models import additive, linear, one_head_attention, weights_of
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    ("methods/gradient_shap.py", "self.end(probe, copies) - start",
     "start - self.end(probe, copies)", "test_one_draw_at_a_time_gives_the_same"),
    ("methods/gradient_shap.py", "self.sigma * size_of(probe.domain, copies.x) * noise",
     "self.sigma * noise", "test_one_draw_at_a_time_gives_the_same"),
    ("methods/gradient_shap.py", "others.take(pick[part])", "others.take(0 * pick[part])", "test_baselines_are_other_pictures"),
)  # fmt: skip


def places(samples, n):
    """The place on the line of each draw, by sample."""
    draws = [samples.streams.derive(f"draw {k}") for k in range(n)]
    return torch.stack([s.draw("path", lambda g: torch.rand((), generator=g, dtype=torch.float64)) for s in draws], 1)


def slow(lab, net, samples, starts, ends):
    """One draw after the other: `starts` and `ends` are `[b, n, …]`."""
    at = places(samples, starts.shape[1])
    out = torch.zeros_like(samples.x["pixels"])
    for i, target in enumerate(samples.target):
        for b, e, alpha in zip(starts[i], ends[i], at[i], strict=True):
            out[i] += (e - b) * lab.slope(net, b + alpha * (e - b), target) / len(starts[i])
    return out


def repeated(x, n):
    return x[:, None].expand(-1, n, *x.shape[1:])


def drawn(samples, n, purpose, make, *more):
    """Draws `[b, n, …]`, each from the generator of its sample and number."""
    streams = [samples.streams.derive(f"draw {k}") for k in range(n)]
    for name in more:
        streams = [s.derive(name) for s in streams]
    return torch.stack([s.draw(purpose, make) for s in streams], 1)


def test_one_draw_at_a_time_gives_the_same(lab):
    net, samples = lab.network(), lab.batch(lab.pictures(3))
    x = samples.x["pixels"]
    starts = drawn(samples, 5, "fill", lambda g: torch.randn(3, 8, 8, generator=g, dtype=torch.float64), "method")
    noise = drawn(samples, 5, "noise", lambda g: torch.randn(3, 8, 8, generator=g, dtype=torch.float32)).double()
    span = torch.stack([row.max() - row.min() for row in x])
    ends = repeated(x, 5) + 0.1 * span.reshape(-1, 1, 1, 1, 1) * noise
    got = lab.raw("gradient_shap(baseline=noise, sigma=0.1)", net, samples)
    torch.testing.assert_close(got, slow(lab, net, samples, starts, ends))


def test_captum_gives_the_same_on_the_same_draws(lab, monkeypatch):
    net, samples = lab.network(), lab.batch(lab.pictures(3))
    x = samples.x["pixels"]
    start = x.mean((2, 3), keepdim=True).expand_as(x)
    for i in range(3):
        one = samples.take([i])
        at = places(one, 5)[0].numpy()
        monkeypatch.setattr(captum_module.np.random, "uniform", lambda *_a, at=at: at)
        want = Captum(net).attribute(x[i : i + 1], start[i : i + 1], n_samples=5, stdevs=0.0, target=samples.target[i])
        monkeypatch.undo()
        got = lab.raw("gradient_shap(baseline=channel_mean)", net, one)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-10)


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_a_linear_model_with_one_baseline_needs_no_luck(lab, seed, samples):
    toy = linear(seed=seed)
    batch = toy_batch(toy, 2, seed)
    x = batch.x["pixels"]
    want = weights_of(toy.module(), batch.x, batch.target) * (x - x.mean((2, 3), keepdim=True))
    torch.testing.assert_close(lab.raw(f"gradient_shap(samples={samples}, baseline=channel_mean)", toy, batch), want)


def test_it_tends_to_integrated_gradients(lab):
    """The error of n draws falls with the square root of n."""
    net, samples = lab.network(), lab.batch(lab.pictures(30))
    want = lab.raw("integrated_gradients(steps=20)", net, samples)

    def error(n):
        return float((lab.raw(f"gradient_shap(samples={n})", net, samples) - want).square().mean().sqrt())

    assert error(2) / error(32) == pytest.approx(4, rel=0.3)


def test_more_draws_leave_the_first_ones_as_they_were(lab):
    net, samples = lab.network(), lab.batch(lab.pictures(2))
    one, two = (lab.raw(f"gradient_shap(samples={n}, baseline=noise, sigma=0.2)", net, samples) for n in (1, 2))
    second = 2 * two - one
    other = replace(samples, streams=replace(samples.streams, seed=1))
    assert not torch.allclose(second, one)
    assert not torch.allclose(lab.raw("gradient_shap(samples=1, baseline=noise)", net, other), one)
    more = lab.raw("gradient_shap(samples=3, baseline=noise, sigma=0.2)", net, samples)
    assert not torch.allclose(3 * more - 2 * two, second)


def test_special_tokens_of_a_text_stay(lab):
    toy = one_head_attention()
    samples = toy_batch(toy, 3)
    got = lab.explain("gradient_shap", toy, samples).values
    assert (got[samples.x["special"]] == 0).all() and (got[~samples.x["special"]] != 0).all()


def test_negative_noise_is_a_mistake():
    with pytest.raises(SpecError, match=r"gradient_shap: sigma=-0.5 is a deviation"):
        catalogue.build("method", "gradient_shap(sigma=-0.5)")


# -- expected gradients ------------------------------------------------------------------------------------------


def picked(samples, n, count):
    return drawn(samples, n, "background", lambda g: torch.randint(count, (), generator=g))


def test_baselines_are_other_pictures(lab):
    toy = additive()
    samples = toy_batch(toy, 3)
    others = background_of(probe_for(toy), "images", samples.x)["pixels"]
    starts = others[picked(samples, 6, len(others))]
    want = slow(lab, toy.module(), samples, starts, repeated(samples.x["pixels"], 6))
    torch.testing.assert_close(lab.raw("expected_gradients(samples=6)", toy, samples), want)
    assert len(torch.unique(picked(samples, 6, len(others)))) > 6


def test_the_sum_tends_to_the_rise_over_the_background(lab):
    toy = additive()
    samples = toy_batch(toy, 2)
    probe = probe_for(toy, forward=64, backward=64)
    others = background_of(probe, "images", samples.x)
    with torch.no_grad():
        usual = toy.logits(others).mean(0)[samples.target]
        own = toy.logits(samples.x).gather(1, samples.target[:, None])[:, 0]
    total = catalogue.build("method", "expected_gradients(samples=4000)")(probe, samples).values.flatten(1).sum(1)
    torch.testing.assert_close(total, own - usual, rtol=0, atol=0.05 * float((own - usual).abs().max()))


def small(preprocess):
    net = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    return VisionModel(net, "small", preprocess=preprocess)


def test_embedded_pictures_are_read_as_the_model_wants_them(lab, tmp_path):
    from PIL import Image

    model = small(Preprocess(mean=(0.5,) * 3, std=(0.25,) * 3, size=16))
    samples = lab.batch(lab.pictures(2, side=16, dtype=torch.float32))
    probe = probe_for(model)
    assert background_of(probe, "images", samples.x)["pixels"].shape[1:] == (3, 16, 16)
    assert background_of(probe, "images", samples.x) is background_of(probe, "images", samples.x)
    for name, colour in (("a", 0), ("b", 255)):
        Image.new("RGB", (32, 32), (colour,) * 3).save(tmp_path / f"{name}.png")
    flat = background_of(probe, f"folder:{tmp_path}", samples.x)["pixels"]
    torch.testing.assert_close(flat[:, 0, 0, 0], torch.tensor([-2.0, 2.0]))
    unit = catalogue.build("method", "expected_gradients(samples=2)", background=f"folder:{tmp_path}")
    assert unit(probe, samples).status == ("ok", "ok")


def test_what_cannot_be_compared_says_why(lab):
    samples = lab.batch(lab.pictures(1, dtype=torch.float32))
    with pytest.raises(NotApplicable, match=r"preprocessing of small is not known: pass preprocess"):
        lab.explain("expected_gradients", small(None), samples)
    with pytest.raises(NotApplicable, match=r"\(3, 16, 16\).*but those explained are.*\(3, 8, 8\)"):
        lab.explain("expected_gradients", small(Preprocess(mean=(0.5,) * 3, std=(0.25,) * 3, size=16)), samples)
    toy = one_head_attention()
    with pytest.raises(NotApplicable, match="do not stand in each other's places; try gradient_shap"):
        lab.explain("expected_gradients", toy, toy_batch(toy, 1))
