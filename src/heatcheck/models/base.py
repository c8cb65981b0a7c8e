"""The model adapter: one interface for every kind of classifier."""

import copy
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from heatcheck.core.devices import CPU
from heatcheck.core.identity import digest
from heatcheck.core.types import HeatcheckError, Inputs, NotApplicable, Sample, digest_of
from heatcheck.domain.base import Domain
from heatcheck.models.compiling import compiled, many_shapes
from heatcheck.models.devices import FP32, arithmetic
from heatcheck.models.fingerprints import architecture, function_facts, weights_digest
from heatcheck.models.layers import Layer as Layer
from heatcheck.models.layers import find_layers
from heatcheck.models.lengths import Rounding
from heatcheck.models.networks import Released, hooks_on, in_order_of_use, private_copy, redraw
from heatcheck.models.outputs import Number, Readout, as_number

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


class Model(ABC):
    """A classifier with everything that methods and metrics may ask about it.

    Args:
        name: what tables call the model.
        domain: pictures or texts, as this model takes them.
        classes: class names in the order of the outputs; None if they are not known.
    """

    differentiable: bool = True
    preprocessing: Any = None
    """What `encode` does, as plain data; None where only tensors that are ready for the model can be read."""
    rounding: Rounding | None = None
    """How `encode` rounds up the sizes of inputs, where they differ; see `round_by`."""

    def __init__(self, name: str, domain: Domain, classes: tuple[str, ...] | None = None) -> None:
        self.name = name
        self.domain = domain
        self.classes = classes
        self.followed: set[str] = set()
        """Rules, by input shape, under which the network is known to give its plain answer."""
        self._class_count: int | None = None
        self.readout = Readout()
        self.notes: list[str] = []
        """What was chosen or guessed about the model, in sentences for whoever reads its numbers."""
        self.original: str | None = None
        """The identity of the model that this one is a copy of, with other weights or in another precision."""
        self.precision = FP32
        """In what passes are computed; part of the identity."""
        self.trained: Mapping[str, Any] | None = None
        """How `heatcheck train` made it, as plain data; None for others."""
        self.fresh_head = False
        """Whether its last layer was drawn and has learnt nothing."""

    @abstractmethod
    def logits(self, x: Inputs) -> Float[Tensor, "n c"]:
        """Class scores before the softmax. Builds a graph if grad mode is on; else none."""

    def answer(self, x: Inputs) -> Float[Tensor, "n c"]:
        """Class scores without a graph, by the compiled network if there is one: nothing inside can be seen or changed."""
        return self.logits(x)

    def compile(self) -> None:
        """Have `answer` computed by a compiled network; it is compiled at the first call of every shape.

        Raises:
            HeatcheckError: there is no network that torch could compile.
        """
        raise HeatcheckError(f"{self.name} is a function, which computes as it is written")

    @abstractmethod
    def encode(self, sample: Sample) -> Inputs:
        """A sample as this model's input, with a batch axis of one."""

    def round_by(self, known: Sequence[int] | None) -> None:
        """Round the sizes of inputs up as a run was begun with; None for as this release does. Scores agree within rounding."""
        self.rounding = Rounding(*known) if known else type(self).rounding

    def size(self, sample: Sample) -> int:
        """How large an input a sample becomes, where that differs between samples and can be told cheaply; else 0."""
        return 0

    def unread(self, samples: Iterable[Sample]) -> str:
        """What of the samples lies beyond what the model reads, in a sentence; empty where it reads all of them."""
        return ""

    @cached_property
    @abstractmethod
    def identity(self) -> str:
        """Digest of weights, architecture and preprocessing."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The model's floating point type."""

    @property
    def device(self) -> torch.device:
        """Where the model lives, and where everything about its samples does."""
        return CPU

    def on(self, device: torch.device) -> Self:
        """The same model on a device; this one where it lives there already. A function gets its inputs on the CPU."""
        return self

    def computing_in(self, precision: str) -> "Model":
        """The same model with passes in another precision, which is another identity.

        Raises:
            HeatcheckError: it cannot be told how to compute.
        """
        if precision == self.precision:
            return self
        raise HeatcheckError(f"precision={precision!r}: {self.name} is a function, which computes as it is written")

    def reader(self) -> "Model | None":
        """What reads samples for this model in other processes, without its weights; None where that is not known."""
        return None

    @property
    def lineage(self) -> str:
        """The identity of the original, or its own."""
        return self.original or self.identity

    @property
    def explains(self) -> str:
        """The number that is made of its output, as the target was written; empty where classes are explained."""
        return self.readout.number.written if self.readout.number else ""

    @property
    def gives_number(self) -> bool:
        """Whether its output is one number per input: no classes, so no probabilities. Known after its first answer."""
        return self.readout.number is not None or self._class_count == 1

    def read(self, out: Any, n: int) -> Float[Tensor, "n c"]:
        """What is explained of the network's output for `n` inputs; choices that had to be made are noted.

        Raises:
            HeatcheckError: it is not clear what to take; says how to.
        """
        try:
            scores, note = self.readout.scores(out, n)
        except HeatcheckError as problem:
            raise HeatcheckError(f"{self.name}: {problem}") from problem
        if self._class_count is None:
            self._class_count = scores.shape[1]
            self.notes += [f"{self.name}: {note}; output= names another"] if note else []
            if self._class_count == 1 and self.readout.number is None:
                self.classes = self.classes or ("output",)
                self.notes.append(
                    f"{self.name} gives one number per input: it is explained as it is, without a softmax, and metrics "
                    "that need class probabilities are skipped"
                )
        return scores

    def reading(self, *, output: str | int | None = None, target: Any = None) -> "Model":
        """The same model, with another part of its output taken, or a number made of it.

        Args:
            output: the key, attribute or position of the part.
            target: a function from the output to one number per input, or `column:N`; None for class scores.
        """
        if type(self).logits not in (TorchModel.logits, CallableModel.logits):
            raise HeatcheckError(f"{type(self).__name__} reads its output itself: output= and target= do not reach it")
        number = as_number(target)
        twin = copy.copy(self)
        twin.readout = Readout(self.readout.output if output is None else output, number or self.readout.number)
        twin.notes, twin.followed, twin._class_count = list(self.notes), set(), None
        twin.classes = self._number_names(number) if number else self.classes
        twin.__dict__.pop("identity", None)
        return twin

    def _number_names(self, number: Number) -> tuple[str, ...]:
        return (number.name if number.column is None or not self.classes else self.class_name(number.column),)

    def class_name(self, index: int) -> str:
        """The name of a class, or its number."""
        return self.classes[index] if self.classes and 0 <= index < len(self.classes) else str(index)

    def references(self, sample: Sample, x: Inputs) -> Mapping[str, Any]:
        """What a right map would show, on this model's sites."""
        return sample.reference

    def words(self, sample: Sample) -> set[tuple[int, ...]]:
        """The words of a text, each as the ids of its tokens; of all of it, also where the model cannot read all."""
        return set(self.domain.words(self.encode(sample))[0])

    def display(self, sample: Sample, x: Inputs) -> dict[str, Any]:
        """The sample as people should see it."""
        return self.domain.display(x)

    def layers(self, x: Inputs) -> list[Layer]:
        """Candidate target layers, in the order in which they finish; the last one is the default."""
        raise NotApplicable(f"{self.name} is a black box: it shows no layers")

    def attention_blocks(self) -> list[str]:
        """Module paths of the attention layers, from the input to the output."""
        raise NotApplicable(f"{self.name} is a black box: it shows no attention")

    def module(self) -> nn.Module:
        """The network itself, for methods that look inside."""
        raise NotApplicable(f"{self.name} is a black box: only methods that need nothing but outputs apply")

    def class_count(self, x: Inputs) -> int:
        """The number of classes, read from the output for one input and cached."""
        if self._class_count is None:
            with torch.inference_mode():
                self._class_count = self.logits(x.take(slice(0, 1)).to(self.device)).shape[1]
        return self._class_count

    def randomised(self, layer: str | Sequence[str], seed: int) -> "Model":
        """A copy with the weights of one layer, of several, or (with `layer=""`) of all drawn anew.

        What a layer gets depends on the seed and its name alone, not on the others.
        """
        raise NotApplicable(f"{self.name} is a black box: it has no weights to randomise")

    def weighted_layers(self, x: Inputs) -> list[str]:
        """Paths of the layers whose weights an answer to `x` uses, from the input to the output; `.` is the root."""
        raise NotApplicable(f"{self.name} is a black box: it has no weights to randomise")


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
        twin._layers, twin._weighted, twin.followed, twin.notes = {}, [], set(), list(self.notes)
        twin.__dict__.pop("identity", None)
        twin._own_embedding()
        return twin

    def call(self, network: nn.Module, x: Inputs) -> Any:
        """Run the network on inputs; adapters for other calling conventions override this."""
        pixels = x["pixels"]
        return network(pixels.contiguous(memory_format=torch.channels_last) if self.channels_last else pixels)

    def logits(self, x: Inputs) -> Float[Tensor, "n c"]:
        return self._scores(self._network, x)

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
