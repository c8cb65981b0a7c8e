"""What pictures are shown: crops, mirrors and single deletions, each by its own random numbers."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from heatcheck.core.types import Batch, HeatcheckError, Inputs, Streams
from heatcheck.domain.image import ImageDomain
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.vision import VisionModel
from heatcheck.training.augment import augmentation, padded, resized_crop
from heatcheck.training.pictures import PictureTask, SingleCell
from heatcheck.training.recipe import load_recipe
from heatcheck.training.task import readable

MUTANTS = (
    (
        "training/pictures.py",
        ">= self.probability",
        "< self.probability",
        "test_a_cell_is_deleted_as_often_as_sds_does",
    ),
    (
        "training/pictures.py",
        "torch.randint(cells, (), generator=rng)",
        "torch.randint(cells - 1, (), generator=rng)",
        "test_a_cell_is_deleted_as_often_as_sds_does",
    ),
    ("training/augment.py", "if _below(2, rng)", "if True", "test_half_the_pictures_are_mirrored"),
    (
        "training/augment.py",
        "math.sqrt(wanted * ratio)",
        "math.sqrt(wanted / ratio)",
        "test_crops_are_those_of_torchvision",
    ),
    ("training/pictures.py", 'derive(f"epoch {epoch}")', 'derive("epoch")', "test_every_epoch_shows_other_crops"),
)
STREAMS = Streams(0, tuple(f"sample {i}" for i in range(100_000)))


def cell(delete=0.5, grid=4, fill="zero"):
    return SingleCell.of(load_recipe("align", changes={"delete": delete, "grid": grid, "fill": fill}), ImageDomain())


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("draws", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_cell_is_deleted_as_often_as_sds_does(draws):
    """IDSDS's argument: the whole picture and its 16 deletions come 16 : 1 : … : 1."""
    drawn = cell().cells(STREAMS.take(range(draws)), 16)
    counts = np.bincount(drawn.numpy(), minlength=17)
    assert counts[16] / len(drawn) == pytest.approx(0.5, abs=3 * math.sqrt(0.25 / len(drawn)))
    expected = len(drawn) / 32
    assert np.abs(counts[:16] - expected).max() < 4 * math.sqrt(expected)
    assert len(counts) == 17
    assert ((counts[:16] - expected) ** 2 / expected).sum() < 37.7  # chi² with 15 degrees of freedom, 0.1 %
    seldom = cell(delete=0.2).cells(STREAMS.take(range(1000)), 16)
    assert float((seldom == 16).double().mean()) == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize("grid", [2, 4, 8])
@pytest.mark.parametrize("fill", ["zero", "blur", "uniform"])
def test_one_cell_at_most_is_replaced_by_the_metrics_own_fill(grid, fill):
    x = Inputs({"pixels": torch.rand(40, 3, 16, 16) + 2})
    batch = Batch(x, torch.zeros(40, dtype=torch.long), torch.zeros(40, dtype=torch.long), STREAMS.take(range(40)))
    shown = cell(grid=grid, fill=fill)
    got = shown(batch)["pixels"]
    full = shown.fill.full(shown.domain, batch)["pixels"]
    deleted = shown.cells(batch.streams, grid * grid)
    side = 16 // grid
    for i, place in enumerate(deleted.tolist()):
        expected = x["pixels"][i].clone()
        if place < grid * grid:
            rows, columns = (slice(k * side, (k + 1) * side) for k in divmod(place, grid))
            expected[:, rows, columns] = full[i][:, rows, columns]
        assert torch.equal(got[i], expected)
    assert 5 < (deleted == grid * grid).sum() < 35


def test_no_deletion_is_plain_training_to_the_bit(toy, tmp_path):
    aligned = toy("align", delete=0.0, choose="last").fit(tmp_path / "a")[1]
    settings = toy("align", delete=0.0, choose="last").task.recipe.settings()
    del settings["task"]
    plain = toy("plain", **settings).fit(tmp_path / "b")[1]
    assert all(torch.equal(aligned[name], plain[name]) for name in aligned)
    deleting = toy("align", delete=0.5, choose="last").fit(tmp_path / "c")[1]
    assert any(not torch.equal(aligned[name], deleting[name]) for name in aligned)


