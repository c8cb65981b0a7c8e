"""Comprehensiveness and sufficiency, against ERASER's definition and against known answers."""

import math

import numpy as np
import pytest
import torch

from heatcheck.core.spec import SpecError

MUTANTS = (
    (
        "metrics/erasure.py",
        "-(-n * percent // 100)",
        "n * percent // 100",
        "test_a_short_text_loses_at_least_one_token",
    ),
    ("metrics/erasure.py", "fall.mean(-1)", "fall.amax(-1)", "test_a_linear_model_has_a_closed_form"),
    (
        "metrics/erasure.py",
        "(units.count[:, None] - sizes).flip(-1)",
        "sizes.flip(-1)",
        "test_a_short_text_loses_at_least_one_token",
    ),
    (
        "metrics/erasure.py",
        "order: ClassVar[str] = MOST",
        "order: ClassVar[str] = LEAST",
        "test_a_short_text_loses_at_least_one_token",
    ),
)
SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)


def slow_falls(toys, model, batch, row, heat, output="prob"):
    """p(x) − p(x without the rationale) and p(x) − p(the rationale alone), for each size of a rationale."""
    free = model.domain.deletable(batch.x)[row]
    sites = torch.nonzero(free).flatten().tolist()
    falling = sorted(sites, key=lambda s: -float(heat[s]))
    clean = toys.ask(model, batch, row, torch.ones_like(free), output)
    without, alone = [], []
    for q in SHARES:
        keep = torch.ones_like(free)
        keep[falling[: math.ceil(len(sites) * q)]] = False
        without.append(clean - toys.ask(model, batch, row, keep, output))
        alone.append(clean - toys.ask(model, batch, row, ~keep, output))
    return np.array(without), np.array(alone)


@pytest.mark.parametrize("output", ["prob", "logit"])
@pytest.mark.parametrize("kind", ["image", "text"])
def test_agrees_with_the_definition(toys, kind, output):
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 2)
    full, enough = (
        toys.score(f"{m}(output={output})", model, batch, maps) for m in ("comprehensiveness", "sufficiency")
    )
    clean = toys.probe_on(model).clean(batch).read(output)
    for j in range(2):
        for i in range(3):
            without, alone = slow_falls(toys, model, batch, i, maps.sites()[j, i], output)
            assert full.value[j, i] == pytest.approx(without.mean(), abs=1e-12)
            assert enough.value[j, i] == pytest.approx(alone.mean(), abs=1e-12)
            assert (clean[i] - full.curve[j, i]).numpy() == pytest.approx(without, abs=1e-12)
            assert (clean[i] - enough.curve[j, i]).numpy()[::-1] == pytest.approx(alone, abs=1e-12)
    assert full.share == SHARES
    assert enough.share == pytest.approx([0.5, 0.8, 0.9, 0.95, 0.99])


@pytest.mark.parametrize("kind", ["image", "text"])
def test_a_linear_model_has_a_closed_form(toys, kind):
    """X1: what goes is the sum of the largest contributions; what is left, the sum of the others."""
    model, batch = toys.stage(kind, bent_model=False, n=1)
    right = toys.truth(model, batch)
    worth = right[0].flatten()[model.domain.deletable(batch.x)[0]].sort(descending=True).values
    maps = toys.maps_of(model, batch, right, -right, *(m.values for m in toys.random_maps(model, batch, 3).items))
    full, enough = (
        toys.score(f"{m}(output=logit)", model, batch, maps).value[:, 0] for m in ("comprehensiveness", "sufficiency")
    )
    top = np.mean([float(worth[: math.ceil(len(worth) * q)].sum()) for q in SHARES])
    assert float(full[0]) == pytest.approx(top, abs=1e-9)
    assert float(enough[0]) == pytest.approx(float(worth.sum()) - top, abs=1e-9)
    assert torch.allclose(full + enough, worth.sum(), atol=1e-9)
    assert (full[1:] <= full[0]).all() and (enough[1:] >= enough[0]).all()


def test_a_short_text_loses_at_least_one_token(toys):
    model = toys.words()
    batch = toys.sentences(model, (1, 3))
    maps = toys.random_maps(model, batch, 1)
    probe = toys.probe_on(model)
    scores = toys.score("comprehensiveness", model, batch, maps, probe)
    assert (scores.curve[0, 0] == probe.deleted(batch, "pad").read("prob")[0]).all()
    assert (scores.curve[0, 1] != probe.clean(batch).read("prob")[1]).all()
    assert (
        toys.score("sufficiency", model, batch, maps, probe).curve[0, 0] == probe.clean(batch).read("prob")[0]
    ).all()


def test_tokens_can_be_taken_out_as_eraser_does(toys):
    model, batch = toys.stage("text")
    maps = toys.random_maps(model, batch, 1)
    scores = toys.score("comprehensiveness(fill=remove)", model, batch, maps)
    assert scores.status == (("ok",) * 3,)


def test_bounds_and_undefined_cases(toys):
    """X3: probability drops lie in [p − 1, p]."""
    model, batch = toys.stage("text")
    maps = toys.random_maps(model, batch, 3, ties=True)
    p = toys.probe_on(model).clean(batch).read("prob")
    for spec in ("comprehensiveness", "sufficiency"):
        value = toys.score(spec, model, batch, maps).value
        assert (value <= p).all() and (value >= p - 1).all()
    empty = toys.sentences(toys.words(), (0, 3))
    model = toys.words()
    for spec in ("comprehensiveness", "sufficiency"):
        scores = toys.score(spec, model, empty, toys.random_maps(model, empty, 1))
        assert scores.status[0] == ("undefined: the input has no token units to delete", "ok")
        with pytest.raises(SpecError, match="percentile_compat"):
            toys.metric(f"{spec}(ties=percentile_compat)")


def test_rationales_share_their_passes_with_curves(toys):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 1)
    probe = toys.probe_on(model)
    toys.score("abpc(steps=36)", model, batch, maps, probe)
    spent = probe.spent.forwards
    toys.score("comprehensiveness", model, batch, maps, probe)
    toys.score("sufficiency", model, batch, maps, probe)
    assert probe.spent.forwards == spent
