"""What the base class does for every method, and what every method does at realistic sizes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import Spec, SpecError
from heatcheck.core.types import HeatcheckError, NotApplicable
from heatcheck.methods.base import eraser, method, share_left
from heatcheck.metrics.base import Maps
from heatcheck.models.black_box import CallableModel
from heatcheck.probe.asks import Shape, passes_of
from heatcheck.testing.models import (
    bag_of_words,
    constant,
    fill_weights,
    gap_linear,
    linear,
    one_head_attention,
    tiny_bert,
)
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    (
        "methods/base.py",
        "values / units.area.clamp_min(1)",
        "values",
        "test_a_map_over_units_sums_to_what_each_unit_is_worth",
    ),
    (
        "methods/base.py",
        'streams=batch.streams.derive("method")',
        "streams=batch.streams",
        "test_a_methods_random_fill_is_not_the_one_that_metrics_delete_with",
    ),
    ("methods/base.py", "CANCELLED = 1e-6", "CANCELLED = 1e-30", "test_cancelling_begins_at_a_millionth"),
    ("methods/base.py", "CANCELLED = 1e-6", "CANCELLED = 1e-4", "test_cancelling_begins_at_a_millionth"),
    ("methods/base.py", "torch.where((whole > 0) &", "torch.where((whole >= 0) &", "test_all_of_nothing_is_left"),
    ("methods/base.py", "values = values.relu()", "values = values.abs()", "test_post_comes_after_the_reduction"),
    (
        "methods/base.py",
        "torch.promote_types(probe.model.dtype, torch.float32)",
        "torch.float32",
        "test_maps_are_never_coarser_than_float32",
    ),
)


WRAPPED = [
    "smoothgrad(of=occlusion, samples=3)",
    "smoothgrad(of=lime(samples=9), samples=3)",
    "smoothgrad(of=integrated_gradients(steps=4), samples=3)",
    "vargrad(of=smoothgrad(samples=2), samples=3)",
    "occlusion(units=grid(3))",
    "lime(units=grid(3), samples=32)",
    "random(grid=3)",
    "integrated_gradients(steps=7, baseline=channel_mean)",
]


def every_method():
    fewer = {"samples": 12, "designs": 2}
    few = [
        str(Spec(id, {name: n for name, n in fewer.items() if name in entry.params}))
        for id, entry in catalogue.entries("method").items()
    ]
    return [*few, *WRAPPED]


def explained(lab, spec, model, samples):
    """What a method gives; the contract checks try those that need other networks on toys of their own."""
    try:
        return lab.explain(spec, model, samples)
    except NotApplicable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("spec", every_method())
@pytest.mark.parametrize("make", [gap_linear, one_head_attention])
def test_the_plan_knows_every_pass(spec, make):
    toy = make()
    samples = toy_batch(toy, 5)
    probe = probe_for(toy, forward=3, backward=2)
    try:
        component = catalogue.build("method", spec).resolve(toy.domain)
        component(probe, samples)
    except NotApplicable:
        pytest.skip("the method does not exist for this modality")
    foretold = torch.zeros(2, dtype=torch.long)
    for i in range(len(samples)):
        known = samples.references[i] if samples.references else {}
        shape = Shape(toy.domain, samples.x.take(slice(i, i + 1)), toy, known)
        foretold += torch.tensor(passes_of(component.asks(shape), component.passes(shape)))
    assert [probe.spent.forwards, probe.spent.backwards] == foretold.tolist()


@pytest.mark.parametrize("spec", every_method())
def test_neighbours_and_order_change_no_bit_at_real_sizes(spec, lab):
    """Float32, odd sizes, many channels: where vectorised sums could group otherwise."""
    net = nn.Sequential(
        nn.Conv2d(3, 36, 3, stride=2, padding=1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(36, 5),
    )  # fmt: skip
    model = lab.wrap(fill_weights(net, 0, torch.float32))
    samples = lab.batch(lab.pictures(5, side=30, dtype=torch.float32), [0, 1, 2, 3, 4])
    together = explained(lab, spec, model, samples)
    assert together.values.dtype == torch.float32
    for rows in ([2], [4, 3, 2, 1, 0], [1, 3]):
        some = lab.explain(spec, model, samples.take(rows))
        assert torch.equal(some.values, together.values[rows])


@pytest.mark.parametrize("spec", every_method())
def test_other_call_sizes_change_rounding_only(spec, lab):
    samples = lab.batch(lab.pictures(3))
    want = explained(lab, spec, lab.network(act=nn.ReLU), samples).values
    for size in (1, 5):
        got = lab.explain(spec, lab.network(act=nn.ReLU), samples, forward=size, backward=size + 1).values
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("spec", every_method())
def test_only_target_free_methods_ignore_the_target(spec, lab):
    samples = lab.batch(lab.pictures(2), [0, 1])
    component = catalogue.build("method", spec)
    if component.reads_references:
        left = torch.arange(8).expand(8, 8) < 4
        samples = replace(samples, references=({"parts": torch.stack([left, ~left])},) * 2)
    one, other = (explained(lab, component, lab.network(act=nn.ReLU), replace(samples, target=t)).values for t in (
        torch.tensor([0, 1]), torch.tensor([1, 2])
    ))  # fmt: skip
    assert torch.equal(one, other) == ("target_free" in component.facts["properties"])


@pytest.mark.parametrize("spec", ["integrated_gradients(baseline=uniform)", "lime(fill=uniform, samples=20)",
                                  "rise(fill=uniform, samples=20)", "smoothgrad", "random"])  # fmt: skip
def test_another_seed_draws_anew(spec, lab):
    x = lab.pictures(2)
    a, b = (lab.explain(spec, lab.network(), lab.batch(x, seed=seed)).values for seed in (0, 1))
    assert not torch.isclose(a, b).all(-1).any()


def test_a_methods_random_fill_is_not_the_one_that_metrics_delete_with(lab):
    samples = lab.batch(lab.pictures(2))
    probe = probe_for(lab.wrap(lab.network()))
    nothing = torch.zeros(2, 64, dtype=torch.bool)
    own = eraser(probe, samples, "uniform")(torch.arange(2), nothing)["pixels"]
    theirs = catalogue.build("fill", "uniform").full(probe.domain, samples)["pixels"]
    assert not torch.isclose(own, theirs).any()


class Centred(nn.Module):
    """A linear layer behind the colours' difference from their mean, for bright pictures; for dark ones without it."""

    def __init__(self):
        super().__init__()
        self.weigh = nn.Linear(3 * 64, 2)

    def forward(self, x):
        bright = (x.mean((1, 2, 3)) > 0).to(x.dtype)[:, None, None, None]
        return self.weigh((x - bright * x.mean(1, keepdim=True)).flatten(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spec", ["saliency", "smoothgrad(samples=2, sigma=0.001)", "saliency(post=abs)"])
def test_a_map_that_cancels_out_is_a_status(lab, dtype, spec):
    """The gradient behind a subtracted mean sums to zero over channels: only rounding would be ranked."""
    x = lab.pictures(2, dtype=dtype) + torch.tensor([1.0, -1.0], dtype=dtype)[:, None, None, None]
    got = lab.explain(spec, fill_weights(Centred(), 0, dtype), x)
    id = spec.partition("(")[0]
    assert got.status == (
        "undefined: the values of each pixel cancel out when they are summed, and the map would be rounding noise; "
        f"try {id}(reduction=l2)",
        "ok",
    )
    assert not got.values[0].any() and got.values[1].all()
    wise = lab.explain(f"{id}(reduction=l2)", fill_weights(Centred(), 0, dtype), x)
    assert wise.status == ("ok", "ok") and wise.values.all()


def test_a_text_behind_a_layer_norm_has_the_length_of_its_gradients(lab):
    toy = tiny_bert(dtype=torch.float32)
    batch = toy_batch(toy, 3)
    gradient = lab.raw("saliency", toy, batch)
    assert gradient.sum(-1).abs().sum() < 1e-6 * gradient.abs().sum()
    told = lab.explain("saliency(reduction=sum)", toy, batch)
    assert all(s.startswith("undefined: the values of each token cancel out") for s in told.status)
    assert not told.values.any()
    got = lab.explain("saliency", toy, batch)
    assert got.status == ("ok",) * 3 and not got.signed and got.method == "saliency(reduction=l2)"
    torch.testing.assert_close(got.values, gradient.norm(dim=-1))
    assert lab.explain("saliency(reduction=sum_abs)", toy, batch).status == ("ok",) * 3


def test_a_metric_passes_the_reason_on(lab):
    toy = tiny_bert()
    batch = toy_batch(toy, 2)
    units = [catalogue.build("method", s) for s in ("saliency(reduction=sum)", "saliency")]
    probe = probe_for(toy)
    maps = Maps([unit(probe, batch) for unit in units], toy.domain, batch, units)
    scores = catalogue.build("metric", "sds")(probe, batch, maps)
    assert all(s.startswith("undefined: the values of each token cancel") for s in scores.status[0])
    assert scores.status[1] == ("ok", "ok") and scores.value[0].isnan().all()


@pytest.mark.parametrize(("left", "status"), [(1e-8, "undefined"), (9e-7, "undefined"), (1.1e-6, "ok"), (1e-4, "ok")])
def test_cancelling_begins_at_a_millionth(left, status, lab):
    """Colours weighed 1 + s, s - 1 and 0 keep the share s of their gradient, far above what double precision rounds."""
    toy = linear()
    with torch.no_grad():
        weights = next(p for p in toy.module().parameters() if p.ndim == 2).view(-1, 3, 64)
        weights[:] = torch.tensor([1 + left, left - 1, 0], dtype=weights.dtype)[None, :, None]
    (told,) = lab.explain("saliency", toy, toy_batch(toy, 1)).status
    assert told.partition(":")[0] == status


def test_all_of_nothing_is_left():
    nothing, infinite = torch.zeros(1, 3, 2, 2), torch.full((1, 3, 2, 2), torch.inf)
    assert share_left(torch.cat([nothing, infinite]), torch.zeros(2, 2, 2)).tolist() == [1.0, 1.0]


def test_no_gradient_at_all_is_a_map_of_zeros(lab):
    toy = constant()
    got = lab.explain("saliency", toy, toy_batch(toy, 2))
    assert got.status == ("ok", "ok") and not got.values.any()


def test_images_are_filed_as_before():
    resolved = catalogue.build("method", "saliency").resolve(linear().domain)
    assert resolved.identity() == {
        "id": "saliency", "version": 1, "params": {"output": "logit", "reduction": "sum", "post": "none"},
    }  # fmt: skip


@pytest.mark.parametrize(("post", "change"), [("abs", torch.abs), ("relu", torch.relu)])
def test_post_comes_after_the_reduction(post, change, lab):
    x = lab.pictures()
    plain = lab.raw("saliency", lab.network(), x)
    got = lab.explain(f"saliency(post={post})", lab.network(), x)
    torch.testing.assert_close(got.values, change(plain.sum(1)))
    assert not got.signed


def test_maps_are_never_coarser_than_float32(lab):
    model = lab.wrap(lab.network(dtype=torch.float32))
    for spec in ("occlusion", "saliency", "rise(samples=4)"):
        assert lab.explain(spec, model, lab.batch(lab.pictures(dtype=torch.float32))).values.dtype == torch.float32
    assert lab.explain("constant", lab.network(), lab.pictures()).values.dtype == torch.float64


@pytest.mark.parametrize("id", ["grad_cam", "rise"])
def test_where_a_method_does_not_exist_it_says_why_and_what_to_try(id):
    toy = bag_of_words()
    with pytest.raises(NotApplicable, match=r"not for text: .*; try \w+"):
        catalogue.build("method", id)(probe_for(toy), toy_batch(toy, 1))


@pytest.mark.parametrize("id", ["saliency", "integrated_gradients", "grad_cam", "smoothgrad"])
def test_black_boxes_have_no_gradients(id, lab):
    box = CallableModel(lambda x: x.flatten(1)[:, :3], "box", lab.wrap(nn.Identity()).domain)
    with pytest.raises(NotApplicable, match="black box"):
        lab.explain(id, box, lab.batch(lab.pictures(1, dtype=torch.float32)))


@pytest.mark.parametrize("spec", ["occlusion", "rise(samples=9)", "lime(samples=9)", "smoothgrad(of=occlusion)"])
def test_black_boxes_can_be_asked(spec, lab):
    box = CallableModel(lambda x: x.flatten(1)[:, :3], "box", lab.wrap(nn.Identity()).domain)
    component = catalogue.build("method", spec)
    assert component.uses == ()
    assert lab.explain(component, box, lab.batch(lab.pictures(1, dtype=torch.float32))).status == ("ok",)


def test_accuracy_cannot_be_explained(lab):
    with pytest.raises(NotApplicable, match="step function"):
        lab.explain("occlusion(output=accuracy)", lab.network(), lab.pictures())


# -- users' functions --------------------------------------------------------------------------------------------


def by_hand(model, x, target):
    """The gradient of the target's logit."""
    x = x.detach().requires_grad_()
    return torch.autograd.grad(model(x).gather(1, target[:, None]).sum(), x)[0]


@pytest.fixture
def ask_function(lab, monkeypatch):
    """Declare a function, ask it for maps; the model, the probe and the sizes of the model's calls come back too."""
    monkeypatch.setattr(catalogue, "_own", {})

    def ask(function, n=5, *, forward=3, backward=4, model=None, largest=None):
        method("test_function")(function)
        model = model or lab.wrap(lab.network())
        sizes = []

        def note(_module, args):
            if largest is not None and len(args[0]) > largest:
                raise torch.OutOfMemoryError("out of memory, tried to allocate")
            sizes.append(len(args[0]))

        handle = model.module().register_forward_pre_hook(note)
        probe = probe_for(model, forward=forward, backward=backward)
        found = catalogue.build("method", "test_function")(probe, lab.batch(lab.pictures(n)))
        handle.remove()
        return found.values, probe, sizes

    return ask


def test_a_function_is_a_method(lab, monkeypatch):
    monkeypatch.setattr(catalogue, "_own", {})

    @method("test_twice_the_gradient")
    def twice(model, x, target, *, times=2.0):
        return times * by_hand(model, x, target)

    x = lab.pictures(5)
    got = lab.explain("test_twice_the_gradient(times=4.0)", lab.network(), x)
    torch.testing.assert_close(got.values, 4 * lab.explain("saliency", lab.network(), x).values)
    with pytest.raises(SpecError, match="no parameter 'tims'; did you mean times"):
        catalogue.build("method", "test_twice_the_gradient(tims=1)")


def test_a_functions_result_is_that_of_the_plain_network(lab, ask_function):
    """Hooks, second derivatives and passes through a changed input: whatever autograd can do."""

    def curved(model, x, target):
        x = x.detach().requires_grad_()
        score = model(x.tanh()).softmax(1).gather(1, target[:, None]).sum()
        (slope,) = torch.autograd.grad(score, x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), x)[0]

    got, _, sizes = ask_function(curved, 5)
    samples = lab.batch(lab.pictures(5))
    want = curved(lab.network(), samples.x["pixels"], samples.target)
    torch.testing.assert_close(got, want.sum(1), rtol=1e-6, atol=1e-6 * float(want.abs().max()))
    assert sizes == [4, 4]


def test_a_function_on_texts_gets_embeddings(monkeypatch):
    monkeypatch.setattr(catalogue, "_own", {})
    method("test_function")(by_hand)
    toy = one_head_attention()
    samples = toy_batch(toy, 5)
    got, want = (
        catalogue.build("method", id)(probe_for(toy), samples) for id in ("test_function", "saliency(reduction=sum)")
    )
    torch.testing.assert_close(got.values, want.values)


@pytest.mark.parametrize(("n", "padding"), [(1, 3), (4, 0), (5, 3), (8, 0), (11, 1)])
def test_a_functions_calls_have_the_exact_shape_and_padding_is_no_pass(n, padding, lab, ask_function):
    got, probe, sizes = ask_function(by_hand, n)
    assert sizes == [4] * -(-n // 4)
    spent = probe.spent
    assert (spent.forwards, spent.backwards, spent.asked, spent.slopes, spent.padding) == (n, n, n, n, padding)
    torch.testing.assert_close(got, lab.explain("saliency", lab.network(), lab.pictures(n)).values)


def test_a_functions_maps_do_not_depend_on_neighbours(lab, monkeypatch):
    monkeypatch.setattr(catalogue, "_own", {})
    method("test_function")(by_hand)
    model = lab.wrap(lab.network(dtype=torch.float32))
    samples = lab.batch(lab.pictures(5, dtype=torch.float32))
    together = lab.explain("test_function", model, samples).values
    for rows in ([3], [4, 0, 2]):
        assert torch.equal(lab.explain("test_function", model, samples.take(rows)).values, together[rows])


def test_a_functions_time_counts_as_time_of_gradients(ask_function, monkeypatch):
    """The clock stands still but for what the function itself takes."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("heatcheck.probe.calls.time.perf_counter", lambda: clock.now)

    def slow(model, x, target):
        clock.now += 3.0
        return by_hand(model, x, target)

    _, probe, _ = ask_function(slow, 5)
    assert probe.spent.slope_seconds == 6.0 and probe.spent.seconds == 0.0


def test_forward_time_inside_a_function_is_counted_once(lab, ask_function, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("heatcheck.probe.calls.time.perf_counter", lambda: clock.now)
    model = lab.wrap(lab.network())
    model.module().register_forward_hook(lambda *_: setattr(clock, "now", clock.now + 1.0))

    def both(network, x, target):
        network(x)
        return by_hand(network, x, target)

    _, probe, sizes = ask_function(both, 4, model=model)
    assert sizes == [3, 3, 4]
    assert (probe.spent.seconds, probe.spent.slope_seconds) == (2.0, 1.0)


def test_a_function_without_graph_uses_the_forward_shape(lab, ask_function):
    def drop(model, x, target):
        """Black out one row of pixels at a time."""
        whole = model(x).gather(1, target[:, None])
        rows = []
        for i in range(x.shape[2]):
            gone = x.clone()
            gone[:, :, i] = 0
            rows.append(whole - model(gone).gather(1, target[:, None]))
        return torch.stack(rows, 1).expand(-1, -1, x.shape[3])

    got, probe, sizes = ask_function(drop, 5)
    samples = lab.batch(lab.pictures(5))
    with torch.no_grad():
        want = drop(lab.network(), samples.x["pixels"], samples.target)
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)
    assert set(sizes) == {3} and len(sizes) == 9 * 3  # parts of 4 and 1 samples: two calls and one, nine times
    spent = probe.spent
    assert (spent.forwards, spent.asked, spent.backwards, spent.slopes, spent.graphs) == (45, 45, 0, 0, 0)
    assert spent.seconds > 0 and spent.slope_seconds == 0


def test_under_no_grad_a_function_uses_the_forward_shape_too(ask_function):
    def plain(model, x, target):
        with torch.no_grad():
            return x.sum(1) * model(x.detach().requires_grad_()).gather(1, target[:, None])[..., None]

    _, probe, sizes = ask_function(plain, 5)
    assert set(sizes) == {3} and probe.spent.backwards == 0


@pytest.mark.parametrize("copies", [2, 3])
def test_a_function_may_call_the_model_with_copies_of_its_batch(copies, lab, ask_function):
    """A gradient averaged over points on a line, all of them in one call."""

    def line(model, x, target):
        points = torch.cat([x * (k + 1) / copies for k in range(copies)]).detach().requires_grad_()
        score = model(points).gather(1, target.repeat(copies)[:, None]).sum()
        slope = torch.autograd.grad(score, points)[0]
        return slope.reshape(copies, *x.shape).mean(0)

    got, probe, sizes = ask_function(line, 5)
    samples = lab.batch(lab.pictures(5))
    want = line(lab.network(), samples.x["pixels"], samples.target).sum(1)
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)
    assert set(sizes) == {4}
    assert probe.spent.forwards == probe.spent.backwards == probe.spent.asked == 5 * copies


@pytest.mark.parametrize("rows", [1, 3, 6])
def test_a_call_with_other_inputs_than_the_batch_says_what_to_do(rows, ask_function):
    def wrong(model, x, target):
        return model(x[torch.arange(rows) % len(x)])

    with pytest.raises(HeatcheckError, match=rf"called with {rows} inputs in a part of 4 samples.*whole copies"):
        ask_function(wrong, 4)


def test_memory_that_ends_in_the_forward_pass_halves_the_calls(lab, ask_function):
    got, probe, sizes = ask_function(by_hand, 5, backward=8, largest=3)
    torch.testing.assert_close(got, lab.explain("saliency", lab.network(), lab.pictures(5)).values)
    assert probe.halved and probe.numerics.backward == 2 and set(sizes) == {2}


def test_memory_that_ends_in_the_functions_own_gradient_halves_the_part(lab, ask_function):
    parts = []

    def hungry(model, x, target):
        parts.append(len(x))
        x = x.detach().requires_grad_()
        score = model(x).gather(1, target[:, None]).sum()
        if len(x) > 2:
            score.register_hook(fail)
        return torch.autograd.grad(score, x)[0]

    def fail(_gradient):
        raise torch.OutOfMemoryError("out of memory, tried to allocate")

    got, probe, sizes = ask_function(hungry, 5, backward=8)
    torch.testing.assert_close(got, lab.explain("saliency", lab.network(), lab.pictures(5)).values)
    assert probe.halved and probe.numerics.backward == 2
    assert parts == [5, 4, 2, 2, 1] and sizes == [8, 4, 2, 2, 2]


def test_graphs_that_do_not_fit_together_halve_the_part(lab, ask_function):
    """Memory holds two rows with their graph, however they are divided into calls."""
    held = []
    model = lab.wrap(lab.network())

    def hold(_module, args):
        if sum(held) + len(args[0]) > 2:
            raise torch.OutOfMemoryError("out of memory, tried to allocate")
        held.append(len(args[0]))

    model.module().register_forward_pre_hook(hold)

    def own(network, x, target):
        held.clear()
        return by_hand(network, x, target)

    got, probe, _ = ask_function(own, 5, backward=8, model=model)
    torch.testing.assert_close(got, lab.explain("saliency", lab.network(), lab.pictures(5)).values)
    assert probe.halved and probe.numerics.backward == 2


def test_a_function_that_fails_for_another_reason_is_not_tried_again(ask_function):
    tried = []

    def broken(model, x, target):
        tried.append(len(x))
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        ask_function(broken, 5)
    assert tried == [4]


def test_a_map_over_units_sums_to_what_each_unit_is_worth():
    toy = linear((3, 10, 10))
    samples = toy_batch(toy, 3)
    probe = probe_for(toy)
    units = probe.units("grid(4)", samples)
    got = catalogue.build("method", "occlusion")(probe, samples)
    worth = units.sum(toy.contributions(samples.x, samples.target).flatten(1))
    torch.testing.assert_close(units.sum(got.values.flatten(1)), worth)
    assert (got.values[:, 8:] == 0).all() and (got.values[:, :, 8:] == 0).all()
