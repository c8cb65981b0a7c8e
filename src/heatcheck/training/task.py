"""What a network is taught: examples to learn from, and held-out ones to judge it by."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from heatcheck.core.types import HeatcheckError, Inputs, Modality, Sample, digest_of
from heatcheck.data.base import Dataset
from heatcheck.models.base import Model
from heatcheck.models.torch_model import TorchModel
from heatcheck.training.recipe import Recipe


@dataclass(frozen=True)
class Examples:
    """Inputs of a network, and what it should answer.

    Args:
        x: the inputs.
        target: a class for each, or a probability for each class.
    """

    x: Inputs
    target: Int[Tensor, " n"] | Float[Tensor, "n c"]

    def __len__(self) -> int:
        return len(self.target)

    def take(self, rows: slice) -> "Examples":
        """Some of them."""
        return Examples(self.x.take(rows), self.target[rows])

    def to(self, device: torch.device) -> "Examples":
        """The same on a device."""
        return Examples(self.x.to(device), self.target.to(device))


class Task(ABC):
    """Examples of one kind. What it gives depends on seed, epoch and sample alone, never on what was asked before.

    Args:
        model: the model that learns; it knows how its network is called.
        recipe: how it learns.
        learnt: the samples to learn from.
        held_out: the samples to judge it by.
        classes: class names.
    """

    modality: ClassVar[Modality] = Modality.IMAGE
    """What its samples are."""
    own_classes: ClassVar[tuple[str, ...]] = ()
    """The classes that it teaches, whatever those of its data; empty where the data decide."""

    @classmethod
    def fitting(cls, model: Model) -> Model:
        """The model as it should read this task's samples."""
        return model

    @classmethod
    def judged_on(cls, data: Any) -> Any:
        """The held-out samples, as the task needs them."""
        return data

    def __init__(
        self, model: TorchModel, recipe: Recipe, learnt: Dataset, held_out: Dataset, classes: Sequence[str], **also: Any
    ) -> None:
        if also:
            raise HeatcheckError(f"recipe {recipe.id} needs no {', '.join(also)}")
        self.model, self.recipe, self.classes = model, recipe, tuple(classes)
        self.samples: Sequence[Sample] = readable(learnt, len(classes))
        self.judged: Sequence[Sample] = readable(held_out, len(classes)) if len(held_out) else ()
        self._identity = digest_of(learnt.identity(), held_out.identity())

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def held_out(self) -> int:
        """How many samples are held out."""
        return len(self.judged)

    def data_identity(self) -> str:
        """A digest of all that it is made of."""
        return self._identity

    @abstractmethod
    def examples(self, rows: Sequence[int], epoch: int) -> Examples:
        """Samples to learn from, as they are shown in an epoch."""

    @abstractmethod
    def held_out_examples(self, rows: Sequence[int]) -> Examples:
        """Held-out samples, as they are."""

    def prepare(self, network: nn.Module) -> None:
        """Decide which weights learn: all of them, unless a task knows better."""
        network.requires_grad_(True)

    def accompany(self, folder: Path) -> None:  # noqa: B027 - most models need nothing
        """Write what a model needs beside its weights, such as a tokenizer, into a training's folder."""

    def batches(self, epoch: int) -> list[list[int]]:
        """The samples of an epoch in random order, in batches; a last batch of one sample is left out."""
        rng = generator(self.recipe.seed, f"order of epoch {epoch}")
        order = torch.randperm(len(self), generator=rng).tolist()
        size = self.recipe.batch
        batches = [order[i : i + size] for i in range(0, len(order), size)]
        return batches[:-1] if len(batches) > 1 and len(batches[-1]) == 1 else batches

    def scores(self, network: nn.Module, x: Inputs) -> Float[Tensor, "n c"]:
        """The network's class scores."""
        return self.model.read(self.model.call(network, x), len(x))

    def loss(self, scores: Float[Tensor, "n c"], target: Tensor) -> Float[Tensor, ""]:
        """The mean loss of some examples."""
        if self.recipe.loss == "bce":
            wanted = target if target.is_floating_point() else F.one_hot(target, scores.shape[1])
            return F.binary_cross_entropy_with_logits(scores, wanted.to(scores.dtype))
        return F.cross_entropy(scores, target)

    def right(self, scores: Float[Tensor, "n c"], target: Tensor) -> Bool[Tensor, " n"]:
        """Which answers are right: the class, or one that is possible."""
        answer = scores.argmax(1)
        if target.is_floating_point():
            return target.gather(1, answer[:, None])[:, 0] > 0
        return answer == target


def generator(seed: int, purpose: str) -> torch.Generator:
    """Random numbers for one purpose of a training."""
    return torch.Generator().manual_seed(int(digest_of(f"{seed}", purpose)[:15], 16))


def readable(data: Dataset, classes: int) -> tuple[Sample, ...]:
    """The samples of a data set; all of them must be readable, and have a label.

    Raises:
        HeatcheckError: one is not, or has a label that is no class.
    """
    for sample in data:
        if sample.problem is not None:
            raise HeatcheckError(
                f"sample {sample.name!r} of {data.name!r} cannot be read: {sample.problem}; mend or remove it"
            )
        if sample.label is None:
            raise HeatcheckError(
                f"sample {sample.name!r} of {data.name!r} has no label, so nothing can be learnt from it"
            )
        if not 0 <= sample.label < classes:
            raise HeatcheckError(
                f"sample {sample.name!r} of {data.name!r} has the label {sample.label}, but there are {classes} classes"
            )
    return data.samples
