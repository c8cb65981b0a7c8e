"""The real vision transformer beside the project, CLIP's ViT-B/16 with a zero-shot head, as a user's own module."""

import functools
import importlib
import os
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.types import Batch, Inputs, Streams, digest_of_tensor
from heatcheck.testing.scenes import probe_for

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("HEATCHECK_SHARED", ROOT.parent / "shared"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (SHARED / "weights" / "clip_vit_b16_visual_openai_int8.safetensors").exists(),
        reason="CLIP's weights are not beside the project; HEATCHECK_SHARED names the folder that has them",
    ),
]


@pytest.fixture(scope="module")
def vit():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("vit")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def model(vit) -> hc.Model:
    torch.set_num_threads(1)
    return vit.as_model(vit.load(SHARED))


@pytest.fixture(scope="module")
def pictures(vit) -> hc.Dataset:
    return hc.load_data(f"folder:{SHARED / vit.PICTURES}", samples=20, seed=0)


def test_it_classifies_most_pictures(vit, model, pictures):
    assert vit.accuracy(model, pictures) > 0.5


def test_every_attention_and_relevance_method_gives_a_finite_map(vit, model, pictures):
    x = model.encode(pictures[1])["pixels"]
    with torch.inference_mode():
        target = model.logits(Inputs({"pixels": x})).argmax(1).clone()
    batch = Batch(Inputs({"pixels": x}), target, target, Streams(0, (digest_of_tensor(x[0]),)))
    probe = probe_for(model, forward=1, backward=1)
    for spec in vit.ATTENTION:
        heat = catalogue.build("method", spec)(probe, batch)
        assert heat.status == ("ok",), (spec, heat.status)
        assert torch.isfinite(heat.values).all() and heat.values.std() > 0, spec


def test_attention_grad_cam_is_what_the_networks_own_attention_gives(vit, model, pictures):
    """By the attention that transformers returns; the first picture's heads all speak against it, so that nothing is left."""
    network = vit.load(SHARED)
    network.tower.set_attn_implementation("eager")
    empty = []
    for picture in pictures[:2]:
        x = model.encode(picture)["pixels"]
        seen = network.tower(pixel_values=x, output_attentions=True)
        scores = 100 * F.normalize(seen.image_embeds, dim=-1) @ network.names.T
        heads = seen.attentions[-1]
        (slope,) = torch.autograd.grad(scores.max(), heads)
        weight = slope[0, :, 0, 1:].mean(1, keepdim=True)
        by_hand = (weight * heads[0, :, 0, 1:]).mean(0).relu().reshape(14, 14).detach()
        heat = hc.explain(model, x, method="attention_grad_cam").values[0]
        torch.testing.assert_close(heat, by_hand, rtol=1e-4, atol=1e-6)
        empty.append(bool((heat == 0).all()))
    assert empty == [True, False]


# -- relevance itself, operation by operation ---------------------------------------------------------------------


def affine_back(layer, x, r):
    """ε → 0 at a linear layer: x_i w_ij / z_j of what each output has."""
    return x * ((r / layer(x)) @ layer.weight)


def norm_back(layer, x, r, *, clipped=False):
    """A layer norm whose deviation is a constant: x_j gets its share of every output, in proportion.

    Clipped, a shift takes relevance only where it has the sign of the output.
    """
    g = r / layer(x) * layer.weight / (x.var(-1, correction=0, keepdim=True) + layer.eps).sqrt()
    if clipped:
        g = g * (layer(x) / (layer(x) - layer.bias)).clamp(0, 1)
    return x * (g - g.mean(-1, keepdim=True))


def split(t, heads=12):
    return t.reshape(len(t), heads, -1).transpose(0, 1)


def joined(t):
    return t.transpose(0, 1).flatten(1)


def attention_back(layer, x, r, *, constant):
    """Relevance of the tokens that attention reads; it is given that of what it writes."""
    q, k, v = (split(part(x)) for part in (layer.q_proj, layer.k_proj, layer.v_proj))
    scores = q @ k.mT / 8
    weights = scores.softmax(-1)
    mixed = weights @ v
    u = split(affine_back(layer.out_proj, joined(mixed), r)) / mixed
    if constant:
        return affine_back(layer.v_proj, x, joined(v * (weights.mT @ u)))
    of_weights = weights * (u @ v.mT) / 2
    of_scores = scores * (of_weights - weights * of_weights.sum(-1, keepdim=True))
    s = of_scores / (q @ k.mT)
    return (
        affine_back(layer.v_proj, x, joined(v * (weights.mT @ u) / 2))
        + affine_back(layer.q_proj, x, joined(q * (s @ k) / 2))
        + affine_back(layer.k_proj, x, joined(k * (s.mT @ q) / 2))
    )


