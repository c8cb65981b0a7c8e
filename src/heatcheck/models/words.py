"""Which tokens make a word, whatever the tokenizer: WordPiece, byte-level BPE, SentencePiece."""

import unicodedata
from collections.abc import Sequence

Span = tuple[int, int]

_JOINERS = "\u200c\u200d"
"""Zero-width joiner and non-joiner, which stand inside words and emoji."""


def words(
    text: str, offsets: Sequence[Span], ids: Sequence[int | None], parts: Sequence[int | None]
) -> tuple[int, ...]:
    """The word of each token, numbered 0, 1, 2 … over the whole text; -1 for special tokens.

    The words of the tokenizer, corrected where they are none: a space in front of a word belongs to it (GPT-2 cuts all
    but the last of several spaces off), a combining mark or joiner to the letter before it (GPT-2 cuts pointed Hebrew
    into letters), and a word ends at a space (older Llama tokenizers know no words at all).

    Args:
        text: what the offsets count characters of.
        offsets: where each token stands.
        ids: the tokenizer's number of each token's word; None for special tokens.
        parts: which of two texts each token belongs to.
    """
    found: list[int] = []
    count, before = -1, None
    for i, own in enumerate(ids):
        if own is None:
            found.append(-1)
            continue
        if before is None or parts[i] != parts[before]:
            begins = True
        elif _blank(text, offsets[before]):
            begins = False
        elif own == ids[before]:
            begins = _spaced(text, offsets[before], offsets[i])
        else:
            begins = not _marked(text, offsets[before], offsets[i])
        count += begins
        found.append(count)
        before = i
    return _ended(text, offsets, found, parts)


def trimmed(text: str, span: Span) -> Span:
    """A token's place without the spaces in front of it; a token of nothing but space keeps its place."""
    start, end = span
    rest = text[start:end].lstrip()
    return (end - len(rest), end) if rest else span


def _blank(text: str, span: Span) -> bool:
    return span[0] < span[1] and not text[slice(*span)].strip()


def _spaced(text: str, before: Span, own: Span) -> bool:
    """Whether a space lies between two tokens, ends the first or begins the second."""
    between = text[slice(*before)][-1:] + text[before[1] : own[0]] + text[slice(*own)][:1]
    return any(c.isspace() for c in between)


def _marked(text: str, before: Span, own: Span) -> bool:
    """Whether two tokens that touch are one word because of a combining mark or joiner on either side."""
    if before[1] != own[0] or own[0] == own[1] or before[0] == before[1]:
        return False
    left, right = text[before[1] - 1], text[own[0]]
    return _joins(right) or (_joins(left) and unicodedata.category(right)[0] in "LS")


def _joins(character: str) -> bool:
    return unicodedata.category(character).startswith("M") or character in _JOINERS


def _ended(text: str, offsets: Sequence[Span], found: list[int], parts: Sequence[int | None]) -> tuple[int, ...]:
    """Spaces behind the last word of a part belong to it."""
    by_part = {part: [i for i, p in enumerate(parts) if p == part and found[i] >= 0] for part in set(parts)}
    gone = set()
    for own in by_part.values():
        last = [i for i in own if found[i] == found[own[-1]]] if own else []
        if len(last) < len(own) and all(_blank(text, offsets[i]) for i in last):
            gone.add(found[last[0]])
    return tuple(n - sum(g <= n for g in gone) if n >= 0 else -1 for n in found)
