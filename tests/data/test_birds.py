"""Birds that are drawn here: what their parts, classes and removals promise."""

import copy
import hashlib
import itertools
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.types import Batch, HeatcheckError, Inputs, Modality, Streams
from heatcheck.data import load_data
from heatcheck.data.birds.classes import (
    CLASSES,
    PARTS,
    VARIANTS,
    label_of,
    possible_classes,
    random_removal,
)
from heatcheck.data.birds.render import masks_of, paint, picture_of
from heatcheck.data.birds.scene import SIDE, SPLITS, scene_of
from heatcheck.data.birds.shapes import BODY
from heatcheck.data.birds.sheet import contact_sheet
from heatcheck.data.birds.source import BirdReference
from heatcheck.data.catalogue import split_spec
from heatcheck.metrics.base import Maps
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.vision import VisionModel
from heatcheck.testing.scenes import probe_for

MUTANTS = (
    ("data/birds/classes.py", "_APART = 2", "_APART = 1", "test_classes_are_two_parts_apart"),
    (
        "data/birds/classes.py",
        "if part not in gone}",
        "if part in gone}",
        "test_possible_classes_agree_in_what_is_left",
    ),
    ("data/birds/render.py", "if name not in gone:", "if name:", "test_a_removal_changes_only_the_part"),
    ("data/birds/render.py", "covered.argmax(-1)", "covered.argmin(-1)", "test_a_removal_changes_only_the_part"),
    (
        "data/birds/scene.py",
        "[list(SPLITS).index(split), index]",
        "[0, index]",
        "test_splits_differ",
    ),
    (
        "data/birds/scene.py",
        "_MARGIN - scale * low + np.array(place) * room",
        "np.array(place) * room",
        "test_the_whole_bird_is_in_the_picture",
    ),
)
CASES = [("test", 0, ()), ("test", 13, ("eye",)), ("train", 13, ("eye",)), ("train", 4321, ("tail", "wing"))]


def test_the_same_picture_in_every_process():
    """Neither the process nor what was drawn before matters, and the global generators are left alone."""
    state = np.random.get_state()[1].tolist()  # noqa: NPY002
    first, second = ([hashlib.sha256(picture_of(*case).tobytes()).hexdigest() for case in CASES] for _ in range(2))
    assert first == second and len(set(first)) == 4
    assert np.random.get_state()[1].tolist() == state  # noqa: NPY002
    code = (
        "import hashlib; from heatcheck.data.birds.render import picture_of\n"
        f"print(*(hashlib.sha256(picture_of(*case).tobytes()).hexdigest() for case in reversed({CASES})))"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert ran.stdout.split() == first[::-1]


def test_classes_are_two_parts_apart():
    assert len(CLASSES) == 50
    apart = [sum(a[p] != b[p] for p in PARTS) for a, b in itertools.combinations(CLASSES, 2)]
    assert min(apart) == 2
    for part, n in VARIANTS.items():
        used = Counter(own[part] for own in CLASSES)
        assert set(used) == set(range(n)) and max(used.values()) <= -(-50 // n)


@given(st.integers(0, 49), st.sets(st.sampled_from(PARTS)))
def test_possible_classes_agree_in_what_is_left(label, removed):
    got = possible_classes(label, removed)
    slow = [i for i in range(50) if all(CLASSES[i][p] == CLASSES[label][p] for p in set(PARTS) - removed)]
    assert list(got) == slow and label in got
    if len(removed) <= 1:
        assert got == (label,)
    for more in PARTS:
        assert set(got) <= set(possible_classes(label, {*removed, more}))


def test_two_missing_parts_leave_several_classes_of_some_birds_but_never_most():
    left = [len(possible_classes(i, pair)) for i in range(50) for pair in itertools.combinations(PARTS, 2)]
    assert max(left) > 1 and max(left) < 10
    assert len(possible_classes(0, PARTS)) == 50


def test_parts_are_left_away_as_often_as_in_funnybirds():
    rng = np.random.default_rng(0)
    found = [random_removal(rng) for _ in range(12_000)]
    assert found[:50] == [random_removal(r) for r in [np.random.default_rng(0)] for _ in range(50)]
    counts = Counter(map(len, found))
    share = [1 / 2 + 1 / 12, *[1 / 12] * 5]
    assert [counts[k] / 12_000 for k in range(6)] == pytest.approx(share, abs=0.015)
    each = Counter(part for removed in found for part in removed)
    assert [each[p] / 12_000 for p in PARTS] == pytest.approx([1 / 4] * 5, abs=0.015)


def test_every_class_has_the_same_number_of_pictures():
    for n in SPLITS.values():
        assert set(Counter(map(label_of, range(n))).values()) == {n // 50}


def test_splits_differ():
    assert not np.array_equal(picture_of("test", 3), picture_of("train", 3))
    assert not np.array_equal(scene_of("test", 3).noise, scene_of("train", 3).noise)
    assert not np.array_equal(picture_of("train", 3), picture_of("train", 53))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(SPLITS)), st.integers(0, 499))
def test_a_removal_changes_only_the_part(split, index):
    """What changes lies within the part, up to a pixel that it shares with another; and most of the part changes."""
    whole, masks = picture_of(split, index), masks_of(split, index)
    for part, mask in masks.items():
        changed = (picture_of(split, index, [part]) != whole).any(-1)
        near = ndimage.binary_dilation(mask, np.ones((3, 3)))
        assert not (changed & ~near).any()
        assert changed[mask].mean() > 0.8
    bare = picture_of(split, index, PARTS)
    every = np.any(list(masks.values()), axis=0)
    assert not ((bare != whole).any(-1) & ~every).any()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(SPLITS)), st.integers(0, 499))
