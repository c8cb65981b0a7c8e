"""Learning birds: what is missing, and which classes are right then."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from heatcheck.data.birds.classes import CLASS_NAMES, PARTS, possible_classes
from heatcheck.data.birds.render import picture_of
from heatcheck.data.load import load_data
from heatcheck.models.architectures.small.source import small
from heatcheck.models.request import Request
from heatcheck.training.birds import BirdTask
from heatcheck.training.recipe import load_recipe

MUTANTS = (
    ("training/birds.py", "1 / len(possible)", "1.0", "test_all_possible_classes_are_right_alike"),
    ("training/birds.py", "possible_classes(label, removed)", "(label,)", "test_all_possible_classes_are_right_alike"),
    ("training/birds.py", "known.index, removed)", "known.index)", "test_what_is_removed_is_not_shown"),
)


@pytest.fixture(scope="module")
def birds():
    return load_data("birds:train", samples=40, seed=0)


def task(birds, **changes):
    recipe = load_recipe("birds", "small", changes)
    model = small("resnet(depth=8, width=4, size=64, classes=50)", Request(name="small"))
    return BirdTask(model, recipe, birds, birds[:4], CLASS_NAMES)


def test_all_possible_classes_are_right_alike(birds):
    shown = task(birds, remove=1.0)
    target = torch.cat([shown.examples(range(40), epoch).target for epoch in range(5)])
    assert torch.allclose(target.sum(1), torch.ones(200))
    sizes = (target > 0).sum(1)
    assert (sizes > 1).any()
    assert torch.equal(target[target > 0], (1 / sizes).repeat_interleave(sizes))
    labels = torch.tensor([s.label for s in birds]).repeat(5)
    assert (target.gather(1, labels[:, None]) > 0).all()
    scores = torch.zeros(200, 50)
    scores[torch.arange(200), target.argmax(1)] = 1.0
    assert shown.right(scores, target).all()


def test_without_removals_birds_are_whole(birds):
    shown = task(birds, remove=0.0)
    examples = shown.examples(range(8), 3)
    plain = torch.cat([shown.model.encode(s)["pixels"] for s in birds[:8]])
    assert torch.equal(examples.x["pixels"], plain)
    assert torch.equal(examples.target.argmax(1), torch.tensor([s.label for s in birds[:8]]))
    assert (examples.target.max(1).values == 1).all()


def test_what_is_removed_is_not_shown(birds):
    """Every picture is the bird without the parts that leave just the classes that are said to be possible."""
    shown = task(birds, remove=1.0)
    examples = shown.examples(range(12), 1)
    for i, sample in enumerate(birds[:12]):
        possible = tuple(torch.nonzero(examples.target[i]).flatten().tolist())
        known = sample.reference
        found = False
        for mask in range(2 ** len(PARTS)):
            removed = [part for k, part in enumerate(PARTS) if mask >> k & 1]
            if possible_classes(sample.label, removed) == possible:
                picture = picture_of(known.split, known.index, removed)
                pixels = shown.model.encode(replace(sample, content=np.asarray(picture)))["pixels"]
                found = found or torch.equal(pixels[0], examples.x["pixels"][i])
        assert found


def test_every_epoch_removes_other_parts_and_one_epoch_always_the_same(birds):
    shown = task(birds, remove=1.0)
    first, again, second = (shown.examples(range(20), epoch).target for epoch in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_rendered_pictures_bring_their_possible_classes(birds):
    rendered = replace(birds, samples=tuple(replace(s, reference={"possible": (1, s.label)}) for s in birds))
    target = task(rendered).examples([2, 3], 0).target
    assert sorted(torch.nonzero(target[0]).flatten().tolist()) == sorted({1, birds[2].label})
