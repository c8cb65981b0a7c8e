"""Attention methods, against their formulas in loops, hooks on timm's own attention, and what must hold for all."""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import NotApplicable
from heatcheck.methods.attention import AttentionMethod, carried, class_rows
from heatcheck.models.vision_shim import load_timm, load_torchvision, load_transformers
from heatcheck.testing.models import gap_linear, one_head_attention, tiny_bert, tiny_vit
from heatcheck.testing.scenes import probe_for, toy_batch
from heatcheck.testing.watch import state_of

MUTANTS = (
    ("methods/attention.py", "a / a.sum(-1, keepdim=True)",
     "a / a.sum(-2, keepdim=True)", "test_the_formula_gives_the_same"),
    ("methods/attention.py", "in reversed(layers)", "in layers", "test_rows_of_a_rollout_sum_to_one"),
    ("methods/attention.py", "(weights * slope).relu().mean(1)",
     "(weights * slope).abs().mean(1)", "test_the_formula_gives_the_same"),
    ("methods/attention.py", ".sum(-1) / places.sum(-1)", ".mean(-1)", "test_one_head_over_a_text"),
    ("methods/attention.py", "slope.relu().mean((1, 2))",
     "slope.abs().mean((1, 2))", "test_the_formula_gives_the_same"),
    ("methods/attention.py", "else layers + self.start",
     "else 1 + layers + self.start", "test_layers_are_counted_from_the_end_too"),
    ("methods/attention.py", "(maps - low.reshape(shape))", "maps", "test_the_formula_gives_the_same"),
    ("methods/attention.py", "torch.where(free, maps, torch.inf).flatten(1)",
     "maps.flatten(1)", "test_legrad_begins_at_the_least_of_the_words"),
)  # fmt: skip

METHODS = ("rollout", "generic_attribution", "attention_grad_cam", "legrad")
EXACT = {"rtol": 1e-9, "atol": 1e-14}


# -- the papers' formulas on tiny_vit --------------------------------------------------------------------------


def slow_rollout(vit, x, target, start=0):
    tokens = len(vit.weights[0][0])
    joint = torch.eye(tokens, dtype=torch.float64)
    for maps in vit.weights[start:]:
        mean = sum(maps) / len(maps)
        layer = torch.zeros(tokens, tokens, dtype=torch.float64)
        for q in range(tokens):
            row = mean[q].clone()
            row[q] += 1
            layer[q] = row / row.sum()
        joint = layer @ joint
    return joint[0]


def slow_generic(vit, x, target, start=0, reduce="clamp_then_mean"):
    relevance = torch.eye(len(vit.weights[0][0]), dtype=torch.float64)
    for layer in range(start, len(vit.weights)):
        maps, slopes = vit.weights[layer], vit.slopes(vit.logits[target], layer)
        n = len(maps)
        if reduce == "clamp_then_mean":
            bar = sum((g * a).clamp(min=0) for g, a in zip(slopes, maps, strict=True)) / n
        elif reduce == "mean_then_clamp":
            bar = (sum(g * a for g, a in zip(slopes, maps, strict=True)) / n).clamp(min=0)
        else:
            bar = (sum(maps) / n * sum(slopes) / n).clamp(min=0)
        relevance = relevance + bar @ relevance
    return relevance[0]


def slow_grad_cam(vit, x, target):
    maps, slopes = vit.weights[-1], vit.slopes(vit.logits[target], -1)
    cam = sum(g[0, 1:].mean() * a[0] for g, a in zip(slopes, maps, strict=True)) / len(maps)
    return cam.clamp(min=0)


def slow_legrad(vit, x, target, start=0):
    total = 0
    for layer in range(start, len(vit.weights)):
        slopes = vit.slopes(vit.head(vit.left[layer])[target], layer)
        total = total + sum(g.clamp(min=0).mean(0) for g in slopes) / len(slopes)
    patches = total[1:]
    return (total - patches.min()) / (patches.max() - patches.min())


FORMULAS = [
    ("rollout", slow_rollout, {}),
    ("rollout(start=1)", slow_rollout, {"start": 1}),
    ("generic_attribution", slow_generic, {}),
    ("generic_attribution(start=2)", slow_generic, {"start": 2}),
    ("generic_attribution(head_reduce=mean_then_clamp)", slow_generic, {"reduce": "mean_then_clamp"}),
    ("generic_attribution(head_reduce=mean_separately)", slow_generic, {"reduce": "mean_separately"}),
    ("attention_grad_cam", slow_grad_cam, {}),
    ("legrad", slow_legrad, {}),
    ("legrad(start=1)", slow_legrad, {"start": 1}),
]


