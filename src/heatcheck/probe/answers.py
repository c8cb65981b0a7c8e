"""What is kept of a model's answer: enough for every output, small enough to store for every question."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.devices import CPU, indices
from heatcheck.core.types import HeatcheckError, NotApplicable

WIDTH = 6
OUTPUTS = ("logit", "prob", "logprob", "margin", "accuracy")
_OF_CLASSES = ("prob", "logprob", "margin", "accuracy")
"""Outputs that compare classes; a softmax over one number would be 1 whatever the number."""
_BETWEEN_CLASSES = ("margin", "accuracy")
"""Outputs that need classes of which one excludes the others; each of several labels has a probability by itself."""


@dataclass(frozen=True)
class Answers:
    """Target logit, log-sum-exp, and the two largest logits with their classes, in double precision."""

    rows: Float[Tensor, "n 6"]
    target: Int[Tensor, " n"]
    label: Int[Tensor, " n"]
    number: bool | None = None
    """Whether the model gives one number per input; None where the rows must be looked at to know."""
    multi_label: bool = False
    """Whether each class is a label of its own: its probability is the sigmoid of its logit, whatever the others'."""

    @staticmethod
    def compress(logits: Float[Tensor, "n c"], target: Int[Tensor, " n"]) -> Float[Tensor, "n 6"]:
        """Reduce logits to the six numbers that are kept."""
        wide = logits.detach().double()
        k = min(2, wide.shape[1])
        top = wide.topk(k, dim=1)
        value, index = top.values, top.indices.double()
        if k == 1:
            value, index = (torch.cat([t, torch.full_like(t, -torch.inf)], 1) for t in (value, index))
        own = wide.gather(1, target[:, None])
        return torch.cat([own, wide.logsumexp(1, keepdim=True), value, index], 1)

    def read(self, output: str) -> Float[Tensor, " n"]:
        """The scalar called `output` for each row; NaN for accuracy where there is no label."""
        logit, lse, first, second, winner = self.rows[:, :5].unbind(1)
        if self.multi_label:
            return _of_label(logit, output)
        if torch.isneginf(second).any() if self.number is None else self.number:
            _needs_classes(output)
        if output == "logit":
            return logit
        if output == "logprob":
            return logit - lse
        if output == "prob":
            return (logit - lse).exp()
        if output == "margin":
            return logit - torch.where(winner == self.target, second, first)
        if output == "accuracy":
            return torch.where(self.label < 0, torch.nan, (winner == self.label).double())
        raise HeatcheckError(f"output={output!r} is not one of {', '.join(OUTPUTS)}")

    @property
    def predicted(self) -> Int[Tensor, " n"]:
        """The class with the largest logit."""
        return self.rows[:, 4].long()

    def reshape(self, *shape: int) -> "ShapedAnswers":
        """The same rows, read as an array of the given shape."""
        return ShapedAnswers(self, shape)


@dataclass
class Known:
    """Answers by question: where the model lives for whoever asks, on the CPU for the store.

    Args:
        filed: answers on the CPU, by question.
        device: where the model lives.
    """

    filed: dict[bytes, Float[np.ndarray, "6"]]
    device: torch.device = CPU
    _there: list[Float[Tensor, "k 6"]] = field(default_factory=list)
    _places: dict[bytes, int] = field(default_factory=dict)
    _unfiled: list[bytes] = field(default_factory=list)

    def __contains__(self, key: bytes) -> bool:
        return key in self.filed or key in self._places

    def add(self, keys: Sequence[bytes], rows: Float[Tensor, "k 6"]) -> None:
        """Keep new answers; from another device than the CPU they are copied when they are filed."""
        if self.device == CPU:
            self.filed.update(zip(keys, rows.numpy(), strict=True))
        else:
            self._hold(keys, rows)
            self._unfiled += keys

    def read(self, keys: Sequence[bytes]) -> Float[Tensor, "n 6"]:
        """The answers to questions that are all known."""
        if self.device == CPU:
            return torch.from_numpy(np.stack([self.filed[key] for key in keys]) if keys else np.empty((0, WIDTH)))
        stored = [key for key in dict.fromkeys(keys) if key not in self._places]
        if stored:
            self._hold(stored, torch.from_numpy(np.stack([self.filed[key] for key in stored])).to(self.device))
        return self._rows(keys)

    def file(self) -> dict[bytes, Float[np.ndarray, "6"]]:
        """All answers on the CPU; those that are new there are copied at once."""
        if self._unfiled:
            self.filed.update(zip(self._unfiled, self._rows(self._unfiled).cpu().numpy(), strict=True))
            self._unfiled = []
        return self.filed

    def _hold(self, keys: Sequence[bytes], rows: Tensor) -> None:
        first = len(self._places)
        self._places.update((key, first + i) for i, key in enumerate(keys))
        self._there.append(rows)

    def _rows(self, keys: Sequence[bytes]) -> Tensor:
        if not keys:
            return torch.empty(0, WIDTH, dtype=torch.float64, device=self.device)
        self._there = [torch.cat(self._there)]
        places = [self._places[key] for key in keys]
        return self._there[0][indices(places, self.device)]


@dataclass(frozen=True)
class ShapedAnswers:
    """Answers whose rows form an array, such as methods × samples × steps."""

    answers: Answers
    shape: tuple[int, ...]

    def read(self, output: str) -> Tensor:
        """The scalar called `output`, in the array's shape."""
        return self.answers.read(output).reshape(self.shape)


def scalar(
    logits: Float[Tensor, "n c"], target: Int[Tensor, " n"], output: str, *, multi_label: bool = False
) -> Float[Tensor, " n"]:
    """The differentiable scalar that a method explains.

    Args:
        logits: class scores.
        target: the class of each row.
        output: which scalar.
        multi_label: whether each class is a label of its own.
    """
    own = logits.gather(1, target[:, None]).squeeze(1)
    if multi_label:
        return _of_label(own, output)
    if logits.shape[1] == 1:
        _needs_classes(output)
    if output == "logit":
        return own
    if output == "logprob":
        return own - logits.logsumexp(1)
    if output == "prob":
        return (own - logits.logsumexp(1)).exp()
    if output == "margin":
        others = logits.scatter(1, target[:, None], -torch.inf)
        return own - others.amax(1)
    raise HeatcheckError(f"output={output!r} cannot be explained; it must be logit, prob, logprob or margin")


def _of_label(logit: Float[Tensor, " n"], output: str) -> Float[Tensor, " n"]:
    """A scalar of a label that holds or not whatever the others: what two classes with the logits 0 and `logit` would give."""
    if output == "logit":
        return logit
    if output == "prob":
        return logit.sigmoid()
    if output == "logprob":
        return F.logsigmoid(logit)
    if output in _BETWEEN_CLASSES:
        raise NotApplicable(
            f"needs classes that exclude each other for output={output}, but of the model's labels several may hold"
        )
    raise HeatcheckError(f"output={output!r} is not one of {', '.join(OUTPUTS)}")


def _needs_classes(output: str) -> None:
    if output in _OF_CLASSES:
        raise NotApplicable(f"needs classes for output={output}, but the model gives one number per input")
