"""Where words of a line stand, left to right, where some are read from the right: Unicode's rules (UAX 9) for whole words.

Words are not split, and there are no embeddings, overrides or isolates: control characters are shown as escapes.
"""

import unicodedata
from collections.abc import Iterable, Sequence

_RIGHT, _LEFT, _NUMBER, _NEUTRAL = "R", "L", "N", ""
_CLASSES = {"L": _LEFT, "R": _RIGHT, "AL": _RIGHT}
_NUMBERS, _BETWEEN, _BESIDE = ("EN", "AN"), ("ES", "CS"), ("ET",)


def reads_leftward(words: Iterable[str]) -> bool:
    """Whether a line is read from the right: its first letter is.

    >>> reads_leftward(["1:", "שלום", "world"]), reads_leftward(["a", "שלום"])
    (True, False)
    """
    return next((kind for word in words if (kind := _kind(word)) in (_LEFT, _RIGHT)), _LEFT) == _RIGHT


def visual_order(words: Sequence[str], leftward: bool) -> list[tuple[int, bool]]:
    """The places of a line's words, from left to right, and whether each is written from the right.

    >>> [i for i, _ in visual_order(["one", " ", "שלום", " ", "עולם", " ", "two"], leftward=False)]
    [0, 1, 4, 3, 2, 5, 6]

    Args:
        words: in the order in which they are read; spaces are words.
        leftward: whether the whole line is read from the right.
    """
    levels = _levels(words, leftward)
    order = list(range(len(words)))
    for level in range(max(levels, default=0), 0, -1):
        at = 0
        while at < len(order):
            end = at
            while end < len(order) and levels[order[end]] >= level:
                end += 1
            order[at:end] = reversed(order[at:end])
            at = max(end, at + 1)
    return [(i, levels[i] % 2 == 1) for i in order]


def _levels(words: Sequence[str], leftward: bool) -> list[int]:
    base = _RIGHT if leftward else _LEFT
    kinds = _with_numbers(words, base)
    levels = []
    for i, kind in enumerate(kinds):
        if kind == _NEUTRAL:
            before = next((_side(k) for k in reversed(kinds[:i]) if k), base)
            behind = next((_side(k) for k in kinds[i + 1 :] if k), base)
            kind = before if before == behind else base
        levels.append({_RIGHT: 1, _NUMBER: 2}.get(kind, 2 if leftward else 0))
    return levels


def _with_numbers(words: Sequence[str], base: str) -> list[str]:
    """The kind of each word; numbers behind words from the left are such words, and have their points and signs with them."""
    kinds = [_kind(word) for word in words]
    classes = [{unicodedata.bidirectional(letter) for letter in word} for word in words]
    for i in range(1, len(kinds) - 1):
        if classes[i] <= set(_BETWEEN) and len(words[i]) == 1 and kinds[i - 1] == kinds[i + 1] == _NUMBER:
            kinds[i] = _NUMBER
    for i, own in enumerate(classes):
        beside = [kinds[j] for j in (i - 1, i + 1) if 0 <= j < len(kinds)]
        if own and own <= set(_BESIDE) and _NUMBER in beside:
            kinds[i] = _NUMBER
    strong = base
    for i, kind in enumerate(kinds):
        if kind in (_LEFT, _RIGHT):
            strong = kind
        elif kind == _NUMBER and strong == _LEFT:
            kinds[i] = _LEFT
    return kinds


def _side(kind: str) -> str:
    """Neutral words count numbers as words from the right."""
    return _LEFT if kind == _LEFT else _RIGHT


def _kind(word: str) -> str:
    """What decides a word's place: its first letter; without letters, a digit."""
    classes = [unicodedata.bidirectional(letter) for letter in word]
    strong = next((_CLASSES[c] for c in classes if c in _CLASSES), _NEUTRAL)
    return strong or (_NUMBER if any(c in _NUMBERS for c in classes) else _NEUTRAL)
