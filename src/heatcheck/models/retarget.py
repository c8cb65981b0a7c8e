"""Networks to be trained: for other classes, with a new last layer, or with every weight drawn anew."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from heatcheck.core.types import HeatcheckError, Inputs, Modality, Sample
from heatcheck.models.architectures.fresh import FreshNetwork, drawn_from
from heatcheck.models.base import Model
from heatcheck.models.networks import private_copy, watch_entries
from heatcheck.models.torch_model import TorchModel

_COUNTS = ("num_classes", "num_labels", "n_classes")
"""Attributes in which networks keep how many classes they have."""
_NEVER_DRAWN = {
    "cls_token": 0.02,
    "class_token": 0.02,
    "dist_token": 0.02,
    "mask_token": 0.02,
    "reg_token": 0.02,
    "pos_embed": 0.02,
    "pos_embedding": 0.02,
    "class_embedding": 0.02,
    "relative_position_bias_table": 0.02,
}
"""Deviations of what transformers' constructors draw themselves: no module of torch does it for them."""
_SCALES = {"gamma": 1e-6, "layer_scale": 1e-6}
"""Where ConvNeXt's scales of residual branches begin."""


def with_classes(model: Model, classes: Sequence[str], *, seed: int, x: Inputs | None = None) -> nn.Module:
    """A copy of a model's network with a new last layer for other classes; the other weights are as they were.

    The last layer is found by trial: it is the linear layer or convolution on whose width that of the output depends.
    Where two answer together, as in a distilled DeiT, and where others help only in training, as in Inception, all of
    them are new.

    Args:
        model: a model around a torch network, for pictures or texts.
        classes: names of the new classes.
        seed: what the new weights are drawn from; torch's own generator is left as it was.
        x: an input of the model; by default a blank picture, or a short text.

    Returns:
        A network of its own in evaluation mode, of which every weight can be trained.

    Raises:
        HeatcheckError: there are fewer than two classes, or a name twice; or the last layer cannot be found.
    """
    _check_classes(classes)
    network, heads = _resized(model, len(classes), x)
    with drawn_from(seed):
        for head in heads:
            device = next(head.parameters()).device
            _draw_head(network, head.cpu())
            head.to(device)
    return network.requires_grad_(True)


def reinitialised(network: nn.Module, seed: int) -> nn.Module:
    """A copy of a network with every weight drawn anew, as before any training.

    Networks of heatcheck begin as their papers say, those of transformers and timm as they do there, and all others by
    what each module of theirs does itself (`reset_parameters`). Class tokens, positions and scales that nobody
    draws begin as in the papers of ViT (0.02) and ConvNeXt (1e-6).

    Args:
        network: any network; it is not changed.
        seed: what the weights are drawn from, on the CPU; torch's own generator is left as it was.

    Returns:
        A network of its own in evaluation mode, of which every weight can be trained.

    Raises:
        HeatcheckError: a weight is drawn by nobody; names it.
    """
    twin = private_copy(network).cpu().requires_grad_(True)
    twin.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload] # draws follow the order in memory
    with drawn_from(seed), torch.no_grad():
        if isinstance(twin, FreshNetwork):
            twin.initialise()
        else:
            _redraw_all(twin)
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    return twin.to(device)


def without_width(model: Model, x: Inputs | None = None) -> nn.Module:
    """A copy of a model's network as if it had two classes, whatever it has; its last layer is not to be used."""
    network, _ = _resized(model, 2, x)
    return network


def _check_classes(classes: Sequence[str]) -> None:
    if len(classes) < 2:
        raise HeatcheckError(f"a classifier needs at least two classes, and got {list(classes)}")
    twice = sorted({name for name in classes if list(classes).count(name) > 1})
    if twice:
        raise HeatcheckError(f"classes={list(classes)[:20]}: {', '.join(twice[:3])} is there more than once")


def _resized(model: Model, width: int, x: Inputs | None) -> tuple[nn.Module, list[nn.Module]]:
    """A copy of a network with another number of classes, and its last layers, whose weights are not yet drawn."""
    if not isinstance(model, TorchModel):
        raise HeatcheckError(f"{model.name} is a function: there is no network to give other classes to")
    if model.released:
        raise HeatcheckError(f"{model.name} has let go of its weights: load it again")
    x = (_example(model) if x is None else x.take(slice(0, 1))).to(model.device)
    before = model.class_count(x)
    network = private_copy(model.module())
    heads = [network.get_submodule(name) for name in _last_layers(model, x, before)]
    for head in heads:
        _widen(head, width)
    _recount(network, before, width)
    return network, heads


def _example(model: TorchModel) -> Inputs:
    """Something that the model can read: a blank picture, or a short text."""
    if model.domain.modality == Modality.TEXT:
        return model.encode(Sample("example", "", "a good film"))
    if model.preprocessing is None:
        raise HeatcheckError(
            f"{model.name}: its preprocessing is not known, so its last layer cannot be found by trial; pass preprocess="
        )
    height, width = model.preprocessing["size"]
    return model.encode(Sample("example", "", np.full((height, width, 3), 128, np.uint8)))


