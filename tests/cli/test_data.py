"""Data as users have them: what the command says of it, and how it ends."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from polars.testing import assert_frame_equal
from tests.cli.test_cli import MODEL, at_home, bert, draw, environment, heatcheck, home, strict

from heatcheck.cli import folder as commands
from heatcheck.cli.folder import Format, write_table
from heatcheck.models.vision_shim import load_transformers

__all__ = ["at_home", "bert", "home"]

FAST = ("--metrics", "sds", "--methods", "saliency,random", "--batch", 4, "-j", 1)
ODD = b"caf\xe9".decode(errors="surrogateescape")

MUTANTS = (
    ("core/files.py", r'FORMULA = r"^[=+\-@\t\r]"', r'FORMULA = r"^[=+@\t\r]"', "test_a_text_of_an_exported_table_is_no_formula"),
    ("cli/folder.py", "include_header=False", "include_header=True", "test_a_table_written_in_parts_is_the_table"),
    ("cli/folder.py", 'before = ","', 'before = ""', "test_a_table_written_in_parts_is_the_table"),
    ("run/task.py", "return label if label < classes else -1", "return label", "test_labels_matter_where_they_are_needed"),
)  # fmt: skip


# -- nothing can be read ----------------------------------------------------------------------------------------


def test_nothing_readable_is_an_error_with_causes_and_an_example(at_home: Path, tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.png").write_text("no picture")
    (tmp_path / "empty.jpg").touch()
    done = heatcheck("run", "--models", MODEL, "--data", f"folder:{tmp_path}", *FAST, "--out", "runs/unread")
    assert done.exit_code == 2
    assert (
        f"error: none of the 4 samples of '{tmp_path.name}' can be read: 3 × not a picture that can be read (known: JPEG, "
        "PNG, WEBP, BMP, GIF, TIFF, PPM, AVIF), such as '0.png'; 1 × the file is empty, such as 'empty.jpg'; check the path"
    ) in done.stderr
    assert not Path("runs/unread").exists()
    done = heatcheck("doctor", MODEL, "--data", f"folder:{tmp_path}")
    assert done.exit_code == 2 and f"none of the 4 samples of '{tmp_path.name}' can be read" in done.stderr


def test_some_unreadable_samples_are_said_and_the_others_are_scored(at_home: Path, tmp_path: Path) -> None:
    draw(tmp_path / "good.png", 1)
    (tmp_path / "bad.png").write_text("no picture")
    done = heatcheck("run", "--models", MODEL, "--data", f"folder:{tmp_path}", *FAST, "--out", "runs/partly")
    assert done.exit_code == 3
    assert "1 of 2 samples cannot be read: 1 × not a picture that can be read" in done.stderr
    assert "such as 'bad.png'" in done.stderr
    scores = pl.read_json(heatcheck("export", "runs/partly", "--json").stdout.encode())
    assert set(scores.filter(pl.col("sample") == "good.png")["status"]) == {"ok"}
    assert all(s.startswith("failed: not a picture") for s in scores.filter(pl.col("sample") == "bad.png")["status"])


def test_a_run_of_which_every_cell_failed_ends_with_the_causes(at_home: Path) -> None:
    broken = MODEL.replace("weights", "broken")
    done = heatcheck("run", "--models", broken, "--data", "folder:photos", *FAST, "--out", "runs/broken", "--quiet")
    assert done.exit_code == 3
    assert "nothing could be scored, 6 of 6 cells failed: 6 × the model's output is not finite, such as" in done.stderr


# -- names ------------------------------------------------------------------------------------------------------


def test_a_name_that_is_no_utf8_runs_is_reported_and_exported(home: Path, tmp_path: Path) -> None:
    photos = tmp_path / f"{ODD} photos"
    photos.mkdir()
    draw(photos / f"{ODD}.png", 1)
    (photos / f"{ODD} broken.png").write_text("")
    out = tmp_path / "run"

    def outside(*arguments: object) -> subprocess.CompletedProcess[bytes]:
        line = [sys.executable, "-m", "heatcheck", *(os.fsencode(str(a)) for a in arguments)]
        return subprocess.run(line, capture_output=True, env=environment(), timeout=300, cwd=home)

    done = outside("run", "--models", MODEL, "--data", f"folder:{photos}", *FAST, "--out", out)
    assert done.returncode == 3, done.stderr.decode()
    assert rb"such as 'caf\xe9 broken.png'" in done.stderr and b"Traceback" not in done.stderr
    assert os.fsencode(out / "report.html") in done.stdout
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "caf\\xe9.png" in page or "caf\\\\xe9.png" in page
    assert {s["name"] for s in json.loads((out / "run.json").read_text(encoding="utf-8"))["samples"]} == {
        "caf\\xe9.png",
        "caf\\xe9 broken.png",
    }
    done = outside("run", "--models", MODEL, "--data", f"folder:{photos}", *FAST, "--out", tmp_path / ODD)
    assert done.returncode == 2 and rb"caf\xe9' has a name that chunk files cannot bear: choose another" in done.stderr
    table = tmp_path / "scores.parquet"
    assert outside("export", out, "--out", table).returncode == 0
    assert set(pl.read_parquet(table)["sample"]) == {"caf\\xe9.png", "caf\\xe9 broken.png"}


def test_a_folder_linked_to_itself_is_read_once(at_home: Path, tmp_path: Path) -> None:
    draw(tmp_path / "a.png", 1)
    (tmp_path / "again").symlink_to(tmp_path, target_is_directory=True)
    done = heatcheck("plan", "--models", MODEL, "--data", f"folder:{tmp_path}", *FAST)
    assert done.exit_code == 0, done.output
    assert "1 sample, 0 of them already done" in done.stdout
    assert done.stderr.count("1 link leads back to a folder that is read already and is not followed: again") == 1


def written(frame: pl.DataFrame, kind: Format) -> bytes:
    file = io.BytesIO()
    write_table(frame, kind, file)
    return file.getvalue()


@pytest.mark.parametrize("rows", [0, 1, 7, 12])
def test_a_table_written_in_parts_is_the_table(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Names are strings again, whatever they were kept as, and what is not a number is null."""
    monkeypatch.setattr(commands, "_ROWS", 3)
    names = [f"s{i % 5}" for i in range(rows)]
    score = [float("nan") if i % 4 == 1 else i / 3 for i in range(rows)]
    plain = pl.DataFrame(
        {"sample": names, "method": names, "score": score, "n": range(rows)},
        schema={"sample": pl.String, "method": pl.String, "score": pl.Float64, "n": pl.Int64},
    )
    kept = plain.with_columns(
        pl.col("sample").cast(pl.Enum([f"s{i}" for i in range(5)])), pl.col("method").cast(pl.Categorical)
    )
    whole = plain.with_columns(pl.col("score").fill_nan(None))
    for frame in (plain, kept):
        assert_frame_equal(pl.read_parquet(written(frame, Format.PARQUET)), whole, check_exact=True)
        assert_frame_equal(pl.read_csv(written(frame, Format.CSV), schema=whole.schema), whole, check_exact=True)
        assert json.loads(written(frame, Format.JSON)) == whole.to_dicts()


