"""A network before and after alignment, against slow loops over single pictures; and the command."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from heatcheck.api.alignment import compare_alignment
from heatcheck.api.looks import min_max, resized
from heatcheck.api.train import train
from heatcheck.cli import app
from heatcheck.core.types import HeatcheckError, Modality
from heatcheck.data.base import Dataset
from heatcheck.data.images import picture_sample
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.vision import VisionModel
from heatcheck.training.defaults import load_model

MUTANTS = (
    ("api/looks.py", "worst = metric(probe", "worst = 1 - metric(probe", "test_accuracy_is_that_of_single_pictures"),
    (
        "api/looks.py",
        "(a.probability - b.probability).abs()",
        "a.probability - b.probability",
        "test_likeness_is_that_of_single_pictures",
    ),
    (
        "api/looks.py",
        "torch.where(high > low, high - low, torch.ones_like(low))",
        "high",
        "test_maps_are_scaled_from_0_to_1",
    ),
    ("api/alignment.py", "sort(descending=True", "sort(descending=False", "test_channels_show_what_they_respond_to"),
    (
        "api/alignment.py",
        "mean_estimate(after - before",
        "mean_estimate(before - after",
        "test_accuracy_is_that_of_single_pictures",
    ),
)
SIDE, CLASSES = 16, ("dark", "bright")
PREPROCESS = Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3, size=SIDE, resize=SIDE, interpolation="bilinear")


def network(seed, side=SIDE, channels=6):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(16 * channels, 2),
        ).double()


def model(seed, name, side=SIDE, **also):
    preprocess = replace(PREPROCESS, size=side, resize=side)
    return VisionModel(network(seed, **also), name, preprocess=preprocess, classes=CLASSES)


def pictures(n=20, seed=0):
    rng = np.random.default_rng(seed)
    contents = [(rng.integers(0, 160, (SIDE, SIDE, 3)) + 60 * (i % 2)).astype(np.uint8) for i in range(n)]
    samples = (replace(picture_sample(f"p{i:02d}", c), label=i % 2) for i, c in enumerate(contents))
    return Dataset("toys", Modality.IMAGE, tuple(samples), CLASSES)


def compare(before, after, data=None, **options):
    return compare_alignment(before, after, data or pictures(), progress="none", **options)


def slow_right(net, x, label):
    """Whether the label is predicted, and whether it is without any one of 16 cells."""
    stays = []
    for row in range(4):
        for column in range(4):
            less = x.clone()
            less[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = 0
            stays.append(int(net(less).argmax()) == label)
    return int(net(x).argmax()) == label, all(stays)


def slow_cam(net, x, label):
    maps = net[:2](x).detach().requires_grad_()
    (slope,) = torch.autograd.grad(net[2:](maps)[0, label], maps)
    cam = (slope.mean((2, 3), keepdim=True) * maps).sum(1, keepdim=True).relu()
    large = F.interpolate(cam, (SIDE, SIDE), mode="bilinear")[0, 0].detach()
    spread = large.max() - large.min()
    return (large - large.min()) / (spread if spread > 0 else 1)


@pytest.fixture(scope="module")
def both():
    return model(4, "before"), model(21, "after")


@pytest.fixture(scope="module")
def inputs(both):
    data = pictures()
    return [(both[0].encode(s)["pixels"], s.label) for s in data]


def test_accuracy_is_that_of_single_pictures(both, inputs):
    found = compare(*both)
    slow = [np.array([slow_right(m.module(), x, y) for x, y in inputs]) for m in both]
    assert found.clean.before.value == pytest.approx(slow[0][:, 0].mean())
    assert found.clean.after.value == pytest.approx(slow[1][:, 0].mean())
    assert found.worst.before.value == pytest.approx(slow[0][:, 1].mean())
    assert found.worst.after.value == pytest.approx(slow[1][:, 1].mean())
    assert found.worst.change.value == pytest.approx(slow[1][:, 1].mean() - slow[0][:, 1].mean())
    assert len({s[:, 0].mean() for s in slow}) == 2, "a comparison of equal accuracies would show little"
    assert found.samples == found.clean.before.n == 20


def test_likeness_is_that_of_single_pictures(both, inputs):
    found = compare(*both).likeness
    first, second = (m.module() for m in both)
    apart = [abs(float(first(x).softmax(1)[0, y] - second(x).softmax(1)[0, y])) for x, y in inputs]
    maps = [float((slow_cam(first, x, y) - slow_cam(second, x, y)).abs().mean()) for x, y in inputs]
    assert found.probability.value == pytest.approx(np.mean(apart))
    assert found.grad_cam.value == pytest.approx(np.mean(maps), rel=1e-5)
    assert found.probability.low < np.mean(apart) < found.probability.high


def test_a_network_is_like_itself(both):
    found = compare(both[0], both[0], other=both[1])
    assert found.likeness.probability.value == found.likeness.grad_cam.value == 0
    assert found.clean.change.value == found.worst.change.value == 0
    assert all(channel.common == 1 for channel in found.channels)
    assert found.yardstick == compare(*both).likeness


def test_another_architecture_may_take_pictures_of_another_size(both):
    large = model(3, "large", side=24, channels=5)
    found = compare(*both, other=large)
    assert 0 < found.yardstick.grad_cam.value < 1
    assert found.other == "large"


def test_channels_show_what_they_respond_to(both, inputs):
    found = compare(*both, channels=[4, 1], top=5)
    assert [c.number for c in found.channels] == [4, 1]
    for channel in found.channels:
        for m, names in zip(both, (channel.before, channel.after), strict=True):
            strength = [float(m.module()[:2](x)[0, channel.number].mean()) for x, _ in inputs]
            assert list(names) == [f"p{i:02d}" for i in np.argsort(-np.array(strength), kind="stable")[:5]]
        assert channel.common == len({*channel.before} & {*channel.after}) / 5
    assert found.chance == 5 / 20


def test_the_seed_chooses_channels(both):
    chosen = [tuple(c.number for c in compare(*both, seed=seed, channels=2).channels) for seed in (0, 0, 1, 2)]
    assert chosen[0] == chosen[1]
    assert len({*chosen}) > 1


def test_the_sheet_shows_both_rows_of_each_channel(both, tmp_path):
    found = compare(*both, channels=2, top=4)
    path = found.save_sheet(tmp_path / "new" / "sheet.png")
    assert [row.title.partition(":")[0] for row in found.sheet] == [
        f"channel {c.number}, {when}" for c in found.channels for when in ("before", "after")
    ]
    framed = [sum(row.marked) for row in found.sheet[:2]]
    assert framed == [round(found.channels[0].common * 4)] * 2
    with Image.open(path) as sheet:
        assert sheet.size[0] >= 4 * 96
    with pytest.raises(HeatcheckError, match=r"\.png or \.jpg"):
        found.save_sheet(tmp_path / "sheet.txt")


def test_every_pass_is_counted_and_told(both):
    class Told:
        begun = made = 0

        def begin(self, what, passes, done=0):
            self.begun = passes

        def advance(self, passes):
            self.made += passes

        def note(self, text): ...

        def end(self): ...

    told = Told()
    found = compare_alignment(*both, pictures(), other=model(3, "other"), progress=told)
    assert told.begun == 20 * (2 * (1 + 16 + 2) + 3)
    assert told.begun == told.made == sum(found.passes)
    assert found.record()["passes"] == {"forwards": found.passes[0], "backwards": found.passes[1]}


def test_how_many_pictures_are_held_at_a_time_changes_nothing(both, monkeypatch):
    whole = compare(*both).record()
    monkeypatch.setattr("heatcheck.api.alignment.CHUNK", 3)
    parts = compare(*both).record()
    for what in ("clean", "worst"):
        assert parts[what] == whole[what]
    assert parts["channels"] == whole["channels"]
    assert parts["likeness"]["grad_cam"]["value"] == pytest.approx(whole["likeness"]["grad_cam"]["value"])


def test_a_network_without_feature_maps_has_no_channels_and_says_so(both):
    flat = VisionModel(
        nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, 2)), "flat", preprocess=PREPROCESS, classes=CLASSES
    )
    found = compare(flat, flat)
    assert found.likeness.grad_cam is None and found.channels == ()
    assert "No Grad-CAM" in found.notes[-1]
    with pytest.raises(HeatcheckError, match="no contact sheet"):
        found.save_sheet("sheet.png")


def test_channels_of_other_architectures_do_not_correspond(both):
    found = compare(both[0], model(21, "wide", channels=8))
    assert found.channels == ()
    assert "do not correspond" in found.notes[-1]


def test_samples_without_a_label_are_left_out_and_told(both):
    data = pictures(6)
    some = replace(data, samples=(*data.samples[:4], *(replace(s, label=None) for s in data.samples[4:])))
    found = compare(*both, some)
    assert found.samples == 4
    assert "2 of 6 samples were left out" in found.notes[-1]
    with pytest.raises(HeatcheckError, match="none of the 6 samples"):
        compare(*both, replace(data, samples=tuple(replace(s, label=None) for s in data)))


def test_what_is_missing_is_named(both):
    with pytest.raises(HeatcheckError, match="pass before="):
        compare_alignment(after=both[1], data=pictures())
    with pytest.raises(HeatcheckError, match="pass data="):
        compare_alignment(*both)
    with pytest.raises(HeatcheckError, match="name the aligned network"):
        compare_alignment(both[0])
    with pytest.raises(HeatcheckError, match=r"channel 6: layer .* has channels 0 to 5"):
        compare(*both, channels=[6])


def test_maps_are_scaled_from_0_to_1():
    maps = torch.tensor([[[1.0, 3.0], [2.0, 5.0]], [[4.0, 4.0], [4.0, 4.0]]])
    assert min_max(maps).tolist() == [[[0.0, 0.5], [0.25, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]
    assert torch.equal(resized(maps[0], (2, 2)), maps[0])
    other = resized(maps[0], (4, 6))
    assert other.shape == (4, 6) and (other.min(), other.max()) == (0, 1)


# -- a real training, and the command ------------------------------------------------------------------------

NETWORK = """
import torch
from torch import nn

