"""The model adapter: one interface for every kind of classifier."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heatcheck.core.devices import CPU
from heatcheck.core.types import HeatcheckError, Inputs, NotApplicable, Sample
from heatcheck.domain.base import Domain
from heatcheck.models.devices import FP32
from heatcheck.models.layers import Layer as Layer
from heatcheck.models.lengths import Rounding
from heatcheck.models.outputs import Number, Readout, as_number


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
    logits_by_readout: Any = None
    """The `logits` of this class that takes scores out of its network's output by `readout`; a subclass with another one
    reads its output itself."""
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
        self._told: tuple[str, ...] = ()
        """Those of the notes that are about its output."""
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
        return self.readout.number is not None or (self._class_count == 1 and not self.readout.multi_label)

    @property
    def multi_label(self) -> bool:
        """Whether each of its outputs is a label of its own, whose probability is the sigmoid of its score."""
        return self.readout.multi_label and self.readout.number is None

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
            if self._class_count == 1 and self.readout.number is None:
                self.classes = self.classes or ("output",)
            self._told = (*([f"{self.name}: {note}; output= names another"] if note else []), *self._what_is_read())
            self.notes += self._told
        return scores

    def _what_is_read(self) -> Iterator[str]:
        """How scores are read that are not those of classes."""
        if self.multi_label:
            yield (
                f"{self.name} has labels of which several may hold: the probability of one is the sigmoid of its score, "
                "and metrics that compare classes are skipped; hc.load_model(…, multi_label=False) reads them as classes"
            )
        elif self._class_count == 1 and self.readout.number is None:
            yield (
                f"{self.name} gives one number per input: it is explained as it is, without a softmax, and metrics "
                "that need class probabilities are skipped"
            )

    def reading(self, *, output: str | int | None = None, target: Any = None, multi_label: bool | None = None) -> Self:
        """The same model, with another part of its output taken, or a number made of it, or its scores read otherwise.

        Args:
            output: the key, attribute or position of the part.
            target: a function from the output to one number per input, or `column:N`; None for class scores.
            multi_label: whether each score is a label of its own; None for as it is.
        """
        if type(self).logits is not type(self).logits_by_readout:
            raise HeatcheckError(
                f"{type(self).__name__} reads its output itself: output=, target= and multi_label= do not reach it"
            )
        number, before = as_number(target), self.readout
        twin = copy.copy(self)
        twin.readout = Readout(
            before.output if output is None else output,
            number or before.number,
            before.multi_label if multi_label is None else multi_label,
        )
        twin.notes, twin.followed, twin._class_count = self._notes_beside_output(), set(), None
        twin.classes = self._number_names(number) if number else self.classes
        twin.__dict__.pop("identity", None)
        return twin

    def _notes_beside_output(self) -> list[str]:
        """The notes that also hold for a copy whose output is another."""
        return [note for note in self.notes if note not in self._told]

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
