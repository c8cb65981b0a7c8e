"""A model behind a blindfold is the composed function, on every road to it, and nothing else changes."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.types import Batch, HeatcheckError, NotApplicable, Streams
from heatcheck.domain.base import COVER, KEEP
from heatcheck.methods.base import method
from heatcheck.models.black_box import CallableModel
from heatcheck.models.vision import VisionModel
from heatcheck.testing import models as toys
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    (
        "probe/calls.py",
        "(ask or self.model.logits)(self.visible(x))",
        "(ask or self.model.logits)(x)",
        "test_is_the_wrapped_network",
    ),
    (
        "probe/inside.py",
        "scalar(self.model.logits(self.visible(x)), self._there(batch.target[index]), output)",
        "scalar(self.model.logits(x), self._there(batch.target[index]), output)",
        "test_is_the_wrapped_network",
    ),
    (
        "probe/inside.py",
        "with active:\n                    logits = self.model.logits(given)",
        "with active:\n                    logits = self.model.logits(self.domain.with_leaf(x, leaf))",
        "test_is_the_wrapped_network",
    ),
    (
        "probe/inside.py",
        "read(self.domain.visible(x), index)",
        "read(x, index)",
        "test_a_bagnet_reads_the_picture_that_is_left",
    ),
    (
        "probe/inside.py",
        "seen = self.domain.seen(given)",
        "seen = self.domain.seen(x)",
        "test_hidden_words_are_padding_to_methods_that_ask",
    ),
    (
        "methods/full_grad.py",
        "if constant.any():",
        "if False:",
        "test_is_the_wrapped_network",
    ),
    (
        "probe/probe.py",
        "tick=self.tick, spent=self.spent, blind=True)",
        "tick=self.tick, spent=self.spent, memo=self.memo, blind=True)",
        "test_answers_are_kept_apart",
    ),
    ("probe/calls.py", "if (KEEP in x) != self.blind:", "if False:", "test_inputs_and_probe_belong_together"),
    ("domain/text.py", "(1 - share) * gone", "(1 - share) * here", "test_nothing_outside_is_seen"),
)

ANYWHERE = ("saliency", "integrated_gradients(steps=3)", "smoothgrad(samples=2)", "gradient_shap(samples=2)", "deep_lift", "occlusion",
    "lime(samples=9)", "kernel_shap(samples=9)", "shapley_sampling(samples=2)", "random", "sobel", "guided_ig(steps=3)", "lrp")  # fmt: skip
PICTURES = ("grad_cam", "ablation_cam", "score_cam", "rise(samples=8)", "sobol(designs=4)", "guided_backprop", "full_grad",
    "blur_ig(steps=3)")  # fmt: skip
ATTENTION = ("rollout", "generic_attribution", "transformer_attribution", "attn_lrp", "legrad")
CASES = [
    *(("relu", "blur(kernel=3)", spec) for spec in (*ANYWHERE, *PICTURES, "expected_gradients(samples=2)")),
    *(("vit", "zero", spec) for spec in (*ATTENTION, "grad_cam", "eigen_cam")),
    *(("text", "pad", spec) for spec in (*ANYWHERE, *ATTENTION)),
    *(("text", "mask", spec) for spec in ("saliency", "occlusion", "rollout")),
]
TOYS = {"relu": toys.gap_linear, "vit": toys.tiny_vit, "text": toys.tiny_bert}


def half(batch, model, seed=0):
    """About half of what may be deleted, drawn for each row; the rest is kept."""
    free = model.domain.deletable(batch.x)
    drawn = torch.rand(free.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    return ~(free & drawn)


class Picture(nn.Module):
    """The paper's way: a network of its own, which hides a part of the pictures that it is given."""

    def __init__(self, network, keep, cover):
        super().__init__()
        self.network = network
        self.register_buffer("keep", keep.to(cover.dtype))
        self.register_buffer("cover", cover)

    def forward(self, pixels):
        return self.network(self.keep * pixels + (1 - self.keep) * self.cover)


