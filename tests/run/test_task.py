"""One chunk of work: what fails alone, and what decides a score's context."""

from dataclasses import replace

import torch
from torch import nn

from heatcheck.data.load import load_data
from heatcheck.models.vision import VisionModel
from heatcheck.run.grid import ModelGrid
from heatcheck.run.task import run_chunk


def test_a_reference_that_does_not_fit_costs_only_its_sample():
    net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = VisionModel(net, "m")
    good, bad = load_data(torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)))
    bad = replace(bad, reference={"mask": torch.ones(5, 7)})
    chunk = run_chunk(ModelGrid(model=model), [bad, good])
    found = {record["name"]: record.get("problem") for group in chunk.groups for record in group.samples}
    assert found[good.name] is None
    assert found[bad.name] == "failed: the mask is 7 × 5, its picture 8 × 8: they must agree"
