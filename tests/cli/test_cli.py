"""The command line: what it prints, where, and how it ends."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from heatcheck.cli import app
from heatcheck.cli import run as run_module
from heatcheck.cli.explain import Explanation, coloured, sheet
from heatcheck.core import catalogue
from heatcheck.core.types import HeatcheckError, NotApplicable

HEAVY = ("torch", "numpy", "scipy", "polars", "transformers", "timm", "torchvision", "matplotlib", "plotly", "PIL")


def heatcheck(*arguments: object, **kwargs: Any) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], **kwargs)


def outside(*arguments: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "heatcheck", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, **kwargs)


class FakeResult:
    """A run that is done, with as many failures as a test wants."""

    def __init__(self, failed: int = 0, skipped: tuple[Any, ...] = (), problems: tuple[str, ...] = ()) -> None:
        self.failed = failed
        self.facts = {"skipped": list(skipped)}
        self.problems = problems

    def scores(self) -> pl.DataFrame:
        row = {"run": "r", "model": "m", "data": "d", "sample": 'a "b", c', "target": 1, "method": "saliency"}
        rows = [
            {**row, "metric": "sds", "score": 0.5, "status": "ok"},
            {**row, "metric": "abpc", "score": float("nan"), "status": "undefined: ×"},
        ]
        return pl.DataFrame(rows)

    def leaderboard(self) -> pl.DataFrame:
        return pl.DataFrame({"method": ["saliency"], "metric": ["sds"], "mean": [float("nan")]})

    def report(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("<html>")
        return path

    def check(self) -> list[str]:
        return list(self.problems)


class FakePlan(SimpleNamespace):
    def record(self) -> dict[str, Any]:
        return dict(vars(self))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """A stand-in for the engine that remembers what it was asked, in an empty working folder."""
    seen = SimpleNamespace(result=FakeResult(), study=None, options=None, problem=None, act=lambda: None)
    seen.plan = FakePlan(
        samples=3, forwards=1234, backwards=5, shared=7, seconds=200.0, memory_bytes=2.5e9, disk_bytes=10, reused=1,
        rows=[{"model": "m", "kind": "method", "name": "rise", "forwards": 1234, "backwards": 5}],
        skipped=[{"model": "m", "unit": "grad_cam", "reason": "no layers"}],
    )  # fmt: skip

    class Benchmark:
        @classmethod
        def from_study(cls, study: Any) -> "Benchmark":
            seen.study = study
            return cls()

        def run(self, out: Path, **options: Any) -> FakeResult:
            seen.out, seen.options = out, options
            seen.act()
            if seen.problem is not None:
                raise seen.problem
            return seen.result

        def plan(self, **options: Any) -> FakePlan:
            seen.options = options
            return seen.plan

    monkeypatch.setitem(sys.modules, "heatcheck.api.benchmark", SimpleNamespace(Benchmark=Benchmark))
    monkeypatch.setattr(run_module, "show_leaderboard", lambda result: run_module.typer.echo("LEADERBOARD"))
    monkeypatch.chdir(tmp_path)
    return seen


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """A stand-in for a run folder."""
    seen = SimpleNamespace(result=FakeResult(), path=tmp_path)
    monkeypatch.setattr("heatcheck.cli.folder.opened", lambda run: seen.result)
    return seen


# -- start-up ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["run", "--help"], ["explain", "--help"]]
    + [["list", kind] for kind in ("methods", "metrics", "models", "data", "fills", "units", "profiles")]
    + [["list", "methods", "--json"], ["run", "--metrics", "sdss"]],
)
def test_nothing_heavy_is_imported(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom heatcheck.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {HEAVY} if m in sys.modules], len(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    heavy, count = done.stderr.strip().splitlines()[-1].rsplit(" ", 1)
    assert heavy == "[]"
    assert int(count) < 600


def test_every_command_teaches_by_example() -> None:
    for command in ("run", "plan", "explain", "list", "report", "doctor", "export"):
        shown = heatcheck(command, "--help")
        assert shown.exit_code == 0
        assert shown.output.count(f"heatcheck {command}") >= 2


# -- run ---------------------------------------------------------------------------------------------------------


def test_without_arguments_the_embedded_study_runs(bench: SimpleNamespace) -> None:
    done = heatcheck("run")
    assert done.exit_code == 0
    assert bench.study.models == ("efficientnet_lite0",)
    assert (bench.study.data, bench.study.profile, bench.out) == ("images", "quick", Path("runs/default"))
    assert done.stdout.splitlines() == ["LEADERBOARD", f"report: {Path('runs/default/report.html')}"]
    assert Path("runs/default/report.html").exists()


def test_options_reach_the_engine(bench: SimpleNamespace) -> None:
    done = heatcheck(
        "run", "--models", "timm:a,timm:b", "-m", "timm:c", "--data", "texts", "--methods",
        "saliency,rise(samples=3, keep=0.5)", "--metrics", "sds", "--samples", 4, "--target", "7", "--seed", 9,
        "--workers", 2, "--threads", 3, "--batch", 5,
        "--maps", "none", "--budget", "2m", "--report", "page.html", "--quiet",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    study = bench.study
    assert study.models == ("timm:a", "timm:b", "timm:c")
    assert study.methods == ("saliency", "rise(samples=3, keep=0.5)")
    assert (study.profile, study.target, study.seed) == ("default", 7, 9)
    assert bench.options == {
        "samples": 4, "workers": 2, "threads": 3, "batch": 5, "maps": "none", "budget": 120.0, "progress": "none",
    }  # fmt: skip
    assert bench.out == Path("runs/timm-a-timm-b-timm-c-texts")
    assert Path("page.html").exists()
    assert done.stderr == ""


def test_a_study_file_runs_and_options_beat_it(bench: SimpleNamespace) -> None:
    Path("mine.toml").write_text('models = "timm:a"\ndata = "images"\nsamples = 3\nseed = 2\n')
    assert heatcheck("run", "mine.toml", "--samples", 8).exit_code == 0
    assert (bench.options["samples"], bench.study.seed, bench.out) == (8, 2, Path("runs/mine"))


def test_json_is_all_that_stdout_holds(bench: SimpleNamespace) -> None:
    skip = {"model": "m", "method": "grad_cam", "metric": None, "reason": "no layers"}
    bench.result = FakeResult(skipped=(skip,))
    done = heatcheck("run", "--json")
    told = json.loads(done.stdout)
    assert told["leaderboard"] == [{"method": "saliency", "metric": "sds", "mean": None}]
    assert (told["failed"], told["skipped"], told["run"]) == (0, [skip], "runs/default")


def test_skips_are_no_failures_but_failures_are(bench: SimpleNamespace) -> None:
    bench.result = FakeResult(skipped=({"model": "m", "method": "rise", "reason": "no"},))
    assert heatcheck("run").exit_code == 0
    bench.result = FakeResult(failed=2)
    done = heatcheck("run", "--quiet")
    assert done.exit_code == 3
    assert "2 cells have no score" in done.stderr
    assert "LEADERBOARD" in done.stdout


class Scored(FakeResult):
    """A run with given statuses, by method and metric, on two samples."""

    def __init__(self, status: dict[tuple[str, str], str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.status = status
        self.facts["methods"] = [{"name": m, "control": m == "random"} for m in {m: None for m, _ in status}]

    def scores(self) -> pl.DataFrame:
        rows = [
            {"model": "m", "sample": sample, "method": method, "metric": metric, "status": status}
            for sample in ("a", "b")
            for (method, metric), status in self.status.items()
        ]
        return pl.DataFrame(rows)


def test_a_run_without_any_score_says_why_and_fails(bench: SimpleNamespace) -> None:
    why = "skipped: it needs a mask"
    bench.result = Scored({("saliency", "sds"): why, ("random", "sds"): why})
    done = heatcheck("run", "--quiet")
    assert (done.exit_code, done.stderr) == (3, "error: Nothing could be ranked: it needs a mask\n")
    told = heatcheck("run", "--json")
    assert told.exit_code == 3
    assert json.loads(told.stdout)["skipped"] == [
        {"model": "m", "method": method, "metric": "sds", "reason": "it needs a mask", "samples": 2}
        for method in ("saliency", "random")
    ]


def test_scores_of_controls_alone_are_in_vain_unless_only_they_were_asked_for(bench: SimpleNamespace) -> None:
    bench.result = Scored(
        {("lime", "sds"): "skipped: slow", ("rise", "sds"): "undefined: flat", ("random", "sds"): "ok"}
    )
    done = heatcheck("run", "--quiet")
    assert done.exit_code == 3
    assert done.stderr == "error: Nothing could be ranked: lime: slow; rise: undefined: flat\n"
    bench.result = Scored({("random", "sds"): "ok"})
    assert heatcheck("run").exit_code == 0


def test_many_reasons_are_not_all_told(bench: SimpleNamespace) -> None:
    bench.result = Scored({(f"m{i}", "sds"): f"skipped: {i}" for i in range(6)})
    assert heatcheck("run", "--quiet").stderr.endswith("m3: 3; m4: 4; and 1 more reason\n")


def test_what_a_whole_model_skips_is_told_once(bench: SimpleNamespace) -> None:
    skip = {"model": "m", "method": "rise", "metric": None, "reason": "no grid"}
    status = {("rise", "sds"): "skipped: no grid", ("lime", "sds"): "ok", ("lime", "morf"): "skipped: no sign"}
    bench.result = Scored(status, skipped=(skip,))
    done = heatcheck("run", "--json")
    cell = {"model": "m", "method": "lime", "metric": "morf", "reason": "no sign", "samples": 2}
    assert (done.exit_code, json.loads(done.stdout)["skipped"]) == (0, [skip, cell])


def test_one_of_something_is_not_many(bench: SimpleNamespace) -> None:
    bench.result = FakeResult(failed=1)
    assert "1 cell has no score" in heatcheck("run").stderr
    bench.plan.samples = 1
    assert "1 sample, 1 of them" in heatcheck("plan").stdout


def test_interrupted_says_what_is_saved_and_how_to_go_on(bench: SimpleNamespace) -> None:
    Path("runs/default/chunks").mkdir(parents=True)
    Path("runs/default/chunks/a.safetensors").touch()
    bench.problem = KeyboardInterrupt()
    done = heatcheck("run")
    assert done.exit_code == 130
    assert "1 chunk is saved in runs/default; run the same command again" in done.stderr
    assert done.stdout == ""


def test_a_termination_signal_interrupts_too(bench: SimpleNamespace) -> None:
    before = signal.getsignal(signal.SIGTERM)
    bench.act = lambda: os.kill(os.getpid(), signal.SIGTERM)
    assert heatcheck("run").exit_code == 130
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_mendable_error_is_one_message_and_code_2(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.problem = HeatcheckError("model [x] reads pictures, but the data are texts")
    done = heatcheck("run", "--quiet")
    assert done.exit_code == 2
    assert done.stderr == "error: model [x] reads pictures, but the data are texts\n"
    monkeypatch.setenv("HEATCHECK_DEBUG", "1")
    assert isinstance(heatcheck("run").exception, HeatcheckError)


def test_a_defect_is_not_dressed_up_as_a_mistake_of_the_user(bench: SimpleNamespace) -> None:
    bench.problem = ZeroDivisionError()
    assert isinstance(heatcheck("run").exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metrics", "morff"], "error: --metrics: no metric is called 'morff'; did you mean morf?"),
        (["--samples", "0"], "error: --samples: samples = 0 should be greater than or equal to 1"),
        (["--budget", "soon"], "error: --budget: 'soon' is not a time"),
        (["--maps", "all"], "error: --maps: maps = 'all' should be 'keep', 'gallery' or 'none'"),
        (["--profile", "quik"], "error: --profile: no profile is called 'quik'; did you mean quick?"),
        (["--models", "timn:x"], "error: --models: no model is called 'timn:x'; did you mean timm?"),
        (["absent.toml"], "error: absent.toml: No such file or directory"),
        (["--plugin", "absent.py"], "error: --plugin: plugin 'absent.py' is not a Python file"),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_wrong_usage(bench: SimpleNamespace, command: str, arguments: list[str], message: str) -> None:
    done = heatcheck(command, *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(message)
    assert done.stdout == ""
    assert bench.study is None


def test_a_wrong_line_of_a_study_is_pointed_at(bench: SimpleNamespace) -> None:
    Path("study.toml").write_text('models = "timm:a"\ndata = "images"\n\nmetrics = ["sds", "morff"]\n')
    done = heatcheck("run", "study.toml")
    assert done.exit_code == 2
    assert done.stderr == "error: study.toml:4:19: no metric is called 'morff'; did you mean morf?\n"


# -- plan --------------------------------------------------------------------------------------------------------


def test_plan_tells_passes_time_memory_and_disk(bench: SimpleNamespace) -> None:
    done = heatcheck("plan", "--samples", 3, "--out", "here")
    assert done.exit_code == 0
    assert (bench.options["samples"], bench.options["out"]) == (3, Path("here"))
    for words in (
        "rise",
        "1,234",
        "about 3 min",
        "2.5 GB",
        "10 bytes",
        "skipped on m: grad_cam (no layers)",
        "1 of them",
    ):
        assert words in done.stdout
    assert json.loads(heatcheck("plan", "--json").stdout) == json.loads(json.dumps(bench.plan.record()))


# -- list --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["methods", "metrics", "models", "data", "fills", "units", "profiles"])
def test_every_list_is_a_table_and_an_array_of_objects_with_ids(kind: str) -> None:
    records = json.loads(heatcheck("list", kind, "--json").stdout)
    table = heatcheck("list", kind).stdout
    assert len({record["id"] for record in records}) == len(records) > 1
    for record in records:
        assert record.get("form", record["id"]) in table


def test_a_listed_unit_declares_itself() -> None:
    records = {record["id"]: record for record in json.loads(heatcheck("list", "methods", "--json").stdout)}
    assert set(records) >= set(catalogue._shipped("method"))
    assert records["saliency"]["on"] == ["image", "text"]
    assert records["saliency"]["params"] == {"output": "logit", "reduction": "sum", "post": "none"}
    assert records["random"]["control"] is True


def test_a_plugin_is_listed(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "import heatcheck as hc\n@hc.method('cli_own')\ndef f(model, x, target):\n    '''Mine.'''\n    return x\n"
    )
    assert "cli_own" in heatcheck("list", "methods", "--plugin", plugin).stdout


def test_a_list_of_nothing_known() -> None:
    assert heatcheck("list", "metods").exit_code == 2


# -- report, doctor, export --------------------------------------------------------------------------------------


def test_export_writes_each_format_and_guesses_it_from_the_name(opened: SimpleNamespace) -> None:
    run = opened.path
    assert heatcheck("export", run).stdout == f"{run / 'scores.parquet'}\n"
    assert pl.read_parquet(run / "scores.parquet")["score"].to_list() == [0.5, None]
    heatcheck("export", run, "--out", run / "a.csv")
    rows = list(csv.DictReader(io.StringIO((run / "a.csv").read_text(encoding="utf-8"))))
    assert [(row["sample"], row["score"]) for row in rows] == [('a "b", c', "0.5"), ('a "b", c', "")]
    heatcheck("export", run, "--format", "json", "--out", run / "b")
    assert [row["score"] for row in json.loads((run / "b").read_text())] == [0.5, None]


def test_export_to_stdout_is_the_table_and_nothing_else(opened: SimpleNamespace) -> None:
    text = heatcheck("export", opened.path, "--format", "csv", "--out", "-").stdout
    assert len(list(csv.DictReader(io.StringIO(text)))) == 2
    assert json.loads(heatcheck("export", opened.path, "--json").stdout)[1]["status"] == "undefined: ×"


def test_export_refuses_a_name_it_cannot_read(opened: SimpleNamespace) -> None:
    done = heatcheck("export", opened.path, "--out", "scores.xlsx")
    assert done.exit_code == 2
    assert "cannot tell the format of 'scores.xlsx'" in done.stderr


def test_report_names_its_file(opened: SimpleNamespace) -> None:
    assert heatcheck("report", opened.path).stdout == f"{opened.path / 'report.html'}\n"
    page = opened.path / "sub" / "page.html"
    assert heatcheck("report", opened.path, "--out", page).stdout == f"{page}\n"
    assert page.exists()


def test_a_whole_run_is_well_and_a_damaged_one_is_not(opened: SimpleNamespace) -> None:
    assert heatcheck("doctor", opened.path).exit_code == 0
    opened.result = FakeResult(problems=("damaged file set aside: x",))
    done = heatcheck("doctor", opened.path)
    assert done.exit_code == 4
    assert "damaged file set aside: x" in done.stdout
    assert json.loads(heatcheck("doctor", opened.path, "--json").stdout)["problems"] == ["damaged file set aside: x"]


def test_the_doctor_tells_what_it_finds_about_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    from heatcheck.api.benchmark import doctor

    finding = doctor.Finding(what="outputs are not finite", where="", consequence="", remedy="", severity="error")
    sample = SimpleNamespace(problem=None)
    model = SimpleNamespace(domain=SimpleNamespace(modality="text"), encode=lambda s: s)
    asked = []
    monkeypatch.setattr("heatcheck.models.load.load_model", lambda spec: model)
    monkeypatch.setattr("heatcheck.data.load.load_data", lambda spec: asked.append(spec) or [sample])
    monkeypatch.setattr(doctor, "examine", lambda model, x: [finding])
    done = heatcheck("doctor", "timm:x")
    assert (done.exit_code, asked) == (3, ["texts"])
    assert "outputs are not finite" in done.stdout
    monkeypatch.setattr(doctor, "examine", lambda model, x: [])
    monkeypatch.setattr("heatcheck.run.rehearsal.applicable", lambda model, x: {"lime": None, "rise": "no grid"})
    done = heatcheck("doctor", "timm:x")
    assert done.exit_code == 0
    assert "no grid" in done.stdout
    assert "1 of 2 methods apply" in done.stdout
    assert json.loads(heatcheck("doctor", "timm:x", "--json").stdout) == {
        "findings": [],
        "methods": [
            {"id": "lime", "applies": True, "reason": None},
            {"id": "rise", "applies": False, "reason": "no grid"},
        ],
    }


def test_no_run_there_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    done = heatcheck("export", tmp_path / "absent")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")


# -- explain -----------------------------------------------------------------------------------------------------


@pytest.fixture
def explainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for model and method: the map says how bright each pixel, or how long each word, is."""
    import torch

    def encode(sample: str) -> dict[str, Any]:
        if Path(sample).suffix:
            return {"kind": "image", "rgb": np.asarray(Image.open(sample))}
        tokens = ["[CLS]", *sample.split()]
        return {"kind": "text", "tokens": tokens, "special": [t == "[CLS]" for t in tokens]}

    def explain(model: Any, data: list[str], *, method: str, target: int | None) -> Any:
        if method == "grad_cam":
            raise NotApplicable("no layers")
        shown = encode(data[0])
        values = [len(t) for t in shown["tokens"]] if "tokens" in shown else shown["rgb"].mean(-1)
        return SimpleNamespace(
            values=torch.tensor(np.asarray(values))[None].float(), target=torch.tensor([target or 0])
        )

    model = SimpleNamespace(encode=encode, display=lambda sample, x: x, class_name=lambda i: f"class {i}")
    monkeypatch.setitem(sys.modules, "heatcheck.api.benchmark", SimpleNamespace(explain=explain))
    monkeypatch.setattr("heatcheck.api.benchmark", SimpleNamespace(explain=explain), raising=False)
    monkeypatch.setattr("heatcheck.models.load.load_model", lambda spec: model)
    monkeypatch.setattr("heatcheck.data.load.load_data", list)


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for i, path in enumerate(paths):
        Image.fromarray(np.full((20, 30, 3), 100 * i, np.uint8)).save(path)
    return paths


