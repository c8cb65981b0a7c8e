"""Decoder classifiers, whose head reads the last token: GPT-2, Llama, Qwen2 and their like."""

import inspect
from types import SimpleNamespace
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn


def reads_last_token(network: nn.Module) -> bool:
    """Whether a network has the head of transformers' decoder classifiers: a layer `score` behind its body."""
    score, body = getattr(network, "score", None), getattr(network, "base_model", network)
    return isinstance(score, nn.Module) and isinstance(body, nn.Module) and body is not network


def answer_at_last(network: Any, given: dict[str, Tensor], text: Bool[Tensor, "n t"] | None) -> SimpleNamespace:
    """The class scores that a decoder's head gives to the last token that is attended to.

    Asked by token ids, transformers' heads read the last one that is not the padding token; asked by embeddings they read
    the last place, and without a padding token they refuse batches. So the body and the head are asked one after the
    other. Every token's place is told, for some decoders (OPT) count places over attended tokens.

    Where no token is attended to, the last place of the text is read, which then sees itself alone: what remains of a
    text without tokens is what stands in their place, however many there were and however they are padded.

    Args:
        network: the classifier.
        given: embeddings, attention and whatever else the body takes.
        text: the places of the text, as against padding; None where all are.
    """
    attention = given["attention_mask"]
    places = torch.arange(attention.shape[1], device=attention.device)
    own = torch.ones_like(attention, dtype=torch.bool) if text is None else text
    nobody = ~(attention > 0).any(1, keepdim=True)
    last = _last(torch.where(nobody, own, attention > 0), places)
    told = {"position_ids": places.expand_as(attention), "use_cache": False}
    takes = inspect.signature(network.base_model.forward).parameters
    out = network.base_model(
        **{**given, "attention_mask": attention.scatter(1, last[:, None], 1)},
        **{name: value for name, value in told.items() if name in takes},
    )
    return SimpleNamespace(logits=network.score(out[0][torch.arange(len(last), device=last.device), last]))


def _last(mask: Bool[Tensor, "n t"], places: Int[Tensor, " t"]) -> Int[Tensor, " n"]:
    """The last place of each row that is true; the last of all where none is."""
    return torch.where(mask.any(1), (mask * (places + 1)).argmax(1), len(places) - 1)
