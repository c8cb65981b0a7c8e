"""What users type about a folder that is there: a second run into it, faults of its files and of the disk."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import heatcheck as hc
from heatcheck.cli import app
from heatcheck.run.store import StoreWarning

MUTANTS = (
    ("run/store.py", "        if not self.writable:", "        if False:", "test_reading_commands_move_nothing"),
    (
        "core/files.py",
        "errno.EIO, errno.EMFILE,",
        "errno.EIO,",
        "test_an_error_of_reading_that_passes_is_tried_again",
    ),
    (
        "run/records.py",
        'raise DamagedRecord("its bytes do not match its checksum")',
        "pass",
        "test_a_flipped_bit_in_any_record_is_found",
    ),
    ("run/records.py", "forward: int = Field(ge=1,", "forward: int = Field(ge=0,", "test_numerics_of_zero_are_refused"),
    (
        "run/union.py",
        'f"{label} ({_difference(key, rivals, about)})"',
        "label",
        "test_equal_labels_with_other_parameters_are_told_apart",
    ),
    (
        "run/union.py",
        'study["data"]["name"], str(study["target"]), study["seed"], _rows(study)',
        'study["data"]["name"]',
        "test_other_samples_seeds_and_targets_are_ranked_apart",
    ),
    (
        "cli/folder.py",
        "        raise typer.Exit(FAILED)\n\n\ndef report(",
        "        pass\n\n\ndef report(",
        "test_holes_are_an_exit_code_and_a_sentence",
    ),
)


def heatcheck(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def study(make_study) -> Path:
    return make_study(5, 'methods = ["saliency", "random"]\nmetrics = ["sparseness"]\n')


def run(study: Path, out: Path, *options: object, code: int = 0) -> Result:
    done = heatcheck("run", study, "--out", out, "--batch", 2, "-j", 1, "-q", *options)
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def first(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run: saliency and random under sparseness, five pictures."""
    out = tmp_path_factory.mktemp("first") / "r"
    run(study, out)
    return out


@pytest.fixture
def folder(first: Path, tmp_path: Path) -> Path:
    return shutil.copytree(first, tmp_path / "r")


def exported(out: Path, *options: object, code: int = 0) -> pl.DataFrame:
    done = heatcheck("export", out, "--json", *options)
    assert done.exit_code == code, done.output
    return pl.DataFrame(json.loads(done.stdout), infer_schema_length=None)


def cells(table: pl.DataFrame) -> set[tuple[str, ...]]:
    return set(table.select("data", "method", "metric").unique().rows())


