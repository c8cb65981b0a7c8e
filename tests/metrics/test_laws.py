"""The laws of METRICS §13 that hold for every metric along an order, as one table."""

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.core.types import OK
from heatcheck.metrics.curves import area
from heatcheck.probe.numerics import Numerics
from heatcheck.probe.probe import Probe

L = 6
KINDS = ("image", "text")
QUICK = settings(max_examples=3, deadline=None)


@dataclass(frozen=True)
class Law:
    """A metric and what is known about it.

    Args:
        spec: the metric; `{fill}` stands for the domain's own.
        gone: how many of n units are deleted at each point of its curve.
        still: its score on a model that does not look, where that says `p`.
        low: the lowest score possible where the clean probability is `p`.
        high: the highest.
    """

    spec: str
    gone: object = None
    still: object = lambda p: 0 * p
    low: object = lambda p: p - 1
    high: object = lambda p: p

    def on(self, model, **params):
        """The spec on a model, with more parameters."""
        id, _, given = self.spec.format(fill=model.domain.default_fill).rstrip(")").partition("(")
        return f"{id}({', '.join([g for g in [given] if g] + [f'{k}={v}' for k, v in params.items()])})"


def evenly(n):
    return [k * n // L for k in range(L + 1)]


def rationales(n):
    return [math.ceil(n * q / 100) for q in (1, 5, 10, 20, 50)]


def raw(p):
    return p


def zero(p):
    return 0 * p


def one(p):
    return 0 * p + 1


CURVES = {
    "morf": Law(f"morf(steps={L})", evenly),
    "lerf": Law(f"lerf(steps={L})", evenly),
    "abpc": Law(f"abpc(steps={L})", evenly, low=lambda p: 0 * p - 1, high=one),
    "deletion": Law(f"deletion(steps={L})", evenly, still=raw, low=zero, high=one),
    "insertion": Law(
        f"insertion(steps={L}, fill={{fill}})",
        lambda n: [n - k for k in evenly(n)][::-1],
        still=raw,
        low=zero,
        high=one,
    ),
    "ids": Law(f"ids(steps={L})", lambda n: evenly(n)[:-1], still=raw, low=zero, high=one),
    "irof": Law("irof(units=site)", lambda n: list(range(n + 1)), low=lambda p: 1 - 1 / p, high=one),
    "comprehensiveness": Law("comprehensiveness", rationales),
    "sufficiency": Law("sufficiency", lambda n: [n - k for k in rationales(n)][::-1]),
}
SOFT = {
    "average_drop": Law("average_drop", low=zero, high=one),
    "increase_in_confidence": Law("increase_in_confidence", low=zero, high=one),
}
ALL = {**CURVES, **SOFT}
over = pytest.mark.parametrize("kind", KINDS)
curves = pytest.mark.parametrize("law", CURVES.values(), ids=CURVES)
everything = pytest.mark.parametrize("law", ALL.values(), ids=ALL)


class Watching(Probe):
    """A probe that remembers which masks it was asked about, and about which sample."""

    def deletions(self, batch, fill, masks):
        self.seen = getattr(self, "seen", [])
        self.seen.append((masks.rows, masks.keep(torch.arange(len(masks.rows)))))
        return super().deletions(batch, fill, masks)


@over
@pytest.mark.parametrize("law", [v for k, v in CURVES.items() if k != "irof"], ids=[k for k in CURVES if k != "irof"])
def test_x1_the_true_order_is_best_and_its_reverse_worst(toys, kind, law):
    """On a linear model's logits, by rearrangement; all others lie between. IROF reads probabilities alone."""
    model, batch = toys.stage(kind, bent_model=False, n=1)
    right = toys.truth(model, batch).detach()
    drawn = [a.values for a in toys.random_maps(model, batch, 8).items]
    maps = toys.maps_of(model, batch, right, -right, *drawn)
    sign = 1 if toys.metric(law.on(model)).higher_is_better else -1
    value = sign * toys.score(law.on(model, output="logit"), model, batch, maps).value[:, 0]
    assert (value <= value[0] + 1e-12).all() and (value >= value[1] - 1e-12).all()
    assert value[0] > value[1]


@over
@pytest.mark.parametrize("steps", ["n", 2])
def test_x1_what_two_opposite_orders_lose_is_everything(toys, kind, steps):
    """MoRF + LeRF = Σ c and ABPC(−A) = −ABPC(A), for any order and a number of steps that divides n."""
    model, batch = toys.stage(kind, bent_model=False, n=1)
    n = int(model.domain.deletable(batch.x).sum())
    steps = n if steps == "n" else steps
    total = float(toys.truth(model, batch).sum())
    maps = toys.random_maps(model, batch, 2)
    turned = toys.maps_of(model, batch, *(-a.values for a in maps.items))
    tail = f"(steps={steps}, output=logit)"
    morf, lerf, abpc = (toys.score(m + tail, model, batch, maps).value for m in ("morf", "lerf", "abpc"))
    assert torch.allclose(morf + lerf, torch.tensor(total, dtype=torch.float64), atol=1e-9)
    assert torch.allclose(toys.score("abpc" + tail, model, batch, turned).value, -abpc, atol=1e-12)


@over
@curves
@QUICK
@given(seed=st.integers(0, 10**6))
def test_x2_increasing_changes_of_the_map_change_no_bit(toys, kind, law, seed):
    model, batch = toys.stage(kind, n=2)
    maps = toys.random_maps(model, batch, 2, seed=seed)
    moved = toys.increasing(model, batch, maps)
    probe = toys.probe_on(model)
    a, b = (toys.score(law.on(model), model, batch, m, probe) for m in (maps, moved))
    assert torch.equal(a.value, b.value)


@over
@pytest.mark.parametrize("law", SOFT.values(), ids=SOFT)
def test_x2_soft_masks_mind_more_than_order(toys, kind, law):
    """They bear factors and constants, not any increasing change."""
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 4)
    same, other = (
        toys.maps_of(model, batch, *(change(a.values) for a in maps.items))
        for change in (lambda a: 3 * a + 1, torch.exp)
    )
    value, kept, moved = (toys.score(law.spec, model, batch, m).value for m in (maps, same, other))
    assert torch.allclose(value, kept, atol=1e-9)
    assert "drop" not in law.spec or not torch.allclose(value, moved, atol=1e-6)