def attend(layer, x):
    q, k, v = (split(part(x)) for part in (layer.q_proj, layer.k_proj, layer.v_proj))
    return layer.out_proj(joined((q @ k.mT / 8).softmax(-1) @ v))


@torch.no_grad()
def relevance(network, pixels, *, constant=False, flat=False):
    """Relevance of every pixel, by the rules of AttnLRP with ε → 0, and the norms of the patches' last tokens.

    Args:
        network: the classifier in double precision.
        pixels: one picture.
        constant: treat attention weights as constants.
        flat: spread the first layer's relevance evenly, and clip shifts, as `epsilon_plus_flat` does.

    Nothing here is differentiated and no code of the package runs: relevance goes back operation by operation.
    """
    tower, head = network.tower.vision_model, network.tower.visual_projection
    patches = F.unfold(pixels, 16, stride=16)[0].T
    kernel = tower.embeddings.patch_embedding.weight.flatten(1)
    seen = patches @ kernel.T
    tokens = torch.cat([tower.embeddings.class_embedding[None], seen]) + tower.embeddings.position_embedding.weight
    stream, passed = tower.pre_layrnorm(tokens), []
    for block in tower.encoder.layers:
        middle = stream + attend(block.self_attn, block.layer_norm1(stream))
        after = middle + block.mlp(block.layer_norm2(middle))
        passed.append((block, stream, middle, after))
        stream = after
    last = tower.post_layernorm(stream[0])
    embedding = head(last)
    cosines = embedding / embedding.norm() * network.names
    best = cosines[cosines.sum(1).argmax()]
    back = functools.partial(norm_back, clipped=flat)
    r = torch.zeros_like(stream)
    r[0] = back(tower.post_layernorm, stream[0], affine_back(head, last, 100 * best))
    for block, before, middle, after in reversed(passed):
        inner = block.mlp.fc1(block.layer_norm2(middle))
        r_mlp = affine_back(block.mlp.fc2, inner * torch.sigmoid(1.702 * inner), r * (after - middle) / after)
        r_mlp = affine_back(block.mlp.fc1, block.layer_norm2(middle), r_mlp)
        r = r * middle / after + back(block.layer_norm2, middle, r_mlp)
        read = block.layer_norm1(before)
        r_attention = attention_back(block.self_attn, read, r * (middle - before) / middle, constant=constant)
        r = r * before / middle + back(block.layer_norm1, before, r_attention)
    r = back(tower.pre_layrnorm, tokens, r)[1:] * seen / tokens[1:]
    of_pixels = r.sum(1, keepdim=True).expand_as(patches) / 768 if flat else patches * ((r / seen) @ kernel)
    return F.fold(of_pixels.T[None], 224, 16, stride=16)[0].sum(0), passed[-1][1][1:].norm(dim=-1)


@pytest.fixture(scope="module")
def slow_network(vit):
    return vit.load(SHARED).double()


@pytest.mark.parametrize(
    ("spec", "how"),
    [
        ("attn_lrp", {}),
        ("attn_lrp(variant=cp)", {"constant": True}),
        ("lrp", {"flat": True}),
        ("lrp(composite=epsilon)", {}),
    ],
)
def test_relevance_is_what_the_rules_give_operation_by_operation(model, slow_network, pictures, spec, how):
    x = model.encode(pictures[0])["pixels"]
    by_hand, _ = relevance(slow_network, x.double(), **how)
    heat = hc.explain(model, x, method=spec).values[0].double()
    torch.testing.assert_close(heat, by_hand, rtol=0, atol=1e-4 * float(by_hand.abs().max()))


def test_relevance_gathers_in_tokens_of_high_norm(model, slow_network, pictures):
    """Why the maps look as they do: CLIP keeps what is of the whole picture in a few background patches."""
    for picture in pictures[:2]:
        heat, norms = relevance(slow_network, model.encode(picture)["pixels"].double())
        patches = heat.reshape(14, 16, 14, 16).sum((1, 3)).flatten().abs()
        high = norms > 4 * norms.median()
        assert 1 <= high.sum() <= 15
        assert patches[high].mean() > 5 * patches[~high].mean()
