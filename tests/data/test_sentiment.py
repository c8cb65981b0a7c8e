"""Laws of the sentiment corpus."""

import re

import pytest

from heatcheck.core.types import HeatcheckError, digest_of
from heatcheck.data import corpus
from heatcheck.data.sentiment import LEXICON, split_of

WORDS = [{w for slot in LEXICON.values() for w in slot[label]} for label in (0, 1)]


def tokens(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


def test_the_lexicon_is_large_and_unambiguous() -> None:
    assert len(WORDS[0]) == len(WORDS[1]) == 60
    assert not WORDS[0] & WORDS[1]


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("seed", [0, 7])
def test_laws(split: str, seed: int) -> None:
    samples = corpus(600, seed, split)
    assert len({s.content for s in samples}) == len({s.digest for s in samples}) == 600
    assert sum(s.label for s in samples) == 300
    for s in samples:
        assert 6 <= len(tokens(s.content)) <= 30, s.content
        assert s.digest == digest_of(s.content) and s.problem is None
        assert split_of(s.content) == split
        assert s.content[0].isupper() and s.content[-1] in ".!" and "{" not in s.content
        assert not re.search(r"  | a [aeiou]| an [^aeiou]|\b(not|never|no)\b|n't", s.content), s.content


def test_spans_are_all_the_words_that_decide_and_nothing_else() -> None:
    for s in corpus(1000, 3):
        decisive = [s.content[a:b] for a, b in s.reference["spans"]]
        assert decisive and {w.lower() for w in decisive} <= WORDS[s.label], s
        rest = s.content
        for a, b in reversed(s.reference["spans"]):
            rest = rest[:a] + rest[b:]
        assert not {t.lower() for t in tokens(rest)} & (WORDS[0] | WORDS[1]), s.content


def test_the_same_every_time_and_a_longer_one_begins_with_the_shorter() -> None:
    assert corpus(50, 1) == corpus(50, 1)
    assert corpus(80, 1)[:50] == corpus(50, 1)
    assert corpus(50, 1) != corpus(50, 2)


def test_golden_text() -> None:
    assert (
        corpus(1, 0, "test")[0].content
        == "It is ten minutes from the airport by bus. The view alone made it an ordeal."
    )


def test_splits_share_words_but_no_text() -> None:
    train, test = (corpus(3000, 0, split) for split in ("train", "test"))
    assert not {s.content for s in train} & {s.content for s in test}
    used = [{s.content[a:b].lower() for s in part for a, b in s.reference["spans"]} for part in (train, test)]
    assert used[0] == used[1] == WORDS[0] | WORDS[1]


def test_nothing_but_the_decisive_words_tells_the_label() -> None:
    """Frames with the words taken out occur under both labels alike."""
    samples = corpus(8000, 5)
    assert len({s.name for s in samples}) == len({s.content for s in samples}) == 8000
    counts: dict[str, list[int]] = {}
    for s in samples:
        words = {t.lower() for t in tokens(s.content)} - WORDS[0] - WORDS[1] - {"a", "an"}
        for word in words:
            counts.setdefault(word, [0, 0])[s.label] += 1
    for word, (negative, positive) in counts.items():
        n = negative + positive
        assert abs(negative - positive) < 5 * n**0.5 + 1, (word, negative, positive)


def test_texts_are_varied() -> None:
    samples = corpus(500, 0)
    assert len({s.content.split(".")[0] for s in samples}) > 300
    assert any(len(re.findall(r"[.!]", s.content)) == 2 for s in samples)
    assert {len(s.reference["spans"]) for s in samples} >= {1, 2, 3}


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(HeatcheckError, match="'dev'"):
        corpus(3, 0, "dev")  # type: ignore[arg-type]
