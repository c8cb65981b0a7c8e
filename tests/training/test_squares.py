"""Learning to find squares: what is shown, against a slow reference; and that a network learns it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import stats
from torch import nn

from heatcheck.api.benchmark import Benchmark
from heatcheck.api.train import train
from heatcheck.core.types import HeatcheckError, Modality, Streams
from heatcheck.data.base import Dataset
from heatcheck.data.images import picture_sample
from heatcheck.data.load import load_data
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.vision import VisionModel
from heatcheck.training.recipe import load_recipe, variants
from heatcheck.training.squares import SquareTask, random_square

MUTANTS = (
    ("training/squares.py", ">= self.recipe.square", "< self.recipe.square", "test_all_or_none_carry_a_square"),
    ("training/squares.py", "n - side + 1", "n - side", "test_every_place_is_equally_likely"),
    ("training/squares.py", "resize=min(height, width)", "resize=None", "test_the_centre_crop_is_left_out"),
    ("training/squares.py", "replace(s, label=0)", "s", "test_labels_of_their_own_do_not_count"),
)
SIDE = 16
SQUARE = 4  # 60 of 224
YELLOW = (255, 255, 0)


def noise(n, side=SIDE, label=None):
    rng = np.random.default_rng(5)
    made = [picture_sample(f"{i:04d}", rng.integers(0, 250, (side, side, 3)).astype(np.uint8)) for i in range(n)]
    return Dataset("noise", Modality.IMAGE, tuple(type(s)(s.name, s.digest, s.content, label=label) for s in made))


def network():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, 2)
        )


def model(side=SIDE, **kwargs):
    preprocess = Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), size=side, **kwargs)
    return VisionModel(network(), "toy", preprocess=preprocess, classes=("plain", "square"))


def task(n=4, *, side=SIDE, label=None, variant="", **changes):
    recipe = load_recipe("synthetic", variant, {"samples": 0, **changes})
    learner = SquareTask.fitting(model(side))
    data = noise(n, side, label)
    return SquareTask(learner, recipe, data, data[:0], SquareTask.own_classes)


def square_in(picture):
    """Left, top, width and height of what is yellow; None where nothing is."""
    rows, columns = np.nonzero((np.asarray(picture) == YELLOW).all(-1))
    if not len(rows):
        return None
    return columns.min(), rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1


def shown(learning, epoch=0, rows=None):
    """The pictures of an epoch as people see them, with their classes."""
    examples = learning.examples(range(len(learning)) if rows is None else rows, epoch)
    mean, std = (torch.tensor(v)[:, None, None] for v in (learning.preprocess.mean, learning.preprocess.std))
    pixels = ((examples.x["pixels"] * std + mean) * 255).round().permute(0, 2, 3, 1).numpy().astype(np.uint8)
    return pixels, examples.target.tolist()


def test_the_recipe_is_the_papers():
    code = load_recipe("synthetic")
    assert (code.task, code.start, code.epochs, code.batch, code.samples) == ("squares", "scratch", 3, 64, 10_000)
    assert (code.square, code.seed, code.schedule, code.choose) == (0.5, 77, "constant", "last")
    assert (code.augment, code.flip, code.delete, code.loss) == ("crop", True, 0.0, "cross_entropy")
    rates = {
        name: (recipe.optimizer, recipe.lr)
        for name in variants("synthetic")
        if name not in ("small", "cifar") and (recipe := load_recipe("synthetic", name))
    }
    assert rates == {
        "mobilenet": ("sgd", 0.1),
        "vgg": ("sgd", 0.001),
        "vit": ("adamw", 0.001),
        "paper": ("adamw", 0.01),
        "mobilenet_paper": ("adamw", 0.1),
        "vgg_paper": ("adamw", 0.001),
    }
    assert (code.optimizer, code.lr, code.momentum) == ("sgd", 0.01, 0.9)


def test_a_picture_is_its_augmentation_with_a_square_at_the_drawn_place():
    """The definition, written slowly: the same draws, the square painted pixel by pixel."""
    learning = task(12)
    pixels, labels = shown(learning, epoch=3)
    assert 0 < sum(labels) < 12
    streams = Streams(77, tuple(s.digest for s in learning.samples)).derive("epoch 3")
    for i, sample in enumerate(learning.samples):
        rng = streams.generator(i, "augment")
        slow = np.array(learning.augment(Image.fromarray(sample.content), rng))
        carries = float(torch.rand((), generator=rng, dtype=torch.float64)) < 0.5
        assert labels[i] == carries
        if carries:
            left, top = (int(torch.randint(SIDE - SQUARE + 1, (), generator=rng)) for _ in range(2))
            for y in range(SIDE):
                for x in range(SIDE):
                    if left <= x < left + SQUARE and top <= y < top + SQUARE:
                        slow[y, x] = YELLOW
        assert np.array_equal(pixels[i], slow)


def test_yellow_has_the_papers_values():
    learning = task(1, square=1.0)
    left, top, *_ = square_in(shown(learning)[0][0])
    pixels = learning.examples([0], 0).x["pixels"][0]
    assert pixels[:, top, left].tolist() == pytest.approx([2.2489, 2.4286, -1.8044], abs=1e-4)


@settings(max_examples=25)
@given(epoch=st.integers(0, 1000), side=st.sampled_from([8, 16, 28, 33]))
def test_the_class_is_whether_there_is_a_square(epoch, side):
    whole = max(1, round(side * 60 / 224))
    for picture, label in zip(*shown(task(4, side=side), epoch), strict=True):
        found = square_in(picture)
        assert (found is not None) == bool(label)
        if found:
            left, top, width, height = found
            assert (width, height) == (whole, whole) and left + whole <= side and top + whole <= side


@pytest.mark.parametrize(("probability", "every"), [(0.0, 0), (1.0, 1)])
def test_all_or_none_carry_a_square(probability, every):
    assert set(shown(task(20, square=probability))[1]) == {every}


def test_half_of_the_pictures_carry_a_square():
    learning = task(100, flip=False, augment="none")
    n = sum(int(learning.examples(range(100), epoch).target.sum()) for epoch in range(10))
    assert abs(n - 500) < 4 * (1000 * 0.25) ** 0.5


def test_every_place_is_equally_likely():
    """Chi-square over 10,000 draws."""
    width, height, side = 12, 8, 2
    rng = torch.Generator().manual_seed(1)
    counts = np.zeros((height - side + 1, width - side + 1), int)
    for _ in range(10_000):
        left, top, right, bottom = random_square((width, height), rng)
        assert (right - left, bottom - top) == (side, side)
        counts[top, left] += 1
    assert stats.chisquare(counts.ravel()).pvalue > 1e-4


def test_flips_make_no_difference():
    """Squares are drawn after them: whole, and over nothing but the picture or its mirror image."""
    learning = task(8, square=1.0, augment="none")
    seen = set()
    for picture, sample in zip(shown(learning)[0], learning.samples, strict=True):
        left, top, *_ = square_in(picture)
        outside = np.ones((SIDE, SIDE), bool)
        outside[top : top + SQUARE, left : left + SQUARE] = False
        mirrored = np.array_equal(picture[outside], sample.content[:, ::-1][outside])
        assert mirrored or np.array_equal(picture[outside], sample.content[outside])
        seen.add(mirrored)
    assert seen == {True, False}


def test_what_is_shown_depends_on_seed_epoch_and_picture_alone():
    learning = task(6)
    pixels, labels = shown(learning, epoch=2)
    again, same = shown(learning, epoch=2, rows=[4, 1])
    assert np.array_equal(again, pixels[[4, 1]]) and same == [labels[4], labels[1]]
    assert not np.array_equal(shown(learning, epoch=3)[0], pixels)
    assert not np.array_equal(shown(task(6, seed=1), epoch=2)[0], pixels)


@pytest.mark.parametrize("label", [None, 0, 731])
def test_labels_of_their_own_do_not_count(label):
    assert len(task(3, label=label)) == 3


def test_the_centre_crop_is_left_out():
    fitted = SquareTask.fitting(model(resize=20))
    assert fitted._preprocess.resize == SIDE and fitted.preprocessing["resize"] == SIDE
    assert fitted.identity != model(resize=20).identity == model(resize=20).identity
    squashed = model(fit="squash")
    assert SquareTask.fitting(squashed) is squashed


def test_held_out_pictures_have_their_squares_on_the_lattice():
    assert SquareTask.judged_on("images") == "squares:images"
    assert SquareTask.judged_on("squares:images") == "squares:images"
    data = noise(2)
    assert SquareTask.judged_on(data) is data


def test_pictures_that_have_squares_already_are_refused(tmp_path):
    for i in range(2):
        Image.fromarray(np.full((SIDE, SIDE, 3), 90 * i, np.uint8)).save(tmp_path / f"{i}.png")
    data = load_data(f"squares:folder:{tmp_path}")
    with pytest.raises(HeatcheckError, match="has squares already"):
        SquareTask(model(), load_recipe("synthetic"), data, data[:0], SquareTask.own_classes)


BUILD = """
import torch
from torch import nn


