"""What IDSDS's paper claims about methods, as a catalogue of statements that a run can test.

Paper: hesse2024.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from heatcheck.core.spec import SpecError, parse
from heatcheck.stats.claims import (
    HELD,
    NOT_HELD,
    Row,
    Verdict,
    absolute_pairs,
    judge,
    raw_beats_absolute,
    smooth_pairs,
    smoothing_hurts,
)
from heatcheck.stats.cube import mean_over, means_of
from heatcheck.stats.evidence import Evidence, NotTestable, all_above, claim, leads
from heatcheck.stats.table import Array

PAPER = "hesse2024"
INTRINSIC = ("intrinsic",)


def noted(verdict: Verdict, note: str) -> Verdict:
    """A verdict with one more thing to say."""
    told = "; ".join(part for part in (verdict.note, note) if part)
    return Verdict(verdict.claim, verdict.effect, verdict.verdict, verdict.parts, told)


@claim(PAPER, "Table 4", "Signs matter: good methods score higher than their absolute values.")
def sign_matters(evidence: Evidence) -> Verdict:
    """Raw against absolute versions of methods that are better than random."""
    return _pairs(evidence, absolute_pairs(evidence.run.get("methods", ())), raw_beats_absolute, "absolute value")


@claim(PAPER, "Table 4", "SmoothGrad hurts: methods score higher than their smoothed versions.")
def smoothgrad_hurts(evidence: Evidence) -> Verdict:
    """Methods against their SmoothGrad versions."""
    return _pairs(evidence, smooth_pairs(evidence.run.get("methods", ())), smoothing_hurts, "SmoothGrad version")


def _pairs(evidence: Evidence, pairs: Mapping[str, str], test: Any, what: str) -> Verdict:
    metric, models, told = evidence.single_deletion()
    everywhere = set.intersection(*(evidence.measured[metric][model] for model in models))
    chosen = {a: b for a, b in pairs.items() if {a, b} <= everywhere}
    if not chosen:
        raise NotTestable(f"no method was run together with its {what}")
    common = {"models": models, "metric": metric, "seed": evidence.seed, "resamples": evidence.resamples}
    try:
        return noted(test(evidence.scores, chosen, **common), told)
    except ValueError as problem:
        raise NotTestable(str(problem)) from None


@claim(PAPER, "Table 4", "IG-U has the highest IDSDS of all methods that explain any model.")
def ig_u_leads(evidence: Evidence) -> Verdict:
    """IG with a uniform baseline against every other method that is not intrinsic to its network."""
    metric, models, told = evidence.single_deletion()
    method = evidence.method_named("IG-U")
    having = [m for m in models if method in evidence.measured[metric][m]]
    if not having:
        raise NotTestable(f"IG-U has no score under {metric}")
    others = set.intersection(*(set(evidence.methods(metric, m, without=INTRINSIC)) for m in having)) - {method}
    cube = evidence.cube(metric, having, [method, *sorted(others)])
    return noted(leads(evidence, cube, method, sorted(others), "lead of IG-U over the best other method"), told)


@claim(
    PAPER,
    "Table 4",
    "Networks that explain themselves (BagNet, B-cos) score higher than any method on others.",
)
def intrinsic_lead(evidence: Evidence) -> Verdict:
    """Intrinsic maps against the best method on a network without one."""
    metric, models, told = evidence.single_deletion()
    families = {m["name"]: m.get("family") for m in evidence.run.get("methods", ())}
    own = {m: [x for x in evidence.methods(metric, m) if families[x] in INTRINSIC] for m in models}
    without = [m for m in models if not own[m]]
    if not any(own.values()) or not without:
        raise NotTestable("it needs a B-cos network or a BagNet, and a network that is neither")
    gaps: dict[tuple[str, str], Array] = {}
    for model, methods in own.items():
        for method in methods:
            inner = evidence.cube(metric, [model], [method])
            for plain in without:
                names = evidence.methods(metric, plain, without=INTRINSIC)
                rival = evidence.cube(metric, [plain], names)
                common = sorted(set(inner.samples) & set(rival.samples))
                best = names[int(np.nanargmax(means_of(rival.values[0])))]
                gap = inner.at(common).of_method(method)[0] - rival.at(common).of_method(best)[0]
                gaps[f"{method} on {model}", f"{best} on {plain}"] = gap
    each, verdict = all_above(evidence, gaps)
    parts: tuple[Row, ...] = tuple({"method": a, "other": b, **e.record()} for (a, b), e in each.items())
    least = min(each.values(), key=lambda e: e.value)
    return Verdict("smallest lead of an intrinsic map", least, verdict, parts, told)


@claim(PAPER, "Table 4", "Grad-CAM and XGrad-CAM are the same on a network that ends in global average pooling.")
def cams_agree(evidence: Evidence) -> Verdict:
    """The largest difference of both methods' scores."""
    metric, models, told = evidence.single_deletion()
    one, other = evidence.method_named("Grad-CAM"), evidence.method_named("XGrad-CAM")
    having = [m for m in models if {one, other} <= evidence.measured[metric][m]]
    if not having:
        raise NotTestable("no model has scores of both")
    cube = evidence.cube(metric, having, [one, other])
    apart = np.abs(cube.of_method(one) - cube.of_method(other))
    known = apart[~np.isnan(apart)]
    effect = evidence.estimate(mean_over(apart[:, None]))
    parts: tuple[Row, ...] = tuple(
        {"model": m, "largest": float(np.nanmax(row))} for m, row in zip(having, apart, strict=True)
    )
    same = float(np.mean(known <= 1e-6))
    verdict = HELD if same > 0.99 else NOT_HELD
    return Verdict(
        "mean absolute difference", effect, verdict, parts, _both(f"equal in {100 * same:.0f} % of the samples", told)
    )