class Text(nn.Module):
    """The same for word embeddings and what is attended to."""

    def __init__(self, network, keep, ids, attention):
        super().__init__()
        self.network, self.embed = network, network.embed
        self.register_buffer("keep", keep)
        self.register_buffer("cover", network.embed(ids).detach())
        self.register_buffer("attention", attention)

    def forward(self, embeds, attention):
        m = self.keep[..., None].to(embeds.dtype)
        return self.network(m * embeds + (1 - m) * self.cover, torch.where(self.keep, attention, self.attention))


def wrapped(model, worn):
    """A model around a network that wears the blindfold of one sample itself."""
    x = worn.x
    if "pixels" in x:
        rows, columns = model.domain.shape(x)
        keep = x[KEEP].reshape(1, 1, rows, columns)
        found = model.with_network(lambda net: Picture(net, keep, x[COVER + "pixels"]), "wrapped")
    else:
        found = model.with_network(lambda net: Text(net, x[KEEP], x[COVER + "ids"], x[COVER + "attention"]), "wrapped")
    found.original = model.lineage
    return found


@pytest.mark.parametrize(("kind", "fill", "spec"), CASES)
def test_is_the_wrapped_network(kind, fill, spec):
    """Hooks, rules, attention, deletions and users' roads: all give the maps of a network that hides a part itself."""
    model = TOYS[kind]()
    batch = toy_batch(model, 1)
    explain = catalogue.build("method", spec)
    blind, worn = probe_for(model).blindfolded(batch, half(batch, model), fill)
    got = explain(blind, worn)
    want = explain(probe_for(wrapped(model, worn)), batch)
    assert got.status == want.status
    assert torch.allclose(got.values, want.values, rtol=1e-9, atol=1e-12)
    if spec not in ("random", "sobel"):
        assert not torch.equal(got.values, explain(probe_for(model), batch).values)


def test_is_what_a_user_would_wrap():
    """A plain module in single precision, wrapped by hand and explained with the public verb."""
    rng = torch.Generator().manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 64, 3))
    network = toys.fill_weights(network, 0, torch.float32)
    x = torch.randn(1, 3, 8, 8, generator=rng)
    keep = torch.rand(1, 64, generator=rng) < 0.5
    by_hand = Picture(network, keep.reshape(1, 1, 8, 8), torch.zeros(1, 3, 8, 8))
    model = VisionModel(network, "plain")
    for spec in ("input_x_gradient", "integrated_gradients(steps=5)", "occlusion", "grad_cam", "lrp"):
        want = hc.explain(by_hand, x, method=spec)
        batch = Batch(model.domain.wrap(x), want.target, want.target, Streams(0, ("x",)))
        got = catalogue.build("method", spec)(*probe_for(model).blindfolded(batch, keep, "zero"))
        assert torch.allclose(got.values, want.values, rtol=1e-4, atol=1e-6), spec


@pytest.mark.parametrize("kind", TOYS)
def test_with_everything_visible_maps_stay_what_they_are(kind):
    """Bit for bit: the composition costs no rounding."""
    model = TOYS[kind]()
    batch = toy_batch(model, 2)
    specs = {"relu": (*ANYWHERE, *PICTURES), "vit": (*ATTENTION, "grad_cam"), "text": (*ANYWHERE, *ATTENTION)}
    keep = torch.ones_like(model.domain.deletable(batch.x))
    blind, worn = probe_for(model).blindfolded(batch, keep, model.domain.default_fill)
    for spec in specs[kind]:
        explain = catalogue.build("method", spec)
        assert torch.equal(explain(blind, worn).values, explain(probe_for(model), batch).values), spec


