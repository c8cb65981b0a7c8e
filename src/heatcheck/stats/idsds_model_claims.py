"""What IDSDS's paper claims about networks and about its own settings.

Paper: hesse2024.
"""

from itertools import pairwise

import numpy as np

from heatcheck.core.spec import parse
from heatcheck.stats.agreement import spearman
from heatcheck.stats.claims import HELD, Row, Verdict, falls_with_depth, judge, ranks_alike
from heatcheck.stats.cube import mean_over, means_of
from heatcheck.stats.estimates import LEVEL, Estimate
from heatcheck.stats.evidence import Evidence, NotTestable, claim
from heatcheck.stats.idsds_claims import PAPER, noted
from heatcheck.stats.intervals import count_blocks
from heatcheck.stats.table import Array

ALIKE = 0.8
"""The rank correlation from which on two settings are said to rank alike; the paper finds 0.90 to 0.996."""


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
    steps = [evidence.estimate(a - b) for a, b in pairwise(per_model)]
    least = min(steps, key=lambda e: e.value)
    verdict = HELD if all(e.low > 0 for e in steps) else judge(least)
    parts: tuple[Row, ...] = tuple(
        {"model": a, "other": b, **e.record()} for a, b, e in zip(chosen, chosen[1:], steps, strict=False)
    )
    return Verdict("smaller step of VGG > ResNet > ViT", least, verdict, parts, told)


def _squeezed(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


@claim(PAPER, "Figure 5b", "Over models, the best method's score and the accuracy are anti-correlated.")
def accuracy_against(evidence: Evidence) -> Verdict:
    """Spearman's correlation over models, with resampled samples."""
    metric, models, told = evidence.single_deletion()
    known = [m for m in models if m in evidence.right and len(evidence.right[m])]
    if len(known) < 4:
        raise NotTestable("it needs at least four models with labelled samples")
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


def seeds(evidence: Evidence) -> list[Row]:
    """Rank correlations of models that were aligned from one network with different seeds."""
    trained = {
        m["name"]: m["trained"] for m in evidence.run.get("models", ()) if (m.get("trained") or {}).get("aligned")
    }
    pairs = [
        (a, b)
        for a in trained
        for b in trained
        if a < b
        and (trained[a].get("parent") or {}).get("identity") == (trained[b].get("parent") or {}).get("identity")
        and trained[a]["settings"].get("seed") != trained[b]["settings"].get("seed")
    ]
    found: list[Row] = []
    for a, b in pairs:
        methods = sorted({*evidence.methods("idsds", a)} & {*evidence.methods("idsds", b)})
        if len(methods) >= 3:
            one, other = evidence.cube("idsds", [a, b], methods).values
            found.append({"a": a, "b": b, **correlation_of(one, other, evidence).record()})
    return found


@claim(PAPER, "in the text", "Fine-tuning with another seed changes the ranking hardly (at least 0.996).")
def seeds_alike(evidence: Evidence) -> Verdict:
    """The lowest rank correlation of two models that were aligned from one network with different seeds."""
    found = seeds(evidence)
    if not found:
        raise NotTestable("it needs a network that was aligned twice, with different seeds")
    least = min(found, key=lambda row: row["value"])
    effect = Estimate(least["value"] - 0.9, least["low"] - 0.9, least["high"] - 0.9, least["n"])
    return Verdict("lowest rank correlation above 0.9", effect, judge(effect, 0.0), tuple(found), "")


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


@claim(PAPER, "Table 3", "Alignment keeps the clean accuracy and raises it under the worst deletion.")
def alignment_keeps_accuracy(evidence: Evidence) -> Verdict:
    """Asks the networks, not the maps."""
    raise NotTestable("it asks networks before and after alignment: `heatcheck aligned MODEL` measures it")


@claim(PAPER, "in the text", "A network changes less by alignment than it differs from another architecture.")
def alignment_changes_little(evidence: Evidence) -> Verdict:
    """Asks the networks, not the maps."""
    raise NotTestable(
        "it asks networks before and after alignment: `heatcheck aligned MODEL --other MODEL` measures it"
    )
