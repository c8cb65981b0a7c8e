"""Texts in tables."""

import gzip
import json
import os
from pathlib import Path
from random import Random

import polars as pl
import pytest

from heatcheck.core.types import HeatcheckError, Modality, digest_of
from heatcheck.data import load_data

SHARED = Path(os.environ.get("HEATCHECK_SHARED", Path(__file__).parents[2].parent / "shared"))
MUTANTS = (
    ("data/tables.py", " and not (v is None and c in structured)", "", "test_parquet"),
    ("data/tables.py", "max(_STRAY, 0.1 * len(start))", "0", "test_a_bad_text_does_not_make_a_bad_file"),
    ("data/tables.py", " and control > 0.01 * len(start)", "", "test_a_bad_text_does_not_make_a_bad_file"),
)


def table(tmp_path: Path, text: str, suffix: str = "csv") -> Path:
    path = tmp_path / f"reviews.{suffix}"
    path.write_text(text, encoding="utf-8")
    return path


def pairs(spec: object, **kwargs: object) -> list[tuple[object, int | None]]:
    return [(s.content, s.label) for s in load_data(spec, **kwargs)]


def test_csv(tmp_path: Path) -> None:
    path = table(tmp_path, 'id,Review,Label\n7,"good, very",1\n8,bad,0\n')
    data = load_data(f"csv:{path}")
    assert (data.name, data.modality, data.classes) == ("reviews", Modality.TEXT, None)
    assert pairs(path) == [("good, very", 1), ("bad", 0)]
    assert [s.name for s in data] == ["00000", "00001"]
    assert data[1].digest == digest_of("bad")


@pytest.mark.parametrize("text_column", ["text", "sentence", "review", "content", "Comment"])
@pytest.mark.parametrize("label_column", ["label", "target", "Sentiment"])
def test_usual_column_names(tmp_path: Path, text_column: str, label_column: str) -> None:
    assert pairs(table(tmp_path, f"{label_column},x,{text_column}\n1,?,fine\n")) == [("fine", 1)]


def test_columns_by_name_and_position(tmp_path: Path) -> None:
    path = table(tmp_path, "a,b,c\nx,1,first\ny,0,second\n")
    assert pairs(path, text_column="c", label_column="b") == [("first", 1), ("second", 0)]
    assert pairs(path, text_column=2, label_column=1)[-1] == ("second", 0)
    with pytest.raises(HeatcheckError, match=r"text_column='d'.*it has a, b, c"):
        load_data(path, text_column="d")
    with pytest.raises(HeatcheckError, match=r"which column holds the text.* a, b, c"):
        load_data(path)


def test_without_a_header(tmp_path: Path) -> None:
    assert pairs(table(tmp_path, "good film,1\nbad film,0\n")) == [("good film", 1), ("bad film", 0)]
    assert pairs(table(tmp_path, "1\tgood film\n0\tbad film\n", "tsv")) == [("good film", 1), ("bad film", 0)]
    assert pairs(table(tmp_path, "good film,pos\nbad film,neg\nfine,pos\n"))[:2] == [("good film", 1), ("bad film", 0)]


def test_unusual_header_above_numbers(tmp_path: Path) -> None:
    assert pairs(table(tmp_path, "phrase,score\ngood,1\nbad,0\n")) == [("good", 1), ("bad", 0)]


def test_texts_alone(tmp_path: Path) -> None:
    data = load_data(table(tmp_path, "text\ngood\nbad\n"))
    assert [s.label for s in data] == [None, None] and "no labels" in data.notes[0]


def test_tsv_with_quotes_as_plain_characters(tmp_path: Path) -> None:
    text = 'sentence\tlabel\n"fun" it is\t1\nan "unclosed quote\t0\n"open\t1\nclose"\t0\n'
    assert [c for c, _ in pairs(f"tsv:{table(tmp_path, text, 'tsv')}")] == [
        '"fun" it is',
        'an "unclosed quote',
        '"open',
        'close"',
    ]


def test_a_quote_swallows_no_row(tmp_path: Path) -> None:
    path = table(tmp_path, 'text\tlabel\n"open\t1\nclose"\t0\n', "tsv")
    assert pairs(path) == [('"open', 1), ('close"', 0)]


def test_tsv_with_quotes_as_quotes(tmp_path: Path) -> None:
    path = table(tmp_path, 'text\tlabel\n"two\nlines"\t1\n"say ""hi"""\t0\n', "tsv")
    assert pairs(path) == [("two\nlines", 1), ('say "hi"', 0)]


