"""Claims of papers as named statements, each with the function that tests it on the scores of a run.

A claim's function gets the `Evidence` and returns a `Verdict`, or raises `NotTestable` with what the run lacks.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import polars as pl

from heatcheck.core.spec import parse
from heatcheck.stats.checkpoints import AlongTraining
from heatcheck.stats.claims import HELD, MATTERS, NOT_HELD, UNDECIDED, Row, Verdict
from heatcheck.stats.cube import Cube, mean_over
from heatcheck.stats.estimates import LEVEL, RESAMPLES, Estimate, mean_estimate
from heatcheck.stats.facts import Facts
from heatcheck.stats.intervals import mean_intervals
from heatcheck.stats.leaderboard import leaderboard
from heatcheck.stats.meta_cases import CaseTable
from heatcheck.stats.table import Array

NOT_TESTABLE = "not testable here"
NO_INTERVAL = "the samples are too few for an interval"
Name = TypeVar("Name", bound=Hashable)


class NotTestable(Exception):
    """A claim asks for what a run does not have; the message says what."""


@dataclass(frozen=True)
class Evidence:
    """What claims are tested on.

    Args:
        scores: the run's long table of scores.
        run: its facts.
        named: the run's method for each of the paper's names.
        right: per model, whether each sample is classified right; only models whose labels are known.
        factors: what models differ in: a value per model, by factor, such as `depth`.
        along: rankings along trainings.
        cases: rankings by MoRF and LeRF, of this run and others.
        disagreement: per model, the mean of 1 − Spearman between methods' maps, per sample.
        borders: per model that cuts pictures into patches and per method (IG and SG), how far the map of each sample
            shows the patches; see `border_excess`.
        seed: of resamples.
        resamples: how many.
    """

    scores: pl.DataFrame
    run: Mapping[str, Any]
    named: Mapping[str, str] = field(default_factory=dict)
    right: Mapping[str, Array] = field(default_factory=dict)
    factors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    along: Sequence[AlongTraining] = ()
    cases: CaseTable | None = None
    disagreement: Mapping[str, Array] = field(default_factory=dict)
    borders: Mapping[tuple[str, str], Array] = field(default_factory=dict)
    seed: int = 0
    resamples: int = RESAMPLES

    @cached_property
    def facts(self) -> Facts:
        """Directions, controls, circular pairs."""
        return Facts.of(self.run)

    @cached_property
    def board(self) -> pl.DataFrame:
        """The leaderboard."""
        return leaderboard(self.scores, self.facts, seed=self.seed, resamples=self.resamples)

    @cached_property
    def measured(self) -> dict[str, dict[str, set[str]]]:
        """The methods with a score, by metric and model; circular pairs do not count."""
        found: dict[str, dict[str, set[str]]] = {}
        known = self.board.filter(pl.col("mean").is_not_null() & ~pl.col("circular"))
        for metric, model, method in known.select("metric", "model", "method").iter_rows():
            found.setdefault(metric, {}).setdefault(model, set()).add(method)
        return found

    def metrics(self, id: str, **params: Any) -> list[str]:
        """Names of the run's metrics with this id, and these parameters where some are named."""
        return [
            m["name"]
            for m in self.run.get("metrics", ())
            if m["id"] == id and all(str(params_of(m).get(k)) == str(v) for k, v in params.items())
        ]

    def fill_of(self, metric: Mapping[str, Any], model: str) -> str:
        """The id of the fill that a metric deletes with on a model: as the run recorded it, else as the metric is written."""
        written = str(params_of(metric).get("fill", "none"))
        return self._fills.get((model, str(metric["name"]))) or parse(written).id

    @cached_property
    def _fills(self) -> dict[tuple[str, str], str]:
        return {(f["model"], f["metric"]): f["fill"] for f in self.run.get("fills", ())}

    def methods(self, metric: str, model: str, *, without: Sequence[str] = ()) -> list[str]:
        """Methods that a model has scores of, without controls and those of some families, in the run's order."""
        have = self.measured.get(metric, {}).get(model, set())
        return [
            m["name"]
            for m in self.run.get("methods", ())
            if m["name"] in have and not self.facts.is_control(m["name"]) and m.get("family") not in without
        ]

    def single_deletion(self) -> tuple[str, list[str], str]:
        """IDSDS where some model is aligned, else SDS: its name, the models that have it, and what is to be said.

        Raises:
            NotTestable: neither was measured.
        """
        for name, told in (("idsds", ""), ("sds", "under SDS, as no model of the run is aligned")):
            if self.measured.get(name):
                return name, list(self.measured[name]), told
        raise NotTestable("single deletion was not measured; add the metric sds")

    def method_named(self, paper: str) -> str:
        """The run's method for a paper's name.

        Raises:
            NotTestable: it was not run.
        """
        if paper not in self.named:
            raise NotTestable(f"{paper} was not run")
        return self.named[paper]

    def estimate(self, values: Array) -> Estimate:
        """The mean over samples, with its interval."""
        return mean_estimate(values, seed=self.seed, resamples=self.resamples)

    def cube(self, metric: str, models: Sequence[str], methods: Sequence[str]) -> Cube:
        """Scores of models and methods; higher is better.

        Raises:
            NotTestable: some are missing.
        """
        try:
            found = Cube.of(self.scores, dict.fromkeys(models, metric), methods)
        except ValueError as problem:
            raise NotTestable(str(problem)) from None
        return Cube(self.facts.sign(metric) * found.values, found.methods, found.samples)


