"""Spans of a text on the tokens that a model reads."""

import pytest
import torch

from heatcheck.models.load import load_model

from .conftest import say

MUTANTS = (
    ("models/text.py", 'max(length, x["ids"].shape[1])', "length", "test_texts_without_a_part_are_as_long_as_the_text"),
    (
        "models/text.py",
        "[seen(spans) for spans in parts.values()]",
        "[~seen(spans) for spans in parts.values()]",
        "test_parts_are_masks_over_tokens",
    ),
)
TEXT = "The film was good. It is bad!"


@pytest.fixture(scope="module")
def bert(bert_folder):
    return load_model(f"hf:{bert_folder}")


def words(tokens, mask):
    return [word for word, inside in zip(tokens.text, mask.tolist(), strict=False) if inside]


def test_parts_are_masks_over_tokens(bert):
    parts = {"verdict": (13, 17), "both": [(4, 8), (25, 28)], "beyond": [29, 30]}
    sample = say(TEXT + " ", reference={"spans": [(13, 17)], "parts": parts})
    x = bert.encode(sample)
    seen = bert.references(sample, x)
    assert seen["part_names"] == ("verdict", "both", "beyond") and seen["parts"].shape == (3, x["ids"].shape[1])
    tokens = bert.tokens(sample)
    assert [words(tokens, part) for part in seen["parts"]] == [["good"], ["film", "bad"], []]
    assert torch.equal(seen["mask"], seen["parts"][0])
    assert seen["mask"].dtype == seen["parts"].dtype == torch.bool


def test_texts_without_a_part_are_as_long_as_the_text(bert):
    long = "good " * 20
    parts = {"a": [0, 4], "b": [5, 9]}
    sample = say(long, reference={"parts": parts, "without": {"b": "film", "a": "bad film"}})
    x = bert.encode(sample)
    without = bert.references(sample, x)["without"]
    assert without.shape_key() == x.shape_key() and len(without) == 2
    short = bert.encode(say("bad film"))
    n = short["ids"].shape[1]
    for name in x.tensors:
        assert torch.equal(without[name][:1, :n], short[name])
    assert without["attention"][0, n:].sum() == 0 and without["special"][0, n:].all()


def test_a_mask_over_tokens_is_kept(bert):
    sample = say(TEXT, reference={"mask": torch.ones(3), "spans": [(0, 3)]})
    assert torch.equal(bert.references(sample, bert.encode(sample))["mask"], torch.ones(3))
