"""Maps against given masks: the papers' definitions in plain loops, and known answers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.core.spec import SpecError
from heatcheck.core.types import NotApplicable
from heatcheck.metrics.localisation import PointingGame

MUTANTS = (
    (
        "metrics/localisation.py",
        "inside[values == values.max()]",
        "inside[values >= values.mean()]",
        "test_a_coarse_map_is_carried_to_sites",
    ),
    (
        "metrics/localisation.py",
        "inside[values == values.max()]",
        "inside[values.argmax()]",
        "test_a_neighbouring_token_does_not_hit",
    ),
    (
        "metrics/localisation.py",
        "* min(mask.shape) / SIDE",
        "* max(mask.shape) / SIDE",
        "test_the_tolerance_is_a_circle_that_grows_with_the_picture",
    ),
    (
        "metrics/localisation.py",
        "return distance <= self.tolerance",
        "return distance < self.tolerance",
        "test_a_point_beside_the_reference_hits_within_the_tolerance",
    ),
    (
        "metrics/localisation.py",
        "values.double().clamp_min(0)",
        "values.double().abs()",
        "test_no_positive_relevance_has_no_mass",
    ),
    ("metrics/localisation.py", "hit / (hit + missed)", "hit / missed", "test_relevance_mass_is_the_energy_in_a_box"),
    (
        "metrics/localisation.py",
        "room = (k - above.sum()).double()",
        "room = tied.sum().double()",
        "test_known_answers",
    ),
    (
        "metrics/localisation.py",
        "+ room * (tied & inside).sum() / tied.sum()",
        "+ room.minimum((tied & inside).sum())",
        "test_known_answers",
    ),
    (
        "metrics/localisation.py",
        "touched[touched >= 0]",
        "touched",
        "test_a_rationale_of_special_tokens_alone_holds_nothing",
    ),
    (
        "metrics/localisation.py",
        "top_hits(values, inside, k) / k",
        "top_hits(values, inside, k) / len(values)",
        "test_known_answers",
    ),
)
ALL = ("pointing_game", "relevance_mass", "relevance_rank")


def slow_pointing(heat, mask, free, tolerance=15.0):
    """Zhang et al.: is the maximum within the tolerance of the object? Every tied maximum has the same say."""
    rows, columns = heat.shape
    radius = tolerance / 224 * min(rows, columns)
    peak = max(heat[y, x] for y in range(rows) for x in range(columns) if free[y, x])
    hits = []
    for y in range(rows):
        for x in range(columns):
            if free[y, x] and heat[y, x] == peak:
                away = [((y - v) ** 2 + (x - u) ** 2) ** 0.5 for v, u in zip(*np.nonzero(mask), strict=True)]
                hits.append(min(away) <= radius)
    return sum(hits) / len(hits)


def slow_mass(heat, mask, free):
    """Arras et al.: positive relevance inside over positive relevance."""
    inside = sum(max(a, 0.0) for a, m, f in zip(heat.flat, mask.flat, free.flat, strict=True) if m and f)
    total = sum(max(a, 0.0) for a, f in zip(heat.flat, free.flat, strict=True) if f)
    return inside / total


def slow_rank(heat, mask, free):
    """Arras et al.: hits among the top |R|; a tied site is among them with the chance of a random pick."""
    values, inside = heat[free], mask[free]
    k, hits = inside.sum(), 0.0
    for a, m in zip(values, inside, strict=True):
        more, equal = (values > a).sum(), (values == a).sum()
        hits += m * min(max((k - more) / equal, 0.0), 1.0)
    return hits / k


SLOW = dict(zip(ALL, (slow_pointing, slow_mass, slow_rank), strict=True))


def with_masks(batch, masks):
    return replace(batch, references=tuple({} if m is None else {"mask": m} for m in masks))


def stage(toys, kind, n=4, seed=3):
    """A model with samples, some of whose sites are marked: random ones, special tokens among them."""
    model, batch = toys.stage(kind, n=n)
    shape = batch.x["pixels"].shape[2:] if kind == "image" else batch.x["ids"].shape[1:]
    rng = torch.Generator().manual_seed(seed)
    return model, with_masks(batch, [torch.rand(*shape, generator=rng) < 0.4 for _ in range(n)])


def grids(model, batch, maps, j, i):
    """A map, its mask and the sites that count, in rows and columns."""
    shape = model.domain.shape(batch.x)
    free = model.domain.deletable(batch.x)[i]
    return (v.reshape(shape).numpy() for v in (maps.sites()[j, i].double(), batch.references[i]["mask"], free))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("id", ALL)
def test_agrees_with_the_definition(toys, id, kind, ties):
    model, batch = stage(toys, kind)
    maps = toys.random_maps(model, batch, 5, ties=ties)
    scores = toys.score(id, model, batch, maps)
    compared = 0
    for j in range(5):
        for i in range(4):
            if scores.status[j][i] == "ok":
                expected = SLOW[id](*grids(model, batch, maps, j, i))
                assert scores.value[j, i] == pytest.approx(expected, abs=1e-9)
                compared += 1
    assert compared >= 12


@pytest.mark.parametrize("id", ALL)
def test_a_coarse_map_is_carried_to_sites(toys, id):
    model, batch = stage(toys, "image")
    maps = toys.random_maps(model, batch, 2, shape=(3, 2))
    got = toys.score(id, model, batch, maps).value
    for j in range(2):
        for i in range(4):
            assert got[j, i] == pytest.approx(SLOW[id](*grids(model, batch, maps, j, i)), abs=1e-9)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_known_answers(toys, kind):
    """X4, X5: the mask itself scores 1, its negation 0, a constant map the share of what counts as inside."""
    model, batch = stage(toys, kind, n=1)
    mask, free = batch.references[0]["mask"], model.domain.deletable(batch.x)[0]
    share = mask.flatten()[free].double().mean()
    near = PointingGame().region(mask.reshape(model.domain.shape(batch.x))).flatten()[free].double().mean()
    right = mask.double()[None]
    maps = toys.maps_of(model, batch, right, 1 - right, torch.ones_like(right))
    expected = {"pointing_game": [1, 0, near], "relevance_mass": [1, 0, share], "relevance_rank": [1, None, share]}
    if kind == "image":
        expected["pointing_game"][1] = None  # some sites outside lie within the tolerance
    for id, answers in expected.items():
        got = toys.score(id, model, batch, maps).value[:, 0].tolist()
        for value, answer in zip(got, answers, strict=True):
            assert answer is None or value == pytest.approx(float(answer), abs=1e-12)


def test_random_maps_are_right_as_often_as_the_reference_is_large(toys):
    """X5: the expectation of every metric is a share of the sites."""
    model, batch = stage(toys, "image", n=1)
    mask = batch.references[0]["mask"]
    maps = toys.random_maps(model, batch, 400)
    share = float(mask.double().mean())
    for spec in ("pointing_game(tolerance=0)", "relevance_mass", "relevance_rank"):
        got = toys.score(spec, model, batch, maps).value
        assert float(got.mean()) == pytest.approx(share, abs=4 * float(got.std()) / 400**0.5)
        assert float(got.min()) >= 0 and float(got.max()) <= 1


@settings(max_examples=15, deadline=None)
@given(values=st.lists(st.integers(-3, 3), min_size=36, max_size=36), scale=st.floats(0.01, 100))
def test_increasing_changes_keep_ranks_and_factors_keep_mass(toys, values, scale):
    """X2: the pointing game and rank accuracy see the order alone; relevance mass does not mind a positive factor."""
    model, batch = stage(toys, "image", n=1)
    a = torch.tensor(values, dtype=torch.float64).reshape(1, 6, 6)
    maps = toys.maps_of(model, batch, a, torch.exp(a) - 5, a * scale)
    for id in ("pointing_game", "relevance_rank"):
        plain, bent, scaled = toys.score(id, model, batch, maps).value[:, 0].tolist()
        assert plain == bent == scaled
    mass = toys.score("relevance_mass", model, batch, maps).value[:, 0]
    assert torch.allclose(mass[0], mass[2], atol=1e-12, equal_nan=True)


def test_relevance_mass_is_the_energy_in_a_box(toys):
    """Score-CAM's energy-based pointing game, for a map that is not negative."""
    model, batch = toys.stage("image", n=2)
    box = torch.zeros(6, 6, dtype=torch.bool)
    box[1:4, 2:6] = True
    batch = with_masks(batch, [box, box])
    heat = toys.random_maps(model, batch, 1).items[0].values.abs()
    got = toys.score("relevance_mass", model, batch, toys.maps_of(model, batch, heat)).value[0]
    assert torch.allclose(got, heat[:, 1:4, 2:6].sum((1, 2)) / heat.sum((1, 2)), atol=1e-12)