def test_bom_and_windows_line_ends(tmp_path: Path) -> None:
    assert pairs(table(tmp_path, "\ufefftext,label\r\ngood,1\r\n")) == [("good", 1)]


def test_class_names(tmp_path: Path) -> None:
    path = table(tmp_path, "text,label\ngood,positive\nbad,negative\nfine,positive\n")
    data = load_data(path)
    assert data.classes == ("negative", "positive") and [s.label for s in data] == [1, 0, 1]
    assert [s.label for s in load_data(path, classes=["positive", "negative"])] == [0, 1, 0]
    (tmp_path / "names.txt").write_text("neutral\nnegative\npositive\n")
    assert [s.label for s in load_data(path, classes=tmp_path / "names.txt")] == [2, 1, 2]


def test_bad_rows_stay_with_a_reason(tmp_path: Path) -> None:
    path = table(tmp_path, 'text,label\ngood,1\n,0\n"   ",1\nword,\nbad,x\nbad,-1\nbad,0.5\na,b,1\nalone\nfloat,1.0\n')
    data = load_data(path)
    assert [(s.label, s.problem) for s in data] == [
        (1, None),
        (0, "the text is empty"),
        (1, "the text is empty"),
        (None, None),  # a missing label is no problem: the model's own prediction can be explained
        (None, None),  # nor is one that cannot be read: it is said, and matters where a label is needed
        (None, None),
        (None, None),
        (None, "the row has 3 cells, the table 2 columns: quote cells that hold a separator"),
        (None, "the row has 1 cells, the table 2 columns: a cell is missing"),
        (1, None),
    ]
    assert data.notes[1:] == (
        "4 of 10 samples cannot be read: 2 × the text is empty, such as '00001'; 1 × the row has 3 cells, the table 2 "
        "columns: quote cells that hold a separator, such as '00007'; 1 × the row has 1 cells, the table 2 columns: a "
        "cell is missing, such as '00008'",
        "3 of 10 samples count as unlabelled: 1 × label 'x' is not a class index, such as '00004'; 1 × label -1 is not "
        "a class index (0 or more), such as '00005'; 1 × label '0.5' is not a class index, such as '00006'",
        "3 samples share their content with another, all are kept: 00004 = 00005 = 00006",
    )


def test_labels_outside_the_classes(tmp_path: Path) -> None:
    data = load_data(table(tmp_path, "text,label\na,0\nb,2\nc,neg\n"), classes=["neg", "pos"])
    assert [s.label for s in data] == [0, None, 0]
    assert data[1].problem is None
    assert (
        "1 of 3 samples count as unlabelled: 1 × label 2 is not a class index (0 to 1), such as '00001'" in data.notes
    )


def test_an_ambiguous_class_name_is_no_label(tmp_path: Path) -> None:
    data = load_data(table(tmp_path, "text,label\na,crane\n"), classes=["crane", "crane"])
    assert data[0].label is None and data[0].problem is None
    assert any("label 'crane' is not unique" in note for note in data.notes)


def test_one_token_is_fine() -> None:
    assert load_data(["good"])[0].problem is None


def test_invalid_utf8_is_that_rows_problem(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\ncaf\xe9,1\ngood,0\n")
    data = load_data(path)
    assert [s.problem for s in data] == ["the text is not valid UTF-8", None]


GARBAGE = {
    "random": Random(0).randbytes(3000),
    "packed": gzip.compress(b"text,label\ngood,1\n" * 500 + Random(0).randbytes(99), mtime=0),
    "picture": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(20)) * 3,
    "UTF-16 without a mark": ("text,label\n" + "good,1\n" * 20).encode("utf-16-le"),
    "late": b"good film\n" * 10 + bytes(range(256)) * 300,
}


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json", "txt"])
@pytest.mark.parametrize("kind", GARBAGE)
def test_a_file_that_is_no_text_is_refused_at_once(tmp_path: Path, suffix: str, kind: str) -> None:
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(GARBAGE[kind])
    with pytest.raises(
        HeatcheckError, match=rf"x\.{suffix}' is no text file: \d+% of its first [\d,]+ bytes are control"
    ):
        load_data(path)


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        (b"text,label\n\x00\x01\x02,1\ngood,0\n", [None, None]),
        (b"text,label\n" + b"\x00\xff" * 50 + b",1\n" + b"good,0\n" * 200, ["the text is not valid UTF-8", *[None] * 200]),
        ("text,label\nхороший фильм,1\n".encode("cp1251") * 9, None),
        ("text,label\nхороший фильм,1\n".encode(), [None]),
        (b"text\n\x1b[1mgood\x1b[0m\n" * 9, None),
    ],
    ids=["one short text", "one of many texts", "another encoding", "UTF-8", "escapes"],
)  # fmt: skip
def test_a_bad_text_does_not_make_a_bad_file(tmp_path: Path, content: bytes, problems: list[str | None] | None) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    found = [s.problem for s in load_data(tmp_path / "x.csv")]
    assert problems is None or found == problems


