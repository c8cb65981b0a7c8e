"""What Meta-Rank's supplement claims about rankings of methods over cases, a case being a model, data and a protocol.

Paper: duan2024.
"""

from collections.abc import Callable
from itertools import combinations

import numpy as np
import polars as pl

from heatcheck.stats.agreement import spearman
from heatcheck.stats.claims import HELD, Row, Verdict, judge
from heatcheck.stats.cube import Cube, means_of
from heatcheck.stats.estimates import LEVEL, Estimate
from heatcheck.stats.evidence import Evidence, NotTestable, claim
from heatcheck.stats.intervals import bootstrap_indices
from heatcheck.stats.ranks import rank_of
from heatcheck.stats.table import Array

PAPER = "duan2024"
LOW, HIGH = 0.5, 0.7
"""Rank correlations below the first are called low here, W above the second high: the paper prints neither."""
FALLING = ("IG", "Input⊙Gradient", "DeepLift")
_RESAMPLES = 400


@claim(PAPER, "main paper", "Rankings of different cases agree little.")
def cases_disagree(evidence: Evidence) -> Verdict:
    """Spearman's correlation of the rankings of two cases, averaged over pairs of cases with other models or data."""
    cases, methods = _cases(evidence)
    pairs = [(a, b) for a, b in combinations(cases, 2) if a[:2] != b[:2]]
    if len(pairs) < 1 or len(methods) < 3:
        raise NotTestable("it needs at least three methods under MoRF or LeRF on two models or data sets")

    def mean_rho(seed: int | None) -> float:
        means = {case: means_of(_drawn(cube, seed)) for case, cube in cases.items()}
        return float(np.nanmean([spearman(means[a], means[b]) for a, b in pairs]))

    effect = _resampled(evidence, mean_rho, lambda rho: LOW - rho, cases)
    note = f"mean correlation {LOW - effect.value:.2f} over {len(cases)} cases and {len(methods)} methods"
    return Verdict(f"how far the mean correlation is below {LOW:g}", effect, judge(effect, 0.0), (), note)


@claim(PAPER, "Tables S5, S6", "Along one training, rankings of checkpoints agree much.")
def checkpoints_agree(evidence: Evidence) -> Verdict:
    """Kendall's W over the checkpoints of a training."""
    found = [along for along in evidence.along if along.w.value is not None]
    if not found:
        raise NotTestable("it needs at least three checkpoints of one training in one run")
    parts: list[Row] = [
        {"training": a.training, "metric": a.metric, "value": a.w.value, "low": a.w.low, "high": a.w.high, "n": a.n}
        for a in found
    ]
    least = min(parts, key=lambda part: part["value"])
    low, high = (np.nan if least[end] is None else least[end] - HIGH for end in ("low", "high"))
    effect = Estimate(least["value"] - HIGH, low, high, least["n"])
    return Verdict(
        f"lowest W above {HIGH:g}", effect, judge(effect, 0.0), tuple(parts), f"W is {least['value']:.2f} at least"
    )


@claim(PAPER, "Figure S7", "MoRF and LeRF do not rank methods the same.")
def protocols_disagree(evidence: Evidence) -> Verdict:
    """One minus Spearman's correlation of both rankings, averaged over models."""
    cases, methods = _cases(evidence)
    both = [case[:2] for case in cases if case[2] == "morf" and (*case[:2], "lerf") in cases]
    if not both or len(methods) < 3:
        raise NotTestable("it needs at least three methods under MoRF and LeRF on one model")

    def apart(seed: int | None) -> float:
        rho = [
            spearman(*(means_of(_drawn(cases[(*place, protocol)], seed)) for protocol in ("morf", "lerf")))
            for place in both
        ]
        return float(1 - np.nanmean(rho))

    effect = _resampled(evidence, apart, lambda value: value, cases)
    small = Estimate(effect.value - 0.05, effect.low - 0.05, effect.high - 0.05, effect.n)
    note = f"1 − correlation is {effect.value:.2f} ({effect.low:.2f} to {effect.high:.2f})"
    return Verdict("1 − correlation, above 0.05", small, judge(small, 0.0), (), note)


@claim(PAPER, "Figure S7", "LRP can be best under MoRF and worst under LeRF.")
def lrp_first_and_last(evidence: Evidence) -> Verdict:
    """Whether there is a model where LRP leads under MoRF and comes last under LeRF."""
    cases, methods = _cases(evidence)
    lrp = evidence.method_named("LRP")
    places = [case[:2] for case in cases if case[2] == "morf" and (*case[:2], "lerf") in cases]
    if not places or lrp not in methods:
        raise NotTestable("it needs LRP under MoRF and LeRF on one model")
    parts: list[Row] = []
    for model, data in places:
        ranks = {p: rank_of(means_of(cases[model, data, p])) for p in ("morf", "lerf")}
        at = methods.index(lrp)
        parts.append(
            {"model": model, "data": data, "morf": ranks["morf"][at], "lerf": ranks["lerf"][at], "of": len(methods)}
        )
    so = [part for part in parts if part["morf"] == 1 and part["lerf"] == part["of"]]
    n = min(cube.shape[1] for cube in cases.values())
    effect = Estimate(len(so) / len(parts), np.nan, np.nan, n)
    verdict = HELD if so else judge(Estimate(0.0, -1.0, 0.0, n))
    return Verdict(
        "share of models where it is so", effect, verdict, tuple(parts), "by mean scores; no test of the ranks"
    )


