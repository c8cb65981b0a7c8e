"""Networks of torch: a private, frozen copy, of which layers, attention and weights can be seen."""

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heatcheck.core.devices import CPU
from heatcheck.core.identity import digest
from heatcheck.core.types import HeatcheckError, Inputs, Sample, digest_of
from heatcheck.domain.base import Domain
from heatcheck.models.base import Layer, Model
from heatcheck.models.compiling import compiled, many_shapes
from heatcheck.models.devices import FP32, arithmetic
from heatcheck.models.fingerprints import architecture, weights_digest
from heatcheck.models.layers import find_layers
from heatcheck.models.networks import Released, hooks_on, in_order_of_use, private_copy, redraw
from heatcheck.models.outputs import Readout, says_multi_label

_PROJECTIONS = (
    {"qkv"},
    {"Wqkv"},
    {"in_proj"},
    {"q", "kv"},
    {"q", "k", "v"},
    {"query", "key", "value"},
    {"q_lin", "k_lin", "v_lin"},
    {"q_proj", "k_proj", "v_proj"},
    {"query_proj", "key_proj", "value_proj"},
    {"c_attn"},
)
"""Children by which an attention module is recognised, in timm, torchvision and transformers."""


@dataclass(frozen=True)
class ModuleState:
    """The state of a user's module when it was passed in; the private copy is in evaluation mode and has no hooks."""

    training: bool
    hooks: int


