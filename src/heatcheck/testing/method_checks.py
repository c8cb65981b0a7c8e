"""The contract of attribution methods, one named check per promise."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatcheck.core import catalogue
from heatcheck.core.types import OK, Attribution, Batch, Inputs, NotApplicable, finite_status
from heatcheck.methods.base import Method
from heatcheck.models.base import Model
from heatcheck.models.black_box import CallableModel
from heatcheck.probe.asks import Shape, passes_of
from heatcheck.testing import models as toys
from heatcheck.testing.device_checks import on_cpu, on_pretend
from heatcheck.testing.models import Toy
from heatcheck.testing.scenes import batch_of, probe_for, toy_batch
from heatcheck.testing.watch import Broken, counting, failing_at, global_randomness, global_seed, unchanged

Models = Sequence[Toy]

PADDED_WIDTHS = {64: [0, 1, 2], 512: [0]}
"""Widths that texts are padded to, and which of three texts."""


@cache
def method_models() -> tuple[Toy, ...]:
    """The toys on which every method is checked: pictures and texts, with and without feature maps."""
    return toys.gap_linear(), toys.additive(), toys.one_head_attention(), toys.bag_of_words()


@cache
def padded_model() -> Toy:
    """The toy whose texts are padded further: an encoder with attention, ReLU and positions."""
    return toys.tiny_bert()


def special_models(method: Method) -> tuple[Toy, ...]:
    """Toys of the networks that a method was made for, such as `uses=("bcos",)`."""
    made_for: dict[str, tuple[Callable[[], Toy], ...]] = {
        "bcos": (toys.bcos,),
        "bagnet": (toys.bagnet,),
        "attention": (toys.tiny_vit, padded_model),
    }
    return tuple(make() for word, every in made_for.items() if word in uses(method) for make in every)


def scenes(method: Method, models: Models | None) -> Iterator[tuple[Toy, Batch]]:
    """The toys that the method applies to, with samples; it must apply to one."""
    chosen = models or (*method_models(), *special_models(method))
    reasons = {model: reason_against(method, model) for model in chosen}
    told = "; ".join(f"{model.name}: {reason}" for model, reason in reasons.items())
    assert None in reasons.values(), f"{method.name} applies to none of the toy models ({told})"
    for model in chosen:
        if reasons[model] is None:
            yield model, toy_batch(model, 3)


@lru_cache(maxsize=64)
def reason_against(method: Method, model: Toy) -> str | None:
    """Why the method does not apply to the toy; None if it does."""
    return refusal(lambda: method(probe_for(model), toy_batch(model, 1)))


def fresh(method: Method, model: Model, batch: Batch, *, forward: int = 4, backward: int = 4) -> Attribution:
    """The method's maps from a probe that nobody has used."""
    return method(probe_for(model, forward=forward, backward=backward), batch)


def same(a: Tensor, b: Tensor, who: str, what: str) -> None:
    """Fail unless two maps agree in every bit."""
    if not torch.equal(a, b):
        worst = "NaN values" if bool(a.isnan().any()) else f"the largest difference is {_gap(a, b):.3g}"
        raise AssertionError(f"{who}: {what}; {worst}")


def near(a: Tensor, b: Tensor, who: str, what: str, tolerance: float) -> None:
    """Fail unless two maps agree within `tolerance` of their largest value, or within single precision if they have it."""
    if in_single_precision(a, b):
        tolerance = max(tolerance, 1e-5)
    scale = float(b.abs().max().clamp_min(1e-12))
    gap = _gap(a, b)
    if not gap <= tolerance * scale:
        raise AssertionError(f"{who}: {what}; the largest difference is {gap:.3g} where values reach {scale:.3g}")


def in_single_precision(*values: Tensor) -> bool:
    """Whether no value needs more than single precision: then they were computed in it, whatever their type is now."""
    return all(torch.equal(v.nan_to_num().float().double(), v.nan_to_num().double()) for v in values)


def _gap(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().max()) if a.shape == b.shape else float("nan")


