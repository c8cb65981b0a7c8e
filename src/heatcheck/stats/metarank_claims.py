"""What Meta-Rank's paper and supplement claim about rankings over cases, a case being a model, data and a protocol.

Every claim is a number that should be above zero. Its interval is over models and data sets where there are at least three
of them, and over samples where there are fewer; the note says which. Rankings disagree by noise alone: what is said of
their agreement counts pairs of methods only where they are significantly apart (`certain_agreement`).

Paper: duan2024.
"""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from heatcheck.stats.agreement import kendall_tau, spearman
from heatcheck.stats.certain_agreement import (
    Better,
    bound_matrices,
    bounds_between,
    certain_orders,
    rho_bounds,
    tau_bounds,
)
from heatcheck.stats.checkpoints import Coefficient
from heatcheck.stats.claims import HELD, NOT_HELD, UNDECIDED, Row, Verdict, judge
from heatcheck.stats.consistency import (
    MetaAgreement,
    between_cases,
    case_weights,
    mean_of_pairs,
    mean_over_pairs,
    meta_agreement,
    one_more_pair,
    ordered_pairs,
)
from heatcheck.stats.estimates import LEVEL, Estimate, mean_estimate
from heatcheck.stats.evidence import Evidence, NotTestable, claim
from heatcheck.stats.meta_cases import CaseTable
from heatcheck.stats.meta_rank import FEWEST_PAIRS, kappa_difference
from heatcheck.stats.removal_orders import falls_faster_under_lerf as orders_of_removal
from heatcheck.stats.student import stretch
from heatcheck.stats.table import Array, nan_to_null
from heatcheck.stats.win_matrix import kappa, win_matrix

PAPER = "duan2024"
LOW, HIGH = 0.5, 0.7
"""Rank correlations below the first are called low here, W above the second high: the paper prints neither."""
FALLING = ("IG", "Input⊙Gradient", "DeepLift")
STEEPLY = 2.0
"""How many times longer a steep rise takes at least."""
PAIRS = "models and data sets"
_SMALL = 0.05  # of 1 − τ: what no one would call a difference
_RESAMPLES = 400


@claim(PAPER, "main paper", "Rankings of different cases agree little.")
def cases_disagree(evidence: Evidence) -> Verdict:
    """How far Spearman's correlation of two cases, averaged over all pairs of cases, is below a half."""
    table = _table(evidence)
    if len(table.pairs) < 2 or len(table.methods) < 3:
        raise NotTestable("it needs at least three methods under MoRF or LeRF on two models or data sets")
    measured = between_cases(table.ranks, spearman)
    resamples, many = min(evidence.resamples, _RESAMPLES), len(table.pairs)
    least, most = bound_matrices(table, _certain(evidence, table, many), rho_bounds)
    weights = case_weights(table, resamples, evidence.seed)

    def mean(matrix: Array) -> Coefficient:
        others = [] if weights is None else one_more_pair(table.ranks, matrix, spearman, len(table.cases) / many)
        return mean_of_pairs(matrix, weights, LEVEL, stretch(many, LEVEL), others).within(-1.0, 1.0)

    effect, over = _below(LOW, float(np.nanmean(measured)), mean(least), mean(most), table, many)
    note = f"mean correlation {LOW - effect.value:.2f} as measured over {len(table.cases)} cases; interval over {over}"
    says = f"how far the mean correlation is below {LOW:g}"
    return Verdict(says, effect, judge(effect, 0.0), (), note, _counted(over))


@claim(PAPER, "Tables S5, S6", "Along one training, rankings of checkpoints agree much.")
def checkpoints_agree(evidence: Evidence) -> Verdict:
    """Kendall's W over the checkpoints of a training."""
    least, parts = _lowest_w(evidence)
    effect = Estimate(_end(least.value) - HIGH, _end(least.low) - HIGH, _end(least.high) - HIGH, parts[0]["n"])
    return Verdict(
        f"lowest W above {HIGH:g}", effect, judge(effect, 0.0), tuple(parts), f"W is {least.value:.2f} at least"
    )


