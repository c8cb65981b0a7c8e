"""One adapter over every kind of model: what can be asked, and who it is."""

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heatcheck.domain.base import Domain
from heatcheck.engine.identity import digest
from heatcheck.types import HeatcheckError, Inputs, NotApplicable, Sample, digest_of_tensor


@dataclass(frozen=True)
class Layer:
    """A layer whose output is a spatial feature map, by its module path."""

    name: str
    channels: int
    height: int
    width: int


class Explained(ABC):
    """A classifier with everything that methods and metrics may ask about it.

    Args:
        name: what tables call the model.
        domain: pictures or texts, as this model takes them.
        classes: class names in the order of the outputs; None if they are not known.
    """

    differentiable: bool = True

    def __init__(self, name: str, domain: Domain, classes: tuple[str, ...] | None = None) -> None:
        self.name = name
        self.domain = domain
        self.classes = classes

    @abstractmethod
    def logits(self, x: Inputs) -> Float[Tensor, "n c"]:
        """Class scores before the softmax. Builds a graph if grad mode is on; else none."""

    @abstractmethod
    def encode(self, sample: Sample) -> Inputs:
        """A sample as this model's input, with a batch axis of one."""

    @cached_property
    @abstractmethod
    def identity(self) -> str:
        """Digest of weights, architecture and preprocessing."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The model's floating point type."""

    def class_name(self, index: int) -> str:
        """The name of a class, or its number."""
        return self.classes[index] if self.classes and 0 <= index < len(self.classes) else str(index)

    def layers(self, x: Inputs) -> list[Layer]:
        """Candidate target layers, in the order in which they finish; the last one is the default."""
        raise NotApplicable(f"{self.name} is a black box: it shows no layers")

    def module(self) -> nn.Module:
        """The network itself, for methods that look inside."""
        raise NotApplicable(f"{self.name} is a black box: only methods that need nothing but outputs apply")

    def randomised(self, layer: str, seed: int) -> "Explained":
        """A copy with one layer's weights (or, with `layer=""`, all) drawn anew."""
        raise NotApplicable(f"{self.name} is a black box: it has no weights to randomise")

    def weighted_layers(self) -> list[str]:
        """Paths of the layers that carry weights, from the input to the output."""
        raise NotApplicable(f"{self.name} is a black box: it has no weights to randomise")


