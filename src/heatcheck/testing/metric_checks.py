"""The contract of metrics, one named check per promise."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor, nn

from heatcheck.core import catalogue
from heatcheck.core.types import OK, Batch, HeatcheckError, Scores
from heatcheck.metrics.base import Maps, Metric
from heatcheck.probe.asks import Shape, passes_of
from heatcheck.probe.probe import Probe
from heatcheck.testing import models as toys
from heatcheck.testing.device_checks import on_cpu, on_pretend
from heatcheck.testing.method_checks import Models, claims, in_single_precision, near, rebuilds, refusal
from heatcheck.testing.models import Toy
from heatcheck.testing.scenes import changed_maps, probe_for, take_maps, toy_batch, toy_maps
from heatcheck.testing.watch import global_randomness, global_seed, unchanged

FAITHFUL = ("curve", "deletion", "imputation", "own")
"""Families of metrics that ask what deletions cost, so that the true map must win."""
KINDS = ("oracle", "random", "random-b", "anti_oracle")
EXPLAINERS = ("saliency", "input_x_gradient")
"""Methods whose maps are scored where a metric explains again; one gradient each."""


@cache
def metric_models() -> tuple[Toy, ...]:
    """The toys on which every metric is checked; what their units are worth is known."""
    return toys.additive(), toys.additive_text()


def needs(metric: Metric) -> set[str]:
    """What the metric declares that it needs besides inputs and maps."""
    return set(metric.facts.get("needs", ()))


def explains_again(metric: Metric, shape: Shape) -> bool:
    """Whether it asks the methods for more maps."""
    return "method" in needs(metric) or metric.reexplanation_count(shape) > 0


@dataclass(frozen=True)
class Scene:
    """A metric, a toy, its samples and their maps, ready to be scored."""

    metric: Metric
    model: Toy
    batch: Batch
    maps: Maps

    @property
    def who(self) -> str:
        """For messages."""
        return f"{self.metric.name} on {self.model.name}"

    def scores(self, probe: Probe | None = None) -> Scores:
        """The metric's scores, from a fresh probe unless one is given."""
        return self.run(probe or probe_for(self.model), self.batch)

    def run(self, probe: Probe, batch: Batch) -> Scores:
        """The metric's scores of the samples, wherever they are."""
        maps = self.maps.placed(probe)
        if not self.metric.across_models:
            return self.metric(probe, batch, maps)
        other = Maps([replace(a, values=a.values.flip(-1) + a.values) for a in maps.items], maps.domain, batch)
        return self.metric.across({"a": batch, "b": batch}, {"a": maps, "b": other})["a"]

    def take(self, rows: Sequence[int]) -> "Scene":
        """Some of the samples."""
        maps = take_maps(self.maps, rows)
        return replace(self, batch=maps.batch, maps=maps)

    def only(self, which: Sequence[int]) -> "Scene":
        """Some of the methods."""
        return replace(self, maps=self.maps.only(which))

    def with_maps(self, maps: Maps) -> "Scene":
        """The same samples under other maps."""
        return replace(self, maps=maps)


def scenes(metric: Metric, models: Models | None, n: int = 3, *, kinds: Sequence[str] = KINDS) -> Iterator[Scene]:
    """The toys of the modalities that the metric declares, with samples and maps."""
    found = [m for m in models or metric_models() if claims(metric, m)]
    assert found, f"{metric.name} is declared on {metric.facts['on']}, for which no toy was given"
    for model in found:
        batch = toy_batch(model, n)
        component = metric.resolve(model.domain)
        maps = toy_maps(model, batch, kinds)
        if explains_again(component, _shape_of(model)):
            explainers = [catalogue.build("method", e).resolve(model.domain) for e in EXPLAINERS]
            maps = Maps([e(probe_for(model), batch) for e in explainers], model.domain, batch, explainers)
        yield Scene(metric, model, batch, maps)


def same(a: Scores, b: Scores, who: str, what: str) -> None:
    """Fail unless two sets of scores agree in every bit and status."""
    if not torch.equal(a.value.nan_to_num(123.0), b.value.nan_to_num(123.0)) or a.status != b.status:
        raise AssertionError(f"{who}: {what}; {a.value.tolist()} {a.status}, then {b.value.tolist()} {b.status}")


def rows(scores: Scores, methods: Sequence[int], samples: Sequence[int]) -> Scores:
    """The scores of some methods and samples, in the given order."""
    value = scores.value[list(methods)][:, list(samples)]
    return Scores(value, tuple(tuple(scores.status[m][b] for b in samples) for m in methods))


# -- promises that every metric makes ----------------------------------------------------------------------------


