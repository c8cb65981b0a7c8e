"""Learning which pictures carry a yellow square."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image

from heatcheck.core.types import HeatcheckError, Sample
from heatcheck.data.base import Dataset
from heatcheck.data.images import decode_image
from heatcheck.data.squares import CLASSES, YELLOW, square_side
from heatcheck.models.base import Model
from heatcheck.models.torch_model import TorchModel
from heatcheck.models.vision import VisionModel
from heatcheck.training.pictures import PictureTask
from heatcheck.training.recipe import Recipe

_SOURCE = "squares:"


class SquareTask(PictureTask):
    """Pictures of any labels, of which some get a yellow square at a random place; the class is whether they have one.

    The square's side is 60 of 224 pixels, scaled with the picture, and every place inside the picture is equally
    likely. It is drawn on what the augmentation leaves, so that it is always whole. Held-out pictures come from
    `squares:SOURCE`, where the square stands on a lattice.

    Paper: li2023.
    """

    own_classes = CLASSES

    @classmethod
    def fitting(cls, model: Model) -> Model:
        """The model without its centre crop, which would cut off squares at the border."""
        preprocess = model._preprocess if isinstance(model, VisionModel) else None
        if not isinstance(model, VisionModel) or preprocess is None or preprocess.resize is None:
            return model
        height, width = preprocess.size
        return model.seeing(replace(preprocess, resize=min(height, width)))

    @classmethod
    def judged_on(cls, data: Any) -> Any:
        return f"{_SOURCE}{data}" if isinstance(data, str) and not data.startswith(_SOURCE) else data

    def __init__(
        self, model: TorchModel, recipe: Recipe, learnt: Dataset, held_out: Dataset, classes: Sequence[str], **also: Any
    ) -> None:
        if any("boxes" in sample.reference for sample in learnt) and learnt.classes == CLASSES:
            raise HeatcheckError(
                f"{learnt.name!r} has squares already, and they are drawn anew while a network learns: "
                "give the plain pictures, without squares:"
            )
        plain = replace(learnt, samples=tuple(replace(s, label=0) for s in learnt))  # labels of their own do not count
        super().__init__(model, recipe, plain, held_out, classes, **also)

    def shown(self, sample: Sample, rng: torch.Generator) -> tuple[Image.Image, int]:
        picture = self.augment(decode_image(sample.content), rng)
        if torch.rand((), generator=rng, dtype=torch.float64) >= self.recipe.square:
            return picture, 0
        left, top, right, bottom = random_square(picture.size, rng)
        pixels = np.array(picture)
        pixels[top:bottom, left:right] = YELLOW
        return Image.fromarray(pixels), 1


def random_square(picture: tuple[int, int], rng: torch.Generator) -> tuple[int, int, int, int]:
    """The box of a square anywhere inside a picture of a given width and height."""
    side = square_side(min(picture))
    left, top = (int(torch.randint(n - side + 1, (), generator=rng)) for n in picture)
    return left, top, left + side, top + side
