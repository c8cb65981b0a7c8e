"""Pictures without the top of a map, or with it alone."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.training.conftest import CLASSES, SIDE, Toy, pictures
from torch import nn

from heatcheck.core.types import HeatcheckError, Modality, Streams
from heatcheck.data.base import Dataset
from heatcheck.data.images import decode_image, picture_sample
from heatcheck.models.networks import trainable_copy
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.vision import VisionModel
from heatcheck.training.masked import MaskedTask, mean_colour
from heatcheck.training.masks import TopMasks, batched, top_count, top_masks, write_masks
from heatcheck.training.pictures import PictureTask
from heatcheck.training.recipe import load_recipe

MUTANTS = [
    (
        "training/masks.py",
        "Fraction(str(level)) * n / 100",
        "Fraction(str(level)) * n / 100 + 1",
        "test_counts_are_exact",
    ),
    ("training/masks.py", "int(Fraction(str(level)) * n / 100)", "int(level * n / 100)", "test_counts_are_exact"),
    ("training/masks.py", "place < top_count(level, n)", "place >= n - top_count(level, n)", "test_slow_reference"),
    ("training/masked.py", "~top if self.recipe.keep_top else top", "top", "test_kar_keeps_what_roar_removes"),
    ("training/masked.py", "np.where(gone, np.array(colour", "np.where(~gone, np.array(colour", "test_slow_reference"),
    ("training/masked.py", "digest_of(self._identity, self.masks.digest)", "self._identity", "test_masks_are_data"),
    ("training/masked.py", ".mean((0, 1))", ".max((0, 1))", "test_mean_colour"),
    (
        "training/masked.py",
        "self.preprocess.colours(self.modified(s))",
        'self.preprocess(s)["pixels"]',
        "test_held_out",
    ),
]
COLOUR = (10, 20, 30)


def saved(folder, data, values, level, channels=1, seed=0):
    """Masks of given values for the samples of data sets."""
    samples = [sample.digest for part in data for sample in part]
    maps = [(torch.stack(part), [True] * len(part)) for part in batched(list(values), 5)]
    shape = (SIDE, SIDE, channels)
    write_masks({float(level): folder}, samples, maps, shape=shape, colour=COLOUR, seed=seed)
    return TopMasks.open(folder)


def noise(n, channels=1, seed=0):
    return torch.rand(n, SIDE * SIDE * channels, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def masked(toy, tmp_path, preprocess):
    """Makes trainings on masked pictures, with random maps unless others are given."""

    def make(level, *, values=None, n=12, held_out=4, channels=1, masks=True, **settings):
        data = pictures(n), pictures(held_out, 1, "held")
        values = noise(n + held_out, channels) if values is None else values
        found = saved(tmp_path / f"{level}-{channels}", data, values, level, channels) if masks else None
        granularity = "scalar" if channels == 3 else "pixel"

        def task(*args):
            return MaskedTask(*args, masks=found)

        return toy("roar", n=n, held_out=held_out, task=task, level=level, granularity=granularity, **settings)

    return make


# -- masks ---------------------------------------------------------------------------------------------------------


@given(st.integers(1, 70), st.lists(st.decimals(0, 100, places=2), min_size=2, max_size=4), st.integers(0, 9))
def test_counts_are_exact(n, levels, seed):
    values = torch.randint(3, (2, n), generator=torch.Generator().manual_seed(seed)).float()
    found = top_masks(values, [float(level) for level in levels], Streams(seed, ("a", "b")))
    for level, mask in zip(levels, found, strict=True):
        assert mask.sum(1).tolist() == [int(level * n / 100)] * 2
    nested = sorted(zip(levels, found, strict=True), key=lambda pair: pair[0])
    assert all((one <= other).all() for (_, one), (_, other) in itertools.pairwise(nested))
    assert top_count(32.3, 1000) == 323  # in floating point it is 322.99…


def test_equal_values_are_ordered_by_the_samples_own_draw():
    streams = Streams(5, ("a", "b"))
    (mask,) = top_masks(torch.zeros(2, 20), [50], streams)
    for row in range(2):
        first = torch.randperm(20, generator=streams.generator(row, "ties"))[:10]
        assert sorted(np.flatnonzero(mask[row])) == sorted(first.tolist())
    assert (mask[0] != mask[1]).any()


def test_masks_are_the_same_whatever_the_batches(tmp_path):
    data, values = (pictures(7),), noise(7)
    one = saved(tmp_path / "a", data, values, 30)
    whole = [(values, [True] * 7)]
    write_masks(
        {30.0: tmp_path / "b"}, [s.digest for s in data[0]], whole, shape=(SIDE, SIDE, 1), colour=COLOUR, seed=0
    )
    other = TopMasks.open(tmp_path / "b")
    assert one.digest == other.digest and (np.asarray(one.bits) == np.asarray(other.bits)).all()
    assert one.without_map == 0


def test_unfinished_masks_are_refused(tmp_path):
    with pytest.raises(HeatcheckError, match="holds no masks"):
        TopMasks.open(tmp_path)
    with pytest.raises(HeatcheckError, match="there are 2 maps of 3 pictures"):
        saved(tmp_path / "a", (pictures(3),), noise(2), 30)
    with pytest.raises(HeatcheckError, match="holds no masks"):
        TopMasks.open(tmp_path / "a")
    with pytest.raises(HeatcheckError, match="no mask of the sample"):
        saved(tmp_path / "b", (pictures(3),), noise(3), 30).top("unknown")


# -- pictures ------------------------------------------------------------------------------------------------------


def slowly(pixels, values, level, order, *, keep, channels):
    """A picture with the mean colour in the place of its top pixels or scalars, one at a time."""
    ranked = sorted(range(len(values)), key=lambda i: (-float(values[i]), order.index(i)))
    top = ranked[: len(values) * level // 100]
    out = pixels.copy()
    for i in range(len(values)):
        if (i in top) == keep:
            continue
        site, c = divmod(i, channels)
        row, column = divmod(site, SIDE)
        for channel in range(3) if channels == 1 else [c]:
            out[row, column, channel] = COLOUR[channel]
    return out


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("keep", [False, True])
def test_slow_reference(masked, channels, keep):
    n = SIDE * SIDE * channels
    values = noise(16, channels).mul(20).round()  # with ties
    task = masked(30, values=values, channels=channels, keep_top=keep).task
    for i, sample in enumerate(task.samples[:2]):
        order = torch.randperm(n, generator=Streams(0, (sample.digest,)).generator(0, "ties")).tolist()
        want = slowly(np.array(decode_image(sample.content)), values[i], 30, order, keep=keep, channels=channels)
        assert (np.asarray(task.modified(sample)) == want).all()


def test_kar_keeps_what_roar_removes(masked):
    roar, kar = masked(40).task, masked(40, keep_top=True).task
    for sample in (*roar.samples[:3], *roar.judged):
        whole, gone, kept = (
            np.asarray(p) for p in (decode_image(sample.content), roar.modified(sample), kar.modified(sample))
        )
        top = roar.masks.top(sample.digest)[..., 0]
        assert top.sum() == 40 * SIDE * SIDE // 100
        assert (gone[~top] == whole[~top]).all() and (gone[top] == COLOUR).all()
        assert (kept[top] == whole[top]).all() and (kept[~top] == COLOUR).all()


def test_held_out(masked):
    task = masked(40).task
    shown = task.held_out_examples([0, 1]).x["pixels"]
    want = torch.cat([task.preprocess.colours(task.modified(s)) for s in task.judged[:2]])
    assert torch.equal(shown, want) and not torch.equal(shown[:1], task.model.encode(task.judged[0])["pixels"])


def test_nothing_replaced_is_plain_training_to_the_bit(toy, masked, tmp_path):
    settings = {"epochs": 2, "schedule": "cosine", "weight_decay": 1e-3, "flip": True}
    plain = toy("plain", n=12, held_out=4, choose="last", momentum=0.9, **settings)
    _, want = plain.fit(tmp_path / "plain")
    for own in (masked(0, **settings), masked(0, masks=False, **settings), masked(100, keep_top=True, **settings)):
        record, got = own.fit(tmp_path / f"{own.task.recipe.level}-{own.task.masks is None}")
        assert record.finished
        assert all(torch.equal(want[name], got[name]) for name in want)


def test_all_replaced_leaves_no_information(masked):
    for task in (masked(100).task, masked(0, keep_top=True).task):
        x = torch.cat(
            [task.held_out_examples(range(4)).x["pixels"], task.preprocess.colours(task.modified(task.samples[0]))]
        )
        assert (x == x[:1]).all() and (x[0] == x[0, :, :1, :1]).all()


def test_masks_alone_show_nothing_of_the_picture(masked, tmp_path):
    task = masked(30, masks_only=True).task
    sample = task.samples[0]
    shown = np.asarray(task.modified(sample))
    assert (shown == np.where(task.masks.top(sample.digest), 0, 255)).all() and shown.shape == (SIDE, SIDE, 3)
    negative = np.asarray(masked(30, masks_only=True, keep_top=True).task.modified(sample))
    assert (negative == 255 - shown).all()


def test_masks_are_data(masked):
    same = masked(30).task.data_identity()
    assert same == masked(30).task.data_identity()
    assert same != masked(30, values=noise(16, seed=1)).task.data_identity()
    assert masked(0, masks=False).task.data_identity() != same


def test_mean_colour(preprocess):
    data = pictures(3)
    pixels = np.stack([np.asarray(decode_image(s.content)) for s in data]).astype(float)
    assert mean_colour(data.samples, preprocess) == tuple(round(pixels[..., c].mean()) for c in range(3))


def test_the_centre_that_the_model_saw_is_what_is_masked(tmp_path):
    """A model that crops: masks belong to the crop, and augmentation does not crop it again."""
    data = pictures(4)
    seen = Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3, size=8, resize=SIDE)
    model = VisionModel(nn.Identity(), "crops", preprocess=seen, classes=CLASSES)
    samples = [s.digest for s in data]
    write_masks({50.0: tmp_path}, samples, [(torch.rand(4, 64), [True] * 4)], shape=(8, 8, 1), colour=COLOUR, seed=0)
    recipe = load_recipe("roar", changes={"level": 50, "augment": "none", "flip": False})
    task = MaskedTask(model, recipe, data, data, CLASSES, masks=TopMasks.open(tmp_path))
    whole = np.asarray(decode_image(data[0].content))[4:12, 4:12]
    want = np.where(task.masks.top(samples[0]), np.array(COLOUR, np.uint8), whole)
    shown, _ = task.shown(data[0], torch.Generator())
    assert (np.asarray(task.modified(data[0])) == want).all() and (np.asarray(shown) == want).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"level": 40}, "has level 40.0, but its masks have 30.0"),
        ({"level": 30, "granularity": "scalar"}, "has granularity scalar, but its masks have pixel"),
    ],
)
def test_masks_that_do_not_fit(toy, tmp_path, settings, message):
    found = saved(tmp_path / "masks", (pictures(4),), noise(4), 30)
    with pytest.raises(HeatcheckError, match=message):
        toy("roar", n=4, held_out=0, task=lambda *args: MaskedTask(*args, masks=found), **settings)


@pytest.mark.parametrize("settings", [{"level": 30}, {"masks_only": True}, {"keep_top": True}])
def test_without_maps_nothing_can_be_replaced(toy, settings):
    with pytest.raises(HeatcheckError, match="needs the maps of all pictures: `heatcheck roar"):
        toy("roar", n=4, held_out=0, task=MaskedTask, **settings)


# -- what is learnt ------------------------------------------------------------------------------------------------


def planted(n, seed, name):
    """Noise with a coloured square of 4 × 4 pixels anywhere; its colour is the class. And where it is, as maps."""
    rng = np.random.default_rng(seed)
    samples, maps = [], []
    for i in range(n):
        content = rng.integers(60, 190, (SIDE, SIDE, 3)).astype(np.uint8)
        top, left = rng.integers(0, SIDE - 4, 2)
        content[top : top + 4, left : left + 4] = (255, 0, 0) if i % 2 else (0, 0, 255)
        where = torch.zeros(SIDE, SIDE)
        where[top : top + 4, left : left + 4] = 1
        samples.append(replace(picture_sample(f"{name}-{i:03d}", content), label=i % 2))
        maps.append(where.flatten())
    return Dataset(name, Modality.IMAGE, tuple(samples), ("blue", "red")), maps


def finder():
    """A network that looks for small things anywhere."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 2),
        )