class TorchModel(Model):
    """A `torch.nn.Module`. Works on a private, frozen copy; the user's model is never touched.

    Args:
        network: the classifier; its output is a tensor `[n, classes]`, or holds one.
        name: what tables call it.
        domain: pictures or texts, as it takes them.
        encoder: turns a sample into inputs; None where only ready tensors will be given.
        preprocessing: what the encoder does, as plain data; part of the model's identity.
        classes: class names.
        channels_last: memory format of convolutional inputs, faster on CPUs; None where it is not decided.
    """

    def __init__(
        self,
        network: nn.Module,
        name: str,
        domain: Domain,
        *,
        encoder: Callable[[Sample], Inputs] | None = None,
        preprocessing: Any = None,
        classes: tuple[str, ...] | None = None,
        channels_last: bool | None = None,
    ) -> None:
        super().__init__(name, domain, classes)
        self.readout = Readout(multi_label=says_multi_label(network))
        self.as_given = ModuleState(network.training, hooks_on(network))
        self._network = private_copy(network)
        self._device = CPU
        self._encoder = encoder
        self.preprocessing = preprocessing
        self.channels_last: bool | None = None
        self.compiled: Any = None
        """The network as torch has compiled it; None in copies, and in other processes before they compile it."""
        self._layers: dict[Any, list[Layer]] = {}
        self._weighted: list[str] = []
        if channels_last is not None:
            self.lay_out(channels_last=channels_last)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "compiled": None}

    def lay_out(self, *, channels_last: bool) -> None:
        """Have convolutions computed in a memory format; results agree within rounding."""
        if channels_last or self.channels_last:
            layout = torch.channels_last if channels_last else torch.contiguous_format
            self._network = self._network.to(memory_format=layout)  # type: ignore[call-overload]
        self.channels_last = channels_last

    @property
    def device(self) -> torch.device:
        tensors = itertools.chain(self._network.parameters(), self._network.buffers())
        return next((t.device for t in tensors), self._device)

    def on(self, device: torch.device) -> Self:
        if self.device == device or (device.index is None and self.device.type == device.type):
            return self
        twin = copy.copy(self)
        twin._network = private_copy(self._network).to(device)
        twin._device, twin._layers, twin.followed = device, {}, set()
        twin._own_embedding()
        return twin

    def release(self) -> None:
        """Let go of the weights where others compute; what is known about the model stays, and it answers no more."""
        _ = self.identity, self.device, self.dtype  # read from the weights
        self._network = Released(self.name, self.device, self.dtype)
        self.compiled = None
        self._layers.clear()

    def reader(self) -> "Model | None":
        if type(self).encode is not TorchModel.encode:
            return None  # it may ask the network, or hold a part of it
        twin = copy.copy(self)
        twin._network, twin._device = Released(self.name, CPU, self.dtype), CPU
        twin._layers, twin._weighted, twin.followed = {}, [], set()
        twin.readout, twin.classes, twin.notes = Readout(), None, []
        return twin

    @property
    def released(self) -> bool:
        """Whether the weights are gone."""
        return isinstance(self._network, Released)

    def computing_in(self, precision: str) -> "Model":
        if precision == self.precision:
            return self
        twin = copy.copy(self)
        twin.precision, twin.notes, twin.followed = precision, list(self.notes), set()
        twin.original = self.lineage
        twin.__dict__.pop("identity", None)
        return twin

    def around(self, network: nn.Module) -> Self:
        """The same model around another network, of which it takes a private copy; class names are left as they are."""
        twin = copy.copy(self)
        twin._network = private_copy(network)
        if self.channels_last is not None:
            twin.lay_out(channels_last=self.channels_last)
        twin.compiled, twin._class_count, twin.trained, twin.fresh_head = None, None, None, False
        twin._layers, twin._weighted, twin.followed, twin.notes = {}, [], set(), self._notes_beside_output()
        twin.__dict__.pop("identity", None)
        twin._own_embedding()
        return twin

    def call(self, network: nn.Module, x: Inputs) -> Any:
        """Run the network on inputs; adapters for other calling conventions override this."""
        pixels = x["pixels"]
        return network(pixels.contiguous(memory_format=torch.channels_last) if self.channels_last else pixels)

    def logits(self, x: Inputs) -> Float[Tensor, "n c"]:
        return self._scores(self._network, x)

    logits_by_readout = logits

    def answer(self, x: Inputs) -> Float[Tensor, "n c"]:
        if self.compiled is None or hooks_on(self._network):
            return self.logits(x)
        with many_shapes():
            return self._scores(self.compiled, x)

    def compile(self) -> None:
        if type(self).logits is not TorchModel.logits:
            raise HeatcheckError(f"{type(self).__name__} reads its output itself")
        self.compiled = compiled(self._network)

    def _scores(self, network: nn.Module, x: Inputs) -> Float[Tensor, "n c"]:
        if self.precision == FP32 and self.device.type != "cuda":
            return self.read(self.call(network, x), len(x))
        with arithmetic(self.precision, self.device):
            return self.read(self.call(network, x), len(x)).to(self.dtype)

    def encode(self, sample: Sample) -> Inputs:
        if self._encoder is None:
            raise HeatcheckError(f"{self.name} has no preprocessing, so sample {sample.name!r} cannot be read")
        x = self._encoder(sample)
        return Inputs({k: v.to(self.dtype) if v.is_floating_point() else v for k, v in x.tensors.items()})

    @cached_property
    def identity(self) -> str:
        return digest(
            {
                "weights": weights_digest(self._network),
                "architecture": architecture(self._network),
                "preprocessing": self.preprocessing,
                "dtype": str(self.dtype),
                **({} if self.precision == FP32 else {"precision": self.precision}),
                **self.readout.record(),
            }
        )

    @property
    def dtype(self) -> torch.dtype:
        for t in (*self._network.parameters(), *self._network.buffers()):
            if t.is_floating_point():
                return t.dtype
        return torch.float32

    def _own_embedding(self) -> None:
        """Make the domain use this network's own word embeddings; pictures have none."""

    def module(self) -> nn.Module:
        return self._network

    def layers(self, x: Inputs) -> list[Layer]:
        key = x.shape_key()
        if key not in self._layers:
            one = x.take(slice(0, 1)).to(self.device)

            def answer(graph: bool) -> Float[Tensor, "1 k"]:
                leaf = self.domain.leaf(one).detach().clone()
                return self.logits(self.domain.with_leaf(one, leaf.requires_grad_() * 1) if graph else one)

            self._layers[key] = find_layers(self._network, answer, self.domain.shape(one), self.attention_blocks())
        return self._layers[key]

    def attention_blocks(self) -> list[str]:
        return [
            name
            for name, m in self._network.named_modules()
            if isinstance(m, nn.MultiheadAttention)
            or (
                "attention" in type(m).__name__.lower()
                and any(p <= {n for n, _ in m.named_children()} for p in _PROJECTIONS)
            )
        ]

    def weighted_layers(self, x: Inputs) -> list[str]:
        if not self._weighted:
            one = x.take(slice(0, 1)).to(self.device)
            self._weighted = in_order_of_use(self._network, lambda: self.logits(one))
        return self._weighted

    def randomised(self, layer: str | Sequence[str], seed: int) -> "Model":
        twin = copy.copy(self)
        twin.original = self.lineage
        twin.__dict__.pop("identity", None)
        twin._network = private_copy(self._network)
        names = [layer] if isinstance(layer, str) else list(layer)
        if layer == "":
            names = [name or "." for name, _ in twin._network.named_modules()]
        twin.name = f"{self.name}~{names[0] if len(names) == 1 else f'{len(names)} layers'}"
        for name in names:
            rng = torch.Generator().manual_seed(int(digest_of(f"{seed}", name)[:15], 16))
            redraw(twin._network.get_submodule("" if name == "." else name), rng)
        twin._own_embedding()
        return twin
