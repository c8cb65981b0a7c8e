"""SmoothGrad and its kin, one noisy copy at a time, against Captum on the same noise, and by their laws."""

from dataclasses import replace

import pytest
import torch
from captum.attr import NoiseTunnel, Saliency
from captum.attr._core import noise_tunnel
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import NotApplicable
from heatcheck.domain.image import ImageDomain
from heatcheck.testing.models import additive, linear, one_head_attention, padded, tiny_bert
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    ("methods/smoothing.py", "mean_square - mean.square()",
     "mean_square - mean.abs()", "test_variance_is_mean_square_minus_squared_mean"),
    ("methods/smoothing.py", "sums[1].index_add_(0, rows, values.square())",
     "sums[1].index_add_(0, rows, values.abs())", "test_one_copy_at_a_time_gives_the_same"),
    ("methods/smoothing.py", '"range": lambda: reach',
     '"range": lambda: torch.ones_like(reach)', "test_noise_grows_with_the_range_of_each_input"),
    ("domain/text.py", "torch.where(seen[..., None], leaf, 0).sum((1, 2))",
     "leaf.sum((1, 2))", "test_m4_scales_the_noise_of_a_text_by_the_mean_of_its_embeddings"),
    ("domain/base.py", "flat.amax(1) - flat.amin(1)",
     "flat.amax(1) + flat.amin(1)", "test_one_copy_at_a_time_gives_the_same"),
    ("domain/text.py", "(last - first, size)", "(tokens, size)",
     "test_on_a_text_the_length_of_the_mean_gradient_is_taken"),
    ("methods/smoothing.py", "return self.inner.plain_gradient", "return True",
     "test_what_is_multiplied_with_the_input_is_summed_over_coordinates"),
)  # fmt: skip

FAMILY = ("smoothgrad", "smoothgrad_sq", "vargrad")


def copies(lab, samples, n, sigma, *, absolute=False):
    """`n` noisy copies of each picture, drawn one after the other."""
    out = []
    for i, x in enumerate(samples.x["pixels"]):
        rng = samples.streams.generator(i, "noise")
        deviation = sigma if absolute else sigma * (x.max() - x.min())
        noise = [torch.randn(x.shape, generator=rng, dtype=torch.float32).to(x.dtype) for _ in range(n)]
        out.append(torch.stack([x + deviation * draw for draw in noise]))
    return out


def moments(values):
    return {"smoothgrad": values.mean(0), "smoothgrad_sq": (values**2).mean(0), "vargrad": values.var(0, correction=0)}


@pytest.mark.parametrize("id", FAMILY)
def test_one_copy_at_a_time_gives_the_same(lab, id):
    net, samples = lab.network(), lab.batch(lab.pictures(3))
    noisy = copies(lab, samples, 7, 0.2)
    want = []
    for row, target in zip(noisy, samples.target, strict=True):
        want.append(moments(torch.stack([lab.slope(net, x, target) for x in row]))[id])
    torch.testing.assert_close(lab.raw(f"{id}(samples=7, sigma=0.2)", net, samples), torch.stack(want))


@pytest.mark.parametrize("of", ["occlusion", "integrated_gradients(steps=3)", "input_x_gradient", "grad_cam",
                                "rise(samples=5)", "lime(samples=20, units=grid(2))"])  # fmt: skip
def test_any_method_can_be_smoothed(lab, of):
    """Each noisy copy, explained on its own as a sample with the same stream, then averaged."""
    net, samples = lab.network(), lab.batch(lab.pictures(2))
    want = []
    for i, row in enumerate(copies(lab, samples, 3, 0.15)):
        again = [samples.take([i]).with_inputs(samples.x.replace(pixels=x[None])) for x in row]
        inner = catalogue.build("method", of, output="logit")
        want.append(torch.stack([lab.raw(inner, net, one)[0] for one in again]).mean(0))
    torch.testing.assert_close(lab.raw(f"smoothgrad(of={of}, samples=3)", net, samples), torch.stack(want))


