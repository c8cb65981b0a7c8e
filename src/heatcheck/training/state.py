"""The state of a training in one file: weights, optimizer, random numbers and how far it is."""

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from heatcheck.core.files import write_atomically
from heatcheck.core.types import HeatcheckError
from heatcheck.models.training_record import OF_NETWORK
from heatcheck.models.weights import fill_network

_OPTIMIZER, _TORCH, _NUMPY, _PYTHON = "optimizer/", "random/torch", "random/numpy", "random/python"


@dataclass
class TrainingPosition:
    """How far a training is.

    Args:
        epoch: epochs that are over.
        batch: batches of this epoch that are over.
        step: steps of the optimizer in all.
        loss: the sum of the losses of this epoch's samples.
        right: how many of them were answered rightly.
        seen: how many they are.
        best: the highest accuracy on held-out samples so far.
        micro_batch: the samples that fit into memory at once; 0 for whole batches.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss: float = 0.0
    right: int = 0
    seen: int = 0
    best: float = -1.0
    micro_batch: int = 0
    scaler: dict[str, Any] = field(default_factory=dict)


def save_state(path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, position: TrainingPosition) -> None:
    """Write everything that decides how a training goes on; whole, or not at all."""
    held = optimizer.state_dict()
    tensors = {f"{OF_NETWORK}{name}": t for name, t in network.state_dict().items()}
    for number, state in held["state"].items():
        tensors |= {f"{_OPTIMIZER}{number}/{key}": t for key, t in state.items() if isinstance(t, Tensor)}
    tensors |= random_state()
    groups = [
        {k: v for k, v in group.items() if isinstance(v, int | float | bool | list | tuple)}
        for group in held["param_groups"]
    ]
    write_tensors(path, tensors, {"position": asdict(position), "groups": groups})


def load_state(path: Path, network: nn.Module, optimizer: torch.optim.Optimizer) -> TrainingPosition:
    """Restore a state that `save_state` wrote, and say how far it is.

    Raises:
        HeatcheckError: the file is damaged, or belongs to another network.
    """
    tensors, facts = read_tensors(path)
    own = {name.removeprefix(OF_NETWORK): t for name, t in tensors.items() if name.startswith(OF_NETWORK)}
    fill_network(network, own, str(path))
    held = optimizer.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith(_OPTIMIZER):
            number, key = name.removeprefix(_OPTIMIZER).split("/")
            state.setdefault(int(number), {})[key] = tensor
    groups = [{**fresh, **saved} for fresh, saved in zip(held["param_groups"], facts["groups"], strict=True)]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    restore_random_state(tensors)
    return TrainingPosition(**facts["position"])


def save_weights(path: Path, network: nn.Module, facts: Mapping[str, Any]) -> None:
    """Write a network's weights alone."""
    write_tensors(path, network.state_dict(), facts)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and plain facts to one file; whole, or not at all.

    Raises:
        HeatcheckError: a tensor is not finite: what was written before stays as it is.
        StorageError: the disk refuses.
    """
    own = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    broken = [name for name, t in own.items() if t.is_floating_point() and not bool(t.isfinite().all())]
    if broken:
        raise HeatcheckError(
            f"{broken[0]} and {len(broken) - 1} more tensors are not finite; {path.name} stays as it was"
        )
    write_atomically(path, save(own, {"facts": json.dumps(facts)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a file.

    Raises:
        HeatcheckError: it is damaged.
    """
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["facts"])  # noqa: SIM118
    except (SafetensorError, ValueError, KeyError, TypeError) as problem:
        raise HeatcheckError(f"{path} is damaged ({problem}): remove it to begin anew") from problem


def random_state() -> dict[str, Tensor]:
    """The state of the random numbers of Python, NumPy and torch."""
    _, keys, place, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    _, python, gauss = random.getstate()
    return {
        _TORCH: torch.get_rng_state(),
        f"{_NUMPY}/keys": torch.from_numpy(np.asarray(keys, dtype=np.int64)),
        f"{_NUMPY}/place": torch.tensor([place, has_gauss]),
        f"{_NUMPY}/gauss": torch.tensor([cached], dtype=torch.float64),
        f"{_PYTHON}/keys": torch.tensor(python),
        f"{_PYTHON}/gauss": torch.tensor([] if gauss is None else [gauss], dtype=torch.float64),
        **{
            f"{_TORCH}/{i}": state
            for i, state in enumerate(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else ())
        },
    }


def restore_random_state(tensors: Mapping[str, Tensor]) -> None:
    """Let the random numbers of Python, NumPy and torch go on where they were."""
    torch.set_rng_state(tensors[_TORCH])
    place, has_gauss = tensors[f"{_NUMPY}/place"].tolist()
    keys = tensors[f"{_NUMPY}/keys"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, place, has_gauss, tensors[f"{_NUMPY}/gauss"].item()))  # noqa: NPY002
    gauss = tensors[f"{_PYTHON}/gauss"].tolist()
    random.setstate((3, tuple(tensors[f"{_PYTHON}/keys"].tolist()), gauss[0] if gauss else None))
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        if f"{_TORCH}/{i}" in tensors:
            torch.cuda.set_rng_state(tensors[f"{_TORCH}/{i}"], i)
