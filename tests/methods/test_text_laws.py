"""What must hold of every method on texts: closed forms on a bag of embeddings, sums, words and symmetry, in float64."""

from dataclasses import replace

import pytest
import torch

from heatcheck.core import catalogue
from heatcheck.core.types import Inputs
from heatcheck.metrics.base import Maps
from heatcheck.testing.models import bag_of_words, text_inputs, tiny_bert
from heatcheck.testing.scenes import batch_of, probe_for, toy_batch, toy_corpus
from heatcheck.testing.zoo import brief

MUTANTS = (
    ("methods/occlusion.py", "outputs[:, -1:] - outputs[:, :-1]", "outputs[:, :-1] - outputs[:, -1:]",
     "test_on_a_bag_of_embeddings_every_token_gets_what_it_is_worth"),
    ("methods/base.py", "values / units.area.clamp_min(1)", "values",
     "test_every_fill_and_every_unit_has_its_closed_form"),
    ("domain/base.py", "out.scatter_add_(1, self.slot, site_map)", "out.scatter_(1, self.slot, site_map)",
     "test_a_word_scores_the_sum_of_its_tokens"),
    ("methods/lime.py", "kept.double().mean(1).sqrt()", "kept.double().mean(1)", "test_lime_falls_short_by_its_penalty"),
    ("domain/text.py", "share * here + (1 - share) * gone", "here + (1 - share) * gone",
     "test_on_a_bag_of_embeddings_every_token_gets_what_it_is_worth"),
)  # fmt: skip

WORTH = (
    "input_x_gradient", "integrated_gradients(steps=3)", "integrated_gradients(steps=3, quadrature=linspace_n)",
    "deep_lift", "lrp(composite=epsilon, epsilon=0.0)", "attn_lrp(epsilon=0.0)", "gradient_shap(samples=3)",
    "guided_ig(steps=8)", "occlusion", "feature_ablation(units=token)", "oracle", "shapley_sampling(samples=2)",
    "kernel_shap", "partition_shap", "lime(units=token)", "smoothgrad(of=occlusion, samples=2, sigma=0.0)",
    "smoothgrad(of=input_x_gradient, samples=2, sigma=0.0)",
)  # fmt: skip
"""Methods that give a token its weight × embedding, compared with the token hidden or at zero."""
PERTURBING = ("occlusion", "shapley_sampling(samples=2)", "kernel_shap", "partition_shap", "lime")
FILLS = ("unk", "mask", "pad", "remove", "zero")


@pytest.fixture(scope="module")
def bag():
    return bag_of_words()


def maps(spec, model, batch):
    method = catalogue.build("method", spec).for_corpus(toy_corpus)
    return method(probe_for(model, forward=64, backward=16), batch).values


def same(got, want, tolerance=1e-9):
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance * float(want.abs().max()))


def weights(model, batch):
    """The weight of every embedding coordinate, for the tokens that are read."""
    weight = model.module().weigh.weight.detach()[batch.target][:, None]
    return weight * batch.x["attention"][..., None]


def worth(model, batch, fill):
    """What a token loses when the fill takes its place."""
    ids = {"unk": model.domain.unk, "mask": model.domain.mask}
    gone = model.domain.embed(torch.tensor(ids[fill])) if fill in ids else 0
    lost = (weights(model, batch) * (model.domain.leaf(batch.x) - gone)).sum(-1).detach()
    return torch.where(batch.x["special"], 0, lost)


@pytest.mark.parametrize("spec", WORTH)
def test_on_a_bag_of_embeddings_every_token_gets_what_it_is_worth(bag, spec):
    batch = toy_batch(bag, 3)
    free = ~batch.x["special"]
    same(maps(spec, bag, batch)[free], bag.contributions(batch.x, batch.target)[free])


@pytest.mark.parametrize("spec", ["saliency(reduction=sum)", "smoothgrad(reduction=sum, samples=3)",
                                  "smoothgrad(reduction=sum, samples=3, scale=mean)"])  # fmt: skip
