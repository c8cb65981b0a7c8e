"""Stable Diffusion's inpainting, which paints what a prompt says."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, UInt8

from heatcheck.core.extras import require
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError, NotApplicable
from heatcheck.fills.base import fill
from heatcheck.fills.painting import Painter
from heatcheck.models.vision_shim import load_transformers, without_bars

_KINDS = ("*.json", "*.txt", "*.safetensors")
_INDEX = "model_index.json"


@fill("diffusion", on=("image",), needs=("weights",), host=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class Diffusion(Painter):
    """What a text-guided diffusion model paints into the hole; `inpainting` gives it a class to paint.

    Picture and hole are resized to a square and the result is resized back; pixels outside the hole stay as they are.
    Only safetensors are read, no code that comes with a model is run, and nothing is downloaded.

    Args:
        model: a folder, or a Hugging Face id whose files are already in the local cache.
        prompt: what to paint.
        steps: DDIM steps.
        guidance: how strongly the prompt is followed (classifier-free guidance).
        size: side of the square that is painted, in pixels.
        seed: of the noise that painting starts from.

    Paper: rombach2022, cohen2025.  Differs: no safety checker; what lay in the hole is covered first.
    Cost per sample: no passes; 2 · `steps` passes of the diffusion network per hole, painted once for all models.
    """

    model: str = "stable-diffusion-v1-5/stable-diffusion-inpainting"
    prompt: str = ""
    steps: int = 50
    guidance: float = 7.5
    size: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("guidance", "seed"):
            if not getattr(self, name) >= 0:
                raise SpecError(f"fill diffusion: {name}={getattr(self, name)!r} cannot be negative")
        if self.size < 8 or self.size % 8:
            raise SpecError(f"fill diffusion: size={self.size} must be a multiple of 8")

    def place(self) -> str:
        return "model"

    def files(self) -> list[Path]:
        folder = _folder(self.model)
        there = (path for kind in _KINDS for path in folder.rglob(kind))
        found = sorted(path for path in there if "safety_checker" not in path.relative_to(folder).parts)
        if not any(path.suffix == ".safetensors" for path in found):
            raise NotApplicable(f"diffusion: {folder} has no weights as safetensors; others are not read")
        return found

    def paint(self, rgb: UInt8[np.ndarray, "h w 3"], hole: Bool[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w 3"]:
        from PIL import Image

        square = (self.size, self.size)
        picture = Image.fromarray(rgb).resize(square, Image.Resampling.BICUBIC)
        repaint = Image.fromarray(np.where(hole, 255, 0).astype(np.uint8)).resize(square, Image.Resampling.NEAREST)
        painted = _pipeline(_folder(self.model))(
            prompt=self.prompt,
            image=picture,
            mask_image=repaint,
            height=self.size,
            width=self.size,
            strength=1.0,
            num_inference_steps=self.steps,
            guidance_scale=self.guidance,
            generator=torch.Generator().manual_seed(self.seed),
        ).images[0]
        return np.asarray(painted.resize(rgb.shape[1::-1], Image.Resampling.BICUBIC).convert("RGB"))


def _folder(model: str) -> Path:
    """Where the model's files are; nothing is downloaded."""
    require("fill diffusion", "diffusers", "transformers", extra="diffusion")
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / _INDEX).is_file():
            raise NotApplicable(f"diffusion: {folder} has no {_INDEX}, so it is not a diffusers pipeline")
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=list(_KINDS), local_files_only=True))
    except Exception as problem:
        raise NotApplicable(
            f"diffusion: {model!r} is neither a folder nor in the local cache of Hugging Face; get it with "
            f"hf download {model} --include '*.json' '*.txt' '*.safetensors' (its licence is on its page), "
            "or name a folder as diffusion(model=…)"
        ) from problem


@lru_cache(maxsize=1)
def _pipeline(folder: Path) -> Any:
    """The pipeline with DDIM and without a safety checker; loading draws from no global generator."""
    load_transformers()
    from diffusers import DDIMScheduler, StableDiffusionInpaintPipeline
    from diffusers.utils import logging

    logging.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]), without_bars():
            load: Any = StableDiffusionInpaintPipeline.from_pretrained
            pipeline = load(
                str(folder),
                use_safetensors=True,
                local_files_only=True,
                safety_checker=None,
                requires_safety_checker=False,
            ).to(torch.float32)
    except Exception as problem:
        raise HeatcheckError(f"diffusion: {folder} cannot be loaded as an inpainting pipeline ({problem})") from problem
    scheduler: Any = DDIMScheduler
    pipeline.scheduler = scheduler.from_config(pipeline.scheduler.config)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