def test_a_text_of_an_exported_table_is_no_formula() -> None:
    names = ["=1+1", "+x", "-x", "@x", "\tx", "\rx", "plain", "a=b", "", None]
    frame = pl.DataFrame({"sample": names, "score": [-0.5, 1.0, float("nan"), 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -1e-9]})
    text = written(frame, Format.CSV).decode()
    rows = list(csv.reader(text.splitlines(keepends=True)))[1:]
    assert [row[0] for row in rows[:4]] == ["'=1+1", "'+x", "'-x", "'@x"]
    assert "'\tx" in text and "'\rx" in text and [row[0] for row in rows[-4:]] == ["plain", "a=b", "", ""]
    assert rows[0][1] == "-0.5" and float(rows[-1][1]) == -1e-9 and rows[2][1] == ""
    assert pl.read_json(written(frame, Format.JSON))["sample"].to_list() == names


# -- tables -----------------------------------------------------------------------------------------------------

WORDS = ["a good film", "bad film", "good films", "a bad bad film"]


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.csv"
    moods = ["upbeat", "grim", "upbeat", "grim"] * 3
    rows = [f"{100 + i},{WORDS[i % 4]},{i} {WORDS[i % 4]},{mood}" for i, mood in enumerate(moods)]
    path.write_text("\n".join(["nr,headline,story,mood", *rows]))
    return path


def test_the_columns_of_a_table_are_asked_for_and_said(bert: str, reviews: Path, tmp_path: Path) -> None:
    for command in ("run", "plan"):
        asked = (command, "--models", bert, "--data", f"csv:{reviews}", *FAST, "--out", tmp_path / command, "-n", 4)
        done = heatcheck(*asked)
        assert done.exit_code == 2
        assert (
            "which column holds the texts? Say --text-column (in Python text_column=), one of nr, headline,"
            in done.stderr
        )
        done = heatcheck(*asked, "--text-column", "headlin")
        assert done.exit_code == 2 and "it has nr, headline, story, mood; did you mean headline?" in done.stderr
        done = heatcheck(*asked, "--text-column", "story", "--label-column", "mood")
        assert done.exit_code == 0, done.output
        assert "reviews: texts are column 'story', labels are column 'mood'; not used: nr, headline" in done.stderr
        assert "labels are names, numbered in sorted order: grim = 0, upbeat = 1; a guess, since the" in done.stderr