def test_masks_are_disjoint_and_part_of_the_bird(split, index):
    scene = scene_of(split, index)
    masks = masks_of(split, index)
    assert np.sum(list(masks.values()), axis=0).max() == 1
    body = BODY @ scene.matrix.T + scene.shift
    for mask in masks.values():
        rows, columns = np.nonzero(mask)
        centre = np.array([columns.mean(), rows.mean()])
        assert np.hypot(*(body - centre).T).min() < 20


def test_every_test_picture_shows_every_part():
    smallest = {part: SIDE**2 for part in PARTS}
    for index in range(SPLITS["test"]):
        masks = masks_of("test", index)
        assert tuple(masks) == PARTS
        smallest = {part: min(n, int(masks[part].sum())) for part, n in smallest.items()}
    assert min(smallest.values()) >= 20


def test_a_part_that_is_hidden_is_not_listed(monkeypatch):
    """Tails are painted first: behind a body as large as the picture none shows."""
    giant = np.array([(-9.0, -9.0), (9.0, -9.0), (9.0, 9.0), (-9.0, 9.0)])
    monkeypatch.setattr("heatcheck.data.birds.shapes.BODY", giant)
    assert set(masks_of("test", 0)) == {"beak", "eye", "wing"}


@pytest.mark.parametrize("index", range(0, 200, 7))
def test_the_whole_bird_is_in_the_picture(index):
    masks = masks_of("train", index)
    whole = np.any(list(masks.values()), axis=0)
    assert not (whole[0].any() or whole[-1].any() or whole[:, 0].any() or whole[:, -1].any())


@pytest.mark.parametrize("spec", ["birds", "birds:test", "birds:train"])
def test_the_source(spec):
    data = load_data(spec, samples=60, seed=None)
    split = "train" if spec == "birds:train" else "test"
    assert (data.name, data.modality, len(data), len(data.classes)) == (f"birds-{split}", Modality.IMAGE, 60, 50)
    assert [s.label for s in data] == [i % 50 for i in range(60)]
    assert len({s.digest for s in data}) == 60 and not data.notes
    sample = data[7]
    assert np.array_equal(sample.content, picture_of(split, 7))
    assert set(sample.reference) == {"parts", "without"} and len(sample.reference) == 2
    for part in PARTS:
        assert np.array_equal(sample.reference["parts"][part], masks_of(split, 7)[part])
        assert np.array_equal(sample.reference["without"][part], picture_of(split, 7, [part]))


