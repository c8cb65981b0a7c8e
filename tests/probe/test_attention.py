"""What a trace notes of attention, against hooks, and the head asked about the tokens of every block."""

import copy

import pytest
import torch
from torch import nn

from heatcheck.core.types import NotApplicable
from heatcheck.models.vision_shim import load_timm, load_transformers
from heatcheck.probe.attention import AttentionTrace, HeadTrace
from heatcheck.testing.models import TinyVit, fill_weights, one_head_attention, tiny_vit

SMALL = {"img_size": 32, "patch_size": 8, "depth": 3, "embed_dim": 16, "num_heads": 2, "num_classes": 3}


def frozen(net):
    net = net.eval().double().requires_grad_(False)
    return fill_weights(net, 0, torch.float64)


def pictures(side=32):
    rng = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, side, side, generator=rng, dtype=torch.float64).requires_grad_()


def traced(kind, net, *args, **kwargs):
    trace = kind()
    with trace:
        out = net(*args, **kwargs)
    return trace, out


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "deit3_small_patch16_224", "vit_little_patch16_reg4_gap_256"])
def test_every_part_is_what_timm_computes(name, fused):
    net = frozen(load_timm().create_model(name, **SMALL))
    eager, weights, given = copy.deepcopy(net), [], []
    for block in eager.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda _m, _a, out: weights.append(out))
        block.register_forward_pre_hook(lambda _m, args: given.append(args[0]))
    logits = eager(pictures())
    for block in net.blocks:
        block.attn.fused_attn = fused
    trace, out = traced(AttentionTrace, net, pictures())
    torch.testing.assert_close(out, logits)
    assert trace.patches == (4, 4) and not trace.changed and len(trace.blocks) == 3
    for noted, block, a, z in zip(trace.blocks, net.blocks, weights, given, strict=True):
        torch.testing.assert_close(noted.weights, a)
        torch.testing.assert_close(noted.weights.sum(-1), torch.ones(a.shape[:-1], dtype=a.dtype))
        torch.testing.assert_close(noted.stream, z)
        assert noted.projection is block.attn.proj.weight
        assert noted.values.shape == (2, 2, a.shape[-1], 8)
    assert all(g is not None for g in torch.autograd.grad(out.sum(), [b.weights for b in trace.blocks]))


@pytest.mark.parametrize("how", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["Bert", "DistilBert", "Roberta"])
def test_every_part_is_what_transformers_says(how, dtype, kind):
    transformers = load_transformers()
    names = {"DistilBert": {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 24}}
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=30, num_labels=2, max_position_embeddings=20, **names.get(kind, sizes), attn_implementation=how
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = getattr(transformers, f"{kind}ForSequenceClassification")(config).eval().to(dtype).requires_grad_(False)
        embeds = torch.randn(2, 9, 16, dtype=dtype)
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    trace, out = traced(AttentionTrace, net, inputs_embeds=embeds.clone().requires_grad_(), attention_mask=mask)
    assert trace.patches is None and not trace.changed and len(trace.blocks) == 3
    net.set_attn_implementation("eager")
    said = net(inputs_embeds=embeds, attention_mask=mask, output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(out.logits, said.logits, rtol=1e-4, atol=1e-5)
    for noted, a, z in zip(trace.blocks, said.attentions, said.hidden_states, strict=False):
        torch.testing.assert_close(noted.weights, a, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(noted.stream, z, rtol=1e-4, atol=1e-5)
        assert noted.projection is not None


def test_a_single_head_without_an_axis_for_heads_is_noted():
    toy = one_head_attention()
    net, x = toy.module(), toy.inputs(2)
    embeds = net.embed(x["ids"]).detach().requires_grad_()
    trace, out = traced(AttentionTrace, net, embeds, x["attention"])
    (block,) = trace.blocks
    torch.testing.assert_close(block.weights[:, 0], net.weights(embeds, x["attention"]))
    torch.testing.assert_close(out, net(embeds, x["attention"]))
    assert block.stream is None and block.projection is None
    (slope,) = torch.autograd.grad(out.sum(), block.weights)
    assert slope.shape == (2, 1, 12, 12) and slope[:, :, 0].any() and not slope[:, :, 1:].any()


class Sharpened(nn.Module):
    """Attention that is changed behind its softmax."""

    def forward(self, x):
        a = (x @ x.transpose(-2, -1)).softmax(-1)
        return (a * a) @ x


def test_attention_that_is_changed_is_noticed():
    x = torch.randn(2, 1, 4, 3).requires_grad_()
    trace, _ = traced(AttentionTrace, Sharpened(), x)
    assert trace.changed and not trace.blocks
    trace, _ = traced(AttentionTrace, nn.Sequential(Sharpened(), Sharpened()), x)
    assert trace.changed
    trace, _ = traced(AttentionTrace, nn.Softmax(-1), x[:, 0, 0])
    assert not trace.changed


@pytest.mark.parametrize(
    "more", [{}, {"global_pool": "avg"}, {"depth": 2, "reg_tokens": 2}, {"init_values": 0.5}], ids=str
)
def test_the_head_is_asked_about_every_block(more):
    net = frozen(load_timm().create_model("vit_tiny_patch16_224", **{**SMALL, **more}))
    out = []
    trace, logits = traced(HeadTrace, net, pictures())
    for block in net.blocks:
        block.register_forward_hook(lambda _m, _a, tokens: out.append(tokens))
    net(pictures())
    for layer, tokens in enumerate(out[:-1]):
        want = net.forward_head(net.norm(tokens))
        torch.testing.assert_close(trace.head(layer, logits), want, rtol=1e-10, atol=1e-12)
        assert not torch.allclose(want, logits)


@pytest.mark.parametrize("kind", ["Bert", "DistilBert"])
def test_the_head_is_asked_where_blocks_normalise_afterwards(kind):
    transformers = load_transformers()
    names = {"DistilBert": {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 24}}
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    config = getattr(transformers, f"{kind}Config")(vocab_size=30, num_labels=2, **names.get(kind, sizes))
    net = frozen(getattr(transformers, f"{kind}ForSequenceClassification")(config))
    embeds = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    trace, out = traced(HeadTrace, net, inputs_embeds=embeds)
    said = net(inputs_embeds=embeds, output_hidden_states=True).hidden_states
    for layer, tokens in enumerate(said[1:-1]):
        if kind == "Bert":
            want = net.classifier(net.bert.pooler(tokens))
        else:
            want = net.classifier(net.pre_classifier(tokens[:, 0]).relu())
        torch.testing.assert_close(trace.head(layer, out.logits), want, rtol=1e-10, atol=1e-12)


def test_a_last_block_unlike_the_others_has_no_known_end():
    net = tiny_vit(depth=3).module()
    x = tiny_vit().inputs(1)["pixels"].requires_grad_()
    assert isinstance(net, TinyVit)
    net.blocks[2].mlp = nn.Sequential(*net.blocks[2].mlp, nn.Tanh())
    trace, logits = traced(HeadTrace, net, x)
    with pytest.raises(NotApplicable, match="cannot tell where the last block ends"):
        trace.head(0, logits)