def test_columns_stand_in_a_study_file_and_reach_the_workers(bert: str, reviews: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        f'models = ["{bert}"]\ndata = "csv:reviews.csv"\ntext_column = "story"\nlabel_column = "mood"\ntarget = "label"\n'
        'methods = ["random"]\nmetrics = ["sds"]\nout = "out"\n[runtime]\nworkers = 2\nbatch = 4\n'
    )
    done = heatcheck("run", study, "--json")
    assert done.exit_code == 0, done.output
    samples = json.loads((tmp_path / "out" / "run.json").read_text())["samples"]
    assert [s["label"] for s in samples] == [1, 0] * 6
    assert strict(done.stdout)["failed"] == 0


def test_words_are_numbered_as_the_model_names_its_classes(bert: str, reviews: Path, tmp_path: Path) -> None:
    transformers = load_transformers()
    network = transformers.AutoModelForSequenceClassification.from_pretrained(bert.removeprefix("hf:"))
    network.config.id2label, network.config.label2id = {0: "Upbeat", 1: "Grim"}, {"Upbeat": 0, "Grim": 1}
    network.save_pretrained(tmp_path / "named")
    transformers.AutoTokenizer.from_pretrained(bert.removeprefix("hf:")).save_pretrained(tmp_path / "named")
    asked = ("--data", f"csv:{reviews}", "--text-column", "story", "--label-column", "mood", "--out", tmp_path / "out")
    done = heatcheck("run", "--models", f"hf:{tmp_path / 'named'}", *asked, *FAST)
    assert done.exit_code == 0, done.output
    assert "numbers its classes: grim = 1, upbeat = 0" in done.stderr
    samples = json.loads((tmp_path / "out" / "run.json").read_text())["samples"]
    assert [s["label"] for s in samples] == [0, 1] * 6


# -- labels -----------------------------------------------------------------------------------------------------


def test_labels_matter_where_they_are_needed(at_home: Path, tmp_path: Path) -> None:
    for i in range(3):
        draw(tmp_path / f"{i}.png", i)
    (tmp_path / "labels.csv").write_text("file,label\n0.png,3\n1.png,99\n")  # the model has 7 classes
    data = (
        "run",
        "--models",
        MODEL,
        "--data",
        f"folder:{tmp_path}",
        "--methods",
        "saliency,random",
        "--batch",
        4,
        "-j",
        1,
    )
    done = heatcheck(*data, "--metrics", "sds,corrupted_accuracy", "--out", "runs/labels", "--json")
    assert done.exit_code == 0, done.output
    assert strict(done.stdout)["failed"] == 0
    scores = pl.read_json(heatcheck("export", "runs/labels", "--json").stdout.encode())
    status = {(r["sample"], r["metric"]): r["status"] for r in scores.iter_rows(named=True)}
    assert [status[f"{i}.png", "sds"] for i in range(3)] == ["ok"] * 3
    assert status["0.png", "corrupted_accuracy"] == "ok"
    needs = "skipped: corrupted_accuracy needs a label that is a class of the model, and this sample has none"
    assert [status[f"{i}.png", "corrupted_accuracy"] for i in (1, 2)] == [needs] * 2
    done = heatcheck(*data, "--metrics", "sds", "--target", "label", "--out", "runs/target", "--json")
    assert done.exit_code == 0, done.output
    scores = pl.read_json(heatcheck("export", "runs/target", "--json").stdout.encode())
    status = {r["sample"]: r["status"] for r in scores.iter_rows(named=True)}
    assert status == {
        "0.png": "ok",
        "1.png": "skipped: target='label', but label 99 is not a class of a model with 7",
        "2.png": "skipped: target='label', but the sample has no label",
    }


def test_class_folders_of_other_words_than_the_models_are_no_labels(at_home: Path, tmp_path: Path) -> None:
    for i, folder in enumerate(("cats", "dogs")):
        (tmp_path / folder).mkdir()
        Image.fromarray(np.full((16, 16, 3), 40 * i, dtype=np.uint8)).save(tmp_path / folder / "a.png")
    done = heatcheck("plan", "--models", MODEL, "--data", f"folder:{tmp_path}", *FAST)
    assert done.exit_code == 0, done.output
    assert (
        "labels are names, numbered in sorted order: cats = 0, dogs = 1; a guess, since the models name no"
        in done.stderr
    )