@claim(PAPER, "Figure S7", "IG, I⊙G and DeepLift fall faster under LeRF than under MoRF.")
def falls_faster_under_lerf(evidence: Evidence) -> Verdict:
    """The drop under LeRF minus that under MoRF, of the method and model for which it is least."""
    cases, methods = _cases(evidence)
    wanted = [evidence.named[name] for name in FALLING if evidence.named.get(name) in methods]
    places = [case[:2] for case in cases if case[2] == "morf" and (*case[:2], "lerf") in cases]
    if not wanted or not places:
        raise NotTestable(f"it needs one of {', '.join(FALLING)} under MoRF and LeRF on one model")
    parts: list[Row] = [
        {
            "method": method,
            "model": model,
            "data": data,
            **evidence.estimate(-cases[model, data, "lerf"][at] - cases[model, data, "morf"][at]).record(),
        }
        for method, at in ((name, methods.index(name)) for name in wanted)
        for model, data in places
    ]
    least = min(parts, key=lambda part: part["value"])
    effect = Estimate(**{k: least[k] for k in ("value", "low", "high", "n")})
    verdict = HELD if all(part["low"] > 0 for part in parts) else judge(effect)
    return Verdict(
        "smallest lead of LeRF's drop",
        effect,
        verdict,
        tuple(parts),
        f"least for {least['method']} on {least['model']}",
    )


@claim(PAPER, "Figure S7", "The time of linear imputation (ROAD) rises steeply with the share that is removed.")
def road_takes_longer(evidence: Evidence) -> Verdict:
    """Asks the clock."""
    raise NotTestable("a run does not keep the time of each share")


@claim(PAPER, "main paper, as summarised by others", "Input⊙Gradient and IG lead over all cases.")
def gradients_lead(evidence: Evidence) -> Verdict:
    """The best mean rank of another method minus the worse of both."""
    return _lead(evidence, ("Input⊙Gradient", "IG"), last=False)


@claim(PAPER, "main paper, as summarised by others", "Deconvolution comes last over all cases.")
def deconvolution_is_last(evidence: Evidence) -> Verdict:
    """Its mean rank minus the worst mean rank of another method."""
    return _lead(evidence, ("Deconvolution",), last=True)


def _lead(evidence: Evidence, names: tuple[str, ...], *, last: bool) -> Verdict:
    cases, methods = _cases(evidence)
    own = [methods.index(evidence.method_named(name)) for name in names if evidence.method_named(name) in methods]
    rest = [i for i in range(len(methods)) if i not in own]
    if len(own) < len(names) or not rest or not cases:
        raise NotTestable(f"it needs {' and '.join(names)} and another method under MoRF or LeRF")

    def gap(seed: int | None) -> float:
        ranks = np.mean([rank_of(means_of(_drawn(cube, seed))) for cube in cases.values()], axis=0)
        return float(ranks[own].min() - ranks[rest].max() if last else ranks[rest].min() - ranks[own].max())

    effect = _resampled(evidence, gap, lambda value: value, cases)
    words = "last" if last else "first"
    return Verdict(
        f"places by which it comes {words}, in mean ranks", effect, judge(effect, 0.0), (), f"{len(cases)} cases"
    )


Cases = dict[tuple[str, str, str], Array]


def _cases(evidence: Evidence) -> tuple[Cases, list[str]]:
    """Scores of every case, [methods, samples], better ones higher; and the methods that all cases have.

    Raises:
        NotTestable: neither MoRF nor LeRF was measured.
    """
    found: list[tuple[str, str, str, str]] = []
    for protocol in ("morf", "lerf"):
        names = evidence.metrics(protocol)
        if names:
            known = (
                evidence.board.filter(evidence.board["metric"] == names[0])
                .select("model", "data")
                .unique()
                .sort("model", "data")
            )
            found += [(model, data, protocol, names[0]) for model, data in known.iter_rows()]
    if not found:
        raise NotTestable("neither MoRF nor LeRF was measured")
    methods = sorted(set.intersection(*({*evidence.methods(metric, model)} for model, _, _, metric in found)))
    if not methods:
        raise NotTestable("no method was run in all cases")
    cubes: dict[tuple[str, str, str], Cube] = {}
    for model, data, protocol, metric in found:
        here = evidence.scores.filter(pl.col("data").cast(pl.String) == data)
        cube = Cube.of(here, {model: metric}, methods)
        cubes[model, data, protocol] = Cube(evidence.facts.sign(metric) * cube.values, cube.methods, cube.samples)
    cases: Cases = {}
    for key, cube in cubes.items():
        beside = [other.samples for place, other in cubes.items() if place[:2] == key[:2]]
        cases[key] = cube.at(sorted(set.intersection(*map(set, beside)))).values[0]
    return cases, methods


def _drawn(values: Array, seed: int | None) -> Array:
    return values if seed is None else values[:, bootstrap_indices(values.shape[1], 1, seed)[0]]


def _resampled(
    evidence: Evidence, statistic: Callable[[int | None], float], read: Callable[[float], float], cases: Cases
) -> Estimate:
    """A statistic of the cases with percentiles over resampled samples, widened to hold it."""
    value = read(statistic(None))
    n = min(cube.shape[1] for cube in cases.values())
    if n < 2 or np.isnan(value):
        return Estimate(value, np.nan, np.nan, n)
    seeds = np.random.default_rng([evidence.seed, 6]).integers(1 << 31, size=min(evidence.resamples, _RESAMPLES))
    drawn = [read(statistic(int(seed))) for seed in seeds]
    low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, min(float(low), value), max(float(high), value), n)