# -- promises that every method makes ----------------------------------------------------------------------------


def check_same_answer_twice(method: Method, models: Models | None = None) -> None:
    """Asked again, a method says the same, bit for bit."""
    for model, batch in scenes(method, models):
        first, second = fresh(method, model, batch), fresh(method, model, batch)
        same(first.values, second.values, f"{method.name} on {model.name}", "two runs gave different maps")


def check_batch_size_irrelevant(method: Method, models: Models | None = None) -> None:
    """Calls of 1, 3 or 8 inputs give the same maps up to rounding."""
    for model, batch in scenes(method, models):
        reference = fresh(method, model, batch).values
        for size in (1, 3, 8):
            values = fresh(method, model, batch, forward=size, backward=size).values
            near(values, reference, f"{method.name} on {model.name}", f"calls of {size} gave other maps", 1e-8)


def check_order_and_neighbours_irrelevant(method: Method, models: Models | None = None) -> None:
    """Sample order, batch neighbours and questions asked before change no bit of a map."""
    for model, batch in scenes(method, models):
        who = f"{method.name} on {model.name}"
        n = len(batch)
        reference = fresh(method, model, batch).values
        backwards = list(reversed(range(n)))
        same(fresh(method, model, batch.take(backwards)).values.flip(0), reference, who, "sample order changed a map")
        for i in range(n):
            alone = fresh(method, model, batch.take([i])).values
            same(alone, reference[i : i + 1], who, f"sample {i} alone has another map than among neighbours")
        used = probe_for(model)
        method(used, replace(batch, target=(batch.target + 1) % 2))
        same(method(used, batch).values, reference, who, "maps of another target, made before, changed these")
        same(method(used, batch).values, reference, who, "shared answers changed a map")


def check_padding_irrelevant(method: Method, models: Models | None = None) -> None:
    """A text's map is the same, whatever width its batch is padded to."""
    model = padded_model()
    for _, batch in _where_it_applies(method, model):
        if reason_against(method, model) is not None:
            continue
        who = f"{method.name} on {model.name}"
        reference = fresh(method, model, batch)
        for width, rows in PADDED_WIDTHS.items():
            some = batch.take(rows)
            room = width - some.x["ids"].shape[1]
            marks = tuple({kind: F.pad(mark, (0, room)) for kind, mark in own.items()} for own in some.references)
            wide = fresh(method, model, replace(some, x=toys.padded(some.x, width), references=marks))
            told = f"a text padded to {width} tokens has another map than padded to {batch.x['ids'].shape[1]}"
            for i, row in enumerate(rows):
                assert wide.status[i] == reference.status[row], f"{who}: {told}: {wide.status[i]}"
                tokens = batch.x["attention"][row].bool()
                near(wide.values[i, : len(tokens)][tokens], reference.values[row, tokens], who, told, 1e-5)


def check_model_untouched(method: Method, models: Models | None = None) -> None:
    """Weights, hooks, modes, flags and inputs are as before, also when the model fails in the middle."""
    for model, batch in scenes(method, models):
        who = f"{method.name} on {model.name}"
        with unchanged(model, batch, who), counting(model) as calls:
            fresh(method, model, batch)
        for call in sorted({1, len(calls)}) if calls else ():
            with unchanged(model, batch, f"{who}, broken at call {call},"), failing_at(model, call):
                try:
                    fresh(method, model, batch)
                except Broken:
                    continue
            raise AssertionError(f"{who} swallowed the model's exception at call {call}")


def check_global_rng_untouched(method: Method, models: Models | None = None) -> None:
    """The global generators are neither moved nor listened to."""
    for model, batch in scenes(method, models):
        who = f"{method.name} on {model.name}"
        before = global_randomness()
        reference = fresh(method, model, batch).values
        assert global_randomness() == before, f"{who} drew from a global random generator"
        with global_seed(12345):
            same(fresh(method, model, batch).values, reference, who, "the global seed changed a map")


