"""Single deletion of marked parts, against the published procedure and against known answers."""

from dataclasses import replace

import pytest
import torch
from scipy import ndimage, stats

from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError
from heatcheck.probe.asks import Shape

MUTANTS = (
    (
        "metrics/part_deletion.py",
        "0.5 + 0.5 * value",
        "0.5 - 0.5 * value",
        "test_the_truth_scores_one_and_its_negation_zero",
    ),
    (
        "probe/parts.py",
        "lambda i: ~hidden[i]",
        "lambda i: hidden[i]",
        "test_the_truth_scores_one_and_its_negation_zero",
    ),
    (
        "metrics/part_deletion.py",
        "probe.domain.dilate(own, batch.x.take(slice(i, i + 1)), self.dilate) & free[i]",
        "own",
        "test_renderings_take_the_place_of_the_fill",
    ),
    (
        "probe/parts.py",
        "after[shown] = probe.named_answers(batch, rows[shown], names, make)",
        "after[shown] = probe.named_answers(batch, rows[shown], names, lambda i: make(0 * i))",
        "test_renderings_take_the_place_of_the_fill",
    ),
    (
        "probe/parts.py",
        "read(output)[rows] - after",
        "read(output)[rows] + after",
        "test_the_truth_scores_one_and_its_negation_zero",
    ),
)


def with_parts(batch, n=5, seed=3):
    """Random marks on every sample, `n` parts each."""
    rng = torch.Generator().manual_seed(seed)
    shape = batch.x["pixels"].shape[2:] if "pixels" in batch.x else batch.x["ids"].shape[1:]
    parts = [torch.rand(n, *shape, generator=rng) < 0.2 for _ in range(len(batch))]
    return replace(batch, references=tuple({"parts": p} for p in parts))


def slow_score(toys, model, batch, row, heat, dilate):
    """FunnyBirds' protocol, one part at a time; the re-rendered picture is the filled one."""
    parts = batch.references[row]["parts"]
    free = model.domain.deletable(batch.x)[row]
    clean = toys.ask(model, batch, row, torch.ones(heat.numel(), dtype=torch.bool))
    worth, drop = [], []
    for part in parts:
        near = part
        if part.ndim == 2:
            near = torch.from_numpy(ndimage.maximum_filter(part.numpy(), size=dilate, mode="constant"))
        worth.append(float(heat.flatten()[near.flatten() & free].sum()))
        drop.append(clean - toys.ask(model, batch, row, ~part.flatten()))
    return stats.spearmanr(worth, drop).statistic


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("dilate", [1, 3, 5])
def test_agrees_with_the_published_procedure(toys, kind, dilate):
    model, batch = toys.stage(kind)
    batch = with_parts(batch)
    maps = toys.random_maps(model, batch, 3)
    got = toys.score(f"part_deletion(dilate={dilate})", model, batch, maps).value
    raw = toys.score(f"part_deletion(dilate={dilate}, raw=true)", model, batch, maps).value
    for j in range(3):
        for i in range(3):
            rho = slow_score(toys, model, batch, i, maps.sites()[j, i], dilate)
            assert raw[j, i] == pytest.approx(rho, abs=1e-12)
            assert got[j, i] == pytest.approx(0.5 + 0.5 * rho, abs=1e-12)


def rendered(toys, model, batch, seed=4):
    """The samples without each part as an artist would draw them: new pixels, or other words."""
    rng = torch.Generator().manual_seed(seed)
    own = []
    for i, reference in enumerate(batch.references):
        parts = reference["parts"]
        x = batch.x.take(torch.full((len(parts),), i))
        if "pixels" in x:
            new = torch.randn(x["pixels"].shape, generator=rng, dtype=torch.float64)
            x = x.replace(pixels=torch.where(parts[:, None], new, x["pixels"]))
        else:
            new = torch.randint(3, 30, x["ids"].shape, generator=rng)
            x = x.replace(ids=torch.where(parts & ~x["special"], new, x["ids"]))
        own.append({**reference, "without": x})
    return replace(batch, references=tuple(own))


