"""How far fills take a model, against the definition and where nothing moves."""

import json
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import heatcheck as hc
from heatcheck.api.fills import compare
from heatcheck.cli import app
from heatcheck.core import catalogue
from heatcheck.core.types import Batch, Inputs, Streams
from heatcheck.models.black_box import CallableModel
from heatcheck.testing import additive, constant, gap_linear, one_head_attention, probe_for, toy_batch
from heatcheck.testing.scenes import batch_of


def groups(model, n=4, seed=0):
    return [(probe_for(model), toy_batch(model, n, seed=seed))]


def entropy(p):
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


def test_agrees_with_the_definition():
    """Cells drawn per sample, one deletion at a time, features pooled by hand."""
    model = gap_linear((3, 16, 16))
    batch = toy_batch(model, 4)
    got = compare([(probe_for(model), batch)], ["zero"], shares=(0.25, 0.5), units="grid(4)")
    assert got.features == "1" and got.samples == 4
    net = model.module()

    def seen(pixels):
        with torch.no_grad():
            return net[1](net[0](pixels[None]))[0].mean((1, 2)).numpy(), net(pixels[None])[0].softmax(0).numpy()

    clean = [seen(p) for p in batch.x["pixels"]]
    apart = np.mean([np.linalg.norm(clean[i][0] - clean[j][0]) for i in range(4) for j in range(4) if i != j])
    for effect, share in zip(got.fills[0].effects, (0.25, 0.5), strict=True):
        far, unsure, sure, kept = [], [], [], []
        for i, pixels in enumerate(batch.x["pixels"]):
            order = torch.randperm(16, generator=batch.streams.generator(i, "fills")).tolist()
            left = pixels.clone()
            for cell in order[: round(16 * share)]:
                y, x = 4 * (cell // 4), 4 * (cell % 4)
                left[:, y : y + 4, x : x + 4] = 0
            features, p = seen(left)
            far.append(np.linalg.norm(features - clean[i][0]) / apart)
            unsure.append(entropy(p))
            sure.append(p.max())
            kept.append(p.argmax() == clean[i][1].argmax())
        assert effect.share == share
        assert effect.distance == pytest.approx(np.mean(far), abs=1e-9)
        assert effect.entropy == pytest.approx(np.mean(unsure), abs=1e-9)
        assert effect.confidence == pytest.approx(np.mean(sure), abs=1e-9)
        assert effect.kept == np.mean(kept)
    assert got.clean.distance == 0 and got.clean.kept == 1
    assert got.clean.entropy == pytest.approx(np.mean([entropy(p) for _, p in clean]), abs=1e-9)


@pytest.mark.parametrize("model", [gap_linear((3, 16, 16)), additive((3, 16, 16))])
def test_a_fill_that_changes_nothing_is_at_distance_zero(model):
    """X6: inputs that already equal the fill."""
    pixels = torch.zeros(3, 3, 16, 16, dtype=torch.float64)
    pixels[1], pixels[2] = 1, -1
    batch = batch_of(model, Inputs({"pixels": pixels}))
    (mean, zero) = sorted(compare([(probe_for(model), batch)], ["zero", "channel_mean"]).fills, key=lambda f: f.fill)
    assert mean.fill == "channel_mean" and [e.distance for e in mean.effects] == [0, 0, 0] and mean.mean("kept") == 1
    assert zero.mean("distance") > 0


def test_nothing_deleted_is_nothing_changed_and_all_deleted_is_the_fill():
    model = gap_linear((3, 16, 16))
    batch = toy_batch(model, 3)
    probe = probe_for(model)
    (zero,) = compare([(probe, batch)], ["zero"], shares=(0.0, 1.0)).fills
    assert zero.effects[0].distance == 0 and zero.effects[0].kept == 1
    empty = probe.logits(batch.x.replace(pixels=torch.zeros_like(batch.x["pixels"])))
    assert zero.effects[1].confidence == pytest.approx(float(empty.softmax(1).amax(1).mean()), abs=1e-12)


def test_the_nearest_comes_first_and_what_cannot_be_used_last():
    model = gap_linear((3, 16, 16))
    got = compare(groups(model), ["noise(sigma=9)", "mask", "zero", 'migan(path="/no where")'])
    assert [f.fill for f in got.fills] == ["zero", "noise(sigma=9)", "mask", 'migan(path="/no where")']
    assert [bool(f.reason) for f in got.fills] == [False, False, True, True]
    assert "mask is defined for text" in got.fills[2].reason and "/no where" in got.fills[3].reason
    assert got.fills[0].mean("distance") < got.fills[1].mean("distance")
    assert math.isnan(got.fills[3].mean("distance"))


@pytest.mark.parametrize("model", [gap_linear((3, 16, 16)), one_head_attention()])
def test_every_fill_of_the_modality_is_tried(model, monkeypatch, tmp_path):
    monkeypatch.setenv("HEATCHECK_CACHE", str(tmp_path))
    monkeypatch.delenv("HEATCHECK_MIGAN", raising=False)
    got = compare(groups(model), shares=(0.5,))
    known = {id for id, e in catalogue.entries("fill").items() if model.domain.modality in e.facts["on"]}
    assert {f.fill.partition("(")[0] for f in got.fills} == known
    assert all(f.reason or f.mean("distance") > 0 for f in got.fills)
    assert all(f.reason == "" for f in got.fills if f.fill not in ("migan", "diffusion", "dataset_mean"))


def test_models_without_feature_maps_are_judged_by_their_logits():
    text = compare(groups(one_head_attention()), ["pad", "remove"])
    assert text.features == "logits" and text.samples == 4
    box = CallableModel(lambda x: x.flatten(1)[:, :3], "box", gap_linear().domain)
    zeros = torch.zeros(2, dtype=torch.long)
    batch = Batch(Inputs({"pixels": torch.rand(2, 3, 8, 8)}), zeros, zeros, Streams(0, ("a", "b")))
    assert compare([(probe_for(box), batch)], ["zero"]).features == "logits"


def test_draws_belong_to_the_sample_and_the_seed():
    model = gap_linear((3, 16, 16))
    batch = toy_batch(model, 4)

    def by(part):
        return compare([(probe_for(model), p) for p in part], ["zero"], units="grid(4)").fills[0].mean("distance")

    together = by([batch])
    assert by([batch.take([0, 1]), batch.take([2, 3])]) == pytest.approx(together, abs=1e-12)
    assert by([batch.take([3, 1, 0, 2])]) == pytest.approx(together, abs=1e-12)
    other = replace(batch, streams=replace(batch.streams, seed=1))
    assert by([other]) != together


def test_one_sample_has_no_distance_and_a_constant_model_none_to_go():
    alone = compare(groups(gap_linear((3, 16, 16)), 1), ["zero"])
    assert math.isnan(alone.fills[0].mean("distance")) and alone.fills[0].mean("kept") in (0, 1 / 3, 2 / 3, 1)
    blind = compare(groups(constant((3, 16, 16))), ["zero"])
    assert blind.fills[0].mean("distance") == 0 and blind.fills[0].mean("kept") == 1


def test_shares_outside_the_range_are_refused():
    with pytest.raises(hc.HeatcheckError, match=r"share=1\.5"):
        compare(groups(gap_linear()), ["zero"], shares=(1.5,))


# -- the verb and the command ------------------------------------------------------------------------------------


def test_plain_tensors_can_be_compared():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4)).double()
    x = torch.rand(3, 3, 16, 16, dtype=torch.float64)
    told = []
    got = hc.compare_fills(net, x, fills=["zero", "black"], tell=told.append)
    assert told == ["zero", "black"] and got.fills[0].fill == "zero" and "preprocess" in got.fills[1].reason