def test_without_the_true_pixels_accuracy_falls_first(tmp_path, preprocess, toy):
    learnt, maps = planted(96, 0, "learnt")
    judged, more = planted(64, 1, "judged")
    truth = torch.stack([*maps, *more])
    network = finder()
    model = VisionModel(network, "finder", preprocess=preprocess, classes=CLASSES)
    found = {}
    values = {"oracle": truth, "random": noise(160), "anti": -truth}
    masks = {name: saved(tmp_path / name, (learnt, judged), own, 10) for name, own in values.items()}
    protocols = {"roar": {}, "kar": {"keep_top": True}, "masks": {"masks_only": True}}
    wanted = [("oracle", "roar"), ("random", "roar"), ("oracle", "kar"), ("anti", "kar"), ("oracle", "masks")]
    for name, protocol in wanted:
        changes = {"level": 10, "epochs": 5, "batch": 8, "lr": 0.05, "augment": "none", "schedule": "constant"}
        recipe = load_recipe("roar", changes={**changes, **protocols[protocol]})
        task = MaskedTask(model, recipe, learnt, judged, CLASSES, masks=masks[name])
        made = Toy(task, trainable_copy(network), toy("roar", n=4, task=PictureTask).record)
        record, _ = made.fit(tmp_path / f"{name}-{protocol}")
        found[name, protocol] = record.accuracy["chosen"]
    assert found["random", "roar"] > 0.95 and found["oracle", "roar"] < 0.7, found
    assert found["oracle", "kar"] > 0.95 and found["anti", "kar"] < 0.7, found
    assert found["oracle", "masks"] < 0.7, found  # the square is anywhere, whatever its colour
