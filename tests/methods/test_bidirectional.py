"""The bidirectional explanations, against their formulas in loops and what follows from them."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Inputs, NotApplicable
from heatcheck.methods.bidirectional import by_head, by_token
from heatcheck.models.vision_shim import load_timm
from heatcheck.probe.attention import Block
from heatcheck.testing.models import one_head_attention, padded, tiny_bert, tiny_vit
from heatcheck.testing.scenes import toy_batch
from heatcheck.testing.watch import state_of

MUTANTS = (
    ("methods/bidirectional.py", "(total + slope).relu()", "total.relu()", "test_the_formula_gives_the_same"),
    ("methods/bidirectional.py", "weights.transpose(-2, -1), slope",
     "weights, slope", "test_the_formula_gives_the_same"),
    ("methods/bidirectional.py", "torch.where(total > 0, meets / total,",
     "torch.where(total > 0, meets,", "test_heads_that_are_alike_count_alike"),
    ("methods/bidirectional.py", "made / given", "given / made", "test_tokens_that_grow_are_perceived_more"),
    ("methods/bidirectional.py", "torch.where(read[:, None, None], slope, 0)",
     "slope", "test_a_padded_text_has_the_map_of_the_bare_text"),
)  # fmt: skip

METHODS = ("bt_head", "bt_token")
EXACT = {"rtol": 1e-9, "atol": 1e-14}


def slow(vit, x, target, kind, start=0, steps=20):
    """Perception through the layers times reasoning feedback, as the paper has them, for one picture."""
    joint = torch.eye(len(vit.weights[0][0]), dtype=torch.float64)
    for layer in range(start, len(vit.weights)):
        maps = vit.weights[layer]
        if kind == "bt_head":
            meets = [(a.T @ g).abs().mean() for a, g in zip(maps, vit.slopes(vit.logits[target], layer), strict=True)]
            perceived = sum(i / sum(meets) * a for i, a in zip(meets, maps, strict=True))
        else:
            made = vit.values[layer] @ vit.net.blocks[layer].proj.weight.T
            perceived = sum(maps) / len(maps)
            for j in range(len(joint)):
                perceived = perceived.clone()
                perceived[:, j] *= made[j].norm() / vit.entered[layer][j].norm()
        joint = joint + perceived @ joint
    means = [torch.zeros_like(joint) for _ in vit.weights[-1]]
    for k in range(steps):
        at = type(vit)(vit.net, k / (steps - 1) * x)
        for mean, slope in zip(means, at.slopes(at.logits[target], -1), strict=True):
            mean += slope / steps
    feedback = sum(mean.clamp(min=0) for mean in means) / len(means)
    return (joint * feedback)[0]


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("how", [{}, {"start": 1}, {"start": 2, "steps": 3}, {"steps": 2}], ids=str)
def test_the_formula_gives_the_same(lab, slow_maps, kind, how):
    toy = tiny_vit(depth=3, heads=4)
    batch = lab.batch(toy.inputs(3)["pixels"], [0, 1, 2])
    said = ", ".join(f"{k}={v}" for k, v in how.items())
    got = lab.explain(f"{kind}({said})", toy, batch, backward=2)
    assert got.values.shape == (3, 2, 3) and not got.signed and got.interpolation == "nearest"
    assert got.values.std() > 0
    torch.testing.assert_close(got.values, slow_maps(toy, batch, slow, kind=kind, **how), **EXACT)


@pytest.mark.parametrize("kind", METHODS)
def test_a_padded_text_has_the_map_of_the_bare_text(lab, kind):
    toy = tiny_bert()
    batch = toy_batch(toy, 1)
    tokens = int(batch.x["attention"].sum())
    bare = Inputs({name: v[:, :tokens] for name, v in batch.x.tensors.items()})
    want = lab.explain(f"{kind}(steps=4)", toy, replace(batch, x=bare)).values
    for width in (16, 40):
        got = lab.explain(f"{kind}(steps=4)", toy, replace(batch, x=padded(batch.x, width))).values
        torch.testing.assert_close(got[:, :tokens], want, **EXACT)
        assert (got[:, tokens:] == 0).all()


def test_one_head_is_perceived_as_it_is():
    a = torch.rand(2, 1, 4, 4, dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(by_head(a, torch.randn(2, 1, 4, 4, dtype=torch.float64)), a[:, 0])


def test_heads_that_are_alike_count_alike():
    a = torch.rand(2, 1, 4, 4, dtype=torch.float64).softmax(-1)
    slope = torch.randn(2, 1, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(by_head(a.expand(-1, 3, -1, -1), slope.expand(-1, 3, -1, -1)), a[:, 0])


def test_heads_are_weighed_for_each_sample_by_itself():
    rng = torch.Generator().manual_seed(0)
    a, slope = torch.rand(2, 3, 4, 4, generator=rng).softmax(-1), torch.randn(2, 3, 4, 4, generator=rng)
    slope[1] *= 100
    torch.testing.assert_close(by_head(a, slope)[:1], by_head(a[:1], slope[:1]))
    torch.testing.assert_close(by_head(a, slope).sum(-1), torch.ones(2, 4))


def test_heads_count_alike_where_nothing_matters():
    a = torch.rand(1, 2, 3, 3).softmax(-1)
    torch.testing.assert_close(by_head(a, torch.zeros_like(a)), a.mean(1))


def test_tokens_that_grow_are_perceived_more():
    a = torch.rand(1, 2, 3, 3).softmax(-1)
    values = torch.tensor([[[[1.0], [2.0], [0.0]], [[0.0], [0.0], [0.0]]]])
    stream = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]])
    block = Block(a, values, projection=3 * torch.eye(2), stream=stream)
    torch.testing.assert_close(by_token(block), a.mean(1) * torch.tensor([3.0, 6.0, 0.0]))
    block.stream = torch.zeros(1, 3, 2)
    assert (by_token(block) == 0).all()


@pytest.mark.parametrize("kind", METHODS)
def test_without_layers_tokens_perceive_themselves_only(lab, kind):
    toy = tiny_vit(depth=2)
    batch = toy_batch(toy, 2)
    assert (lab.explain(f"{kind}(start=2, steps=2)", toy, batch).values == 0).all()
    with pytest.raises(NotApplicable, match="start=3 is beyond the last of 2"):
        lab.explain(f"{kind}(start=3, steps=2)", toy, batch)


@pytest.mark.parametrize("kind", METHODS)
def test_classes_differ(lab, kind):
    toy = tiny_vit()
    x = toy.inputs(2)["pixels"]
    a, b = (lab.explain(f"{kind}(steps=3)", toy, lab.batch(x, target)).values for target in ([0, 0], [1, 2]))
    assert not torch.equal(a, b)


@pytest.mark.parametrize("kind", METHODS)
def test_a_class_that_nothing_matters_to_gets_an_empty_map(lab, kind):
    def deaf(net):
        nn.init.zeros_(net.head.weight)
        return net

    toy = tiny_vit().with_network(deaf, "deaf")
    got = lab.explain(f"{kind}(steps=2)", toy, toy_batch(toy, 2))
    assert (got.values == 0).all() and got.status == ("ok", "ok")


def test_one_head_over_a_text(lab):
    toy = one_head_attention()
    batch = toy_batch(toy, 3)
    net, free, mask = toy.module(), ~batch.x["special"], batch.x["attention"]
    feedback = 0
    for k in range(4):
        embeds = (k / 3 * net.embed(batch.x["ids"])).detach().requires_grad_()
        attention = net.weights(embeds, mask)
        logits = net.classify((attention @ net.value(embeds + net.place.weight))[:, 0])
        score = logits.gather(1, batch.target[:, None]).sum()
        feedback = feedback + torch.autograd.grad(score, attention)[0][:, 0] / 4
    want = attention[:, 0].detach() * feedback.relu() * free
    torch.testing.assert_close(lab.explain("bt_head(steps=4)", toy, batch).values, want, **EXACT)
    with pytest.raises(NotApplicable, match="no projection behind its heads"):
        lab.explain("bt_token(steps=4)", toy, batch)


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize(
    ("name", "more", "prefix", "rows"),
    [
        ("vit_tiny_patch16_224", {"global_pool": "avg"}, 1, range(1, 17)),
        ("deit_tiny_distilled_patch16_224", {}, 2, [0, 1]),
        ("vit_tiny_patch16_224", {"reg_tokens": 4}, 5, [0]),
    ],
    ids=["global pool", "distilled", "registers"],
)
def test_timm_s_own_attention_gives_the_same(lab, kind, name, more, prefix, rows):
    small = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 16, "num_heads": 2, "num_classes": 3}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = load_timm().create_model(name, **small, **more).eval().double()
        for weight in net.parameters():
            weight.data.add_(0.2 * torch.randn(weight.shape, dtype=torch.float64))
    model = lab.wrap(net)
    batch = lab.batch(lab.pictures(3, side=32))
    eager = copy.deepcopy(net)
    weights, made, given = [], [], []
    for block in eager.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda _m, _a, out: weights.append(out))
        block.attn.qkv.register_forward_hook(lambda _m, _a, out: made.append(out[..., 32:]))
        block.register_forward_pre_hook(lambda _m, args: given.append(args[0]))

    def ask(x):
        weights.clear(), made.clear(), given.clear()
        score = eager(x.requires_grad_()).gather(1, batch.target[:, None]).sum()
        return torch.autograd.grad(score, weights)

    feedback = sum(ask(k / 2 * batch.x["pixels"])[-1] for k in range(3)) / 3
    slopes = ask(batch.x["pixels"])
    joint = torch.eye(weights[0].shape[-1], dtype=torch.float64)
    for layer, (a, g) in enumerate(zip(weights, slopes, strict=True)):
        if kind == "bt_head":
            meets = (a.transpose(-2, -1) @ g).abs().mean((2, 3))
            perceived = torch.einsum("nh,nhqk->nqk", meets / meets.sum(1, keepdim=True), a)
        else:
            out = made[layer] @ eager.blocks[layer].attn.proj.weight.T
            perceived = a.mean(1) * (out.norm(dim=-1) / given[layer].norm(dim=-1))[:, None]
        joint = joint + perceived @ joint
    want = (joint * feedback.relu().mean(1))[:, list(rows)].mean(1)[:, prefix:].reshape(3, 4, 4).detach()
    before = state_of(model.module())
    torch.testing.assert_close(lab.explain(f"{kind}(steps=3)", model, batch).values, want, **EXACT)
    assert state_of(model.module()) == before and all(b.attn.fused_attn for b in model.module().blocks)


@pytest.mark.parametrize("kind", METHODS)
def test_parameters_that_make_no_sense(lab, kind):
    with pytest.raises(SpecError, match="steps=1 cannot include both ends of the path"):
        lab.explain(f"{kind}(steps=1)", tiny_vit(), toy_batch(tiny_vit(), 1))