@pytest.mark.parametrize("kind", TOYS)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1000))
def test_nothing_outside_is_seen(kind, seed):
    """Other content outside the mask: the same answer, bit for bit; gradients there are zero, inside they are not."""
    model = TOYS[kind]()
    domain, batch = model.domain, toy_batch(model, 3, seed)
    keep = half(batch, model, seed)
    blind, worn = probe_for(model).blindfolded(batch, keep, domain.default_fill)
    leaf = domain.leaf(worn.x).detach()
    noise = torch.randn(leaf.shape, generator=torch.Generator().manual_seed(seed), dtype=leaf.dtype)
    other = domain.delete(worn.x, keep, domain.with_leaf(worn.x, leaf + noise))
    assert not torch.equal(domain.leaf(other), leaf)
    assert torch.equal(blind.logits(other), blind.logits(domain.with_leaf(worn.x, leaf)))
    open_probe = probe_for(model)
    deleted = catalogue.build("fill", domain.default_fill).erase(
        domain, batch.x, keep, domain.visible(_all(worn.x, keep))
    )
    assert torch.equal(blind.logits(worn.x), open_probe.logits(deleted))
    slope = domain.reduce(blind.gradient(worn, "logit"), "sum_abs").flatten(1)
    assert (slope[~keep] == 0).all()
    seen = keep if domain.seen(worn.x) is None else keep & domain.seen(worn.x)
    assert (slope[seen] > 0).any()


def _all(x, keep):
    return x.replace(**{KEEP: torch.zeros_like(keep)})


def test_every_row_wears_its_own():
    """Rows are taken, repeated and padded: each sample has the map that it has alone."""
    model = toys.gap_linear()
    batch = toy_batch(model, 3)
    keep = half(batch, model)
    for spec in ("integrated_gradients(steps=5)", "rise(samples=9)", "ablation_cam", "lime(samples=10)", "occlusion"):
        explain = catalogue.build("method", spec)
        blind, worn = probe_for(model).blindfolded(batch, keep, "zero")
        together = explain(blind, worn).values
        for i in range(3):
            one, alone = probe_for(model).blindfolded(batch.take([i]), keep[i : i + 1], "zero")
            assert torch.equal(explain(one, alone).values[0], together[i]), spec


def test_answers_are_kept_apart():
    """Neither is answered with what the other said; passes go to one account."""
    model = toys.additive()
    batch = toy_batch(model, 2)
    probe = probe_for(model)
    units = probe.units("cell", batch)
    before, first = probe.clean(batch).read("logit"), probe.singles(batch, "zero", units).read("logit")
    known, spent = dict(probe.answered()), probe.spent.forwards
    blind, worn = probe.blindfolded(batch, half(batch, model), "zero")
    assert not torch.equal(blind.clean(worn).read("logit"), before)
    assert not torch.equal(blind.singles(worn, "zero", units).read("logit"), first)
    blind.singles(worn, "zero", units)
    assert probe.spent.forwards == spent + 2 + 2 * 16
    assert probe.answered().keys() == known.keys()
    assert torch.equal(probe.clean(batch).read("logit"), before)
    assert torch.equal(worn.streams.draw("noise", lambda g: torch.rand(3, generator=g)),
        batch.streams.draw("noise", lambda g: torch.rand(3, generator=g)))  # fmt: skip


def test_inputs_and_probe_belong_together():
    model = toys.additive()
    batch = toy_batch(model, 2)
    probe = probe_for(model)
    blind, worn = probe.blindfolded(batch, half(batch, model), "zero")
    with pytest.raises(HeatcheckError, match="as it is, but about inputs with a blindfold"):
        probe.logits(worn.x)
    with pytest.raises(HeatcheckError, match="behind a blindfold, but about inputs without one"):
        blind.logits(batch.x)


