"""Functions as models."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.identity import digest
from heatcheck.core.types import HeatcheckError, Inputs, Sample
from heatcheck.domain.base import Domain
from heatcheck.models.base import Model
from heatcheck.models.fingerprints import function_facts


class CallableModel(Model):
    """Any function `inputs -> logits`: a black box, for methods that ask nothing but outputs.

    Args:
        function: gets the leaf tensor, returns class scores `[n, classes]`.
        name: what tables call it.
        domain: pictures or texts, as it takes them.
        identity: what its results are filed under; by default its name, source, closure and globals.
        encoder: turns a sample into inputs.
        preprocessing: what the encoder does, as plain data.
        classes: class names.
    """

    differentiable = False

    def __init__(
        self,
        function: Callable[[Tensor], Any],
        name: str,
        domain: Domain,
        *,
        identity: str | None = None,
        encoder: Callable[[Sample], Inputs] | None = None,
        preprocessing: Any = None,
        classes: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(name, domain, classes)
        self._function = function
        self.preprocessing = preprocessing
        self._encoder = encoder
        self._identity = identity

    def logits(self, x: Inputs) -> Float[Tensor, "n c"]:
        out = self._function(self.domain.leaf(x))
        plain = isinstance(out, list | tuple) and not any(isinstance(part, Tensor) for part in out)
        return self.read(torch.as_tensor(out) if plain or isinstance(out, np.ndarray) else out, len(x)).to(self.dtype)

    logits_by_readout = logits

    def encode(self, sample: Sample) -> Inputs:
        if self._encoder is None:
            raise HeatcheckError(f"{self.name} has no preprocessing, so sample {sample.name!r} cannot be read")
        return self._encoder(sample)

    @cached_property
    def identity(self) -> str:
        who = self._identity if self._identity is not None else [self.name, function_facts(self._function)]
        return digest({"callable": who, "preprocessing": self.preprocessing, **self.readout.record()})

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32
