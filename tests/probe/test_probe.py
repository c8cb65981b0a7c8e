"""The only road to the model: exact shapes, nothing asked twice, everything counted."""

from dataclasses import replace

import pytest
import torch

from heatcheck.core import catalogue
from heatcheck.core.types import NotApplicable
from heatcheck.models.black_box import CallableModel
from heatcheck.probe.answers import scalar
from heatcheck.probe.calls import Spent, threads
from heatcheck.probe.deletions import Masks
from heatcheck.probe.numerics import Numerics
from heatcheck.probe.probe import Probe
from heatcheck.testing import (
    additive,
    additive_text,
    bias_free_relu,
    gap_linear,
    one_head_attention,
    probe_for,
    toy_batch,
    toy_maps,
)
from heatcheck.testing.watch import counting

MODELS = {"image": additive(), "text": additive_text()}
MUTANTS = (
    (
        "probe/calls.py",
        "yield index, out[: len(index)]",
        "yield index, out",
        "test_padding_is_neither_counted_nor_returned",
    ),
    (
        "probe/calls.py",
        "self.spent.forwards += len(index)\n",
        "self.spent.forwards += size\n",
        "test_padding_is_neither_counted_nor_returned",
    ),
    (
        "probe/calls.py",
        "padded = torch.cat([index, index[:1].expand(short)]) if short else index",
        "padded = index",
        "test_every_call_has_the_exact_shape",
    ),
    (
        "probe/calls.py",
        "smaller: dict[str, Any] = {direction: size // 2}",
        "smaller: dict[str, Any] = {direction: 1}",
        "test_running_out_of_memory_halves_the_calls",
    ),
    (
        "probe/calls.py",
        "torch.set_num_threads(before)",
        "pass",
        "test_threads_are_put_back_also_after_an_error",
    ),
    (
        "probe/deletions.py",
        'h.update(b"clean" if whole else how + packed)',
        "h.update(how + packed)",
        "test_the_clean_answer_is_shared_by_every_fill_and_mask",
    ),
    (
        "probe/deletions.py",
        "batch.streams.seed if filler.random else None",
        "None",
        "test_a_random_fill_is_kept_apart_by_seed",
    ),
    (
        "probe/deletions.py",
        'h.update(f"{own}|{batch.targets[row]}|".encode())',
        'h.update(f"{own}|".encode())',
        "test_answers_belong_to_a_target",
    ),
    (
        "probe/deletions.py",
        "filler.random else None]).encode()\n        known = self._known_about(batch)",
        "filler.random else None]).encode()\n        known = Known({})",
        "test_stored_answers_save_the_passes",
    ),
    (
        "probe/deletions.py",
        "return units.index[i // width] != (i % width)[:, None]",
        "return units.index[i // width] == (i % width)[:, None]",
        "test_single_deletions_on_an_additive_model_are_the_contributions",
    ),
    (
        "probe/inside.py",
        "return torch.stack([place.maps(seen[-1].detach()), place.maps(grad)], 1).contiguous()",
        "return torch.stack([place.maps(seen[-1].detach()), -place.maps(grad)], 1).contiguous()",
        "test_activations_equal_autograd",
    ),
)


@pytest.fixture(params=["image", "text"])
def model(request):
    return MODELS[request.param]


def random_masks(model, batch, n, seed=0):
    sites = model.domain.deletable(batch.x).shape[1]
    keep = torch.rand(n * len(batch), sites, generator=torch.Generator().manual_seed(seed)) < 0.5
    return Masks(torch.arange(len(batch)).repeat_interleave(n), lambda i: keep[i]), keep


# -- what is asked -----------------------------------------------------------------------------------------------


def test_answers_equal_the_models_own(model):
    batch = toy_batch(model, 3)
    probe = probe_for(model)
    fill = model.domain.default_fill
    masks, keep = random_masks(model, batch, 5)
    got = probe.deletions(batch, fill, masks).read("logit")
    unit = catalogue.build("fill", fill)
    full = unit.full(model.domain, batch)
    for i, row in enumerate(masks.rows.tolist()):
        one = torch.tensor([row])
        x = unit.erase(model.domain, batch.x.take(one), keep[i : i + 1], full.take(one))
        torch.testing.assert_close(got[i], model.logits(x)[0, batch.target[row]], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        probe.clean(batch).read("logprob"),
        model.logits(batch.x).log_softmax(1).gather(1, batch.target[:, None])[:, 0],
    )


