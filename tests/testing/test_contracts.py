"""Every shipped component keeps every promise it makes; a new file is tested without touching this one."""

import itertools
import random
from dataclasses import replace

import pytest
import torch

from heatcheck.core import catalogue
from heatcheck.core.types import OK, HeatcheckError, NotApplicable, Scores
from heatcheck.methods.gradients import Saliency
from heatcheck.metrics.sds import SingleDeletion
from heatcheck.testing import (
    additive,
    additive_text,
    bag_of_words,
    bias_free_relu,
    check_method,
    constant,
    contract_cases,
    contract_tests,
    gap_linear,
    linear,
    method_checks,
    metric_checks,
    one_head_attention,
    probe_for,
    skipped_checks,
    toy_batch,
)
from heatcheck.testing.contracts import staged
from heatcheck.testing.zoo import brief

METHOD_VARIANTS = (
    "occlusion(units=segment)",
    "integrated_gradients(baseline=uniform)",
    "smoothgrad(of=occlusion, samples=3)",
    "saliency(output=prob, reduction=l2)",
)
METRIC_VARIANTS = (
    "sds(units=segment)",
    "morf(units=slic(9))",
    "ids(update=true, steps=5)",
    "abpc(ties=index)",
    "mprt(variant=smooth, copies=2)",
    "mprt(order=independent, layers=0)",
)
FEWER = {"samples": 12, "designs": 2, "steps": 12}
COSTLY = {"shapley_sampling": {"samples": 4}, "sensitivity_n": {"samples": 6}}
"""A sample is as many passes as there are units, or as numbers of units that are deleted."""
KNOWN: dict[str, str] = {
    "saliency_metric-direction": "crops move pixels, and the toys know what a pixel is worth only in its own place",
}


def shipped(kind):
    """Every component with its defaults, but few samples where it draws a thousand."""
    built = [catalogue.build(kind, id) for id in sorted(catalogue.entries(kind))]
    return cases(
        *(
            replace(c, **{k: n for k, n in {**FEWER, **COSTLY.get(c.id, {})}.items() if getattr(c, k, 0) > n})
            for c in built
        )
    )


def variants(kind, *specs):
    """Components with other parameters must behave as well; what they claim, they claim for their defaults."""
    general = {*method_checks.GENERAL, *metric_checks.GENERAL}
    built = [catalogue.build(kind, spec) for spec in specs]
    return [case for case in cases(*built) if case.values[1] in general]


def cases(*components):
    """Known failures are listed with their reason, and must still fail."""
    for case in contract_cases(*components):
        known = [pytest.mark.xfail(reason=KNOWN[case.id])] if case.id in KNOWN else []
        yield pytest.param(*case.values, id=case.id, marks=[*case.marks, *known])


@pytest.mark.parametrize(("method", "check"), [*shipped("method"), *variants("method", *METHOD_VARIANTS)])
def test_method(method, check):
    check(method)


@pytest.mark.parametrize(("metric", "check"), [*shipped("metric"), *variants("metric", *METRIC_VARIANTS)])
def test_metric(metric, check):
    check(metric)


@pytest.mark.parametrize("id", sorted(catalogue.entries("method")))
def test_every_method_is_checked_on_whatever_it_is_for(id):
    method = staged(catalogue.build("method", brief(id)))
    checked = {model.domain.modality for model, _ in method_checks.scenes(method, None)}
    assert checked == set(method.facts["on"])


# -- the checks themselves: each catches what it is for -----------------------------------------------------------


def broken(base, attribute, **facts):
    """A method whose `attribute(self, probe, batch)` is wrong, or whose claims are."""
    space = {"facts": {**base.facts, **facts}}
    if attribute is not None:
        space["attribute"] = attribute
    return type(f"Broken{base.__name__}", (base,), space)()


def forgets_the_sample(self, probe, batch):
    return Saliency().attribute(probe, batch) * torch.arange(1, len(batch) + 1).reshape(
        -1, *[1] * (leaf_of(batch).ndim - 1)
    )