@pytest.mark.parametrize(("size", "reach"), [((224, 224), 15), ((150, 160), 10), ((112, 300), 7), ((28, 28), 1)])
def test_the_tolerance_is_a_circle_that_grows_with_the_picture(size, reach):
    """15 pixels at 224, measured from the nearest pixel of the reference."""
    from scipy.ndimage import binary_dilation

    mask = torch.zeros(size, dtype=torch.bool)
    y, x = size[0] // 2, size[1] // 2
    mask[y, x] = True
    near = PointingGame().region(mask)
    assert near[y + reach, x] and near[y, x - reach]
    assert not near[y + reach + 1, x] and not near[y, x - reach - 1]
    radius = 15 * min(size) / 224
    offset = np.arange(-reach, reach + 1)
    disc = offset[:, None] ** 2 + offset[None] ** 2 <= radius**2
    mask[2:5, 3] = True
    assert np.array_equal(PointingGame().region(mask).numpy(), binary_dilation(mask.numpy(), disc))


def test_a_point_beside_the_reference_hits_within_the_tolerance(toys):
    model = toys.bent(1, 28)
    mask = torch.zeros(28, 28, dtype=torch.bool)
    mask[10:20, 10:20] = True
    batch = with_masks(toys.pictures(model, 1, 1, 28), [mask])

    def peak(*at):
        heat = torch.zeros(1, 28, 28, dtype=torch.float64)
        for y, x in at:
            heat[0, y, x] = 1.0
        return heat

    maps = toys.maps_of(model, batch, peak((15, 15)), peak((15, 20)), peak((15, 21)), peak((12, 12), (2, 2)))
    assert toys.score("pointing_game", model, batch, maps).value[:, 0].tolist() == [1.0, 1.0, 0.0, 0.5]
    strict = toys.score("pointing_game(tolerance=0)", model, batch, maps).value[:, 0].tolist()
    assert strict == [1.0, 0.0, 0.0, 0.5]


