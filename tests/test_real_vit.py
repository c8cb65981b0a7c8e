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
    x = model.encode(pictures[0])["pixels"]
    with torch.inference_mode():
        target = model.logits(Inputs({"pixels": x})).argmax(1).clone()
    batch = Batch(Inputs({"pixels": x}), target, target, Streams(0, (digest_of_tensor(x[0]),)))
    probe = probe_for(model, forward=1, backward=1)
    for spec in vit.ATTENTION:
        heat = catalogue.build("method", spec)(probe, batch)
        assert heat.status == ("ok",), (spec, heat.status)
        assert torch.isfinite(heat.values).all(), spec
        assert heat.values.std() > 0 or spec == "attention_grad_cam", spec  # whose ReLU may leave nothing