def leaf_of(batch):
    return batch.x["pixels"] if "pixels" in batch.x else torch.zeros(len(batch), 1, 1)


def listens_to_global_noise(self, probe, batch):
    slope = Saliency().attribute(probe, batch)
    return slope + torch.randn(slope.shape, dtype=slope.dtype)


def leaves_a_hook(self, probe, batch):
    probe.model.module().register_forward_hook(lambda m, a, out: None)
    return Saliency().attribute(probe, batch)


def works_in_place(self, probe, batch):
    slope = Saliency().attribute(probe, batch)
    batch.target.mul_(0).add_(1)
    return slope


def unfreezes_on_failure(self, probe, batch):
    probe.model.module().requires_grad_(True)
    slope = Saliency().attribute(probe, batch)
    probe.model.module().requires_grad_(False)
    return slope


def swallows_errors(self, probe, batch):
    try:
        return Saliency().attribute(probe, batch)
    except RuntimeError:
        return torch.zeros_like(probe.domain.leaf(batch.x))


def gives_nan(self, probe, batch):
    return Saliency().attribute(probe, batch) / 0


def gives_other_sites(self, probe, batch):
    return torch.ones(len(batch), 3, 3, 3, 3)


def counts_padding(self, probe, batch):
    return Saliency().attribute(probe, batch) / probe.domain.shape(batch.x)[1]


def asks_twice(self, probe, batch):
    probe.logits(batch.x)
    return Saliency().attribute(probe, batch)


def minds_the_batch_size(self, probe, batch):
    return Saliency().attribute(probe, batch) * probe.numerics.backward


def minds_the_dtype(self, probe, batch):
    slope = Saliency().attribute(probe, batch)
    return slope * (2 if slope.dtype == torch.float32 else 1)


def changes_every_time(self, probe, batch, calls=itertools.count()):
    return Saliency().attribute(probe, batch) * next(calls)


def is_square(self, probe, batch):
    return Saliency().attribute(probe, batch).square()


def counts_layers(self, probe, batch):
    return Saliency().attribute(probe, batch) * len(list(probe.model.module().modules()))


def counts_columns(self, probe, batch):
    slope = Saliency().attribute(probe, batch)
    return slope * torch.arange(slope.shape[-1 if slope.ndim == 4 else 1]).reshape([-1] if slope.ndim == 4 else [-1, 1])


@pytest.mark.parametrize(
    ("attribute", "facts", "check"),
    [
        (changes_every_time, {}, "same_answer_twice"),
        (minds_the_batch_size, {}, "batch_size_irrelevant"),
        (forgets_the_sample, {}, "order_and_neighbours_irrelevant"),
        (counts_padding, {}, "padding_irrelevant"),
        (leaves_a_hook, {}, "model_untouched"),
        (works_in_place, {}, "model_untouched"),
        (unfreezes_on_failure, {}, "model_untouched"),
        (swallows_errors, {}, "model_untouched"),
        (listens_to_global_noise, {}, "global_rng_untouched"),
        (gives_nan, {}, "finite_and_shaped"),
        (minds_the_dtype, {}, "float32_near_float64"),
        (gives_other_sites, {}, "finite_and_shaped"),
        (None, {"uses": ()}, "reasoned_skip"),
        (asks_twice, {}, "passes_predicted"),
        (None, {}, "repr_rebuilds"),
        (None, {}, "complete"),
        (lambda self, probe, batch: torch.ones_like(probe.domain.leaf(batch.x)), {}, "dummy"),
        (is_square, {}, "linear"),
        (counts_layers, {}, "implementation_invariant"),
        (counts_columns, {}, "symmetric"),
        (None, {}, "nonnegative"),
        (None, {}, "target_free"),
        (is_square, {}, "gradient_on_linear"),
    ],
)
def test_a_broken_method_is_caught(attribute, facts, check):
    run = getattr(method_checks, f"check_{check}")
    with pytest.raises((AssertionError, HeatcheckError), match="saliency"):
        run(broken(Saliency, attribute, **facts), [gap_linear(), bag_of_words()])