@claim(PAPER, "Tables S5, S6", "Rankings are steadier along one training than across cases.")
def steadier_along_training(evidence: Evidence) -> Verdict:
    """The lowest W along trainings minus W over cases; from the worst ends of both to the best, so rather too long."""
    least, parts = _lowest_w(evidence)
    w = _agreement(evidence, _table(evidence)).w
    if w.value is None:
        raise NotTestable("W over cases is not defined: no two cases rank the same two methods")
    ends = (_end(least.value) - w.value, _end(least.low) - _end(w.high), _end(least.high) - _end(w.low))
    effect = Estimate(*ends, parts[0]["n"])
    return Verdict("W along training minus W over cases", effect, judge(effect, 0.0), tuple(parts))


@claim(PAPER, "Figure S7", "MoRF and LeRF do not rank methods the same.")
def protocols_disagree(evidence: Evidence) -> Verdict:
    """One minus Kendall's τ of both rankings, averaged over models and data sets."""
    table = _with_both_orders(evidence)
    both = ordered_pairs(table.cases)
    orders = _certain(evidence, table, len(both))
    bounds = [bounds_between(table, orders, i, k, tau_bounds) for i, k in both]
    least, most = (
        mean_over_pairs([nan_to_null(end) for end in ends], LEVEL, evidence.seed, min(evidence.resamples, _RESAMPLES))
        for ends in zip(*bounds, strict=True)
    )
    measured = float(np.nanmean([between_cases(table.ranks[[i, k]], kendall_tau)[0, 1] for i, k in both]))
    effect, over = _below(1.0, measured, least, most, table, len(both))
    small = Estimate(effect.value - _SMALL, effect.low - _SMALL, effect.high - _SMALL, effect.n)
    note = f"1 − τ is {effect.value:.2f} as measured, {effect.low:.2f} to {effect.high:.2f} over {over}"
    return Verdict(f"1 − τ, above {_SMALL:g}", small, judge(small, 0.0), (), note, _counted(over))


@claim(PAPER, "Figure S7", "LRP can be best under MoRF and worst under LeRF.")
def lrp_first_and_last(evidence: Evidence) -> Verdict:
    """Whether there is a model and data set where LRP leads under MoRF and comes last under LeRF."""
    table = _with_both_orders(evidence)
    (at,) = _places(evidence, table, ("LRP",))
    orders = _certain(evidence, table, 1)
    parts: list[Row] = []
    for i, k in ordered_pairs(table.cases):
        most, least = table.ranks[i], table.ranks[k]
        if np.isnan(most[at] + least[at]):
            continue
        ahead, behind = ~np.isnan(most), ~np.isnan(least)
        ahead[at] = behind[at] = False
        if orders[i][at, ahead].all() and orders[k][behind, at].all():
            verdict = HELD
        else:
            contrary = orders[i][:, at].any() or orders[k][at].any()
            verdict = NOT_HELD if contrary else UNDECIDED
        model, data = table.cases[i].pair
        by_means = bool(most[at] == np.nanmin(most) and least[at] == np.nanmax(least))
        ranks: Row = {"model": model, "data": data, "morf": most[at], "lerf": least[at]}
        parts.append({**ranks, "so": by_means, "verdict": verdict})
    if not parts:
        raise NotTestable("it needs LRP under MoRF and LeRF on one model")
    so, verdicts = [part["so"] for part in parts], [part["verdict"] for part in parts]
    verdict = HELD if HELD in verdicts else NOT_HELD if set(verdicts) == {NOT_HELD} else UNDECIDED
    effect = Estimate(float(np.mean(so)), np.nan, np.nan, len(so))
    note = f"in {sum(so)} of {len(so)} models and data sets by mean scores, in {verdicts.count(HELD)} for certain"
    return Verdict("share where it is so", effect, verdict, tuple(parts), note, PAIRS)


