"""What IDSDS's paper claims about networks and about its own settings.

Paper: hesse2024.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from heatcheck.core.spec import parse
from heatcheck.stats.across_seeds import LEAST, alike_across_seeds
from heatcheck.stats.agreement import spearman
from heatcheck.stats.claims import HELD, NOT_HELD, UNDECIDED, Row, Verdict, falls_with_depth, judge, ranks_alike
from heatcheck.stats.cube import mean_over, means_of
from heatcheck.stats.estimates import LEVEL, Estimate, share_estimate
from heatcheck.stats.evidence import Evidence, NotTestable, all_above, claim, leads, over_models
from heatcheck.stats.idsds_claims import INTRINSIC, PAPER, noted
from heatcheck.stats.intervals import count_blocks
from heatcheck.stats.table import Array

ALIKE = 0.8
"""The rank correlation from which on two settings are said to rank alike; the paper finds 0.90 to 0.996."""
SAME = 0.9
"""The rank correlation from which on another seed hardly changes a ranking; the paper finds at least 0.996."""
EQUAL = 0.05
"""The largest difference of two scores that are about equal: a fifth of IG-U's 0.255 in Table 4, as the figure has no numbers."""
KEPT = 0.01
"""The share of right answers that may be lost where accuracy is kept; the paper's largest loss is 0.0067."""
LEAST_MODELS = 4
"""Models without which nothing is said about what differs between them."""


@claim(PAPER, "Figures 3b, 8a", "Scores fall with a network's depth.")
def deeper_is_lower(evidence: Evidence) -> Verdict:
    """The fall along the fitted line from the shallowest to the deepest model."""
    return _along(evidence, "depth")


@claim(PAPER, "Figure 4a", "Scores are mostly lower for wider networks.")
def wider_is_lower(evidence: Evidence) -> Verdict:
    """The fall from the narrowest to the widest model."""
    return _along(evidence, "width")


@claim(PAPER, "Figures 5a, 8b", "Scores rise for almost all methods where batch normalisation is removed.")
def normalisation_lowers(evidence: Evidence) -> Verdict:
    """Models with normalisation (1) against those without (0)."""
    return _along(evidence, "normalisation")


@claim(PAPER, "Figures 5a, 8b", "Scores rise for almost all methods where biases are removed.")
def bias_lowers(evidence: Evidence) -> Verdict:
    """Models with biases (1) against those without (0)."""
    return _along(evidence, "bias")


def _along(evidence: Evidence, factor: str) -> Verdict:
    metric, models, told = evidence.single_deletion()
    values = {m: v for m, v in evidence.factors.get(factor, {}).items() if m in models}
    if len(set(values.values())) < 2:
        raise NotTestable(f"it needs two models of different {factor}; name them with --factor {factor}:MODEL=NUMBER,…")
    methods = sorted(set.intersection(*(set(evidence.methods(metric, m)) for m in values)))
    if not methods:
        raise NotTestable(f"no method was run on all of {', '.join(values)}")
    try:
        found = falls_with_depth(
            evidence.scores, values, methods=methods, metric=metric, seed=evidence.seed, resamples=evidence.resamples
        )
    except ValueError as problem:
        raise NotTestable(str(problem)) from None
    by = ", ".join(f"{m} {v:g}" for m, v in sorted(values.items(), key=lambda item: item[1]))
    return noted(Verdict(f"fall with {factor} ({by})", found.effect, found.verdict, found.parts, found.note), told)


@claim(PAPER, "Figure 3a", "VGG scores higher than ResNet, and ResNet higher than ViT.")
def vgg_resnet_vit(evidence: Evidence) -> Verdict:
    """The smaller of the two steps, over the methods that all three have."""
    metric, models, told = evidence.single_deletion()
    kinds = {kind: [m for m in models if kind in _squeezed(m)] for kind in ("vgg", "resnet", "vit")}
    lacking = [kind for kind, found in kinds.items() if not found]
    if lacking:
        raise NotTestable(f"no model called {' or '.join(lacking)}")
    chosen = [found[0] for found in kinds.values()]
    methods = sorted(set.intersection(*(set(evidence.methods(metric, m)) for m in chosen)))
    if not methods:
        raise NotTestable(f"no method was run on all of {', '.join(chosen)}")
    per_model = [mean_over(row) for row in evidence.cube(metric, chosen, methods).values]
    steps = {
        names: higher - lower for names, (higher, lower) in zip(pairwise(chosen), pairwise(per_model), strict=True)
    }
    each, verdict = all_above(evidence, steps)
    least = min(each.values(), key=lambda e: e.value)
    parts: tuple[Row, ...] = tuple({"model": a, "other": b, **e.record()} for (a, b), e in each.items())
    return Verdict("smaller step of VGG > ResNet > ViT", least, verdict, parts, told)