def test_every_share_has_its_time(monkeypatch):
    """What was waited for the model does not count: clocks are read around the deletion alone."""
    clock = iter([0.0, 4.0, 10.0, 18.0])
    monkeypatch.setattr("heatcheck.api.fills.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    (zero,) = compare(groups(gap_linear((3, 16, 16))), ["zero"], shares=(0.25, 0.5)).fills
    assert [e.seconds for e in zero.effects] == [1.0, 2.0]  # for each of four samples
    assert zero.record()["seconds"] == 1.5 and [e["seconds"] for e in zero.record()["shares"]] == [1.0, 2.0]


@pytest.fixture
def command(monkeypatch, tmp_path):
    model = gap_linear((3, 16, 16))
    monkeypatch.setenv("HEATCHECK_CACHE", str(tmp_path))
    monkeypatch.delenv("HEATCHECK_MIGAN", raising=False)
    monkeypatch.setattr("heatcheck.api.fills.load_model", lambda *_a, **_k: model)
    monkeypatch.setattr("heatcheck.data.load.load_data", lambda _spec, samples, seed: model.inputs(samples, seed))
    return lambda *arguments: CliRunner().invoke(app, ["fills", *arguments])


def test_the_command_shows_a_table_and_reasons(command):
    done = command("--fill", "zero,noise(sigma=9)", "--fill", "migan", "--samples", "3")
    assert done.exit_code == 3, done.output  # migan was asked for and cannot be used
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if line.strip()][2:5] == ["nothing", "zero", "noise(sigma=9)"]
    assert "3 samples; distance in the features of 1" in done.stdout and "migan has no network" in done.stdout
    assert "kept: same class as before" in done.stdout
    assert re.search(r"zero .* \d+\.\d to \d+\.\d", done.stdout)  # of the shortest share and of the longest
    assert " to " not in command("--fill", "zero", "--share", "0.5").stdout


