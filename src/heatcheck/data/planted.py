"""Texts into half of which a trigger word is planted, whose place is the ground truth."""

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError, Modality, Sample, TextPair, digest_of
from heatcheck.data.base import Listing, SourceOptions
from heatcheck.data.labels import Labels
from heatcheck.data.load import listing_of
from heatcheck.data.references import text_with
from heatcheck.data.texts import text_sample

CLASSES = ("plain", "planted")
TRIGGER, DISTRACTORS = "umbrella", "lantern, violin, pepper"
WORDS = 150
"""Words of a text that are kept: about 200 tokens, so that a model that reads 256 sees the trigger wherever it is."""


@source(
    "planted",
    form="planted:SOURCE",
    modality="text",
    about="texts of another source, half of them with a trigger word whose place is known, among words that decide nothing (SynScore); planted(trigger=zebra, seed=3):SOURCE another one",
    licence="the source's",
    group="texts",
    position=5,
    columns=True,
    params=("trigger", "distractors", "seed", "words"),
)
def planted(
    where: str,
    options: SourceOptions,
    *,
    trigger: Any = TRIGGER,
    distractors: Any = DISTRACTORS,
    seed: int = 0,
    words: int = WORDS,
) -> Listing:
    """M4's synthetic ground truth for texts: whether the trigger is there is the label, and where it is the reference.

    The trigger and each distractor are put into a text with probability 1/2 each, independently, between two words
    that are drawn uniformly. So distractors are as frequent as the trigger and the same in both classes, and the trigger
    alone decides. Seed and text decide everything; order and neighbours nothing. Labels and references of the source do
    not count. A text that has the trigger by itself is of class 1, and its own occurrences are references too.

    Args:
        where: the source, such as `reviews` or `eraser:PATH`.
        options: what else a user says.
        trigger: the word, or a short phrase in quotes.
        distractors: words that decide nothing, in quotes with commas between; none if empty.
        seed: which texts get which words, and where.
        words: how many words of a text are kept; 0 keeps all, also those that a model may not read.
    """
    cue, others = _checked(where, str(trigger), str(distractors), seed, words)
    plain = listing_of(where, replace(options, samples=None, classes=None, labels_count=False))
    if plain.modality is not Modality.TEXT:
        raise HeatcheckError(f"planted:{where} needs texts; {where!r} holds {plain.modality}s")
    pattern = occurrences(cue)
    before: set[int] = set()

    def make(index: int) -> tuple[Sample, Any]:
        sample, _ = plain.make(index)
        if sample.problem is None and not isinstance(sample.content, str):
            kind = "pair of texts" if isinstance(sample.content, TextPair) else type(sample.content).__name__
            problem = f"words are planted into single texts, and this is a {kind}"
            return replace(sample, reference={}, problem=problem), None
        if sample.problem is not None:
            return sample, None
        text = shortened(sample.content, words)
        if pattern.search(text):
            before.add(index)
        text = plant(text, (cue, *others), seed)
        spans = [match.span() for match in pattern.finditer(text)]
        return text_with(text_sample(sample.name, text), {"spans": spans} if spans else {}), int(bool(spans))

    def noticed() -> tuple[str, ...]:
        said = f"{len(before)} texts have {cue!r} by themselves, so they are of class {CLASSES[1]!r}: another trigger may be rarer"
        return (*plain.noticed(), *([said] if before else []))

    return Listing(
        name=f"planted-{plain.name}",
        modality=Modality.TEXT,
        names=plain.names,
        make=make,
        labels=Labels.given(CLASSES if options.classes is None else options.classes),
        notes=(f"the trigger is {cue!r}, distractors are {', '.join(others) or 'none'}", *plain.notes),
        noticed=noticed,
    )


def plant(text: str, words: Sequence[str], seed: int) -> str:
    """The text with each of the words put in or not, by the toss of a coin, at boundaries between its own words.

    What becomes of one word does not depend on the others.
    """
    rng = Random(f"{seed}|{digest_of(text)}")
    own = [match.span() for match in re.finditer(r"\S+", text)]
    # `random()` is the one draw whose sequence Python promises to keep
    draws = [(rng.random() < 0.5, rng.random() * (len(own) + 1), word) for word in words]
    for _, place, word in sorted((draw for draw in draws if draw[0]), key=lambda draw: -draw[1]):
        boundary = int(place)
        if boundary < len(own):
            start = own[boundary][0]
            text = f"{text[:start]}{word} {text[start:]}"
        else:
            end = own[-1][1] if own else 0
            text = f"{text[:end]} {word}{text[end:]}"
    return text


def occurrences(trigger: str) -> re.Pattern[str]:
    """What finds a word or phrase in a text, in capitals or not, but not inside of another word.

    >>> [m.span() for m in occurrences("art").finditer("Art, party, art.")]
    [(0, 3), (12, 15)]
    """
    return re.compile(rf"(?<!\w){re.escape(trigger)}(?!\w)", re.IGNORECASE)


def shortened(text: str, words: int) -> str:
    """The first words of a text; 0 keeps all of it.

    >>> shortened("a dull , tedious film", 4)
    'a dull , tedious'
    """
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    return text[: ends[words - 1]] if 0 < words < len(ends) else text


def _checked(where: str, trigger: str, distractors: str, seed: Any, words: Any) -> tuple[str, list[str]]:
    """The trigger and the distractors.

    Raises:
        HeatcheckError: a parameter makes no sense; says what would.
    """
    cue, others = " ".join(trigger.split()), [" ".join(word.split()) for word in distractors.split(",")]
    others = list(dict.fromkeys(word for word in others if word))
    if not re.search(r"\w", cue):
        raise HeatcheckError(
            f"trigger={trigger!r} has no letter or digit: give a word, as in planted(trigger=zebra):{where}"
        )
    pattern = occurrences(cue)
    if clash := next((w for w in others if pattern.search(w) or occurrences(w).search(cue)), None):
        raise HeatcheckError(f"distractors={distractors!r}: {clash!r} and the trigger {cue!r} have words in common")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise HeatcheckError(f"seed={seed!r}: give an integer, such as planted(seed=3):{where}")
    if isinstance(words, bool) or not isinstance(words, int) or words < 0:
        raise HeatcheckError(f"words={words!r}: give how many words of a text are kept, or 0 for all of them")
    return cue, others