def check_same_answer_twice(metric: Metric, models: Models | None = None) -> None:
    """Asked again, a metric says the same, bit for bit."""
    for scene in scenes(metric, models):
        same(scene.scores(), scene.scores(), scene.who, "two runs gave different scores")


def check_batch_size_irrelevant(metric: Metric, models: Models | None = None) -> None:
    """Calls of 1, 3 or 8 inputs give the same scores up to rounding."""
    for scene in scenes(metric, models):
        reference = scene.scores()
        for size in (1, 3, 8):
            got = scene.scores(probe_for(scene.model, forward=size, backward=size))
            _near(got.value, reference.value, scene.who, f"calls of {size} gave other scores")


def check_order_and_neighbours_irrelevant(metric: Metric, models: Models | None = None) -> None:
    """Sample order, batch neighbours, other methods and questions asked before change no bit of a score."""
    for given in scenes(metric, models, kinds=(*KINDS, "constant")):
        scene = given.with_maps(_one_in_single_precision(given.maps))
        n, m = len(scene.batch), len(scene.maps)
        reference = scene.scores()
        turned = list(reversed(range(n)))
        same(scene.take(turned).scores(), rows(reference, range(m), turned), scene.who, "sample order changed a score")
        for i in range(n):
            got = scene.take([i]).scores()
            same(got, rows(reference, range(m), [i]), scene.who, f"sample {i} alone has another score than in a batch")
        for j in range(m):
            got = scene.only([j]).scores()
            same(got, rows(reference, [j], range(n)), scene.who, f"map {j} alone has another score than beside others")
        swapped = list(reversed(range(m)))
        same(scene.only(swapped).scores(), rows(reference, swapped, range(n)), scene.who, "map order changed a score")
        used = probe_for(scene.model)
        catalogue.build("metric", "sds")(used, scene.batch, scene.maps)
        same(scene.scores(used), reference, scene.who, "questions that others asked changed a score")
        same(scene.scores(used), reference, scene.who, "shared answers changed a score")


def _one_in_single_precision(maps: Maps) -> Maps:
    items = [replace(a, values=a.values.float()) if i == 1 else a for i, a in enumerate(maps.items)]
    return Maps(items, maps.domain, maps.batch, maps.explainers)


def check_shape_and_status(metric: Metric, models: Models | None = None) -> None:
    """Scores are `[methods, samples]`, NaN exactly where a status says why, with curves to match."""
    for scene in scenes(metric, models, kinds=(*KINDS, "constant")):
        _check_statuses(scene, scene.scores())


def _check_statuses(scene: Scene, got: Scores) -> None:
    m, b = len(scene.maps), len(scene.batch)
    assert tuple(got.value.shape) == (m, b), (
        f"{scene.who} gave {tuple(got.value.shape)} scores for {m} maps, {b} samples"
    )
    assert [len(row) for row in got.status] == [b] * m, f"{scene.who}: one status per map and sample, not {got.status}"
    for j in range(m):
        for i in range(b):
            value, status = float(got.value[j, i]), got.status[j][i]
            finite = value - value == 0
            assert finite == (status == OK), f"{scene.who}: score {value} has the status {status!r}"
            assert status == OK or ": " in status, f"{scene.who}: the status {status!r} gives no reason"
    if got.curve is not None:
        assert got.curve.shape[:2] == (m, b), f"{scene.who}: curves {tuple(got.curve.shape)} for {m} maps, {b} samples"
        k = got.curve.shape[2]
        assert len(got.share) == k, f"{scene.who}: {len(got.share)} shares for curves of {k} points"


def check_inside_range(metric: Metric, models: Models | None = None) -> None:
    """No score leaves the declared range."""
    low, high = metric.facts["within"]
    for scene in scenes(metric, models, 6, kinds=(*KINDS, "constant")):
        value = scene.scores().value
        found = [v for v in value.flatten().tolist() if v == v]
        slack = 1e-6 if in_single_precision(value) else 1e-9
        outside = [v for v in found if (low is not None and v < low - slack) or (high is not None and v > high + slack)]
        assert not outside, f"{scene.who} is declared within ({low}, {high}), but scores {outside}"


def check_constant_map_handled(metric: Metric, models: Models | None = None) -> None:
    """A map without any information gets a finite score or a reason, never an exception."""
    for scene in scenes(metric, models):
        flat = changed_maps(scene.maps, torch.ones_like)
        flat.explainers = scene.maps.explainers
        _check_statuses(scene.with_maps(flat), scene.with_maps(flat).scores())


