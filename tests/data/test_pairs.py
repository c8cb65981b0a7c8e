"""Pairs of texts, such as premises and hypotheses."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import heatcheck as hc
from heatcheck.api.study import Study
from heatcheck.core.types import HeatcheckError, Modality, TextPair, digest_of
from heatcheck.data import load_data
from heatcheck.data.texts import text_sample
from heatcheck.run.work import Sources, Work

MUTANTS = (
    (
        "data/texts.py",
        "digest_of(*(part.encode",
        "digest_of(b''.join(part.encode",
        "test_no_two_contents_share_a_digest",
    ),
    ("data/eraser.py", "start += len(text) + 1", "start += len(text)", "test_rationales_of_both_documents"),
    ("data/eraser.py", "if set(ids) == set(parts):", "if False:", "test_rationales_of_both_documents"),
    ("data/tables.py", "or usual_pair(columns)", "or ()", "test_usual_names"),
    (
        "data/items.py",
        "not (texts and all(_are_texts(item[key]) for key in texts))",
        "True",
        "test_texts_beside_token_ids",
    ),
    ("data/items.py", "if len(item) > 3 or not _may_be_label(item[2]):", "if False:", "test_parts_that_would_be_lost"),
)
PAIR = TextPair("It rains.", "It is wet.")
ROW = {"premise": PAIR.first, "hypothesis": PAIR.second, "label": 0}
NAMES = [
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text", "text_pair"),
    ("text_a", "text_b"),
]


def contents(spec: Any, **options: Any) -> list[Any]:
    return [s.content for s in load_data(spec, **options)]


@pytest.mark.parametrize(("first", "second"), NAMES)
def test_usual_names(first: str, second: str, tmp_path: Path) -> None:
    row = {"id": "x", second: PAIR.second, first: PAIR.first, "label": 1}
    forms: list[Any] = [[row], pl.DataFrame([row]), tmp_path / "a.csv", tmp_path / "a.jsonl", tmp_path / "a.parquet"]
    pl.DataFrame([row]).write_csv(tmp_path / "a.csv")
    pl.DataFrame([row]).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    for form in forms:
        data = load_data(form)
        assert (data.modality, data[0].content, data[0].label) == (Modality.TEXT, PAIR, 1)
        assert data[0].digest == digest_of(*PAIR)
        (note,) = data.notes
        assert f"{first!r} and {second!r}" in note and "pairs of" in note and "not used: id" in note


def test_named_columns(tmp_path: Path) -> None:
    path = tmp_path / "claims.tsv"
    path.write_text("claim\tevidence\ttext\tverdict\nIt is wet.\tIt rains.\tx\t1\n")
    for named in ("evidence,claim", "evidence, claim", ("evidence", "claim"), ["evidence", "claim"], (1, 0), "1,0"):
        assert contents(path, text_column=named, label_column="verdict") == [PAIR]
    assert contents([{"a": PAIR.first, "b": PAIR.second}], text_column=("a", "b")) == [PAIR]
    assert contents(path, text_column="claim", label_column="verdict") == ["It is wet."]
    for wrong, said in (
        ("evidence,clam", "text_column='clam': .*did you mean claim"),
        ("evidence,claim,text", "name one column, or the two of a pair"),
        (("claim", "claim"), "name one column, or the two of a pair"),
        ((0, "claim"), "both are column 'claim'"),
        ("claim,verdict", "column 'verdict' cannot hold both"),
    ):
        with pytest.raises(HeatcheckError, match=said):
            load_data(path, text_column=wrong, label_column="verdict")
    with pytest.raises(HeatcheckError, match="items have no such key; they have a, b"):
        load_data([{"a": "x", "b": "y"}], text_column=("a", "c"))


def test_a_column_may_have_a_comma_in_its_name() -> None:
    assert contents(pl.DataFrame({"a,b": ["one"], "a": ["two"], "b": ["three"]}), text_column="a,b") == ["one"]


def test_objects() -> None:
    assert contents(PAIR) == contents([PAIR]) == contents([(PAIR, 1)]) == contents([{"text": PAIR}]) == [PAIR]
    batch = {"premise": ["a", "b"], "hypothesis": ["c", "d"], "label": [0, 1]}
    assert contents(batch) == contents([batch]) == [TextPair("a", "c"), TextPair("b", "d")]
    assert [s.label for s in load_data(([PAIR, TextPair("a", "b"), PAIR], [1, 0, 1]))] == [1, 0, 1]
    assert hc.TextPair is TextPair


TRIPLES = [("A man eats a fish.", "Somebody eats.", 0), ("It rains.", "It is wet.", 2)]
FIRSTS, SECONDS, CLASSES = map(list, zip(*TRIPLES, strict=True))


@pytest.mark.parametrize(
    "spec",
    [
        TRIPLES,
        [list(triple) for triple in TRIPLES],
        iter(TRIPLES),
        [(FIRSTS, SECONDS, CLASSES)],
        DataLoader(TRIPLES, batch_size=2),
    ],
    ids=["tuples", "lists", "an iterable", "a batch", "a loader"],
)
def test_two_texts_and_a_label(spec: Any) -> None:
    data = load_data(spec)
    assert [(s.content, s.label) for s in data] == [(TextPair(a, b), label) for a, b, label in TRIPLES]
    assert data.notes == ("items are pairs of texts, their first two parts, and labels, the third",)


def test_two_texts_and_a_word_or_no_label() -> None:
    data = load_data([("a", "b", "yes"), ("c", "d", "no"), ("e", "f", None)])
    assert [s.label for s in data] == [1, 0, None] and data.classes == ("no", "yes")


@pytest.mark.parametrize(
    "item",
    [("A man eats.", "Somebody eats.", 0, "dev-7"), ("A man eats.", "Somebody eats.", {"label": 0}), list("abcde")],
)
def test_parts_that_would_be_lost(item: Any) -> None:
    with pytest.raises(HeatcheckError, match=f"items have {len(item)} parts, '{item[0]}', '{item[1]}', .*give dicts"):
        load_data([item])


def test_parts_that_are_not_used_are_said() -> None:
    data = load_data([("good", 1, "dev-7", 3.5), ("bad", 0, "dev-8", 1.5)])
    assert [(s.content, s.label) for s in data] == [("good", 1), ("bad", 0)]
    assert data.notes == ("contents are the first part of items, labels the second; not used: 'dev-7', float",)


def test_labels_that_may_be_second_texts_are_said() -> None:
    rows = [triple[:2] for triple in TRIPLES]
    for spec in (rows, DataLoader(rows), [(f"text {i}", f"w{i}") for i in range(11)]):
        (note,) = load_data(spec).notes
        assert "every label is another text, such as '" in note and "hc.TextPair(first, second)" in note
    few = [("good", "pos"), ("bad", "neg")]
    repeated = [*rows, ("He eats.", "Somebody eats.")]
    for spec in (few, repeated, [("a.png", "a cat"), ("b.png", "a dog")], [(f"text {i}", i) for i in range(11)]):
        assert not any("TextPair" in note for note in load_data(spec).notes)
    assert not load_data(rows, classes=SECONDS).notes


IDS = {"input_ids": [101, 7, 102, 8, 102], "token_type_ids": [0, 0, 0, 1, 1], "attention_mask": [1] * 5}


def test_texts_beside_token_ids() -> None:
    beside = (
        "; token ids beside them are not used (--text-column input_ids, in Python text_column=, names them instead)"
    )
    (pair,) = found = load_data([{**ROW, **IDS}])
    assert (pair.content, pair.label) == (PAIR, 0)
    assert found.notes == (f"contents are pairs of 'premise' and 'hypothesis', labels are 'label'{beside}",)
    single = {
        "id": 3,
        "text": "It rains.",
        "spans": [[3, 8]],
        **{key: IDS[key] for key in ("input_ids", "attention_mask")},
    }
    (text,) = found = load_data([single])
    assert text.content == "It rains." and text.reference["spans"] == [[3, 8]]
    assert found.notes == (f"contents are 'text', no labels; not used: id{beside}",)
    assert contents({"text": ["a", "b"], "input_ids": torch.tensor([[1, 2], [3, 4]])}) == ["a", "b"]
    (ids,) = contents([single], text_column="input_ids")
    (other,) = contents([{**single, "text": 7}])
    assert ids.tolist() == other.tolist() == IDS["input_ids"]


def test_token_ids_of_a_pair_alone_ask_for_the_texts() -> None:
    with pytest.raises(
        HeatcheckError, match=r"token_type_ids are not all 0.*give the two texts, .*hc\.TextPair\(first"
    ):
        load_data([{**IDS, "label": 0}])


def test_an_unusable_part_is_the_pairs_problem() -> None:
    rows = [
        {**ROW, "hypothesis": " "},
        {**ROW, "premise": None},
        {**ROW, "premise": "\udcff"},
        {**ROW, "premise": ""},
        ROW,
    ]
    found = load_data(rows)
    assert [s.problem for s in found] == [
        "second text: the text is empty",
        "first text: there is no text",
        "first text: the text is not valid UTF-8",
        "first text: the text is empty",
        None,
    ]
    assert all(isinstance(s.content, TextPair) for s in found) and len({s.digest for s in found}) == 5


texts = st.text(st.characters(codec="utf-8"), max_size=6)


@given(texts, texts, texts, texts)
def test_no_two_contents_share_a_digest(a: str, b: str, c: str, d: str) -> None:
    one, other = text_sample("", TextPair(a, b)).digest, text_sample("", TextPair(c, d)).digest
    assert (one == other) == ((a, b) == (c, d))
    assert text_sample("", TextPair(a + b, c)).digest != text_sample("", TextPair(a, b + c)).digest or not b
    assert one not in {text_sample("", text).digest for text in (a + b, f"{a}\n{b}")}


def test_references_count_the_joined_text() -> None:
    start = len(PAIR.first) + 1
    row = {
        **ROW,
        "spans": [[start, start + 2]],
        "parts": {"wet": [[start, start + 10]]},
        "without": {"wet": ["It rains.", "?"]},
    }
    (sample,) = load_data([row])
    assert PAIR.joined[slice(*sample.reference["spans"][0])] == "It"
    assert sample.reference["without"] == {"wet": TextPair("It rains.", "?")}
    (late,) = load_data([{**ROW, "spans": [[0, len(PAIR.joined) + 1]]}])
    assert "does not fit in a text of 20 characters" in (late.problem or "")


def test_a_study_and_a_work_carry_two_columns(tmp_path: Path) -> None:
    path = tmp_path / "nli.csv"
    path.write_text("a,b,label\nx,y,1\n")
    study = tmp_path / "study.toml"
    study.write_text('models = ["minilm_sentiment"]\ndata = "nli.csv"\ntext_column = ["a", "b"]\n')
    assert Study.load(study).text_column == ("a", "b")
    options = {"models": ["minilm_sentiment"], "data": str(path)}
    assert Study.of(**options, text_column="a,b").text_column == "a,b"
    sources = Sources(data=str(path), text_column=("a", "b"), plugins=("p.py",))
    work = Work(model="m", identity="i", samples=(), methods=(), metrics=(), sources=sources)
    assert Work.from_json(work.to_json()).sources == sources


def eraser(root: Path, rows: list[dict[str, Any]], docs: dict[str, str], together: bool = True) -> str:
    root.mkdir()
    if together:
        lines = [json.dumps({"docid": id, "document": text}) for id, text in docs.items()]
        (root / "docs.jsonl").write_text("\n".join([*lines, "not json", "[]"]))
    else:
        (root / "docs").mkdir()
        for id, text in docs.items():
            (root / "docs" / id).write_text(text)
    (root / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return f"eraser:{root}"


def evidence(docid: str, start: int, end: int) -> list[dict[str, Any]]:
    return [{"docid": docid, "start_token": start, "end_token": end, "text": ""}]


@pytest.mark.parametrize("together", [True, False])
def test_rationales_of_both_documents(tmp_path: Path, together: bool) -> None:
    docs = {"7_hypothesis": "A dog sleeps .", "7_premise": "A dog runs .", "8_premise": "x", "8_hypothesis": "y"}
    rows = [
        {
            "annotation_id": "7",
            "classification": "contradiction",
            "evidences": [evidence("7_hypothesis", 2, 3), evidence("7_premise", 1, 3)],
        },
        {"annotation_id": "8", "classification": "neutral", "evidences": [], "docids": ["8_hypothesis", "8_premise"]},
    ]
    first, second = load_data(eraser(tmp_path / "esnli", rows, docs, together))
    assert first.content == TextPair("A dog runs .", "A dog sleeps .") and second.content == TextPair("x", "y")
    assert [first.content.joined[a:b] for a, b in first.reference["spans"]] == ["dog runs", "sleeps"]


def test_documents_of_other_corpora(tmp_path: Path) -> None:
    docs = {"a": "one two", "b": "three four", "c": "five"}
    listed = {"annotation_id": "1", "docids": ["b", "a"], "evidences": [evidence("a", 0, 1)], "query": "q"}
    rows = [
        listed,
        {**listed, "annotation_id": "2", "docids": ["a", "b", "c"]},
        {**listed, "annotation_id": "3", "docids": None, "evidences": [evidence("a", 0, 1), evidence("b", 0, 1)]},
        {**listed, "annotation_id": "4", "docids": ["a", "d"]},
    ]
    found = load_data(eraser(tmp_path / "x", rows, docs))
    assert found[0].content == TextPair("three four", "one two") and found[0].reference["spans"] == [(11, 14)]
    assert [s.problem for s in found[1:]] == [
        "3 documents belong together here; only one can be read, or a pair",
        "2 documents belong together here, and docids does not say which is the first",
        "there is no document 'd'",
    ]


def test_queries_that_differ_belong_to_the_text(tmp_path: Path) -> None:
    rows = [
        {
            "annotation_id": str(i),
            "docids": ["a"],
            "evidences": [evidence("a", 1, 2)],
            "query": q,
            "classification": "x",
        }
        for i, q in enumerate(("is it ?", "was it ?"))
    ]
    asked = load_data(eraser(tmp_path / "boolq", rows, {"a": "one two"}))
    assert [s.content for s in asked] == [TextPair("is it ?", "one two"), TextPair("was it ?", "one two")]
    assert (
        asked[0].content.joined[slice(*asked[0].reference["spans"][0])] == "two" and "queries differ" in asked.notes[0]
    )
    same = [{**row, "query": "good ?"} for row in rows]
    assert contents(eraser(tmp_path / "movies", same, {"a": "one two"})) == ["one two"] * 2
