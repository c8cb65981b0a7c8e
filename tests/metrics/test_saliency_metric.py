"""The saliency metric, against the definition and against known answers."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from torch import nn

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Inputs
from heatcheck.domain.image import ImageDomain
from heatcheck.models.torch_model import TorchModel

MUTANTS = (
    (
        "metrics/saliency_metric.py",
        "area.clamp_min(SMALLEST).log() - logprob",
        "area.clamp_min(SMALLEST).log() + logprob",
        "test_a_probability_that_vanishes_still_has_a_score",
    ),
    (
        "metrics/saliency_metric.py",
        "area.clamp_min(SMALLEST)",
        "area",
        "test_a_probability_that_vanishes_still_has_a_score",
    ),
    (
        "metrics/saliency_metric.py",
        "n - touched.flip(1)",
        "n - 1 - touched.flip(1)",
        "test_a_probability_that_vanishes_still_has_a_score",
    ),
    (
        "metrics/saliency_metric.py",
        "parts == parts.flat[int(place.argmin())]",
        "parts > 0",
        "test_components_are_those_of_scipy",
    ),
    ("metrics/saliency_metric.py", "(after > margin * total)", "(after > 0)", "test_outliers_open_only_the_tight_box"),
    (
        "metrics/saliency_metric.py",
        "(edges[:, 1] - edges[:, 0]) * (edges[:, 3] - edges[:, 2])",
        "(edges[:, 1] - edges[:, 0]) + (edges[:, 3] - edges[:, 2])",
        "test_a_probability_that_vanishes_still_has_a_score",
    ),
    (
        "metrics/saliency_metric.py",
        "torch.arange(1, self.steps, device=count.device)",
        "torch.arange(self.steps - 1, device=count.device)",
        "test_the_whole_picture_gives_minus_log_p",
    ),
)


def slow_box(heat, q, kind):
    """The box around the ⌊qn⌋ largest values, pixel by pixel."""
    h, w = heat.shape
    order = sorted(((y, x) for y in range(h) for x in range(w)), key=lambda s: -heat[s])
    region = set(order[: max(1, int(q * h * w + 1e-9))])
    if kind == "component":
        grown, edge = set(), [order[0]]
        while edge:
            y, x = edge.pop()
            if (y, x) in region and (y, x) not in grown:
                grown.add((y, x))
                edge += [(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
        region = grown
    sides = []
    for axis in (0, 1):
        places = sorted(s[axis] for s in region)
        cut = len(places) * 0.05 if kind == "mass" else 0
        sides += [places[math.floor(cut)], places[len(places) - 1 - math.floor(cut)] + 1]
    return sides


def slow_score(model, batch, row, heat, qs, kind):
    points = []
    for q in qs:
        top, bottom, left, right = slow_box(heat, q, kind)
        crop = batch.x["pixels"][row : row + 1, :, top:bottom, left:right]
        resized = F.interpolate(crop, heat.shape, mode="bilinear", align_corners=False)
        with torch.no_grad():
            logprob = model.logits(Inputs({"pixels": resized}))[0].log_softmax(0)[batch.target[row]]
        area = (bottom - top) * (right - left) / heat.size
        points.append(math.log(max(area, 0.05)) - float(logprob))
    return np.array(points)


@pytest.mark.parametrize("kind", ["tight", "component", "mass"])
@pytest.mark.parametrize("size", [6, 9])
def test_agrees_with_the_definition(toys, kind, size):
    model = toys.bent(2, size)
    batch = toys.pictures(model, 3, 2, size)
    maps = toys.random_maps(model, batch, 2)
    got = toys.score(f"saliency_metric(box={kind})", model, batch, maps)
    qs = [k / 10 for k in range(1, 10)]
    for j in range(2):
        for i in range(3):
            slow = slow_score(model, batch, i, maps.items[j].values[i].numpy(), qs, kind)
            assert got.curve[j, i].numpy() == pytest.approx(slow, abs=1e-9)
            assert float(got.value[j, i]) == pytest.approx(slow.mean(), abs=1e-9)
    assert got.share == tuple(qs)


def test_one_share_is_one_point_of_the_curve(toys):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 2)
    all_of_them = toys.score("saliency_metric(steps=4)", model, batch, maps)
    one = toys.score("saliency_metric(share=0.5)", model, batch, maps)
    assert torch.equal(one.value, all_of_them.curve[..., 1]) and one.share == (0.5,)


def test_the_whole_picture_gives_minus_log_p(toys):
    model, batch = toys.stage("image")
    corners = torch.zeros(3, 6, 6)
    corners[:, 0, 0] = corners[:, 5, 5] = 1
    got = toys.score("saliency_metric", model, batch, toys.maps_of(model, batch, corners))
    logprob = toys.probe_on(model).clean(batch).read("logprob")
    assert torch.equal(got.curve[0], (-logprob)[:, None].expand(-1, 9))


class Brightness(nn.Module):
    """Knows a picture by its mean alone."""

    def forward(self, pixels):
        mean = pixels.mean((1, 2, 3))
        return torch.stack([mean, -mean], 1) * 40


def bright_square(toys):
    model = TorchModel(Brightness(), "brightness", ImageDomain())
    pixels = torch.zeros(2, 1, 20, 20, dtype=torch.float64)
    pixels[:, :, 4:8, 4:9] = 1
    batch = toys.batch_of(model, Inputs({"pixels": pixels}))
    return model, batch, pixels[:, 0]


def test_the_bound_is_reached_by_a_small_box_that_says_all(toys):
    """s ≥ ln 0.05, with equality where p = 1 and a ≤ 5 %."""
    model, batch, square = bright_square(toys)
    found = toys.score("saliency_metric(share=0.05)", model, batch, toys.maps_of(model, batch, square))
    assert found.value[0].tolist() == pytest.approx([math.log(0.05)] * 2, abs=1e-9)
    tiny = toys.score("saliency_metric(share=0.0025)", model, batch, toys.maps_of(model, batch, square))
    assert tiny.value[0].tolist() == pytest.approx([math.log(0.05)] * 2, abs=1e-9)


def test_the_map_of_the_object_beats_random_beats_its_opposite(toys):
    model, batch, _ = bright_square(toys)
    y, x = torch.meshgrid(torch.arange(20.0), torch.arange(20.0), indexing="ij")
    near = -((y - 5.5) ** 2 + (x - 6) ** 2).expand(2, 20, 20)
    noise = toys.random_maps(model, batch, 1, seed=3).items[0].values
    maps = toys.maps_of(model, batch, near, noise, -near)
    for spec in ("saliency_metric", "saliency_metric(box=mass)", "saliency_metric(box=component, share=0.4)"):
        right, any_map, wrong = toys.score(spec, model, batch, maps).value.mean(1).tolist()
        assert right < any_map - 0.1 and right < wrong - 0.1
        assert "box" in spec or any_map <= wrong + 1e-9


def test_outliers_open_only_the_tight_box(toys):
    model, batch, square = bright_square(toys)
    dirty = square.clone() * 2
    dirty[:, 19, 19] = 1.5
    one = {
        kind: toys.score(f"saliency_metric(share=0.0525, box={kind})", model, batch, toys.maps_of(model, batch, dirty))
        for kind in ("tight", "component", "mass")
    }
    assert (one["tight"].value > one["component"].value + 1).all()
    assert (one["tight"].value > one["mass"].value + 1).all()
    assert one["component"].value[0].tolist() == pytest.approx([math.log(0.05)] * 2, abs=1e-9)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["tight", "component", "mass"]))
def test_monotone_changes_change_nothing(toys, seed, kind):
    """X2, and the bound."""
    model, batch = toys.stage("image", n=2)
    maps = toys.random_maps(model, batch, 2, seed=seed)
    moved = toys.increasing(model, batch, maps)
    a, b = (toys.score(f"saliency_metric(steps=4, box={kind})", model, batch, m) for m in (maps, moved))
    assert torch.equal(a.value, b.value)
    assert (a.curve >= math.log(0.05) - 1e-12).all()


def test_a_probability_that_vanishes_still_has_a_score(toys):
    class Sure(nn.Module):
        def forward(self, pixels):
            return torch.stack([pixels[:, 0, 0, 0], -pixels[:, 0, 0, 0]], 1) * 1e6

    model = TorchModel(Sure(), "sure", ImageDomain())
    pixels = -torch.ones(1, 1, 6, 6, dtype=torch.float64)
    pixels[..., 0, 0] = 1
    batch = toys.batch_of(model, Inputs({"pixels": pixels}))
    heat = torch.zeros(1, 6, 6)
    heat[:, 3, 3] = 1
    got = toys.score("saliency_metric(share=0.01)", model, batch, toys.maps_of(model, batch, heat))
    assert got.status == (("ok",),) and float(got.value[0, 0]) == pytest.approx(2e6 + math.log(0.05), abs=1e-6)


def test_constant_maps_and_models_have_numbers(toys):
    model, batch = toys.stage("image")
    flat = toys.maps_of(model, batch, torch.zeros(3, 6, 6))
    assert toys.score("saliency_metric", model, batch, flat).value.isfinite().all()
    blind = toys.constant()
    samples = toys.pictures(blind, 2)
    got = toys.score("saliency_metric", blind, samples, toys.random_maps(blind, samples, 1))
    logprob = toys.probe_on(blind).clean(samples).read("logprob")
    assert (got.value <= -logprob + 1e-12).all()


def test_boxes_of_units_hold_whole_units(toys):
    model, batch = toys.stage("image")
    heat = torch.zeros(3, 6, 6)
    heat[:, 3, 3] = 1
    got = toys.score("saliency_metric(units=grid(2), share=0.25)", model, batch, toys.maps_of(model, batch, heat))
    cell = torch.zeros(6, 6)
    cell[3:, 3:] = 1
    expected = [slow_score(model, batch, i, cell.numpy(), [0.25], "tight")[0] for i in range(3)]
    assert got.value[0].tolist() == pytest.approx(expected, abs=1e-9)


def test_components_are_those_of_scipy(toys):
    from heatcheck.metrics.saliency_metric import _around

    rng = torch.Generator().manual_seed(0)
    place = torch.randperm(100, generator=rng).reshape(10, 10)
    region = place < 30
    parts, n = ndimage.label(region.numpy(), np.ones((3, 3)))
    assert n > 1
    (y,), (x,) = np.where(place.numpy() == 0)
    assert np.array_equal(_around(region, place).numpy(), parts == parts[y, x])


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ("steps=1", "steps=1 must be at least 2"),
        ("share=1.5", r"share=1\.5 is not between"),
        ("box=round", "box='round'"),
    ],
)
def test_bad_parameters_are_refused(toys, params, says):
    with pytest.raises(SpecError, match=says):
        toys.metric(f"saliency_metric({params})")
