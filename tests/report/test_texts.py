"""Texts on the page: what people read, lines, folds, colours, underlines."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.report.exhibits import for_script, text
from heatcheck.report.texts import SHORT, THRESHOLD, Text, Values, blocks, folds, line_ends, spelled

MUTANTS = [
    ("report/texts.py", "strength[i] >= threshold", "strength[i] > 1.5 * threshold", "test_nothing_strong_is_folded"),
    ("report/texts.py", "yield token[2:]", 'yield f" {token[2:]}"', "test_tokens_are_joined_as_people_read_them"),
    ("report/texts.py", "begins[len(begins) * part // parts]", "begins[0]", "test_lines_hold_every_token_once"),
    (
        "report/texts.py",
        "own = v[~np.array(text.special, dtype=bool)] if n else v",
        "own = v",
        "test_special_tokens_have_no_say_in_the_scale",
    ),
]

STYLES = {
    "WordPiece": (["[CLS]", "un", "##fair", "##ly", ",", "yes", "[SEP]"], "unfairly, yes"),
    "WordPiece in brackets": (["[CLS]", "(", "so", "##so", ")", "[SEP]"], "(soso)"),
    "byte-level": (["<s>", "Un", "fair", "ly", ",", "Ġyes", "</s>"], "Unfairly, yes"),
    "byte-level accents": (["<s>", "Ġna", "Ã¯", "ve", "Ġcaf", "Ã", "©", "</s>"], "naïve café"),
    "byte-level emoji": (["Ġok", "ĠðŁ", "ĺ", "Ģ"], "ok 😀"),
    "SentencePiece": (["▁un", "fair", "ly", ",", "▁yes", "</s>"], "unfairly, yes"),
    "SentencePiece bytes": (["▁ok", "▁", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>"], "ok 😀"),
    "words": (["just", "words"], "just words"),
}


def is_special(token):
    return token in ("[CLS]", "[SEP]", "<s>", "</s>")


@pytest.mark.parametrize("style", STYLES)
def test_tokens_are_joined_as_people_read_them(style):
    tokens, read = STYLES[style]
    special = [is_special(t) for t in tokens]
    shown = spelled(tokens, special)
    assert len(shown) == len(tokens)
    assert "".join(p for p, odd in zip(shown, special, strict=True) if not odd).strip() == read
    laid = Text.of({"tokens": tokens, "special": special})
    assert "".join(p for p, odd in zip(laid.pieces, special, strict=True) if not odd).strip() == read


@given(st.lists(st.text(), max_size=12), st.data())
def test_no_token_is_too_odd(tokens, data):
    special = data.draw(st.lists(st.booleans(), min_size=len(tokens), max_size=len(tokens)))
    shown = Text.of({"tokens": tokens, "special": special})
    assert len(shown.pieces) == len(tokens)
    values = Values.of(np.arange(len(tokens)) - 2.0, shown)
    assert sum(len(run) for b in blocks(shown, values) for line in b.lines for _, run in line) == len(tokens)


def movie(lengths, seed=0):
    """A text with as many words per sentence as asked for, each of one or two tokens."""
    rng = np.random.default_rng(seed)
    rows = [("[CLS]", "", True, -1, -1)]
    word = 0
    for sentence, n in enumerate(lengths):
        for _ in range(n):
            rows.append((f"w{word}", f" w{word}", False, word, sentence))
            if rng.random() < 0.3:
                rows.append(("##ing", "ing", False, word, sentence))
            word += 1
    rows.append(("[SEP]", "", True, -1, -1))
    keys = ("tokens", "pieces", "special", "word", "sentence")
    return {"kind": "text", **dict(zip(keys, map(list, zip(*rows, strict=True)), strict=True))}


@given(st.lists(st.integers(1, 150), min_size=1, max_size=6), st.integers(5, 70))
def test_lines_hold_every_token_once(lengths, longest):
    shown = movie(lengths)
    words = [n >= 0 and n != before for n, before in zip(shown["word"], [-1, *shown["word"]], strict=False)]
    ends = line_ends(shown["sentence"], words, shown["special"], longest)
    assert ends[-1] == len(words) and all(a < b for a, b in zip([0, *ends], ends, strict=False))
    for start, stop in zip([0, *ends], ends, strict=False):
        assert len({s for s in shown["sentence"][start:stop] if s >= 0}) == 1  # no line holds two sentences
        assert sum(words[start:stop]) <= longest and words[start + (start == 0)]  # none begins within a word


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 50)), max_size=20), st.floats(0.05, 1))
def test_nothing_strong_is_folded(lines, threshold):
    strength, words = [s for s, _ in lines], [n for _, n in lines]
    found = folds(strength, words, threshold)
    closed = [i for start, stop in found for i in range(start, stop)]
    assert closed == sorted(set(closed))
    assert all(strength[i] < threshold for i in closed)
    if sum(words) <= SHORT:
        assert not found
    for i, (s, n) in enumerate(lines):  # and what is weak and long is folded
        assert i in closed or s >= threshold or n < 12 or sum(words) <= SHORT


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 99))
def test_every_word_is_shown_once_and_in_order(lengths, seed):
    display = movie(lengths, seed)
    shown = Text.of(display)
    heat = np.random.default_rng(seed).standard_normal(len(shown.tokens)) ** 5
    values = Values.of(heat, shown)
    laid = blocks(shown, values)
    read = "".join(
        (" " if gap else "") + piece for b in laid for line in b.lines for _, run in line for gap, piece, _ in run
    )
    assert [w for w in read.replace("[CLS]", " ").replace("[SEP]", " ").replace("w", " w").split()] == [
        "".join(p.strip() for p, n in zip(display["pieces"], display["word"], strict=True) if n == word)
        for word in range(sum(lengths))
    ]
    folded = [css for b in laid if b.words for line in b.lines for _, run in line for *_, css in run]
    assert all(css in ("", "sp") or abs(int(css[1:])) <= 8 * THRESHOLD for css in folded)
    assert sum(b.words for b in laid) <= sum(lengths) == sum(shown.words)


def test_colours_follow_the_sign_and_the_strongest_token():
    shown = Text.of({"tokens": ["a", "b", "c", "d"], "special": [False] * 4})
    assert Values.of(np.array([2.0, -1.0, 0.0, -2.0]), shown).levels == (8, -4, 0, -8)
    assert Values.of(np.array([3.0, 2.0, 1.0, 1.0]), shown).levels == (8, 4, 0, 0)  # positive: from the minimum on
    assert Values.of(np.array([np.nan, np.inf, 1.0, 0.0]), shown).levels == (0, 0, 8, 0)
    assert Values.of(np.zeros(4), shown).levels == (0,) * 4 == Values.of(np.full(4, 7.0), shown).levels
    assert Values.of(np.array([1e-300, -1e-320, 0, 0]), shown).levels[0] in (0, 8)
    assert Values.of(np.ones(2), shown).levels == (8, 8, 0, 0)  # a map that is too short


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_stored_steps_give_the_values_back(heat):
    shown = Text.of({"tokens": ["x"] * len(heat), "special": [False] * len(heat)})
    values = Values.of(np.array(heat), shown)
    top = max(map(abs, heat))
    if values.unit:
        assert np.allclose(np.array(values.steps) * values.unit, heat, atol=2e-3 * top)


def test_special_tokens_have_no_say_in_the_scale():
    shown = Text.of({"tokens": ["[CLS]", "a", "b"], "special": [True, False, False]})
    values = Values.of(np.array([100.0, 1.0, -0.5]), shown)
    assert values.levels[1:] == (8, -4)
    assert next(css for b in blocks(shown, values) for line in b.lines for _, run in line for *_, css in run) == "sp"


def test_padding_before_a_text_is_skipped():
    shown = Text.of({"tokens": ["a", "b"], "special": [False, False], "first": 3})
    assert Values.of(np.array([9.0, 9.0, 9.0, 0.0, 1.0]), shown).levels == (0, 8)


def test_a_rationale_is_underlined_in_one_stroke_and_counted_where_folded():
    display = movie([30, 30, 30])
    display["rationale"] = [40 <= i < 45 for i in range(len(display["tokens"]))]
    shown = Text.of(display)
    runs = [run for b in blocks(shown) for line in b.lines for under, run in line if under]
    assert [len(run) for run in runs] == [5]
    heat = np.zeros(len(display["tokens"]))
    heat[5] = 1.0
    first, rest = blocks(shown, Values.of(heat, shown))
    assert (first.words, rest.words, rest.marked) == (0, 60, 5)
    assert [b.words for b in blocks(shown)] == [30, 0, 30]  # as people marked it


def test_the_pieces_of_the_text_win_over_the_tokens():
    display = {"tokens": ["[UNK]", "##s"], "special": [False, False], "pieces": ["  Żółć", "s"]}
    assert Text.of(display).pieces == (" Żółć", "s")
    assert Text.of({**display, "pieces": ["only one"]}).pieces == (" [UNK]", "s")


def test_a_special_token_does_not_touch_the_text():
    display = {
        "tokens": ["[CLS]", "it", "'", "s"],
        "special": [True, False, False, False],
        "pieces": ["", "It", "'", "s"],
    }
    assert Text.of(display).pieces == (" [CLS]", " It", "'", "s")


def test_sentences_of_old_folders_end_at_full_stops():
    tokens = ["[CLS]", "good", ".", "bad", "!", "[SEP]"]
    assert Text.of({"tokens": tokens, "special": [is_special(t) for t in tokens]}).ends == (3, 6)


def test_two_texts_of_a_pair_are_two_lines():
    display = {
        "tokens": ["[CLS]", "it", "rains", "[SEP]", "wet", "[SEP]"],
        "special": [True, False, False, True, False, True],
        "sentence": [-1, 0, 0, -1, 1, -1],
    }
    assert Text.of(display).ends == (4, 6)


def test_the_script_gets_numbers_and_no_lines():
    display = movie([30, 40])
    made = text(display, np.arange(len(display["tokens"])) / 10)
    assert "blocks" in made and "blocks" not in for_script(made) and for_script(None) is None
    assert len(made["steps"]) == len(display["tokens"]) and made["folds"] == [(0, 1)]