def check_failed_maps_keep_their_status(metric: Metric, models: Models | None = None) -> None:
    """A map that failed stays failed, for its own reason, and harms nobody else."""
    reason = "failed: broken on purpose"
    for scene in scenes(metric, models):
        first = scene.maps.items[0]
        values = first.values.clone()
        values[0] = torch.nan
        broken = replace(first, values=values, status=(reason, *first.status[1:]))
        maps = Maps([broken, *scene.maps.items[1:]], scene.maps.domain, scene.batch, scene.maps.explainers)
        got, reference = scene.with_maps(maps).scores(), scene.scores()
        _check_statuses(scene, got)
        assert got.status[0][0] == reason, f"{scene.who}: a failed map's status became {got.status[0][0]!r}"
        rest, all_samples = range(1, len(maps)), range(len(scene.batch))
        if not metric.across_models:
            same(
                rows(got, rest, all_samples),
                rows(reference, rest, all_samples),
                scene.who,
                "a failed map harmed others",
            )
            others = range(1, len(scene.batch))
            same(rows(got, [0], others), rows(reference, [0], others), scene.who, "a failed sample harmed others")


def check_constant_model_handled(metric: Metric, models: Models | None = None) -> None:
    """On a model that does not look, scores are finite or have a reason."""
    blind = [m for m in (toys.constant(), _deaf()) if m.domain.modality in metric.facts["on"]]
    for scene in scenes(metric, blind, kinds=("random", "random-b")):
        _check_statuses(scene, scene.scores())


def _deaf() -> Toy:
    """A text model that does not listen."""

    def deafen(net: nn.Module) -> nn.Module:
        with torch.no_grad():
            net.get_parameter("embed.weight").zero_()
        return net

    return toys.bag_of_words().with_network(deafen, "a constant text model")


def check_model_untouched(metric: Metric, models: Models | None = None) -> None:
    """Weights, hooks, modes, flags, inputs and maps are as before."""
    for scene in scenes(metric, models):
        before = [a.values.clone() for a in scene.maps.items]
        with unchanged(scene.model, scene.batch, scene.who):
            scene.scores()
        for a, values in zip(scene.maps.items, before, strict=True):
            assert torch.equal(a.values, values), f"{scene.who} changed the map {a.method} in place"


def check_global_rng_untouched(metric: Metric, models: Models | None = None) -> None:
    """The global generators are neither moved nor listened to."""
    for scene in scenes(metric, models):
        before = global_randomness()
        reference = scene.scores()
        assert global_randomness() == before, f"{scene.who} drew from a global random generator"
        with global_seed(12345):
            same(scene.scores(), reference, scene.who, "the global seed changed a score")


def check_any_device(metric: Metric, models: Models | None = None) -> None:
    """On a pretend accelerator a metric gives the scores that it gives on the CPU, and copies little."""
    for scene in scenes(metric, models):
        want = on_cpu(scene.model, scene.batch, scene.run)
        got, _, _ = on_pretend(scene.model, scene.batch, scene.run, scene.who)
        assert got.status == want.status, f"{scene.who}: on another device it says {got.status}, not {want.status}"
        for ours, theirs in ((got.value, want.value), (got.curve, want.curve)):
            if ours is not None and theirs is not None:
                near(ours.nan_to_num(), theirs.nan_to_num(), scene.who, "another device gave other scores", 1e-12)


def check_passes_predicted(metric: Metric, models: Models | None = None) -> None:
    """`asks`, `passes` and `again` together foretell what the probe counts for one method."""
    for scene in scenes(metric, models):
        component = metric.resolve(scene.model.domain)
        one = replace(scene, metric=component).only([0])
        probe = probe_for(scene.model)
        one.scores(probe)
        forwards = backwards = 0
        for i in range(len(scene.batch)):
            x, known = scene.batch.x.take(torch.tensor([i])), scene.batch.references[i]
            shape = Shape(scene.model.domain, x, scene.model, known)
            more, again = (
                passes_of(component.asks(shape, one.maps.methods[0]), component.passes(shape)),
                component.reexplanation_count(shape),
            )
            forwards, backwards = forwards + more[0] + again, backwards + more[1] + again
        counted, foretold = (probe.spent.forwards, probe.spent.backwards), (forwards, backwards)
        assert counted == foretold, (
            f"{scene.who} foretold {foretold} forward and backward passes for {len(scene.batch)} samples and one "
            f"method of one gradient, the probe counted {counted}"
        )


