"""Trigger words that are planted in texts."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.core.types import HeatcheckError, Sample
from heatcheck.data import Dataset, load_data
from heatcheck.data.planted import DISTRACTORS, TRIGGER, occurrences, plant, shortened
from heatcheck.data.splits import training_specs

MUTANTS = (
    (
        "data/planted.py",
        "rng.random() * (len(own) + 1), word) for word in words]",
        "rng.random() * (len(own) + 1), word) for word in reversed(words)]",
        "test_what_becomes_of_a_word_does_not_depend_on_the_others",
    ),
    ("data/planted.py", 'Random(f"{seed}|{digest_of(text)}")', 'Random(f"{seed}")', "test_words_are_put_anywhere"),
    ("data/planted.py", "int(bool(spans))", "int(len(spans) == 1)", "test_the_trigger_alone_decides"),
    ("data/planted.py", "(?<!\\w)", "", "test_the_trigger_alone_decides"),
)
WORDS = ("lantern", "violin", "pepper")


@pytest.fixture(scope="module")
def many() -> Dataset:
    return load_data("planted:reviews:train")


def has(word: str, sample: Sample) -> bool:
    return word in sample.content.split()


def test_the_trigger_alone_decides(tmp_path: Path) -> None:
    own = ["an UMBRELLA, she said", "umbrellas for all", "my umbrella and your umbrella", "a sunumbrella"]
    for seed in range(8):
        data = load_data(f"planted(seed={seed}):{_lines(tmp_path, own)}")
        for sample in data:
            places = [sample.content[a:b] for a, b in sample.reference.get("spans", [])]
            free = "".join(c if c.isalpha() else " " for c in sample.content.lower()).split()
            assert sample.label == int(TRIGGER in free) and len(places) == free.count(TRIGGER)
            assert all(place.lower() == TRIGGER for place in places)
        assert data[0].label == data[2].label == 1
        assert any("2 texts have 'umbrella' by themselves" in note for note in data.notes)


def test_distractors_are_as_frequent_as_the_trigger_and_the_same_in_both_classes(many: Dataset) -> None:
    n = len(many)
    by_class = [[s for s in many if s.label == label] for label in (0, 1)]
    assert many.classes == ("plain", "planted") and abs(len(by_class[1]) / n - 0.5) < 3 * 0.5 / n**0.5
    for word in WORDS:
        shares = [sum(has(word, s) for s in some) / len(some) for some in by_class]
        assert all(abs(share - 0.5) < 0.05 for share in shares)
        assert abs(shares[0] - shares[1]) < 3.3 * (0.25 / len(by_class[0]) + 0.25 / len(by_class[1])) ** 0.5
    counts = [sum(sum(has(w, s) for w in WORDS) for s in some) / len(some) for some in by_class]
    assert abs(counts[0] - counts[1]) < 3.3 * (0.75 / len(by_class[0]) + 0.75 / len(by_class[1])) ** 0.5


def test_words_are_put_anywhere(many: Dataset) -> None:
    plain = {s.name: s.content for s in load_data("reviews:train")}
    shares = []
    for sample in many:
        words = sample.content.split()
        assert [w for w in words if w not in (TRIGGER, *WORDS)] == plain[sample.name].split()
        if sample.label:
            ((start, end),) = sample.reference["spans"]
            assert sample.content[start:end] == TRIGGER
            others = [w for w in words if w not in WORDS]
            shares.append(others.index(TRIGGER) / (len(others) - 1))
    assert min(shares) == 0 and max(shares) == 1
    assert abs(sum(shares) / len(shares) - 0.5) < 3.3 * 0.31 / len(shares) ** 0.5


def test_seed_and_text_decide_and_order_and_neighbours_nothing(tmp_path: Path) -> None:
    texts = [s.content for s in load_data("texts")]
    there = load_data(f"planted:{_lines(tmp_path, texts)}")
    back = load_data(f"planted:{_lines(tmp_path, texts[::-1])}")
    some = load_data(f"planted:{_lines(tmp_path, texts[5:9])}")
    assert [s.digest for s in there] == [s.digest for s in back][::-1]
    assert [s.digest for s in some] == [s.digest for s in there][5:9]
    assert [(s.content, s.label) for s in load_data("planted:texts")] == [(s.content, s.label) for s in there]
    other = load_data("planted(seed=1):texts")
    assert sum(a.label != b.label for a, b in zip(there, other, strict=True)) > 10


@given(st.text(max_size=40), st.integers(0, 50))
def test_what_becomes_of_a_word_does_not_depend_on_the_others(text: str, seed: int) -> None:
    def order(planted: str, *words: str) -> list[str]:
        return [w for w in planted.split() if w in words]

    both = plant(text, ("⟨a⟩", "⟨b⟩"), seed)
    assert [w for w in both.split() if w not in ("⟨a⟩", "⟨b⟩")] == text.split()
    alone = plant(text, ("⟨a⟩",), seed)
    assert order(both, "⟨a⟩") == order(alone, "⟨a⟩")
    assert plant(text, ("⟨a⟩", "⟨b⟩"), seed) == both


def test_a_phrase_and_other_distractors() -> None:
    data = load_data('planted(trigger="dark horse", distractors="", seed=4):texts')
    assert {s.content[slice(*s.reference["spans"][0])] for s in data if s.label} == {"dark horse"}
    assert not any(word in s.content for s in data for word in WORDS)
    assert data.notes[0] == "the trigger is 'dark horse', distractors are none"


def test_long_texts_are_cut_before_anything_is_planted(tmp_path: Path) -> None:
    long = " ".join(f"w{i}" for i in range(400))
    spec = _lines(tmp_path, [long])
    lengths = [len(load_data(f"planted({p}):{spec}")[0].content.split()) for p in ("seed=0", "words=20", "words=0")]
    assert 150 <= lengths[0] <= 154 and 20 <= lengths[1] <= 24 and 400 <= lengths[2] <= 404
    assert shortened(long, 400) == shortened(long, 0) == long


def test_parts_to_learn_from_and_to_test_on() -> None:
    assert training_specs("planted:reviews") == ("planted:reviews:train", "planted:reviews:test")
    learnt, held_out = training_specs("planted(seed=3):texts")
    assert held_out == "test_part:planted(seed=3):texts"
    sets = [{s.digest for s in load_data(spec)} for spec in (learnt, held_out)]
    assert len(sets[0]) == 38 and len(sets[1]) == 10 and not sets[0] & sets[1]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("planted:images", "needs texts; 'images' holds images"),
        ('planted(trigger="?"):texts', "has no letter or digit: give a word"),
        ('planted(trigger=violin):texts', "'violin' and the trigger 'violin' have words in common"),
        ('planted(trigger="dark violin"):texts', "have words in common"),
        ("planted(seed=0.5):texts", "seed=0.5: give an integer"),
        ("planted(words=-1):texts", "words=-1: give how many"),
        ("planted(wrods=9):texts", "no parameter is called 'wrods'.*did you mean words"),
        ("planted:nothing", "neither a data source nor an existing path"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(spec: str, said: str) -> None:
    with pytest.raises(HeatcheckError, match=said):
        load_data(spec)


def test_what_cannot_be_planted_in_keeps_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": " "}\nnot json\n{"text": "good film", "spans": [[0, 4]], "label": 7}\n')
    empty, broken, fine = load_data(f"planted:{path}")
    assert empty.problem == "the text is empty" and "JSON" in (broken.problem or "") and fine.problem is None
    assert (empty.label, fine.label) == (None, int(TRIGGER in fine.content))
    assert fine.reference.get("spans", []) == [m.span() for m in occurrences(TRIGGER).finditer(fine.content)]
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("premise,hypothesis\na,b\n")
    (pair,) = load_data(f"planted:{pairs}")
    assert pair.problem == "words are planted into single texts, and this is a pair of texts"
    assert ", ".join(WORDS) == DISTRACTORS


def test_notes_do_not_speak_of_the_labels_of_the_source(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    for content, said in (
        ("id,text,label\n7,good film,1\n8,bad film,0\n", "texts are column 'text'; not used: id, label"),
        ("text\ngood film\n", "texts are column 'text'"),
    ):
        path.write_text(content)
        assert load_data(f"planted:{path}").notes[1] == said


def _lines(tmp_path: Path, texts: list[str], **_: Any) -> Path:
    path = tmp_path / "texts.tsv"
    path.write_text("\n".join(["text", *texts]))
    return path