@pytest.mark.parametrize(("spec", "slow", "how"), FORMULAS, ids=[f[0] for f in FORMULAS])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_formula_gives_the_same(lab, slow_maps, spec, slow, how, seed):
    toy = tiny_vit(depth=3, heads=4, seed=seed)
    batch = lab.batch(toy.inputs(3, seed)["pixels"], [0, 1, 2])
    got = lab.explain(spec, toy, batch)
    assert got.values.shape == (3, 2, 3) and not got.signed and got.interpolation == "nearest"
    assert got.values.std() > 0
    torch.testing.assert_close(got.values, slow_maps(toy, batch, slow, **how), **EXACT)


def test_the_probability_is_explained_if_asked_for(lab, slow_maps):
    def of_probability(vit, x, target):
        vit.logits = vit.logits.softmax(0)
        return slow_generic(vit, x, target)

    toy = tiny_vit()
    batch = toy_batch(toy, 2)
    got = lab.explain("generic_attribution(output=prob)", toy, batch).values
    torch.testing.assert_close(got, slow_maps(toy, batch, of_probability), **EXACT)


# -- laws ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", METHODS)
def test_only_rollout_is_the_same_for_all_classes(lab, spec):
    toy = tiny_vit()
    x = toy.inputs(2)["pixels"]
    a, b = (lab.explain(spec, toy, lab.batch(x, target)).values for target in ([0, 0], [1, 2]))
    assert torch.equal(a, b) == (spec == "rollout")


@given(st.integers(0, 10_000))
def test_rows_of_a_rollout_sum_to_one(seed):
    rng = torch.Generator().manual_seed(seed)
    layers = [torch.rand(2, 5, 5, generator=rng, dtype=torch.float64).softmax(-1) for _ in range(3)]
    rows = torch.eye(5, dtype=torch.float64).expand(2, -1, -1)
    joint = carried(rows, layers, residual=False)
    torch.testing.assert_close(joint.sum(-1), torch.ones(2, 5, dtype=torch.float64))
    torch.testing.assert_close(joint, layers[2] @ layers[1] @ layers[0])
    grown = carried(rows, layers)
    torch.testing.assert_close(grown, (rows + layers[2]) @ (rows + layers[1]) @ (rows + layers[0]))


@pytest.mark.parametrize("spec", ["rollout", "generic_attribution"])
def test_no_layer_at_all_leaves_every_token_by_itself(lab, spec):
    toy = tiny_vit(depth=2)
    batch = toy_batch(toy, 2)
    assert (lab.explain(f"{spec}(start=2)", toy, batch).values == 0).all()
    with pytest.raises(NotApplicable, match="start=3 is beyond the last of 2 attention layers"):
        lab.explain(f"{spec}(start=3)", toy, batch)


LAYERED = (
    "rollout",
    "generic_attribution",
    "legrad",
    "bt_head(steps=2)",
    "bt_token(steps=2)",
    "transformer_attribution",
)


@pytest.mark.parametrize("spec", LAYERED)
def test_layers_are_counted_from_the_end_too(lab, spec):
    """-4 means the last four layers, of whatever network."""
    method, found = catalogue.build("method", spec), False
    for make in (tiny_vit, tiny_bert):
        toy = make(depth=3)
        batch = toy_batch(toy, 2)
        for start in (-1, -3):
            want = lab.explain(replace(method, start=3 + start), toy, batch).values
            assert torch.equal(lab.explain(replace(method, start=start), toy, batch).values, want)
            found |= bool(want.any())
        with pytest.raises(NotApplicable, match="start=-4 means the last 4 attention layers, and there are 3"):
            lab.explain(replace(method, start=-4), toy, batch)
    assert found


def test_a_class_that_nothing_matters_to_gets_an_empty_map(lab):
    def deaf(net):
        nn.init.zeros_(net.head.weight)
        return net

    toy = tiny_vit().with_network(deaf, "deaf")
    for spec in METHODS:
        got = lab.explain(spec, toy, toy_batch(toy, 2))
        assert (got.values == 0).all() and got.status == ("ok", "ok")


def test_which_tokens_the_class_is_read_from():
    slope = torch.zeros(3, 2, 4, 4)
    slope[0, 1, 0, 2] = -1
    slope[1, 0, 1:, 0] = 1e-30
    want = torch.tensor([[1, 0, 0, 0], [0, 1 / 3, 1 / 3, 1 / 3], [0, 0, 0, 0]])
    torch.testing.assert_close(class_rows(slope), want)


# -- texts -----------------------------------------------------------------------------------------------------


