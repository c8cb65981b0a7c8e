"""Learning from pictures whose most relevant pixels are replaced, or whose other pixels are (ROAR, KAR)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image

from heatcheck.core.types import HeatcheckError, Inputs, Sample, digest_of
from heatcheck.data.base import Dataset
from heatcheck.data.images import decode_image
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.torch_model import TorchModel
from heatcheck.training.augment import augmentation
from heatcheck.training.masks import TopMasks
from heatcheck.training.pictures import PictureTask
from heatcheck.training.recipe import Recipe
from heatcheck.training.task import Examples

WHITE = 255
HELD = 1 << 28
"""Bytes of modified pictures that are kept for the next epoch."""


class MaskedTask(PictureTask):
    """Pictures with their labels, of which the top `level` percent of a map is replaced by the mean colour.

    Pictures to learn from and held-out ones alike: first the picture as the explained model saw it, then the replacement,
    then crops and flips. With `keep_top` the top is kept and the rest replaced. With `masks_only` the network sees which
    pixels are left and nothing else: white where they are, black where they were replaced.

    Args:
        model: the model that learns.
        recipe: how it learns.
        learnt: the samples to learn from.
        held_out: the samples to judge it by.
        classes: class names.
        masks: the top of each picture's map; needed unless nothing is replaced.

    Paper: hooker2019.  Differs: whole pixels by default, not each of their three scalars; the mean is that of the samples
        that are learnt from, rounded to 8 bits.
    """

    def __init__(
        self,
        model: TorchModel,
        recipe: Recipe,
        learnt: Dataset,
        held_out: Dataset,
        classes: Sequence[str],
        *,
        masks: TopMasks | None = None,
    ) -> None:
        super().__init__(model, recipe, learnt, held_out, classes)
        seen, (height, width) = self.preprocess, self.preprocess.size
        self._held: dict[str, Image.Image] = {}
        self._room = HELD // (height * width * 3)
        self.masks = checked_masks(recipe, masks, (height, width))
        self.augment = augmentation(recipe, seen if seen.resize is None else replace(seen, resize=min(height, width)))

    def data_identity(self) -> str:
        """A digest of all samples, and of the masks."""
        return self._identity if self.masks is None else digest_of(self._identity, self.masks.digest)

    def shown(self, sample: Sample, rng: torch.Generator) -> tuple[Image.Image, int]:
        return self.augment(self.modified(sample), rng), int(sample.label or 0)

    def held_out_examples(self, rows: Sequence[int]) -> Examples:
        samples = [self.judged[i] for i in rows]
        x = Inputs({"pixels": torch.cat([self.preprocess.colours(self.modified(s)) for s in samples])})
        return Examples(x, torch.tensor([int(s.label or 0) for s in samples]))

    def modified(self, sample: Sample) -> Image.Image:
        """A picture in the model's size with the mean colour where the recipe wants it, or the mask alone."""
        found = self._held.get(sample.digest)
        if found is None:
            found = self._modified(sample)
            if len(self._held) < self._room:
                self._held[sample.digest] = found
        return found

    def _modified(self, sample: Sample) -> Image.Image:
        picture = self.preprocess.fitted(decode_image(sample.content))
        if self.masks is None:
            return picture
        top = self.masks.top(sample.digest)
        gone = ~top if self.recipe.keep_top else top
        if self.recipe.masks_only:
            return Image.fromarray(np.broadcast_to(np.where(gone, 0, WHITE), (*gone.shape[:2], 3)).astype(np.uint8))
        return Image.fromarray(replaced_pixels(np.asarray(picture), gone, self.masks.colour))


def replaced_pixels(
    pixels: UInt8[np.ndarray, "h w 3"], gone: np.ndarray, colour: tuple[int, int, int]
) -> UInt8[np.ndarray, "h w 3"]:
    """A picture with a colour in some of its places.

    >>> replaced_pixels(np.full((1, 2, 3), 9, np.uint8), np.array([[[True], [False]]]), (1, 2, 3)).tolist()
    [[[1, 2, 3], [9, 9, 9]]]
    """
    return np.where(gone, np.array(colour, dtype=np.uint8), pixels)


def mean_colour(samples: Sequence[Sample], preprocess: Preprocess) -> tuple[int, int, int]:
    """The mean of each channel over pictures as a model sees them, in 8 bits."""
    total = np.zeros(3)
    for sample in samples:
        total += np.asarray(preprocess.fitted(decode_image(sample.content)), dtype=np.float64).mean((0, 1))
    red, green, blue = (round(v) for v in (total / len(samples)).tolist())
    return red, green, blue


def checked_masks(recipe: Recipe, masks: TopMasks | None, size: tuple[int, int]) -> TopMasks | None:
    """The masks that a recipe needs.

    Raises:
        HeatcheckError: there are none, or they are of another level, size or kind.
    """
    if masks is None:
        if recipe.level or recipe.keep_top or recipe.masks_only:
            raise HeatcheckError(
                f"recipe {recipe.id} replaces pixels by their relevance, and needs the maps of all pictures: "
                "`heatcheck roar --model … --data … --methods … --out …` makes them and trains"
            )
        return None
    wanted = {"level": recipe.level, "granularity": recipe.granularity, "size": size}
    for name, found in {"level": masks.level, "granularity": masks.granularity, "size": masks.shape[:2]}.items():
        if found != wanted[name]:
            raise HeatcheckError(f"recipe {recipe.id} has {name} {wanted[name]}, but its masks have {found}")
    return masks