def files(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def test_the_tables_of_a_run_are_exported(folder: Path, tmp_path: Path) -> None:
    done = heatcheck("export", folder, "--table", "means", "--out", tmp_path / "table.tex")
    assert done.exit_code == 0 and r"\toprule" in (tmp_path / "table.tex").read_text()
    done = heatcheck("export", folder, "--table", "leaderboard", "--format", "csv")
    assert done.exit_code == 0 and pl.read_csv(folder / "leaderboard.csv").height == 2
    assert set(exported(folder, "--table", "means")["method"]) == {"saliency", "random"}
    for table in ("means", "leaderboard"):
        assert "saliency" in heatcheck("export", folder, "--table", table, "-f", "md", "--out", "-").stdout
    done = heatcheck("export", folder, "-f", "md")
    assert done.exit_code == 2 and "--table means" in done.output


# -- a second run into the folder -------------------------------------------------------------------------------


def test_a_second_run_adds_methods_and_metrics(study: Path, folder: Path) -> None:
    before = exported(folder)
    done = run(study, folder, "--methods", "input_x_gradient,random", "--metrics", "sparseness,complexity")
    assert "2 studies were run into this folder" in done.stdout
    assert "saliency" in done.stdout and "input_x_gradient" in done.stdout
    assert "Not every method was measured under every metric" in done.stdout
    after = exported(folder)
    both = {("pictures", m, k) for m in ("input_x_gradient", "random") for k in ("sparseness", "complexity")}
    assert cells(after) == {("pictures", "saliency", "sparseness"), *both}
    assert set(after["status"]) == {"ok"}
    kept = after.filter((pl.col("method") != "input_x_gradient") & (pl.col("metric") == "sparseness"))
    by = ["sample", "method"]
    assert kept.sort(by)["score"].to_list() == before.sort(by)["score"].to_list()
    board = hc.Result.open(folder).leaderboard().full
    ranks = board.filter((pl.col("metric") == "sparseness") & pl.col("ranked"))
    assert set(ranks["method"]) == {"saliency", "input_x_gradient"}
    assert "2 studies were run into this folder" in str(hc.Result.open(folder).leaderboard())
    assert cells(exported(folder, "--only")) == both


def test_report_and_run_show_the_last_study_alone_when_asked(study: Path, folder: Path) -> None:
    alone = run(study, folder, "--methods", "input_x_gradient,random", "--only").stdout
    assert "saliency" not in alone and "studies were run" not in alone
    assert heatcheck("report", folder).exit_code == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "saliency" in page and "2 studies were run into this folder" in page
    assert heatcheck("report", folder, "--only").exit_code == 0
    assert "2 studies" not in (folder / "report.html").read_text(encoding="utf-8")


def test_a_study_that_contains_the_earlier_one_replaces_it(study: Path, folder: Path) -> None:
    done = run(study, folder, "--methods", "input_x_gradient,saliency,random")
    assert "studies" not in done.stdout
    assert run(study, folder).stdout.count("The last study is part of an earlier one") == 1
    assert set(exported(folder)["method"]) == {"input_x_gradient", "saliency", "random"}


def test_a_run_that_is_continued_is_one_study(study: Path, folder: Path) -> None:
    run(study, folder)
    assert len(list((folder / "studies").iterdir())) == 1
    assert hc.Result.open(folder).lines == []


def test_equal_labels_with_other_parameters_are_told_apart(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "r"
    run(study, out, "-n", 1, "--methods", "rise(samples=4),random")
    run(study, out, "-n", 1, "--methods", "rise,random", "--profile", "quick")
    assert set(exported(out)["method"]) == {"random", "rise(samples=4)", "rise"}
    run(study, out, "-n", 1, "--methods", "rise,random")
    assert set(exported(out)["method"]) == {"random", "rise(samples=4)", "rise (samples=128)", "rise (samples=1000)"}
    assert set(exported(out, "--only")["method"]) == {"rise", "random"}


def test_other_samples_seeds_and_targets_are_ranked_apart(study: Path, folder: Path) -> None:
    run(study, folder, "--methods", "input_x_gradient,random", "-n", 3)
    done = run(study, folder, "--methods", "input_x_gradient,random", "--target", 2)
    names = {
        "pictures (target=predicted, 5 samples)": "saliency",
        "pictures (target=predicted, 3 samples)": "input_x_gradient",
        "pictures (target=2, 5 samples)": "input_x_gradient",
    }
    table = exported(folder)
    assert cells(table) == {(data, m, "sparseness") for data, own in names.items() for m in (own, "random")}
    assert "Ranked apart, because target, seed or samples differ" in done.stdout
    assert set(table.filter(pl.col("data").str.contains("target=2"))["target"]) == {2}
    board = hc.Result.open(folder).leaderboard().full
    assert board.filter("ranked").group_by("data").len()["len"].to_list() == [1, 1, 1]
    assert heatcheck("report", folder).exit_code == 0


def test_another_data_set_and_another_model_are_added(study: Path, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(study.parent / "pictures", tmp_path / "others")
    run(study, folder, "--data", f"folder:{tmp_path / 'others'}", "-n", 2)
    table = exported(folder)
    assert set(table["data"]) == {"pictures", "others"}
    assert table.filter(pl.col("data") == "others").height == 2 * 2
    result = hc.Result.open(folder)
    assert result.facts["data"]["name"] == "others, pictures"
    page = result.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "others" in page and "pictures" in page


def test_a_folder_from_before_keeps_its_study_beside_a_new_one(tmp_path: Path) -> None:
    import torch

    old = Path(__file__).parents[1] / "fixtures" / "old_layout"
    out = shutil.copytree(old, tmp_path / "r")
    x = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(5))
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 3))
    bench = hc.Benchmark(models={"other": network}, data=x, methods=["saliency", "random"], metrics=["sparseness"])
    result = bench.run(out, batch=2, progress="none")
    assert set(result.scores()["model"]) == {"toy", "other"}
    assert "relevance_mass" in set(result.scores()["metric"])
    assert set(result.last().scores()["model"]) == {"other"}


# -- files that are damaged, and files that only cannot be read -------------------------------------------------


def chunk(out: Path) -> Path:
    return sorted((out / "chunks").iterdir())[0]