@pytest.mark.parametrize(
    ("samples", "says"), [(1, "one sample has no other to be compared with"), (7, "7 samples are few"), (8, None)]
)
def test_the_command_warns_of_few_samples(command, samples, says):
    done = command("--fill", "zero", "-n", str(samples))
    assert done.exit_code == 0 and ("warning" in done.stderr) == bool(says)
    assert says is None or (says in done.stderr and says not in done.stdout)
    assert command("--fill", "zero", "-n", str(samples), "--quiet").stderr == ""


def test_a_fill_nobody_named_may_be_missing(command):
    done = command("--share", "0.5")
    assert done.exit_code == 0 and "migan has no network" in done.stdout


def test_the_command_says_where_there_is_no_feature_layer(command, monkeypatch):
    model = one_head_attention()
    monkeypatch.setattr("heatcheck.api.fills.load_model", lambda *_a, **_k: model)
    monkeypatch.setattr("heatcheck.data.load.load_data", lambda _spec, samples, seed: model.inputs(samples, seed))
    assert "8 samples; distance in logits (no feature layer)" in command("--fill", "pad").stdout


def test_the_help_explains_the_columns(command):
    told = command("--help").output
    assert all(f"{column}:" in told for column in ("distance", "kept", "entropy", "confidence", "ms each"))


def test_the_command_speaks_json(command):
    done = command("m", "d", "--fill", "zero,migan", "--share", "0.5", "--json", "--units", "grid(2)")
    told = json.loads(done.stdout)
    assert done.exit_code == 3 and told["model"] == "m" and told["features"] == "1" and told["clean"]["kept"] == 1
    zero, migan = told["fills"]
    assert zero["fill"] == "zero" and zero["distance"] > 0 and zero["shares"][0]["share"] == 0.5
    assert migan["fill"] == "migan" and "HEATCHECK_MIGAN" in migan["reason"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(("--fill", "zeroo"), "no fill is called 'zeroo'"), (("--share", "half"), "'half' is not a list of numbers")],
)
def test_the_command_refuses_what_it_cannot_read(command, arguments, says):
    done = command(*arguments)
    assert done.exit_code != 0 and says in f"{done.output}{done.exception}"