def _squeezed(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


@claim(PAPER, "Figure 3a", "On ViT, CheferLRP and IG-U are about equally the best.")
def chefer_and_ig_u_lead_on_vit(evidence: Evidence) -> Verdict:
    """The smallest of: the lead of either over any other method, and how far their difference stays below `EQUAL`."""
    metric, models, told = evidence.single_deletion()
    pair = [evidence.method_named(name) for name in ("CheferLRP", "IG-U")]
    having = [m for m in models if "vit" in _squeezed(m) and {*pair} <= evidence.measured[metric][m]]
    if not having:
        raise NotTestable("no model called ViT has scores of CheferLRP and IG-U")
    others = set.intersection(*(set(evidence.methods(metric, m, without=INTRINSIC)) for m in having)) - {*pair}
    if not others:
        raise NotTestable(f"nothing beside CheferLRP and IG-U was run on {', '.join(having)}")
    cube = evidence.cube(metric, having, [*pair, *sorted(others)])
    means = {method: mean_over(cube.of_method(method)[:, None]) for method in cube.methods}
    before, ahead = all_above(evidence, {(a, b): means[a] - means[b] for a in pair for b in sorted(others)})
    one, other = pair
    near, equal = all_above(
        evidence,
        {(a, b): EQUAL - (means[a] - means[b]) for a, b in ((one, other), (other, one))},
        matters=0.0,
    )
    verdict = NOT_HELD if NOT_HELD in (ahead, equal) else UNDECIDED if UNDECIDED in (ahead, equal) else HELD
    every = before | near
    gap = evidence.estimate(means[one] - means[other])
    note = f"{one} minus {other}: {gap.value:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})"
    parts: tuple[Row, ...] = tuple({"method": a, "other": b, **e.record()} for (a, b), e in every.items())
    least = min(every.values(), key=lambda e: e.value)
    return noted(Verdict("smallest lead, or room below an equal score", least, verdict, parts, note), told)


@claim(
    PAPER,
    "Figure 5b",
    "XGrad-CAM or Grad-CAM is the best method for models with high scores, IG-U for models with low ones.",
)
def best_method_by_level(evidence: Evidence) -> Verdict:
    """Whether either CAM leads on the half of the models with the higher best scores, and IG-U on the other half."""
    metric, models, told = evidence.single_deletion()
    uniform = evidence.method_named("IG-U")
    cams = {evidence.named[name] for name in ("Grad-CAM", "XGrad-CAM") if name in evidence.named}
    methods = {
        m: names
        for m in models
        if uniform in (names := evidence.methods(metric, m, without=INTRINSIC)) and cams & {*names}
    }
    if len(methods) < LEAST_MODELS:
        raise NotTestable(f"it needs at least {LEAST_MODELS} models with scores of IG-U and of Grad-CAM or XGrad-CAM")
    cubes = {m: evidence.cube(metric, [m], names) for m, names in methods.items()}
    order = sorted(methods, key=lambda m: -float(np.nanmax(means_of(cubes[m].values[0]))))
    half = len(order) // 2

    def leading(model: str, wanted: Sequence[str]) -> bool | None:
        others = [name for name in methods[model] if name not in wanted]
        verdicts = [leads(evidence, cubes[model], name, others, "").verdict for name in wanted]
        return True if HELD in verdicts else None if UNDECIDED in verdicts else False

    high = {m: leading(m, [name for name in methods[m] if name in cams]) for m in order[:half]}
    low = {m: leading(m, [uniform]) for m in order[-half:]}
    return noted(over_models(high | low, "share of models whose best method is the one that is claimed"), told)


@claim(PAPER, "Figure 5b", "Over models, the best method's score and the accuracy are anti-correlated.")
def accuracy_against(evidence: Evidence) -> Verdict:
    """Spearman's correlation over models, with resampled samples."""
    metric, models, told = evidence.single_deletion()
    known = [m for m in models if m in evidence.right and len(evidence.right[m])]
    if len(known) < LEAST_MODELS:
        raise NotTestable(f"it needs at least {LEAST_MODELS} models with labelled samples")
    best, accuracy = [], []
    n = min(len(evidence.right[m]) for m in known)
    for model in known:
        cube = evidence.cube(metric, [model], evidence.methods(metric, model))
        best.append(cube.values[0])
        accuracy.append(evidence.right[model])
    rho = _rho_of_best(best, accuracy, None)
    drawn = [
        _rho_of_best(best, accuracy, seed)
        for seed in np.random.default_rng(evidence.seed).integers(1 << 31, size=min(evidence.resamples, 400))
    ]
    low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    effect = Estimate(-rho, min(-float(high), -rho), max(-float(low), -rho), n)
    return Verdict(
        "minus Spearman's correlation over models",
        effect,
        judge(effect, 0.0),
        (),
        f"{len(known)} models; {told}".removesuffix("; "),
    )


def _rho_of_best(scores: list[Array], right: list[Array], seed: int | None) -> float:
    top, share = [], []
    for values, hits in zip(scores, right, strict=True):
        rng = np.random.default_rng(seed)
        some = np.arange(values.shape[1]) if seed is None else rng.integers(values.shape[1], size=values.shape[1])
        others = np.arange(len(hits)) if seed is None else rng.integers(len(hits), size=len(hits))
        top.append(np.nanmax(means_of(values[:, some])))
        share.append(hits[others].mean())
    return spearman(np.array(top), np.array(share))


@claim(
    PAPER,
    "in the text",
    "Rankings hardly depend on the number of patches (0.93 for 4 and 16, 0.90 for 16 and 64).",
)
def patches_alike(evidence: Evidence) -> Verdict:
    """The lowest rank correlation of single deletion with two numbers of cells."""
    return _variants(evidence, "units")


@claim(PAPER, "in the text", "Rankings hardly depend on the fill (0.99 for uniform noise, 0.96 for blur).")
def fills_alike(evidence: Evidence) -> Verdict:
    """The lowest rank correlation of single deletion with two fills."""
    return _variants(evidence, "fill")


def variants(evidence: Evidence, parameter: str) -> list[Row]:
    """Rank correlations of single deletion under two values of one parameter, for every model that has both.

    Raises:
        NotTestable: a model was measured on several data sets.
    """
    named = {
        m["name"]: dict(parse(str(m["spec"])).params)
        for m in evidence.run.get("metrics", ())
        if m["id"] == "sds" and m["name"] in evidence.measured
    }
    rest = {name: str(sorted((k, str(v)) for k, v in p.items() if k != parameter)) for name, p in named.items()}
    found: list[Row] = []
    for a, b in ((a, b) for a in named for b in named if a < b and rest[a] == rest[b]):
        for model in sorted(evidence.measured[a].keys() & evidence.measured[b].keys()):
            methods = sorted({*evidence.methods(a, model)} & {*evidence.methods(b, model)})
            if len(methods) >= 3:
                one, other = (evidence.cube(metric, [model], methods) for metric in (a, b))
                common = sorted({*one.samples} & {*other.samples})
                alike = correlation_of(one.at(common).values[0], other.at(common).values[0], evidence)
                found.append({"model": model, "a": a, "b": b, **alike.record()})
    return found


def _variants(evidence: Evidence, parameter: str) -> Verdict:
    """The lowest correlation, over models, of rankings by metrics that differ in one parameter."""
    found = variants(evidence, parameter)
    if not found:
        raise NotTestable(f"single deletion was not measured twice with different {parameter} on one model")
    least = min(found, key=lambda row: row["value"])
    effect = Estimate(least["value"] - ALIKE, least["low"] - ALIKE, least["high"] - ALIKE, least["n"])
    note = f"lowest correlation {least['value']:.2f} ({least['low']:.2f} to {least['high']:.2f}), {least['model']}"
    return Verdict(f"lowest rank correlation above {ALIKE:g}", effect, judge(effect, 0.0), tuple(found), note)


def correlation_of(one: Array, other: Array, evidence: Evidence) -> Estimate:
    """Spearman's correlation of two metrics' means over methods, with percentiles over the same resampled samples."""
    rho = spearman(means_of(one), means_of(other))
    n = min(one.shape[1], other.shape[1])
    if n < 2 or np.isnan(rho):
        return Estimate(rho, np.nan, np.nan, n)
    known = ~(np.isnan(one).any(0) | np.isnan(other).any(0))
    a, b = one[:, known], other[:, known]
    if a.shape[1] < 2:
        return Estimate(rho, np.nan, np.nan, n)
    drawn = []
    for counts in count_blocks(a.shape[1], evidence.resamples, evidence.seed):
        drawn += [spearman(x, y) for x, y in zip(counts @ a.T, counts @ b.T, strict=True)]
    low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(rho, min(float(low), rho), max(float(high), rho), n)


def trainings(evidence: Evidence) -> dict[str, list[str]]:
    """Models that were aligned from one network with different seeds, at least two, by the network's name."""
    found: dict[str, dict[Any, str]] = {}
    parents: dict[str, str] = {}
    for model in evidence.run.get("models", ()):
        trained = model.get("trained") or {}
        if trained.get("aligned") and model["name"] in evidence.measured.get("idsds", {}):
            parent = trained.get("parent") or {}
            key = str(parent.get("identity"))
            parents[key] = str(parent.get("name", key))
            found.setdefault(key, {}).setdefault(trained["settings"].get("seed"), model["name"])
    return {parents[key]: sorted(models.values()) for key, models in found.items() if len(models) > 1}


def seeds(evidence: Evidence) -> list[Row]:
    """Rank correlations of any two models that were aligned from one network with different seeds.

    Intervals are over samples: they are about these two trainings.
    """
    found: list[Row] = []
    for parent, (models, values) in _scores_by_training(evidence).items():
        for i, j in combinations(range(len(models)), 2):
            alike = correlation_of(values[i], values[j], evidence)
            found.append({"model": parent, "a": models[i], "b": models[j], **alike.record()})
    return found


def across_seeds(evidence: Evidence) -> list[Row]:
    """The mean of these correlations for each network that was aligned at least three times, over seeds and samples."""
    return [
        {
            "model": parent,
            "a": f"one of {len(models)} trainings",
            "b": "another",
            **alike_across_seeds(values, seed=evidence.seed, resamples=evidence.resamples).record(),
        }
        for parent, (models, values) in _scores_by_training(evidence).items()
        if len(models) >= LEAST
    ]


def _scores_by_training(evidence: Evidence) -> dict[str, tuple[list[str], Array]]:
    """By the network that trainings began with: the aligned models, and their scores of all common methods."""
    found = {}
    for parent, models in trainings(evidence).items():
        methods = sorted(set.intersection(*({*evidence.methods("idsds", m)} for m in models)))
        if len(methods) >= 3:
            found[parent] = models, evidence.cube("idsds", models, methods).values
    return found


@claim(PAPER, "in the text", "Fine-tuning with another seed changes the ranking hardly (at least 0.996).")
def seeds_alike(evidence: Evidence) -> Verdict:
    """The mean rank correlation of two models that were aligned from one network with different seeds.

    The paper prints the lowest of its ten pairs, which falls with the number of trainings; the mean does not, and has an
    interval over seeds and samples. The note has the lowest pair.
    """
    pairs, every = seeds(evidence), across_seeds(evidence)
    if not pairs:
        raise NotTestable("it needs a network that was aligned twice, with different seeds")
    low = min(pairs, key=lambda row: row["value"])
    note = (
        f"lowest of {len(pairs)} pair{'' if len(pairs) == 1 else 's'}: {low['value']:.3f} ({low['a']} and {low['b']})"
    )
    if not every:
        effect = Estimate(low["value"] - SAME, np.nan, np.nan, low["n"])
        told = f"{note}; two trainings do not tell what a third would do: {LEAST} are needed"
        return Verdict(f"rank correlation above {SAME:g}", effect, UNDECIDED, tuple(pairs), told)
    least = min(every, key=lambda row: row["value"])
    effect = Estimate(least["value"] - SAME, least["low"] - SAME, least["high"] - SAME, least["n"])
    says = f"mean rank correlation of two trainings above {SAME:g}"
    return Verdict(
        says, effect, judge(effect, 0.0), (*every, *pairs), f"{note}; the interval is over seeds and samples"
    )


@claim(PAPER, "in the text", "SDS before alignment and IDSDS after it rank methods alike (0.89).")
def sds_ranks_alike(evidence: Evidence) -> Verdict:
    """The rank correlation of SDS on a network and IDSDS on what became of it."""
    known = {m["identity"]: m["name"] for m in evidence.run.get("models", ())}
    pairs = [
        (known[parent], m["name"])
        for m in evidence.run.get("models", ())
        if (parent := ((m.get("trained") or {}).get("parent") or {}).get("identity")) in known
        and (m.get("trained") or {}).get("aligned")
    ]
    if not pairs:
        raise NotTestable("it needs a network before and after its alignment in one run")
    before, after = pairs[0]
    methods = sorted({*evidence.methods("sds", before)} & {*evidence.methods("idsds", after)})
    try:
        return ranks_alike(
            evidence.scores,
            (before, "sds"),
            (after, "idsds"),
            methods=methods,
            seed=evidence.seed,
            resamples=evidence.resamples,
        )
    except ValueError as problem:
        raise NotTestable(str(problem)) from None


@claim(PAPER, "Table 3", "Alignment keeps the clean accuracy.")
def alignment_keeps_accuracy(evidence: Evidence) -> Verdict:
    """Accuracy on the samples that training held out, after minus before, plus what may be lost.

    Records keep both shares and not each sample's answer, so that the interval is that of independent samples, longer than
    a paired one.
    """
    found = {
        model: change
        for model, trained in _aligned(evidence).items()
        if (change := _change(trained.get("accuracy") or {}, int(trained.get("held_out_samples", 0)))) is not None
    }
    if not found:
        raise NotTestable(
            "it needs an aligned network whose training knows its accuracy before and after; `heatcheck aligned MODEL` measures both"
        )
    parts: tuple[Row, ...] = tuple({"model": model, **e.record()} for model, e in found.items())
    effects = {model: Estimate(e.value + KEPT, e.low + KEPT, e.high + KEPT, e.n) for model, e in found.items()}
    model = min(effects, key=lambda name: effects[name].value)
    told = [judge(effect, 0.0) for effect in effects.values()]
    verdict = NOT_HELD if NOT_HELD in told else UNDECIDED if UNDECIDED in told else HELD
    note = (
        f"{model}: {100 * found[model].value:+.2f} points on {found[model].n:,} held-out samples; up to {100 * KEPT:g} "
        f"lost counts as kept; weights that were chosen by these samples flatter alignment"
    )
    return Verdict("change of accuracy, and what may be lost", effects[model], verdict, parts, note)


def _aligned(evidence: Evidence) -> dict[str, Mapping[str, Any]]:
    """How each aligned model was trained, of those with the weights that its training chose."""
    return {
        str(m["name"]): m["trained"]
        for m in evidence.run.get("models", ())
        if (m.get("trained") or {}).get("aligned") and m["trained"].get("checkpoint", "chosen") == "chosen"
    }


def _change(accuracy: Mapping[str, float], n: int) -> Estimate | None:
    """After minus before; the interval joins those of both shares by Newcombe's rule for independent samples.

    Paper: newcombe1998.
    """
    if "before" not in accuracy or "chosen" not in accuracy or not n:
        return None
    before, after = (share_estimate(np.arange(n) < round(accuracy[k] * n)) for k in ("before", "chosen"))
    value = after.value - before.value
    low = value - float(np.hypot(after.value - after.low, before.high - before.value))
    high = value + float(np.hypot(after.high - after.value, before.value - before.low))
    return Estimate(value, low, high, n)


@claim(PAPER, "Table 3", "Alignment raises the accuracy under the worst single deletion.")
def alignment_helps_the_worst(evidence: Evidence) -> Verdict:
    """`corrupted_accuracy` of aligned networks minus that of what they were made of, sample by sample."""
    known = {m["identity"]: str(m["name"]) for m in evidence.run.get("models", ())}
    gains: dict[tuple[str, str], Array] = {}
    for metric in evidence.metrics("corrupted_accuracy"):
        there = evidence.measured.get(metric, {})
        for model, trained in _aligned(evidence).items():
            before = known.get((trained.get("parent") or {}).get("identity"), "")
            common = sorted(there.get(model, set()) & there.get(before, set()))
            if common:  # every map of a sample has the same score
                old, new = evidence.cube(metric, [before, model], common[:1]).values[:, 0]
                gains[model, before] = new - old
    if not gains:
        raise NotTestable(
            "it needs corrupted_accuracy on a network before and after alignment; `heatcheck aligned MODEL` measures it"
        )
    each, verdict = all_above(evidence, gains)
    parts: tuple[Row, ...] = tuple({"model": a, "other": b, **e.record()} for (a, b), e in each.items())
    return Verdict("smallest gain", min(each.values(), key=lambda e: e.value), verdict, parts)


@claim(PAPER, "in the text", "A network changes less by alignment than it differs from another architecture.")
def alignment_changes_little(evidence: Evidence) -> Verdict:
    """Asks the networks, not the maps."""
    raise NotTestable(
        "it asks networks before and after alignment: `heatcheck aligned MODEL --other MODEL` measures it"
    )