def check_reasoned_skip(metric: Metric, models: Models | None = None) -> None:
    """Where a metric does not apply, or lacks what it needs, it says so and names it."""
    for model in models or metric_models():
        batch = toy_batch(model, 1)
        maps = toy_maps(model, batch, KINDS)
        bare = replace(batch, references=(), label=torch.full_like(batch.label, -1))
        if model.domain.modality not in metric.facts["on"]:
            _refuses(metric, model, batch, maps, str(model.domain.modality))
            continue
        for need in sorted(needs(metric)):
            if need.startswith("reference:") or need == "label":
                word = need.removeprefix("reference:")
                _refuses(metric, model, bare, Maps(maps.items, model.domain, bare), word)
            if need == "method":
                _refuses(metric, model, batch, maps, "method")


def _refuses(metric: Metric, model: Toy, batch: Batch, maps: Maps, word: str) -> None:
    reason = refusal(lambda: metric(probe_for(model), batch, maps))
    assert reason is not None, f"{metric.name} on {model.name} gave scores although it lacks {word!r}"
    assert word in reason, f"{metric.name} does not apply, but its reason does not name {word!r}: {reason}"


def check_records_respected(metric: Metric, models: Models | None = None) -> None:
    """Maps of another class are refused; maps without a sign are skipped where a sign is needed."""
    for scene in scenes(metric, models, 2):
        wrong = [replace(a, target=scene.batch.target + 1) for a in scene.maps.items]
        other = Maps(wrong, scene.maps.domain, scene.batch, scene.maps.explainers)
        reason = _error(scene.with_maps(other).scores)
        assert reason is not None, f"{scene.who} scored maps of another class than the one it asks about"
        assert "explain the classes" in reason, f"{scene.who} refuses maps of another class with: {reason}"
        if "sign" in needs(metric):
            first = replace(scene.maps.items[0], signed=False)
            mixed = Maps([first, *scene.maps.items[1:]], scene.maps.domain, scene.batch, scene.maps.explainers)
            status = scene.with_maps(mixed).scores().status[0]
            assert all(s.startswith("skipped: ") for s in status), f"{scene.who} scored maps without a sign: {status}"


def _error(run: Callable[[], object]) -> str | None:
    try:
        run()
    except HeatcheckError as problem:
        return str(problem)
    return None


def check_repr_rebuilds(metric: Metric, models: Models | None = None) -> None:
    """A metric's name, as given and as resolved, builds an equal metric."""
    rebuilds("metric", metric)
    for model in models or metric_models():
        if claims(metric, model):
            rebuilds("metric", metric.resolve(model.domain))


def check_direction(metric: Metric, models: Models | None = None) -> None:
    """On a model whose units add up, the true map beats random maps, and these beat the map that is exactly wrong."""
    sign = 1.0 if metric.higher_is_better else -1.0
    for scene in scenes(metric, models, 16, kinds=("oracle", "random", "anti_oracle")):
        right, any_map, wrong = (sign * scene.scores().value.nanmean(1)).tolist()
        blind_to_sign = "sign" in metric.facts["invariant"]
        assert right > any_map, (
            f"{scene.who} is declared better {metric.facts['better']}, but the true map scores {sign * right:.4g} "
            f"and random maps {sign * any_map:.4g}; a metric that does not ask what deletions cost says so by its "
            "family (form, sanity or reference)"
        )
        assert blind_to_sign or any_map > wrong, (
            f"{scene.who} is declared better {metric.facts['better']}, but random maps score {sign * any_map:.4g} "
            f"and the reversed true map {sign * wrong:.4g}"
        )


# -- promises that a metric declares -----------------------------------------------------------------------------


def _invariance(change: Callable[[Tensor], Tensor], what: str) -> Callable[..., None]:
    def check(metric: Metric, models: Models | None = None) -> None:
        for scene in scenes(metric, models):
            changed = _changed(scene, change)
            changed.explainers = [None if e is None else _changed_explainer(e, change) for e in scene.maps.explainers]
            got, reference = scene.with_maps(changed).scores(), scene.scores()
            _near(got.value, reference.value, scene.who, f"claims not to mind {what}, but scores change")

    return check


def _changed(scene: Scene, change: Callable[[Tensor], Tensor]) -> Maps:
    """The maps after a change of what the metric's units have.

    Sites are changed one by one, except where units of different sizes count by the sum over each: a constant added to every
    site would change such sums by different amounts. There one site of each unit gets the changed sum, the others nothing.
    Where a metric compares maps with maps, both are changed alike.
    """
    metric, maps = scene.metric.resolve(scene.model.domain), scene.maps
    if metric.unit_value == "sum" and "units" in metric.params() and not any(maps.explainers):
        units = probe_for(scene.model).units(metric.params()["units"], scene.batch)
        area = units.area[units.valid]
        if (area != area[0]).any():
            first = torch.stack([units.index == u for u in range(units.width)], 1).to(torch.uint8).argmax(2)
            zeros = torch.zeros_like(maps.sites()[0])
            held = [change(own).masked_fill(~units.valid, 0) for own in maps.on(units)]
            items = zip(maps.items, held, strict=True)
            values = [replace(a, values=zeros.scatter_add(1, first, own)) for a, own in items]
            return Maps(values, maps.domain, maps.batch)
    return changed_maps(maps, change)