def build():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, 5))
"""


def test_a_network_learns_the_squares_and_its_maps_are_judged_by_them(tmp_path):
    """From pictures without labels to a SynScore with its accuracy beside it."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for sample in noise(60):
        Image.fromarray(sample.content).save(folder / f"{sample.name}.png")
    (tmp_path / "toy.py").write_text(BUILD)
    trained = train(
        "synthetic",
        model=f"{tmp_path / 'toy.py'}:build",
        data=f"folder:{folder}",
        out=tmp_path / "trained",
        preprocess=f"mean=0.5 0.5 0.5,std=0.5 0.5 0.5,size={SIDE}",
        settings={"epochs": 12, "batch": 8, "lr": 0.1},
        threads=1,
        progress="none",
    )
    record = trained.record
    assert record.classes == ["plain", "square"] and record.held_out == f"squares:test_part:folder:{folder}"
    assert record.accuracy["chosen"] >= 0.99 and record.parent.preprocess["resize"] == SIDE
    bench = Benchmark(
        models={"twin": trained.spec}, data=record.held_out, methods=["occlusion", "random"], metrics=["synscore"]
    )
    result = bench.run(tmp_path / "run", progress="none", batch=4)
    (said,) = (r["remark"] for r in result.facts["remarks"])
    assert said == "synscore: accuracy 1.000 on 12 pictures"
    means = {r["method"]: r["mean"] for r in result.leaderboard().full.iter_rows(named=True)}
    assert means["occlusion"] > 0.9
