"""Texts as a page shows them: pieces as people read them, sentences as lines, folds where a map says little."""

import codecs
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVELS = 8
"""Shades of each colour."""
THRESHOLD = 0.5
"""A line may be folded where no token has this share of full colour."""
SHORT = 60
"""Words of a text that is shown as it is, without folds."""
_FOLD = 12  # words that are worth folding
_LINE = 60  # words of a line; longer sentences are shown in several
_STEPS = 1000  # whole numbers from no colour to full colour that values are rounded to
_END = re.compile(r"[.!?…。！？]+[\"'”’)\]]*$")
_GLUED_BEFORE = re.compile(r"[.,;:!?…%)\]}’”]")
_GLUED_BEHIND = re.compile(r".*[(\[{“‘]$")
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """The letter of each byte in byte-level vocabularies: printable bytes are themselves, others follow from Ā on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{chr(b): b for b in printable}, **{chr(256 + i): b for i, b in enumerate(others)}}


_LETTERS = _byte_alphabet()


def spelled(tokens: Sequence[str], special: Sequence[bool]) -> list[str]:
    r"""Tokens as people read them, each with a space before it where a word begins.

    Knows WordPiece (`##ing`), SentencePiece (`▁the`, `<0xF0>`) and byte-level vocabularies (`Ġthe`, `Ã©`). Of a character
    that several tokens share, the one that completes it has it.

    >>> spelled(["un", "##fair", "!"], [False] * 3), spelled(["The", "ĠcafÃ", "©"], [False] * 3)
    ([' un', 'fair', '!'], [' The', ' caf', 'é'])
    """
    own = [token for token, odd in zip(tokens, special, strict=True) if not odd]
    if any(token.startswith("▁") for token in own):
        read = _sentence_pieces
    elif any("Ġ" in token or "Ċ" in token for token in own):
        read = _byte_level
    else:
        read = _word_pieces
    words = read(own)
    return [f" {token}" if odd else next(words) for token, odd in zip(tokens, special, strict=True)]


def _word_pieces(tokens: Sequence[str]) -> Iterator[str]:
    before = ""
    for token in tokens:
        if token.startswith("##") and len(token) > 2:
            yield token[2:]
        else:
            glued = before and (_GLUED_BEFORE.fullmatch(token) or _GLUED_BEHIND.fullmatch(before))
            yield token if glued else f" {token}"
        before = token


def _sentence_pieces(tokens: Sequence[str]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in tokens:
        byte = _BYTE.fullmatch(token)
        yield decoder.decode(bytes([int(byte[1], 16)])) if byte else token.replace("▁", " ")


def _byte_level(tokens: Sequence[str]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for i, token in enumerate(tokens):
        known = all(letter in _LETTERS for letter in token)
        text = decoder.decode(bytes(_LETTERS[letter] for letter in token)) if known else token
        yield f" {text}" if i == 0 and not text.startswith(" ") else text


def _one_space(piece: str) -> str:
    """A piece with one space before it instead of any number of spaces and line breaks."""
    return f" {piece.strip()}" if piece[:1].isspace() else piece.rstrip()


def line_ends(
    sentence: Sequence[int], words: Sequence[bool], special: Sequence[bool], longest: int = _LINE
) -> list[int]:
    """Where the lines end, token excluded: a line per sentence, several of about equal length where it is long.

    Special tokens stand in the line before them, the first ones in the first line.

    Args:
        sentence: the sentence of each token; whatever for special ones.
        words: which tokens begin a word.
        special: which are special.
        longest: words of a line.

    >>> line_ends([-1, 0, 0, 1, -1], [False, True, True, True, False], [True, False, False, False, True])
    [3, 5]
    """
    starts, now = [0] if len(sentence) else [], None
    for i, (number, odd) in enumerate(zip(sentence, special, strict=True)):
        if not odd:
            if now is not None and number != now:
                starts.append(i)
            now = number
    ends = []
    for start, stop in zip(starts, [*starts[1:], len(sentence)], strict=False):
        begins = [i for i in range(start, stop) if words[i]]
        parts = max(1, math.ceil(len(begins) / longest))
        ends += [begins[len(begins) * part // parts] for part in range(1, parts)] + [stop]
    return ends


def folds(strength: Sequence[float], words: Sequence[int], threshold: float = THRESHOLD) -> list[tuple[int, int]]:
    """Runs of lines that may be folded, from the first to behind the last: those in which nothing is strong.

    A short text has none, and neither has a run of a few words.

    Args:
        strength: of each line's strongest token, from 0 to 1.
        words: how many words each line has.
        threshold: from which strength on a line is always shown.

    >>> folds([0.9, 0.1, 0.2, 0.7], [20, 20, 20, 20])
    [(1, 3)]
    """
    if sum(words) <= SHORT:
        return []
    found, start = [], 0
    for i in range(len(strength) + 1):
        if i == len(strength) or strength[i] >= threshold:
            if sum(words[start:i]) >= _FOLD:
                found.append((start, i))
            start = i + 1
    return found


@dataclass(frozen=True)
class Text:
    """A text in lines.

    Args:
        pieces: what people read for each token, with a space before it where one is.
        tokens: as the model's tokenizer spells them.
        special: which are added by the tokenizer, such as [CLS].
        marked: which belong to the human rationale; empty where it is not known, or cut off.
        ends: where the lines end, token excluded.
        words: how many words each line has.
        first: the place of the first token in a map.
    """

    pieces: tuple[str, ...]
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    marked: tuple[bool, ...]
    ends: tuple[int, ...]
    words: tuple[int, ...]
    first: int = 0

    @classmethod
    def of(cls, display: Mapping[str, Any]) -> "Text":
        """From what a run stores of a text; folders of earlier releases have tokens and special alone."""
        tokens = [str(token) for token in display["tokens"]]
        special = _filled(display.get("special"), len(tokens))
        stored = display.get("pieces") or ()
        if len(stored) == len(tokens):
            pieces = [f" {t}" if odd else _one_space(p) for p, t, odd in zip(stored, tokens, special, strict=True)]
        else:
            pieces = [_one_space(piece) for piece in spelled(tokens, special)]
        behind_special = [False, *special[:-1]]
        pieces = [f" {p.strip()}" if odd and p else p for p, odd in zip(pieces, behind_special, strict=False)]
        numbers = display.get("word") or ()
        words = _begins(numbers, special) if len(numbers) == len(tokens) else _spaced(pieces, special)
        sentence = display.get("sentence") or ()
        if len(sentence) != len(tokens):
            sentence = _sentences(pieces, special)
        ends = line_ends(sentence, words, special)
        per_line = [sum(words[a:b]) for a, b in zip([0, *ends], ends, strict=False)]
        marked = _filled(display.get("rationale"), len(tokens))
        return cls(
            tuple(pieces),
            tuple(tokens),
            tuple(special),
            tuple(marked) if any(marked) else (),
            tuple(ends),
            tuple(per_line),
            int(display.get("first") or 0),
        )

    @property
    def lines(self) -> list[range]:
        """The tokens of each line."""
        return [range(a, b) for a, b in zip([0, *self.ends], self.ends, strict=False)]

    def folds(self) -> list[tuple[int, int]]:
        """Lines in which people marked nothing; none where no rationale is known."""
        return (
            folds([float(any(self.marked[i] for i in line)) for line in self.lines], self.words) if self.marked else []
        )

    @property
    def is_short(self) -> bool:
        """Whether it fits in a line or two."""
        return sum(self.words) <= SHORT


def _filled(flags: Sequence[Any] | None, n: int) -> list[bool]:
    known = [bool(flag) for flag in flags or ()][:n]
    return known + [False] * (n - len(known))


def _begins(numbers: Sequence[int], special: Sequence[bool]) -> list[bool]:
    """Where the number of the word changes."""
    found, now = [], None
    for number, odd in zip(numbers, special, strict=True):
        found.append(not odd and number != now)
        now = now if odd else number
    return found


def _spaced(pieces: Sequence[str], special: Sequence[bool]) -> list[bool]:
    spaced = [not odd and piece.startswith(" ") for piece, odd in zip(pieces, special, strict=True)]
    first = next((i for i, odd in enumerate(special) if not odd), None)
    return [begins or i == first for i, begins in enumerate(spaced)]


def _sentences(pieces: Sequence[str], special: Sequence[bool]) -> list[int]:
    """The sentence of each token, where it is not stored: a new one begins at the space behind `.`, `!` or `?`."""
    found, number, ended = [], 0, False
    for piece, odd in zip(pieces, special, strict=True):
        if not odd:
            number += ended and piece.startswith(" ")
            ended = bool(_END.search(piece))
        found.append(number)
    return found


@dataclass(frozen=True)
class Values:
    """A map over a text's tokens, rounded to a thousandth of its scale.

    Args:
        steps: each token's value, in whole units.
        unit: what one step is worth.
        low: the value without colour, in steps; other than zero in maps of positive values alone.
    """

    steps: tuple[int, ...]
    unit: float
    low: int

    @classmethod
    def of(cls, heat: NDArray[np.floating], text: Text) -> "Values":
        """Scaled by the strongest token; special ones, which are never deleted, do not count.

        Not by a percentile, as pictures are: of 500 tokens, the five strongest are what a reader wants to tell apart.
        """
        n = len(text.tokens)
        v = np.zeros(n)
        given = np.asarray(heat, dtype=np.float64).reshape(-1)[text.first : text.first + n]
        v[: len(given)] = np.nan_to_num(given, nan=0.0, posinf=0.0, neginf=0.0)
        own = v[~np.array(text.special, dtype=bool)] if n else v
        low = float(own.min()) if own.size and own.min() > 0 else 0.0
        top = float(np.abs(own - low).max()) if own.size else 0.0
        unit = top / _STEPS
        if not unit:  # nothing differs, or differences are too small to be divided
            return cls((0,) * n, 0.0, 0)
        bound = 1e6 * top
        return cls(tuple(int(s) for s in np.rint(np.clip(v, -bound, bound) / unit)), unit, round(low / unit))

    @property
    def shares(self) -> tuple[float, ...]:
        """Each token's share of full colour, from −1 to 1."""
        return tuple(max(-1.0, min(1.0, (step - self.low) / _STEPS)) for step in self.steps)

    @property
    def levels(self) -> tuple[int, ...]:
        """Each token's shade, from −8 (against the class) to 8 (for it)."""
        return tuple(math.floor(LEVELS * share + 0.5) for share in self.shares)

    def folds(self, text: Text) -> list[tuple[int, int]]:
        """The lines of a text that may be folded under this map."""
        shares = [0.0 if odd else abs(share) for share, odd in zip(self.shares, text.special, strict=True)]
        return folds([max((shares[i] for i in line), default=0.0) for line in text.lines], text.words)


