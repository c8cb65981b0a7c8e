"""What Meta-Rank's paper and supplement claim about methods, tested on the cases of many runs; `metarank_claims` tests one run.

Every claim is a number that should be above zero, with an interval over models and data sets, or over samples.

Paper: duan2024.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from heatcheck.stats.checkpoints import AlongTraining, Coefficient
from heatcheck.stats.claims import HELD, NOT_HELD, Verdict, judge
from heatcheck.stats.consistency import MetaAgreement
from heatcheck.stats.estimates import Estimate, mean_estimate
from heatcheck.stats.meta_cases import CaseTable
from heatcheck.stats.meta_rank import kappa_difference

STEEPLY = 2.0
"""How many times longer a steep rise takes at least."""


def leads(table: CaseTable, leaders: Sequence[str], *, seed: int = 0, resamples: int = 1000) -> Verdict:
    """Do these methods lead? The effect is the lowest κ among them minus the highest of the others.

    Raises:
        ValueError: one of them is not ranked, or nobody else is.
    """
    _demand(table, leaders)
    effect = _estimate(kappa_difference(table, leaders, seed=seed, resamples=resamples), len(table.pairs))
    return Verdict(f"{' and '.join(leaders)} lead" + ("s" if len(leaders) == 1 else ""), effect, judge(effect, 0.0))


def comes_last(table: CaseTable, method: str, *, seed: int = 0, resamples: int = 1000) -> Verdict:
    """Does this method come last? The effect is the lowest κ of all others minus its own."""
    _demand(table, [method])
    others = [m for m in table.methods if m != method]
    effect = _estimate(kappa_difference(table, others, seed=seed, resamples=resamples), len(table.pairs))
    return Verdict(f"{method} comes last", effect, judge(effect, 0.0))


def orders_differ(agreement: MetaAgreement) -> Verdict:
    """Do MoRF and LeRF rank methods differently? The effect is 1 minus the mean τ within models and data sets.

    Raises:
        ValueError: no model and data set has both orders.
    """
    if not agreement.orders:
        raise ValueError("no model and data set has both MoRF and LeRF")
    tau = agreement.order_tau
    effect = _estimate(
        Coefficient(*(None if v is None else 1 - v for v in (tau.value, tau.high, tau.low))), len(agreement.orders)
    )
    return Verdict("rankings differ between MoRF and LeRF", effect, judge(effect, 0.05))


def decay_faster_under_lerf(orders: pl.DataFrame, method: str) -> Verdict:
    """Does a method let models fall faster under LeRF than under MoRF? The effect is a mean over models and data sets.

    It is the area under the MoRF curve minus that under the LeRF curve; rows of `parts` have it for each model and data
    set, with intervals over samples. The claim is held where it holds everywhere, and not held where it holds nowhere.

    Args:
        orders: what `falls_faster_under_lerf` gave.
        method: which.

    Raises:
        ValueError: the method has no rows.
    """
    own = orders.filter(pl.col("method") == method)
    if own.is_empty():
        raise ValueError(
            f"{method!r} has no model and data set with both orders; known: {', '.join(orders['method'].unique().sort())}"
        )
    parts = tuple(
        {
            "model": r["model"],
            "data": r["data"],
            **Estimate(-r["difference"], -r["high"], -r["low"], r["n"]).record(),
            "verdict": r["verdict"],
        }
        for r in own.iter_rows(named=True)
    )
    low, high = min(p["low"] for p in parts), max(p["high"] for p in parts)
    effect = Estimate(float(np.mean([p["value"] for p in parts])), low, high, int(own["n"].sum()))
    return Verdict(f"{method} decays faster under LeRF than under MoRF", effect, judge(effect, 0.0), parts)


def time_rises_steeply(seconds: ArrayLike, early: int, late: int, claim: str) -> Verdict:
    """Does an imputation take at least twice as long with a large share removed as with a small one?

    Args:
        seconds: [samples, shares].
        early: the number of the small share.
        late: the number of the large share.
        claim: in a sentence.

    Returns:
        The effect is the mean of log₂ of how many times longer it takes, minus 1.
    """
    times = np.asarray(seconds, dtype=np.float64)
    effect = mean_estimate(np.log2(times[:, late] / times[:, early]) - np.log2(STEEPLY))
    times_longer = float(2 ** (effect.value + 1))
    return Verdict(claim, effect, judge(effect, 0.0), note=f"it takes {times_longer:.1f} times as long")


def steadier_along_training(along: Sequence[AlongTraining], agreement: MetaAgreement) -> Verdict:
    """Is the ranking steadier along one training than across cases? The effect is the lowest W along trainings minus W over cases.

    The interval goes from the worst ends of both to the best ones, so that it is rather too long.

    Raises:
        ValueError: there is no training, or a W is not defined.
    """
    known = [case.w for case in along if case.w.value is not None]
    if not known or agreement.w.value is None:
        raise ValueError("W is needed both along a training and over cases")
    w, lowest = agreement.w, min(known, key=lambda c: _end(c.value))
    effect = Estimate(
        _end(lowest.value) - _end(w.value),
        _end(lowest.low) - _end(w.high),
        _end(lowest.high) - _end(w.low),
        min(case.n for case in along),
    )
    return Verdict("rankings are steadier along one training than across cases", effect, judge(effect, 0.0))


def best_and_worst(morf: CaseTable, method: str) -> Verdict:
    """Is a method the best under MoRF and the worst under LeRF of the same model and data set, in any of them?"""
    found = []
    for pair in dict.fromkeys(case.pair for case in morf.cases):
        ranks = {c.protocol.order: morf.ranks[i] for i, c in enumerate(morf.cases) if c.pair == pair}
        if ranks.keys() >= {"morf", "lerf"} and method in morf.methods:
            k = morf.methods.index(method)
            found.append(
                bool(ranks["morf"][k] == np.nanmin(ranks["morf"]) and ranks["lerf"][k] == np.nanmax(ranks["lerf"]))
            )
    share = float(np.mean(found)) if found else float("nan")
    effect = Estimate(share, float("nan"), float("nan"), len(found))
    return Verdict(
        f"{method} is best under MoRF and worst under LeRF somewhere",
        effect,
        HELD if any(found) else NOT_HELD,
        note=f"in {sum(found)} of {len(found)} models and data sets",
    )


def _demand(table: CaseTable, methods: Sequence[str]) -> None:
    for method in methods:
        if method not in table.methods:
            raise ValueError(f"{method!r} is not ranked; known: {', '.join(table.methods)}")
    if len(set(methods)) >= len(table.methods):
        raise ValueError(f"{', '.join(methods)}: there are no other methods")


def _end(value: float | None) -> float:
    return float("nan") if value is None else value


def _estimate(c: Coefficient, n: int) -> Estimate:
    return Estimate(_end(c.value), _end(c.low), _end(c.high), n)