def flip(path: Path, at: int, bit: int = 1) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= bit
    path.write_bytes(raw)


@pytest.mark.parametrize("command", ["export", "report", "doctor"])
def test_reading_commands_move_nothing(folder: Path, command: str, tmp_path: Path) -> None:
    flip(chunk(folder), 1000)
    flip(folder / "numerics.json", 120)
    before = files(folder)
    where = [] if command == "doctor" else ["--out", tmp_path / "out.json"]
    with pytest.warns(StoreWarning, match="is damaged"):
        done = heatcheck(command, folder, *where)
    assert done.exit_code == 4
    assert files(folder) == before


@pytest.mark.parametrize("command", ["export", "report"])
def test_holes_are_an_exit_code_and_a_sentence(folder: Path, command: str) -> None:
    chunk(folder).unlink()
    done = heatcheck(command, folder)
    assert done.exit_code == 3
    assert "10 of 10 cells have no score" in done.stderr and "Run the same study" in done.stderr


def failing(monkeypatch: pytest.MonkeyPatch, number: int, times: int, part: str = ".safetensors") -> list[Path]:
    """Opening a file whose name has `part` fails a few times."""
    asked: list[Path] = []
    whole = Path.open

    def open(self: Path, *args: Any, **kwargs: Any) -> Any:
        if part in self.name and len(asked) < times:
            asked.append(self)
            raise OSError(number, os.strerror(number), str(self))
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", open)
    return asked


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_an_error_of_reading_that_passes_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    before = files(folder)
    asked = failing(monkeypatch, number, times=2)
    assert set(exported(folder)["status"]) == {"ok"}
    assert len(asked) == 2
    assert files(folder) == before


@pytest.mark.parametrize(
    ("number", "part"), [(errno.EMFILE, ".safetensors"), (errno.EACCES, ".safetensors"), (errno.EIO, "run.json")]
)
def test_an_error_of_reading_that_stays_is_a_sentence_and_moves_nothing(
    study: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, part: str
) -> None:
    before = files(folder)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    failing(monkeypatch, number, times=10**9, part=part)
    for done in (heatcheck("export", folder), run(study, folder, code=4)):
        assert done.exit_code == 4
        assert os.strerror(number) in done.stderr and part in done.stderr
        assert len(done.stderr.splitlines()) == 1
    monkeypatch.undo()
    assert files(folder) == before


def test_a_chunk_that_is_none_is_left_out_and_said(folder: Path) -> None:
    import hashlib

    import torch
    from safetensors.torch import save

    for header in ({"format": 1}, {"format": 1, "groups": [{}]}, {}):
        data = save({"empty": torch.zeros(1)}, {"heatcheck": json.dumps(header)})
        (folder / "chunks" / f"{hashlib.sha256(data).hexdigest()}.safetensors").write_bytes(data)
    (folder / "chunks" / f"{hashlib.sha256(b'text').hexdigest()}.safetensors").write_bytes(b"text")
    with pytest.warns(StoreWarning, match="no chunk of a run"):
        done = heatcheck("doctor", folder)
    assert done.exit_code == 4
    assert done.stdout.count("is left out") == 4
    with pytest.warns(StoreWarning, match="no chunk of a run"):
        assert set(exported(folder, code=4)["status"]) == {"ok"}


def test_a_file_called_quarantine_is_a_sentence(study: Path, folder: Path) -> None:
    (folder / "quarantine").write_text("mine")
    assert "quarantine is a file" in heatcheck("doctor", folder).stdout.replace("\n", "")
    flip(chunk(folder), 1000)
    done = run(study, folder, code=4)
    assert "quarantine" in done.stderr and "rename it" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert chunk(folder).exists()