@pytest.mark.parametrize("id", FAMILY)
def test_captum_gives_the_same_on_the_same_noise(lab, id, monkeypatch):
    net, samples = lab.network(), lab.batch(lab.pictures(3))
    x = samples.x["pixels"]
    noise = torch.cat(copies(lab, samples, 5, 0.3, absolute=True)) - x.repeat_interleave(5, 0)
    monkeypatch.setattr(noise_tunnel.torch, "normal", lambda *_a, **_k: noise)
    want = NoiseTunnel(Saliency(net)).attribute(
        x, nt_type=id, nt_samples=5, stdevs=0.3, target=samples.target, abs=False
    )
    monkeypatch.undo()
    got = lab.raw(f"{id}(samples=5, sigma=0.3, scale=one)", net, samples)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-10)


@given(st.integers(0, 10_000), st.floats(0, 3))
def test_a_linear_model_does_not_mind_noise(lab, seed, sigma):
    toy = linear(seed=seed)
    samples = toy_batch(toy, 2, seed)
    gradient = lab.raw("saliency", toy, samples)
    smooth = {id: lab.raw(f"{id}(samples=3, sigma={sigma!r}, scale=one)", toy, samples) for id in FAMILY}
    torch.testing.assert_close(smooth["smoothgrad"], gradient)
    torch.testing.assert_close(smooth["smoothgrad_sq"], gradient**2)
    torch.testing.assert_close(smooth["vargrad"], torch.zeros_like(gradient), rtol=0, atol=1e-14)


def test_m4_scales_the_noise_of_a_text_by_the_mean_of_its_embeddings(lab):
    toy = tiny_bert()
    samples = toy_batch(toy, 3)
    got = lab.raw("smoothgrad(samples=4, sigma=0.1, scale=mean)", toy, samples)
    for i, embeds in enumerate(toy.domain.leaf(samples.x).detach()):
        read = int(samples.x["attention"][i].sum())
        deviation = 0.1 * embeds[:read].mean().abs()
        rng = samples.streams.generator(i, "noise")
        slopes = []
        for _ in range(4):
            noisy = embeds.clone()
            noisy[:read] += deviation * torch.randn(read, embeds.shape[1], generator=rng).double()
            noisy.requires_grad_()
            logit = toy.module()(noisy[None], samples.x["attention"][i : i + 1])[0, samples.target[i]]
            slopes.append(torch.autograd.grad(logit, noisy)[0])
        torch.testing.assert_close(got[i], torch.stack(slopes).mean(0))


def test_variance_is_mean_square_minus_squared_mean(lab):
    mean, square, variance = (lab.raw(f"{id}(samples=6)", lab.network(), lab.pictures()) for id in FAMILY)
    assert (variance >= 0).all() and (variance > 0).any()
    torch.testing.assert_close(variance, square - mean**2)


def test_without_noise_it_is_the_method_itself(lab):
    x = lab.pictures()
    for of in ("saliency", "grad_cam", "occlusion"):
        want = lab.explain(of, lab.network(), x).values
        torch.testing.assert_close(lab.explain(f"smoothgrad(of={of}, sigma=0.0)", lab.network(), x).values, want)


def test_noise_grows_with_the_range_of_each_input(lab):
    """With sigma a share of the range, scaling a picture and the model's weights against it scales the map."""
    net, x = lab.network(), lab.pictures(2)
    samples = lab.batch(x)
    louder = samples.with_inputs(samples.x.replace(pixels=10 * x))
    quiet = lab.network()
    with torch.no_grad():
        quiet[0].weight /= 10
    torch.testing.assert_close(10 * lab.raw("smoothgrad", quiet, louder), lab.raw("smoothgrad", net, samples))


def test_it_averages_before_it_reduces(lab):
    net, x = lab.network(), lab.pictures()
    got = lab.explain("smoothgrad(samples=4, reduction=sum_abs, post=abs)", net, x).values
    torch.testing.assert_close(got, lab.raw("smoothgrad(samples=4)", net, x).abs().sum(1))


def test_the_wrappers_output_is_explained(lab):
    net, x = lab.network(), lab.pictures()
    unit = catalogue.build("method", "smoothgrad(output=prob, sigma=0.0, samples=1)")
    got = lab.explain(unit, net, x)
    assert got.output == "prob"
    torch.testing.assert_close(got.values, lab.explain("saliency(output=prob)", net, x).values)
    resolved = unit.resolve(lab.wrap(net).domain)
    assert resolved.of == "saliency(output=prob, reduction=sum)" and resolved.resolve(lab.wrap(net).domain) == resolved