def _last_layers(model: TorchModel, x: Inputs, count: int) -> list[str]:
    """Paths of the layers on whose width that of the output depends, and of those that stand in for them in training."""
    entered = _entered(model, x)
    as_wide = {name for name, module in model.module().named_modules() if _width(module) == count}
    used = [name for name in entered if name in as_wide]
    for several in (1, 2):
        heads = used[-several:]
        if len(heads) == several and _decide(model, heads, x, count):
            return [*heads, *sorted(as_wide - set(entered))]
    raise HeatcheckError(
        f"{model.name}: no last layer can be replaced: its {count} outputs are those of no linear layer or convolution; "
        "build it for the classes yourself and pass it as FILE.py:NAME"
    )


def _entered(model: TorchModel, x: Inputs) -> list[str]:
    """Paths of a network's modules in the order in which they are last entered."""
    order: dict[str, None] = {}

    def note(name: str) -> None:
        order.pop(name, None)
        order[name] = None

    named = {module: lambda _, name=name: note(name) for name, module in model.module().named_modules()}
    watch_entries(named, lambda: model.logits(x))
    return list(order)


def _width(module: nn.Module) -> int | None:
    """How many outputs a linear layer or a convolution has."""
    if isinstance(module, nn.Linear):
        return module.out_features
    return module.out_channels if isinstance(module, nn.Conv2d) and module.groups == 1 else None


def _decide(model: TorchModel, heads: Sequence[str], x: Inputs, count: int) -> bool:
    """Whether the output becomes wider by one where these layers do."""
    network = private_copy(model.module())
    for name in heads:
        _widen(network.get_submodule(name), count + 1)
    _recount(network, count, count + 1)
    try:
        with torch.inference_mode():
            return model.read(model.call(network, x), len(x)).shape[1] == count + 1
    except (RuntimeError, ValueError, IndexError, HeatcheckError):  # shapes that no longer fit
        return False


def _widen(layer: nn.Module, width: int) -> None:
    """Make a layer as wide as asked; its weights are zero until they are drawn."""
    setattr(layer, "out_channels" if isinstance(layer, nn.Conv2d) else "out_features", width)
    for name, weight in list(layer.named_parameters(recurse=False)):
        fresh = torch.zeros(width, *weight.shape[1:], dtype=weight.dtype, device=weight.device)
        setattr(layer, name, nn.Parameter(fresh, requires_grad=weight.requires_grad))


def _recount(network: nn.Module, before: int, now: int) -> None:
    """Have whatever counts the classes know the new number: attributes, configurations, a B-cos network's bias."""
    for module in network.modules():
        for owner in (module, getattr(module, "config", None)):
            for name in _COUNTS:
                if isinstance(getattr(owner, name, None), int) and getattr(owner, name) == before:
                    _set(owner, name, now)
        bias = getattr(module, "logit_bias", None)
        if before > 1 and isinstance(bias, float) and math.isclose(bias, -math.log(before - 1)):
            _set(module, "logit_bias", -math.log(now - 1))


def _set(owner: Any, name: str, value: float) -> None:
    if isinstance(getattr(type(owner), name, None), property) and getattr(type(owner), name).fset is None:
        return
    setattr(owner, name, value)


def _draw_head(network: nn.Module, head: nn.Module) -> None:
    if isinstance(network, FreshNetwork):
        network.draw(head)
    elif callable(draw := getattr(network, "_init_weights", None)):  # transformers
        draw(head)
    else:
        head.reset_parameters()  # type: ignore[operator]


def _redraw_all(network: nn.Module) -> None:
    """Draw every weight of a network from elsewhere; one that stays not-a-number has been drawn by nobody."""
    for trained in network.parameters():
        trained.fill_(torch.nan)
    _forget_drawn(network)
    for module in reversed(list(network.modules())):  # parents correct what their parts have drawn
        for name in ("reset_parameters", "_reset_parameters"):
            if callable(draw := getattr(module, name, None)):
                draw()
    for name in ("initialize_weights", "init_weights"):  # transformers; timm
        if callable(draw := getattr(network, name, None)):
            draw()
            break
    for name, weight in list(_missing(network)):
        own = name.rpartition(".")[2]
        if own in _NEVER_DRAWN:
            nn.init.trunc_normal_(weight, std=_NEVER_DRAWN[own])
        elif own in _SCALES:
            nn.init.constant_(weight, _SCALES[own])
    if left := [name for name, _ in _missing(network)]:
        raise HeatcheckError(
            f"{type(network).__name__} cannot begin anew: nothing draws {', '.join(left[:3])}; "
            "give the module that holds it a reset_parameters()"
        )


def _forget_drawn(network: nn.Module) -> None:
    """Transformers draws no weight that it has marked as drawn."""
    for part in itertools.chain(network.modules(), network.parameters(), network.buffers()):
        if "_is_hf_initialized" in vars(part):
            delattr(part, "_is_hf_initialized")


def _missing(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return ((name, weight) for name, weight in network.named_parameters() if bool(weight.isnan().any()))