@over
@everything
@QUICK
@given(seed=st.integers(0, 10**6), ties=st.booleans())
def test_x3_scores_keep_within_bounds(toys, kind, law, seed, ties):
    model, batch = toys.stage(kind, n=2)
    maps = toys.random_maps(model, batch, 3, seed=seed, ties=ties)
    probe = toys.probe_on(model)
    p = probe.clean(batch).read("prob")
    scores = toys.score(law.on(model), model, batch, maps, probe)
    good = torch.tensor([[s == OK for s in row] for row in scores.status])
    inside = (scores.value >= law.low(p) - 1e-12) & (scores.value <= law.high(p) + 1e-12)
    assert (inside | ~good).all() and good.any()


@over
@curves
def test_x6_masks_are_nested_and_exactly_as_large_as_they_should_be(toys, kind, law):
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 2, ties=True)
    probe = Watching(model, Numerics(forward=4, backward=4))
    toys.score(law.on(model), model, batch, maps, probe)
    free = model.domain.deletable(batch.x)
    for rows, keep in probe.seen:
        for i in range(3):
            own = ~keep[rows == i] & free[i]
            expected = law.gone(int(free[i].sum()))
            for method in own.reshape(2, -1, own.shape[1]):
                sizes = method.sum(1).tolist()
                assert sizes[: len(expected)] == expected and set(sizes[len(expected) :]) <= {expected[-1]}
                assert (method[:-1] <= method[1:]).all()


@over
@pytest.mark.parametrize("law", [v for k, v in CURVES.items() if k in ("morf", "lerf", "deletion", "insertion")],
                         ids=["morf", "lerf", "deletion", "insertion"])  # fmt: skip