@pytest.mark.parametrize("spec", ["birds", "birds:test", "birds:train", "squares:birds:train"])
def test_it_is_written_without_a_path(spec):
    assert split_spec(spec) == (spec, "", "")
    assert split_spec("birds:moon") == ("", "birds:moon", "")


def test_references_are_painted_once_and_only_when_somebody_looks(monkeypatch):
    painted = []
    real = paint
    monkeypatch.setattr("heatcheck.data.birds.render.paint", lambda *a: painted.append(a) or real(*a))
    sample = load_data("birds", samples=1, seed=None)[0]
    assert len(painted) == 1
    again = copy.copy(sample.reference)
    assert again == sample.reference and again is not sample.reference and len(painted) == 1
    assert sample.reference["without"] is sample.reference["without"]
    assert len(painted) == 6
    assert load_data("birds", samples=2).identity() == load_data("birds:test", samples=2).identity()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_data("birds:val"), r"'birds:val': birds has the splits test, train; write birds\[:SPLIT\]"),
        (lambda: load_data("birds:"), "has the splits"),
        (lambda: scene_of("val", 0), "no split 'val': write test or train"),
        (lambda: scene_of("test", 500), "has 500 pictures; there is no picture 500"),
        (lambda: picture_of("test", 0, ["wings"]), "no part 'wings'; did you mean wing"),
        (lambda: possible_classes(0, "feet"), "no part 'feet'"),
        (lambda: BirdReference("test", 0)["mask"], "mask"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises((HeatcheckError, KeyError), match=message):
        call()


def test_the_sheet_shows_every_class():
    sheet = contact_sheet()
    assert sheet.size[0] > 10 * SIDE and sheet.size[1] > 6 * SIDE


def test_part_deletion_knows_right_maps_from_noise():
    """On a network that nobody trained: the oracle scores 1, noise around zero one half within three standard errors."""
    network = nn.Sequential(nn.Conv2d(3, 8, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 20 * 20, 50)).eval()
    for p in network.parameters():
        nn.init.normal_(p, std=0.1, generator=torch.Generator().manual_seed(p.numel()))
    model = VisionModel(
        network, "untrained", preprocess=Preprocess(mean=(0.5,) * 3, std=(0.25,) * 3, size=SIDE, resize=SIDE)
    )
    data = load_data("birds", samples=60)
    inputs = [model.encode(sample) for sample in data]
    label = torch.tensor([sample.label for sample in data])
    known = tuple(model.references(sample, x) for sample, x in zip(data, inputs, strict=True))
    assert known[0]["part_names"] == PARTS and known[0]["parts"].shape == (5, SIDE, SIDE)
    batch = Batch(Inputs.cat(inputs), label, label, Streams(0, tuple(s.digest for s in data)), known)
    probe = probe_for(model, forward=32)
    noise = [
        catalogue.build("method", "signed_random")(probe, replace(batch, streams=Streams(seed, batch.streams.digests)))
        for seed in range(6)
    ]
    oracle = catalogue.build("method", "part_oracle")(probe, batch)
    got = catalogue.build("metric", "part_deletion")(probe, batch, Maps([oracle, *noise], model.domain, batch)).value
    assert got[0].tolist() == pytest.approx([1.0] * 60)
    rest = got[1:]
    assert abs(float(rest.mean()) - 0.5) < 3 * float(rest.std()) / rest.numel() ** 0.5
    assert float(rest.std()) == pytest.approx(0.25, rel=0.15)
    assert probe.spent.forwards == 60 * 6
