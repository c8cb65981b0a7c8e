"""Feature maps inside a network, in whatever layout: where they are, and how they are read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

CHANNELS_FIRST, CHANNELS_LAST, TOKENS = "channels_first", "channels_last", "tokens"

PREFIX_LIMIT = 16
"""Class, distillation and register tokens are few; a sequence with more tokens beside the grid is not on the grid."""

_PASS_ON = (
    *(nn.Identity, nn.Dropout, nn.Dropout2d, nn.Conv1d, nn.BatchNorm1d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d),
)
"""Modules that make no feature map of their own: they hand on or pool what they get, or have no picture's axes."""

_FIRST = (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d, nn.GroupNorm, nn.MaxPool2d, nn.AvgPool2d)
"""Modules whose second axis is always the channel."""


@dataclass(frozen=True)
class Layer:
    """A layer whose output is a spatial feature map, by its module path.

    Args:
        name: the module's path in the network.
        channels: feature maps.
        height: their rows.
        width: their columns.
        layout: `channels_first` [b, c, h, w], `channels_last` [b, h, w, c], or `tokens` [b, prefix + h·w, c].
        prefix: tokens before those of the grid, such as the class token.
        call: which of the module's calls in one pass is meant: the last.
    """

    name: str
    channels: int
    height: int
    width: int
    layout: str = CHANNELS_FIRST
    prefix: int = 0
    call: int = 1

    def maps(self, out: Float[Tensor, "b ..."]) -> Float[Tensor, "b c h w"]:
        """The feature maps in the layer's output, as a view of it; prefix tokens are no part of them."""
        if self.layout == TOKENS:
            grid = out[:, self.prefix :]
            out = grid.view(len(grid), self.height, self.width, self.channels)
        return out if self.layout == CHANNELS_FIRST else out.movedim(-1, 1)

    @contextmanager
    def changed(self, network: nn.Module, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """While inside, pass the layer's output through `change`; the hook is gone afterwards, whatever happens."""
        calls = 0

        def hook(_module: nn.Module, _args: Any, out: Tensor) -> Tensor | None:
            nonlocal calls
            calls += 1
            return change(out) if calls == self.call else None

        handle = network.get_submodule(self.name).register_forward_hook(hook)
        try:
            yield
        finally:
            handle.remove()


def find_layers(
    network: nn.Module,
    answer: Callable[[bool], Float[Tensor, "1 k"]],
    picture: tuple[int, int],
    attention: Sequence[str],
) -> list[Layer]:
    """Every layer whose output is a feature map on which the answer depends, in the order in which they finish.

    So the last one is the outermost module that gives the last feature map. Tokens of the last block of a network
    that reads its class token alone are no feature map in this sense: nothing depends on them.

    Args:
        network: the classifier.
        answer: runs it on one picture; with a graph from the picture on if asked.
        picture: rows and columns of the picture.
        attention: paths of the attention layers; what they do inside is not looked at.
    """
    inside = tuple(f"{path}." for path in {*attention, *_attention_like(network)})
    modules = {
        name: module
        for name, module in network.named_modules()
        if name and not name.startswith(inside) and not isinstance(module, _PASS_ON)
    }
    with torch.inference_mode():
        shapes = _outputs(modules, lambda: answer(False), lambda out: tuple(out.shape))
    found = _layers_from_shapes(modules, shapes, picture, bool(attention))
    return _used_by_answer(modules, found, answer) if any(f.layout == TOKENS for f in found) else found


def _attention_like(network: nn.Module) -> list[str]:
    """Modules that call themselves attention and have nothing but plain layers inside."""
    return [
        name
        for name, module in network.named_modules()
        if name
        and any(word in type(module).__name__.lower() for word in ("attention", "attn"))
        and not any(True for child in module.children() for _ in child.children())
    ]


def _outputs(
    modules: Mapping[str, nn.Module], run: Callable[[], object], look: Callable[[Tensor], Any]
) -> dict[str, list[Any]]:
    """What `look` makes of every tensor that the modules give, by module in the order of their last calls."""
    seen: dict[str, list[Any]] = {}

    def watch(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _args: Any, out: Any) -> None:
            earlier = seen.pop(name, [])
            seen[name] = [*earlier, look(out) if isinstance(out, Tensor) else None]

        return hook

    with ExitStack() as hooks:
        for name, module in modules.items():
            hooks.callback(module.register_forward_hook(watch(name)).remove)
        run()
    return seen


def _layers_from_shapes(
    modules: Mapping[str, nn.Module],
    shapes: Mapping[str, list[tuple[int, ...] | None]],
    picture: tuple[int, int],
    attentive: bool,
) -> list[Layer]:
    """Layers from the shapes of their outputs. Tokens lie on the grid of the last map before them."""
    last = {name: calls[-1] for name, calls in shapes.items()}
    layouts = _layouts(modules, last, picture)
    found: list[Layer] = []
    grid: tuple[int, int] | None = None
    for name, shape in last.items():
        if name in layouts:
            layout, prefix = layouts[name], 0
            channels, h, w = _split(shape or (), layout)
            grid = (h, w)
        elif shape is not None and len(shape) == 3 and shape[0] == 1:
            flat = grid is not None and not attentive and shape[2] == grid[0] * grid[1] != shape[1]
            on = None if flat or not (grid or attentive) else _token_grid(shape[1], grid, picture)
            if on is None:
                continue
            layout, (h, w), channels = TOKENS, on, shape[2]
            prefix = shape[1] - h * w
        else:
            continue
        if h * w > 1:
            found.append(Layer(name, channels, h, w, layout, prefix, len(shapes[name])))
    return found


def _layouts(
    modules: Mapping[str, nn.Module], shapes: Mapping[str, tuple[int, ...] | None], picture: tuple[int, int]
) -> dict[str, str]:
    """Channels first or last, for every output with four axes.

    The axes that have the picture's proportions are the spatial ones. Where all three could be, a module is read
    as others of its class are, and else as having channels first.
    """
    layouts: dict[str, str | None] = {}
    for name, shape in shapes.items():
        if shape is not None and len(shape) == 4 and shape[0] == 1:
            layouts[name] = CHANNELS_FIRST if isinstance(modules[name], _FIRST) else _by_proportion(shape, picture)
    by_class = {type(modules[name]): layout for name, layout in layouts.items() if layout}
    return {name: layout or by_class.get(type(modules[name]), CHANNELS_FIRST) for name, layout in layouts.items()}


def _by_proportion(shape: tuple[int, ...], picture: tuple[int, int]) -> str | None:
    first, last = (_distortion(*_split(shape, layout)[1:], picture) for layout in (CHANNELS_FIRST, CHANNELS_LAST))
    if first == last:
        return None
    return CHANNELS_LAST if last < first and last <= max(picture) else CHANNELS_FIRST


def _distortion(h: int, w: int, picture: tuple[int, int]) -> int:
    """How far a grid is from the picture's proportions: at most its longer side if only rounding separates them."""
    return abs(h * picture[1] - w * picture[0])


def _split(shape: tuple[int, ...], layout: str) -> tuple[int, int, int]:
    """Channels, rows and columns."""
    _, a, b, c = shape
    return (a, b, c) if layout == CHANNELS_FIRST else (c, a, b)


def _token_grid(tokens: int, grid: tuple[int, int] | None, picture: tuple[int, int]) -> tuple[int, int] | None:
    """Rows and columns of a token sequence, if it can be laid out.

    The map before it tells the grid, as it is or, without prefix tokens, halved as often as neighbours are merged.
    Without one it is the largest grid with the picture's proportions.
    """
    if grid is None:
        for n in range(tokens, max(1, tokens - PREFIX_LIMIT - 1), -1):
            for h in range(1, n + 1):
                if n % h == 0 and _distortion(h, n // h, picture) == 0:
                    return h, n // h
        return None
    h, w = grid
    if 0 <= tokens - h * w <= PREFIX_LIMIT:
        return h, w
    while h * w > tokens:
        h, w = -(-h // 2), -(-w // 2)
    return (h, w) if h * w == tokens else None


def _used_by_answer(
    modules: Mapping[str, nn.Module], found: list[Layer], answer: Callable[[bool], Float[Tensor, "1 k"]]
) -> list[Layer]:
    """The layers whose feature maps the answer depends on; all of them where no gradient says otherwise."""
    logits: list[Tensor] = []
    watched = {layer.name: modules[layer.name] for layer in found}
    with torch.enable_grad():
        outs = _outputs(watched, lambda: logits.append(answer(True)), lambda out: out)
        linked = [layer for layer in found if outs[layer.name][-1].requires_grad]
        if not linked or not logits[0].requires_grad:
            return found
        weights = torch.arange(1, logits[0].shape[1] + 1, dtype=logits[0].dtype)
        slopes = torch.autograd.grad(
            (weights * logits[0]).sum(), [outs[layer.name][-1] for layer in linked], allow_unused=True
        )
    return [
        layer for layer, g in zip(linked, slopes, strict=True) if g is not None and bool((layer.maps(g) != 0).any())
    ] or found