def test_one_head_over_a_text(lab):
    toy = one_head_attention(seed=1)
    batch = toy_batch(toy, 3)
    net, free = toy.module(), ~batch.x["special"]
    embeds, mask = net.embed(batch.x["ids"]).detach().requires_grad_(), batch.x["attention"]
    attention = net.weights(embeds, mask)
    logits = net.classify((attention @ net.value(embeds + net.place.weight))[:, 0])
    (slope,) = torch.autograd.grad(logits.gather(1, batch.target[:, None]).sum(), attention)
    row, slope = attention[:, 0].detach(), slope[:, 0]
    mean = (slope * free).sum(1, keepdim=True) / free.sum(1, keepdim=True)
    for spec, want in {
        "rollout": row / 2,
        "generic_attribution": (row * slope).relu(),
        "attention_grad_cam": (mean * row).relu(),
    }.items():
        got = lab.explain(spec, toy, batch).values
        assert (got[~free] == 0).all() and got.any(1).all()
        torch.testing.assert_close(got, want * free, **EXACT)


def test_legrad_over_a_text_scales_what_words_get(lab):
    toy = one_head_attention()
    batch = toy_batch(toy, 3)
    got, free = lab.explain("legrad", toy, batch).values, ~batch.x["special"]
    assert (got[~free] == 0).all()
    for values, words in zip(got, free, strict=True):
        assert values[words].max() == 1 and values[words].min() == 0


def test_legrad_begins_at_the_least_of_the_words(lab):
    """Special tokens and padding have zeros, below what any word has here."""
    toy = tiny_bert()
    batch = toy_batch(toy, 3)
    legrad = catalogue.build("method", "legrad")
    sums = AttentionMethod.attribute(legrad, probe_for(toy), batch)
    got = lab.explain(legrad, toy, batch).values
    for values, whole, words in zip(got, sums, ~batch.x["special"], strict=True):
        least, most = whole[words].min(), whole[words].max()
        assert least > 0
        torch.testing.assert_close(values[words], (whole[words] - least) / (most - least))


# -- networks of others ----------------------------------------------------------------------------------------

SMALL = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 16, "num_heads": 2, "num_classes": 3}
VARIANTS = {
    "class token": ("vit_tiny_patch16_224", {}, 1, [0]),
    "global pool": ("vit_tiny_patch16_224", {"global_pool": "avg"}, 1, range(1, 17)),
    "distilled": ("deit_tiny_distilled_patch16_224", {}, 2, [0, 1]),
    "registers": ("vit_tiny_patch16_224", {"reg_tokens": 4}, 5, [0]),
    "registers and global pool": ("vit_little_patch16_reg4_gap_256", {}, 4, range(4, 20)),
    "layer scale": ("deit3_small_patch16_224", {}, 1, [0]),
}


def timm_vit(name, **more):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = load_timm().create_model(name, **SMALL, **more).eval().double()
        for weight in net.parameters():
            weight.data.add_(0.2 * torch.randn(weight.shape, dtype=torch.float64))
    return net


def hooked(net, x):
    """Attention of every layer as timm's own unfused path computes it, and the logits."""
    net, weights = copy.deepcopy(net), []
    for block in net.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda _m, _a, out: weights.append(out))
    return weights, net(x.detach().requires_grad_())


@pytest.mark.parametrize("variant", VARIANTS)
def test_timm_s_own_attention_gives_the_same(lab, variant):
    name, more, prefix, rows = VARIANTS[variant]
    net = timm_vit(name, **more)
    batch = lab.batch(lab.pictures(3, side=32))
    weights, logits = hooked(net, batch.x["pixels"])
    slopes = torch.autograd.grad(logits.gather(1, batch.target[:, None]).sum(), weights)
    eye = torch.eye(weights[0].shape[-1], dtype=torch.float64)
    generic, rollout = eye, eye
    for a, g in zip(weights, slopes, strict=True):
        generic = generic + (a * g).relu().mean(1) @ generic
        rollout = (a.mean(1) + eye) / 2 @ rollout
    for spec, joint in {"generic_attribution": generic, "rollout": rollout}.items():
        want = joint[:, list(rows)].mean(1)[:, prefix:].reshape(3, 4, 4).detach()
        torch.testing.assert_close(lab.explain(spec, net, batch).values, want, **EXACT)
    a, g = (v[-1][:, :, list(rows)].mean(2)[..., prefix:] for v in (weights, slopes))
    want = (g.mean(-1, keepdim=True) * a).mean(1).relu().reshape(3, 4, 4).detach()
    torch.testing.assert_close(lab.explain("attention_grad_cam", net, batch).values, want, **EXACT)


@pytest.mark.parametrize("variant", VARIANTS)
def test_legrad_asks_timm_s_own_head(lab, variant):
    name, more, prefix, _rows = VARIANTS[variant]
    net = timm_vit(name, **more)
    batch = lab.batch(lab.pictures(3, side=32))
    twin, out = copy.deepcopy(net), []
    for block in twin.blocks:
        block.register_forward_hook(lambda _m, _a, tokens: out.append(tokens))
    weights, total = [], 0
    for block in twin.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda _m, _a, a: weights.append(a))
    twin(batch.x["pixels"].requires_grad_())
    for tokens, a in zip(out, weights, strict=True):
        logits = twin.forward_head(twin.norm(tokens))
        score = logits.gather(1, batch.target[:, None]).sum()
        total = total + torch.autograd.grad(score, a, retain_graph=True)[0].relu().mean((1, 2))
    total = total[:, prefix:]
    low, high = total.amin(1, keepdim=True), total.amax(1, keepdim=True)
    want = ((total - low) / (high - low)).reshape(3, 4, 4).detach()
    torch.testing.assert_close(lab.explain("legrad", net, batch).values, want, **EXACT)