def test_the_gradient_of_a_bag_of_embeddings_is_its_weights(bag, spec):
    batch = toy_batch(bag, 3)
    same(maps(spec, bag, batch), weights(bag, batch).sum(-1))


@pytest.mark.parametrize("spec", ["saliency", "smoothgrad(samples=3)"])
def test_a_plain_gradient_is_the_gradient_norm_unless_said_otherwise(bag, spec):
    batch = toy_batch(bag, 3)
    same(maps(spec, bag, batch), weights(bag, batch).norm(dim=-1))
    same(maps("saliency(reduction=sum_abs)", bag, batch), weights(bag, batch).abs().sum(-1))


@pytest.mark.parametrize("spec", ["vargrad(samples=3)", "smoothgrad_sq(samples=3)"])
def test_noise_does_not_move_the_gradient_of_a_bag(bag, spec):
    batch = toy_batch(bag, 2)
    want = weights(bag, batch).square().sum(-1) * spec.startswith("smoothgrad_sq")
    torch.testing.assert_close(maps(spec, bag, batch), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("units", ["token", "word", "sentence"])
@pytest.mark.parametrize("id", PERTURBING)
def test_every_fill_and_every_unit_has_its_closed_form(bag, id, units, fill):
    batch = toy_batch(bag, 2)
    spec = catalogue.build("method", id, units=units, fill=fill).name
    parts = bag.domain.units(units, batch.x)
    want = parts.spread(parts.sum(worth(bag, batch, fill)) / parts.area.clamp_min(1))
    same(maps(spec, bag, batch), want)


def test_lime_falls_short_by_its_penalty(bag):
    """Over all subsets, ridge regression in closed form, with the kernel written out."""
    batch = toy_batch(bag, 1)
    units = bag.domain.units("word", batch.x)
    n = int(units.count[0])
    kept = torch.cartesian_prod(*[torch.tensor([0.0, 1.0]).double()] * n)
    value = kept @ units.sum(worth(bag, batch, "pad"))[0, :n]
    pi = torch.stack([(-((1 - (z.sum() / n).sqrt()) ** 2) / 0.25**2).exp().sqrt() for z in kept])
    x = torch.cat([torch.ones(len(kept), 1).double(), kept], 1)
    penalty = 0.5 * torch.eye(n + 1).double()
    penalty[0, 0] = 0
    want = torch.linalg.solve(x.T @ (pi[:, None] * x) + penalty, x.T @ (pi * value))[1:]
    got = units.sum(maps("lime(units=word, alpha=0.5)", bag, batch))[0, :n]
    same(got, want)
    assert (got.abs().sum() < units.sum(worth(bag, batch, "pad")).abs().sum()).item()


COMPLETE = {
    "integrated_gradients(steps=60)": "zero", "deep_lift": "zero", "idgi(steps=20)": "zero",
    "shapley_sampling(samples=2)": "pad", "shapley_sampling(samples=1, fill=unk, units=word)": "unk",
    "kernel_shap(samples=64)": "pad", "partition_shap": "pad", "partition_shap(units=sentence, fill=mask)": "mask",
    "partition_shap(samples=9, units=word, fill=remove)": "remove",
}  # fmt: skip


@pytest.mark.parametrize("spec", COMPLETE)
def test_maps_of_an_encoder_add_up_to_what_all_tokens_are_worth(spec):
    model = tiny_bert()
    batch = toy_batch(model, 2)
    probe = probe_for(model)
    drop = probe.clean(batch).read("logit") - probe.deleted(batch, COMPLETE[spec]).read("logit")
    same(maps(spec, model, batch).sum(1), drop, 1e-3 if "gradients" in spec else 1e-9)  # ReLUs have kinks


TEXT = [id for id, entry in sorted(catalogue.entries("method").items()) if "text" in entry.facts["on"]]


@pytest.mark.parametrize("id", TEXT)
def test_a_word_scores_the_sum_of_its_tokens(id):
    model = tiny_bert()
    batch = toy_batch(model, 2)
    method = catalogue.build("method", brief(id)).for_corpus(toy_corpus)
    found = Maps([method(probe_for(model), batch)], model.domain, batch)
    for kind in ("word", "sentence"):
        scores = found.on(model.domain.units(kind, batch.x))[0]
        for i, number in enumerate(batch.x[kind].tolist()):
            want = [
                sum(found.items[0].values[i, t].item() for t, own in enumerate(number) if own == k)
                for k in range(max(number) + 1)
            ]
            torch.testing.assert_close(
                scores[i, : len(want)], torch.tensor(want, dtype=torch.float64), rtol=1e-12, atol=1e-15
            )


BLIND_TO_PLACE = [id for id in TEXT if id not in {
    "random", "signed_random", "position", "center", "sobel", "rollout", "generic_attribution", "legrad", "bt_head",
    "bt_token", "transformer_attribution", "attention_grad_cam", "vargrad", "hsic", "part_oracle",
}]  # fmt: skip
"""Methods that apply to a bag of embeddings and have nothing for a place of its own; VarGrad is zero there."""


@pytest.mark.parametrize("id", BLIND_TO_PLACE)
def test_equal_tokens_and_equal_sentences_score_alike_on_a_bag(bag, id):
    """`a b c d | a b c d`, with the second sentence as the other half of a pair."""
    half = torch.tensor([7, 9, 11, 8])
    x = text_inputs(torch.cat([half, half]), 12)
    spec = id if id in ("lime", "kernel_shap") else brief(id)  # whose fit is exact with enough samples only
    got = maps(spec, bag, batch_of(bag, x))[0]
    same(got[5:9], got[1:5])
    spoken = text_inputs(torch.tensor([7, 9, 7, 8]), 8)
    got = maps(spec, bag, batch_of(bag, spoken))[0]
    if id not in ("lime", "feature_ablation", "idf"):  # these share a value among the tokens of a word
        same(got[1], got[3])


@pytest.mark.parametrize("id", TEXT)
def test_post_processing_is_that_of_pictures(id):
    model = tiny_bert()
    batch = toy_batch(model, 2)
    probe = probe_for(model)
    method = catalogue.build("method", brief(id)).for_corpus(toy_corpus)
    plain, made, cut = (replace(method, post=post)(probe, batch) for post in ("none", "abs", "relu"))
    assert torch.equal(made.values, plain.values.abs()) and torch.equal(cut.values, plain.values.relu())
    assert not made.signed and not cut.signed


@pytest.mark.parametrize("how", ["sum", "sum_abs", "mean_abs", "mean_square", "l2"])
def test_reductions_go_over_the_coordinates_of_an_embedding(bag, how):
    batch = toy_batch(bag, 2)
    each = weights(bag, batch) * bag.domain.leaf(batch.x).detach()
    want = {
        "sum": each.sum(-1), "sum_abs": each.abs().sum(-1), "mean_abs": each.abs().mean(-1),
        "mean_square": (each**2).mean(-1), "l2": (each**2).sum(-1).sqrt(),
    }[how]  # fmt: skip
    same(maps(f"input_x_gradient(reduction={how})", bag, batch), want)


def test_wrappers_smooth_what_texts_delete():
    """Occlusion of noisy embeddings: what is deleted loses its noise as well."""
    model = tiny_bert()
    batch = toy_batch(model, 1)
    got = maps("smoothgrad(of=occlusion(units=word), samples=2, sigma=0.2)", model, batch)
    rng = batch.streams.generator(0, "noise")
    embeds, read = model.domain.leaf(batch.x).detach(), int(batch.x["attention"].sum())
    spread = 0.2 * (embeds[0, :read].max() - embeds[0, :read].min())
    total = torch.zeros_like(got)
    for _ in range(2):
        noisy = embeds.clone()
        noisy[0, :read] += spread * torch.randn(read, embeds.shape[2], generator=rng).double()
        one = batch.with_inputs(Inputs({**batch.x.tensors, "embeds": noisy}))
        total += maps("occlusion(units=word)", model, one)
    same(got, total / 2)
