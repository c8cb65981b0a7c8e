"""Single deletion, against the published procedure and against known answers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from heatcheck.core.spec import SpecError

MUTANTS = (
    (
        "metrics/sds.py",
        "value[:, i] = spearman(",
        "value[:, i] = -spearman(",
        "test_the_truth_scores_one_and_its_negation_minus_one",
    ),
    (
        "metrics/sds.py",
        ".reshape(len(batch), units.width).read(self.output)",
        '.reshape(len(batch), units.width).read("prob")',
        "test_the_truth_scores_one_and_its_negation_minus_one",
    ),
    ("metrics/sds.py", "value.nan_to_num(0.0)", "value", "test_what_has_no_ranking_is_a_status_or_zero"),
    (
        "metrics/sds.py",
        "share[:, i, :n], drop[i, :n]",
        "share[:, i, :n], drop[i, :n].abs()",
        "test_the_truth_scores_one_and_its_negation_minus_one",
    ),
)


def slow_sds(toys, model, batch, row, heat, cells):
    """IDSDS's `single_deletion_protocol`, one cell at a time."""
    h, w = batch.x["pixels"].shape[2:]
    clean = toys.ask(model, batch, row, torch.ones(h, w, dtype=torch.bool))
    shares, drops = [], []
    for r in range(cells):
        for c in range(cells):
            cut = (slice(r * (h // cells), (r + 1) * (h // cells)), slice(c * (w // cells), (c + 1) * (w // cells)))
            keep = torch.ones(h, w, dtype=torch.bool)
            keep[cut] = False
            shares.append(float(heat[cut].sum()))
            drops.append(clean - toys.ask(model, batch, row, keep))
    return stats.spearmanr(shares, drops).statistic


@pytest.mark.parametrize("cells", [2, 4])
@pytest.mark.parametrize("size", [8, 9])
def test_agrees_with_the_published_procedure(toys, cells, size):
    model = toys.bent(3, size)
    batch = toys.pictures(model, 4, 3, size)
    maps = toys.random_maps(model, batch, 3)
    got = toys.score(f"sds(units=grid({cells}))", model, batch, maps).value
    for j, item in enumerate(maps.items):
        for i in range(4):
            assert got[j, i] == pytest.approx(slow_sds(toys, model, batch, i, item.values[i], cells), abs=1e-12)


def test_ties_in_the_map_share_ranks_as_in_scipy(toys):
    model = toys.bent(1, 8)
    batch = toys.pictures(model, 6, 1, 8)
    maps = toys.random_maps(model, batch, 2, shape=(4, 4), ties=True)
    for item in maps.items:
        object.__setattr__(item, "interpolation", "nearest")
    got = toys.score("sds", model, batch, maps).value
    for j in range(2):
        for i in range(6):
            heat = maps.sites()[j, i].reshape(8, 8)
            assert got[j, i] == pytest.approx(slow_sds(toys, model, batch, i, heat, 4), abs=1e-12)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_the_truth_scores_one_and_its_negation_minus_one(toys, kind):
    model, batch = toys.stage(kind, bent_model=False)
    right = toys.truth(model, batch)
    got = toys.score("sds(units=site)", model, batch, toys.maps_of(model, batch, right, -right, 3 * right + 1)).value
    assert torch.allclose(got, torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float64).expand_as(got), atol=1e-12)


@pytest.mark.parametrize("cells", [2, 4, 8])
def test_random_maps_score_zero_on_average(toys, cells):
    """X5: the standard deviation per picture is 1/√(P − 1)."""
    model = toys.bent(1, 8)
    batch = toys.pictures(model, 20, 1, 8)
    got = toys.score(f"sds(units=grid({cells}))", model, batch, toys.random_maps(model, batch, 60)).value
    spread = 1 / np.sqrt(cells**2 - 1)
    assert abs(float(got.mean())) < 3 * spread / np.sqrt(got.numel())
    assert float(got.std()) == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize("cells", [2, 4, 8])
def test_occlusion_on_the_same_cells_scores_one(toys, cells):
    model = toys.bent(2, 8)
    batch = toys.pictures(model, 3, 2, 8)
    units = f"grid({cells})"
    maps = toys.methods(model, batch, f"occlusion(units={units}, fill=zero, output=logit)")
    got = toys.score(f"sds(units={units}, fill=zero)", model, batch, maps).value
    assert torch.allclose(got, torch.ones_like(got), atol=1e-12)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_completeness_scores_one_on_a_linear_model(toys, kind):
    """Input × gradient and integrated gradients from the fill are what each unit adds."""
    model, batch = toys.stage(kind, bent_model=False)
    maps = toys.methods(model, batch, "input_x_gradient", "integrated_gradients(steps=2, baseline=zero)")
    got = toys.score("sds(fill=zero)", model, batch, maps).value
    assert torch.allclose(got, torch.ones_like(got), atol=1e-12)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_the_drops_themselves_are_the_oracle(toys, kind):
    model, batch = toys.stage(kind)
    probe = toys.probe_on(model)
    units = probe.units("cell", batch)
    fill = model.domain.default_fill
    after = probe.singles(batch, fill, units).reshape(3, units.width).read("logit")
    drop = probe.clean(batch).read("logit")[:, None] - after
    oracle = model.domain.as_map(units.spread(drop / units.area.clamp_min(1)), batch.x)
    got = toys.score("sds", model, batch, toys.maps_of(model, batch, oracle, -oracle), probe).value
    assert torch.allclose(got, torch.tensor([[1.0], [-1.0]], dtype=torch.float64).expand_as(got), atol=1e-12)


def test_pixels_left_over_belong_to_no_cell(toys):
    """9 pixels make four cells of two; what the map says about the ninth does not matter."""
    model = toys.bent(1, 9)
    batch = toys.pictures(model, 3, 1, 9)
    heat = toys.random_maps(model, batch, 1).items[0].values
    other = heat.clone()
    other[:, 8], other[:, :, 8] = 100.0, -100.0
    got = toys.score("sds", model, batch, toys.maps_of(model, batch, heat, other)).value
    assert torch.equal(got[0], got[1])


@settings(max_examples=8, deadline=None)
@given(scale=st.floats(0.01, 100), shift=st.floats(-10, 10))
def test_positive_scale_and_shift_change_nothing(toys, scale, shift):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 1)
    moved = toys.maps_of(model, batch, maps.items[0].values * scale + shift)
    assert torch.equal(toys.score("sds", model, batch, maps).value, toys.score("sds", model, batch, moved).value)


@pytest.mark.parametrize("spec", ["sds", "sds(nan=zero)"])
def test_what_has_no_ranking_is_a_status_or_zero(toys, spec):
    """X8: a constant map, and a constant model."""
    model, batch = toys.stage("image")
    flat = toys.maps_of(model, batch, torch.ones(3, 6, 6))
    dull = toys.constant()
    still = toys.pictures(dull, 3)
    for scores in (
        toys.score(spec, model, batch, flat),
        toys.score(spec, dull, still, toys.random_maps(dull, still, 1)),
    ):
        if spec == "sds":
            assert scores.value.isnan().all()
            assert scores.status == (("undefined: all units have the same attribution, or the same drop",) * 3,)
        else:
            assert scores.value.tolist() == [[0.0, 0.0, 0.0]] and scores.status == (("ok",) * 3,)


def test_the_output_decides_where_drops_are_read(toys):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 4)
    logit, prob = (toys.score(f"sds(output={o})", model, batch, maps).value for o in ("logit", "prob"))
    assert not torch.equal(logit, prob)
    p = toys.score("sds(output=logprob)", model, batch, maps).value
    assert torch.equal(prob, p)


def test_what_was_explained_and_where_drops_are_read_are_two_switches(toys):
    """The paper explains probabilities and reads logits; its code wraps the model, so that both are probabilities."""
    model, batch = toys.stage("image")
    of_logit, of_prob = (
        toys.methods(model, batch, f"input_x_gradient(output={o})").items[0] for o in ("logit", "prob")
    )
    assert not torch.equal(of_logit.values, of_prob.values)
    maps = toys.maps_of(model, batch, of_logit.values, of_prob.values)
    recorded = type(maps)([of_logit, of_prob], model.domain, batch)
    logit, prob = (toys.score(f"sds(output={o})", model, batch, recorded).value for o in ("logit", "prob"))
    assert torch.equal(logit, toys.score("sds", model, batch, maps).value)
    assert not torch.equal(logit[0], prob[0]) and not torch.equal(logit[1], prob[1])


def test_an_unknown_choice_is_refused(toys):
    with pytest.raises(SpecError, match=r"nan='drop' is not one of status, zero"):
        toys.metric("sds(nan=drop)")