@pytest.mark.parametrize("spec", METHODS)
def test_fused_attention_stays_fused(lab, spec):
    model = lab.wrap(timm_vit("vit_tiny_patch16_224"))
    before, fused = state_of(model.module()), [b.attn.fused_attn for b in model.module().blocks]
    lab.explain(spec, model, lab.pictures(2, side=32))
    assert state_of(model.module()) == before
    assert fused == [b.attn.fused_attn for b in model.module().blocks]
    assert all(fused)


@pytest.mark.parametrize("spec", METHODS)
def test_transformers_gives_the_same_fused_and_step_by_step(lab, spec):
    transformers = load_transformers()

    def make(how):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            config = transformers.ViTConfig(
                hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=32,
                patch_size=8, num_labels=3, attn_implementation=how,
            )  # fmt: skip
            return transformers.ViTForImageClassification(config).eval()

    x = lab.pictures(2, side=32, dtype=torch.float32)
    a, b = (lab.explain(spec, make(how), x).values for how in ("sdpa", "eager"))
    assert a.shape == (2, 4, 4) and a.std() > 0
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("spec", METHODS)
def test_torchvision_s_transformer_is_understood(lab, spec):
    make = load_torchvision().models.vision_transformer.VisionTransformer
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make(32, 8, 2, 2, 16, 24, num_classes=3).eval().double()
        nn.init.normal_(net.heads.head.weight)
    got = lab.explain(spec, net, lab.pictures(2, side=32)).values
    assert got.shape == (2, 4, 4) and got.std() > 0


# -- networks it cannot work on, and parameters that make no sense -------------------------------------------------


@pytest.mark.parametrize("spec", METHODS)
def test_networks_without_attention_are_told_what_to_try(lab, spec):
    toy = gap_linear()
    with pytest.raises(NotApplicable, match=r"needs attention between tokens, and this network has none; try"):
        lab.explain(spec, toy, toy_batch(toy, 1))


@pytest.mark.parametrize("spec", METHODS)
@pytest.mark.parametrize(
    ("name", "more", "why"),
    [
        ("swin_tiny_patch4_window7_224", {"img_size": 32, "window_size": 4, "depths": (1, 1)}, "inside windows"),
        ("vit_base_patch16_siglip_224", SMALL, "to pooled tokens"),
        ("vit_small_patch16_18x2_224", SMALL, "joins them otherwise"),
        ("convit_tiny", {**SMALL, "local_up_to_layer": 1}, "changes or regroups it first"),
    ],
)
def test_attention_of_another_kind_is_refused(lab, spec, name, more, why):
    net = load_timm().create_model(name, **{"num_classes": 3, **more}).eval().double()
    with pytest.raises(NotApplicable, match=why):
        lab.explain(spec, net, lab.pictures(1, side=32))


class Merged(nn.Module):
    """Tokens that are neither patches nor pixels: every patch twice, or made without a convolution."""

    def __init__(self, vit, twice):
        super().__init__()
        self.vit, self.twice = vit, twice
        self.cut = nn.Linear(48, 8).double()

    def forward(self, pixels):
        if self.twice:
            tokens = self.vit.patch(pixels).flatten(2).transpose(1, 2)
            tokens = torch.cat([tokens] * 4, 1)
        else:
            parts = pixels.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
            tokens = self.cut(parts)
        return self.vit.head(self.vit.blocks(tokens).mean(1))


@pytest.mark.parametrize("spec", METHODS)
def test_tokens_that_are_no_patches_are_refused(lab, spec):
    vit = tiny_vit().module()
    x = tiny_vit().inputs(1)["pixels"]
    with pytest.raises(NotApplicable, match="24 tokens, which are not the 2×3 patches"):
        lab.explain(spec, Merged(vit, True), x)
    with pytest.raises(NotApplicable, match="6 tokens, but there are 96 sites and no patch grid"):
        lab.explain(spec, Merged(vit, False), x)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("generic_attribution(head_reduce=max)", "head_reduce='max' is not one of clamp_then_mean"),
    ],
)
def test_parameters_that_make_no_sense(lab, spec, why):
    with pytest.raises(SpecError, match=why):
        lab.explain(spec, tiny_vit(), toy_batch(tiny_vit(), 1))
