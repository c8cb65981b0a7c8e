"""What every metric owes: statuses, exact plans, and numbers that depend on nothing beside them."""

from dataclasses import dataclass, replace

import pytest
import torch

from heatcheck.core import catalogue
from heatcheck.core.types import OK, Attribution, NotApplicable, Scores
from heatcheck.metrics.base import Maps, Metric, circular
from heatcheck.probe.asks import Shape, passes_of

MUTANTS = (
    (
        "metrics/base.py",
        "torch.where(_ok(status), scores.value.double(), torch.nan)",
        "scores.value.double()",
        "test_a_score_that_is_not_finite_is_a_reason",
    ),
    (
        "metrics/base.py",
        "bool(own & asked) or",
        "bool(own | asked) or",
        "test_asking_a_metrics_own_questions_is_circular",
    ),
    (
        "metrics/base.py",
        "or bool(single and single & _single_deletions(asked, shape))",
        "",
        "test_a_word_of_one_token_is_that_token",
    ),
    (
        "metrics/base.py",
        "next((s for s in own if s != OK), OK)",
        "next((s for s in reversed(own) if s != OK), OK)",
        "test_a_score_that_is_not_finite_is_a_reason",
    ),
    (
        "metrics/base.py",
        "first_problem(a.status, finite_status(a.values))",
        "finite_status(a.values)",
        "test_a_map_that_failed_keeps_its_status_and_harms_nobody",
    ),
    (
        "metrics/base.py",
        "torch.where(_ok(maps.status)[..., None], scores.curve, torch.nan)",
        "scores.curve",
        "test_a_map_that_failed_keeps_its_status_and_harms_nobody",
    ),
    (
        "metrics/removal.py",
        "gone = [k * n // self.steps for k in range(self.steps + 1)]",
        "gone = [k * n // self.steps for k in range(1, self.steps)]",
        "test_the_plan_shares_between_metrics_as_the_probe_does",
    ),
)

QUICK = ["sds", "morf", "lerf", "abpc", "morf(ties=percentile_compat)", "ids", "infidelity", "infidelity(samples=7)"]
AGAIN = ["ids(steps=6, update=true)", "mprt"]
KINDS = ["image", "text"]


def masked(model, batch):
    """The batch with a mask reference for each sample."""
    free = model.domain.deletable(batch.x)
    masks = [free[i] & (torch.arange(free.shape[1]) % 2 == 0) for i in range(len(batch))]
    return replace(batch, references=tuple({"mask": m} for m in masks))


def scene(toys, kind, spec, n=5):
    model, batch = toys.stage(kind, n=n)
    batch = masked(model, batch)
    if spec in AGAIN:
        return model, batch, lambda part: toys.methods(model, part, "input_x_gradient", "saliency(output=prob)")
    return model, batch, lambda part: toys.random_maps(model, part, 4, ties=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", [*QUICK, *AGAIN, "synscore"])
def test_no_bit_depends_on_order_neighbours_or_other_methods(toys, kind, spec):
    """X7, X9."""
    model, batch, make = scene(toys, kind, spec)
    whole = toys.score(spec, model, batch, make(batch))
    assert whole.value.shape == (len(make(batch)), 5)
    rows = [3, 0, 4, 2, 1]
    turned = toys.score(spec, model, batch.take(rows), make(batch.take(rows)))
    assert torch.equal(turned.value.nan_to_num(9), whole.value[:, rows].nan_to_num(9))
    assert [list(s) for s in turned.status] == [[s[i] for i in rows] for s in whole.status]
    part = batch.take([4, 1])
    few = toys.score(spec, model, part, make(part))
    assert torch.equal(few.value.nan_to_num(9), whole.value[:, [4, 1]].nan_to_num(9))
    for j in range(len(make(batch))):
        alone = toys.score(spec, model, batch, make(batch).only([j]))
        assert torch.equal(alone.value[0].nan_to_num(9), whole.value[j].nan_to_num(9))
        if whole.curve is not None:
            assert torch.equal(alone.curve[0], whole.curve[j])


@pytest.mark.parametrize("kind", KINDS)
def test_no_bit_depends_on_what_was_asked_before(toys, kind):
    model, batch, make = scene(toys, kind, "sds")
    shared = toys.probe_on(model)
    once = {s: toys.score(s, model, batch, make(batch), shared).value for s in QUICK}
    for spec in reversed(QUICK):
        assert torch.equal(toys.score(spec, model, batch, make(batch)).value.nan_to_num(9), once[spec].nan_to_num(9))
        assert torch.equal(
            toys.score(spec, model, batch, make(batch), shared).value.nan_to_num(9), once[spec].nan_to_num(9)
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", ["sds", "morf", "lerf", "abpc", "ids", "infidelity", "infidelity(samples=7)",
                                  "morf(ties=percentile_compat)", "lerf(ties=percentile_compat)",
                                  "ids(update=true)"])  # fmt: skip