def test_a_users_function_gets_the_blindfolded_model():
    seen = []

    @method("peek_behind_a_blindfold")
    def peek(model, x, target):
        seen.append(model(x).detach())
        y = x.detach().repeat(2, 1, 1, 1).requires_grad_()
        return torch.autograd.grad(model(y).sum(), y)[0][: len(x)]

    model = toys.gap_linear()
    batch = toy_batch(model, 3)
    keep = half(batch, model)
    blind, worn = probe_for(model).blindfolded(batch, keep, "zero")
    values = catalogue.build("method", "peek_behind_a_blindfold")(blind, worn).values.flatten(1)
    assert torch.equal(torch.cat(seen), blind.logits(worn.x))
    assert (values[~keep] == 0).all() and (values[keep] != 0).any()


def test_a_black_box_wears_it_too():
    toy = toys.gap_linear(dtype=torch.float32)
    model = CallableModel(lambda pixels: toy.module()(pixels).detach(), "box", toy.domain)
    batch = toy_batch(toy, 2)
    keep = half(batch, toy)
    explain = catalogue.build("method", "occlusion(units=pixel)")
    got = explain(*probe_for(model).blindfolded(batch, keep, "zero")).values
    assert torch.allclose(got, explain(*probe_for(toy).blindfolded(batch, keep, "zero")).values, atol=1e-6)
    assert (got.flatten(1)[~keep] == 0).all()


def test_a_bagnet_reads_the_picture_that_is_left():
    """It is asked about pictures of another size, made from what is visible."""
    model = toys.bagnet()
    batch = toy_batch(model, 2)
    for spec in ("bagnet", "bagnet(fast=true)"):
        explain = catalogue.build("method", spec)
        blind, worn = probe_for(model).blindfolded(batch, half(batch, model), "zero")
        left = batch.with_inputs(model.domain.visible(worn.x))
        assert torch.equal(explain(blind, worn).values, explain(probe_for(model), left).values)


def test_hidden_words_are_padding_to_methods_that_ask():
    """A method that leaves padding out must leave hidden words out, as if they had never been there."""
    model = toys.tiny_bert()
    batch = toy_batch(model, 2)
    explain = catalogue.build("method", "bt_head")
    blind, worn = probe_for(model).blindfolded(batch, half(batch, model), "pad")
    left = batch.with_inputs(model.domain.visible(worn.x))
    assert torch.allclose(explain(blind, worn).values, explain(probe_for(model), left).values, rtol=1e-12)


def test_tokens_that_move_take_it_along():
    """A method may close gaps: what is hidden stays hidden in its new place."""
    model = toys.one_head_attention()
    batch = toy_batch(model, 2)
    keep = half(batch, model)
    blind, worn = probe_for(model).blindfolded(batch, keep, "pad")
    gone = catalogue.build("fill", "remove")
    some = model.domain.units("token", batch.x).index != 2
    moved = gone.erase(model.domain, worn.x, some, gone.full(model.domain, worn))
    left = batch.with_inputs(model.domain.visible(worn.x))
    want = gone.erase(model.domain, left.x, some, gone.full(model.domain, left))
    assert torch.allclose(blind.logits(moved), probe_for(model).logits(want), rtol=1e-12)


def test_a_fill_that_moves_things_cannot_hide_them():
    model = toys.additive_text()
    batch = toy_batch(model, 1)
    with pytest.raises(NotApplicable, match="'remove' moves what is not deleted"):
        probe_for(model).blindfolded(batch, half(batch, model), "remove")


def test_the_cover_is_a_constant():
    """A fill that is made from the sample is made once: what a method does to the input does not change it."""
    model = toys.gap_linear()
    batch = toy_batch(model, 2)
    keep = half(batch, model)
    blind, worn = probe_for(model).blindfolded(batch, keep, "blur(kernel=3)")
    other = replace(worn, x=worn.x.replace(pixels=worn.x["pixels"] + 1))
    shown, same = (model.domain.visible(b.x)["pixels"].flatten(2) for b in (other, worn))
    hidden = ~keep[:, None].expand_as(shown)
    assert torch.equal(shown[hidden], same[hidden]) and not torch.equal(shown[~hidden], same[~hidden])
    assert blind.blind
