"""Texts that nobody should send, through a whole run: each has scores or a reason, and none is lost."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import heatcheck as hc
from heatcheck.core.types import HeatcheckError
from heatcheck.models.vision_shim import load_transformers

MUTANTS = (
    ("data/texts.py", "if not text.strip():", "if not text:", "test_every_text_has_scores_or_a_reason"),
    (
        "data/texts.py",
        'if any("\\ud800" <= c <= "\\udfff" for c in text):',
        "if False:",
        "test_every_text_has_scores_or_a_reason",
    ),
    ("data/labels.py", "index >= len(self.classes)", "index > 99", "test_wrong_labels_are_told"),
    (
        "run/setup.py",
        "(self.unread, self.strange)",
        "(self.unread,)",
        "test_numbers_that_are_no_class_of_the_model_are_told",
    ),
    (
        "api/explain.py",
        "known_label(labels[i], logits.shape[1])",
        "known_label(labels[i], 99)",
        "test_a_label_that_is_no_class_is_neither_right_nor_wrong",
    ),
    ("run/setup.py", '"" if model.gives_number else', "", "test_ratings_are_no_classes"),
)
FINE: dict[str, str] = {
    "one token": "good",
    "only unknown tokens": "zzz qqq",
    "ten thousand words": "good film " * 5000,
    "a long word": "x" * 50_000,
    "right to left": "هذا فيلم جيد جدا",
    "emoji": "good 👩‍👩‍👧 film 🎬",
    "combining marks": "go\u0301od\u0300 fi\u0308lm",
    "NUL": "good\x00 film",
    "no spaces": "这部电影很好",
    "quotes and brackets": '"; drop table [UNK] [CLS] <b>&amp;</b> {0} %s',
}
BAD: dict[str, tuple[str, str]] = {
    "empty": ("", "the text is empty"),
    "blank": (" \t\n\u2003", "the text is empty"),
    "only control characters": ("\x00\x01\x02", "sees no token in sample"),
    "only marks without width": ("\u200b\u200d\ufeff", "sees no token in sample"),
}
RAW: dict[str, tuple[bytes, str]] = {
    "invalid UTF-8": (b'{"text": "caf\xff good", "label": "negative"}', "the text is not valid UTF-8"),
    "binary": (b"\xff\x00\x01\x02\x80", "the line is not JSON"),
    "no text": (b'{"label": "negative"}', "there is no text"),
    "a number": (b'{"text": 5, "label": "negative"}', "is not a text"),
    "an object": (b"[1, 2]", "the line is not a JSON object"),
}
LABELS: dict[str, str | int | None] = {"a bad film": 7, "bad film": "neutral", "a film": -1, "the film": None}
NAMES = [*FINE, *BAD, *RAW]


@pytest.fixture(scope="module")
def run(bert_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[pl.DataFrame, pl.DataFrame]:
    folder = tmp_path_factory.mktemp("bad")
    texts = [*FINE.values(), *(text for text, _ in BAD.values())]
    lines = [json.dumps({"text": text, "label": "positive"}).encode() for text in texts]
    (folder / "bad.jsonl").write_bytes(b"\n".join([*lines, *(line for line, _ in RAW.values())]))
    bench = hc.Benchmark(
        models=f"hf:{bert_folder}",
        data=folder / "bad.jsonl",
        methods=["saliency", "occlusion", "random"],
        metrics=["sds"],
    )
    result = bench.run(folder / "run", progress="none")
    return result.samples(), result.scores()


def statuses(table: pl.DataFrame, name: str) -> list[str]:
    found = table.filter(pl.col("sample").cast(pl.String) == f"{NAMES.index(name):05d}")
    return [str(status) for status in found["status"]]


@pytest.mark.parametrize("name", NAMES)
def test_every_text_has_scores_or_a_reason(run: tuple[pl.DataFrame, pl.DataFrame], name: str) -> None:
    samples, scores = run
    ((status,), cells) = statuses(samples, name), statuses(scores, name)
    assert len(cells) == 3
    if name in FINE:
        assert status == "ok" and all(cell == "ok" or cell.startswith("undefined: all units") for cell in cells)
    else:
        reason = {**BAD, **RAW}[name][1]
        assert status.startswith("failed: ") and all(reason in said for said in (status, *cells))


def test_scores_are_numbers_exactly_where_they_are_ok(run: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    scores = run[1]
    assert scores.height == 3 * len(NAMES)
    for value, status in scores.select("score", "status").iter_rows():
        assert (value is not None and value == value) == (status == "ok")


def test_wrong_labels_are_told() -> None:
    rows: list[Any] = [*LABELS.items(), ("good film", "negative"), ("fine film", "positive"), ("x", "positive")]
    data = hc.load_data([{"text": text, "label": label} for text, label in rows], classes=["negative", "positive"])
    assert [s.label for s in data] == [None, None, None, None, 0, 1, 1] and not any(s.problem for s in data)
    (said,) = [note for note in data.notes if "unlabelled" in note]
    assert said.startswith("3 of 7 samples count as unlabelled") and "label 7 is not a class index (0 to 1)" in said
    assert "label 'neutral' is not one of the 2 class names or an index" in said


@pytest.mark.parametrize("target", ["predicted", "label"])
def test_numbers_that_are_no_class_of_the_model_are_told(
    target: str, bert_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where only the model says how many classes there are: on the terminal, in the plan, the record and the report."""
    (tmp_path / "lab.csv").write_text("text,label\ngood film,5\nbad film,0\nthe film,1\n")
    bench = hc.Benchmark(
        models=f"hf:{bert_folder}",
        data=tmp_path / "lab.csv",
        methods=["occlusion", "random"],
        metrics=["morf(steps=2)"],
        target=target,
    )
    said = f"1 of 3 samples count as unlabelled: 1 × label 5 is no class of hf:{bert_folder} (0 to 1), such as '00000'"
    bench.plan(progress="lines", calibrate=False)
    assert said in capsys.readouterr().err
    result = bench.run(tmp_path / "run", progress="lines")
    assert said in capsys.readouterr().err
    assert result.manifest["models"][0]["notes"] == [said]
    assert "1 × label 5 is no class of" in result.report(tmp_path / "report.html").read_text()
    statuses = [status for (status,) in result.samples().sort("sample").select("status").iter_rows()]
    assert statuses[1:] == ["ok", "ok"] and (statuses[0] == "ok") == (target == "predicted")


