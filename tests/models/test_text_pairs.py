"""Pairs of texts, and which tokens make a word: places, parts and truncation."""

import re

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.testing import assert_close

from heatcheck.core.types import HeatcheckError, TextPair
from heatcheck.models.text_questions import unpadded
from heatcheck.models.tokens import read_together
from heatcheck.models.words import words
from heatcheck.testing.text_zoo import FAMILIES, said, small_text

MUTANTS = (
    ("models/tokens.py", "len(pair.first) + 1", "len(pair.first)", "test_a_pair_stands_in_its_joined_text"),
    ("models/tokens.py", "[len(pair.first)] if pair else ()", "()", "test_a_pair_stands_in_its_joined_text"),
    ("models/words.py", "elif _blank(text, offsets[before])", "elif False", "test_words_of_every_kind_of_tokenizer"),
    (
        "models/words.py",
        "begins = not _marked(",
        "begins = bool(text) or _marked(",
        "test_marks_and_joiners_stay_in_their_word",
    ),
    (
        "models/text.py",
        'given["token_type_ids"] = self',
        "given = given; _ = self",
        "test_the_network_is_told_the_parts",
    ),
)
PAIR = TextPair("the plot was bad", "It is a good plot. The film was bad!")


def spelled(model, pair):
    tokens = model.tokens(said(pair))
    text = pair if isinstance(pair, str) else pair.joined
    return tokens, [None if s else text[a:b] for (a, b), s in zip(tokens.offsets, tokens.special, strict=True)]


def by_word(model, text):
    """The characters of each word."""
    tokens = model.tokens(said(text))
    whole = text if isinstance(text, str) else text.joined
    found = {}
    for (start, end), word in zip(tokens.offsets, tokens.word, strict=True):
        if word >= 0:
            first, last = found.get(word, (start, end))
            found[word] = min(first, start), max(last, end)
    assert list(found) == list(range(len(found)))
    return [whole[start:end].strip() for start, end in found.values()]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_pair_stands_in_its_joined_text(name):
    model = small_text(name)
    tokens, _ = spelled(model, PAIR)
    covered = {place for start, end in tokens.offsets for place in range(start, end)}
    assert {place for place, c in enumerate(PAIR.joined) if not c.isspace()} <= covered
    pieces = [word.strip(".!") for word in by_word(model, PAIR)]
    assert [piece for piece in pieces if piece] == re.sub("[.!]", "", PAIR.joined).split()
    seconds = [i for i, (start, _) in enumerate(tokens.offsets) if start > len(PAIR.first)]
    firsts = [i for i, special in enumerate(tokens.special) if not special and i not in seconds]
    assert (
        max(firsts) < min(seconds) and min(tokens.word[i] for i in seconds) == max(tokens.word[i] for i in firsts) + 1
    )
    assert {tokens.sentence[i] for i in firsts} == {0} and {tokens.sentence[i] for i in seconds} == {1, 2}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_network_is_told_the_parts(name):
    model = small_text(name)
    x = model.encode(said(PAIR))
    told = name not in (
        "DistilBERT",
        "RoBERTa",
        "DeBERTa",
        "DeBERTa-v2",
        "ModernBERT",
        "MPNet",
        "GPT-2",
        "Llama",
        "Qwen2",
    )
    assert ("types" in x) == told
    found = model.tokenizer(*PAIR, return_tensors="pt")
    names = ("input_ids", "attention_mask", *(["token_type_ids"] if told else []))
    with torch.inference_mode():
        truth = model.module()(**{k: found[k] for k in names}).logits
        assert_close(model.logits(x), truth, rtol=1e-4, atol=1e-5)
        assert_close(model.logits(model.encode(said(PAIR), 100)), truth, rtol=1e-4, atol=1e-5)
        if told:
            flat = unpadded(x)
            assert not torch.allclose(model.logits(flat.replace(types=flat["types"] * 0)), truth, rtol=1e-4)
        wrapped = model.domain.wrap({k: found[k] for k in names})
        assert_close(model.logits(wrapped), truth, rtol=1e-4, atol=1e-5)


