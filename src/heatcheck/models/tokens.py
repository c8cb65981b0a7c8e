"""How a tokenizer cuts texts: tokens with their words, sentences and places in the text."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from heatcheck.core.types import Inputs, TextPair, digest_of
from heatcheck.models.words import trimmed, words

_SENTENCE_END = re.compile(r"[.!?]+[\"'”’)\]]*(?=\s|$)")


@dataclass(frozen=True)
class Tokens:
    """A text as a model reads it, without padding.

    Args:
        text: each token as its tokenizer spells it.
        offsets: where each stands in the text, spaces in front of it left out; `(0, 0)` for special tokens. Of a pair
            of texts, where it stands in both, joined.
        special: which are added by the tokenizer, such as [CLS].
        word: the word each belongs to, -1 for special ones.
        sentence: likewise the sentence.
        cut: how many tokens the text has beyond what the model can read.
        types: which part of a pair each belongs to, as the network is told; empty where it is not.
    """

    ids: tuple[int, ...]
    text: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    special: tuple[bool, ...]
    word: tuple[int, ...]
    sentence: tuple[int, ...] = ()
    cut: int = 0
    types: tuple[int, ...] = ()


def tokenized(tokenizer: Any, content: str | TextPair, longest: int, *, types: bool = False) -> Tokens:
    """A text's tokens, and where they stand in it; both parts of a pair are cut alike where they are too long.

    Args:
        tokenizer: a fast one.
        content: the text, or the pair of texts.
        longest: how many tokens are read, special ones included.
        types: whether the network is told which part of a pair a token belongs to.
    """
    wanted = {
        "return_offsets_mapping": True,
        "return_special_tokens_mask": True,
        "padding": False,
        "verbose": False,
    }
    pair = content if isinstance(content, TextPair) else None
    given = texts_of(content)
    found = tokenizer(*given, truncation=False, **wanted)
    total = len(found["input_ids"])
    if total > longest:
        found = tokenizer(*given, truncation="longest_first", max_length=longest, **wanted)
    ids = tuple(found["input_ids"])
    special = tuple(bool(s) for s in found["special_tokens_mask"])
    text, shift = (pair.joined, len(pair.first) + 1) if pair else ("".join(given), 0)
    part = [None if s else p for s, p in zip(special, found.sequence_ids(), strict=True)]
    moved = [
        (a + shift * bool(p), b + shift * bool(p)) for (a, b), p in zip(found["offset_mapping"], part, strict=True)
    ]
    offsets = tuple((0, 0) if p is None else trimmed(text, span) for span, p in zip(moved, part, strict=True))
    own = [None if s else w for s, w in zip(special, found.word_ids(), strict=True)]
    return Tokens(
        ids=ids,
        text=tuple(tokenizer.convert_ids_to_tokens(list(ids))),
        offsets=offsets,
        special=special,
        word=words(text, moved, own, part),
        sentence=sentences(text, offsets, special, [len(pair.first)] if pair else ()),
        cut=total - len(ids),
        types=tuple(found.get("token_type_ids", ())) if types else (),
    )


def texts_of(content: str | TextPair) -> tuple[str, ...]:
    """The text, or the two texts, that a tokenizer is given."""
    return (content,) if isinstance(content, str) else tuple(content)


def read_together(tokenizer: Any, contents: Sequence[str | TextPair], longest: int, *, in_front: bool = True) -> Inputs:
    """Texts, or pairs of them, as one batch for training.

    Args:
        tokenizer: cuts them up.
        contents: the texts.
        longest: how many tokens of each are read.
        in_front: whether padding follows behind them; else it comes before them.
    """
    read = [tokenizer(*texts_of(c), truncation="longest_first", max_length=longest, verbose=False) for c in contents]
    blanks = {"input_ids": filler(tokenizer), "attention_mask": 0, "token_type_ids": tokenizer.pad_token_type_id}
    names = {"input_ids": "ids", "attention_mask": "attention", "token_type_ids": "types"}

    def joined(name: str) -> Tensor:
        rows = [torch.tensor(found[name], dtype=torch.long) for found in read]
        side = "right" if in_front else "left"
        return torch.nn.utils.rnn.pad_sequence(rows, True, blanks[name], padding_side=side)

    return Inputs({names[name]: joined(name) for name in names if name in read[0]})


def filler(tokenizer: Any) -> int:
    """The id that stands where nothing is read: the padding token's, else that of the end of a text, else of the unknown."""
    known = (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id)
    return next((int(token) for token in known if token is not None), 0)


def special_ids(tokenizer: Any) -> frozenset[int]:
    """The ids of tokens that belong to no text: begin, end, separators and padding; the unknown and mask tokens do."""
    ids = (getattr(tokenizer, f"{role}_token_id") for role in ("cls", "sep", "bos", "eos", "pad"))
    return frozenset(int(i) for i in ids if i is not None)


def tokenizer_digest(tokenizer: Any) -> str:
    """Digest of everything that decides how a text is cut up; truncation and padding are this adapter's own."""
    facts = json.loads(tokenizer.backend_tokenizer.to_str())
    for mine in ("truncation", "padding"):
        facts.pop(mine, None)
    return digest_of(json.dumps(facts, sort_keys=True))


def dense(labels: Sequence[int | None]) -> tuple[int, ...]:
    """The labels numbered 0, 1, 2 … in order of appearance; -1 where there is none."""
    numbers: dict[int, int] = {}
    return tuple(-1 if v is None else numbers.setdefault(v, len(numbers)) for v in labels)


def sentences(
    text: str, offsets: Sequence[tuple[int, int]], special: Sequence[bool], also: Sequence[int] = ()
) -> tuple[int, ...]:
    """The sentence of each token: a new one begins after `.`, `!` or `?` followed by a space, and where one ends `also`."""
    ends = [*(m.end() for m in _SENTENCE_END.finditer(text)), *also]
    return dense(
        [None if s else sum(end <= start for end in ends) for (start, _), s in zip(offsets, special, strict=True)]
    )


def pieces(text: str, offsets: Sequence[tuple[int, int]]) -> list[str]:
    """What each token stands for in the text, with the space before it; joined, they are the text.

    Of tokens that share a character, as bytes of an emoji do, the first has it.

    >>> pieces("Uneven,  at best.", [(0, 0), (0, 2), (2, 6), (6, 7), (9, 11), (12, 16), (16, 17), (0, 0)])
    ['', 'Un', 'even', ',', '  at', ' best', '.', '']
    """
    found, end = [], 0
    for start, stop in offsets:
        found.append(text[end:stop] if stop > max(start, end) else "")
        end = max(end, stop)
    return found


def token_mask(
    spans: Sequence[Sequence[int]], offsets: Sequence[tuple[int, int]], special: Sequence[bool]
) -> Bool[Tensor, " t"]:
    """Which tokens overlap a span of characters (end excluded)."""
    return torch.tensor(
        [
            not odd and any(start < span[1] and span[0] < end for span in spans)
            for (start, end), odd in zip(offsets, special, strict=True)
        ]
    )
