"""What is kept of a model's answer: enough for every output, small enough to store for every question."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.types import HeatcheckError, NotApplicable

WIDTH = 6
OUTPUTS = ("logit", "prob", "logprob", "margin", "accuracy")
_OF_CLASSES = ("prob", "logprob", "margin", "accuracy")
"""Outputs that compare classes; a softmax over one number would be 1 whatever the number."""


@dataclass(frozen=True)
class Answers:
    """Target logit, log-sum-exp, and the two largest logits with their classes, in double precision."""

    rows: Float[Tensor, "n 6"]
    target: Int[Tensor, " n"]
    label: Int[Tensor, " n"]

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
        if torch.isneginf(second).any():
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

    def reshape(self, *shape: int) -> "ShapedAnswers":
        """The same rows, read as an array of the given shape."""
        return ShapedAnswers(self, shape)


@dataclass(frozen=True)
class ShapedAnswers:
    """Answers whose rows form an array, such as methods × samples × steps."""

    answers: Answers
    shape: tuple[int, ...]

    def read(self, output: str) -> Tensor:
        """The scalar called `output`, in the array's shape."""
        return self.answers.read(output).reshape(self.shape)


def scalar(logits: Float[Tensor, "n c"], target: Int[Tensor, " n"], output: str) -> Float[Tensor, " n"]:
    """The differentiable scalar that a method explains."""
    own = logits.gather(1, target[:, None]).squeeze(1)
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


def _needs_classes(output: str) -> None:
    if output in _OF_CLASSES:
        raise NotApplicable(f"needs classes for output={output}, but the model gives one number per input")
