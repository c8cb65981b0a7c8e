"""What a run stores of a text, so that people can read it: pieces, words, sentences, and what people marked."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.core.types import Inputs, Sample
from heatcheck.models.load import load_model
from heatcheck.models.tokens import pieces

from .conftest import say

MUTANTS = (
    (
        "models/tokens.py",
        'text[end:stop] if stop > max(start, end) else ""',
        "text[start:stop]",
        "test_pieces_are_the_text",
    ),
    ("models/text.py", ".flatten()[places]", ".flatten()", "test_a_text_is_shown_with_its_rationale"),
    ("domain/text.py", 'ids = x["ids"][0, first:last]', 'ids = x["ids"][0, :last]', "test_padding_is_not_shown"),
)


@pytest.fixture(scope="module")
def bert(bert_folder):
    return load_model(f"hf:{bert_folder}")


def test_a_text_is_shown_with_its_rationale(bert):
    text = "The film was  good. It is bad!"
    sample = say(text, reference={"spans": [(14, 18)]})
    shown = bert.display(sample, bert.encode(sample, 32))
    assert shown["kind"] == "text" and shown["first"] == 0
    assert "".join(shown["pieces"]) == text
    marked = [p for p, on in zip(shown["pieces"], shown["rationale"], strict=True) if on]
    assert marked == ["  good"]
    assert len({len(shown[k]) for k in ("tokens", "special", "word", "sentence", "pieces", "rationale")}) == 1
    assert max(shown["sentence"]) == 1 and shown["special"][0] and shown["word"][0] == -1
    assert "rationale" not in bert.display(say(text), bert.encode(say(text)))


def test_token_ids_have_no_pieces(bert):
    sample = Sample("ready", "d", torch.tensor([5, 6, 7]))
    shown = bert.display(sample, bert.encode(sample))
    assert len(shown["tokens"]) == 3 and "pieces" not in shown


def test_padding_is_not_shown(bert):
    ids = torch.tensor([[0, 0, 5, 6, 0]])
    seen = ids > 0
    number = torch.where(seen, seen.cumsum(1) - 1, -1)
    x = Inputs({"ids": ids, "attention": seen.long(), "special": ~seen, "word": number, "sentence": number})
    shown = bert.domain.display(x)
    assert (shown["first"], shown["word"], len(shown["tokens"])) == (2, [0, 1], 2)


@given(st.text(max_size=40), st.data())
def test_pieces_are_the_text(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    offsets = [(0, 0), *zip([0, *cuts], [*cuts, len(text)], strict=True), (0, 0)]
    doubled = [offset for offset in offsets for _ in range(data.draw(st.integers(1, 2)))]  # as bytes of a character
    found = pieces(text, doubled)
    assert len(found) == len(doubled) and "".join(found) == text