def test_single_deletions_on_an_additive_model_are_the_contributions(model):
    batch = toy_batch(model, 3)
    probe = probe_for(model)
    units = probe.units("cell", batch)
    after = probe.singles(batch, model.domain.default_fill, units).reshape(3, units.width).read("logit")
    drop = probe.clean(batch).read("logit")[:, None] - after
    worth = units.sum(model.contributions(batch.x, batch.target).flatten(1))
    torch.testing.assert_close(drop, worth, rtol=1e-9, atol=1e-9)


def test_what_is_deleted_entirely_is_the_fill(model):
    batch = toy_batch(model, 2)
    fill = model.domain.default_fill
    full = catalogue.build("fill", fill).full(model.domain, batch)
    got = probe_for(model).deleted(batch, fill).read("logit")
    expected = model.logits(full).gather(1, batch.target[:, None])[:, 0]
    torch.testing.assert_close(got, expected)


# -- exact shapes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 8])
def test_every_call_has_the_exact_shape(model, size):
    batch = toy_batch(model, 5)
    probe = probe_for(model, forward=size, backward=size + 1)
    with counting(model) as forward:
        probe.clean(batch)
        probe.singles(batch, model.domain.default_fill, probe.units("cell", batch))
        probe.logits(batch.x)
        list(probe.answers(batch, torch.arange(5), batch.x.take))
    assert set(forward) == {size}
    with counting(model) as backward:
        probe.gradient(batch, "logit")
        probe.gradient(batch, "prob")
    assert set(backward) == {size + 1}


def test_padding_is_neither_counted_nor_returned(model):
    batch = toy_batch(model, 5)
    probe = probe_for(model, forward=4)
    assert probe.logits(batch.x).shape[0] == 5
    assert (probe.spent.forwards, probe.spent.padding, probe.spent.backwards) == (5, 3, 0)
    probe.gradient(batch, "logit")
    assert (probe.spent.forwards, probe.spent.backwards, probe.spent.padding) == (10, 5, 6)


def test_position_and_neighbours_change_no_bit(model):
    batch = toy_batch(model, 7)
    probe = probe_for(model)
    reference = probe.logits(batch.x)
    for order in ([6, 5, 4, 3, 2, 1, 0], [3], [2, 2, 5]):
        assert torch.equal(probe_for(model).logits(batch.x.take(torch.tensor(order))), reference[order])


def test_progress_is_told_in_passes(model):
    told = []
    probe = replace(probe_for(model), tick=told.append)
    probe.logits(toy_batch(model, 5).x)
    assert told == [4, 1]
    told.clear()
    probe.gradient(toy_batch(model, 3), "logit")
    assert sum(told) == 6  # a forward and a backward pass each


# -- nothing is asked twice --------------------------------------------------------------------------------------


def test_the_clean_answer_is_shared_by_every_fill_and_mask():
    model = MODELS["image"]
    batch = toy_batch(model, 3)
    probe = probe_for(model)
    probe.clean(batch)
    whole = Masks(torch.arange(3), lambda i: torch.ones(len(i), 64, dtype=torch.bool))
    for fill in ("zero", "black", "blur", "uniform"):
        probe.deletions(batch, fill, whole)
    assert probe.spent.forwards == 3
    assert probe.spent.asked == 15


def test_equal_deletions_are_asked_once_and_fills_are_kept_apart():
    model = MODELS["image"]
    batch = toy_batch(model, 2)
    probe = probe_for(model)
    units = probe.units("cell", batch)
    first = probe.singles(batch, "zero", units)
    assert probe.spent.forwards == 32
    again = probe.singles(batch, "zero", units)
    assert probe.spent.forwards == 32
    assert torch.equal(first.rows, again.rows)
    other = probe.singles(batch, "black", units)
    assert probe.spent.forwards == 64
    assert not torch.equal(first.rows, other.rows)
    assert probe.singles(batch, "blur(sigma=3)", units).rows.ne(probe.singles(batch, "blur", units).rows).any()