def test_pictures_become_a_sheet(explainer: None, pictures: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"
    done = heatcheck("explain", *pictures, "--method", "saliency,rise(samples=3, keep=0.5)", "--out", out)
    assert (done.exit_code, done.stdout) == (0, f"{out}\n"), done.output
    with Image.open(out) as page:
        assert page.size == (3 * 224 + 2 * 6, 2 * (224 + 18) + 6)


def test_all_methods_leave_out_what_does_not_apply(explainer: None, pictures: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"
    done = heatcheck("explain", pictures[0], "--method", "all", "--out", out, "--json")
    assert done.exit_code == 0
    assert "skipped grad_cam: no layers" in done.stderr
    methods = [record["method"] for record in json.loads(done.stdout)]
    assert "saliency" in methods and "grad_cam" not in methods
    alone = heatcheck("explain", pictures[0], "--method", "grad_cam", "--out", out)
    assert (alone.exit_code, alone.stderr) == (2, "error: grad_cam no layers\n")


def test_texts_become_coloured_words_and_numbers_in_a_pipe(explainer: None) -> None:
    done = heatcheck("explain", "--text", "a dull film", "--target", 1)
    assert done.stdout == "saliency → class 1:  a dull[+6] film[+6]\n"
    told = json.loads(heatcheck("explain", "-", "--json", input="so good\n").stdout)
    assert told[0]["tokens"] == ["[CLS]", "so", "good"]
    assert told[0]["values"] == [5, 2, 4]


def test_words_for_the_class_are_warm_and_against_it_cold() -> None:
    shown = {"kind": "text", "tokens": ["[CLS]", "good", "##ness", "no"], "special": [True, False, False, False]}
    line = coloured(Explanation("x", "m", 0, "c", shown, np.array([9.0, 1.0, 0.0, -1.0])))
    assert line.plain == "m → c:  goodness no"
    line = coloured(Explanation("x", "m", 0, "c", shown, np.array([0.0, 1.0, 0.0, -1.0])))
    styles = {line.plain[span.start : span.end]: str(span.style) for span in line.spans}
    assert styles["good"] == "black on rgb(255,65,65)"
    assert styles["no"] == "black on rgb(65,65,255)"


def test_a_sheet_shows_each_map_beside_its_input() -> None:
    rgb = np.full((8, 8, 3), 200, np.uint8)
    heat = np.zeros((8, 8))
    heat[:, 4:] = 1.0
    page = np.asarray(sheet([Explanation("x.png", "m", 0, "c", {"rgb": rgb}, heat)]))
    tile = page[:224, 230:454].astype(int)
    assert abs(page[100, 100].astype(int) - 200).max() < 4
    assert (tile[100, 200, 0] - tile[100, 200, 2]) > 60
    assert np.ptp(tile[100, 20]) < 12


@pytest.mark.parametrize("arguments", [[], ["a.png", "--text", "x"], ["absent.png"]])
def test_explain_says_what_it_needs(explainer: None, arguments: list[str]) -> None:
    done = heatcheck("explain", *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(
        ("error: explain pictures or texts, one kind at a time", "error: there is no picture")
    )


def test_a_wrong_method_is_answered_before_anything_is_loaded(pictures: list[Path]) -> None:
    done = heatcheck("explain", pictures[0], "--method", "salincy")
    assert (done.exit_code, done.stderr) == (
        2,
        "error: --method: no method is called 'salincy'; did you mean saliency?\n",
    )


# -- as a program ------------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = (
        "import sys, polars as pl, heatcheck.cli.folder as f\n"
        "from types import SimpleNamespace\n"
        "table = pl.DataFrame({'score': [0.5] * 200_000})\n"
        "f.opened = lambda run: SimpleNamespace(scores=lambda: table)\n"
        "sys.argv = ['heatcheck', 'export', 'x', '--format', 'csv', '--out', '-']\n"
        "from heatcheck.cli import main\nmain()\n"
    )
    script = '"$0" -c "$1" | head -2'
    done = subprocess.run(["/bin/sh", "-c", script, sys.executable, code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "score\n0.5\n"
    assert done.stderr == ""


def test_wrong_usage_of_the_program_leaves_stdout_clean() -> None:
    done = outside("run", "--metrics", "morff", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --metrics: no metric is called 'morff'; did you mean morf?\n"
    unknown = outside("frobnicate")
    assert (unknown.returncode, unknown.stdout) == (2, "")


def test_version() -> None:
    from importlib.metadata import version

    assert outside("--version").stdout == f"heatcheck {version('heatcheck')}\n"