@pytest.mark.parametrize("kind", ["image", "text"])
def test_renderings_take_the_place_of_the_fill(toys, kind):
    model, batch = toys.stage(kind)
    batch = rendered(toys, model, with_parts(batch))
    part = batch.references[1]
    batch = replace(batch, references=(batch.references[0], {"parts": part["parts"]}, batch.references[2]))
    maps = toys.random_maps(model, batch, 2)
    got = toys.score("part_deletion(dilate=1, raw=true)", model, batch, maps).value
    free = model.domain.deletable(batch.x)
    for j in range(2):
        assert got[j, 1] == pytest.approx(slow_score(toys, model, batch, 1, maps.sites()[j, 1], 1), abs=1e-12)
        for i in (0, 2):
            t = batch.target[i]
            clean = model.logits(batch.x.take(torch.tensor([i])))[0, t]
            parts = batch.references[i]["parts"].flatten(1) & free[i]
            worth = [float(maps.sites()[j, i, p].sum()) for p in parts]
            drop = [
                float(clean - model.logits(batch.references[i]["without"].take(torch.tensor([k])))[0, t])
                for k in range(5)
            ]
            assert got[j, i] == pytest.approx(stats.spearmanr(worth, drop).statistic, abs=1e-12)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_the_truth_scores_one_and_its_negation_zero(toys, kind):
    model, batch = toys.stage(kind, bent_model=False)
    right = toys.truth(model, batch)
    place = torch.arange(right[0].numel()).reshape(right[0].shape) % 3
    batch = replace(batch, references=({"parts": torch.stack([place == k for k in range(3)])},) * 3)
    maps = toys.maps_of(model, batch, right, -right, 3 * right)
    got = toys.score("part_deletion(dilate=1)", model, batch, maps).value
    assert torch.allclose(got, torch.tensor([[1.0], [0.0], [1.0]], dtype=torch.float64).expand_as(got), atol=1e-12)


def test_random_maps_score_one_half_on_average(toys):
    """The rank correlation of five items has deviation 1/2, so the score has 1/4."""
    model = toys.bent(1, 8)
    batch = toys.pictures(model, 8, 1, 8)
    cells = torch.arange(64).reshape(8, 8) // 13
    batch = replace(batch, references=({"parts": torch.stack([cells == k for k in range(5)])},) * 8)
    got = toys.score("part_deletion(dilate=1)", model, batch, toys.random_maps(model, batch, 60)).value
    assert abs(float(got.mean()) - 0.5) < 3 * 0.25 / got.numel() ** 0.5
    assert float(got.std()) == pytest.approx(0.25, rel=0.1)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_all_methods_together_cost_one_pass_per_part(toys, kind):
    model, batch = toys.stage(kind)
    unit = toys.metric("part_deletion").resolve(model.domain)
    for known in (with_parts(batch), rendered(toys, model, with_parts(batch))):
        probe = toys.probe_on(model)
        toys.score("part_deletion", model, known, toys.random_maps(model, known, 6), probe)
        named = 0
        for i, reference in enumerate(known.references):
            named += len(unit.asks(Shape(model.domain, known.x.take(torch.tensor([i])), None, reference), "any"))
        assert probe.spent.forwards == named <= 3 * 6


def test_what_has_no_ranking_is_a_status(toys):
    """One part, none that is marked, a constant map, a constant model; a sample without the reference is skipped."""
    model, batch = toys.stage("image")
    marks = with_parts(batch).references
    batch = replace(batch, references=({"parts": marks[0]["parts"][:1]}, {"parts": marks[1]["parts"][:0]}, {}))
    scores = toys.score("part_deletion", model, batch, toys.random_maps(model, batch, 1))
    few = "undefined: there are fewer than two parts, or all have the same attribution or the same drop"
    assert scores.status[0][:2] == (few, few)
    assert (
        scores.status[0][2]
        == "skipped: part_deletion needs a reference 'parts', and none was given (docs/references.md says how to add one)"
    )
    batch = with_parts(batch)
    assert toys.score("part_deletion", model, batch, toys.maps_of(model, batch, torch.zeros(3, 6, 6))).status == (
        (few,) * 3,
    )
    dull = toys.constant()
    still = with_parts(toys.pictures(dull, 2))
    assert toys.score("part_deletion", dull, still, toys.random_maps(dull, still, 1)).status == ((few,) * 2,)


def test_references_that_do_not_fit_are_refused(toys):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 1)
    odd = replace(batch, references=({"parts": torch.ones(2, 5, 5, dtype=torch.bool)},) * 3)
    with pytest.raises(HeatcheckError, match="has 25 sites, but the input has 36"):
        toys.score("part_deletion", model, odd, maps)
    full = rendered(toys, model, with_parts(batch))
    short = replace(full, references=tuple({**r, "parts": r["parts"][:4]} for r in full.references))
    with pytest.raises(HeatcheckError, match="`without` holds 5 inputs"):
        toys.score("part_deletion", model, short, maps)


@pytest.mark.parametrize("dilate", [0, 4, -1])
def test_a_square_without_a_middle_is_refused(toys, dilate):
    with pytest.raises(SpecError, match=f"dilate={dilate} must be an odd number"):
        toys.metric(f"part_deletion(dilate={dilate})")