def test_utf_16_with_a_mark_is_not_refused_as_binary(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(("good film\n" * 9).encode("utf-16"))
    assert load_data(tmp_path / "x.txt")[0].problem == "the text is not valid UTF-8"


def test_a_very_long_text(tmp_path: Path) -> None:
    long = "word " * 100_000
    assert pairs(table(tmp_path, f"text,label\n{long},1\n")) == [(long, 1)]


def test_jsonl(tmp_path: Path) -> None:
    rows = [{"sentence": "good", "label": 1}, {"label": 0, "sentence": "bad"}, {"sentence": None, "label": 1}]
    text = "\n".join([*map(json.dumps, rows), "{broken", "[1]", '{"sentence": "no label"}', ""])
    data = load_data(f"jsonl:{table(tmp_path, text, 'jsonl')}")
    assert [(s.content, s.label) for s in data] == [
        ("good", 1),
        ("bad", 0),
        ("", 1),
        ("", None),
        ("", None),
        ("no label", None),
    ]
    assert [(s.problem or "")[:20] for s in data] == [
        "",
        "",
        "there is no text",
        "the line is not JSON",
        "the line is not a JS",
        "",
    ]


def test_parquet(tmp_path: Path) -> None:
    rows = [
        {"id": 7, "review": "good, very", "label": 1, "spans": [[0, 4]]},
        {"id": 8, "review": "bad", "label": 0, "spans": None},
        {"id": 9, "review": None, "label": None, "spans": None},
    ]
    path = tmp_path / "reviews.parquet"
    pl.DataFrame(rows).write_parquet(path)
    data = load_data(f"parquet:{path}")
    assert (data.name, data.modality) == ("reviews", Modality.TEXT)
    assert pairs(path)[:2] == [("good, very", 1), ("bad", 0)]
    assert data[0].reference and not data[1].reference
    assert data[2].problem == "there is no text"
    assert data.notes[0] == "texts are column 'review', labels are column 'label'; not used: id"
    path.write_bytes(b"no table")
    with pytest.raises(HeatcheckError, match=r"reviews.parquet' cannot be read as Parquet: \w+"):
        load_data(path)


def test_duplicates_are_noted() -> None:
    assert "00000 = 00002" in load_data(["same", "other", "same"]).notes[0]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_an_empty_table_is_an_error(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(HeatcheckError, match="holds no samples"):
        load_data(table(tmp_path, "", suffix))


@pytest.mark.skipif(not (SHARED / "data/sst2/dev.tsv").is_file(), reason=f"no {SHARED}/data/sst2")
def test_real_sst2() -> None:
    data = load_data(SHARED / "data/sst2/dev.tsv")
    assert len(data) == 872 and {s.label for s in data} == {0, 1}
    assert all(s.problem is None for s in data)


def test_json_lines_may_carry_spans(tmp_path: Path) -> None:
    lines = [
        {"text": "so good", "label": 1, "spans": [[3, 7]], "parts": {"so": [0, 2], "good": [[3, 7]]}},
        {"text": "bad", "label": 0, "spans": [[0, 9]]},
        {"text": "plain", "label": 0},
        {"text": "odd", "label": 0, "parts": [1]},
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    data = load_data(path)
    assert data[0].reference == {"spans": [[3, 7]], "parts": {"so": [0, 2], "good": [[3, 7]]}}
    assert "text of 3 characters" in str(data[1].problem)
    assert data[2].reference == {} and data[2].problem is None
    assert "must be a mapping" in str(data[3].problem)
    path.write_text('{"words": "so good", "stars": 1, "spans": [[3, 7]]}\n{"words": "bad", "stars": 0, "spans": []}')
    assert [s.content for s in load_data(path)] == ["so good", "bad"]


def test_a_csv_column_called_spans_is_only_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,label,spans\nso good,1,3-7\n")
    assert load_data(tmp_path / "t.csv")[0].reference == {}


# -- which columns ----------------------------------------------------------------------------------------------


ROWS = 12


def many(*columns: str, **cells: list[object]) -> str:
    """A table of twelve rows."""
    lines = [",".join(str(cells[c][i % len(cells[c])]) for c in columns) for i in range(ROWS)]
    return "\n".join([",".join(columns), *lines, ""])


IDS, BODIES = list(range(100, 100 + ROWS)), [f"some words about {i}" for i in range(ROWS)]


@pytest.mark.parametrize(
    ("columns", "note"),
    [
        ("text,label", "texts are column 'text', labels are column 'label'"),
        ("id,Text,stars,label", "texts are column 'Text', labels are column 'label'; not used: id, stars"),
        (
            "sms,stars",
            "texts are column 'sms', no labels; not used: stars (--text-column and --label-column, in Python",
        ),
        ("phrase,stars", "texts are column 'phrase', labels are column 'stars' (--text-column and --label-column, in"),
        ("id,phrase,stars", "texts are column 'phrase', labels are column 'stars'; not used: id (--text-column and"),
        ("id,phrase", "texts are column 'phrase', no labels; not used: id (--text-column and --label-column, in"),
        ("message", "texts are column 'message', no labels"),
    ],
)
def test_the_columns_that_are_used_are_said(tmp_path: Path, columns: str, note: str) -> None:
    known = {"id": IDS, "stars": [0, 1], "label": [0, 1]}
    names = columns.split(",")
    data = load_data(table(tmp_path, many(*names, **{name: known.get(name, BODIES) for name in names})))
    assert data.notes[0].startswith(note), data.notes
    assert data[3].content == BODIES[3] and not data[3].problem
    assert (data[3].label is not None) == ("labels are" in note)


def test_columns_can_be_named_by_name_and_by_position(tmp_path: Path) -> None:
    path = table(tmp_path, many("id", "title", "story", "mood", id=IDS, title=BODIES, story=BODIES, mood=[2, 0]))
    for text, label in (("story", "mood"), (2, 3), ("2", "3"), ("story", -1)):
        data = load_data(path, text_column=text, label_column=label)
        assert data[1].content == BODIES[1] and [s.label for s in data][:3] == [2, 0, 2]
        assert data.notes[0] == "texts are column 'story', labels are column 'mood'; not used: id, title"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {},
            r"which column holds the texts\? Say --text-column \(in Python text_column=\), one of id, title, story, mood;",
        ),
        (
            {"text_column": "storie"},
            "text_column='storie': .* has no such column; it has id, title, story, mood; did you ",
        ),
        ({"text_column": 7}, "text_column=7: .* has no such column; it has id, title, story, mood$"),
        ({"text_column": "mood", "label_column": "mood"}, "column 'mood' cannot hold both the texts and the labels"),
    ],
)
def test_a_column_that_is_missing_or_could_be_several_is_asked_for(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    path = table(tmp_path, many("id", "title", "story", "mood", id=IDS, title=BODIES, story=BODIES, mood=[2, 0]))
    with pytest.raises(HeatcheckError, match=message):
        load_data(path, **options)


def test_two_columns_of_which_neither_repeats_are_not_guessed(tmp_path: Path) -> None:
    path = table(tmp_path, many("title", "story", title=BODIES, story=BODIES[::-1]))
    with pytest.raises(HeatcheckError, match="one of 0, 1"):
        load_data(path)


def test_a_table_without_a_header_says_so(tmp_path: Path) -> None:
    data = load_data(table(tmp_path, "good,1\nbad,0\n"))
    assert data.notes[0].startswith(
        "the first row is no header but a sample; texts are column '0', labels are column '1'"
    )


@pytest.mark.parametrize("suffix", ["tsv", "jsonl"])
def test_other_tables_say_their_columns_too(tmp_path: Path, suffix: str) -> None:
    rows = [{"id": 100 + i, "phrase": BODIES[i], "mood": i % 2} for i in range(ROWS)]
    lines = ["\t".join(rows[0])] + ["\t".join(map(str, row.values())) for row in rows]
    text = "\n".join(map(json.dumps, rows) if suffix == "jsonl" else lines)
    data = load_data(table(tmp_path, text, suffix))
    assert data.notes[0].startswith("texts are column 'phrase', labels are column 'mood'; not used: id")
    assert [s.label for s in data][:2] == [0, 1]
