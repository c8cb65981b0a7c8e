"""The best possible map under single deletion of parts."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Inputs
from heatcheck.metrics.base import Maps, circular
from heatcheck.probe.asks import Shape
from heatcheck.testing.models import additive, additive_text, gap_linear
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    (
        "methods/part_oracle.py",
        "wide.T @ torch.linalg.pinv(wide @ wide.T, hermitian=True) @ drop",
        "wide.T @ (drop / wide.sum(1).clamp_min(1))",
        "test_its_sums_over_dilated_parts_are_the_drops",
    ),
    (
        "methods/part_oracle.py",
        "reads_references: ClassVar[bool] = True",
        "reads_references: ClassVar[bool] = False",
        "test_a_stored_map_is_not_used_for_other_parts",
    ),
)


def marked(batch):
    """Five rectangles on every picture, some of which overlap when they are dilated."""
    height, width = batch.x["pixels"].shape[2:]
    parts = torch.zeros(5, height, width, dtype=torch.bool)
    for own, (top, left) in zip(parts, ((0, 0), (0, 4), (3, 0), (2, 3), (5, 1)), strict=True):
        own[top : top + 2, left : left + 3] = True
    return replace(batch, references=({"parts": parts},) * len(batch))


def rendered(batch, seed=1):
    """The pictures with something else in the place of each part."""
    rng = torch.Generator().manual_seed(seed)

    def without(i, parts):
        pixels = batch.x["pixels"][i].expand(len(parts), -1, -1, -1)
        new = torch.randn(pixels.shape, generator=rng, dtype=pixels.dtype)
        return Inputs({"pixels": torch.where(parts[:, None], new, pixels)})

    own = [{**r, "without": without(i, r["parts"])} for i, r in enumerate(batch.references)]
    return replace(batch, references=tuple(own))


@pytest.mark.parametrize("render", [False, True])
@pytest.mark.parametrize("dilate", [1, 3, 5])
def test_its_sums_over_dilated_parts_are_the_drops(lab, dilate, render):
    model = gap_linear()
    batch = marked(toy_batch(model, 3))
    batch = rendered(batch) if render else batch
    probe = probe_for(model)
    got = catalogue.build("method", f"part_oracle(dilate={dilate})")(probe, batch)
    pool = nn.MaxPool2d(dilate, 1, dilate // 2)
    for i, own in enumerate(batch.references):
        clean = model.logits(batch.x.take(torch.tensor([i])))[0, batch.target[i]]
        near = pool(own["parts"].double())
        sums = (near * got.values[i]).sum((1, 2))
        if render:
            after = model.logits(own["without"])[:, batch.target[i]]
            torch.testing.assert_close(sums, (clean - after).double(), atol=1e-9, rtol=1e-9)
        score = catalogue.build("metric", f"part_deletion(dilate={dilate})")(
            probe, batch, Maps([got], model.domain, batch)
        )
        assert score.value[0, i] == pytest.approx(1)


@pytest.mark.parametrize("make", [additive, additive_text])
def test_it_is_the_best_that_part_deletion_can_see(make):
    toy = make()
    batch = toy_batch(toy, 4)
    probe = probe_for(toy)
    got = catalogue.build("method", "part_oracle(dilate=1)")(probe, batch)
    minus = replace(got, values=-got.values)
    score = catalogue.build("metric", "part_deletion(dilate=1)")(probe, batch, Maps([got, minus], toy.domain, batch))
    torch.testing.assert_close(score.value, torch.tensor([[1.0], [0.0]], dtype=torch.float64).expand(2, 4))
    one = Shape(toy.domain, batch.x.take(torch.tensor([0])), toy, batch.references[0])
    assert circular(catalogue.build("method", "part_oracle"), catalogue.build("metric", "part_deletion"), one)


def test_without_parts_there_is_no_oracle():
    toy = additive()
    batch = toy_batch(toy, 2)
    batch = replace(batch, references=(batch.references[0], {}))
    got = catalogue.build("method", "part_oracle")(probe_for(toy), batch)
    assert got.status[0] == "ok" and got.status[1].startswith("skipped: part_oracle needs a reference 'parts'")


@pytest.mark.parametrize("dilate", [0, 2])
def test_a_square_without_a_middle_is_refused(dilate):
    with pytest.raises(SpecError, match="odd number of sites"):
        catalogue.build("method", f"part_oracle(dilate={dilate})")


def test_a_stored_map_is_not_used_for_other_parts(tmp_path):
    """Maps are filed by sample and target: parts that were marked anew must not meet the oracle of the old ones."""
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 10 * 10, 3)).eval()
    pixels = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    for seed in range(3):
        place = torch.randperm(9, generator=torch.Generator().manual_seed(seed))[:5].tolist()
        boxes = {
            f"part {k}": [4 * (p % 3), 4 * (p // 3), 4 * (p % 3) + 4, 4 * (p // 3) + 4] for k, p in enumerate(place)
        }
        data = [{"image": x, "parts": boxes} for x in pixels]
        bench = hc.Benchmark(models=network, data=data, methods=["part_oracle"], metrics=["part_deletion"])
        scores = bench.run(tmp_path / "run").scores()
        assert scores.filter(scores["method"] == "part_oracle")["score"].to_list() == pytest.approx([1.0, 1.0])
