"""The command line on a small real model and real files: what it prints, where, and how it ends."""

import csv
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner, Result

import heatcheck as hc
from heatcheck.cli import app
from heatcheck.cli.explain import Explanation, coloured, sheet
from heatcheck.cli.formulas import plain
from heatcheck.cli.options import study_of
from heatcheck.core import catalogue
from heatcheck.models.vision_shim import load_timm, load_transformers
from heatcheck.run.execution import Runner
from heatcheck.run.store import StoreWarning

HEAVY = ("torch", "numpy", "scipy", "polars", "transformers", "timm", "torchvision", "matplotlib", "plotly", "PIL")
MODEL = "timm:test_resnet@weights.safetensors"
NAMES = ('a "b", c.png', "noise.png", "stripes.png")
RUN = ("--models", MODEL, "--data", "folder:photos", "--metrics", "sds,sparseness", "--batch", 4, "-j", 1)
GOOD = ("run", *RUN, "--methods", "saliency,random", "--out", "runs/good")
COMPLAINT = "× " + "long-winded " * 3000
PLUGIN = f'''
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch

import heatcheck as hc


@hc.method("cli_breaks")
def breaks(model, x, target):
    """Fails, at length."""
    raise ValueError({COMPLAINT!r})


@hc.method("cli_flat")
def flat(model, x, target):
    """The same everywhere."""
    return torch.zeros_like(x)


@hc.method("cli_refuses")
def refuses(model, x, target, *, number: int = 0):
    """Applies to no model."""
    raise hc.NotApplicable(f"reason {{number}}")


@hc.method("cli_waits")
def waits(model, x, target):
    """Once a chunk is saved: waits until somebody stops this process."""
    saved = list(Path(os.environ.get("CLI_RUN", "absent")).glob("chunks/*.safetensors"))
    if saved and "CLI_READY" in os.environ:
        Path(os.environ["CLI_READY"]).touch()
        time.sleep(100)
    return x


@hc.method("cli_defect")
class Defect(hc.Method):
    """Has a mistake where it says what it asks."""

    def attribute(self, probe, batch):
        return probe.domain.leaf(batch.x)

    def asks(self, shape):
        return {{1 // 0}}
'''


def heatcheck(*arguments: object, **kwargs: Any) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], **kwargs)


def strict(text: str) -> Any:
    """JSON, in which NaN is no value."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def outside(*arguments: object, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, env=environment(), timeout=120, **kwargs)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "heatcheck", *map(str, arguments)]


def environment(**more: object) -> dict[str, str]:
    known = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    return {**known, **{name: str(value) for name, value in more.items()}}


# -- a model, pictures and runs, made once ----------------------------------------------------------------------


def draw(path: Path, seed: int) -> None:
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize((30, 20)).save(path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny network's weights, pictures, a table of texts and a plugin."""
    folder = tmp_path_factory.mktemp("cli")
    from safetensors.torch import save_file

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = load_timm().create_model("test_resnet", pretrained=False, num_classes=7)
    save_file(network.state_dict(), folder / "weights.safetensors")
    broken = {k: v * float("nan") if k == "fc.weight" else v for k, v in network.state_dict().items()}
    save_file(broken, folder / "broken.safetensors")
    for many, names in (("photos", NAMES), ("many", [f"{i}.png" for i in range(9)])):
        (folder / many).mkdir()
        for i, name in enumerate(names):
            draw(folder / many / name, i)
    (folder / "reviews.csv").write_text("text,label\na dull film,0\n")
    (folder / "own.py").write_text(PLUGIN)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _no_plugin_is_left() -> Iterator[None]:
    known, modules = dict(catalogue._own), set(sys.modules)
    yield
    for name in [name for name in sys.modules if name.startswith("heatcheck_plugin_") and name not in modules]:
        del sys.modules[name]
    catalogue._own.clear()
    catalogue._own.update(known)


@pytest.fixture
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(home)
    return home


