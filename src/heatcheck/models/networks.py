"""What is done to networks as modules: copies, hooks, the order in which layers are used, weights drawn anew."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from heatcheck.core.types import HeatcheckError


class Released(nn.Module):
    """What stands in the place of a network whose weights were let go: its device and type, and no answers.

    Args:
        name: what tables call the model.
        device: where the network lived.
        dtype: its floating point type.
    """

    def __init__(self, name: str, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.name = name
        self.register_buffer("nothing", torch.empty(0, device=device, dtype=dtype), persistent=False)

    def forward(self, *_: Any, **__: Any) -> Tensor:
        """Nothing is left to ask."""
        raise HeatcheckError(f"{self.name}: its weights were let go when worker processes took over; load it again")


def watch_entries(seen: Mapping[nn.Module, Callable[[tuple[Any, ...]], None]], run: Callable[[], object]) -> None:
    """Run something without gradients; modules tell what they are called with each time they are entered."""
    handles = [module.register_forward_pre_hook(lambda _, args, note=note: note(args)) for module, note in seen.items()]
    try:
        with torch.inference_mode():
            run()
    finally:
        for handle in handles:
            handle.remove()


def in_order_of_use(network: nn.Module, run: Callable[[], object]) -> list[str]:
    """Paths of the modules with weights of their own, in the order in which `run` first enters them; `.` is the root.

    A module that is never entered has its place behind its parent, whose work may use its weights, and none where the
    parent is not entered either.
    """
    named = dict(network.named_modules())
    entered: dict[str, None] = {}
    watch_entries({module: lambda _, name=name: entered.setdefault(name) for name, module in named.items()}, run)
    behind: dict[str, list[str]] = {}
    for name in named:
        if name not in entered:
            behind.setdefault(name.rpartition(".")[0], []).append(name)
    order = [name for parent in entered for name in (parent, *behind.get(parent, ()))]
    return [name or "." for name in order if any(True for _ in named[name].parameters(recurse=False))]


def redraw(layer: nn.Module, rng: torch.Generator) -> None:
    """Replace a layer's own weights by normal draws with each tensor's mean and deviation."""
    with torch.no_grad():
        for weight in layer.parameters(recurse=False):
            noise = torch.randn(weight.shape, generator=rng, dtype=torch.float64)
            own = weight.cpu().double()  # drawn and summed on the CPU, so that every device gets the same weights
            spread = own.std(correction=0) if own.numel() > 1 else own.abs()
            weight.copy_((own.mean() + spread * noise).to(weight.dtype))


def private_copy(network: nn.Module) -> nn.Module:
    """A frozen copy in evaluation mode, without hooks; weights are shared with nobody."""
    try:
        twin = copy.deepcopy(network)
    except Exception as problem:
        raise HeatcheckError(
            f"{type(network).__name__} cannot be copied ({problem}); pass it as a callable"
        ) from problem
    for module in twin.modules():
        for hooks in _hooks_of(module):
            hooks.clear()
    return twin.eval().requires_grad_(False)


def trainable_copy(network: nn.Module) -> nn.Module:
    """A copy whose weights can learn, without hooks."""
    return private_copy(network).requires_grad_(True)


def hooks_on(network: nn.Module) -> int:
    """How many hooks a module and its submodules have."""
    return sum(len(hooks) for m in network.modules() for hooks in _hooks_of(m))


def _hooks_of(module: nn.Module) -> tuple[dict[int, Any], ...]:
    return (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