def test_the_plan_is_exact_and_forwards_build_no_graph(toys, kind, spec):
    model, batch = toys.stage(kind, n=1)
    maps = toys.methods(model, batch, "input_x_gradient")
    probe = toys.probe_on(model)
    toys.score(spec, model, batch, maps, probe)
    metric = toys.metric(spec).resolve(model.domain)
    shape = Shape(model.domain, batch.x)
    again = metric.reexplanation_count(shape)
    forwards, backwards = passes_of(metric.asks(shape, "m"), metric.passes(shape))
    if kind == "text" and "percentile" in spec:
        assert probe.spent.forwards <= forwards + again
    else:
        assert probe.spent.forwards == forwards + again
    assert probe.spent.backwards == backwards + again
    assert probe.spent.graphs == 0


def test_the_plan_shares_between_metrics_as_the_probe_does(toys):
    """Windows of one token are single deletions, and IDS at a quarter is LeRF at a quarter."""
    for kind, specs in (("text", ("sds", "infidelity")), ("image", ("lerf", "ids", "morf"))):
        model, batch = toys.stage(kind, n=1)
        maps = toys.random_maps(model, batch, 1)
        probe, asks = toys.probe_on(model), set()
        for spec in specs:
            toys.score(spec, model, batch, maps, probe)
            asks |= toys.metric(spec).resolve(model.domain).asks(Shape(model.domain, batch.x), "m")
        assert probe.spent.forwards == len(asks)
        assert kind == "image" or ("full", "pad") in asks  # a window over all four tokens


def test_asking_a_metrics_own_questions_is_circular(toys):
    @dataclass(frozen=True)
    class Stub:
        asked: frozenset
        name: str = "stub"

        def asks(self, shape):
            return set(self.asked)

    model, batch = toys.stage("image")
    shape = Shape(model.domain, batch.x)
    cells = Stub(frozenset({("single", "zero", "grid(4)", 3), ("clean",)}))
    sds = toys.metric("sds").resolve(model.domain)
    assert circular(cells, sds, shape)
    assert not circular(cells, toys.metric("sds(fill=channel_mean)").resolve(model.domain), shape)
    assert not circular(cells, toys.metric("morf").resolve(model.domain), shape)
    assert not circular(Stub(frozenset({("clean",), ("full", "zero")})), sds, shape)


@pytest.mark.parametrize(("word", "same"), [([-1, 0, 0, 1, 2, 2, -1], True), ([-1, 0, 0, 0, 1, 1, -1], False)])
def test_a_word_of_one_token_is_that_token(toys, word, same):
    """Deleting tokens asks about words what words ask, as soon as a word has one token only."""
    model = toys.words()
    batch = toys.sentences(model, (5,))
    shape = Shape(model.domain, batch.x.replace(word=torch.tensor([word])))
    occlusion = catalogue.build("method", "occlusion").resolve(model.domain)
    sds = toys.metric("sds(units=word)")
    assert circular(occlusion, sds.resolve(model.domain), shape) == same
    assert not circular(occlusion, toys.metric("sds(units=word, fill=unk)").resolve(model.domain), shape)