def test_repeated_questions_within_one_call_are_asked_once():
    model = MODELS["image"]
    batch = toy_batch(model, 1)
    probe = probe_for(model)
    keep = torch.rand(1, 64, generator=torch.Generator().manual_seed(0)) < 0.5
    got = probe.deletions(batch, "zero", Masks(torch.zeros(200, dtype=torch.long), lambda i: keep.expand(len(i), -1)))
    assert probe.spent.forwards == 1 and probe.spent.asked == 200
    assert (got.rows == got.rows[0]).all()


def test_a_random_fill_is_kept_apart_by_seed():
    model = MODELS["image"]
    batch = toy_batch(model, 1)
    other = replace(batch, streams=replace(batch.streams, seed=1))
    probe = probe_for(model)
    a, b = probe.deleted(batch, "uniform").read("logit"), probe.deleted(other, "uniform").read("logit")
    assert not torch.equal(a, b)
    assert torch.equal(probe.deleted(batch, "zero").rows, probe.deleted(other, "zero").rows)
    assert probe.spent.forwards == 3


def test_answers_belong_to_a_target(model):
    batch = toy_batch(model, 3)
    other = replace(batch, target=1 - batch.target)
    probe = probe_for(model)
    torch.testing.assert_close(probe.clean(batch).read("logit"), -probe.clean(other).read("logit"))
    torch.testing.assert_close(probe.gradient(batch, "logit"), -probe.gradient(other, "logit"))


def test_altered_inputs_neither_use_nor_feed_the_memo(model):
    batch = toy_batch(model, 3)
    probe = probe_for(model)
    clean = probe.clean(batch).read("logit")
    held = dict(probe.memo)
    moved = batch.with_inputs(model.domain.with_leaf(batch.x, 0.5 * model.domain.leaf(batch.x)))
    changed = probe.clean(moved).read("logit")
    assert not torch.equal(changed, clean)
    assert probe.memo.keys() == held.keys()
    assert torch.equal(probe.clean(batch).read("logit"), clean)
    assert not torch.equal(probe.gradient(moved, "prob"), probe.gradient(batch, "prob"))


def test_altered_copies_of_one_sample_are_kept_apart(model):
    batch = toy_batch(model, 1).take([0, 0, 0])
    leaf = model.domain.leaf(batch.x) * torch.tensor([1.0, 0.5, 0.25]).reshape(
        3, *[1] * (model.domain.leaf(batch.x).ndim - 1)
    )
    moved = batch.with_inputs(model.domain.with_leaf(batch.x, leaf))
    got = probe_for(model).clean(moved).read("logit")
    expected = model.logits(moved.x).gather(1, moved.target[:, None])[:, 0]
    torch.testing.assert_close(got, expected)
    assert len(set(got.tolist())) == 3


def test_stored_answers_save_the_passes(model):
    batch = toy_batch(model, 3)
    first = probe_for(model)
    units = first.units("cell", batch)
    answers = first.singles(batch, model.domain.default_fill, units)
    second = Probe(model, first.numerics, memo=dict(first.memo))
    assert torch.equal(second.singles(batch, model.domain.default_fill, units).rows, answers.rows)
    assert second.spent.forwards == 0


def test_known_logits_are_remembered_as_clean_answers(model):
    batch = toy_batch(model, 3)
    probe = probe_for(model)
    probe.remember_clean(batch, probe_for(model).logits(batch.x))
    assert torch.equal(probe.clean(batch).rows, probe_for(model).clean(batch).rows)
    assert probe.spent.forwards == 0


def test_units_are_computed_once_per_batch():
    model = MODELS["image"]
    batch = toy_batch(model, 2)
    probe = probe_for(model)
    assert probe.units("slic(9)", batch) is probe.units("slic(9)", batch)
    assert probe.units("slic(9)", batch.take([0])).index.shape[0] == 1


