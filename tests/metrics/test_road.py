"""ROAD, against the definition and against known answers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import NotApplicable
from heatcheck.testing import additive, probe_for, toy_batch, toy_maps
from heatcheck.testing.scenes import take_maps

MUTANTS = (
    (
        "metrics/road.py",
        "(outputs[0] - outputs[1]) / 2",
        "(outputs[0] - outputs[1]) / 1",
        "test_a_single_bright_pixel_has_a_closed_form",
    ),
    (
        "metrics/road.py",
        "PERCENTAGES = (10, 20, 30, 40, 50, 70, 90)",
        "PERCENTAGES = (10, 20, 30, 40, 50, 60, 70)",
        "test_other_fills_delete_as_they_do_elsewhere",
    ),
    (
        "metrics/road.py",
        'rise if self.order == "lerf" else -rise',
        "rise",
        "test_a_single_bright_pixel_has_a_closed_form",
    ),
    (
        "metrics/road.py",
        "mirrored(place, units) if order == LEAST else place",
        "place",
        "test_a_single_bright_pixel_has_a_closed_form",
    ),
    (
        "metrics/road.py",
        "units.count[:, None] * torch.tensor(PERCENTAGES, device=batch.device) // 100",
        "units.count[:, None] * torch.tensor(PERCENTAGES, device=batch.device) // 50",
        "test_other_fills_delete_as_they_do_elsewhere",
    ),
)

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
NEAR = {(dy, dx): 1 / 6 if 0 in (dy, dx) else 1 / 12 for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)}


def imputed(pixels, gone):
    """The picture with each pixel that is gone at the weighted mean of its neighbours, solved without sparsity."""
    _, h, w = pixels.shape
    x = pixels.numpy().copy()
    left, right = np.zeros((len(gone), len(gone))), np.zeros((len(gone), len(x)))
    for i, (y, z) in enumerate(divmod(s, w) for s in gone):
        for (dy, dx), weight in NEAR.items():
            if 0 <= y + dy < h and 0 <= z + dx < w:
                left[i, i] += weight
                if (site := (y + dy) * w + z + dx) in gone:
                    left[i, gone.index(site)] -= weight
                else:
                    right[i] += weight * x[:, y + dy, z + dx]
    x.reshape(len(x), -1)[:, gone] = np.linalg.solve(left, right).T
    return torch.from_numpy(x)


def slow_curve(model, batch, row, order, output):
    """f at each share: the first ⌊p·n⌋ pixels of an order imputed, one picture at a time."""
    points = []
    for share in SHARES:
        gone = order[: int(share * len(order) + 1e-9)]
        x = batch.x.take(torch.tensor([row])).replace(pixels=imputed(batch.x["pixels"][row], gone)[None])
        with torch.no_grad():
            logits = model.logits(x)[0]
        points.append(float((logits if output == "logit" else logits.softmax(0))[batch.target[row]]))
    return np.array(points)


@pytest.mark.parametrize("output", ["prob", "logit"])
def test_agrees_with_the_definition(toys, output):
    model, batch = toys.stage("image", n=2)
    maps = toys.random_maps(model, batch, 2)
    probe = toys.probe_on(model)
    clean = probe.clean(batch).read(output)
    got = {
        o: toys.score(f"road(order={o}, fill=linear(noise=0), output={output})", model, batch, maps, probe)
        for o in ("combined", "morf", "lerf")
    }
    for j in range(2):
        for i in range(2):
            falling = sorted(range(36), key=lambda s: -float(maps.sites()[j, i, s]))
            most = slow_curve(model, batch, i, falling, output)
            least = slow_curve(model, batch, i, falling[::-1], output)
            assert got["morf"].curve[j, i].numpy() == pytest.approx(most, abs=1e-9)
            assert got["lerf"].curve[j, i].numpy() == pytest.approx(least, abs=1e-9)
            assert got["combined"].curve[j, i].numpy() == pytest.approx((least - most) / 2, abs=1e-9)
            assert float(got["morf"].value[j, i]) == pytest.approx(float(clean[i]) - most.mean(), abs=1e-9)
            assert float(got["lerf"].value[j, i]) == pytest.approx(least.mean() - float(clean[i]), abs=1e-9)
    torch.testing.assert_close(got["combined"].value, (got["morf"].value + got["lerf"].value) / 2)
    assert got["morf"].share == got["combined"].share == SHARES


def test_a_single_bright_pixel_has_a_closed_form(toys):
    """All of f hangs on one pixel of an otherwise empty picture: it falls to nothing at once, or never."""
    model = toys.linear(1, 6)
    with torch.no_grad():
        model.module()[1].weight.zero_()
        model.module()[1].weight[:, 14] = torch.tensor([4.0, 1.0, -2.0])
    pixels = torch.zeros(1, 1, 6, 6, dtype=torch.float64)
    pixels[..., 2, 2] = 3
    batch = toys.batch_of(model, toys.pictures(model, 1).x.replace(pixels=pixels))
    right = pixels[:, 0]
    maps = toys.maps_of(model, batch, right, -right)
    falls = {
        o: toys.score(f"road(order={o}, fill=linear(noise=0), output=logit)", model, batch, maps).value[:, 0]
        for o in ("morf", "lerf", "combined")
    }
    torch.testing.assert_close(falls["morf"], torch.tensor([12.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(falls["lerf"], torch.tensor([0.0, -12.0], dtype=torch.float64))
    torch.testing.assert_close(falls["combined"], torch.tensor([6.0, -6.0], dtype=torch.float64))


def test_on_a_linear_model_the_fall_is_linear_in_the_picture(toys):
    """Imputation and f are linear, so the logit's fall for a sum of pictures is the sum of their falls."""
    model = toys.linear(2, 6)
    with torch.no_grad():
        model.module()[1].bias.zero_()
    one, two = toys.pictures(model, 1, 2, seed=1), toys.pictures(model, 1, 2, seed=2)
    heat = torch.randn(1, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def fall(pixels):
        batch = replace(one, x=one.x.replace(pixels=pixels), altered=True)
        maps = toys.maps_of(model, batch, heat)
        return toys.score("road(order=morf, fill=linear(noise=0), output=logit)", model, batch, maps).value

    a, b = one.x["pixels"], two.x["pixels"]
    torch.testing.assert_close(fall(2 * a - 3 * b), 2 * fall(a) - 3 * fall(b))


@pytest.mark.parametrize("order", ["combined", "morf", "lerf"])
def test_a_flat_picture_and_a_constant_model_lose_nothing(toys, order):
    """X8, and imputation returns constants: what is around a hole says all about it."""
    model, spec = toys.bent(1, 6), f"road(order={order}, fill=linear(noise=0))"
    flat = toys.batch_of(model, toys.pictures(model, 2).x.replace(pixels=torch.full((2, 1, 6, 6), 0.7).double()))
    assert toys.score(spec, model, flat, toys.random_maps(model, flat, 2)).value.abs().max() < 1e-12
    model = toys.constant()
    batch = toys.pictures(model, 2)
    assert toys.score(spec, model, batch, toys.random_maps(model, batch, 2)).value.abs().max() == 0


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_monotone_changes_change_nothing_and_negation_swaps_the_orders(toys, seed):
    """X2 and X3."""
    model, batch = toys.stage("image", n=2)
    maps = toys.random_maps(model, batch, 2, seed=seed)
    moved = toys.increasing(model, batch, maps)
    turned = toys.maps_of(model, batch, *(-a.values for a in maps.items))
    probe = toys.probe_on(model)
    spec = "road(fill=linear(noise=0))"
    a, b, c = (toys.score(spec, model, batch, m, probe) for m in (maps, moved, turned))
    assert torch.equal(a.value, b.value) and torch.equal(a.curve, b.curve)
    assert torch.equal(c.value, -a.value)
    assert (a.value.abs() <= 0.5).all()
    morf, lerf = (
        toys.score(f"road(order={o}, fill=linear(noise=0))", model, batch, m, probe).value
        for o, m in (("morf", maps), ("lerf", turned))
    )
    assert torch.equal(morf, -lerf)


def test_the_right_map_beats_chance_beats_the_wrong_map_with_the_default_fill():
    model = additive((3, 16, 16))
    batch = toy_batch(model, 6)
    unit, maps = catalogue.build("metric", "road(output=logit)"), toy_maps(model, batch)
    right, chance, wrong = unit(probe_for(model), batch, maps).value.mean(1).tolist()
    assert right > chance > wrong


def test_other_fills_delete_as_they_do_elsewhere(toys):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 2)
    got = toys.score("road(order=morf, fill=zero)", model, batch, maps).curve
    for j in range(2):
        for i in range(3):
            falling = sorted(range(36), key=lambda s: -float(maps.sites()[j, i, s]))
            for k, share in enumerate(SHARES):
                keep = torch.ones(36, dtype=torch.bool)
                keep[falling[: int(share * 36 + 1e-9)]] = False
                assert float(got[j, i, k]) == pytest.approx(toys.ask(model, batch, i, keep, "prob"), abs=1e-12)