@pytest.mark.parametrize("inner", ["output=prob", "post=abs", "reduction=l2"])
def test_what_belongs_to_the_wrapper_is_not_silently_dropped(lab, inner):
    with pytest.raises(SpecError, match=f"belongs to the wrapper; write smoothgrad.of=saliency, {inner}"):
        lab.explain(f"smoothgrad(of=saliency({inner}))", lab.network(), lab.pictures())


def test_texts_are_smoothed_in_embedding_space(lab):
    toy = one_head_attention()
    samples = toy_batch(toy, 3)
    got = lab.explain("smoothgrad(samples=4)", toy, samples)
    assert got.values.shape == samples.x["ids"].shape and (got.values != 0).any(1).all()


def test_what_cannot_be_smoothed_says_why(lab):
    toy = one_head_attention()
    with pytest.raises(NotApplicable, match="grad_cam is defined for image"):
        lab.explain("smoothgrad(of=grad_cam)", toy, toy_batch(toy, 1))
    with pytest.raises(SpecError, match="cannot be negative"):
        catalogue.build("method", "smoothgrad(sigma=-1.0)")


def test_noisy_copies_leave_no_answers_behind():
    """Answers about altered inputs must not be taken for answers about the samples."""
    toy = additive()
    samples = toy_batch(toy, 2)
    used, fresh = probe_for(toy), probe_for(toy)
    catalogue.build("method", "smoothgrad(of=occlusion, samples=2)")(used, samples)
    assert not used.memo
    occlusion = catalogue.build("method", "occlusion")
    assert torch.equal(occlusion(used, samples).values, occlusion(fresh, samples).values)


@pytest.mark.parametrize("width", [16, 40])
def test_on_a_text_the_length_of_the_mean_gradient_is_taken(lab, width):
    """Copy by copy: noise for each real token, as a share of the real tokens' range, whatever the padding."""
    toy = tiny_bert()
    samples = toy_batch(toy, 2)
    got = lab.explain("smoothgrad(samples=3, sigma=0.2)", toy, replace(samples, x=padded(samples.x, width)))
    assert not got.signed and got.status == ("ok", "ok")
    for i, target in enumerate(samples.target):
        n = int(samples.x["attention"][i].sum())
        words = toy.domain.leaf(samples.x)[i, :n].detach()
        rng = samples.streams.generator(i, "noise")
        mean = torch.zeros_like(words)
        for _ in range(3):
            noise = torch.randn(n, words.shape[1], generator=rng)
            point = (words + 0.2 * (words.max() - words.min()) * noise).requires_grad_()
            toy.module()(point[None], torch.ones(1, n))[0, target].backward(inputs=[point])
            mean += point.grad / 3
        torch.testing.assert_close(got.values[i, :n], mean.norm(dim=1))
        assert (got.values[i, n:] == 0).all()


def test_what_is_multiplied_with_the_input_is_summed_over_coordinates(lab):
    toy = tiny_bert()
    samples = toy_batch(toy, 2)
    raw = lab.raw("smoothgrad(of=input_x_gradient, samples=3)", toy, samples)
    got = lab.explain("smoothgrad(of=input_x_gradient, samples=3)", toy, samples)
    assert got.signed
    torch.testing.assert_close(got.values, raw.sum(-1))


def test_smoothed_images_are_filed_as_before():
    """The wrapper decides how values are reduced; on images that is the sum, as it was, so stored results still fit."""
    resolved = catalogue.build("method", "smoothgrad").resolved_on(ImageDomain())
    params = resolved.identity()["params"]
    assert params["reduction"] == params["of"]["params"]["reduction"] == "sum"
    assert resolved.identity()["version"] == 1
    on_text = catalogue.build("method", "smoothgrad").resolved_on(tiny_bert().domain)
    assert on_text.identity()["params"]["reduction"] == "l2" and on_text.identity()["version"] == 2
    assert on_text.resolve(tiny_bert().domain) == on_text