def test_the_whole_contract_names_the_check_that_failed():
    with pytest.raises(AssertionError, match=r"check_batch_size_irrelevant: saliency on gap_linear: calls of 1"):
        check_method(broken(Saliency, minds_the_batch_size))


def test_claims_that_cannot_be_checked_are_refused():
    with pytest.raises(AssertionError, match="magical"):
        check_method(broken(Saliency, None, properties=("magical",)))


class Constant(SingleDeletion):
    """Scores made to order."""

    def score(self, probe, batch, maps):
        return Scores(self.made(probe, batch, maps))


def scored(made, **facts):
    return type("Broken", (Constant,), {"made": staticmethod(made), "facts": {**SingleDeletion.facts, **facts}})()


def mean_of(maps):
    return maps.sites().double().mean(-1)


@pytest.mark.parametrize(
    ("made", "facts", "check"),
    [
        (lambda p, b, m, n=itertools.count(): mean_of(m) * 0 + next(n), {}, "same_answer_twice"),
        (lambda p, b, m: mean_of(m) * p.numerics.forward, {}, "batch_size_irrelevant"),
        (lambda p, b, m: mean_of(m) - mean_of(m).mean(1, keepdim=True), {}, "order_and_neighbours_irrelevant"),
        (lambda p, b, m: mean_of(m) - mean_of(m).mean(0), {}, "order_and_neighbours_irrelevant"),
        (lambda p, b, m: mean_of(m) + p.spent.forwards, {}, "order_and_neighbours_irrelevant"),
        (lambda p, b, m: mean_of(m) * 0 + 1.5, {}, "inside_range"),
        (lambda p, b, m: mean_of(m) * 0 - 1.5, {}, "inside_range"),
        (lambda p, b, m: mean_of(m) + torch.rand(1), {}, "global_rng_untouched"),
        (lambda p, b, m: mean_of(m) + m.items[0].values.mul_(2).sum() * 0, {}, "model_untouched"),
        (lambda p, b, m: mean_of(m), {}, "passes_predicted"),
        (lambda p, b, m: mean_of(m), {"needs": ("reference:boxes",)}, "same_answer_twice"),
        (lambda p, b, m: mean_of(m), {"needs": ("method",)}, "reasoned_skip"),
        (lambda p, b, m: mean_of(m), {}, "repr_rebuilds"),
        (lambda p, b, m: -mean_of(m), {}, "direction"),
        (lambda p, b, m: mean_of(m), {"better": "lower"}, "direction"),
        (lambda p, b, m: mean_of(m), {}, "monotone_invariant"),
        (lambda p, b, m: mean_of(m), {}, "scale_invariant"),
        (lambda p, b, m: mean_of(m), {}, "sign_invariant"),
        (lambda p, b, m: mean_of(m), {}, "shift_invariant"),
    ],
)
def test_a_broken_metric_is_caught(made, facts, check):
    run = getattr(metric_checks, f"check_{check}")
    expected = NotApplicable if facts.get("needs") == ("reference:boxes",) else AssertionError
    with pytest.raises(expected, match="sds"):
        run(scored(made, **facts))