def test_a_neighbouring_token_does_not_hit(toys):
    model = toys.words()
    mask = torch.tensor([False, True, False, False, False, False])
    batch = with_masks(toys.sentences(model, (4,)), [mask])
    heat = torch.eye(6, dtype=torch.float64)[[1, 2, 0]]
    maps = toys.maps_of(model, batch, *(row[None] for row in heat))
    got = toys.score("pointing_game", model, batch, maps).value[:, 0].tolist()
    assert got == [1.0, 0.0, 0.25], "a peak on a special token counts for nothing: the others are tied"


@pytest.mark.parametrize("id", ALL)
def test_special_tokens_do_not_count(toys, id):
    model, batch = stage(toys, "text", n=3)
    maps = toys.random_maps(model, batch, 2)
    loud = toys.maps_of(model, batch, *(torch.where(batch.x["special"], 100.0, a.values) for a in maps.items))
    more = [m["mask"] | special for m, special in zip(batch.references, batch.x["special"], strict=True)]
    marked = toys.score(id, model, with_masks(batch, more), maps).value
    for other in (toys.score(id, model, batch, loud).value, marked):
        assert torch.equal(toys.score(id, model, batch, maps).value.nan_to_num(9), other.nan_to_num(9))


@pytest.mark.parametrize("id", ALL)
def test_references_that_say_nothing_are_reasons(toys, id):
    model = toys.bent()
    batch = toys.pictures(model, 5)
    eye, empty = torch.eye(6, dtype=torch.bool), torch.zeros(6, 6, dtype=torch.bool)
    batch = with_masks(batch, [empty, ~empty, None, torch.eye(5, dtype=torch.bool), eye])
    scores = toys.score(id, model, batch, toys.random_maps(model, batch, 1))
    assert scores.status[0] == (
        "undefined: the mask is empty",
        "undefined: the mask covers everything",
        f"skipped: {id} needs a reference 'mask', and none was given (docs/references.md says how to add one)",
        "undefined: the mask has 25 sites, the input 36",
        "ok",
    )
    assert scores.value[0].isnan().tolist() == [True, True, True, True, False]
    with pytest.raises(NotApplicable, match="needs a reference 'mask'"):
        toys.score(id, model, batch.take([2]), toys.random_maps(model, batch.take([2]), 1))


def test_a_rationale_of_special_tokens_alone_holds_nothing(toys):
    model = toys.words()
    batch = toys.sentences(model, (4, 2))
    batch = with_masks(batch, [batch.x["special"][0], ~batch.x["special"][1]])
    scores = toys.score("relevance_rank", model, batch, toys.random_maps(model, batch, 1))
    assert scores.status[0] == ("undefined: the mask is empty", "undefined: the mask covers everything")


def test_no_positive_relevance_has_no_mass(toys):
    model, batch = stage(toys, "image", n=2)
    heat = -torch.rand(2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores = toys.score("relevance_mass", model, batch, toys.maps_of(model, batch, heat, -heat, 0 * heat))
    reason = ("undefined: the map has no positive relevance",) * 2
    assert scores.status == (reason, ("ok", "ok"), reason)


@pytest.mark.parametrize("tolerance", ["-1", "1e999"])
def test_a_tolerance_that_is_none_is_refused(toys, tolerance):
    with pytest.raises(SpecError, match="tolerance="):
        toys.metric(f"pointing_game(tolerance={tolerance})")


def test_words_are_pointed_at_ranked_and_weighed_by_the_sum_of_their_tokens(toys):
    """Words of two tokens with the sums 4, -1 and 3, of which the second and the third are marked by one token each."""
    model = toys.words()
    batch = toys.sentences(model, (6,))
    mask = torch.tensor([False, False, False, True, False, False, True, False])
    batch = replace(batch, references=({"mask": mask},))
    heat = torch.tensor([[9.0, 2, 2, 5, -6, 0, 3, 9]], dtype=torch.float64)
    maps = toys.maps_of(model, batch, heat)
    found = {
        (id, units): float(toys.score(f"{id}(units={units})", model, batch, maps).value)
        for id in ("pointing_game", "relevance_mass", "relevance_rank")
        for units in ("token", "word")
    }
    assert found["pointing_game", "token"] == 1 and found["pointing_game", "word"] == 0
    assert found["relevance_mass", "token"] == 8 / 12 and found["relevance_mass", "word"] == 3 / 7
    assert found["relevance_rank", "token"] == 1 and found["relevance_rank", "word"] == 0.5
