"""Augmentation: random crops and mirrored pictures, as the papers' training scripts make them.

A picture's draws belong to its own random stream: the same seed, epoch and picture give the same crop.
"""

import math
from collections.abc import Callable

import torch
from PIL import Image, ImageOps

from heatcheck.models.preprocess import CROP, Preprocess
from heatcheck.training.recipe import Recipe

Augment = Callable[[Image.Image, torch.Generator], Image.Image]
_RATIO = (3 / 4, 4 / 3)
_TRIES = 10


def augmentation(recipe: Recipe, preprocess: Preprocess) -> Augment:
    """What a recipe does to a picture; the result has the size that the model takes."""
    crop: dict[str, Augment] = {
        "none": lambda picture, rng: preprocess.fitted(picture),
        "crop": lambda picture, rng: random_crop(scaled(picture, preprocess), preprocess, rng),
        "pad_crop": lambda picture, rng: random_crop(padded(preprocess.fitted(picture)), preprocess, rng),
        "resized_crop": lambda picture, rng: resized_crop(picture, preprocess, rng, smallest=recipe.scale),
    }
    chosen = crop[recipe.augment]
    if not recipe.flip:
        return chosen
    return lambda picture, rng: flipped(chosen(picture, rng), rng)


def resized_crop(picture: Image.Image, preprocess: Preprocess, rng: torch.Generator, *, smallest: float) -> Image.Image:
    """A part of random area and proportions, scaled to the model's size; after ten misses the centre.

    As torchvision's RandomResizedCrop: the area is uniform between `smallest` and 1, the logarithm of the proportions
    between those of 3 : 4 and 4 : 3.
    """
    height, width = preprocess.size
    area = picture.width * picture.height
    for _ in range(_TRIES):
        wanted = area * _uniform(smallest, 1.0, rng)
        ratio = math.exp(_uniform(math.log(_RATIO[0]), math.log(_RATIO[1]), rng))
        w, h = round(math.sqrt(wanted * ratio)), round(math.sqrt(wanted / ratio))
        if 0 < w <= picture.width and 0 < h <= picture.height:
            left, top = _below(picture.width - w + 1, rng), _below(picture.height - h + 1, rng)
            return picture.resize((width, height), preprocess.filter, box=(left, top, left + w, top + h))
    return picture.resize((width, height), preprocess.filter, box=_centre(picture))


def scaled(picture: Image.Image, preprocess: Preprocess) -> Image.Image:
    """The picture with a shorter side of 8/7 of the model's: 256 pixels for 224."""
    height, width = preprocess.size
    short = int(min(height, width) / CROP)
    factor = max(short / min(picture.size), width / picture.width, height / picture.height)
    size = (max(width, round(picture.width * factor)), max(height, round(picture.height * factor)))
    return picture if size == picture.size else picture.resize(size, preprocess.filter)


def padded(picture: Image.Image) -> Image.Image:
    """The picture with a black border of an eighth of its side: 4 pixels for 32."""
    return ImageOps.expand(picture, border=max(1, min(picture.size) // 8))


def random_crop(picture: Image.Image, preprocess: Preprocess, rng: torch.Generator) -> Image.Image:
    """A part of the model's size at a random place."""
    height, width = preprocess.size
    left, top = _below(picture.width - width + 1, rng), _below(picture.height - height + 1, rng)
    return picture.crop((left, top, left + width, top + height))


def flipped(picture: Image.Image, rng: torch.Generator) -> Image.Image:
    """The picture, mirrored with probability one half."""
    return ImageOps.mirror(picture) if _below(2, rng) else picture


def _centre(picture: Image.Image) -> tuple[int, int, int, int]:
    """The largest part in the middle whose proportions are allowed."""
    width = min(picture.width, round(picture.height * _RATIO[1]))
    height = min(picture.height, round(picture.width / _RATIO[0]))
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    return left, top, left + width, top + height


def _uniform(low: float, high: float, rng: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=rng, dtype=torch.float64))


def _below(n: int, rng: torch.Generator) -> int:
    return int(torch.randint(n, (), generator=rng))
