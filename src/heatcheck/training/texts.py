"""Learning from texts: labels, with a transformer of which all or only the last layers learn."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heatcheck.core.types import HeatcheckError, Modality, Sample
from heatcheck.data.base import Dataset
from heatcheck.models.networks import in_order_of_use
from heatcheck.models.text import TextModel
from heatcheck.models.text_description import DESCRIPTION, describe
from heatcheck.models.tokens import read_together, texts_of
from heatcheck.models.torch_model import TorchModel
from heatcheck.training.recipe import Recipe
from heatcheck.training.task import Examples, Task, generator

_POOL = 8
"""Batches that are put together from one part of the random order."""


class TextTask(Task):
    """Texts with their labels, in batches of similar length."""

    modality = Modality.TEXT

    def __init__(
        self, model: TorchModel, recipe: Recipe, learnt: Dataset, held_out: Dataset, classes: Sequence[str], **also: Any
    ) -> None:
        super().__init__(model, recipe, learnt, held_out, classes, **also)
        if not isinstance(model, TextModel):
            raise HeatcheckError(f"{model.name} has no tokenizer, so it cannot learn from texts; write hf:FOLDER")
        self.judged = sorted(self.judged, key=_length)
        self.tokenizer: Any = copy.deepcopy(model.tokenizer)  # it is used beside the model's own, in another thread
        self.in_front = model.domain.in_front
        self.longest = min(recipe.tokens, model.longest)
        self.learning = upper_part(model, recipe.layers) if recipe.layers else None

    def examples(self, rows: Sequence[int], epoch: int) -> Examples:
        return self._encoded([self.samples[i] for i in rows])

    def held_out_examples(self, rows: Sequence[int]) -> Examples:
        return self._encoded([self.judged[i] for i in rows])

    def _encoded(self, samples: Sequence[Sample]) -> Examples:
        contents = [s.content for s in samples]
        x = read_together(self.tokenizer, contents, self.longest, in_front=self.in_front)
        return Examples(x, torch.tensor([int(s.label or 0) for s in samples]))

    def batches(self, epoch: int) -> list[list[int]]:
        """The samples of an epoch in random order, in batches of similar length, the batches shuffled again."""
        rng = generator(self.recipe.seed, f"order of epoch {epoch}")
        order = torch.randperm(len(self), generator=rng).tolist()
        size = self.recipe.batch
        batches: list[list[int]] = []
        for start in range(0, len(order), _POOL * size):
            near = sorted(order[start : start + _POOL * size], key=lambda i: _length(self.samples[i]))
            batches += [near[i : i + size] for i in range(0, len(near), size)]
        return [batches[i] for i in torch.randperm(len(batches), generator=rng).tolist()]

    def prepare(self, network: nn.Module) -> None:
        """All weights learn, or those of the last layers and of what lies behind them."""
        for name, weight in network.named_parameters():
            weight.requires_grad_(self.learning is None or name in self.learning)

    def accompany(self, folder: Path) -> None:
        """Write the configuration with its class names, and the tokenizer."""
        describe(self.model.module(), self.tokenizer, self.classes, folder / DESCRIPTION)


def upper_part(model: TextModel, layers: int) -> frozenset[str]:
    """The names of the weights in a transformer's last layers, and in all that is used after them.

    Raises:
        HeatcheckError: it has no layers one behind the other, or not so many.
    """
    network = model.module()
    stacks = [(name, m) for name, m in network.named_modules() if isinstance(m, nn.ModuleList)]
    blocks = model.attention_blocks()
    attending = [
        (name, m) for name, m in stacks if all(any(b.startswith(f"{name}.{i}.") for b in blocks) for i in range(len(m)))
    ]
    name, stack = max(attending, key=lambda found: len(found[1]), default=("", nn.ModuleList()))
    if layers > len(stack):
        raise HeatcheckError(
            f"layers={layers}: {model.name} has {len(stack)} layers that could learn by themselves; write layers=0 for all"
        )
    x = model.encode(Sample("example", "", "a good film"))
    order = in_order_of_use(network, lambda: model.logits(x))
    begins = f"{name}.{len(stack) - layers}."
    first = next(place for place, module in enumerate(order) if f"{module}.".startswith(begins))
    behind = set(order[first:])
    return frozenset(weight for weight, _ in network.named_parameters() if (weight.rpartition(".")[0] or ".") in behind)


def _length(sample: Sample) -> int:
    return sum(map(len, texts_of(sample.content)))