@pytest.fixture(scope="module")
def good(home: Path) -> Path:
    """A finished run of two methods and two metrics on three pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        done = heatcheck(*GOOD)
        assert done.exit_code == 0, done.output
        (home / "good.stdout").write_text(done.stdout)
        (home / "good.stderr").write_text(done.stderr)
    return home / "runs" / "good"


@pytest.fixture(scope="module")
def troubled(home: Path) -> Path:
    """A run in which one method failed on every picture."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        wanted = (*RUN, "--methods", "saliency,cli_breaks,random", "--plugin", "own.py", "--out", "runs/troubled")
        done = heatcheck("run", *wanted, "--quiet")
        (home / "troubled.stdout").write_text(done.stdout)
        (home / "troubled.stderr").write_text(done.stderr)
        assert done.exit_code == 3, done.output
    return home / "runs" / "troubled"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The spec of a tiny text classifier in a folder."""
    transformers = load_transformers()
    folder = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "##s"]
    (folder / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=32)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=32, num_labels=2, **sizes)
        network = transformers.BertForSequenceClassification(config).eval()
        for weight in network.parameters():
            weight.data.add_(0.3 * torch.randn(weight.shape))
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return f"hf:{folder}"


# -- start-up ---------------------------------------------------------------------------------------------------


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    kinds = ("methods", "metrics", "models", "data", "fills", "units", "profiles")
    lines = [["--help"], ["--version"], ["run", "--help"], ["explain", "--help"], ["run", "--metrics", "sdss"]]
    lines += [["list", kind] for kind in kinds] + [["list", "methods", "--json"]]
    code = (
        "import sys\nfrom heatcheck.cli import main\n"
        f"for line in {lines}:\n"
        "    sys.argv = ['heatcheck', *line]\n"
        "    try:\n        main()\n    except SystemExit:\n        pass\n"
        f"    print(line, [m for m in {HEAVY} if m in sys.modules], len(sys.modules) < 600, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = [line for line in done.stderr.splitlines() if line.startswith("[")]
    assert found == [f"{line} [] True" for line in lines]


@pytest.mark.parametrize("line", [["--help"], ["-h"], ["--version"]])
def test_help_imports_little_more_than_the_command_line(line: list[str]) -> None:
    code = (
        "import sys\nfrom heatcheck.cli import main\n"
        f"sys.argv = ['heatcheck', *{line}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join(n for n, m in sys.modules.items() if m is not None), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stderr.split()
    ours = {name for name in loaded if name.startswith("heatcheck.")}
    packages = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names
    drawing = {"typer", "rich", "pygments", "markdown_it", "mdurl", "shellingham", "annotated_doc", "click", "colorama"}
    drawing |= {"attr"}  # which rich looks for, and which Ray installs
    assert packages - drawing - {"heatcheck", "__main__", "_distutils_hack"} == set()
    assert {name.split(".")[1] for name in ours} <= {"cli", "core", "models"}
    assert len(loaded) < 400  # each costs about half a millisecond; 336 when this was written


def test_every_command_teaches_by_example() -> None:
    for name in ("run", "plan", "explain", "list", "report", "doctor", "export", "fills", "multiverse"):
        shown = heatcheck(name, "--help")
        assert shown.exit_code == 0
        assert shown.output.count(f"heatcheck {name}") >= 2


# -- run --------------------------------------------------------------------------------------------------------


def test_a_run_ends_with_a_leaderboard_and_a_report(good: Path, home: Path) -> None:
    shown, notes = (home / "good.stdout").read_text(), (home / "good.stderr").read_text()
    assert "saliency" in shown and "random" in shown and "sds" in shown and "sparseness" in shown
    assert shown.splitlines()[-1] == "report: runs/good/report.html"
    assert (good / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert notes.startswith(f"{MODEL} on folder:photos, profile default, into runs/good\n")
    scores = hc.Result.open(good).scores()
    assert scores.shape[0] == 3 * 2 * 2
    assert scores["status"].unique().to_list() == ["ok"]
    assert set(scores["sample"]) == set(NAMES)


def test_without_models_and_data_the_embedded_study_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = heatcheck(
        "run", "-n", 1, "--methods", "saliency,random", "--metrics", "sparseness", "--batch", 1, "-j", 1, "-q"
    )
    assert done.exit_code == 0, done.output
    run = json.loads(Path("runs/default/run.json").read_text())
    assert run["study"]["models"] == {"efficientnet_lite0": "efficientnet_lite0"}
    assert (run["study"]["data"], run["study"]["profile"]) == ("images", "quick")
    assert done.stdout.splitlines()[-1] == f"report: {Path('runs/default/report.html')}"
    assert Path("runs/default/report.html").exists()


def test_options_decide_the_run(at_home: Path) -> None:
    shutil.copy("weights.safetensors", "twin.safetensors")
    twin = MODEL.replace("weights", "twin")
    done = heatcheck(
        "run", "--models", MODEL, "-m", twin, "--data", "folder:photos", "--methods",
        "saliency,rise(samples=3, keep=0.5)", "--metrics", "sparseness", "--samples", 2, "--target", 3, "--seed", 9,
        "--workers", 1, "--threads", 2, "--batch", 5, "--maps", "none", "--budget", "2m", "--report", "page.html", "-q",
    )  # fmt: skip
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    out = Path("runs/timm-test_resnet-weights.safetensors-timm-test_resnet-twin.safetensors-folder-ph")
    run = json.loads((out / "run.json").read_text())
    assert list(run["study"]["models"]) == [MODEL, twin]
    assert list(run["study"]["methods"]) == ["saliency", "rise(samples=3, keep=0.5)", "random"]
    assert (run["study"]["profile"], run["target"], run["seed"], run["maps"]) == ("default", 3, 9, "none")
    assert (run["study"]["samples"], len(run["samples"])) == (2, 2)
    assert [(m["numerics"]["forward"], m["numerics"]["threads"]) for m in run["models"]] == [(5, 2)] * 2
    assert set(hc.Result.open(out).scores()["target"]) == {3}
    assert Path("page.html").exists() and not (out / "report.html").exists()


def test_options_of_the_runtime_reach_the_study() -> None:
    runtime = study_of(
        None, workers=2, threads=3, batch=5, compile=True, budget="2m", timeout="30", maps="gallery"
    ).runtime
    assert (runtime.workers, runtime.threads, runtime.batch, runtime.compile) == (2, 3, 5, True)
    assert (runtime.budget, runtime.timeout, runtime.maps) == (120.0, 30.0, "gallery")


def test_a_study_file_runs_and_options_beat_it(at_home: Path) -> None:
    Path("mine.toml").write_text(
        f'models = "{MODEL}"\ndata = "folder:photos"\nmethods = "random"\nmetrics = "sparseness"\n'
        "samples = 3\nseed = 2\n[runtime]\nbatch = 4\nworkers = 1\n"
    )
    assert heatcheck("run", "mine.toml", "--samples", 1).exit_code == 0
    run = json.loads(Path("runs/mine/run.json").read_text())
    assert (run["study"]["samples"], run["seed"]) == (1, 2)
    assert run["models"][0]["numerics"]["forward"] == 4


def test_json_is_all_that_stdout_holds(good: Path, at_home: Path) -> None:
    done = heatcheck(*GOOD, "--json")
    record = strict(done.stdout)
    assert (done.exit_code, record["run"], record["report"]) == (0, "runs/good", "runs/good/report.html")
    assert (record["failed"], record["skipped"]) == (0, [])
    assert {(row["method"], row["metric"]) for row in record["leaderboard"]} == {
        (method, metric) for method in ("saliency", "random") for metric in ("sds", "sparseness")
    }
    assert "folder:photos" in done.stderr


def test_a_finished_run_asks_the_model_nothing(good: Path, at_home: Path) -> None:
    chunks = sorted(good.glob("chunks/*"))
    before = json.loads((good / "run.json").read_text())["passes"]
    assert heatcheck(*GOOD, "--quiet").stderr == ""
    assert json.loads((good / "run.json").read_text())["passes"] == before
    assert sorted(good.glob("chunks/*")) == chunks


def test_failures_are_exit_code_3_and_the_leaderboard_is_shown(troubled: Path, home: Path) -> None:
    notes = (home / "troubled.stderr").read_text()
    assert notes.startswith("6 cells have no score because something failed: 6 × ValueError: × long-winded")
    assert len(notes) < 400
    assert notes.endswith("; `heatcheck export runs/troubled --format csv --out -` lists them all\n")
    assert "saliency" in (home / "troubled.stdout").read_text()


def test_skips_are_no_failures(at_home: Path) -> None:
    done = heatcheck("run", *RUN, "--methods", "saliency,rollout,random", "--out", "runs/skips", "--json")
    assert done.exit_code == 0, done.output
    (skip,) = strict(done.stdout)["skipped"]
    assert (skip["model"], skip["method"]) == (MODEL, "rollout")
    assert skip["reason"].startswith("needs attention between tokens")


def test_a_run_without_any_score_says_why_and_fails(at_home: Path) -> None:
    wanted = ("run", *RUN[:4], *RUN[6:], "--metrics", "pointing_game", "--methods", "saliency,random")
    done = heatcheck(*wanted, "--out", "runs/unranked", "--quiet")
    why = "pointing_game needs a reference 'mask', and none was given"
    assert done.exit_code == 3
    assert done.stderr.startswith(f"error: Nothing could be ranked: {why}")
    record = heatcheck(*wanted, "--out", "runs/unranked", "--json")
    assert record.exit_code == 3
    skipped = strict(record.stdout)["skipped"]
    assert [(s["method"], s["metric"], s["samples"]) for s in skipped] == [
        ("saliency", "pointing_game", 3),
        ("random", "pointing_game", 3),
    ]
    assert all(s["reason"].startswith(why) for s in skipped)


def test_scores_of_controls_alone_rank_nothing_unless_only_they_were_asked_for(at_home: Path) -> None:
    wanted = ("run", *RUN[:4], *RUN[6:], "--metrics", "sds", "--plugin", "own.py", "--quiet")
    done = heatcheck(*wanted, "--methods", "cli_refuses,cli_flat,random", "--out", "runs/controls")
    assert done.exit_code == 3
    assert done.stderr.startswith("error: Nothing could be ranked: cli_refuses: reason 0; cli_flat: undefined: ")
    assert heatcheck(*wanted, "--methods", "random", "--out", "runs/random").exit_code == 0


def test_many_reasons_are_not_all_listed(at_home: Path) -> None:
    methods = ",".join(f"cli_refuses(number={i})" for i in range(6))
    wanted = ("run", *RUN[:4], *RUN[6:], "--metrics", "sparseness", "--plugin", "own.py", "--methods", methods)
    done = heatcheck(*wanted, "--out", "runs/reasons", "-n", 1, "--quiet")
    assert done.exit_code == 3
    assert done.stderr.endswith("cli_refuses(number=3): reason 3; cli_refuses(number=4): reason 4; and 1 more reason\n")


def test_what_a_whole_model_skips_is_listed_once(at_home: Path) -> None:
    metrics = "sds,infidelity(samples=2, scale=none)"
    wanted = ("run", *RUN[:4], *RUN[6:], "--metrics", metrics, "--methods", "rollout,saliency,saliency(post=abs)")
    done = heatcheck(*wanted, "--out", "runs/once", "--json")
    assert done.exit_code == 0, done.output
    whole, *cells = strict(done.stdout)["skipped"]
    (cell,) = (c for c in cells if c["method"] != "random")
    assert (whole["method"], whole["metric"]) == ("rollout", None)
    assert "samples" not in whole
    assert (cell["method"], cell["metric"], cell["samples"]) == ("saliency(post=abs)", metrics[4:], 3)


def test_random_is_added_and_said(at_home: Path) -> None:
    wanted = ("run", *RUN[:4], *RUN[6:], "--metrics", "sparseness", "-n", 1, "--out", "runs/alone")
    done = heatcheck(*wanted, "--methods", "integrated_gradients(steps=2)", "--json")
    assert done.exit_code == 0, done.output
    assert "random is added as a control: nothing is ranked without it" in done.stderr
    assert {row["method"] for row in strict(done.stdout)["leaderboard"]} == {"integrated_gradients(steps=2)", "random"}
    assert "is added" not in heatcheck(*wanted, "--methods", "saliency,random").stderr


def test_one_of_something_is_not_many(at_home: Path) -> None:
    wanted = (*RUN[:4], *RUN[6:], "--metrics", "sparseness", "--plugin", "own.py", "-n", 1, "--out", "runs/one")
    done = heatcheck("run", *wanted, "--methods", "saliency,cli_breaks")
    assert done.exit_code == 3
    assert "1 cell has no score" in done.stderr
    assert "1 sample, 1 of them already done" in heatcheck("plan", *wanted, "--methods", "saliency").stdout


# -- interrupted ------------------------------------------------------------------------------------------------


def waiting(out: Path) -> tuple[object, ...]:
    """A run of two chunks whose second one is interrupted."""
    data = ("--models", MODEL, "--data", "folder:many", "--metrics", "sparseness", "--batch", 4, "-j", 1)
    return "run", *data, "--methods", "saliency,cli_waits", "--plugin", "own.py", "--out", out, "--quiet"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_says_what_is_saved_and_the_same_command_goes_on(
    number: signal.Signals, at_home: Path, tmp_path: Path
) -> None:
    out, ready = tmp_path / "run", tmp_path / "ready"
    with subprocess.Popen(
        command(*waiting(out)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(CLI_RUN=out, CLI_READY=ready),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        limit = time.monotonic() + 90
        while not ready.exists() and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (130, "")
    saved = len(list(out.glob("chunks/*.safetensors")))
    assert saved >= 1
    assert stderr == f"\ninterrupted: finished work is saved in {out}; run the same command again to continue\n"
    planned = heatcheck("plan", *waiting(out)[1:-1]).stdout
    told = re.search(r"9 samples, (\d) of them already done\n(\d+) of 27 cells are stored already", planned)
    assert told and 0 < int(told[2]) < 27, planned
    assert "at most " in planned
    checked = heatcheck("doctor", out)
    assert (checked.exit_code, "are not computed" in checked.stdout) == (3, True)
    assert heatcheck(*waiting(out)).exit_code == 0
    assert len(list(out.glob("chunks/*.safetensors"))) > saved


def test_a_termination_signal_before_the_run_is_an_interrupt_too(at_home: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "ends.py"
    plugin.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n", encoding="utf-8")
    line = command("list", "methods", "--plugin", plugin)
    assert subprocess.run(line, capture_output=True, env=environment(), timeout=120).returncode == 130


# -- errors -----------------------------------------------------------------------------------------------------


def test_a_mistake_of_the_user_is_one_message_and_code_2(at_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ("run", "--models", MODEL, "--data", "csv:reviews.csv", "--out", "runs/mixed", "--quiet")
    done = heatcheck(*wanted)
    assert done.exit_code == 2
    assert done.stderr == f"error: model {MODEL!r} reads images, but the data 'reviews' are texts\n"
    monkeypatch.setenv("HEATCHECK_DEBUG", "1")
    assert isinstance(heatcheck(*wanted).exception, hc.HeatcheckError)


def test_labels_that_are_not_there_cannot_be_explained(at_home: Path) -> None:
    done = heatcheck("run", *RUN, "--target", "label", "--out", "runs/unlabelled", "-q")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: target 'label': no sample of 'photos' has a label; use target predicted")
    assert not Path("runs/unlabelled").exists()


def test_a_small_work_is_done_in_this_process_unless_workers_are_asked_for(
    at_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = []

    def executor(self: Runner, parts: Any, expected: Any, gauge: Any, *, apart: bool = False) -> Any:
        kinds.append(self.place(parts, expected, gauge.shown, apart=apart))
        raise hc.HeatcheckError("far enough")

    monkeypatch.setattr(Runner, "executor", executor)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    wanted = ("run", *RUN[:-2], "--methods", "saliency", "--out", "runs/small", "-q")
    for more in ((), ("--workers", 2), ("--timeout", "90s"), ("--plugin", "own.py")):
        heatcheck(*wanted, *more)
    monkeypatch.setattr("heatcheck.run.runtime.QUICK", 0.0)
    heatcheck(*wanted)
    assert kinds == [("here", 1), ("processes", 2), ("processes", 3), ("processes", 3), ("processes", 3)]


def test_fewer_samples_than_asked_for_are_mentioned(at_home: Path) -> None:
    done = heatcheck("plan", *RUN, "--samples", 50)
    assert done.exit_code == 0, done.output
    assert "photos: only 3 samples are there, not 50" in done.stderr


def test_a_defect_is_not_presented_as_a_mistake_of_the_user(at_home: Path) -> None:
    done = heatcheck("run", *RUN, "--methods", "cli_defect", "--plugin", "own.py", "--out", "runs/defect", "-q")
    assert isinstance(done.exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metrics", "morff"], "error: --metrics: no metric is called 'morff'; did you mean morf?"),
        (["--samples", "0"], "error: --samples: samples = 0 should be greater than or equal to 1"),
        (["--budget", "soon"], "error: --budget: 'soon' is not a time"),
        (
            ["--on", "cluster"],
            "error: --on: on = 'cluster' should be here, processes, processes:4, ray or ray://HOST:PORT",
        ),
        (["--maps", "all"], "error: --maps: maps = 'all' should be 'keep', 'gallery' or 'none'"),
        (["--profile", "quik"], "error: --profile: no profile is called 'quik'; did you mean quick?"),
        (["--models", "timn:x"], "error: --models: no model is called 'timn:x'; did you mean timm?"),
        (["absent.toml"], "error: absent.toml: No such file or directory"),
        (["--plugin", "absent.py"], "error: --plugin: plugin 'absent.py' is not a Python file"),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_wrong_usage(
    command: str, arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = heatcheck(command, *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(message)
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_line_of_a_study_is_pointed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text('models = "timm:a"\ndata = "images"\n\nmetrics = ["sds", "morff"]\n')
    done = heatcheck("run", "study.toml")
    assert done.exit_code == 2
    told = "no metric is called 'morff'; did you mean morf? Your own need --plugin FILE.py"
    assert done.stderr == f"error: study.toml:4:19: {told}\n"


# -- plan -------------------------------------------------------------------------------------------------------


def test_plan_says_passes_time_memory_disk_and_skips(good: Path, at_home: Path) -> None:
    wanted = ("plan", *RUN, "--methods", "saliency,rollout,random", "--out", "runs/planned")
    done = heatcheck(*wanted)
    assert done.exit_code == 0, done.output
    for words in ("saliency", "3 samples, 0 of them already done", "54 forwards and 3 backwards", "time about"):
        assert words in done.stdout
    assert re.search(r"memory about [\d.]+ [MG]B in this process, disk about [\d.]+ [kM]B", done.stdout)
    assert f"skipped on {MODEL}: rollout (needs attention" in done.stdout
    record = strict(heatcheck(*wanted, "--json").stdout)
    assert (record["samples"], record["forwards"], record["backwards"], record["reused"]) == (3, 54, 3, 0)
    (skip,) = record["skipped"]
    assert (skip["model"], skip["component"], skip["unit"]) == (MODEL, "rollout", "rollout")
    assert not Path("runs/planned").exists()
    again = strict(heatcheck("plan", *RUN, "--methods", "saliency,random", "--out", good, "--json").stdout)
    assert (again["samples"], again["reused"], again["forwards"]) == (3, 3, 0)


# -- list -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["methods", "metrics", "models", "data", "fills", "units", "profiles"])
def test_every_list_is_a_table_and_an_array_of_objects_with_ids(kind: str) -> None:
    records = strict(heatcheck("list", kind, "--json").stdout)
    table = heatcheck("list", kind).stdout
    assert len({record["id"] for record in records}) == len(records) > 1
    for record in records:
        assert record.get("form", record["id"]) in table


def test_list_alone_says_what_can_be_listed() -> None:
    counts = strict(heatcheck("list", "--json").stdout)
    assert set(counts) == {"methods", "metrics", "models", "data", "fills", "units", "profiles", "recipes"}
    assert counts["methods"] == len(strict(heatcheck("list", "methods", "--json").stdout))
    assert re.search(rf"methods\s+{counts['methods']}\n", heatcheck("list").stdout)


def test_doctor_knows_a_users_own_methods(at_home: Path, tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(
        "import heatcheck as hc\n@hc.method('my_noise', uses=())\ndef my_noise(model, x, target):\n    return x\n"
    )
    told = strict(heatcheck("doctor", MODEL, "--plugin", own, "--json").stdout)
    assert {"id": "my_noise", "applies": True, "reason": None} in told["methods"]


@pytest.mark.parametrize("kind", ["methods", "metrics", "fills"])
def test_formulas_on_cards_are_plain_characters(kind: str) -> None:
    found = [
        plain(f"{entry.summary} {entry.explanation} {entry.record()['meanings']}")
        for entry in catalogue.entries(kind[:-1]).values()
    ]
    assert not [text for text in found if re.search(r"\\[a-zA-Z]+|[${}]\w", re.sub(r"\{'.*|\{ m'", "", text))]


def test_a_formula_reads_as_in_the_paper() -> None:
    assert plain(r"$A = \frac{1}{N p} \sum_n p_t\big(x \odot M_n\big)\, M_n$") == "A = 1/(N p) Σₙ pₜ(x ⊙ Mₙ) Mₙ"
    assert plain(r"$\max_k \|A\|_\infty^2 \le \mathbb E[\Delta^2]$ is $x^{(k)}$") == "maxₖ ‖A‖_∞² ≤ 𝔼[Δ²] is x^(k)"
    assert plain("costs 5 $ and more") == "costs 5 $ and more"


def test_a_listed_component_declares_itself() -> None:
    records = {record["id"]: record for record in strict(heatcheck("list", "methods", "--json").stdout)}
    assert set(records) >= set(catalogue._shipped("method"))
    assert records["saliency"]["on"] == ["image", "text"]
    assert records["saliency"]["params"] == {"output": "logit", "reduction": "auto", "post": "none"}
    assert records["random"]["control"] is True


@pytest.mark.parametrize("kind", ["methods", "metrics", "models", "data", "fills", "units", "profiles"])
def test_each_of_a_list_has_a_card(kind: str) -> None:
    for record in strict(heatcheck("list", kind, "--json").stdout):
        shown = heatcheck("list", kind, record["id"])
        assert shown.exit_code == 0, shown.output
        assert shown.stdout.splitlines()[0] == record.get("form", record["id"])
        assert "heatcheck run --" in shown.stdout or "hc.Benchmark(" in shown.stdout
        for name, default in record.get("params", {}).items():
            assert kind == "profiles" or f"{name}=" in shown.stdout, default


def test_a_method_in_full() -> None:
    shown = heatcheck("list", "methods", "rise").stdout
    for words in (
        "The mean of random smooth masks",
        "perturbation",
        "samples=1000  number of masks.",
        "reduction=sum  how channels or embedding coordinates become one number per site",  # of its base class
        "efficientnet_lite0: 1,000 forward passes on a picture of 224 × 224 pixels",
        "minilm_sentiment: does not apply",
        "implementation_invariant",
        "Petsiuk et al., RISE",
        "heatcheck explain cat.jpg --method rise",
    ):
        assert words in shown
    record = strict(heatcheck("list", "methods", "rise", "--json").stdout)
    assert record["passes"] == {"efficientnet_lite0": {"forwards": 1000, "backwards": 0}, "minilm_sentiment": None}
    assert heatcheck("list", "methods", "rise(samples=9)").stdout == shown


def test_the_examples_of_cards_are_commands_that_parse() -> None:
    group = typer.main.get_command(app)
    lines = []
    for kind in ("methods", "metrics", "fills", "units", "profiles", "models", "data"):
        for record in strict(heatcheck("list", kind, "--json").stdout):
            text = heatcheck("list", kind, record["id"]).stdout
            lines += re.findall(r"heatcheck ((?:run|explain) .*?) *$", text, re.MULTILINE)
    assert len(lines) > 150
    for line in lines:
        command, *arguments = shlex.split(line)
        given = group.commands[command].make_context(command, arguments).params
        for option in ("methods", "metrics"):
            for spec in given.get(option) or ():
                assert list(catalogue.problems(option[:-1], spec)) == [], line


def test_a_cost_is_shown_for_the_default_model() -> None:
    methods = heatcheck("list", "methods").stdout
    assert re.search(r"^rise +perturbation +image +1,000 +The mean", methods, re.MULTILINE)
    assert re.search(r"^rollout +attention +image, text +2 +", methods, re.MULTILINE)  # on the text default
    assert re.search(r"^bagnet +intrinsic +image +The", methods, re.MULTILINE)  # on neither
    metrics = heatcheck("list", "metrics").stdout
    assert re.search(r"^abpc .* higher +2 once, 38 each +", metrics, re.MULTILINE)
    assert re.search(r"^sds .* higher +17 once +", metrics, re.MULTILINE)


@pytest.mark.parametrize("width", [80, 120])
def test_a_list_fits_the_terminal(width: int) -> None:
    code = "import sys\nfrom heatcheck.cli import main\nsys.stdout.isatty = lambda: True\nmain()"
    for kind in ("methods", "metrics"):
        done = subprocess.run(
            [sys.executable, "-c", code, "list", kind],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": str(width), "NO_COLOR": "1", "TERM": "xterm"},
        )
        lines = [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in done.stdout.splitlines()]
        assert max(map(len, lines)) <= width
        for id in catalogue._shipped(kind[:-1]):
            assert sum(line.startswith(f"{id} ") for line in lines) == 1, id
        assert f"heatcheck list {kind} NAME" in done.stderr


@pytest.mark.parametrize(
    ("kind", "typo", "meant"),
    [
        ("methods", "rize", "rise"),
        ("metrics", "sdss", "sds"),
        ("units", "grd(4)", "grid"),
        ("profiles", "quik", "quick"),
    ],
)
def test_a_typo_in_a_list_suggests_the_nearest(kind: str, typo: str, meant: str) -> None:
    done = heatcheck("list", kind, typo)
    assert done.exit_code == 2
    assert f"none is called {typo!r}; did you mean {meant}?" in done.stderr
    assert done.stdout == ""


def test_a_plugin_is_listed(home: Path) -> None:
    own = home / "own.py"
    assert "cli_flat" in heatcheck("list", "methods", "--plugin", own).stdout
    shown = " ".join(heatcheck("list", "methods", "cli_flat", "--plugin", own).stdout.split())
    assert f"heatcheck explain cat.jpg --method cli_flat --plugin {own}" in shown
    assert "--plugin" not in heatcheck("list", "methods", "saliency", "--plugin", own).stdout


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (("run", "--metrics", "zzzz"), True),
        (("run", "--methods", "zzzz"), True),
        (("list", "metrics", "zzzz"), True),
        (("list", "profiles", "zzzz"), False),
    ],
)
def test_an_unknown_component_may_be_the_users_own(line: tuple[str, ...], hint: bool, home: Path) -> None:
    done = heatcheck(*line)
    assert (done.exit_code, done.stderr.endswith("; your own need --plugin FILE.py\n")) == (2, hint)
    assert "own need" not in heatcheck(*line, "--plugin", home / "own.py").stderr


def test_a_list_of_nothing_known() -> None:
    assert heatcheck("list", "metods").exit_code == 2


# -- report, doctor, export -------------------------------------------------------------------------------------


def test_export_writes_each_format_and_guesses_it_from_the_name(troubled: Path, tmp_path: Path) -> None:
    assert heatcheck("export", troubled).stdout == f"{troubled / 'scores.parquet'}\n"
    table = pl.read_parquet(troubled / "scores.parquet")
    assert table.equals(hc.Result.open(troubled).scores())
    assert table.filter(pl.col("method") == "cli_breaks")["score"].to_list() == [None] * 6
    heatcheck("export", troubled, "--out", tmp_path / "a.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text(encoding="utf-8"))))
    assert [row["sample"] for row in rows] == table["sample"].to_list()
    assert [row["score"] == "" for row in rows] == table["score"].is_null().to_list()
    assert NAMES[0] in {row["sample"] for row in rows}
    heatcheck("export", troubled, "--format", "json", "--out", tmp_path / "b")
    assert [row["score"] for row in strict((tmp_path / "b").read_text())] == table["score"].to_list()


def test_export_to_stdout_is_the_table_and_nothing_else(troubled: Path) -> None:
    text = heatcheck("export", troubled, "--format", "csv", "--out", "-").stdout
    assert len(list(csv.DictReader(io.StringIO(text)))) == 3 * 3 * 2
    rows = strict(heatcheck("export", troubled, "--json").stdout)
    (failed,) = {row["status"] for row in rows if row["method"] == "cli_breaks"}
    assert re.fullmatch(re.escape(f"failed: ValueError: {COMPLAINT.strip()}") + r" \(\w+\.py, line \d+\)", failed)


def test_export_refuses_a_name_it_cannot_read(good: Path) -> None:
    done = heatcheck("export", good, "--out", "scores.xlsx")
    assert done.exit_code == 2
    assert "cannot tell the format of 'scores.xlsx'" in done.stderr


def test_report_names_its_file(good: Path, tmp_path: Path) -> None:
    assert heatcheck("report", good).stdout == f"{good / 'report.html'}\n"
    page = tmp_path / "sub" / "page.html"
    assert heatcheck("report", good, "--out", page).stdout == f"{page}\n"
    assert "saliency" in page.read_text(encoding="utf-8")


def damaged(run: Path, copy: Path) -> Path:
    """A copy of a run with one byte of a chunk changed."""
    shutil.copytree(run, copy)
    chunk = next(copy.glob("chunks/*.safetensors"))
    data = bytearray(chunk.read_bytes())
    data[-1] ^= 1
    chunk.write_bytes(data)
    return copy


def test_a_whole_run_is_well_and_a_damaged_one_is_not(good: Path, tmp_path: Path) -> None:
    done = heatcheck("doctor", good)
    assert (done.exit_code, done.stdout) == (0, f"{good}: all files are whole\n")
    assert strict(heatcheck("doctor", good, "--json").stdout) == {
        "run": str(good),
        "problems": [],
        "remarks": [],
        "failed": 0,
    }
    with pytest.warns(StoreWarning, match="is damaged"):
        done = heatcheck("doctor", damaged(good, tmp_path / "a"))
    assert done.exit_code == 4
    assert "is damaged" in done.stdout and "12 cells are not computed" in done.stdout
    with pytest.warns(StoreWarning, match="is damaged"):
        done = heatcheck("doctor", damaged(good, tmp_path / "b"), "--json")
    first, second = strict(done.stdout)["problems"]
    assert first.endswith("its bytes do not match its name")
    assert second.startswith("12 cells are not computed")


def test_the_doctor_says_which_methods_apply_to_a_model(bert: str) -> None:
    done = heatcheck("doctor", bert)
    assert done.exit_code == 0, done.output
    count = re.search(rf"{re.escape(bert)}: (\d+) of (\d+) methods apply", done.stdout)
    record = strict(heatcheck("doctor", bert, "--json").stdout)
    verdicts = {row["id"]: row for row in record["methods"]}
    assert count is not None
    assert count.groups() == (str(sum(row["applies"] for row in verdicts.values())), str(len(verdicts)))
    assert verdicts["saliency"] == {"id": "saliency", "applies": True, "reason": None}
    assert not verdicts["grad_cam"]["applies"]
    assert verdicts["grad_cam"]["reason"].split(":")[0] in done.stdout


def test_a_model_with_an_error_is_exit_code_3(home: Path) -> None:
    done = heatcheck(
        "doctor", f"timm:test_resnet@{home}/broken.safetensors", "--data", f"folder:{home}/photos", "--json"
    )
    record = strict(done.stdout)
    assert (done.exit_code, record["methods"]) == (3, [])
    assert any(f["severity"] == "error" and "finite" in f["what"] for f in record["findings"])


def test_no_run_there_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    done = heatcheck("export", tmp_path / "absent")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")


# -- explain ----------------------------------------------------------------------------------------------------


def test_pictures_become_a_sheet(at_home: Path, tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"
    methods = "saliency,rise(samples=3, keep=0.5)"
    done = heatcheck("explain", *(f"photos/{n}" for n in NAMES[:2]), "-m", MODEL, "--method", methods, "--out", out)
    assert (done.exit_code, done.stdout) == (0, f"{out}\n"), done.output
    with Image.open(out) as page:
        assert page.size == (3 * 224 + 2 * 6, 2 * (224 + 18) + 6)


def test_the_embedded_model_explains_where_none_is_named(home: Path, tmp_path: Path) -> None:
    done = heatcheck("explain", home / "photos" / "noise.png", "--out", tmp_path / "sheet.png", "--json")
    (record,) = strict(done.stdout)
    assert (record["method"], record["shape"], record["out"]) == ("saliency", [224, 224], str(tmp_path / "sheet.png"))
    assert record["target_name"] == hc.load_model("efficientnet_lite0").class_name(record["target"])


def test_all_methods_leave_out_what_does_not_apply(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_own", {})
    done = heatcheck("explain", "--text", "good film", "-m", bert, "--method", "all", "--profile", "quick", "--json")
    assert done.exit_code == 0, done.output
    methods = [record["method"] for record in strict(done.stdout)]
    skipped = re.findall(r"^skipped (\w+): ", done.stderr, re.MULTILINE)
    assert "saliency" in methods and "grad_cam" in skipped
    assert sorted(methods + skipped) == sorted(catalogue._shipped("method"))
    alone = heatcheck("explain", "--text", "good film", "-m", bert, "--method", "grad_cam")
    assert alone.exit_code == 2
    assert alone.stderr.startswith("error: grad_cam")


def test_texts_become_words_with_their_weights_in_a_pipe(bert: str) -> None:
    done = heatcheck("explain", "--text", "a good film", "--target", 1, "-m", bert)
    heat = hc.explain(bert, ["a good film"], method="saliency", target=1).values[0]
    line = re.fullmatch(r"saliency → 1  full colour \S+\n\s+(\S+) (\S+) (\S+)\n", done.stdout)
    assert line is not None, done.output
    for shown, word, value in zip(line.groups(), ("a", "good", "film"), heat[1:4].tolist(), strict=True):
        text, worth = re.fullmatch(r"(\w+)(?:\[([−\d.e]+)\])?", shown).groups()  # type: ignore[union-attr]
        assert text == word
        assert worth is None or float(worth) == pytest.approx(value, rel=0.01)
    (record,) = strict(heatcheck("explain", "-", "--json", "--target", 1, "-m", bert, input="a good film\n").stdout)
    assert record["tokens"] == ["[CLS]", "a", "good", "film", "[SEP]"]
    assert record["values"][:5] == pytest.approx(heat[:5].tolist(), rel=1e-6)


def test_words_for_the_class_are_warm_and_against_it_cold() -> None:
    shown = {"kind": "text", "tokens": ["[CLS]", "good", "##ness", "no"], "special": [True, False, False, False]}
    line = coloured(Explanation("x", "m", 0, "c", shown, np.array([9.0, 1.0, 0.0, -1.0])))
    assert line.plain == "m → c  full colour 1.00\n  goodness no"
    styles = {line.plain[span.start : span.end]: str(span.style) for span in line.spans}
    assert styles["good"] == "black on rgb(231,117,69)"
    assert styles["no"] == "black on rgb(84,144,207)"
    plain = coloured(Explanation("x", "m", 0, "c", shown, np.array([9.0, 1.0, 0.0, -0.5])), colours=False).plain
    assert plain.endswith("good[1.00]ness no[−0.50]")


def test_texts_become_a_sheet_or_a_page(bert: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("explain", "--text", "a good film <script>", "-m", bert, "--method", "saliency,random", "--out")
    done = heatcheck(*asked, tmp_path / "sheet.png")
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'sheet.png'}\n"), done.output
    with Image.open(tmp_path / "sheet.png") as page:
        colours = np.asarray(page.convert("RGB")).astype(int)
    assert ((colours[..., 0] - colours[..., 2]) > 60).any()  # warm words
    assert "cannot be drawn" not in done.stderr
    monkeypatch.setattr("heatcheck.report.fonts._NAMES", ())
    monkeypatch.setattr("heatcheck.report.fonts.font_folders", list)
    unseen = heatcheck("explain", "--text", "a good 电影", "-m", bert, "--out", tmp_path / "unseen.png")
    told = "2 characters (电 影) cannot be drawn with the installed fonts; write .html instead"
    assert told in unseen.stderr and unseen.exit_code == 0
    heatcheck(*asked, tmp_path / "sheet.html")
    html = (tmp_path / "sheet.html").read_text(encoding="utf-8")
    assert html.count('<div class="reading">') == 2 and "<script" not in html and 'title="good: ' in html
    done = heatcheck(*asked, tmp_path / "sheet.pdf")
    assert done.exit_code == 2 and "ends in .png or .html, not" in done.stderr


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
def test_explain_says_what_it_needs(arguments: list[str]) -> None:
    done = heatcheck("explain", *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(
        ("error: explain pictures or texts, one kind at a time", "error: there is no picture")
    )


def test_a_wrong_method_is_answered_before_anything_is_loaded(home: Path) -> None:
    done = heatcheck("explain", home / "photos" / "noise.png", "-m", "timm:absent", "--method", "salincy")
    near = "did you mean saliency? Your own need --plugin FILE.py"
    expected = f"error: --method: no method is called 'salincy'; {near}\n"
    assert (done.exit_code, done.stderr) == (2, expected)


# -- as a program -----------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_is_no_error(troubled: Path) -> None:
    line = ["/bin/sh", "-c", '"$@" | head -1', "sh", *command("export", troubled, "--format", "csv", "--out", "-")]
    done = subprocess.run(line, capture_output=True, text=True, env=environment(), timeout=120)
    assert done.stdout.startswith("run,model,data,sample")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_wrong_usage_of_the_program_leaves_stdout_clean() -> None:
    done = outside("run", "--metrics", "morff", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    near = "did you mean morf? Your own need --plugin FILE.py"
    assert done.stderr == f"error: --metrics: no metric is called 'morff'; {near}\n"
    unknown = outside("frobnicate")
    assert (unknown.returncode, unknown.stdout) == (2, "")


def test_version() -> None:
    from importlib.metadata import version

    assert outside("--version").stdout == f"heatcheck {version('heatcheck')}\n"
