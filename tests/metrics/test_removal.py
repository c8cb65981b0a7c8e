"""MoRF, LeRF and ABPC, against the definition and against known answers."""

import csv
import os
from itertools import pairwise
from pathlib import Path

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
        "metrics/removal.py",
        "area(curve[..., :1] - curve, self.area)",
        "area(curve, self.area)",
        "test_meta_ranks_dialect",
    ),
    (
        "metrics/removal.py",
        "self.summarise(most) - self.summarise(least)",
        "self.summarise(least) - self.summarise(most)",
        "test_the_score_and_its_curve_hold_the_same",
    ),
    ("metrics/removal.py", "mirrored(place, units) if order == LEAST else place", "place", "test_meta_ranks_dialect"),
    ("metrics/removal.py", "F.pad(asked, (0, 1))", "F.pad(asked, (0, 1), value=1.0)", "test_chefers_dialect"),
    (
        "metrics/removal.py",
        "inclusive = probe.domain.inclusive_percentiles",
        "inclusive = False",
        "test_percentile_compat_deletes_the_sets_of_m4_for_texts",
    ),
    (
        "metrics/removal.py",
        "orders >= gone",
        "orders > gone",
        "test_deleting_what_is_already_the_fill_changes_nothing",
    ),
    (
        "metrics/removal.py",
        "there = (units.count > 0)",
        "there = (units.count >= 0)",
        "test_a_text_without_words_has_no_score",
    ),
    (
        "metrics/removal.py",
        "share = tuple(k / self.steps for k in range(self.steps + 1))",
        "share = tuple((k + 1) / self.steps for k in range(self.steps + 1))",
        "test_agrees_with_the_definition",
    ),
)


