"""Networks that take several inputs: one is explained, the others are held fixed."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from heatcheck.core.types import HeatcheckError

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class HeldInputs(nn.Module):
    """A network with all inputs but one held fixed, from `functools.partial(network, other=…)`.

    A held tensor whose first axis is one is repeated for every input of a batch; what else is held is passed as it is.
    """

    def __init__(self, held: functools.partial[Any]) -> None:
        super().__init__()
        network: nn.Module = held.func  # type: ignore[assignment]
        self.network = network
        self._names: dict[str, str] = {}
        for place, value in (*enumerate(held.args), *held.keywords.items()):
            name = f"held_{place}"
            self._names[str(place)] = name
            if isinstance(value, Tensor):
                self.register_buffer(name, value.detach().clone())
            else:
                setattr(self, name, value)
        self.held = repr([v for v in (*held.args, *held.keywords.values()) if not isinstance(v, Tensor)])
        self._before, self._named = len(held.args), tuple(held.keywords)
        self.explained = _first_free(network.forward, self._before, set(self._named))

    def forward(self, x: Tensor) -> Any:
        """The network's answer to `x`, with the held inputs beside it."""
        before = [self._held(str(i), len(x)) for i in range(self._before)]
        named = {name: self._held(name, len(x)) for name in self._named}
        if self.explained is None:
            return self.network(*before, x, **named)
        return self.network(*before, **named, **{self.explained: x})

    def _held(self, place: str, n: int) -> Any:
        value = getattr(self, self._names[place])
        repeats = isinstance(value, Tensor) and value.ndim > 0 and len(value) == 1
        return value.expand(n, *value.shape[1:]) if repeats else value


def _first_free(forward: Callable[..., Any], before: int, named: set[str]) -> str | None:
    """The first input that is not held, by name; None where it has none and must be passed by position."""
    free = [p for p in list(inspect.signature(forward).parameters.values())[before:] if p.name not in named]
    return free[0].name if free and free[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD else None


def check_one_input(function: Callable[..., Any], name: str) -> None:
    """Refuse what needs several inputs, with the code that holds all but the first fixed.

    Args:
        function: a network's forward pass, or a function.
        name: what it is called.

    Raises:
        HeatcheckError: it needs more than one input.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    needed = [p for p in parameters if p.default is p.empty and p.kind in (*_POSITIONAL, p.KEYWORD_ONLY)]
    if len(needed) < 2:
        return
    others = ", ".join(f"{p.name}={p.name}" for p in needed[1:])
    held = (
        f"functools.partial(model, {others}) in its place; a tensor whose first axis is 1 is repeated for every sample"
    )
    if not inspect.ismethod(function):
        held = f"lambda x: function(x, {others}) in its place"
    raise HeatcheckError(
        f"{name} takes {len(needed)} inputs ({', '.join(p.name for p in needed)}), and one is explained: hold the others "
        f"fixed, with {held}"
    )
