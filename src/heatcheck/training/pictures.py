"""Learning from pictures: labels, with augmentation and single deletions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.types import Batch, HeatcheckError, Inputs, Sample, Streams
from heatcheck.data.base import Dataset
from heatcheck.data.images import decode_image
from heatcheck.domain.base import Domain
from heatcheck.fills.base import Fill
from heatcheck.models.preprocess import SAY_IT, Preprocess
from heatcheck.models.torch_model import TorchModel
from heatcheck.models.vision import VisionModel
from heatcheck.training.augment import augmentation
from heatcheck.training.recipe import Recipe
from heatcheck.training.task import Examples, Task


class PictureTask(Task):
    """Pictures with their labels, cropped at random, some with a deleted cell."""

    def __init__(
        self, model: TorchModel, recipe: Recipe, learnt: Dataset, held_out: Dataset, classes: Sequence[str], **also: Any
    ) -> None:
        super().__init__(model, recipe, learnt, held_out, classes, **also)
        self.preprocess = preprocess_of(model)
        self.augment = augmentation(recipe, self.preprocess)
        self.deletion = SingleCell.of(recipe, model.domain) if recipe.delete else None

    def examples(self, rows: Sequence[int], epoch: int) -> Examples:
        samples = [self.samples[i] for i in rows]
        streams = Streams(self.recipe.seed, tuple(s.digest for s in samples)).derive(f"epoch {epoch}")
        shown = [self.shown(s, streams.generator(i, "augment")) for i, s in enumerate(samples)]
        x = Inputs({"pixels": torch.cat([self.preprocess.colours(picture) for picture, _ in shown])})
        target = self.targets([label for _, label in shown])
        if self.deletion is not None:
            labels = torch.zeros(len(samples), dtype=torch.long)
            x = self.deletion(Batch(x, labels, labels, streams))
        return Examples(x, target)

    def targets(self, labels: Sequence[Any]) -> Tensor:
        """What should be answered, from what `shown` says."""
        return torch.tensor(labels)

    def shown(self, sample: Sample, rng: torch.Generator) -> tuple[Image.Image, Any]:
        """A sample as it is shown once, in the model's size, and its label."""
        return self.augment(decode_image(sample.content), rng), int(sample.label or 0)

    def held_out_examples(self, rows: Sequence[int]) -> Examples:
        samples = [self.judged[i] for i in rows]
        x = Inputs.cat([self.model.encode(s) for s in samples])
        return Examples(x, torch.tensor([int(s.label or 0) for s in samples]))


@dataclass(frozen=True)
class SingleCell:
    """Deletes one cell of a grid, with a probability: each of the g² cells equally often.

    With probability one half, every cell is deleted as often as it is when SDS is measured: the whole picture and its
    16 deletions come 16 : 1 : … : 1.

    Args:
        domain: pictures as the model takes them.
        units: the grid.
        fill: what replaces the cell, as in the metric.
        probability: of a deletion.

    Paper: hesse2024.
    """

    domain: Domain
    units: str
    fill: Fill
    probability: float

    @classmethod
    def of(cls, recipe: Recipe, domain: Domain) -> "SingleCell":
        """The deletion of a recipe."""
        fill: Fill = catalogue.build("fill", recipe.fill).resolve(domain)
        return cls(domain, f"grid({recipe.grid})", fill, recipe.delete)

    def __call__(self, batch: Batch) -> Inputs:
        """The inputs, some of them with a deleted cell."""
        units = self.domain.units(self.units, batch.x)
        cell = self.cells(batch.streams, units.width)
        keep = units.index != cell[:, None]
        return self.fill.erase(self.domain, batch.x, keep, self.fill.full(self.domain, batch))

    def cells(self, streams: Streams, cells: int) -> Float[Tensor, " b"]:
        """The cell that is deleted of each sample; one that there is not where nothing is."""

        def draw(rng: torch.Generator) -> Tensor:
            spared = torch.rand((), generator=rng, dtype=torch.float64) >= self.probability
            return torch.where(spared, cells, torch.randint(cells, (), generator=rng))

        return streams.draw("cell", draw)


def preprocess_of(model: TorchModel) -> Preprocess:
    """What a model does to pictures.

    Raises:
        HeatcheckError: it is not known.
    """
    found = model._preprocess if isinstance(model, VisionModel) else None
    if found is None:
        raise HeatcheckError(f"{model.name} cannot learn from pictures: its preprocessing is not known; {SAY_IT}")
    return found