def test_eight_methods_cost_single_deletion_as_much_as_one(model):
    batch = toy_batch(model, 3)
    metric = catalogue.build("metric", "sds")
    one, eight = probe_for(model), probe_for(model)
    metric(one, batch, toy_maps(model, batch, ["random"]))
    metric(eight, batch, toy_maps(model, batch, [f"random-{i}" for i in range(8)]))
    assert eight.spent.forwards == one.spent.forwards > 0


# -- gradients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [bias_free_relu, one_head_attention])
@pytest.mark.parametrize("output", ["logit", "prob", "logprob", "margin"])
def test_gradients_equal_autograd(make, output):
    model = make()
    batch = toy_batch(model, 5)
    leaf = model.domain.leaf(batch.x).detach().clone().requires_grad_()
    out = scalar(model.logits(model.domain.with_leaf(batch.x, leaf)), batch.target, output)
    (expected,) = torch.autograd.grad(out.sum(), leaf)
    torch.testing.assert_close(probe_for(model).gradient(batch, output), expected)


def test_a_gradient_is_asked_once_per_output(model):
    batch = toy_batch(model, 3)
    probe = probe_for(model)
    first = probe.gradient(batch, "logit")
    assert probe.gradient(batch, "logit") is first
    assert probe.spent.backwards == 3
    probe.gradient(batch, "prob")
    assert probe.spent.backwards == 6


def test_a_black_box_has_no_gradients():
    model = gap_linear(dtype=torch.float32)
    box = CallableModel(lambda x: model.module()(x), "box", model.domain)
    batch = toy_batch(model, 1)
    with pytest.raises(NotApplicable, match=r"box.*black box"):
        probe_for(box).gradient(batch, "logit")
    assert torch.equal(probe_for(box).clean(batch).rows, probe_for(model).clean(batch).rows)


@pytest.mark.parametrize("layer", ["0", "1", "2"])
def test_activations_equal_autograd(layer):
    model = bias_free_relu()
    batch = toy_batch(model, 5)
    maps, slopes = probe_for(model).activations(batch, layer, "logit")
    head = int(layer) + 1
    net = model.module()
    expected = net[:head](batch.x["pixels"]).detach().requires_grad_()
    out = net[head:](expected).gather(1, batch.target[:, None]).sum()
    (grad,) = torch.autograd.grad(out, expected)
    torch.testing.assert_close(maps, expected.detach())
    torch.testing.assert_close(slopes, grad)


def test_only_the_head_behind_the_layer_builds_a_graph():
    model = bias_free_relu()
    graph = {}
    net = model.module()
    for name in ("0", "1", "2", "3"):
        net.get_submodule(name).register_forward_hook(
            lambda m, a, out, name=name: graph.__setitem__(name, out.requires_grad)
        )
    probe_for(model).activations(toy_batch(model, 2), "1", "logit")
    assert graph["0"] is False and graph["2"] is True and graph["3"] is True
    assert [len(m._forward_hooks) for m in (net[0], net[1], net[2])] == [1, 1, 1]


def test_forward_questions_build_no_graph(model):
    probe = probe_for(model)
    with torch.enable_grad():
        out = probe.logits(toy_batch(model, 3).x)
    assert not out.requires_grad and not out.is_inference()
    assert probe.spent.graphs == 0


def test_a_randomised_twin_answers_for_itself_and_spends_on_the_same_account(model):
    batch = toy_batch(model, 3)
    probe = probe_for(model)
    clean = probe.clean(batch).read("logit")
    twin = probe.randomised("weigh", 0)
    assert not torch.equal(twin.clean(batch).read("logit"), clean)
    assert probe.spent.forwards == 6
    assert torch.equal(probe.clean(batch).read("logit"), clean)


# -- memory and threads ------------------------------------------------------------------------------------------