def _both(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


@claim(PAPER, "Figures 4b, 9", "Scores are lower where probabilities are explained instead of logits.")
def softmax_lowers(evidence: Evidence) -> Verdict:
    """Methods that explain the logit against the same that explain the probability."""
    metric, models, told = evidence.single_deletion()
    pairs = softmax_pairs(evidence.run.get("methods", ()))
    everywhere = set.intersection(*(evidence.measured[metric][m] for m in models))
    chosen = {a: b for a, b in pairs.items() if {a, b} <= everywhere}
    if not chosen:
        raise NotTestable("no method was run with output=logit and with output=prob")
    cube = evidence.cube(metric, models, [*chosen, *chosen.values()])
    gaps = {a: mean_over((cube.of_method(a) - cube.of_method(b))[:, None]) for a, b in chosen.items()}
    parts: tuple[Row, ...] = tuple(
        {"method": a, "softmax": chosen[a], **evidence.estimate(g).record()} for a, g in gaps.items()
    )
    effect = evidence.estimate(mean_over(np.stack(list(gaps.values()))))
    return Verdict("what softmax takes away", effect, judge(effect), parts, told)


def softmax_pairs(methods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """For each method that explains the logit, the same one that explains the probability.

    >>> softmax_pairs([{"name": "IG", "spec": "saliency"}, {"name": "IG-p", "spec": "saliency(output=prob)"}])
    {'IG': 'IG-p'}
    """
    known = []
    for method in methods:
        try:
            spec = parse(str(method.get("spec", method["name"])))
        except SpecError:
            continue
        params = dict(spec.params)
        known.append((str(method["name"]), str(params.pop("output", "logit")), (spec.id, str(sorted(params.items())))))
    return {
        a: b
        for a, kind, key in known
        for b, other, same in known
        if kind == "logit" and other == "prob" and key == same
    }


@claim(PAPER, "Figure 2b", "Under IDS, raw I×G, IG and IG-U rise where the map is computed again at every step.")
def updating_helps_raw(evidence: Evidence) -> Verdict:
    """IDS with and without updates."""
    fixed, updated = evidence.metrics("ids", update=False), evidence.metrics("ids", update=True)
    if not fixed or not updated:
        raise NotTestable("it needs the metrics ids and ids(update=true)")
    methods = [evidence.named[name] for name in ("I×G", "IG", "IG-U") if name in evidence.named]
    models = sorted(evidence.measured[fixed[0]].keys() & evidence.measured[updated[0]].keys())
    if not methods or not models:
        raise NotTestable("none of I×G, IG and IG-U was run under both")
    gains = [
        mean_over(evidence.cube(updated[0], [m], methods).values - evidence.cube(fixed[0], [m], methods).values)
        for m in models
    ]
    effect = evidence.estimate(mean_over(np.stack(gains)))
    return Verdict("gain by updating", effect, judge(effect), (), "")