@claim(PAPER, "Figure S7", "IG, I⊙G and DeepLift fall faster under LeRF than under MoRF.")
def falls_faster_under_lerf(evidence: Evidence) -> Verdict:
    """The area under the MoRF curve minus that under the LeRF curve: of the method, model and data for which it is least."""
    table = _with_both_orders(evidence)
    wanted = [evidence.named[name] for name in FALLING if evidence.named.get(name) in table.methods]
    if not wanted:
        raise NotTestable(f"it needs one of {', '.join(FALLING)} under MoRF and LeRF on one model")
    found = orders_of_removal(table, seed=evidence.seed, resamples=evidence.resamples)
    parts: list[Row] = [
        {
            "method": r["method"],
            "model": r["model"],
            "data": r["data"],
            **Estimate(-r["difference"], -r["high"], -r["low"], r["n"]).record(),
            "verdict": r["verdict"],
        }
        for r in found.filter(pl.col("method").is_in(wanted)).iter_rows(named=True)
    ]
    least = min(parts, key=lambda part: part["value"])
    effect = Estimate(**{k: least[k] for k in ("value", "low", "high", "n")})
    verdict = HELD if all(part["low"] > 0 for part in parts) else judge(effect)
    note = f"least for {least['method']} on {least['model']}; interval over samples"
    return Verdict("smallest lead of LeRF's drop", effect, verdict, tuple(parts), note)


@claim(PAPER, "Figure S7", "The time of linear imputation (ROAD) rises steeply with the share that is removed.")
def road_takes_longer(evidence: Evidence) -> Verdict:
    """Asks the clock; `time_rises_steeply` judges times that were taken."""
    raise NotTestable(
        "a run does not keep the time of each share: `heatcheck fills MODEL DATA --fill linear --units site --share 0.2,0.9` takes it"
    )


@claim(PAPER, "main paper, as summarised by others", "Input⊙Gradient and IG lead over all cases.")
def gradients_lead(evidence: Evidence) -> Verdict:
    """The lower κ of both minus the highest of the others."""
    table = _table(evidence)
    return _leads(evidence, table, _places(evidence, table, ("Input⊙Gradient", "IG")), "κ by which they lead")


@claim(PAPER, "main paper, as summarised by others", "Deconvolution comes last over all cases.")
def deconvolution_is_last(evidence: Evidence) -> Verdict:
    """The lowest κ of the others minus its own."""
    table = _table(evidence)
    (at,) = _places(evidence, table, ("Deconvolution",))
    others = [k for k in range(len(table.methods)) if k != at]
    return _leads(evidence, table, others, "κ by which it is behind")


def time_rises_steeply(seconds: ArrayLike, early: int, late: int, says: str) -> Verdict:
    """Does an imputation take at least twice as long with a large share removed as with a small one?

    Args:
        seconds: [samples, shares].
        early: the number of the small share.
        late: the number of the large share.
        says: the claim in a sentence.

    Returns:
        The effect is the mean of log₂ of how many times longer it takes, minus 1.
    """
    times = np.asarray(seconds, dtype=np.float64)
    effect = mean_estimate(np.log2(times[:, late] / times[:, early]) - np.log2(STEEPLY))
    return Verdict(says, effect, judge(effect, 0.0), note=f"it takes {2 ** (effect.value + 1):.1f} times as long")


# -- cases -----------------------------------------------------------------------------------------------------------


def _table(evidence: Evidence) -> CaseTable:
    if evidence.cases is None:
        raise NotTestable("neither MoRF nor LeRF was measured with two methods")
    return evidence.cases


def _with_both_orders(evidence: Evidence) -> CaseTable:
    table = _table(evidence)
    if not ordered_pairs(table.cases) or len(table.methods) < 2:
        raise NotTestable("it needs two methods under MoRF and LeRF, with equal settings, on one model")
    return table


