"""State dicts from files, read without running code. The one place that opens a checkpoint."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heatcheck.core.spec import suggest
from heatcheck.core.types import HeatcheckError, PathLike

_WRAPPERS = ("state_dict", "model", "model_state_dict")
_PREFIXES = ("module.", "_orig_mod.")


def load_weights(path: PathLike) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name.

    Reads safetensors, and what `torch.save` wrote as far as it holds nothing but tensors and plain containers.
    A state dict inside `{"state_dict": …}` or `{"model": …}` is taken out; the prefixes of DataParallel and
    `torch.compile` are dropped.

    Raises:
        HeatcheckError: it is not there, cannot be read, would run code, or holds no state dict.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        near = suggest(file.name, (p.name for p in file.parent.iterdir())) if file.parent.is_dir() else ""
        raise HeatcheckError(f"there is no checkpoint {str(path)!r}{near if 'did you mean' in near else ''}")
    if file.stat().st_size == 0:
        raise HeatcheckError(f"checkpoint {str(path)!r} is empty")
    state = _unwrapped(_safetensors(file) if file.suffix == ".safetensors" else _torch_file(file), str(path))
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state


def fill_network(network: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Copy a state dict into a network of exactly that shape; an error lists names and shapes that do not fit."""
    own = network.state_dict()
    missing, extra = own.keys() - state.keys(), state.keys() - own.keys()
    optional = {name for name in missing if name.endswith("num_batches_tracked")}
    wrong = [
        f"{name} is {tuple(state[name].shape)}, not {tuple(own[name].shape)}"
        for name in own.keys() & state.keys()
        if state[name].shape != own[name].shape
    ]
    if missing - optional or extra or wrong:
        facts = [
            *([f"missing {_few(missing - optional)}"] if missing - optional else []),
            *([f"unknown {_few(extra)}"] if extra else []),
            *([f"of other shape: {_few(wrong)}"] if wrong else []),
        ]
        raise HeatcheckError(f"{source} does not fit {type(network).__name__}: {'; '.join(facts)}")
    network.load_state_dict({**{name: own[name] for name in optional}, **state})


def fill_by_position(network: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Copy a state dict whose names differ but whose entries come in the network's order, each of the same shape."""
    own = network.state_dict()
    if len(own) != len(state):
        raise HeatcheckError(
            f"{source} does not fit {type(network).__name__} by position: it holds {len(state)} tensors, not {len(own)}"
        )
    renamed = {}
    for place, ((name, slot), (theirs, tensor)) in enumerate(zip(own.items(), state.items(), strict=True)):
        if slot.shape != tensor.shape:
            raise HeatcheckError(
                f"{source}: entry {place}, {theirs}, is {tuple(tensor.shape)}, "
                f"but {name} of {type(network).__name__} is {tuple(slot.shape)}"
            )
        renamed[name] = tensor
    network.load_state_dict(renamed)


def _safetensors(file: Path) -> Any:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except (SafetensorError, OSError, ValueError) as problem:
        raise HeatcheckError(f"checkpoint {str(file)!r} is no whole safetensors file: {problem}") from problem


def _torch_file(file: Path) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True)  # noqa: TID251 - the safe mode, and nowhere else
    except Exception as problem:
        why = str(problem).split("\n")[0]
        if "weights_only" in str(problem) or "Unsupported" in str(problem):
            hint = "it holds more than tensors and was not opened, since that would run its code; save its state_dict"
        elif zipfile.is_zipfile(file):
            hint = "it is damaged"
        else:
            hint = "it is neither safetensors nor what torch.save writes"
        raise HeatcheckError(f"checkpoint {str(file)!r} cannot be read: {hint} ({why})") from problem


def _unwrapped(content: Any, path: str) -> dict[str, Tensor]:
    for key in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not content:
        raise HeatcheckError(f"checkpoint {path!r} holds a {type(content).__name__}, not a state dict")
    others = [str(name) for name, value in content.items() if not isinstance(value, Tensor)]
    if others:
        raise HeatcheckError(
            f"checkpoint {path!r}: {_few(others)} are no tensors; save the network's state_dict alone, "
            f"or under one of {', '.join(_WRAPPERS)}"
        )
    return dict(content)


def _few(names: Any) -> str:
    listed = sorted(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
