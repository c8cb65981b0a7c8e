"""`heatcheck train`, run as a user runs it: a folder of pictures, a model, a folder that is a model afterwards."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import heatcheck as hc
from heatcheck.cli.train import usual_folder
from heatcheck.models.weights import load_weights

MODEL = "small:resnet(depth=8, width=4, size=16)"
MUTANTS = (
    ("cli/train.py", "ready.record if plan and out is None else ", "", "test_a_plan_needs_no_folder"),
)  # fmt: skip
FEW = ("--set", "epochs=2", "--set", "batch=8", "--set", "augment=pad_crop", "--threads", "1")


def heatcheck(*arguments, env=None, **options):
    command = [sys.executable, "-m", "heatcheck", *map(str, arguments)]
    env = {**os.environ, "COLUMNS": "200", **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, **options)


@pytest.fixture(scope="module")
def trained(dark_and_bright, tmp_path_factory):
    """A training, and what was said."""
    out = tmp_path_factory.mktemp("out") / "net"
    ran = heatcheck("train", "plain", "--model", MODEL, "--data", dark_and_bright, "--out", out, "--keep", "2", *FEW)
    assert ran.returncode == 0, ran.stderr
    return out, ran


def test_it_says_what_it_costs_and_what_came_out(trained):
    out, ran = trained
    assert "16 samples × 2 epochs in 4 steps: 52 forwards and 32 backwards" in ran.stderr.replace("\n", " ")
    assert "epoch 2 of 2: loss" in ran.stderr
    assert f"model: trained:{out}" in ran.stdout
    assert "Accuracy on 4 held-out samples" in ran.stdout
    record = json.loads((out / "training.json").read_text())
    assert record["recipe"] == "plain"
    assert record["parent"]["spec"] == MODEL
    assert record["classes"] == ["bright", "dark"]
    assert record["finished"]
    assert record["data"].startswith("train_part:")


def test_again_it_does_nothing(trained, dark_and_bright):
    out, _ = trained
    before = (out / "weights.safetensors").stat().st_mtime_ns
    again = heatcheck(
        *("train", "plain", "--model", MODEL, "--data", dark_and_bright, "--out", out, "--keep", "2", *FEW, "--json"),
    )
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["model"] == f"trained:{out}"
    assert (out / "weights.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("form", ["trained:{}", "{}", "trained:{}@01", "trained:{}@last"])
def test_the_folder_is_a_model(trained, form):
    out, _ = trained
    model = hc.load_model(form.format(out))
    assert model.classes == ("bright", "dark")
    assert model.trained["recipe"] == "plain"
    x = torch.zeros(1, 3, 16, 16)
    logits = model.logits(model.domain.wrap(x))
    assert logits.shape == (1, 2)


def test_the_chosen_weights_are_those_that_were_judged(trained, dark_and_bright):
    out, _ = trained
    record = json.loads((out / "training.json").read_text())
    model = hc.load_model(str(out))
    held_out = hc.load_data(record["held_out"])
    with torch.inference_mode():
        right = [int(model.logits(model.encode(s)).argmax()) == s.label for s in held_out]
    assert sum(right) / len(right) == record["accuracy"]["chosen"]


def test_checkpoints_differ_and_unknown_ones_are_named(trained):
    out, _ = trained
    first, second = (hc.load_model(f"trained:{out}@{k}") for k in ("01", "02"))
    assert first.identity != second.identity
    with pytest.raises(hc.HeatcheckError, match=r"has no checkpoint '7'; known: 01, 02, last"):
        hc.load_model(f"trained:{out}@7")


def test_a_plan_trains_nothing(dark_and_bright, tmp_path):
    ran = heatcheck(
        *(
            "train",
            "plain",
            "--model",
            MODEL,
            "--data",
            dark_and_bright,
            "--out",
            tmp_path / "net",
            *FEW,
            "--plan",
            "--json",
        )
    )
    assert ran.returncode == 0, ran.stderr
    plan = json.loads(ran.stdout)
    assert plan["steps"] == 4
    assert plan["backwards"] == 32
    assert plan["seconds"] > 0
    assert not (tmp_path / "net").exists()


def test_a_plan_needs_no_folder(trained, dark_and_bright, tmp_path):
    """Nor does it look into the folder that would be taken, where another training may be."""
    out, _ = trained
    asked = ("train", "plain", "--model", MODEL, "--data", dark_and_bright, *FEW, "--set", "lr=0.5", "--plan")
    usual = tmp_path / usual_folder("plain", "", MODEL, str(dark_and_bright))
    shutil.copytree(out, usual)
    ran = heatcheck(*asked, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "16 samples × 2 epochs in 4 steps" in ran.stderr
    assert "into" not in ran.stderr
    ran = heatcheck(*asked, "--out", usual, cwd=tmp_path)
    assert ran.returncode == 2 and "holds another training: lr is" in " ".join(ran.stderr.split())


def test_without_a_folder_it_goes_to_one_in_runs_and_says_so(dark_and_bright, tmp_path):
    ran = heatcheck("train", "plain", "--model", MODEL, "--data", dark_and_bright, *FEW, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    folder = usual_folder("plain", "", MODEL, str(dark_and_bright))
    assert f"{MODEL} on {dark_and_bright}, recipe plain, into {folder}\n" in ran.stderr
    assert f"model: trained:{folder}" in ran.stdout
    assert json.loads((tmp_path / folder / "training.json").read_text())["finished"]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [folder.name]


def test_recipes_are_listed():
    ran = heatcheck("list", "recipes")
    assert ran.returncode == 0, ran.stderr
    for recipe in ("align", "birds", "plain", "roar", "synthetic", "text"):
        assert recipe in ran.stdout


def test_a_mistake_is_named_and_nothing_is_written(dark_and_bright, tmp_path):
    ran = heatcheck(
        "train", "plain", "--model", MODEL, "--set", "lrr=1", "--data", dark_and_bright, "--out", tmp_path / "net"
    )
    assert ran.returncode == 2
    assert "recipe plain has no setting 'lrr'; did you mean lr?" in " ".join(ran.stderr.split())
    assert not (tmp_path / "net").exists()


@pytest.mark.slow
def test_twenty_kills_change_nothing(dark_and_bright, tmp_path):
    """Killed twenty times at random moments, a training ends with the bits of an undisturbed one."""
    more = ("--set", "epochs=120", "--set", "batch=2", "--set", "augment=resized_crop", "--threads", "1", "--quiet")
    plain = (
        "train",
        "align",
        "--set",
        "start=scratch",
        "--set",
        "delete=0.5",
        "--model",
        MODEL,
        "--data",
        dark_and_bright,
        *more,
    )
    often = {"HEATCHECK_SAVED_EVERY": "0.2"}
    whole = heatcheck(*plain, "--out", tmp_path / "whole", env=often)
    assert whole.returncode == 0, whole.stderr
    rng, kills, over = random.Random(0), 0, False
    while not over:
        command = [sys.executable, "-m", "heatcheck", *map(str, plain), "--out", str(tmp_path / "killed")]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, env={**os.environ, **often}, **quiet)
        begun = _steps(tmp_path / "killed")
        patience = time.monotonic() + 120
        while process.poll() is None and _steps(tmp_path / "killed") == begun and time.monotonic() < patience:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.25))
        if process.poll() is None and kills < 20:
            process.send_signal(signal.SIGKILL)
            kills += 1
            process.wait()
            continue
        process.wait()
        assert process.returncode == 0
        over = True
    assert kills == 20
    a, b = (load_weights(tmp_path / name / "weights.safetensors") for name in ("whole", "killed"))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not [p for p in (tmp_path / "killed").rglob(".tmp-*")]


def _steps(folder):
    """How often the state was written; a file that is new each time."""
    path = Path(folder) / "last.safetensors"
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
