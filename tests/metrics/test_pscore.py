"""Agreement with the other models, against the formula and against known answers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.types import NotApplicable


def slow_pscore(maps, own, *, leave_one_out=False, l2=False):
    """cos(mean of all, own), from the formula."""
    flat = [np.asarray(m).ravel() for m in maps]
    if l2:
        flat = [m / np.linalg.norm(m) for m in flat]
    mean = np.mean([m for i, m in enumerate(flat) if i != own or not leave_one_out], axis=0)
    return mean @ flat[own] / np.linalg.norm(mean) / np.linalg.norm(flat[own])


def gather(toys, values, shape=(6, 6)):
    """`values[model][method]` are maps `[b, h, w]` of the same samples."""
    model = toys.bent()
    batch = toys.pictures(model, len(values[0][0]))
    names = [f"net {k}" for k in range(len(values))]
    maps = {n: toys.maps_of(model, batch, *own) for n, own in zip(names, values, strict=True)}
    return dict.fromkeys(names, batch), maps


def across(toys, spec, values):
    return toys.metric(spec).across(*gather(toys, values))


def draws(m, methods=2, b=3, seed=0, shape=(6, 6)):
    rng = torch.Generator().manual_seed(seed)
    return [[torch.randn(b, *shape, generator=rng, dtype=torch.float64) for _ in range(methods)] for _ in range(m)]


@pytest.mark.parametrize("loo", [False, True])
@pytest.mark.parametrize("normalise", ["none", "l2"])
def test_agrees_with_the_formula(toys, loo, normalise):
    values = draws(4)
    got = across(toys, f"pscore(leave_one_out={loo}, normalise={normalise})", values)
    for k in range(4):
        for j in range(2):
            for i in range(3):
                maps = [values[g][j][i] for g in range(4)]
                expected = slow_pscore(maps, k, leave_one_out=loo, l2=normalise == "l2")
                assert got[f"net {k}"].value[j, i] == pytest.approx(expected, abs=1e-12)


def test_known_answers(toys):
    """Alone or all alike: 1. Orthogonal maps of equal norm: 1/√m with oneself, 0 without."""
    one = torch.rand(2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert across(toys, "pscore", [[one]])["net 0"].value.tolist()[0] == pytest.approx([1.0, 1.0], abs=1e-12)
    alike = across(toys, "pscore", [[one], [3 * one], [0.2 * one]])
    assert all(torch.allclose(s.value, torch.ones(1, 2, dtype=torch.float64)) for s in alike.values())
    basis = torch.eye(36, dtype=torch.float64).reshape(36, 6, 6)
    orthogonal = [[basis[k].expand(2, 6, 6)] for k in range(5)]
    for s in across(toys, "pscore", orthogonal).values():
        assert torch.allclose(s.value, torch.tensor(5**-0.5, dtype=torch.float64))
    for s in across(toys, "pscore(leave_one_out=true)", orthogonal).values():
        assert s.value.abs().max() == 0


@settings(max_examples=8, deadline=None)
@given(factors=st.lists(st.floats(0.01, 100), min_size=3, max_size=3))
def test_only_joint_scale_is_free_unless_maps_are_normalised(toys, factors):
    values = draws(3)
    scaled = [[c * a for a in own] for c, own in zip(factors, values, strict=True)]
    jointly = [[factors[0] * a for a in own] for own in values]
    plain, joint, free = (
        across(toys, s, v)["net 0"].value
        for s, v in (("pscore", values), ("pscore", jointly), ("pscore(normalise=l2)", scaled))
    )
    assert torch.allclose(plain, joint, atol=1e-12)
    assert torch.allclose(free, across(toys, "pscore(normalise=l2)", values)["net 0"].value, atol=1e-12)
    assert (plain.abs() <= 1).all()


def test_the_order_of_models_and_samples_changes_no_bit(toys):
    values = draws(4)
    batches, maps = gather(toys, values)
    forward = toys.metric("pscore").across(batches, maps)
    backward = toys.metric("pscore").across(dict(reversed(batches.items())), dict(reversed(maps.items())))
    for name in maps:
        assert torch.equal(forward[name].value, backward[name].value)
    model = toys.bent()
    rows = [2, 0, 1]
    turned = batches["net 1"].take(rows)
    mixed = {**maps, "net 1": toys.maps_of(model, turned, *(a.values[rows] for a in maps["net 1"].items))}
    got = toys.metric("pscore").across({**batches, "net 1": turned}, mixed)
    assert torch.equal(got["net 1"].value, forward["net 1"].value[:, rows])
    assert torch.equal(got["net 0"].value, forward["net 0"].value)


def test_maps_that_cannot_be_compared_are_reasons(toys):
    one = torch.rand(2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sizes = across(toys, "pscore", [[one], [one[:, :3, :3]]])
    assert sizes["net 0"].status == (("undefined: the models' maps differ in size (3×3, 6×6)",) * 2,)
    alone = across(toys, "pscore(leave_one_out=true)", [[one]])
    assert alone["net 0"].status == (("undefined: no other model has this map",) * 2,)
    zero = across(toys, "pscore", [[one], [0 * one]])
    assert zero["net 1"].status[0][0].endswith("is zero everywhere") and zero["net 0"].status[0] == ("ok", "ok")


def test_a_failed_map_is_left_out_of_the_average(toys):
    values = draws(3, methods=1)
    values[1][0][2] = torch.nan
    got = across(toys, "pscore", values)
    assert got["net 1"].status[0] == ("ok", "ok", "failed: the map is not finite")
    expected = slow_pscore([values[0][0][2], values[2][0][2]], 0)
    assert got["net 0"].value[0, 2] == pytest.approx(expected, abs=1e-12)


def test_one_model_is_not_enough(toys):
    model = toys.bent()
    batch = toys.pictures(model)
    with pytest.raises(NotApplicable, match="several models"):
        toys.score("pscore", model, batch, toys.random_maps(model, batch, 1))
    assert toys.metric("pscore").across_models


def test_special_tokens_do_not_count(toys):
    model = toys.words()
    batch = toys.sentences(model, (4, 4))
    a, b = (m.values for m in toys.random_maps(model, batch, 2).items)
    noisy = torch.where(batch.x["special"], 100.0, a)
    names = ("p", "q")
    plain, loud = (
        toys.metric("pscore").across(dict.fromkeys(names, batch), {"p": toys.maps_of(model, batch, v),
                                                                  "q": toys.maps_of(model, batch, b)})
        for v in (a, noisy)
    )  # fmt: skip
    assert torch.equal(plain["p"].value, loud["p"].value) and torch.equal(plain["q"].value, loud["q"].value)