def test_x6_curves_run_from_the_input_to_the_fill(toys, kind, law):
    model, batch = toys.stage(kind)
    probe = toys.probe_on(model)
    curve = toys.score(law.on(model), model, batch, toys.random_maps(model, batch, 2), probe).curve
    assert torch.equal(curve[..., 0], probe.clean(batch).read("prob").expand(2, -1))
    assert torch.equal(curve[..., -1], probe.deleted(batch, model.domain.default_fill).read("prob").expand(2, -1))


@everything
def test_x6_deleting_what_is_the_fill_already_changes_nothing(toys, law):
    """Where half of a picture is zero, maps that differ only there score alike if they rank it last."""
    model = toys.bent()
    batch = toys.pictures(model, 2)
    pixels = batch.x["pixels"].clone()
    pixels[..., :3, :] = 0
    batch = toys.batch_of(model, batch.x.replace(pixels=pixels))
    values = toys.random_maps(model, batch, 1).items[0].values
    low = values[:, 3:].amin((1, 2)) - 1
    ramp = torch.arange(18, dtype=torch.float64).reshape(3, 6) / 100
    up, down = values.clone(), values.clone()
    up[:, :3], down[:, :3] = low[:, None, None] + ramp, low[:, None, None] + ramp.flip(0, 1)
    scores = toys.score(law.on(model), model, batch, toys.maps_of(model, batch, up, down))
    assert torch.equal(scores.value[0], scores.value[1])


@over
@everything
def test_x8_a_model_that_does_not_look(toys, kind, law):
    """No drop at all, or the clean probability at every step."""
    if kind == "image":
        model = toys.constant()
        batch = toys.pictures(model, 2)
    else:
        model = toys.words()
        with torch.no_grad():
            model.module().head.weight.zero_()
        batch = toys.sentences(model, (4, 6))
    probe = toys.probe_on(model)
    expected = law.still(probe.clean(batch).read("prob"))
    value = toys.score(law.on(model), model, batch, toys.random_maps(model, batch, 2), probe).value
    assert torch.allclose(value, expected.expand(2, -1), atol=1e-15)


@over
@everything
def test_x9_the_order_of_samples_changes_nothing(toys, kind, law):
    model, batch = toys.stage(kind, n=5)
    whole = toys.score(law.on(model), model, batch, toys.random_maps(model, batch, 2))
    rows = [3, 0, 4, 2, 1]
    turned = batch.take(rows)
    other = toys.score(law.on(model), model, turned, toys.random_maps(model, turned, 2))
    assert whole.value.shape == (2, 5)
    assert torch.equal(other.value, whole.value[:, rows])
    assert torch.equal(other.value.sort(1).values.mean(1), whole.value.sort(1).values.mean(1))
    assert whole.curve is None or torch.equal(other.curve, whole.curve[:, rows])


@over
@pytest.mark.parametrize("rule", ["mean", "trapezoid", "left"])
@pytest.mark.parametrize("id", ["morf", "lerf"])
def test_x12_raw_curve_to_drop_form_and_back(toys, kind, rule, id):
    """The stored curve gives the score, and the score gives back the area under the curve, however often."""
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 2)
    scores = toys.score(f"{id}(steps={L}, area={rule})", model, batch, maps)
    p, under = scores.curve[..., 0], area(scores.curve, rule)
    assert torch.allclose(p - under, scores.value, atol=1e-14)
    turned = under
    for _ in range(4):
        turned = p - (p - turned)
    assert torch.allclose(turned, p - scores.value, atol=1e-14)


@over
def test_x12_every_drop_has_its_raw_form(toys, kind):
    """MoRF with deletion, LeRF with the curve of IDS, ABPC with both."""
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 2)
    tail = f"(steps={L}, area=left)"
    morf, lerf, abpc = (toys.score(m + tail, model, batch, maps) for m in ("morf", "lerf", "abpc"))
    deletion = toys.score("deletion" + tail, model, batch, maps)
    ids = toys.score(f"ids(steps={L})", model, batch, maps)
    p = morf.curve[..., 0]
    assert torch.allclose(p - morf.value, deletion.value, atol=1e-14)
    assert torch.allclose(p - lerf.value, ids.value, atol=1e-14)
    assert torch.allclose(abpc.value, ids.value - deletion.value, atol=1e-14)
