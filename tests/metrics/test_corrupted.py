"""Accuracy under the worst single deletion, against the definition and against known answers."""

from dataclasses import replace

import pytest
import torch

MUTANTS = (
    ("metrics/corrupted.py", '"amin"', '"amax"', "test_one_cell_that_decides_is_enough_to_fall"),
    ("metrics/corrupted.py", "!= which[i, None]", "== which[i, None]", "test_after_sds_it_asks_nothing"),
)


def slow_corrupted(model, batch, row, groups):
    """Delete one group of sites at a time and look whether the label still wins."""
    stays = []
    for sites in groups:
        x = batch.x.take(torch.tensor([row]))
        if "pixels" in x:
            pixels = x["pixels"].clone().flatten(2)
            pixels[:, :, sites] = 0
            x = x.replace(pixels=pixels.reshape(x["pixels"].shape))
        else:
            ids, attention = x["ids"].clone(), x["attention"].clone()
            ids[:, sites], attention[:, sites] = 0, 0
            x = x.replace(ids=ids, attention=attention)
        stays.append(int(model.logits(x).argmax()) == int(batch.label[row]))
    return float(all(stays))


@pytest.mark.parametrize("kind", ["image", "text"])
def test_agrees_with_the_definition(toys, kind):
    model, batch = toys.stage(kind, n=3)
    maps = toys.random_maps(model, batch, 2)
    units = model.domain.units("grid(2)" if kind == "image" else "token", batch.x)
    got = toys.score(f"corrupted_accuracy(units={units.name})", model, batch, maps).value
    for i in range(3):
        groups = [(units.index[i] == u).nonzero().flatten() for u in range(int(units.count[i]))]
        assert got[:, i].tolist() == [slow_corrupted(model, batch, i, groups)] * 2


def test_one_cell_that_decides_is_enough_to_fall(toys):
    """A linear model of one pixel: the class falls exactly where that pixel's cell is deleted."""
    model = toys.linear(1, 8, 2)
    with torch.no_grad():
        model.module()[1].weight.zero_()
        model.module()[1].weight[1, 0] = 1.0
        model.module()[1].bias.copy_(torch.tensor([0.0, -1.0]))
    x = torch.zeros(2, 1, 8, 8, dtype=torch.float64)
    x[1, 0, 0, 0] = 2.0
    batch = toys.pictures(model, 2, 1, 8)
    batch = toys.batch_of(model, batch.x.replace(pixels=x))
    got = toys.score("corrupted_accuracy", model, batch, toys.random_maps(model, batch, 1)).value
    assert batch.label.tolist() == [0, 1] and got.tolist() == [[1.0, 0.0]]


def test_after_sds_it_asks_nothing(toys):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 2)
    probe = toys.probe_on(model)
    toys.score("sds", model, batch, maps, probe)
    before = probe.spent.forwards
    toys.score("corrupted_accuracy", model, batch, maps, probe)
    assert probe.spent.forwards == before


def test_the_label_counts_not_the_target(toys):
    model, batch = toys.stage("image")
    wrong = replace(batch, label=(batch.label + 1) % 3)
    got = toys.score("corrupted_accuracy", model, wrong, toys.random_maps(model, wrong, 1)).value
    assert got.tolist() == [[0.0, 0.0, 0.0]]


def test_no_label_or_no_unit_is_a_status(toys):
    model = toys.words()
    batch = toys.sentences(model, (0, 3, 4))
    batch = replace(batch, label=torch.tensor([0, 0, -1]))
    scores = toys.score("corrupted_accuracy", model, batch, toys.random_maps(model, batch, 1))
    assert scores.status[0][0] == "undefined: the input has no token units to delete"
    assert scores.status[0][1] == "ok"
    assert (
        scores.status[0][2]
        == "skipped: corrupted_accuracy needs a label that is a class of the model, and this sample has none"
    )
