"""The real vision transformer beside the project, CLIP's ViT-B/16 with a zero-shot head, as a user's own module."""

import importlib
import os
import sys
from pathlib import Path

import pytest
import torch

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
        scores = 100 * torch.nn.functional.normalize(seen.image_embeds, dim=-1) @ network.names.T
        heads = seen.attentions[-1]
        (slope,) = torch.autograd.grad(scores.max(), heads)
        weight = slope[0, :, 0, 1:].mean(1, keepdim=True)
        by_hand = (weight * heads[0, :, 0, 1:]).mean(0).relu().reshape(14, 14).detach()
        heat = hc.explain(model, x, method="attention_grad_cam").values[0]
        torch.testing.assert_close(heat, by_hand, rtol=1e-4, atol=1e-6)
        empty.append(bool((heat == 0).all()))
    assert empty == [True, False]