def slow_curve(toys, model, batch, row, order, free, steps, output):
    """f(x^(k)), k = 0 … L, deleting the first ⌊kn/L⌋ sites of an order one input at a time."""
    points = []
    for k in range(steps + 1):
        keep = torch.ones(free.shape[1], dtype=torch.bool)
        keep[torch.tensor(order[: k * len(order) // steps], dtype=torch.long)] = False
        points.append(toys.ask(model, batch, row, keep, output))
    return np.array(points)


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("steps", [3, 20])
def test_agrees_with_the_definition(toys, kind, steps):
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 2)
    free = model.domain.deletable(batch.x)
    got = {m: toys.score(f"{m}(steps={steps})", model, batch, maps) for m in ("morf", "lerf", "abpc")}
    for j in range(2):
        for i in range(3):
            sites = torch.nonzero(free[i]).flatten().tolist()
            falling = sorted(sites, key=lambda s: -float(maps.sites()[j, i, s]))
            most = slow_curve(toys, model, batch, i, falling, free, steps, "prob")
            least = slow_curve(toys, model, batch, i, falling[::-1], free, steps, "prob")
            assert got["morf"].curve[j, i].numpy() == pytest.approx(most, abs=1e-12)
            assert got["lerf"].curve[j, i].numpy() == pytest.approx(least, abs=1e-12)
            assert got["abpc"].curve[j, i].numpy() == pytest.approx(least - most, abs=1e-12)
            assert got["morf"].value[j, i] == pytest.approx(np.mean(most[0] - most), abs=1e-12)
            assert got["lerf"].value[j, i] == pytest.approx(np.mean(least[0] - least), abs=1e-12)
    assert torch.equal(got["abpc"].value, got["morf"].value - got["lerf"].value)
    assert got["morf"].share == tuple(k / steps for k in range(steps + 1))


def test_the_score_and_its_curve_hold_the_same(toys):
    """X12: raw curve → drop → raw curve."""
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 2)
    for spec in ("morf", "lerf"):
        scores = toys.score(spec, model, batch, maps)
        clean = scores.curve[..., 0]
        assert torch.allclose(clean - scores.value, scores.curve.mean(-1), atol=1e-14)
    both = toys.score("abpc(area=trapezoid)", model, batch, maps)
    inner = both.curve.sum(-1) - (both.curve[..., 0] + both.curve[..., -1]) / 2
    assert torch.allclose(both.value, inner / 20, atol=1e-14)


@pytest.mark.parametrize(("kind", "n"), [("image", 36), ("text", 4)])
def test_a_linear_model_has_a_closed_form(toys, kind, n):
    """X1: MoRF = Σ (n − j) c_(j) / (n + 1); MoRF + LeRF = Σ c for any order; the true order is best."""
    model, batch = toys.stage(kind, bent_model=False, n=1)
    right = toys.truth(model, batch)
    worth = right[0].flatten()[model.domain.deletable(batch.x)[0]]
    maps = toys.maps_of(model, batch, right, -right, *(m.values for m in toys.random_maps(model, batch, 5).items))
    morf, lerf, abpc = (
        toys.score(f"{m}(steps={n}, output=logit)", model, batch, maps).value[:, 0] for m in ("morf", "lerf", "abpc")
    )
    falling = worth.sort(descending=True).values
    closed = sum((n - j) * float(c) for j, c in enumerate(falling)) / (n + 1)
    assert float(morf[0]) == pytest.approx(closed, abs=1e-9)
    assert torch.allclose(morf + lerf, worth.sum(), atol=1e-9)
    assert float(abpc[1]) == pytest.approx(-float(abpc[0]), abs=1e-12)
    assert (morf <= morf[0] + 1e-12).all() and (lerf >= lerf[0] - 1e-12).all() and (abpc <= abpc[0] + 1e-12).all()
    assert float(abpc[2:].mean()) < float(abpc[0]) - 0.1


@pytest.mark.parametrize("kind", ["image", "text"])
def test_negation_with_ties_takes_the_reverse_order_of_equal_units(toys, kind):
    """ABPC(−A) = −ABPC(A) needs an order that is reversed as a whole, equal units included."""
    model, batch = toys.stage(kind, n=2)
    tied = toys.truth(model, batch).sign()
    maps = toys.maps_of(model, batch, tied, -tied, torch.zeros_like(tied))
    ahead, back = (toys.score(f"abpc(steps=5, ties={ties})", model, batch, maps) for ties in ("index", "reverse_index"))
    assert torch.allclose(back.value[1], -ahead.value[0], atol=1e-12)
    assert torch.allclose(back.value[2], -ahead.value[2], atol=1e-12)
    assert not torch.allclose(ahead.value[1], -ahead.value[0], atol=1e-6)


def test_random_orders_lose_half_on_average(toys):
    model = toys.linear(1, 6)
    batch = toys.pictures(model, 1)
    right = toys.truth(model, batch)
    maps = toys.random_maps(model, batch, 144)
    morf = toys.score("morf(steps=36, output=logit)", model, batch, maps).value[:, 0]
    spread = float(morf.std()) / 12
    assert float(morf.mean()) == pytest.approx(float(right.sum()) / 2, abs=4 * spread)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_monotone_changes_change_nothing(toys, seed):
    """X2, and X3: bounds of probability drops."""
    model, batch = toys.stage("image", n=2)
    maps = toys.random_maps(model, batch, 2, seed=seed)
    moved = toys.increasing(model, batch, maps)
    probe = toys.probe_on(model)
    clean = probe.clean(batch).read("prob")
    for spec in ("morf(steps=6)", "lerf(steps=6)", "abpc(steps=6)"):
        a, b = (toys.score(spec, model, batch, m, probe) for m in (maps, moved))
        assert torch.equal(a.value, b.value) and torch.equal(a.curve, b.curve)
        low, high = (clean - 1, clean) if "abpc" not in spec else (-torch.ones(2), torch.ones(2))
        assert (a.value >= low - 1e-12).all() and (a.value <= high + 1e-12).all()


def test_the_end_is_the_fully_deleted_input(toys):
    """X6."""
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 2)
    probe = toys.probe_on(model)
    end = probe.deleted(batch, "zero").read("prob")
    for spec in ("morf(steps=7)", "lerf(steps=7)"):
        curve = toys.score(spec, model, batch, maps, probe).curve
        assert torch.equal(curve[..., -1], end.expand(2, -1))
        assert torch.equal(curve[..., 0], probe.clean(batch).read("prob").expand(2, -1))


