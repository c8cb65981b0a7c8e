"""Diffusion's road, on a pipeline of toy size with random weights."""

import json
import sys
import warnings

import numpy as np
import pytest
import torch

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError, NotApplicable
from heatcheck.fills.painting import PAINTINGS
from heatcheck.models.vision_shim import load_transformers
from heatcheck.testing import linear, toy_batch
from heatcheck.testing.watch import global_randomness

MUTANTS = (
    (
        "fills/diffusion.py",
        "np.where(hole, 255, 0)",
        "np.where(hole, 0, 255)",
        "test_agrees_with_the_pipeline_called_by_hand",
    ),
    (
        "fills/diffusion.py",
        "manual_seed(self.seed)",
        "manual_seed(0)",
        "test_prompt_seed_and_guidance_decide_what_is_painted",
    ),
    ("fills/diffusion.py", "prompt=self.prompt,", 'prompt="",', "test_prompt_seed_and_guidance_decide_what_is_painted"),
)
MODEL = linear((3, 16, 24))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A pipeline whose parts are as small as their classes allow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load_transformers()
        from diffusers import AutoencoderKL, PNDMScheduler, StableDiffusionInpaintPipeline, UNet2DConditionModel
        from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

        folder = tmp_path_factory.mktemp("tiny")
        letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
        words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{c}</w>" for c in letters)]
        (folder / "vocab.json").write_text(json.dumps({w: i for i, w in enumerate(words)}))
        (folder / "merges.txt").write_text("#version: 0.2\n")
        tokenizer = CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=16)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            text = CLIPTextConfig(
                vocab_size=len(words), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                max_position_embeddings=16, bos_token_id=0, eos_token_id=1, pad_token_id=1,
            )  # fmt: skip
            pipeline = StableDiffusionInpaintPipeline(
                vae=AutoencoderKL(
                    block_out_channels=(8, 8), norm_num_groups=4, layers_per_block=1,
                    down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
                ),
                text_encoder=CLIPTextModel(text),
                tokenizer=tokenizer,
                unet=UNet2DConditionModel(
                    sample_size=8, in_channels=9, out_channels=4, block_out_channels=(8, 8), layers_per_block=1,
                    norm_num_groups=4, cross_attention_dim=8, attention_head_dim=2,
                    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                    up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
                ),
                scheduler=PNDMScheduler(skip_prk_steps=True, steps_offset=1),
                safety_checker=None,
                feature_extractor=None,
                requires_safety_checker=False,
            )  # fmt: skip
        pipeline.save_pretrained(folder / "pipeline", safe_serialization=True)
    return folder / "pipeline"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HEATCHECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    PAINTINGS.forget()


def spec_of(tiny, **more):
    given = "".join(f", {k}={json.dumps(v)}" for k, v in more.items())
    return f'diffusion(model="{tiny}", steps=2, size=16{given})'


def erased(spec, batch, keep):
    unit = catalogue.build("fill", spec).resolve(MODEL.domain)
    return unit.erase(MODEL.domain, batch.x, keep, batch.x)["pixels"]