def test_the_longer_part_of_a_pair_is_cut_and_it_is_told():
    model = small_text("BERT")
    short, long = "the plot", "good film " * 100
    for pair in (TextPair(short, long), TextPair(long, short)):
        tokens, shown = spelled(model, pair)
        assert len(tokens.ids) == model.longest == 120
        assert tokens.cut == len(model.tokenizer(*pair)["input_ids"]) - 120 > 0
        assert "".join(s for s in shown if s).count("plot") == 1
    assert model.tokens(said(PAIR)).cut == 0
    with pytest.raises(HeatcheckError, match="sees no token"):
        model.tokens(said(TextPair("\u200b", "\u200b")))


def test_spans_of_a_pair_count_the_characters_of_both():
    model = small_text("RoBERTa")
    start = PAIR.joined.index("good")
    sample = said(PAIR, reference={"spans": [(4, 8), (start, start + 4)]})
    for at_least in (0, 64):
        x = model.encode(sample, at_least)
        mask = model.references(sample, x)["mask"]
        assert mask.shape == x["ids"].shape[1:]
        assert model.tokenizer.decode(x["ids"][0, mask]).split() == ["plot", "good"]


def test_training_reads_pairs_as_explanations_do():
    for name in ("BERT", "GPT-2", "XLNet"):
        model = small_text(name)
        x = read_together(model.tokenizer, [PAIR, "a film"], 100, in_front=model.domain.in_front)
        with torch.inference_mode():
            both = torch.cat([model.logits(model.encode(said(c))) for c in (PAIR, "a film")])
            assert_close(model.logits(x), both, rtol=1e-4, atol=1e-5)


ACUTE = "\u0301"
TRICKY = {
    "two  spaces and\na line": ["two", "spaces", "and", "a", "line"],
    "the \U0001f600 film": ["the", "\U0001f600", "film"],
    "the שלום film": ["the", "שלום", "film"],
    "bad\u0301 film": ["bad", "film"],
    " film  ": ["film"],
}


@pytest.mark.parametrize("name", ["BERT", "RoBERTa", "ALBERT", "GPT-2", "Llama"])
def test_words_of_every_kind_of_tokenizer(name):
    model = small_text(name)
    for text, expected in TRICKY.items():
        assert [w.replace(ACUTE, "") for w in by_word(model, text)] == expected, text  # BERT reads no accents
    assert by_word(model, "the film\x00s") in (
        ["the", "film\x00s"],
        ["the", "film", "\x00s"],
        ["the", "film", "\x00", "s"],
    )


def test_marks_and_joiners_stay_in_their_word():
    pointed, persian, family = "שָׁלוֹם", "می‌خواهم", "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    for name in ("GPT-2", "Qwen2"):
        for word in (pointed, persian, family):
            assert by_word(small_text(name), f"good {word} film") == ["good", word, "film"]


def test_a_tokenizer_that_knows_no_words_gets_those_between_spaces():
    """Older Llama tokenizers say that all tokens are of one word."""
    text, offsets = "a bad  film", [(0, 1), (1, 5), (5, 6), (6, 9), (9, 11)]
    assert words(text, offsets, [0] * 5, [0] * 5) == (0, 1, 2, 2, 2)


@pytest.mark.parametrize("name", ["BERT", "RoBERTa", "Llama"])
@given(text=st.text(st.sampled_from("ab .!'\u0301\u05b8\u05e9\u200d\U0001f600\n\x00中"), min_size=1, max_size=12))
@example(text="a  ")
@example(text="\n a")
def test_words_are_runs_without_spaces_between(name, text):
    model = small_text(name)
    if not model.tokenizer(text, add_special_tokens=False)["input_ids"]:
        return
    tokens = model.tokens(said(text))
    own = [w for w in tokens.word if w >= 0]
    assert own == sorted(own) and set(own) == set(range(max(own) + 1))
    if not any(len(text[slice(*span)].split()) > 1 for span in tokens.offsets):  # unknown characters are one token
        assert all(len(word.split()) <= 1 for word in by_word(model, text))