def params_of(component: Mapping[str, Any]) -> dict[str, Any]:
    """A component's parameters: what its spec says, and its defaults.

    >>> params_of({"spec": "sds(fill=blur)", "params": {"fill": "auto", "nan": "status"}})
    {'fill': 'blur', 'nan': 'status'}
    """
    return {**component.get("params", {}), **parse(str(component["spec"])).params}


@dataclass(frozen=True)
class Claim:
    """A statement of a paper.

    Args:
        id: its name, such as `smoothgrad_hurts`.
        paper: the paper's key.
        where: in the paper.
        says: the statement.
        test: what scores say about it.
    """

    id: str
    paper: str
    where: str
    says: str
    test: Callable[[Evidence], Verdict] = field(repr=False, compare=False)

    def judged(self, evidence: Evidence) -> Row:
        """A row with the verdict, the effect with its interval, and what is to be said."""
        told = {"claim": self.id, "says": self.says, "paper": self.paper, "where": self.where}
        try:
            found = self.test(evidence)
        except NotTestable as problem:
            nothing = Estimate(np.nan, np.nan, np.nan, 0)
            return {
                **told,
                "verdict": NOT_TESTABLE,
                **nothing.record(),
                "counted": "",
                "effect": "",
                "note": str(problem),
                "parts": [],
            }
        parts = [dict(part) for part in found.parts]
        return {
            **told,
            "verdict": found.verdict,
            **found.effect.record(),
            "counted": found.counted,
            "effect": found.claim,
            "note": found.note,
            "parts": parts,
        }


CLAIMS: dict[str, list[Claim]] = {}
"""All claims by the key of their paper, in the order of their definition."""


def claim(
    paper: str, where: str, says: str
) -> Callable[[Callable[[Evidence], Verdict]], Callable[[Evidence], Verdict]]:
    """Put a function into the catalogue of claims, under its own name."""

    def put(test: Callable[[Evidence], Verdict]) -> Callable[[Evidence], Verdict]:
        CLAIMS.setdefault(paper, []).append(Claim(test.__name__, paper, where, says, test))
        return test

    return put


def leads(
    evidence: Evidence, cube: Cube, method: str, others: Sequence[str], says: str, *, matters: float = MATTERS
) -> Verdict:
    """Whether a method's mean is above that of each of some others, over the cube's models together.

    It is held where it leads each of them for sure, not held where some other is as good or better for sure; see
    `all_above`. The effect is the lead over the best of the others.
    """
    own = mean_over(cube.of_method(method)[:, None])
    gaps = {other: own - mean_over(cube.of_method(other)[:, None]) for other in others if other != method}
    if not gaps:
        raise NotTestable(f"there is nothing beside {method} to compare it with")
    each, verdict = all_above(evidence, gaps, matters=matters)
    nearest = min(each, key=lambda other: each[other].value)
    parts: tuple[Row, ...] = tuple({"method": method, "other": other, **e.record()} for other, e in each.items())
    return Verdict(says, each[nearest], verdict, parts, f"nearest: {nearest}")


def all_above(
    evidence: Evidence, values: Mapping[Name, Array], *, matters: float = MATTERS
) -> tuple[dict[Name, Estimate], str]:
    """Whether several means over samples are all above zero: each with its interval, and the verdict on all of them.

    Held where every interval is above zero, which needs no correction: all must be. Not held where some mean leaves no
    room for what matters, with Bonferroni's correction as any of them may be.
    """
    each = {name: evidence.estimate(own) for name, own in values.items()}
    if all(e.low > 0 for e in each.values()):
        return each, HELD
    level = 1 - (1 - LEVEL) / len(values)
    highs = [
        mean_intervals(own[None, ~np.isnan(own)], seed=evidence.seed, resamples=evidence.resamples, level=level)[0][1]
        for own in values.values()
    ]
    return each, NOT_HELD if any(high < matters for high in highs) else UNDECIDED


def over_models(found: Mapping[str, bool | None], says: str) -> Verdict:
    """What holds for all models: `True`, `False` or, where it cannot be told, None of each.

    Held where all are true, not held where one is false. The effect is the share of models for which it is so.
    """
    if not found:
        raise NotTestable("no model was measured")
    told = list(found.values())
    verdict = HELD if all(told) else NOT_HELD if False in told else UNDECIDED
    words = {True: "so", False: "not so", None: "cannot be told"}
    share = float(np.mean([value is True for value in told]))
    note = "; ".join(f"{model}: {words[value]}" for model, value in found.items())
    parts: tuple[Row, ...] = tuple({"model": model, "holds": value} for model, value in found.items())
    return Verdict(says, Estimate(share, np.nan, np.nan, len(told)), verdict, parts, note)
