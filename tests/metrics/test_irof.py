"""IROF, against the paper's definition and against known answers."""

import numpy as np
import pytest
import torch

from heatcheck.core.spec import SpecError

MUTANTS = (
    (
        "metrics/irof.py",
        "1 - (own / own[:, :1]).mean(-1)",
        "(own[:, :1] - own).mean(-1)",
        "test_large_segments_do_not_win_by_their_size",
    ),
    ("metrics/irof.py", "self.ties, self.unit_value)", "self.ties)", "test_large_segments_do_not_win_by_their_size"),
    (
        "metrics/irof.py",
        "curve[:, i, : n + 1]",
        "curve[:, i, 1 : n + 1]",
        "test_large_segments_do_not_win_by_their_size",
    ),
    ("metrics/irof.py", "curve[..., 0] >= FLOOR", "curve[..., 0] >= 0", "test_shares_of_almost_nothing_are_a_status"),
    (
        "metrics/base.py",
        'if reduce == "mean" else total',
        'if reduce == "sum" else total',
        "test_large_segments_do_not_win_by_their_size",
    ),
)


def slow_irof(toys, model, batch, row, heat, index):
    """Segments by falling mean of the map; the area over p(x^(l)) / p(x), l = 0 … L."""
    segments = sorted(set(index[row].tolist()) - {-1})
    mean = {s: float(heat[index[row] == s].mean()) for s in segments}
    keep = torch.ones(index.shape[1], dtype=torch.bool)
    points = [toys.ask(model, batch, row, keep, "prob")]
    for s in sorted(segments, key=lambda s: -mean[s]):
        keep = keep & (index[row] != s)
        points.append(toys.ask(model, batch, row, keep, "prob"))
    return 1 - np.mean(np.array(points) / points[0])


@pytest.mark.parametrize(
    ("kind", "units"), [("image", "slic(9)"), ("image", "grid(3)"), ("image", "region"), ("text", "region")]
)
def test_agrees_with_the_definition(toys, kind, units):
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 2)
    got = toys.score(f"irof(units={units})", model, batch, maps)
    index = model.domain.units(units, batch.x).index
    for j in range(2):
        for i in range(3):
            expected = slow_irof(toys, model, batch, i, maps.sites()[j, i], index)
            assert got.value[j, i] == pytest.approx(expected, abs=1e-12)


def test_large_segments_do_not_win_by_their_size(toys):
    """A map of one tall and narrow peak beats a wide plateau of a larger sum."""
    model = toys.words(bent=True)
    batch = toys.sentences(model, (5,))
    assert batch.x["word"][0, 1:6].tolist() == [0, 0, 1, 1, 2]
    heat = torch.tensor([[0.0, 2.0, 2.0, 0.5, 0.5, 3.0, 0.0]], dtype=torch.float64)
    maps = toys.maps_of(model, batch, heat)
    expected = slow_irof(toys, model, batch, 0, heat[0], batch.x["word"])
    assert toys.score("irof", model, batch, maps).value[0, 0] == pytest.approx(expected, abs=1e-12)


def test_it_is_morf_as_a_share_where_units_are_equal(toys):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 3)
    probe = toys.probe_on(model)
    drop = toys.score("morf(units=grid(3), steps=9)", model, batch, maps, probe).value
    spent = probe.spent.forwards
    share = toys.score("irof(units=grid(3))", model, batch, maps, probe).value
    assert torch.allclose(share, drop / probe.clean(batch).read("prob"), atol=1e-12)
    assert probe.spent.forwards == spent


def test_a_linear_model_has_a_closed_form(toys):
    """Two classes whose logits are opposite: p = σ(2z), with z falling by the sorted contributions."""
    model = toys.linear(1, 6, classes=2)
    with torch.no_grad():
        head = model.module()[1]
        head.weight[1], head.bias[1] = -head.weight[0], -head.bias[0]
    batch = toys.pictures(model, 1)
    right = toys.truth(model, batch)
    cells = right[0].reshape(3, 2, 3, 2).sum((1, 3)).flatten().sort(descending=True).values
    start = toys.probe_on(model).clean(batch).read("logit")[0]
    z = start - torch.cat([torch.zeros(1, dtype=torch.float64), cells.cumsum(0)])
    p = torch.sigmoid(2 * z).detach()
    got = toys.score("irof(units=grid(3))", model, batch, toys.maps_of(model, batch, right.detach()))
    assert float(got.value[0, 0]) == pytest.approx(float(1 - (p / p[0]).mean()), abs=1e-10)


def test_shares_of_almost_nothing_are_a_status(toys):
    model, batch = toys.stage("image")
    with torch.no_grad():
        model.module()[3].weight.mul_(40)
    worst = torch.cat([model.logits(batch.x)[i : i + 1].argmin(1) for i in range(3)])
    batch = type(batch)(batch.x, torch.cat([worst[:2], batch.target[2:]]), batch.label, batch.streams)
    scores = toys.score("irof(units=grid(2))", model, batch, toys.random_maps(model, batch, 1))
    assert [s.split(":")[0] for s in scores.status[0]] == ["undefined", "undefined", "ok"]
    assert "below 0.001" in scores.status[0][0]


def test_bounds_constant_models_and_empty_texts(toys):
    model, batch = toys.stage("text")
    assert (toys.score("irof", model, batch, toys.random_maps(model, batch, 4)).value < 1).all()
    still = toys.constant()
    pictures = toys.pictures(still, 2)
    value = toys.score("irof(units=grid(3))", still, pictures, toys.random_maps(still, pictures, 2)).value
    assert value.abs().max() == 0
    empty = toys.sentences(toys.words(), (0, 3))
    scores = toys.score("irof", toys.words(), empty, toys.random_maps(toys.words(), empty, 1))
    assert scores.status[0] == ("undefined: the input has no word units to delete", "ok")
    with pytest.raises(SpecError, match="percentile_compat"):
        toys.metric("irof(ties=percentile_compat)")