def test_accuracy_is_read_against_the_label(toys):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 2)
    spec = "road(order=lerf, fill=linear(noise=0), output=accuracy)"
    curve = toys.score(spec, model, batch, maps).curve
    assert set(curve.flatten().tolist()) <= {0.0, 1.0}
    wrong = replace(batch, label=(batch.label + 1) % 3)
    other = toys.score(spec, model, wrong, toys.random_maps(model, wrong, 2))
    assert not (curve.bool() & other.curve.bool()).any()
    unlabelled = replace(batch, label=torch.full((3,), -1))
    with pytest.raises(NotApplicable, match="label"):
        toys.score(spec, model, unlabelled, toys.random_maps(model, unlabelled, 2))


def test_batch_neighbours_and_order_change_no_bit():
    model = additive((3, 16, 16))
    batch = toy_batch(model, 3)
    maps, unit = toy_maps(model, batch, ("oracle", "random", "constant")), catalogue.build("metric", "road")
    whole = unit(probe_for(model), batch, maps).value
    for rows in ([1], [2, 0]):
        own = unit(probe_for(model), batch.take(rows), take_maps(maps, rows)).value
        assert torch.equal(own, whole[:, rows])
    assert whole.isfinite().all()


def test_what_it_cannot_do_is_said(toys):
    with pytest.raises(SpecError, match=r"order='both' is not one of combined, morf, lerf"):
        toys.metric("road(order=both)")
    with pytest.raises(SpecError, match=r"ties='percentile_compat' is not one of"):
        toys.metric("road(ties=percentile_compat)")
    model, batch = toys.stage("text")
    with pytest.raises(NotApplicable, match=r"road is defined for image"):
        toys.score("road", model, batch, toys.random_maps(model, batch, 1))
    model, batch = toys.stage("image")
    with pytest.raises(NotApplicable, match=r"normalisation is not known"):
        toys.score("road", model, batch, toys.random_maps(model, batch, 1))