@dataclass(frozen=True)
class TextBlock:
    """Lines that are shown, or folded together.

    Args:
        words: how many words are folded; 0 where they are shown.
        marked: how many tokens of the human rationale are folded.
        lines: runs of tokens, each with whether it is underlined; a token is (space before it, piece, CSS class).
    """

    words: int
    marked: int
    lines: tuple[tuple[tuple[bool, tuple[tuple[bool, str, str], ...]], ...], ...]


def blocks(text: Text, values: Values | None = None) -> list[TextBlock]:
    """All lines of a text in order, under a map or as people marked it."""
    levels = values.levels if values else (0,) * len(text.tokens)
    closed = values.folds(text) if values else text.folds()
    lines = [tuple(_runs(text, line, levels)) for line in text.lines]
    found, at = [], 0
    for start, stop in [*closed, (len(lines), len(lines))]:
        if lines[at:start]:
            found.append(TextBlock(0, 0, tuple(lines[at:start])))
        if start < stop:
            tokens = range(text.lines[start].start, text.lines[stop - 1].stop)
            marked = sum(text.marked[i] for i in tokens) if text.marked else 0
            found.append(TextBlock(sum(text.words[start:stop]), marked, tuple(lines[start:stop])))
        at = stop
    return found


def _runs(text: Text, line: range, levels: Sequence[int]) -> Iterator[tuple[bool, tuple[tuple[bool, str, str], ...]]]:
    run: list[tuple[bool, str, str]] = []
    under = False
    for i in line:
        marked = bool(text.marked and text.marked[i])
        if run and marked != under:
            yield under, tuple(run)
            run = []
        under = marked
        piece = text.pieces[i]
        css = "sp" if text.special[i] else f"t{levels[i]}" if levels[i] else ""
        run.append((i > line.start and piece.startswith(" "), piece.removeprefix(" "), css))
    if run:
        yield under, tuple(run)
