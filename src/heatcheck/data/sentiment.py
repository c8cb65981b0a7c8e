"""Short reviews whose verdict rests on known words: a corpus with its own ground truth.

Every review is written from templates. The words that decide its label come from a lexicon and are recorded
as spans; all else (who, where, when, plain facts) reads the same under either verdict. No negations.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, TypeVar

from heatcheck.core.types import HeatcheckError, Sample, digest_of
from heatcheck.data.texts import text_sample

CLASSES = ("negative", "positive")
T = TypeVar("T")
Split = Literal["train", "test"]


def _words(*lines: str) -> tuple[str, ...]:
    return tuple(word for line in lines for word in line.split())


def _phrases(*lines: str) -> tuple[str, ...]:
    return tuple(phrase for line in lines for phrase in line.split(", "))


# Negative and positive words by slot: in a template's slot any word of it fits.
LEXICON: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "adj": (
        _words(
            "abysmal appalling atrocious awful bad disappointing dismal dreadful dull forgettable frustrating",
            "ghastly horrible horrid inferior irritating lousy mediocre miserable painful pathetic poor shoddy",
            "tedious terrible unbearable unpleasant woeful worthless wretched",
        ),
        _words(
            "admirable amazing awesome beautiful brilliant charming delightful enjoyable excellent exceptional",
            "fabulous fantastic fine good gorgeous great impressive lovely magnificent marvellous outstanding",
            "perfect pleasant remarkable splendid stunning superb superior terrific wonderful",
        ),
    ),
    "verb": (
        _words("hated disliked detested loathed despised regretted resented"),
        _words("loved enjoyed adored admired liked appreciated treasured"),
    ),
    "moved": (
        _words("annoyed bored disappointed disgusted frustrated irritated infuriated"),
        _words("amazed charmed delighted enchanted impressed pleased thrilled"),
    ),
    "adv": (
        _words("badly poorly clumsily carelessly terribly horribly sloppily ineptly"),
        _words("beautifully brilliantly flawlessly expertly perfectly superbly skilfully wonderfully"),
    ),
    "noun": (
        _words("disaster disgrace failure letdown mess nightmare ordeal flop"),
        _words("delight gem joy marvel pleasure treat triumph success"),
    ),
}


@dataclass(frozen=True)
class _Topic:
    used: str
    whole: tuple[str, ...]
    part: tuple[str, ...]
    when: tuple[str, ...]
    made: tuple[str, ...]
    fact: tuple[str, ...]


_TOPICS = (
    _Topic(
        used="watched",
        whole=_phrases("this film, the movie, this documentary, the sequel, the remake, this thriller"),
        part=_phrases("the plot, the acting, the dialogue, the ending, the soundtrack, the camera work, the script"),
        when=_phrases("on Friday night, with my brother, at the old cinema, on the plane, for the second time"),
        made=(
            "it is {adv} directed",
            "the story was {adv} told",
            "the part of the mother was {adv} acted",
            "the night scenes were {adv} filmed",
            "the whole thing was {adv} edited",
        ),
        fact=(
            "It runs for about two hours.",
            "The story is set in a harbour town in the sixties.",
            "We saw the early showing with two colleagues.",
            "The lead plays a teacher who moves to the coast.",
            "I had read the book a few years ago.",
            "Half of it is in French with subtitles.",
        ),
    ),
    _Topic(
        used="tried",
        whole=_phrases("this restaurant, the new bistro, this little place, the tasting menu, the lunch menu"),
        part=_phrases("the soup, the pasta, the bread, the fish, the dessert, the coffee, the sauce, the curry"),
        when=_phrases("on Sunday, with the whole family, after work, on a rainy day, for my birthday"),
        made=(
            "the vegetables were {adv} cooked",
            "the main course was {adv} seasoned",
            "everything on the plate was {adv} prepared",
            "the starter was {adv} presented",
        ),
        fact=(
            "We had a table for four near the window.",
            "It is on the corner opposite the station.",
            "I ordered three courses and a glass of water.",
            "They open at noon and close at ten.",
            "The menu changes every Tuesday.",
            "My cousin had the vegetarian plate.",
        ),
    ),
    _Topic(
        used="used",
        whole=_phrases("the support team, this repair shop, the delivery service, the garage, this moving company"),
        part=_phrases("the advice, the communication, the workmanship, the reception, the paperwork, the follow-up"),
        when=_phrases("last week, for the first time, on Monday morning, in the spring, before the holidays"),
        made=(
            "my question was {adv} handled",
            "the pickup was {adv} organised",
            "the next steps were {adv} explained",
            "the work itself was {adv} done",
        ),
        fact=(
            "I called twice about the same order.",
            "They came on a Wednesday.",
            "They asked for my number and the invoice.",
            "The appointment was at half past nine.",
            "My neighbour had told me about them.",
            "The whole thing took three days.",
        ),
    ),
    _Topic(
        used="booked",
        whole=_phrases("this hotel, the guest house, the apartment, the hostel, this campsite, the lodge"),
        part=_phrases("the room, the bed, the breakfast, the view, the bathroom, the pool, the front desk"),
        when=_phrases("in July, for three nights, for a conference, with our two kids, on the way south"),
        made=(
            "the place was {adv} furnished",
            "the garden was {adv} maintained",
            "the lobby was {adv} decorated",
            "the house is {adv} run",
        ),
        fact=(
            "Our room was on the third floor.",
            "It is ten minutes from the airport by bus.",
            "We arrived around six in the evening.",
            "There is a bakery across the street.",
            "Breakfast is from seven to ten.",
            "We had asked for two single rooms.",
        ),
    ),
    _Topic(
        used="used",
        whole=_phrases("this phone, the laptop, this camera, the tablet, this e-reader, the new model"),
        part=_phrases("the screen, the battery, the software, the manual, the case, the charger, the menu"),
        when=_phrases("every day, at the office, for a month, on a long trip, in the kitchen"),
        made=(
            "the hinge is {adv} built",
            "the controls are {adv} designed",
            "the settings are {adv} documented",
            "the parts were {adv} assembled",
        ),
        fact=(
            "It came in a grey box with a cable.",
            "I bought it in March to replace an older one.",
            "It weighs a little under a kilo.",
            "My sister has the previous version.",
            "The cord is about two metres long.",
            "There are three buttons on the side.",
        ),
    ),
)

_VERDICTS = (
    "{whole} was {really}{adj}",
    "{whole} turned out to be {adj}",
    "{part} was {adj} and {whole} {really}{moved} me",
    "I {really}{verb} {whole}, above all {part}",
    "we {verb} {part} and thought {whole} was {adj}",
    "{part} was {really}{adj}",
    "{part} was {adj} and {part} was {adj}",
    "{made}",
    "I have to say that {made}",
    "{made} and {part} was {adj}",
    "{whole} was {a noun} from start to finish",
    "what {a adj} experience {whole} was",
    "I would call {whole} {a noun}, and {part} {really}{moved} us",
    "from the first minute {whole} {moved} all of us",
    "everyone in our group {verb} {part}",
    "to me {part} seemed {really}{adj}",
    "{whole} {moved} my parents and {part} was {adj}",
    "{part} alone made it {a noun}",
)
_OPENINGS = ("We {used} {whole} {when}.", "I {used} {whole} {when}.")
_SHAPES = (
    "{verdict}{end}",
    "{verdict}{end}",
    "{verdict}{end} {fact}",
    "{fact} {verdict}{end}",
    "{opening} {verdict}{end}",
    "{verdict}{end} {verdict}{end}",
)
_FREE: dict[str, tuple[str, ...]] = {
    "verdict": _VERDICTS,
    "opening": _OPENINGS,
    "end": (".", ".", ".", "!"),
    "really": ("really ", "truly ", "simply ", "absolutely ", "", "", ""),
}
_DECISIVE = re.compile(r"([^{}]*)\{(a )?(\w+)\}")
_OPEN = re.compile(rf"\{{((?!(?:{'|'.join(LEXICON)})\}})\w+)\}}")
_START = re.compile(r"(?:^|(?<=[.!] ))[a-z]")
_TOKENS = range(6, 31)


def corpus(n: int, seed: int = 0, split: Split = "train") -> list[Sample]:
    """Reviews with labels (0 negative, 1 positive, by turns) and the spans of their decisive words.

    The same n, seed and split give the same reviews; a longer corpus begins with the shorter one. No text is
    in both splits, whatever the seeds: which split a text belongs to is decided by its digest.

    Args:
        n: how many.
        seed: which ones.
        split: `train` (three quarters of all possible texts) or `test`.
    """
    if split not in ("train", "test"):
        raise HeatcheckError(f"split={split!r} is neither 'train' nor 'test'")
    rng = Random(f"{seed}|{split}")
    found: dict[str, Sample] = {}
    for _ in range(100 * n + 1000):
        if len(found) >= n:
            return list(found.values())
        label = len(found) % 2
        text, spans = _write(rng, label)
        if text not in found and split_of(text) == split and len(re.findall(r"\w+|[^\w\s]", text)) in _TOKENS:
            sample = text_sample(f"{split}-{seed}-{len(found):05d}", text, {"spans": spans})
            found[text] = replace(sample, label=label)
    raise HeatcheckError(f"n={n}: there are not that many different reviews; {len(found)} were found")


def split_of(text: str) -> Split:
    """The split a text belongs to."""
    return "test" if int(digest_of("split", text)[:2], 16) < 64 else "train"


def _write(rng: Random, label: int) -> tuple[str, list[tuple[int, int]]]:
    """A text and where its decisive words are."""
    template, words, spans, text = _plan(rng), set[str](), [], ""
    for before, article, slot in _DECISIVE.findall(template):
        word = _pick(rng, [w for w in LEXICON[slot][label] if w not in words])
        words.add(word)
        text += before + ((_article(word) + " ") if article else "")
        spans.append((len(text), len(text) + len(word)))
        text += word
    text += template[template.rindex("}") + 1 :]
    return _START.sub(lambda m: m[0].upper(), text), spans


def _plan(rng: Random) -> str:
    """A text whose only open slots are its decisive words."""
    topic = _pick(rng, _TOPICS)
    whole = _pick(rng, topic.whole)
    text, used = _pick(rng, _SHAPES), set[str]()
    while match := _OPEN.search(text):
        slot = match[1]
        if slot == "whole":
            choice = "it" if whole in used else whole
            used.add(whole)
        elif slot == "used":
            choice = topic.used
        elif slot in _FREE:
            choice = _pick(rng, _FREE[slot])
        else:
            choice = _pick(rng, [c for c in getattr(topic, slot) if c not in used])
            used.add(choice)
        text = text[: match.start()] + choice + text[match.end() :]
    return text


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _pick(rng: Random, options: Sequence[T]) -> T:
    # `random()` is the one draw whose sequence Python promises to keep
    return options[int(rng.random() * len(options))]