def short_of_memory(model, largest, error=torch.OutOfMemoryError):
    """The same toy, which cannot be called with more than `largest` inputs."""
    real = model.logits

    def logits(x):
        if len(x) > largest:
            raise error("out of memory, tried to allocate")
        return real(x)

    model.logits = logits
    return model


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError, RuntimeError])
def test_running_out_of_memory_halves_the_calls(error):
    batch = toy_batch(additive(), 6)
    plain = probe_for(additive(), forward=8, backward=8)
    tight = probe_for(short_of_memory(additive(), 3, error), forward=8, backward=8)
    units = plain.units("cell", batch)
    a, b = (p.singles(batch, "zero", units).read("logit") for p in (plain, tight))
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(plain.gradient(batch, "logit"), tight.gradient(batch, "logit"))
    assert not plain.halved and plain.numerics == Numerics(forward=8, backward=8)
    assert tight.halved and tight.numerics == Numerics(forward=2, backward=2)
    assert tight.spent.forwards == plain.spent.forwards


def test_memory_that_does_not_hold_one_input_is_an_error():
    probe = probe_for(short_of_memory(additive(), 0), forward=4)
    with pytest.raises(torch.OutOfMemoryError):
        probe.clean(toy_batch(additive(), 2))
    assert probe.numerics.forward == 1


def test_other_errors_pass_through_at_once():
    model = additive()
    calls = []

    def logits(x):
        calls.append(len(x))
        raise RuntimeError("shapes do not match")

    model.logits = logits
    batch = toy_batch(additive(), 2)
    probe = probe_for(model)
    with pytest.raises(RuntimeError, match="shapes"):
        probe.clean(batch)
    assert calls == [4] and not probe.halved


def test_threads_are_put_back_also_after_an_error():
    before = torch.get_num_threads()
    seen = []

    def fail():
        with threads(before + 1):
            seen.append(torch.get_num_threads())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen == [before + 1] and torch.get_num_threads() == before


def test_a_call_runs_on_the_threads_of_the_numerics():
    before = torch.get_num_threads()
    seen = []
    model = additive()
    real = model.logits
    model.logits = lambda x: seen.append(torch.get_num_threads()) or real(x)
    Probe(model, Numerics(forward=4, threads=2)).logits(model.inputs(2))
    assert seen == [2] and torch.get_num_threads() == before


def test_what_was_spent_since_then():
    now = Spent(forwards=5, asked=9, seconds=2.0)
    then = now.copy()
    now.forwards += 3
    assert now.since(then) == Spent(forwards=3)
    assert then.forwards == 5


# -- questions by name -------------------------------------------------------------------------------------------


def test_a_named_question_is_asked_once_and_kept(model):
    batch = toy_batch(model, 3)
    probe = probe_for(model)
    leaf = model.domain.leaf(batch.x).detach()
    rows, names = torch.tensor([0, 1, 2, 0, 1]), ["half", "half", "half", "half", "third"]
    scale = torch.tensor([2.0, 2.0, 2.0, 2.0, 3.0], dtype=leaf.dtype)
    asked = []

    def make(index):
        asked.append(len(set(index.tolist())))
        own = leaf[rows[index]] / scale[index].reshape(-1, *(1 for _ in leaf.shape[1:]))
        return model.domain.with_leaf(batch.x.take(rows[index]), own)

    got = probe.named_answers(batch, rows, names, make)
    every = torch.arange(5)
    right = model.logits(make(every)).detach().gather(1, batch.target[rows][:, None])[:, 0]
    torch.testing.assert_close(got.read("logit"), right, rtol=1e-12, atol=1e-12)
    assert probe.spent.forwards == 4 and probe.spent.asked == 5
    again = Probe(model, probe.numerics, memo=dict(probe.memo))
    assert torch.equal(again.named_answers(batch, rows, names, make).rows, got.rows) and again.spent.forwards == 0


def test_named_questions_of_altered_inputs_are_not_kept(model):
    batch = toy_batch(model, 2)
    probe = probe_for(model)
    other = batch.with_inputs(batch.x)
    probe.named_answers(other, torch.arange(2), ["a", "a"], other.x.take)
    assert probe.memo == {} and probe.spent.forwards == 2