@pytest.mark.parametrize("spec", [*QUICK, "synscore"])
def test_a_map_that_failed_keeps_its_status_and_harms_nobody(toys, spec):
    model, batch = toys.stage("image")
    batch = masked(model, batch)
    good = toys.random_maps(model, batch, 2)
    alone = toys.score(spec, model, batch, good)
    values = good.items[0].values.clone()
    values[1, 2, 3] = torch.nan
    values[2] = torch.inf
    broken = Attribution(values, batch.target, "broken", status=(OK, "failed: MemoryError", OK))
    scores = toys.score(spec, model, batch, Maps([broken, good.items[1]], model.domain, batch))
    assert scores.status == ((OK, "failed: MemoryError", "failed: the map has infinite values"), (OK,) * 3)
    assert torch.equal(scores.value[1], alone.value[1])
    assert torch.equal(scores.value[0, :1], alone.value[0, :1]) and scores.value[0, 1:].isnan().all()
    if scores.curve is not None:
        assert scores.curve[0, 1:].isnan().all() and torch.equal(scores.curve[0, 0], alone.curve[0, 0])


@pytest.mark.parametrize("spec", ["morf", "lerf", "abpc", "ids", "infidelity"])
def test_a_constant_map_has_a_score(toys, spec):
    model, batch = toys.stage("image")
    scores = toys.score(spec, model, batch, toys.maps_of(model, batch, torch.full((3, 6, 6), 0.1)))
    assert scores.status == ((OK,) * 3,)


def test_accuracy_needs_labels(toys):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 1)
    batch = replace(batch, label=torch.tensor([0, -1, 2]))
    maps = Maps(maps.items, model.domain, batch)
    scores = toys.score("morf(output=accuracy)", model, batch, maps)
    assert scores.status[0][1] == "skipped: morf needs a label that is a class of the model, and this sample has none"
    assert scores.status[0][0] == scores.status[0][2] == OK
    nobody = replace(batch, label=torch.full((3,), -1))
    with pytest.raises(NotApplicable, match="needs a label"):
        toys.score("morf(output=accuracy)", model, nobody, Maps(maps.items, model.domain, nobody))


def test_a_score_that_is_not_finite_is_a_reason(toys):
    @dataclass(frozen=True, kw_only=True, repr=False)
    class Wild(Metric):
        def score(self, probe, batch, maps):
            return Scores(torch.tensor([[1.0, torch.inf, torch.nan]]), ((OK, OK, "undefined: my own reason"),))

    Wild.id, Wild.kind, Wild.facts = "wild", "metric", {"needs": ()}
    model, batch = toys.stage("image")
    scores = Wild()(toys.probe_on(model), batch, toys.random_maps(model, batch, 1))
    assert scores.status == ((OK, "undefined: the score is not finite", "undefined: my own reason"),)
    assert scores.value[0].isnan().tolist() == [False, True, True]


def test_maps_of_any_resolution_meet_on_units(toys):
    model = toys.bent(1, 8)
    batch = toys.pictures(model, 2, 1, 8)
    fine, coarse = (toys.random_maps(model, batch, 1, shape=s).items[0] for s in ((8, 8), (4, 4)))
    maps = Maps([fine, replace(coarse, interpolation="nearest")], model.domain, batch)
    cells = model.domain.units("grid(4)", batch.x)
    got = maps.on(cells).reshape(2, 2, 4, 4)
    assert torch.allclose(got[0], fine.values.reshape(2, 4, 2, 4, 2).sum((2, 4)), atol=1e-12)
    assert torch.allclose(got[1], 4 * coarse.values, atol=1e-12)
    assert torch.allclose(maps.on(cells, "mean").reshape(2, 2, 4, 4)[1], coarse.values, atol=1e-12)
    assert maps.on(model.domain.units("pixel", batch.x)) is maps.sites()


def test_every_metric_says_what_it_is():
    for id, entry in catalogue.entries("metric").items():
        assert entry.facts["better"] in ("higher", "lower"), id
        assert entry.note("Paper") and entry.note("Cost per sample"), id
        for param in entry.params:
            assert f"{param}: " in entry.doc, f"{id} does not document {param}"


def test_a_written_none_is_a_word_where_words_are_taken(toys):
    for spec in ("infidelity(scale=none)", "pscore(normalise=none)"):
        metric = toys.metric(spec)
        assert "none" in metric.params().values() and None not in metric.params().values()
        assert toys.metric(metric.name) == metric
