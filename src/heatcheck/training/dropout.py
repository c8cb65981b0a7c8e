"""Dropout that does not cost more than the network it is in.

On the CPU torch draws every decision from one sequential stream, one after the other: in MiniLM, whose attention weights
are dropped too, that takes longer than the whole pass. Here torch gives a seed per call and a vectorised generator the
decisions, sixteen bits each. What is drawn depends on torch's random state alone, which a training saves.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_LEVELS = 1 << 16


class QuickDropout(TorchFunctionMode):
    """While it is entered, `dropout` of tensors on the CPU is drawn quickly; all else is as it was."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is functional.dropout:
            return _dropout(*args, **kwargs)
        return function(*args, **kwargs)


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    dropped = round(p * _LEVELS)
    if not training or inplace or input.device.type != "cpu" or not 0 < dropped < _LEVELS:
        return functional.dropout(input, p, training, inplace)
    seed = int(torch.randint(1 << 62, ()))
    words = np.random.SFC64(seed).random_raw(-(-input.numel() // 4))
    drawn = torch.from_numpy(words.view(np.int16)[: input.numel()]).view(input.shape)
    kept = (drawn >= dropped - _LEVELS // 2).to(input.dtype)
    return input * kept.mul_(_LEVELS / (_LEVELS - dropped))