def check_finite_and_shaped(method: Method, models: Models | None = None) -> None:
    """One finite map per sample that can be carried to sites, with its target and an honest `signed`."""
    for model, batch in scenes(method, models):
        who = f"{method.name} on {model.name}"
        got = fresh(method, model, batch)
        assert got.values.is_floating_point(), f"{who} gave {got.values.dtype} maps"
        assert not got.values.requires_grad, f"{who} gave maps that still carry a graph"
        assert finite_status(got.values) == (OK,) * len(batch), f"{who}: {finite_status(got.values)}"
        assert got.status == (OK,) * len(batch), f"{who} gave the statuses {got.status}"
        assert got.target is not None, f"{who} names no targets"
        assert torch.equal(got.target, batch.target), f"{who} names the targets {got.target.tolist()}"
        axes = model.domain.leaf(batch.x).ndim - 1
        assert got.values.ndim == axes, f"{who} gave maps {tuple(got.values.shape)}, which do not have {axes} axes"
        sites = model.domain.layout(got.values, batch.x, got.interpolation)
        expected = tuple(model.domain.deletable(batch.x).shape)
        assert tuple(sites.shape) == expected, f"{who}: maps {tuple(got.values.shape)} do not carry to {expected} sites"
        low = float(got.values.min())
        assert got.signed or low >= 0, f"{who} says that its maps are unsigned, but one has {low:.3g}"


def check_float32_near_float64(method: Method, models: Models | None = None) -> None:
    """Single precision gives the maps of double precision to three digits."""
    for model, batch in scenes(method, models):
        reference = fresh(method, model, batch).values
        single = model.with_network(lambda net: net.float(), f"{model.name} in float32")
        single.original = model.lineage
        x = Inputs({k: v.float() if v.is_floating_point() else v for k, v in batch.x.tensors.items()})
        values = fresh(method, single, replace(batch, x=x)).values
        near(values, reference, f"{method.name} on {model.name}", "float32 gave other maps than float64", 2e-3)


def check_any_device(method: Method, models: Models | None = None) -> None:
    """On a pretend accelerator a method makes the maps that it makes on the CPU, and copies little."""
    for model, batch in scenes(method, models):
        who = f"{method.name} on {model.name}"
        want = on_cpu(model, batch, method)
        got, _, _ = on_pretend(model, batch, method, who)
        assert got.status == want.status, f"{who}: on another device its statuses are {got.status}, not {want.status}"
        near(got.values, want.values, who, "another device gave other maps", 1e-12)


def check_reasoned_skip(method: Method, models: Models | None = None) -> None:
    """Where a method does not apply it says so and why, and it applies wherever it claims to."""
    needed = uses(method)
    for model in models or method_models():
        batch = toy_batch(model, 1)
        box = CallableModel(_black_box(model), f"{model.name} as a black box", model.domain)
        claimed = claims(method, model)
        _applies(method, box, _in_single_precision(batch), expected=claimed and not needed)
        if not needed - {"gradient"} or not claimed:
            _applies(method, model, batch, expected=claimed)


def _black_box(model: Toy) -> Callable[[Tensor], Tensor]:
    one = model.inputs(1)

    def function(leaf: Tensor) -> Tensor:
        x = one.take(torch.zeros(len(leaf), dtype=torch.long))
        with torch.no_grad():
            return model.logits(model.domain.with_leaf(x, leaf.to(model.dtype)))

    return function


def _in_single_precision(batch: Batch) -> Batch:
    return replace(batch, x=Inputs({k: v.float() if v.is_floating_point() else v for k, v in batch.x.tensors.items()}))


def _applies(method: Method, model: Model, batch: Batch, *, expected: bool) -> None:
    who = f"{method.name} on {model.name}"
    reason = refusal(lambda: method(probe_for(model), batch))
    if reason is None:
        assert expected, f"{who} ran although it declares on={method.facts['on']}, uses={method.uses}"
    else:
        assert len(reason) > 10, f"{who} does not apply, for the reason {reason!r}; say why"
        assert not expected, f"{who} should apply by what it declares, but says: {reason}"