def test_every_epoch_shows_other_crops(toy):
    task = toy().task
    rows = list(range(8))
    first, again, second = (task.examples(rows, epoch).x["pixels"] for epoch in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_neighbours_and_order_change_nothing(toy):
    task = toy().task
    together = task.examples([3, 5, 7], 1)
    alone = task.examples([5], 1)
    assert torch.equal(together.x["pixels"][1], alone.x["pixels"][0])
    assert together.target.tolist() == [1, 1, 1]
    assert sorted(i for batch in task.batches(0) for i in batch) == list(range(len(task)))
    assert task.batches(0) != task.batches(1)


def test_a_last_batch_of_one_is_left_out(toy):
    assert [len(batch) for batch in toy(n=17).task.batches(0)] == [8, 8]
    assert [len(batch) for batch in toy(n=18).task.batches(0)] == [8, 8, 2]
    assert [len(batch) for batch in toy(n=1, batch=1).task.batches(0)] == [1]


def test_half_the_pictures_are_mirrored(preprocess):
    picture = Image.fromarray(np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3))
    augment = augmentation(load_recipe("plain", changes={"augment": "none", "flip": True}), preprocess)
    shown = [augment(picture, rng(seed)).tobytes() for seed in range(400)]
    assert set(shown) == {picture.tobytes(), ImageOps.mirror(picture).tobytes()}
    assert 140 < shown.count(picture.tobytes()) < 260


def test_crops_are_those_of_torchvision():
    """The same distribution of areas and proportions: compared by its mean sizes over many draws."""
    from heatcheck.models.vision_shim import load_torchvision

    crop = load_torchvision("the test").transforms.RandomResizedCrop
    sizes, theirs = [], []
    picture = Image.new("RGB", (64, 32))
    for seed in range(500):
        box = []
        preprocess = Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3, size=8)
        watched = _Watched(picture, box)
        resized_crop(watched, preprocess, rng(seed), smallest=0.2)
        sizes.append((box[2] - box[0], box[3] - box[1]))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            _, _, h, w = crop.get_params(picture, (0.2, 1.0), (3 / 4, 4 / 3))
        theirs.append((w, h))
    ours, expected = np.array(sizes, float), np.array(theirs, float)
    error = np.sqrt((ours.var(0) + expected.var(0)) / len(ours))
    assert (np.abs(ours.mean(0) - expected.mean(0)) < 4 * error).all()
    assert ours.std(0) == pytest.approx(expected.std(0), rel=0.1)


class _Watched:
    """A picture that tells which part of it was taken."""

    def __init__(self, picture, box):
        self.width, self.height, self.size, self.box = *picture.size, picture.size, box

    def resize(self, size, resample, box):
        self.box.extend(box)
        return Image.new("RGB", size)


@given(
    width=st.integers(9, 80),
    height=st.integers(9, 80),
    augment=st.sampled_from(["none", "crop", "pad_crop", "resized_crop"]),
    seed=st.integers(0, 99),
)
def test_whatever_the_picture_the_model_gets_its_size(width, height, augment, seed):
    preprocess = Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3, size=16)
    recipe = load_recipe("plain", changes={"augment": augment, "flip": True})
    shown = augmentation(recipe, preprocess)(Image.new("RGB", (width, height)), rng(seed))
    assert shown.size == (16, 16)


def test_the_border_is_an_eighth():
    assert padded(Image.new("RGB", (32, 32))).size == (40, 40)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"problem": "the picture is broken"}, r"sample 'toys-003' of 'toys' cannot be read: the picture is broken"),
        ({"label": None}, r"sample 'toys-003' of 'toys' has no label"),
        ({"label": 7}, r"sample 'toys-003' of 'toys' has the label 7, but there are 2 classes"),
    ],
)
def test_what_cannot_be_learnt_from_is_named(pictures, change, message):
    samples = list(pictures(24))
    samples[3] = replace(samples[3], **change)
    broken = replace(pictures(24), samples=tuple(samples))
    with pytest.raises(HeatcheckError, match=message):
        readable(broken, 2)


def test_a_model_of_unknown_preprocessing_is_refused(toy, pictures):
    ready = toy()
    blind = VisionModel(ready.network, "toy")
    with pytest.raises(HeatcheckError, match="toy cannot learn from pictures: its preprocessing is not known"):
        PictureTask(blind, ready.task.recipe, pictures(4), pictures(2, 1), ("dark", "bright"))