def test_deleting_what_is_already_the_fill_changes_nothing(toys):
    model = toys.bent()
    batch = toys.pictures(model, 2)
    pixels = batch.x["pixels"].clone()
    pixels[..., :3, :] = 0
    batch = toys.batch_of(model, batch.x.replace(pixels=pixels))
    top = torch.zeros(2, 6, 6)
    top[:, :3] = 1
    curve = toys.score("morf(steps=2)", model, batch, toys.maps_of(model, batch, top)).curve
    assert torch.equal(curve[..., 1], curve[..., 0])


def test_a_constant_model_never_falls(toys):
    """X8."""
    model = toys.constant()
    batch = toys.pictures(model, 2)
    for spec in ("morf", "lerf", "abpc"):
        assert toys.score(spec, model, batch, toys.random_maps(model, batch, 2)).value.abs().max() == 0


@pytest.mark.parametrize("spec", ["morf", "lerf"])
def test_percentile_compat_deletes_the_sets_of_m4(toys, spec):
    model = toys.bent(1, 6)
    batch = toys.pictures(model, 2)
    maps = toys.random_maps(model, batch, 2, ties=True)
    got = toys.score(f"{spec}(steps=10, ties=percentile_compat)", model, batch, maps)
    for j in range(2):
        for i in range(2):
            heat = maps.sites()[j, i].numpy()
            points = [toys.ask(model, batch, i, torch.ones(36, dtype=torch.bool), "prob")]
            for k in range(1, 11):
                q = np.percentile(heat, 100 - 10 * k if spec == "morf" else 10 * (k - 1))
                gone = heat > q if spec == "morf" else heat < q
                points.append(toys.ask(model, batch, i, torch.from_numpy(~gone), "prob"))
            assert got.curve[j, i].numpy() == pytest.approx(np.array(points), abs=1e-12)


@pytest.mark.parametrize(("spec", "steps"), [("morf", 100), ("lerf", 100), ("morf", 20), ("lerf", 20)])
def test_percentile_compat_deletes_the_sets_of_m4_for_texts(toys, spec, steps):
    """`PerturbationNLP` with percentile=1: MoRF masks A ≥ the qth for q = 99 … 0, LeRF A ≤ it for q = 1 … 100."""
    model = toys.words(bent=True)
    batch = toys.sentences(model, (7, 4))
    maps = toys.random_maps(model, batch, 2, ties=True)
    got = toys.score(f"{spec}(steps={steps}, ties=percentile_compat)", model, batch, maps)
    for j in range(2):
        for i in range(2):
            free = model.domain.deletable(batch.x)[i]
            heat = maps.sites()[j, i]
            thresholds = np.percentile(heat[free].numpy(), [100 / steps * q for q in range(steps + 1)])
            points = [toys.ask(model, batch, i, torch.ones_like(free), "prob")]
            for q in range(steps - 1, -1, -1) if spec == "morf" else range(1, steps + 1):
                masked = heat >= thresholds[q] if spec == "morf" else heat <= thresholds[q]
                points.append(toys.ask(model, batch, i, ~masked, "prob"))
            assert got.curve[j, i].numpy() == pytest.approx(np.array(points), abs=1e-12)
            assert got.value[j, i] == pytest.approx(points[0] - np.mean(points), abs=1e-12)
    assert torch.equal(got.curve[..., -1], toys.probe_on(model).deleted(batch, "pad").read("prob").expand(2, -1))


def coloured(toys, n=4):
    """A bent model of pictures whose black is known, with labels that it does not always hit."""
    model = toys.bent(3, 6)
    model = TorchModel(model.module(), "coloured", ImageDomain(mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3)))
    batch = toys.pictures(model, n, 3, 6)
    label = batch.target.clone()
    label[0] = (label[0] + 1) % 3
    return model, type(batch)(batch.x, label, label, batch.streams)


