"""Metrics that delete units of a text: on words and sentences they see no more than the sum over each."""

from dataclasses import replace

import pytest
import torch

from heatcheck.core import catalogue

MUTANTS = (
    (
        "metrics/base.py",
        "total = units.sum(self.sites())",
        "total = units.sum(self.sites().abs())",
        "test_only_the_sum_over_a_unit_counts",
    ),
)


def deleting():
    """Every metric of texts that has units and needs nothing that these toys lack."""
    for id, entry in sorted(catalogue.entries("metric").items()):
        lacking = {"method", "label", "retraining", "models"} & set(entry.facts["needs"])
        if "units" in entry.params and "text" in entry.facts["on"] and not lacking:
            yield id


def read(toys):
    """Texts of four to nine tokens, two to a word and four to a sentence, with the first word marked."""
    model = toys.words(bent=True)
    batch = toys.sentences(model, (9, 6, 8))
    place = torch.arange(batch.x["ids"].shape[1]).expand(3, -1) - 1
    x = batch.x.replace(sentence=torch.where(batch.x["special"], -1, place // 4))
    mask = (x["word"] == 0) | (x["word"] == 2)
    return model, replace(batch, x=x, references=tuple({"mask": own} for own in mask))


@pytest.mark.parametrize("units", ["word", "sentence"])
@pytest.mark.parametrize("id", deleting())
def test_only_the_sum_over_a_unit_counts(toys, id, units):
    model, batch = read(toys)
    maps = toys.random_maps(model, batch, 2)
    unit = batch.x[units]
    first = (unit >= 0) & (unit != torch.cat([torch.full_like(unit[:, :1], -1), unit[:, :-1]], 1))
    gathered = []
    for a in maps.items:
        total = torch.zeros_like(a.values)
        for row in range(len(batch)):
            for at in torch.nonzero(first[row]).flatten().tolist():
                total[row, at] = a.values[row][unit[row] == unit[row, at]].sum()
        gathered.append(total)
    spec = f"{id}(units={units})"
    spread, at_the_start = (toys.score(spec, model, batch, m) for m in (maps, toys.maps_of(model, batch, *gathered)))
    assert spread.status == at_the_start.status
    assert torch.allclose(spread.value, at_the_start.value, atol=1e-9, equal_nan=True)
    assert units == "sentence" or "ok" in spread.status[0]