def toy():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 2))
"""


@pytest.fixture(scope="module")
def aligned(tmp_path_factory):
    """The folder of a network that was aligned on grid(2) with blur."""
    where = tmp_path_factory.mktemp("aligned")
    (where / "net.py").write_text(NETWORK)
    for sample in pictures(24):
        folder = where / "pictures" / CLASSES[sample.label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(sample.content)).save(folder / f"{sample.name}.png")
    settings = {"epochs": 1, "batch": 8, "lr": 0.05, "augment": "none", "grid": 2, "fill": "blur"}
    said = {"model": f"{where / 'net.py'}:toy", "data": f"folder:{where / 'pictures'}", "preprocess": PREPROCESS}
    train("align", out=where / "run", settings=settings, progress="none", **said)
    return where / "run"


def test_parent_pictures_grid_and_fill_come_from_the_record(aligned):
    found = compare_alignment(after=f"trained:{aligned}", progress="none")
    assert found.before.endswith("net.py:toy")
    assert (found.units, found.fill) == ("grid(2)", "blur")
    assert 0 < found.samples < 24
    other = compare_alignment(model(1, "another"), f"trained:{aligned}", progress="none", units="grid(4)")
    assert other.units == "grid(4)"
    assert any("is not the network that the training" in note for note in other.notes)


def test_classes_that_only_the_data_name_are_kept(aligned):
    assert load_model(f"trained:{aligned}").classes == ("bright", "dark")


def test_the_command(aligned, tmp_path):
    runner = CliRunner()
    sheet = tmp_path / "sheet.png"
    told = runner.invoke(app, ["aligned", f"trained:{aligned}", "--sheet", str(sheet), "--other", f"trained:{aligned}"])
    assert told.exit_code == 0, told.output
    for word in ("clean", "worst deletion", "Grad-CAM", "top pictures in common", "grid(2) with blur", str(sheet)):
        assert word in told.stdout
    assert sheet.is_file()
    plain = runner.invoke(app, ["aligned", f"trained:{aligned}", "--json", "--quiet", "--channels", "0,3"])
    assert [c["number"] for c in json.loads(plain.stdout)["channels"]] == [0, 3]
    wrong = runner.invoke(app, ["aligned", f"trained:{aligned}", "--channels", "a"])
    assert wrong.exit_code == 2