@pytest.mark.parametrize("name", ["run.json", "numerics.json", "studies"])
def test_a_flipped_bit_in_any_record_is_found(folder: Path, name: str) -> None:
    path = folder / name if name.endswith("json") else next((folder / name).iterdir())
    whole = path.read_bytes()
    places = [*range(0, 90, 3), *range(90, len(whole), max(1, len(whole) // 25)), len(whole) - 1]
    for at in places:
        path.write_bytes(whole)
        flip(path, at, 1 << (at % 7))
        with pytest.warns(StoreWarning):
            problems = hc.Result.open(folder).check()
        assert any(path.name in problem for problem in problems), (at, whole[at : at + 1])


def test_a_reversed_direction_does_not_reverse_the_ranking(study: Path, folder: Path) -> None:
    """`run.json` is rebuilt from the study when it is read, and written anew by the next run."""
    before = hc.Result.open(folder).leaderboard().full
    text = (folder / "run.json").read_text()
    assert text.count('"better": "higher"') == 1
    (folder / "run.json").write_text(text.replace('"better": "higher"', '"better": "highes"'))
    with pytest.warns(StoreWarning, match=r"run\.json is damaged"):
        assert hc.Result.open(folder).leaderboard().full.equals(before)
    with pytest.warns(StoreWarning, match=r"run\.json is damaged"):
        run(study, folder)
    assert hc.Result.open(folder).check() == []
    assert (folder / "quarantine" / "run.json").exists()


def test_a_folder_from_before_is_unchecked_and_doctor_says_so(tmp_path: Path) -> None:
    out = shutil.copytree(Path(__file__).parents[1] / "fixtures" / "old_layout", tmp_path / "r")
    done = heatcheck("doctor", out)
    assert done.exit_code == 0
    assert done.stdout.count("unchecked") == 2
    text = (out / "run.json").read_text()
    (out / "run.json").write_text(text.replace('"better": "higher"', '"better": "highes"'))
    with pytest.warns(StoreWarning, match=r"better cannot be 'highes'"):
        done = heatcheck("doctor", out)
    assert done.exit_code == 4 and "run.json" in done.stderr


def test_numerics_of_zero_are_refused(study: Path, folder: Path) -> None:
    """An old folder, whose numerics no checksum protects; the shape of calls is then taken from the chunks."""
    value = json.loads((folder / "numerics.json").read_text())
    value.pop("sha256")
    (model,) = value
    (folder / "numerics.json").write_text(json.dumps({model: {**value[model], "forward": 0}}))
    with pytest.warns(StoreWarning, match="forward cannot be 0"):
        run(study, folder, "--metrics", "sparseness,complexity")
    again = json.loads((folder / "numerics.json").read_text())
    assert again[model] == value[model]


def test_a_study_that_is_gone_is_noticed(study: Path, folder: Path) -> None:
    run(study, folder, "--methods", "input_x_gradient,random")
    last = hc.Result.open(folder).manifest["studies"]
    (folder / "studies" / f"{last[0]}.json").unlink()
    assert any(last[0] in problem for problem in hc.Result.open(folder).check())


# -- a disk that refuses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, "free some space"), (errno.EROFS, "writable"), (errno.EACCES, "permissions")]
)
def test_a_disk_that_refuses_is_a_sentence_and_nothing_is_lost(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    out = tmp_path / "r"
    replace, written = Path.replace, []

    def refuse(self: Path, target: Path) -> Path:
        if written or Path(target).parent.name == "chunks":
            written.append(target)
            raise OSError(number, os.strerror(number), str(target))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refuse)
    done = run(study, out, code=4)
    assert os.strerror(number) in done.stderr and advice in done.stderr
    assert len(done.stderr.splitlines()) == 1
    monkeypatch.undo()
    assert not list(out.rglob(".tmp-*"))
    run(study, out)
    assert set(exported(out)["status"]) == {"ok"}


def test_a_limit_of_file_size_is_a_sentence(study: Path, tmp_path: Path) -> None:
    """The kernel refuses, as on a full disk."""
    import subprocess
    import sys

    out = tmp_path / "r"
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
        "from heatcheck.cli import app\n"
        f"app(['run', {str(study)!r}, '--out', {str(out)!r}, '--batch', '2', '-j', '1', '-q'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 4, done.stderr
    assert "File too large" in done.stderr and "Traceback" not in done.stderr
    assert not list(out.rglob(".tmp-*"))


@pytest.mark.parametrize("command", ["export", "report"])
def test_a_table_or_page_that_cannot_be_written_is_a_sentence(folder: Path, command: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = heatcheck(command, folder, "--out", tmp_path / "file" / "out.json")
    assert done.exit_code == 4
    assert "file has the name of a folder" in done.stderr and len(done.stderr.splitlines()) == 1


def test_half_a_report_of_a_killed_process_is_swept(study: Path, folder: Path) -> None:
    dead = 2**22 - 3
    for name in (f".tmp-{dead}-00", f".report.html.{dead}.part"):
        (folder / name).write_text("half")
    assert heatcheck("doctor", folder).stdout.count("half written") == 2
    heatcheck("report", folder)
    assert not list(folder.glob(".*"))