def _changed_explainer(explain: Callable[..., object], change: Callable[[Tensor], Tensor]) -> Callable[..., object]:
    def changed(probe: Probe, batch: Batch) -> object:
        a = explain(probe, batch)
        return replace(a, values=change(a.values))  # type: ignore[type-var, attr-defined]

    return changed


def _near(a: Tensor, b: Tensor, who: str, what: str) -> None:
    relative, absolute = (1e-5, 1e-6) if in_single_precision(a, b) else (1e-8, 1e-9)
    if not torch.allclose(a, b, rtol=relative, atol=absolute, equal_nan=True):
        raise AssertionError(f"{who}: {what}; {a.tolist()} instead of {b.tolist()}")


def check_map_invariant(metric: Metric, models: Models | None = None) -> None:
    """`map`: every map gets the same score."""
    for scene in scenes(metric, models):
        value = scene.scores().value
        _near(value, value[:1].expand_as(value), scene.who, "claims to measure the model alone, but maps differ")


def check_monotone_invariant(metric: Metric, models: Models | None = None) -> None:
    """`monotone`: any increasing change of the map leaves the score."""
    _invariance(lambda a: a**3 + a, "increasing changes of the map")(metric, models)


def check_scale_invariant(metric: Metric, models: Models | None = None) -> None:
    """`scale`: a positive factor leaves the score."""
    _invariance(lambda a: 3.7 * a, "positive factors")(metric, models)


def check_sign_invariant(metric: Metric, models: Models | None = None) -> None:
    """`sign`: a negated map gets the same score."""
    _invariance(lambda a: -a, "negated maps")(metric, models)


def check_shift_invariant(metric: Metric, models: Models | None = None) -> None:
    """`shift`: an added constant leaves the score."""
    _invariance(lambda a: a + 1.5, "added constants")(metric, models)


GENERAL = (
    check_same_answer_twice,
    check_batch_size_irrelevant,
    check_order_and_neighbours_irrelevant,
    check_shape_and_status,
    check_inside_range,
    check_constant_map_handled,
    check_failed_maps_keep_their_status,
    check_constant_model_handled,
    check_model_untouched,
    check_global_rng_untouched,
    check_any_device,
    check_passes_predicted,
    check_reasoned_skip,
    check_records_respected,
    check_repr_rebuilds,
    check_direction,
)
CLAIMED = {
    "map": check_map_invariant,
    "monotone": check_monotone_invariant,
    "scale": check_scale_invariant,
    "sign": check_sign_invariant,
    "shift": check_shift_invariant,
}


def metric_checks(metric: Metric) -> list[Callable[..., None]]:
    """The checks a metric must pass: those for all, and one for each invariance it declares."""
    claimed = metric.facts["invariant"]
    if metric.composite or "retraining" in needs(metric):  # no toy has what it reads
        return [check_repr_rebuilds]
    unknown = sorted(set(claimed) - set(CLAIMED))
    assert not unknown, f"{metric.name} declares {unknown}; invariances that can be checked are {sorted(CLAIMED)}"
    return [*GENERAL, *(CLAIMED[name] for name in claimed)]


def _shape_of(model: Toy) -> Shape:
    return Shape(model.domain, model.inputs(1))


def metric_skips(metric: Metric) -> dict[str, str]:
    """Checks that say nothing about this metric, and why."""
    skips: dict[str, str] = {}
    beyond = sorted(needs(metric) - {"label"})
    again = [
        m.name for m in metric_models() if claims(metric, m) and explains_again(metric.resolve(m.domain), _shape_of(m))
    ]
    if "map" in metric.facts["invariant"]:
        skips["check_direction"] = "measures the model: all maps score alike"
    elif metric.facts["family"] not in FAITHFUL:
        skips["check_direction"] = f"a metric of {metric.facts['family']}: it does not ask what deletions cost"
    elif beyond:
        skips["check_direction"] = f"needs {', '.join(beyond)}: the truth of deletions is not what it measures"
    elif again:
        skips["check_direction"] = "explains again: no method of this size knows the true map"
    if metric.across_models:
        why = "compares models: it has no scores of one model alone and asks none"
        skips |= dict.fromkeys(("check_batch_size_irrelevant", "check_passes_predicted"), why)
    return skips