class TorchExplained(Explained):
    """A `torch.nn.Module`. Works on a private, frozen copy; the user's model is never touched.

    Args:
        network: the classifier; its output is a tensor `[n, classes]`, or has one as `.logits` or first item.
        name: what tables call it.
        domain: pictures or texts, as it takes them.
        encoder: turns a sample into inputs; None where only ready tensors will be given.
        preprocessing: what the encoder does, as plain data; part of the model's identity.
        classes: class names.
        channels_last: memory format of convolutional inputs; faster on CPUs.
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
        channels_last: bool = False,
    ) -> None:
        super().__init__(name, domain, classes)
        self._network = private_copy(network)
        self._encoder = encoder
        self.preprocessing = preprocessing
        self.channels_last = channels_last
        if channels_last:
            self._network = self._network.to(memory_format=torch.channels_last)

    def call(self, network: nn.Module, x: Inputs) -> Any:
        """Run the network on inputs; adapters for other calling conventions override this."""
        pixels = x["pixels"]
        return network(pixels.contiguous(memory_format=torch.channels_last) if self.channels_last else pixels)

    def logits(self, x: Inputs) -> Float[Tensor, "n c"]:
        out = self.call(self._network, x)
        for attribute in ("logits",):
            out = getattr(out, attribute, out)
        if isinstance(out, tuple | list):
            out = out[0]
        if not isinstance(out, Tensor) or out.ndim != 2:
            shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise HeatcheckError(
                f"{self.name} returned {shape}; a classifier must return a tensor [n, classes]"
            )
        return out

    def encode(self, sample: Sample) -> Inputs:
        if self._encoder is None:
            raise HeatcheckError(
                f"{self.name} has no preprocessing, so sample {sample.name!r} cannot be read"
            )
        return self._encoder(sample)

    @cached_property
    def identity(self) -> str:
        return digest(
            {
                "weights": weights_digest(self._network),
                "architecture": architecture(self._network),
                "preprocessing": self.preprocessing,
                "dtype": str(self.dtype),
            }
        )

    @property
    def dtype(self) -> torch.dtype:
        for t in (*self._network.parameters(), *self._network.buffers()):
            if t.is_floating_point():
                return t.dtype
        return torch.float32

    def module(self) -> nn.Module:
        return self._network

    def layers(self, x: Inputs) -> list[Layer]:
        found: dict[str, Layer] = {}

        def look(name: str) -> Callable[..., None]:
            def hook(_module: nn.Module, _args: Any, out: Any) -> None:
                if isinstance(out, Tensor) and out.ndim == 4 and out.shape[2] * out.shape[3] > 1:
                    found.pop(name, None)
                    found[name] = Layer(name, *out.shape[1:])

            return hook

        handles = [m.register_forward_hook(look(n)) for n, m in self._network.named_modules() if n]
        try:
            with torch.inference_mode():
                self.logits(x.take(slice(0, 1)))
        finally:
            for handle in handles:
                handle.remove()
        return list(found.values())

    def weighted_layers(self) -> list[str]:
        return [n for n, m in self._network.named_modules() if any(True for _ in m.parameters(recurse=False))]

    def randomised(self, layer: str, seed: int) -> "Explained":
        twin = copy.copy(self)
        twin.__dict__.pop("identity", None)
        twin.name = f"{self.name}~{layer or 'all'}"
        twin._network = private_copy(self._network)
        rng = torch.Generator().manual_seed(seed)
        names = [layer] if layer else self.weighted_layers()
        for name in names:
            redraw(twin._network.get_submodule(name), rng)
        return twin


def redraw(layer: nn.Module, rng: torch.Generator) -> None:
    """Replace a layer's own weights by normal draws with each tensor's mean and deviation."""
    with torch.no_grad():
        for weight in layer.parameters(recurse=False):
            noise = torch.randn(weight.shape, generator=rng, dtype=torch.float64)
            spread = weight.double().std(correction=0) if weight.numel() > 1 else weight.double().abs()
            weight.copy_(weight.double().mean() + spread * noise)


def private_copy(network: nn.Module) -> nn.Module:
    """A frozen copy in evaluation mode, without hooks; weights are shared with nobody."""
    try:
        twin = copy.deepcopy(network)
    except Exception as problem:
        raise HeatcheckError(
            f"{type(network).__name__} cannot be copied ({problem}); pass it as a callable"
        ) from problem
    for module in twin.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
        module._backward_hooks.clear()
        module._backward_pre_hooks.clear()
    return twin.eval().requires_grad_(False)


def weights_digest(network: nn.Module) -> str:
    """Digest of every parameter and buffer by name."""
    state = network.state_dict(keep_vars=True)
    return digest({name: digest_of_tensor(t) for name, t in state.items() if isinstance(t, Tensor)})


def architecture(network: nn.Module) -> str:
    """The module tree, and the source of every forward pass that torch itself does not define."""
    classes = {type(m) for m in network.modules() if not type(m).__module__.startswith("torch.nn.")}
    sources = sorted(f"{c.__module__}.{c.__qualname__}:{_source(c)}" for c in classes)
    return "\n".join([repr(network), *sources])


def _source(cls: type) -> str:
    try:
        return inspect.getsource(cls.forward)  # type: ignore[attr-defined]
    except (OSError, TypeError, AttributeError):
        return ""


class CallableExplained(Explained):
    """Any function `inputs -> logits`: a black box, for methods that ask nothing but outputs."""

    differentiable = False

    def __init__(
        self,
        function: Callable[[Tensor], Any],
        name: str,
        domain: Domain,
        *,
        identity: str | None = None,
        encoder: Callable[[Sample], Inputs] | None = None,
        classes: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(name, domain, classes)
        self._function = function
        self._encoder = encoder
        self._identity = identity

    def logits(self, x: Inputs) -> Float[Tensor, "n c"]:
        out = torch.as_tensor(self._function(self.domain.leaf(x)))
        if out.ndim != 2 or len(out) != len(x):
            raise HeatcheckError(
                f"{self.name} returned shape {tuple(out.shape)} for {len(x)} inputs; expected [n, classes]"
            )
        return out.to(self.dtype)

    def encode(self, sample: Sample) -> Inputs:
        if self._encoder is None:
            raise HeatcheckError(
                f"{self.name} has no preprocessing, so sample {sample.name!r} cannot be read"
            )
        return self._encoder(sample)

    @cached_property
    def identity(self) -> str:
        if self._identity is not None:
            return digest({"callable": self._identity})
        try:
            source = inspect.getsource(self._function)
        except (OSError, TypeError):
            source = ""
        return digest({"callable": self.name, "source": source})

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32


@contextmanager
def captured(module: nn.Module, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """While inside, pass the module's output through `change`; the hook is gone afterwards, whatever happens."""
    handle = module.register_forward_hook(lambda _m, _a, out: change(out))
    try:
        yield
    finally:
        handle.remove()
