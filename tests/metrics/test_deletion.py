"""Deletion and insertion, against the published procedure and against known answers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.core.spec import SpecError
from heatcheck.domain.image import ImageDomain
from heatcheck.models.torch_model import TorchModel

MUTANTS = (
    (
        "metrics/deletion.py",
        "return area(curve, self.area)",
        "return super().summarise(curve)",
        "test_a_linear_model_has_a_closed_form",
    ),
    (
        "metrics/deletion.py",
        "place = mirrored(relevance_places(maps, units, self.ties), units)",
        "place = relevance_places(maps, units, self.ties)",
        "test_pictures_are_inserted_into_a_blurred_start",
    ),
    (
        "metrics/deletion.py",
        "step_counts(units, self.steps).flip(-1)",
        "step_counts(units, self.steps)",
        "test_pictures_are_inserted_into_a_blurred_start",
    ),
    (
        "metrics/deletion.py",
        "fill=domain.insertion_fill",
        "fill=domain.default_fill",
        "test_pictures_are_inserted_into_a_blurred_start",
    ),
)


def auc(points):
    """RISE's `auc`."""
    return (points.sum() - points[0] / 2 - points[-1] / 2) / (len(points) - 1)


def slow_causal(toys, model, batch, row, heat, mode, step):
    """RISE's `CausalMetric.single_run`, `step` units at a time; the substrate is the default fill."""
    free = model.domain.deletable(batch.x)[row]
    sites = torch.nonzero(free).flatten()
    order = np.flip(np.argsort(heat[sites].numpy(), kind="stable"))
    keep = torch.ones_like(free) if mode == "del" else ~free
    points = [toys.ask(model, batch, row, keep, "prob")]
    for i in range(-(-len(sites) // step)):
        keep = keep.clone()
        keep[sites[order[step * i : step * (i + 1)].copy()]] = mode == "ins"
        points.append(toys.ask(model, batch, row, keep, "prob"))
    return np.array(points)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_agrees_with_the_published_procedure(toys, kind):
    """Ties included: `np.argsort`, flipped, takes the last of equal ones first."""
    model, batch = toys.stage(kind)
    fill = model.domain.default_fill
    maps = toys.random_maps(model, batch, 2, ties=True)
    for i in range(3):
        n = int(model.domain.deletable(batch.x)[i].sum())
        for step in (d for d in range(1, n + 1) if n % d == 0):
            specs = [f"{m}(steps={n // step}, fill={fill}, ties=reverse_index)" for m in ("deletion", "insertion")]
            gone, back = (toys.score(s, model, batch.take([i]), maps.sample(i)) for s in specs)
            for j in range(2):
                heat = maps.sites()[j, i]
                points = slow_causal(toys, model, batch, i, heat, "del", step)
                assert gone.curve[j, 0].numpy() == pytest.approx(points, abs=1e-12)
                assert gone.value[j, 0] == pytest.approx(auc(points), abs=1e-12)
                points = slow_causal(toys, model, batch, i, heat, "ins", step)
                assert back.curve[j, 0].numpy()[::-1] == pytest.approx(points, abs=1e-12)
                assert back.value[j, 0] == pytest.approx(auc(points), abs=1e-12)


@pytest.mark.parametrize("steps", [1, 5, 32])
def test_steps_that_do_not_divide_the_units(toys, steps):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 1)
    gone = toys.score(f"deletion(steps={steps})", model, batch, maps)
    back = toys.score(f"insertion(steps={steps}, fill=zero)", model, batch, maps)
    for i in range(3):
        falling = maps.sites()[0, i].argsort(descending=True)
        for k in range(steps + 1):
            keep = torch.ones(36, dtype=torch.bool)
            keep[falling[: k * 36 // steps]] = False
            assert gone.curve[0, i, k] == pytest.approx(toys.ask(model, batch, i, keep, "prob"), abs=1e-12)
            assert back.curve[0, i, steps - k] == pytest.approx(toys.ask(model, batch, i, ~keep, "prob"), abs=1e-12)


def test_pictures_are_inserted_into_a_blurred_start(toys):
    """At 224 pixels 11 taps of deviation 5; here, a seventh of the size, 3 taps of deviation 5/7."""
    body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(32 * 32, 3)).double()
    model = TorchModel(body, "linear", ImageDomain())
    batch = toys.pictures(model, 2, 1, 32)
    maps = toys.random_maps(model, batch, 1)
    scores = toys.score("insertion(steps=4)", model, batch, maps)
    taps = torch.exp(-0.5 * (torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64) * 7 / 5) ** 2)
    taps = taps / taps.sum()
    blurred = torch.nn.functional.conv2d(batch.x["pixels"], torch.outer(taps, taps)[None, None], padding=1)
    for i in range(2):
        falling = maps.sites()[0, i].argsort(descending=True)
        for k in range(5):
            pixels = blurred[i].flatten().clone()
            pixels[falling[: k * 256]] = batch.x["pixels"][i].flatten()[falling[: k * 256]]
            with torch.no_grad():
                p = body(pixels[None]).softmax(1)[0, batch.target[i]]
            assert scores.curve[0, i, 4 - k] == pytest.approx(float(p), abs=1e-10)
    text_model, text = toys.stage("text")
    tokens = toys.random_maps(text_model, text, 1)
    default, pad = (toys.score(s, text_model, text, tokens).value for s in ("insertion", "insertion(fill=pad)"))
    assert torch.equal(default, pad)


@pytest.mark.parametrize(("kind", "n"), [("image", 36), ("text", 4)])
def test_a_linear_model_has_a_closed_form(toys, kind, n):
    """X1: logits fall by the sorted contributions; insertion climbs them back in the same order."""
    model, batch = toys.stage(kind, bent_model=False, n=1)
    right = toys.truth(model, batch)
    worth = right[0].flatten()[model.domain.deletable(batch.x)[0]].sort(descending=True).values
    climbed = torch.cat([torch.zeros(1, dtype=torch.float64), worth.cumsum(0)])
    clean = toys.probe_on(model).clean(batch).read("logit")[0]
    maps = toys.maps_of(model, batch, right, *(m.values for m in toys.random_maps(model, batch, 4).items))
    fill = model.domain.default_fill
    gone, back = (
        toys.score(f"{m}(steps={n}, output=logit, fill={fill})", model, batch, maps).value[:, 0]
        for m in ("deletion", "insertion")
    )
    assert float(gone[0]) == pytest.approx(auc((clean - climbed).detach().numpy()), abs=1e-9)
    assert float(back[0]) == pytest.approx(auc((clean - worth.sum() + climbed).detach().numpy()), abs=1e-9)
    assert (gone[1:] > gone[0]).all() and (back[1:] < back[0]).all()


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6), steps=st.sampled_from([1, 4, 9, 36]))
def test_they_are_raw_forms_of_morf_and_lerf(toys, seed, steps):
    """X12: deletion = p − MoRF and, where the steps divide the units, insertion = p − LeRF; nothing is asked twice."""
    model, batch = toys.stage("image", n=2)
    maps = toys.random_maps(model, batch, 2, seed=seed)
    probe = toys.probe_on(model)
    p = probe.clean(batch).read("prob")
    for raw, drop in ((f"deletion(steps={steps})", "morf"), (f"insertion(steps={steps}, fill=zero)", "lerf")):
        falls = toys.score(f"{drop}(steps={steps}, area=trapezoid)", model, batch, maps, probe)
        spent = probe.spent.forwards
        scores = toys.score(raw, model, batch, maps, probe)
        assert probe.spent.forwards == spent
        assert torch.equal(scores.curve, falls.curve)
        assert torch.allclose(scores.value, p - falls.value, atol=1e-14)