def blacked(model, pixels, order, count):
    """Pixels of an order set to black before normalisation, one by one."""
    mean, std = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in (model.domain.mean, model.domain.std))
    plain = (pixels * std + mean).clone()
    for s in order[:count]:
        plain[:, s // 6, s % 6] = 0
    return ((plain - mean) / std)[None]


@pytest.mark.parametrize(("spec", "sign"), [("morf", -1), ("lerf", 1)])
def test_chefers_dialect(toys, spec, sign):
    """Accuracy after blacking 10 … 90 %; the area with (0, clean accuracy) and (1, 0) at its ends."""
    model, batch = coloured(toys)
    maps = toys.random_maps(model, batch, 2)
    probe = toys.probe_on(model)
    written = f"{spec}(steps=10, fill=black, output=accuracy, area=trapezoid, end=zero)"
    got = toys.score(written, model, batch, maps, probe)
    assert probe.spent.forwards <= 4 * (1 + 2 * 9)
    for j in range(2):
        hits = np.zeros((4, 11))
        for i in range(4):
            order = (sign * maps.sites()[j, i]).argsort().tolist()
            for k in range(10):
                with torch.no_grad():
                    out = model.module()(blacked(model, batch.x["pixels"][i], order, int(36 * (k / 10))))
                hits[i, k] = float(out.argmax() == batch.label[i])
        assert got.curve[j].numpy() == pytest.approx(hits)
        accuracy = hits.mean(0)
        area = sum((accuracy[k] + accuracy[k + 1]) / 2 * 0.1 for k in range(10))
        assert accuracy[0] - float(got.value[j].mean()) == pytest.approx(area, abs=1e-12)
    raw = toys.score(written.replace(spec, "deletion"), model, batch, maps, probe)
    if spec == "morf":
        assert float(raw.value[1].mean()) == pytest.approx(area, abs=1e-12)


def test_quantus_dialect(toys):
    """`PixelFlipping`: predictions after every step without the clean one, trapezoids of width 1."""
    model, batch = coloured(toys)
    maps = toys.random_maps(model, batch, 2)
    per_step = 4
    got = toys.score(f"deletion(steps={36 // per_step}, fill=black, ties=index, area=quantus)", model, batch, maps)
    drop = toys.score(f"morf(steps={36 // per_step}, fill=black, ties=index, area=quantus)", model, batch, maps)
    for j in range(2):
        for i in range(4):
            order = np.argsort(-maps.sites()[j, i].numpy(), kind="stable").tolist()
            preds = []
            for step in range(0, 36, per_step):
                with torch.no_grad():
                    out = model.module()(blacked(model, batch.x["pixels"][i], order, step + per_step))
                preds.append(float(out.softmax(1)[0, batch.target[i]]))
            auc = sum((a + b) / 2 for a, b in pairwise(preds))
            assert got.value[j, i] == pytest.approx(auc, abs=1e-12)
            clean = float(got.curve[j, i, 0])
            assert drop.value[j, i] == pytest.approx((len(preds) - 1) * clean - auc, abs=1e-12)


@pytest.mark.parametrize(("spec", "sign"), [("morf", -1), ("lerf", 1)])
def test_meta_ranks_dialect(toys, spec, sign):
    """The area under accuracy, in per cent of the removed share, is what is left of the clean accuracy."""
    model = toys.bent(1, 6)
    batch = toys.pictures(model, 6)
    maps = toys.random_maps(model, batch, 1)
    got = toys.score(f"{spec}(fill=zero, output=accuracy, area=trapezoid)", model, batch, maps)
    accuracy = np.zeros(21)
    for i in range(6):
        order = (sign * maps.sites()[0, i]).argsort()
        for k in range(21):
            pixels = batch.x["pixels"][i].flatten().clone()
            pixels[order[: k * 36 // 20]] = 0
            with torch.no_grad():
                accuracy[k] += float(model.module()(pixels[None]).argmax() == batch.label[i]) / 6
    percent = 100 * sum((a + b) / 2 / 20 for a, b in pairwise(accuracy))
    assert 100 * (accuracy[0] - float(got.value.mean())) == pytest.approx(percent, abs=1e-9)
    assert 0 < percent < 100


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), rule=st.sampled_from(["mean", "trapezoid", "left"]))
def test_raw_and_drop_form_turn_into_each_other(toys, seed, rule):
    """X12: p − (p − area) is the area, and the same again after another turn."""
    model, batch = toys.stage("image", n=2)
    maps = toys.random_maps(model, batch, 2, seed=seed)
    drop = toys.score(f"morf(steps=6, area={rule})", model, batch, maps)
    raw = toys.score(f"deletion(steps=6, area={rule})", model, batch, maps)
    p = drop.curve[..., 0]
    assert torch.equal(drop.curve, raw.curve)
    assert torch.allclose(p - drop.value, raw.value, atol=1e-14)
    assert torch.allclose(p - (p - (p - drop.value)), raw.value, atol=1e-14)


def test_published_rows_have_a_possible_lerf():
    """X12: LeRF = MoRF − ABPC is at least −1 and, like MoRF, at most 1."""
    shared = Path(os.environ.get("HEATCHECK_SHARED", Path(__file__).parents[3] / "shared"))
    path = shared / "spec" / "published" / "m4_table1_scores.csv"
    if not path.exists():
        pytest.skip("the published tables are not here")
    with path.open(encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    assert rows and all(-1 <= float(r["MoRF"]) - float(r["ABPC"]) <= 1 for r in rows)


def test_what_is_not_offered(toys):
    for spec in ("morf(end=one)", "lerf(area=simpson)", "abpc(ties=alphabetical)", "morf(steps=0)"):
        with pytest.raises(SpecError, match=spec.split("=")[1].rstrip(")")):
            toys.metric(spec)


def test_ties_decide_the_order_of_equal_units(toys):
    model = toys.bent(1, 6)
    batch = toys.pictures(model, 2)
    flat = toys.maps_of(model, batch, torch.zeros(2, 6, 6))
    ramp = torch.arange(36.0).reshape(6, 6).expand(2, 6, 6)
    falling = toys.score("morf", model, batch, toys.maps_of(model, batch, -ramp)).curve
    rising = toys.score("morf", model, batch, toys.maps_of(model, batch, ramp)).curve
    assert torch.equal(toys.score("morf(ties=index)", model, batch, flat).curve, falling)
    assert torch.equal(toys.score("morf(ties=reverse_index)", model, batch, flat).curve, rising)
    assert not torch.equal(toys.score("morf", model, batch, flat).curve, falling)


def test_the_three_share_their_passes(toys):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 1)
    probe = toys.probe_on(model)
    toys.score("abpc", model, batch, maps, probe)
    spent = probe.spent.forwards
    assert spent == 3 * (2 + 2 * 19)
    for spec in ("morf", "lerf", "abpc"):
        toys.score(spec, model, batch, maps, probe)
    assert probe.spent.forwards == spent


def test_equal_orderings_are_asked_once(toys):
    model, batch = toys.stage("image")
    one = toys.random_maps(model, batch, 1)
    probe, again = toys.probe_on(model), toys.probe_on(model)
    toys.score("morf", model, batch, one, probe)
    twins = toys.maps_of(model, batch, one.items[0].values, one.items[0].values.exp(), one.items[0].values * 3)
    toys.score("morf", model, batch, twins, again)
    assert again.spent.forwards == probe.spent.forwards == 3 * 21


def test_a_text_without_words_has_no_score(toys):
    model = toys.words()
    batch = toys.sentences(model, (0, 3))
    maps = toys.random_maps(model, batch, 1)
    for spec in ("morf", "lerf", "abpc", "ids", "ids(update=true)"):
        if "update" in spec:
            maps = toys.methods(model, batch, "input_x_gradient")
        scores = toys.score(spec, model, batch, maps)
        assert scores.status[0] == ("undefined: the input has no token units to delete", "ok")
        assert scores.value[0].isnan().tolist() == [True, False]