def refusal(call: Callable[[], object]) -> str | None:
    """The reason that a call gives for not applying; None if it applies."""
    try:
        call()
    except NotApplicable as reason:
        return str(reason)
    return None


def claims(component: Any, model: Toy) -> bool:
    """Whether a component, the fills and methods inside it, and what it deletes are there for the model's modality."""

    def look() -> None:
        sites = component.resolve(model.domain).params().get("units", "site")
        model.domain.units(sites, model.inputs(1))

    return model.domain.modality in component.facts["on"] and refusal(look) is None


def uses(method: Any) -> set[str]:
    """What a method needs of a model; a wrapper needs what it wraps needs."""
    inner = method.params().get("of")
    return set(method.uses) if inner is None else uses(catalogue.build("method", inner))


def check_passes_predicted(method: Method, models: Models | None = None) -> None:
    """`asks` and `passes` together foretell what the probe counts."""
    for model, batch in scenes(method, models):
        component = method.resolve(model.domain)
        probe = probe_for(model)
        component(probe, batch)
        forwards = backwards = 0
        for i in range(len(batch)):
            shape = Shape(model.domain, batch.x.take(torch.tensor([i])), model, batch.references[i])
            more = passes_of(component.asks(shape), component.passes(shape))
            forwards, backwards = forwards + more[0], backwards + more[1]
        counted, foretold = (probe.spent.forwards, probe.spent.backwards), (forwards, backwards)
        assert counted == foretold, (
            f"{method.name} on {model.name} foretold {foretold} forward and backward passes for {len(batch)} samples, "
            f"the probe counted {counted}"
        )


def check_repr_rebuilds(method: Method, models: Models | None = None) -> None:
    """A method's name, as given and as resolved, builds an equal method."""
    rebuilds("method", method)
    for model in models or method_models():
        if claims(method, model):
            rebuilds("method", method.resolve(model.domain))


def rebuilds(kind: str, component: Any) -> None:
    """Fail unless a component's name builds an equal component."""
    again = catalogue.build(kind, component.name)
    assert again == component, (
        f"{kind} {component.name} rebuilt from its name is {again.params()}, not {component.params()}"
    )
    assert hash(again) == hash(component), f"{kind} {component.name} rebuilt from its name hashes differently"
    assert repr(component) == component.name, f"{kind} {component.name} prints as {component!r}"


# -- promises that a method declares -----------------------------------------------------------------------------


def check_complete(method: Method, models: Models | None = None) -> None:
    """`complete`: a map sums to the output minus the output of the deleted input."""
    chosen = models or (toys.linear(), toys.additive(), toys.bias_free_relu(), toys.bag_of_words())
    for model, batch in scenes(method, chosen):
        component = method.resolve(model.domain)
        params = component.params()
        fill = next((params[k] for k in ("baseline", "fill") if k in params), "zero")
        probe = probe_for(model)
        total = model.domain.layout(component(probe, batch).values, batch.x, "nearest").double().sum(1)
        drop = probe.clean(batch).read(component.output) - probe.deleted(batch, str(fill)).read(component.output)
        near(total, drop, f"{method.name} on {model.name}", "maps do not sum to f(x) - f(deleted x)", 1e-6)


def check_dummy(method: Method, models: Models | None = None) -> None:
    """`dummy`: what the model ignores gets nothing."""
    for model, dead in (_half_blind_picture(), _deaf_text()):
        for _, batch in _where_it_applies(method, model):
            got = fresh(method, model, batch)
            sites = model.domain.layout(got.values, batch.x, got.interpolation)
            ignored = dead(batch.x)
            worst = float(sites[ignored].abs().max())
            scale = float(sites.abs().max())
            assert worst <= 1e-8 * scale, (
                f"{method.name} on {model.name}: a site that the model ignores got {worst:.3g} "
                f"where values reach {scale:.3g}"
            )