def test_the_most_relevant_first_of_incremental_deletion(toys):
    """The authors' `id_order=descending`: the mean over α = 0, 1/L … (L − 1)/L."""
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 2)
    down = toys.score("deletion(steps=32, area=left)", model, batch, maps)
    for j in range(2):
        for i in range(3):
            falling = maps.sites()[j, i].argsort(descending=True)
            points = []
            for alpha in np.linspace(0, 1, num=32, endpoint=False):
                keep = torch.ones(36, dtype=torch.bool)
                keep[falling[: int(36 * alpha)]] = False
                points.append(toys.ask(model, batch, i, keep, "prob"))
            assert down.value[j, i] == pytest.approx(np.mean(points), abs=1e-12)
    flipped = toys.maps_of(model, batch, *(-a.values for a in maps.items))
    assert torch.equal(toys.score("ids", model, batch, flipped).curve, down.curve[..., :-1])


def test_what_is_not_offered(toys):
    for spec in ("insertion(ties=percentile_compat)", "insertion(area=left)", "deletion(area=simpson)",
                 "deletion(steps=0)"):  # fmt: skip
        with pytest.raises(SpecError, match=spec.split("=")[1].rstrip(")")):
            toys.metric(spec)


def test_a_text_without_words_has_no_score(toys):
    model = toys.words()
    batch = toys.sentences(model, (0, 3))
    maps = toys.random_maps(model, batch, 1)
    for spec in ("deletion", "insertion"):
        scores = toys.score(spec, model, batch, maps)
        assert scores.status[0] == ("undefined: the input has no token units to delete", "ok")