def test_a_label_that_is_no_class_is_neither_right_nor_wrong(bert_folder: Path) -> None:
    data = hc.load_data([("a good film", 5), ("a bad film", 1)])
    with pytest.warns(
        UserWarning, match=r"1 of 2 samples count as unlabelled: 1 × label 5 is no class of .* \(0 to 1\)"
    ):
        found = hc.score(f"hf:{bert_folder}", data, ["random"], metric="morf(output=accuracy)")
    assert found.isnan().tolist() == [[True, False]]


def test_ratings_are_no_classes(bert_folder: Path, tmp_path: Path) -> None:
    """A regression has no use for classes and no note about them; a classifier's says that there are none."""
    (tmp_path / "reg.csv").write_text("text,label\ngood film,3.5\nbad film,0.2\nthe film,4.8\nthe plot,2\n")
    network = load_transformers().AutoModelForSequenceClassification.from_pretrained(
        bert_folder, num_labels=1, ignore_mismatched_sizes=True
    )
    tokenizer = load_transformers().AutoTokenizer.from_pretrained(bert_folder)
    grid: dict[str, Any] = {"data": tmp_path / "reg.csv", "methods": ["random"], "metrics": ["morf(steps=2)"]}
    number = hc.Benchmark(models={"number": (network, tokenizer)}, **grid).run(tmp_path / "number", progress="none")
    assert set(number.scores()["status"]) == {"ok"}
    (note,) = number.manifest["models"][0]["notes"]
    assert note.startswith("number gives one number per input")
    assert number.manifest["data"]["notes"] == ["texts are column 'text', labels are column 'label'"]
    two = hc.Benchmark(models={"two": f"hf:{bert_folder}"}, **grid)
    assert two.run(tmp_path / "two", progress="none").manifest["models"][0]["notes"] == [
        "labels are numbers, such as 3.5, and no classes of two: all samples count as unlabelled"
    ]
    with pytest.raises(HeatcheckError, match=r"no sample of 'reg' has a label: labels are numbers, such as 3\.5"):
        hc.Benchmark(models=f"hf:{bert_folder}", target="label", **grid).setup()


@pytest.mark.parametrize(
    ("content", "suffix", "said"),
    [
        (b"a,b,c\nx,1,y\n", "csv", r"which column holds the texts\? Say --text-column"),
        (b"", "csv", "holds no samples"),
        (b"", "jsonl", "holds no samples"),
        (bytes(range(256)) * 4, "parquet", "cannot be read as Parquet"),
        (b"\xff\xfe\x00\x01" * 10, "jsonl", "cannot be read: .*the line is not JSON"),
        (b"text,label\n,1\n ,0\n", "csv", "none of the 2 samples .* can be read: 2 × the text is empty"),
    ],
)
def test_a_file_of_which_nothing_can_be_used_ends_with_the_reason(
    content: bytes, suffix: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / f"x.{suffix}").write_bytes(content)
    with pytest.raises(HeatcheckError, match=said):
        hc.Benchmark(models="minilm_sentiment", data=tmp_path / f"x.{suffix}").setup()
