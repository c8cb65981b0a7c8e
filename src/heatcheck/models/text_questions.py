"""What is asked of a text classifier before it is used: whether its answers can be compared when tokens are hidden."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from heatcheck.core.types import HeatcheckError, Inputs
from heatcheck.models.networks import watch_entries

Ask = Callable[[Inputs], Tensor]
CLASSIFIER = "use an encoder such as BERT or RoBERTa, or a decoder such as GPT-2 or Llama"


def word_embedding(network: nn.Module, name: str) -> Callable[[Tensor], Tensor]:
    """The function from token ids to word embeddings."""
    try:
        module = network.get_input_embeddings()  # type: ignore[operator]
    except (AttributeError, NotImplementedError):
        module = None
    if not callable(module):
        raise HeatcheckError(f"{name} has no word embeddings, so its inputs cannot be explained; {CLASSIFIER}")
    return partial(_first, module)


def vocabulary_size(network: nn.Module) -> int | None:
    """How many token ids have a word embedding; None where the network does not say."""
    return getattr(network.get_input_embeddings(), "num_embeddings", None)  # type: ignore[operator]


def _first(module: Callable[[Tensor], Any], ids: Tensor) -> Tensor:
    found = module(ids)
    embeds: Tensor = found[0] if isinstance(found, tuple) else found  # I-BERT gives the scale of its integers as well
    return embeds


def extra_inputs(network: nn.Module, attention: Tensor) -> dict[str, Tensor]:
    """What a network must be told besides: Longformer, that its first token attends to all others."""
    if "global_attention_mask" not in inspect.signature(network.forward).parameters:
        return {}
    everywhere = torch.zeros_like(attention)
    everywhere[:, 0] = 1
    return {"global_attention_mask": everywhere}


def knows_types(network: nn.Module) -> bool:
    """Whether a network tells the two parts of a pair apart by token types: BERT does, RoBERTa and GPT-2 do not."""
    tables = (m for name, m in network.named_modules() if name.endswith("token_type_embeddings"))
    relative = any(name.endswith("seg_embed") for name, _ in network.named_parameters())  # XLNet
    return relative or any(getattr(m, "num_embeddings", 0) > 1 for m in tables)


def reads_last_place(network: nn.Module) -> bool:
    """Whether a network takes its summary from the last place, whatever stands there, as XLNet does."""
    summary = any(type(m).__name__.endswith("SequenceSummary") for m in network.modules())
    return summary and getattr(getattr(network, "config", None), "summary_type", None) == "last"


def unpadded(x: Inputs) -> Inputs:
    """One text without its padding."""
    seen = x["attention"][0] > 0
    return Inputs({name: v[:, seen] for name, v in x.tensors.items() if name != "start"})


def first_position(network: nn.Module, rows: int, run: Callable[[], object]) -> int:
    """The number that a network gives to its first token's place, seen in a run; 0 where none is looked up.

    Args:
        network: the network.
        rows: the length of its table of positions.
        run: lets it read a short text.
    """
    found: list[int] = []

    def note(args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor) and not args[0].is_floating_point() and args[0].numel():
            found.append(int(args[0].flatten()[0]))

    tables = [m for m in network.modules() if getattr(getattr(m, "weight", None), "shape", (0,))[:1] == (rows,)]
    words = network.get_input_embeddings()  # type: ignore[operator]
    watch_entries({m: note for m in tables if m is not words}, run)
    return max(found, default=0)


def hidden(x: Inputs, place: int, token: int) -> Inputs:
    """The text with one token replaced by `token` and hidden from attention."""
    ids, attention = x["ids"].clone(), x["attention"].clone()
    ids[:, place], attention[:, place] = token, 0
    return x.replace(ids=ids, attention=attention)


def reordered(x: Inputs, order: list[int]) -> Inputs:
    """The text with its tokens in another order."""
    return Inputs({name: v[:, order] for name, v in x.tensors.items()})


def alike(a: Tensor, b: Tensor) -> bool:
    """Whether two answers differ by rounding alone."""
    tolerance = max(1e-4, 10 * torch.finfo(a.dtype).eps)
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance / 10)


def hiding_moves_others(ask: Ask, x: Inputs, token: int) -> bool:
    """Whether the tokens behind a hidden one are read as if they stood one place earlier.

    Then hiding a token is the same as taking it out; and the order of tokens matters, or there are no places to move.
    """
    tokens = int(x["attention"].sum())
    if tokens < 4:
        return False
    last = list(range(x["ids"].shape[1]))
    gone = hidden(x, 1, token)
    closed = reordered(gone, [0, *last[2:], 1])
    swapped = reordered(x, [0, 2, 1, *last[3:]])
    clean, hides, closes, swaps = (ask(v) for v in (x, gone, closed, swapped))
    close = (hides - closes).abs().max() <= 1e-2 * (hides - clean).abs().max()
    return alike(hides, closes) and bool(close) and not alike(clean, swaps)