def _half_blind_picture() -> tuple[Toy, Callable[[Inputs], Tensor]]:
    def blind(net: nn.Module) -> nn.Module:
        with torch.no_grad():
            net.get_submodule("1").get_parameter("weight").reshape(-1, 3, 8, 8)[..., :4] = 0
        return net

    def dead(x: Inputs) -> Tensor:
        left = torch.zeros(8, 8, dtype=torch.bool)
        left[:, :4] = True
        return left.flatten().expand(len(x), -1)

    return toys.linear().with_network(blind, "a linear model blind on the left"), dead


def _deaf_text() -> tuple[Toy, Callable[[Inputs], Tensor]]:
    model = toys.bag_of_words()
    deaf = range(toys.FIRST_WORD, toys.FIRST_WORD + 12)

    def deafen(net: nn.Module) -> nn.Module:
        with torch.no_grad():
            net.get_parameter("embed.weight")[list(deaf)] = 0
        return net

    def dead(x: Inputs) -> Tensor:
        return (x["ids"] >= deaf.start) & (x["ids"] < deaf.stop)

    return model.with_network(deafen, "a bag of words with dead words"), dead


def _where_it_applies(method: Method, *models: Toy) -> Iterator[tuple[Toy, Batch]]:
    for model in models:
        if claims(method, model):
            yield model, toy_batch(model, 3)


class Sum(nn.Module):
    """A weighted sum of two networks of one kind."""

    def __init__(self, f: nn.Module, g: nn.Module, alpha: float, beta: float) -> None:
        super().__init__()
        self.f, self.g, self.alpha, self.beta = f, g, alpha, beta
        if hasattr(f, "embed"):
            self.embed = f.embed

    def forward(self, *args: Tensor) -> Tensor:
        out: Tensor = self.alpha * self.f(*args) + self.beta * self.g(*args)
        return out


def check_linear(method: Method, models: Models | None = None) -> None:
    """`linear`: the map of a weighted sum of models is the weighted sum of their maps, of logits and by sums."""
    method = replace(method, output="logit", reduction="sum")
    for make in (toys.bias_free_relu, toys.one_head_attention):
        f, g = make(), make(seed=1)
        twin = f.with_network(lambda net, g=g: _with_embedding_of(net, g.module()), "g")
        both = f.with_network(lambda net, twin=twin: Sum(net, twin.module(), 1.5, -0.5), "1.5f - 0.5g")
        for _, batch in _where_it_applies(method, f):
            parts = 1.5 * fresh(method, f, batch).values - 0.5 * fresh(method, twin, batch).values
            near(
                fresh(method, both, batch).values, parts, f"{method.name} on {f.name}", "not linear in the model", 1e-8
            )


def _with_embedding_of(own: nn.Module, other: nn.Module) -> nn.Module:
    """`other`, reading embeddings as `own` does, so that both share a leaf space."""
    twin = copy.deepcopy(other)
    if hasattr(own, "embed"):
        twin.embed = own.embed
    return twin


def check_implementation_invariant(method: Method, models: Models | None = None) -> None:
    """`implementation_invariant`: two networks that compute the same function get the same map."""
    for model, last in (
        (toys.gap_linear(), "4"),
        (toys.bias_free_relu(), "5"),
        (toys.one_head_attention(), "classify"),
    ):
        other = model.with_network(lambda net, last=last: _split(net, last), f"{model.name} split")
        for _, batch in _where_it_applies(method, model):
            a, b = fresh(method, model, batch).values, fresh(method, other, batch).values
            near(b, a, f"{method.name} on {model.name}", "an equal network, written otherwise, got another map", 1e-8)


def _split(network: nn.Module, last: str) -> nn.Module:
    """The same function with its last linear layer written as two."""
    layer = network.get_submodule(last)
    weight, bias = layer.get_parameter("weight"), dict(layer.named_parameters()).get("bias")
    rng = torch.Generator().manual_seed(7)
    turn, _ = torch.linalg.qr(torch.randn(weight.shape[0], weight.shape[0], generator=rng, dtype=torch.float64))
    first = nn.Linear(weight.shape[1], weight.shape[0], bias=False).to(weight.dtype)
    second = nn.Linear(weight.shape[0], weight.shape[0], bias=bias is not None).to(weight.dtype)
    with torch.no_grad():
        first.weight.copy_(turn @ weight)
        second.weight.copy_(turn.T)
        if bias is not None:
            second.bias.copy_(bias)
    network.set_submodule(last, nn.Sequential(first, second))
    return network