def _places(evidence: Evidence, table: CaseTable, names: Sequence[str]) -> list[int]:
    """The numbers of methods that a paper names, in the table; there must be others beside them."""
    own = [evidence.method_named(name) for name in names]
    for name, method in zip(names, own, strict=True):
        if method not in table.methods:
            raise NotTestable(f"no case ranks {name}")
    if len(own) >= len(table.methods):
        raise NotTestable(f"there is nothing beside {' and '.join(names)} to compare it with")
    return [table.methods.index(method) for method in own]


def _agreement(evidence: Evidence, table: CaseTable) -> MetaAgreement:
    return meta_agreement(table, seed=evidence.seed, resamples=min(evidence.resamples, _RESAMPLES))


def _lowest_w(evidence: Evidence) -> tuple[Coefficient, list[Row]]:
    """The lowest W along a training, and all of them, the lowest first."""
    found = sorted((a for a in evidence.along if a.w.value is not None), key=lambda a: _end(a.w.value))
    if not found:
        raise NotTestable("it needs at least three checkpoints of one training in one run")
    rows: list[Row] = [
        {"training": a.training, "metric": a.metric, "value": a.w.value, "low": a.w.low, "high": a.w.high, "n": a.n}
        for a in found
    ]
    return found[0].w, rows


# -- numbers with intervals ------------------------------------------------------------------------------------------


def _leads(evidence: Evidence, table: CaseTable, ahead: Sequence[int], says: str) -> Verdict:
    names = [table.methods[k] for k in ahead]
    rest = [k for k in range(len(table.methods)) if k not in ahead]
    between = kappa_difference(table, names, seed=evidence.seed, resamples=min(evidence.resamples, _RESAMPLES))

    def gap(_: CaseTable, ranks: Array) -> float:
        strength = kappa(*win_matrix(ranks))
        return float(strength[list(ahead)].min() - strength[rest].max())

    effect, over = _estimated(table, between, gap, evidence)
    note = f"{len(table.cases)} cases; interval over {over}"
    return Verdict(says, effect, judge(effect, 0.0), (), note, _counted(over))


def _counted(over: str) -> str:
    return PAIRS if over == PAIRS else "samples"


def _certain(evidence: Evidence, table: CaseTable, averaged: int) -> tuple[Better, ...]:
    """Who is better than whom for certain: in two cases at once where many are averaged, else in all of them."""
    errors = 2 if averaged >= FEWEST_PAIRS else len(table.cases)
    return certain_orders(table, level=1 - (1 - LEVEL) / errors, seed=evidence.seed, resamples=evidence.resamples)


def _below(
    limit: float, measured: float, least: Coefficient, most: Coefficient, table: CaseTable, averaged: int
) -> tuple[Estimate, str]:
    """How far a mean correlation is below a limit, from its least to its greatest possible value; and over what."""
    low, high = (end if end is not None else _end(c.value) for c, end in ((least, least.low), (most, most.high)))
    over = "samples" if least.low is None else PAIRS
    n = min(case.n for case in table.cases) if least.low is None else averaged
    return Estimate(limit - measured, limit - max(high, measured), limit - min(low, measured), n), over


def _estimated(
    table: CaseTable, between: Coefficient, statistic: Callable[[CaseTable, Array], float], evidence: Evidence
) -> tuple[Estimate, str]:
    """A number with its interval over models and data sets where it has one, else over samples; and which."""
    if between.low is not None and between.high is not None:
        return Estimate(_end(between.value), between.low, between.high, len(table.pairs)), PAIRS
    value, n = statistic(table, table.ranks), min(case.n for case in table.cases)
    if n < 2 or np.isnan(value):
        return Estimate(value, np.nan, np.nan, n), "nothing, as there is one sample"
    drawn = table.resampled_ranks(min(evidence.resamples, _RESAMPLES), evidence.seed)
    found = [statistic(table, drawn[:, :, r]) for r in range(drawn.shape[2])]
    low, high = np.nanquantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, min(float(low), value), max(float(high), value), n), "samples"


def _end(value: float | None) -> float:
    return float("nan") if value is None else value