def test_scores_of_the_wrong_shape_or_without_reasons_are_caught():
    class Raw(Constant):
        def with_statuses(self, scores, maps):
            return scores

    def check(scores, name="shape_and_status"):
        unit = type("Broken", (Raw,), {"score": lambda self, p, b, m: scores(m, b)})()
        with pytest.raises((AssertionError, HeatcheckError), match="sds"):
            getattr(metric_checks, f"check_{name}")(unit)

    def ok(m, b):
        return tuple((OK,) * len(b) for _ in m.items)

    check(lambda m, b: Scores(torch.zeros(len(b), len(m) + 1)))
    check(lambda m, b: Scores(torch.full((len(m), len(b)), torch.nan), ok(m, b)))
    check(lambda m, b: Scores(torch.zeros(len(m), len(b)), (("undefined: x",) * len(b),) * len(m)))
    check(lambda m, b: Scores(torch.full((len(m), len(b)), torch.nan), (("bad",) * len(b),) * len(m)))
    check(lambda m, b: Scores(torch.zeros(len(m), len(b)), curve=torch.zeros(len(m), len(b), 3), share=(0.0, 1.0)))
    check(lambda m, b: Scores(torch.zeros(len(m), len(b)), ok(m, b)), "failed_maps_keep_their_status")
    check(lambda m, b: Scores(torch.full((len(m), len(b)), torch.inf), ok(m, b)), "constant_map_handled")
    check(lambda m, b: Scores(torch.full((len(m), len(b)), torch.inf), ok(m, b)), "constant_model_handled")


test_a_third_party_gets_readable_cases = contract_tests("input_x_gradient")


def test_skips_carry_their_reasons():
    assert "reference" in skipped_checks(catalogue.build("metric", "synscore"))["check_direction"]
    assert skipped_checks(catalogue.build("metric", "sds")) == {}
    (case,) = [c for c in contract_cases(catalogue.build("metric", "synscore")) if c.id == "synscore-direction"]
    assert case.marks[0].name == "skip"


# -- the toys ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [linear, additive, bias_free_relu, gap_linear, constant, bag_of_words, additive_text, one_head_attention]
)
def test_toys_are_the_same_every_time_and_small(make):
    a, b = make(), make()
    assert a.identity == b.identity and a.identity != make(seed=1).identity
    assert a.dtype == torch.float64 and make(dtype=torch.float32).dtype == torch.float32
    assert sum(p.numel() for p in a.module().parameters()) < 2000
    x = a.inputs(4)
    assert all(torch.equal(x.take(slice(0, 2))[k], v) for k, v in a.inputs(2).tensors.items())
    assert torch.equal(toy_batch(a, 3).target, a.logits(a.inputs(3)).argmax(1))


@pytest.mark.parametrize("make", [linear, additive, constant, bag_of_words, additive_text])
def test_contributions_are_what_deletions_cost(make):
    model = make()
    batch = toy_batch(model, 3)
    probe = probe_for(model)
    units = probe.units("cell", batch)
    lost = probe.clean(batch).read("logit") - probe.deleted(batch, model.domain.default_fill).read("logit")
    worth = model.contributions(batch.x, batch.target).flatten(1)
    torch.testing.assert_close(worth.sum(1), lost)
    after = probe.singles(batch, model.domain.default_fill, units).reshape(3, units.width).read("logit")
    torch.testing.assert_close(units.sum(worth), probe.clean(batch).read("logit")[:, None] - after)


def test_toys_without_a_truth_say_so():
    with pytest.raises(HeatcheckError, match="gap_linear"):
        gap_linear().contributions(gap_linear().inputs(1), torch.tensor([0]))


def test_attention_of_the_toy_sums_to_one_and_skips_padding():
    model = one_head_attention()
    x = model.inputs(3)
    weights = model.module().weights(model.domain.leaf(x), x["attention"])
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=torch.float64))
    assert not weights.transpose(1, 2)[x["attention"] == 0].any()


def test_a_randomised_text_toy_embeds_with_its_own_weights():
    model = bag_of_words()
    twin = model.randomised("embed", 0)
    x = model.inputs(1)
    assert torch.equal(twin.domain.leaf(x), twin.module().embed(x["ids"]))
    assert not torch.equal(twin.domain.leaf(x), model.domain.leaf(x))


def test_listening_to_pythons_own_generator_is_caught():
    def draws(self, probe, batch):
        return Saliency().attribute(probe, batch) * random.random()

    with pytest.raises(AssertionError, match="the global seed changed a map"):
        method_checks.check_global_rng_untouched(broken(Saliency, draws), [gap_linear()])