def check_symmetric(method: Method, models: Models | None = None) -> None:
    """`symmetric`: exchanging inputs that the model treats alike exchanges their shares."""
    picture = toys.linear().with_network(_same_on_both_sides, "a linear model alike on both sides")
    text = toys.additive_text()
    for model, swap in ((picture, _swap_sides), (text, _swap_words)):
        for _, batch in _where_it_applies(method, model):
            swapped = replace(
                batch_of(model, Inputs({k: swap(v) for k, v in batch.x.tensors.items()})), target=batch.target
            )
            a, b = fresh(method, model, batch).values, fresh(method, model, swapped).values
            near(b, swap(a), f"{method.name} on {model.name}", "equal inputs that change places get other shares", 1e-8)


def _same_on_both_sides(network: nn.Module) -> nn.Module:
    with torch.no_grad():
        weight = network.get_submodule("1").get_parameter("weight").reshape(-1, 3, 8, 8)
        weight[..., 4:] = weight[..., :4]
    return network


def _swap_sides(values: Tensor) -> Tensor:
    return values.roll(values.shape[-1] // 2, -1)


def _swap_words(values: Tensor) -> Tensor:
    order = [0, 2, 1, *range(3, values.shape[1])]
    return values[:, order]


def check_nonnegative(method: Method, models: Models | None = None) -> None:
    """`nonnegative`: no value lies below zero."""
    for model, batch in scenes(method, models):
        low = float(fresh(method, model, batch).values.min())
        assert low >= 0, f"{method.name} on {model.name} claims nonnegative maps, but gave {low:.3g}"


def check_target_free(method: Method, models: Models | None = None) -> None:
    """`target_free`: the map is the same whatever class it explains."""
    for model, batch in scenes(method, models):
        other = replace(batch, target=1 - batch.target.clamp(0, 1))
        a, b = fresh(method, model, batch).values, fresh(method, model, other).values
        same(a, b, f"{method.name} on {model.name}", "claims not to depend on the target, but does")


def check_gradient_on_linear(method: Method, models: Models | None = None) -> None:
    """`gradient_on_linear`: on a linear model the map is the weights."""
    model = toys.linear()
    method = replace(method, output="logit")
    for _, batch in _where_it_applies(method, model):
        how = method.reduction_on(model.domain)
        weights = model.domain.reduce(toys.weights_of(model.module(), batch.x, batch.target), how)
        values = fresh(replace(method, post="none"), model, batch).values
        near(values, weights, f"{method.name} on {model.name}", "the map is not the weights", 1e-8)


GENERAL = (
    check_finite_and_shaped,
    check_same_answer_twice,
    check_batch_size_irrelevant,
    check_order_and_neighbours_irrelevant,
    check_padding_irrelevant,
    check_model_untouched,
    check_global_rng_untouched,
    check_float32_near_float64,
    check_any_device,
    check_reasoned_skip,
    check_passes_predicted,
    check_repr_rebuilds,
)
CLAIMED = {
    "complete": check_complete,
    "dummy": check_dummy,
    "linear": check_linear,
    "implementation_invariant": check_implementation_invariant,
    "symmetric": check_symmetric,
    "nonnegative": check_nonnegative,
    "target_free": check_target_free,
    "gradient_on_linear": check_gradient_on_linear,
}


def method_checks(method: Method) -> list[Callable[..., None]]:
    """The checks a method must pass: those for all, and one for each property it declares."""
    claimed = method.facts["properties"]
    unknown = sorted(set(claimed) - set(CLAIMED))
    assert not unknown, f"{method.name} declares {unknown}; properties that can be checked are {sorted(CLAIMED)}"
    return [*GENERAL, *(CLAIMED[name] for name in claimed)]