def halves(batch):
    n, _, h, w = batch.x["pixels"].shape
    return (torch.arange(w) < w // 2).expand(n, h, w).reshape(n, -1)


def test_kept_pixels_stay_and_the_hole_is_painted(tiny):
    batch = toy_batch(MODEL, 2)
    got = erased(spec_of(tiny), batch, halves(batch))
    assert torch.equal(got[..., :12], batch.x["pixels"][..., :12])
    assert got[..., 12:].std() > 0.01 and not torch.equal(got[..., 12:], batch.x["pixels"][..., 12:])
    assert torch.equal(erased(spec_of(tiny), batch, torch.ones_like(halves(batch))), batch.x["pixels"])


def test_agrees_with_the_pipeline_called_by_hand(tiny):
    from diffusers import DDIMScheduler, StableDiffusionInpaintPipeline
    from PIL import Image

    from heatcheck.fills.painting import covered

    batch = toy_batch(MODEL, 1)
    keep = halves(batch)
    got = erased(spec_of(tiny, prompt="a cat", seed=3, guidance=2.0), batch, keep)[0]
    pipeline = StableDiffusionInpaintPipeline.from_pretrained(tiny, safety_checker=None)
    pipeline.scheduler = DDIMScheduler.from_config(pipeline.scheduler.config)
    pipeline.set_progress_bar_config(disable=True)
    rgb = ((batch.x["pixels"][0] * 0.25 + 0.5).clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    hole = ~keep[0].reshape(16, 24).numpy()
    out = pipeline(
        prompt="a cat",
        image=Image.fromarray(covered(rgb, hole)).resize((16, 16), Image.Resampling.BICUBIC),
        mask_image=Image.fromarray((hole * 255).astype(np.uint8)).resize((16, 16), Image.Resampling.NEAREST),
        height=16,
        width=16,
        num_inference_steps=2,
        guidance_scale=2.0,
        generator=torch.Generator().manual_seed(3),
    ).images[0]
    painted = torch.from_numpy(np.asarray(out.resize((24, 16), Image.Resampling.BICUBIC)).copy()).permute(2, 0, 1)
    expected = (painted.double() / 255 - 0.5) / 0.25
    torch.testing.assert_close(got[:, :, 12:], expected[:, :, 12:])


def test_prompt_seed_and_guidance_decide_what_is_painted(tiny):
    batch = toy_batch(MODEL, 1)
    keep = halves(batch)
    plain = erased(spec_of(tiny, prompt="cat"), batch, keep)
    PAINTINGS.forget()
    assert torch.equal(erased(spec_of(tiny, prompt="cat"), batch, keep), plain)
    for other in ({"prompt": "dog"}, {"prompt": "cat", "seed": 1}, {"prompt": "cat", "guidance": 1.0}):
        assert not torch.equal(erased(spec_of(tiny, **other), batch, keep), plain)


def test_neighbours_do_not_matter_and_global_randomness_is_untouched(tiny):
    batch = toy_batch(MODEL, 3)
    keep = halves(batch)
    before = global_randomness()
    together = erased(spec_of(tiny), batch, keep)
    assert global_randomness() == before
    PAINTINGS.forget()
    assert torch.equal(erased(spec_of(tiny), batch.take([1]), keep[:1]), together[1:2])


def test_everything_deleted_is_one_picture_for_all(tiny):
    batch = toy_batch(MODEL, 2)
    full = catalogue.build("fill", spec_of(tiny, prompt="cat")).full(MODEL.domain, batch)["pixels"]
    assert torch.isfinite(full).all() and torch.equal(full[0], full[1])


def test_what_cannot_be_had_is_a_reason(tiny, tmp_path, monkeypatch):
    def refused(spec):
        with pytest.raises(NotApplicable) as problem:
            catalogue.build("fill", spec).resolve(MODEL.domain)
        return str(problem.value)

    assert "hf download nobody/nothing --include" in refused('diffusion(model="nobody/nothing")')
    assert "has no model_index.json" in refused(f'diffusion(model="{tmp_path}")')
    (tmp_path / "model_index.json").write_text("{}")
    assert "no weights as safetensors" in refused(f'diffusion(model="{tmp_path}")')
    (tmp_path / "x.safetensors").write_bytes(b"")
    batch = toy_batch(MODEL, 1)
    with pytest.raises(HeatcheckError, match="cannot be loaded as an inpainting pipeline"):
        erased(f'diffusion(model="{tmp_path}")', batch, halves(batch))
    monkeypatch.setitem(sys.modules, "diffusers", None)
    assert 'needs diffusers, which is not installed: pip install "heatcheck[diffusion]"' in refused(spec_of(tiny))


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ("size=500", "size=500 must be a multiple of 8"),
        ("size=0", "multiple of 8"),
        ("guidance=-1", "guidance=-1.0 cannot be negative"),
        ("seed=-1", "seed=-1 cannot be negative"),
        ("steps=0", "steps=0 must be at least 1"),
    ],
)
def test_bad_parameters_are_refused(params, says):
    with pytest.raises(SpecError, match=says):
        catalogue.build("fill", f"diffusion({params})")
