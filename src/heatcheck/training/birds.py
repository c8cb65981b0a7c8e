"""Learning birds, some of whose parts are missing."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from heatcheck.core.types import Sample
from heatcheck.data.birds.classes import possible_classes, random_removal
from heatcheck.data.birds.render import picture_of
from heatcheck.data.birds.source import BirdReference
from heatcheck.data.images import decode_image
from heatcheck.training.pictures import PictureTask


class BirdTask(PictureTask):
    """Birds with their classes; where parts are missing, all classes that the others allow are right alike.

    Drawn birds are painted without parts that are chosen anew in every epoch. Pictures of FunnyBirds are as they were
    rendered: from some of those to learn from, parts are missing.

    Paper: hesse2023.
    """

    def shown(self, sample: Sample, rng: torch.Generator) -> tuple[Image.Image, Sequence[int]]:
        label, known = int(sample.label or 0), sample.reference
        if isinstance(known, BirdReference):
            draws = np.random.default_rng(int(torch.randint(1 << 62, (), generator=rng)))
            removed = random_removal(draws, self.recipe.remove)
            picture = decode_image(picture_of(known.split, known.index, removed))
            return self.augment(picture, rng), possible_classes(label, removed)
        return self.augment(decode_image(sample.content), rng), known.get("possible", (label,))

    def targets(self, labels: Sequence[Sequence[int]]) -> Float[Tensor, "n c"]:
        """Equal probabilities of all possible classes."""
        target = torch.zeros(len(labels), len(self.classes))
        for row, possible in zip(target, labels, strict=True):
            row[list(possible)] = 1 / len(possible)
        return target
