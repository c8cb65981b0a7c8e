"""Optimizers and learning rates of recipes."""

import math

import torch
from torch import nn

from heatcheck.training.recipe import Recipe

_NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)


def learning_rate(recipe: Recipe, step: int, steps: int, steps_per_epoch: int) -> float:
    """The rate of a step, of `steps` in all: a function of the step alone, so that it needs no state.

    It rises linearly over the first share of the steps, if the recipe says so, and then follows its schedule.

    >>> from heatcheck.training.recipe import load_recipe
    >>> [round(learning_rate(load_recipe("align"), epoch * 5, 150, 5), 6) for epoch in (0, 9, 10, 29)]
    [0.001, 0.001, 0.0001, 1e-05]
    """
    rising = round(recipe.warmup * steps)
    if step < rising:
        return recipe.lr * (step + 1) / rising
    if recipe.schedule == "step":
        return recipe.lr * recipe.gamma ** (step // steps_per_epoch // recipe.step)
    share = (step - rising) / max(1, steps - rising)
    if recipe.schedule == "linear":
        return recipe.lr * (1 - share)
    if recipe.schedule == "cosine":
        return recipe.lr * (1 + math.cos(math.pi * share)) / 2
    return recipe.lr


def optimizer_of(recipe: Recipe, network: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a recipe, for those parameters that learn."""
    learning = {name: p for name, p in network.named_parameters() if p.requires_grad}
    spared = _without_decay(network) if recipe.decay == "weights" else set()
    groups = [
        {"params": [p for name, p in learning.items() if name not in spared], "weight_decay": recipe.weight_decay},
        {"params": [p for name, p in learning.items() if name in spared], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=recipe.nesterov)
    kind = torch.optim.AdamW if recipe.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=recipe.lr)


def _without_decay(network: nn.Module) -> set[str]:
    """Names of biases, and of everything in a normalisation."""
    named = dict(network.named_modules())
    return {
        name
        for name, _ in network.named_parameters()
        if name.rpartition(".")[2] == "bias" or isinstance(named[name.rpartition(".")[0]], _NORMS)
    }
