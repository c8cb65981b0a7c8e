"""Robustness of a ranking of methods to the choices of a metric's parameters: a multiverse analysis.

A universe is one combination of choices: a metric with one set of parameters, and perhaps other maps of the same
methods (such as absolute ones).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from heatcheck.stats.agreement import kendall_tau, kendall_w
from heatcheck.stats.facts import Facts
from heatcheck.stats.intervals import resampled_means
from heatcheck.stats.onesided import above_zero
from heatcheck.stats.paired import flips_for, holm, sign_flip, too_few
from heatcheck.stats.ranks import rank_of, rounded
from heatcheck.stats.table import Array, MetricGroup, groups, nan_to_null

Row = dict[str, Any]

ROBUST = 0.9
"""Share of universes in which one method must rank before another for their order to count as robust."""


@dataclass(frozen=True)
class Universe:
    """One combination of choices.

    Args:
        label: its name.
        metric: its metric, by label.
        levels: the level of each factor.
        methods: labels of methods that go by another label here (such as that of their absolute maps), by name.
    """

    label: str
    metric: str
    levels: Mapping[str, str]
    methods: Mapping[str, str] = field(default_factory=dict)


def resampled_kendall_w(ranks: Array) -> Array:
    r"""Kendall's W, corrected for ties, of [universes, methods, resamples], one per resample.

    With average ranks the denominator $m^2(n^3-n) - m\sum T$ is $12m$ times the sum of squared deviations of all
    ranks from their mean.

    Returns:
        [resamples]; NaN where a rank is missing, or every universe is one tie.
    """
    m, n = ranks.shape[:2]
    deviations = ranks - (n + 1) / 2
    between = (deviations.sum(axis=0) ** 2).sum(axis=0)
    scale = m * (deviations**2).sum(axis=(0, 1))
    return np.asarray(np.divide(between, scale, out=np.full(ranks.shape[2:], np.nan), where=scale > 0))


@dataclass(frozen=True)
class Rankings:
    """The rankings of the same methods in all universes, for one model and data set.

    Args:
        model: the model's name.
        data: the data set's name.
        universes: those that rank at least two methods.
        methods: ranked in at least one of them, best median rank first, then best mean rank.
        ranks: [universes, methods], among the methods ranked there; NaN where a method is not.
        means: [universes, methods], mean scores as the metric has them.
        better: [universes, methods], 1 where significantly better than random, 0 where not, NaN where not tested.
        chance: [universes], the rank that random would have among the methods, below those it ties with; NaN where not
            measured.
        order: [universes, methods, methods], 1 where the first is significantly better than the second, −1 where
            significantly worse, 0 where neither.
        left_out: universes without a ranking, with the reason.
        unranked: why a method is not ranked in some universes, by method: (reason, number of universes) pairs.
        w: Kendall's W over the methods in `common`; None where undefined.
        low: lower end of its bootstrap interval over samples.
        high: upper end.
        n: number of samples.
    """

    model: str
    data: str
    universes: tuple[Universe, ...]
    methods: tuple[str, ...]
    ranks: Array = field(repr=False)
    means: Array = field(repr=False)
    better: Array = field(repr=False)
    chance: Array = field(repr=False)
    order: Array = field(repr=False)
    left_out: tuple[tuple[str, str], ...]
    unranked: Mapping[str, tuple[tuple[str, int], ...]]
    w: float | None
    low: float | None
    high: float | None
    n: int = 0

    @property
    def key(self) -> Row:
        """Model and data set, as columns."""
        return {"model": self.model, "data": self.data}

    @cached_property
    def common(self) -> tuple[int, ...]:
        """Methods that all universes rank, as indices into `methods`."""
        return tuple(np.flatnonzero(~np.isnan(self.ranks).any(axis=0)).tolist())

    @cached_property
    def first(self) -> Array:
        """[universes, methods], 1 where no other method ranks better."""
        best = np.fmin.reduce(self.ranks, axis=1, initial=np.inf)
        return np.asarray(self.ranks == best[:, None], dtype=np.float64)

    @cached_property
    def wins(self) -> Array:
        """[methods, methods]: the share of universes in which the first ranks before the second, ties half."""
        ahead, behind, both = self._pairwise_counts
        points = ahead + (both - ahead - behind) / 2
        return np.asarray(np.divide(points, both, out=np.full(both.shape, np.nan), where=both > 0))

    @cached_property
    def _pairwise_counts(self) -> tuple[Array, Array, Array]:
        """Number of universes in which the first ranks before the second, behind it, and in which both are ranked."""
        a, b = self.ranks[:, :, None], self.ranks[:, None, :]
        return tuple(np.sum(x, axis=0, dtype=np.float64) for x in (a < b, a > b, ~np.isnan(a - b)))  # type: ignore[return-value]

    def too_few(self, level: float = 0.95) -> bool:
        """Whether no method can be significantly better than random with this number of samples."""
        return too_few(self.n, len(self.methods), level)

    def by_method(self) -> list[Row]:
        """Per method: its ranks over all universes, how often it is first, how often not better than random."""
        rows: list[Row] = []
        for i, method in enumerate(self.methods):
            ranks = self.ranks[:, i][~np.isnan(self.ranks[:, i])]
            tested = self.better[:, i][~np.isnan(self.better[:, i])]
            rows.append(
                {
                    "method": method,
                    "mean_rank": float(ranks.mean()),
                    "median": float(np.median(ranks)),
                    "best": float(ranks.min()),
                    "worst": float(ranks.max()),
                    "first": int(self.first[:, i].sum()),
                    "ranked": len(ranks),
                    "not_better_than_random": int(np.sum(tested == 0)) if len(tested) else None,
                    "tested": len(tested),
                }
            )
        return rows

    def by_chance(self) -> Row | None:
        """The ranks that random would have over all universes; None where it was not measured."""
        ranks = self.chance[~np.isnan(self.chance)]
        if not len(ranks):
            return None
        return {"median": float(np.median(ranks)), "best": float(ranks.min()), "worst": float(ranks.max())}

    def by_universe(self) -> list[Row]:
        """Per universe: its levels and the rank of every method."""
        return [
            {
                "universe": u.label,
                "metric": u.metric,
                **{f"factor:{name}": level for name, level in u.levels.items()},
                "random": nan_to_null(self.chance[i]),
                **{method: nan_to_null(self.ranks[i, k]) for k, method in enumerate(self.methods)},
            }
            for i, u in enumerate(self.universes)
        ]

    def by_pair(self) -> list[Row]:
        """Per pair of methods, the one that ranks first more often as `a`: in what share of universes.

        `kind`: `robust` where one ranks before the other in at least 90 % of the universes, else `depends`.
        `significant`, `against`: universes in which `a` is significantly better, and worse; `reversed`: both occur.
        """
        rows: list[Row] = []
        for i, k in combinations(range(len(self.methods)), 2):
            a, b = (i, k) if not self.wins[i, k] < 0.5 else (k, i)
            if np.isnan(self.wins[a, b]):
                continue
            signs = self.order[:, a, b]
            rows.append(
                {
                    "a": self.methods[a],
                    "b": self.methods[b],
                    "share": float(self.wins[a, b]),
                    "universes": int(self._pairwise_counts[2][a, b]),
                    "kind": "robust" if self.wins[a, b] >= ROBUST else "depends",
                    "significant": int(np.sum(signs == 1)),
                    "against": int(np.sum(signs == -1)),
                    "reversed": bool((signs == 1).any() and (signs == -1).any()),
                }
            )
        return rows

    def by_factor(self) -> list[Row]:
        """Per factor: how much it changes the ranking when nothing else changes, most first.

        `pairs`: number of pairs of universes that differ in this factor only; `tau`: their mean Kendall's τ_b;
        `swapped`: the mean share of pairs of methods that they put in opposite order; `w`: Kendall's W of the universes
        at each level (None for a single universe); `w_within`: the mean of those.
        """
        rows: list[Row] = []
        for factor in dict.fromkeys(name for u in self.universes for name in u.levels):
            levels = list(dict.fromkeys(u.levels[factor] for u in self.universes if factor in u.levels))
            if len(levels) < 2:
                continue
            compared = [self._compare(i, k) for i, k in self._pairs_differing_only_in(factor)]
            tau = np.array([t for t, _ in compared])
            within = {level: self._w_at(factor, level) for level in levels}
            known = [w for w in within.values() if w is not None]
            rows.append(
                {
                    "factor": factor,
                    "levels": levels,
                    "pairs": len(compared),
                    "tau": nan_to_null(tau[~np.isnan(tau)].mean()) if np.any(~np.isnan(tau)) else None,
                    "swapped": float(np.mean([s for _, s in compared])) if compared else None,
                    "w_within": float(np.mean(known)) if known else None,
                    "w": within,
                }
            )
        return sorted(rows, key=lambda r: -1.0 if r["swapped"] is None else r["swapped"], reverse=True)

    def _pairs_differing_only_in(self, factor: str) -> Iterator[tuple[int, int]]:
        by_other_levels: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for i, u in enumerate(self.universes):
            if factor in u.levels:
                others = tuple(sorted((k, v) for k, v in u.levels.items() if k != factor))
                by_other_levels.setdefault(others, []).append(i)
        for members in by_other_levels.values():
            yield from combinations(members, 2)

    def _compare(self, i: int, k: int) -> tuple[float, float]:
        """τ_b of two universes, and the share of pairs of methods that they put in opposite order."""
        both = ~np.isnan(self.ranks[i] + self.ranks[k])
        x, y = self.ranks[i][both], self.ranks[k][both]
        above = np.triu_indices(len(x), k=1)
        dx, dy = (np.sign(v[:, None] - v[None, :])[above] for v in (x, y))
        return kendall_tau(x, y), float(np.mean(dx * dy < 0)) if len(above[0]) else 0.0

    def _w_at(self, factor: str, level: str) -> float | None:
        """Kendall's W of the universes at one level of a factor, over the methods that all of them rank."""
        ranks = self.ranks[[u.levels.get(factor) == level for u in self.universes]]
        return _w(ranks) if len(ranks) > 1 else None

    def arranged(self) -> list[int]:
        """The universes by their first principal component, so that neighbours have similar rankings."""
        filled = np.where(np.isnan(self.ranks), np.nanmean(self.ranks, axis=0), self.ranks)
        centred = filled - filled.mean(axis=0)
        if not np.abs(centred).max(initial=0.0) > 0:
            return list(range(len(filled)))
        component = np.round(centred @ np.linalg.svd(centred, full_matrices=False)[2][0], 9)
        return np.argsort(component if component[0] <= 0 else -component, kind="stable").tolist()  # type: ignore[no-any-return]


def _w(ranks: Array) -> float | None:
    """Kendall's W over the methods that all universes rank; None where undefined."""
    return nan_to_null(kendall_w(ranks[:, ~np.isnan(ranks).any(axis=0)]))


def rankings(
    scores: pl.DataFrame,
    facts: Facts,
    universes: Sequence[Universe],
    *,
    seed: int = 0,
    resamples: int = 1000,
    level: float = 0.95,
    coverage_floor: float = 0.5,
) -> list[Rankings]:
    """The ranking of the methods in every universe, and their concordance, per model and data set.

    Methods are ranked by their mean score in the metric's direction. Controls are not ranked; every method is tested
    against random in every universe.

    Args:
        scores: the long table of scores.
        facts: directions, controls, circular pairs.
        universes: the combinations of choices.
        seed: of resamples and sign patterns.
        resamples: bootstrap resamples of the samples, shared by all universes.
        level: of the interval of W, and of the tests.
        coverage_floor: a method scored on a smaller share of the samples is not ranked.
    """
    cases: dict[tuple[str, str], dict[str, MetricGroup]] = {}
    for group in groups(scores, facts):
        cases.setdefault((group.model, group.data), {})[group.metric] = group
    return [
        _rankings(model, data, by_metric, facts, universes, seed, resamples, level, coverage_floor)
        for (model, data), by_metric in cases.items()
    ]


@dataclass(frozen=True)
class _UniverseScores:
    """The scores of all methods in one universe.

    Args:
        universe: the universe.
        scores: [methods, samples], higher is better.
        means: [methods], higher is better.
        random: scores of the random control, [samples]; None where not measured.
        reasons: why a method is not ranked; None where it is.
    """

    universe: Universe
    scores: Array
    means: Array
    random: Array | None
    reasons: tuple[str | None, ...]

    @property
    def ranked(self) -> list[int]:
        return [i for i, reason in enumerate(self.reasons) if reason is None]

    def ranks(self, means: Array, methods: Sequence[int]) -> Array:
        """Ranks of some methods by their means, [methods, …]; NaN for the other methods."""
        out = np.full(means.shape, np.nan)
        rows = list(methods)
        scale = float(np.abs(self.means[rows]).max()) if rows else 0.0
        out[rows] = rank_of(rounded(means[rows], scale))
        return out

    def better_than_random(self, seed: int, level: float) -> Array:
        """1 where a ranked method is significantly better than random, Holm-corrected over the methods."""
        out = np.full(len(self.scores), np.nan)
        if self.random is not None:
            differences = self.scores[self.ranked] - self.random
            flips = flips_for(len(self.ranked), level)
            p = holm(above_zero(differences, resamples=flips, seed=seed))
            out[self.ranked] = np.where(np.isnan(p), np.nan, p <= 1 - level)
        return out

    def random_rank(self) -> float:
        """Rank of random among the ranked methods and itself, compared with each on their common samples."""
        if self.random is None:
            return float("nan")
        differences = self.scores[self.ranked] - self.random
        ahead = [d[~np.isnan(d)].mean() >= 0 for d in differences if not np.isnan(d).all()]
        return 1.0 + sum(map(bool, ahead)) if ahead else float("nan")

    def significant_order(self, seed: int, level: float) -> Array:
        """Which of two ranked methods is significantly better, Holm-corrected over all pairs: [methods, methods]."""
        out = np.zeros((len(self.scores), len(self.scores)))
        pairs = list(combinations(self.ranked, 2))
        differences = np.array([self.scores[a] - self.scores[b] for a, b in pairs])
        p = holm(sign_flip(differences, flips=flips_for(len(pairs), level), seed=seed))
        for (a, b), d, adjusted in zip(pairs, differences, p, strict=True):
            if adjusted <= 1 - level:
                out[a, b] = np.sign(d[~np.isnan(d)].mean())
                out[b, a] = -out[a, b]
        return out


def _rankings(
    model: str,
    data: str,
    by_metric: Mapping[str, MetricGroup],
    facts: Facts,
    universes: Sequence[Universe],
    seed: int,
    resamples: int,
    level: float,
    coverage_floor: float,
) -> Rankings:
    """The rankings of one model on one data set."""
    variants = {label for u in universes for name, label in u.methods.items() if label != name}
    measured = {name for group in by_metric.values() for name in group.methods}
    names = sorted(name for name in measured - variants if not facts.is_control(name))
    ranking: list[_UniverseScores] = []
    left_out: list[tuple[str, str]] = []
    for u in universes:
        if u.metric not in by_metric:
            left_out.append((u.label, "nothing was scored"))
            continue
        scores = _universe_scores(by_metric[u.metric], u, names, facts, coverage_floor)
        if len(scores.ranked) < 2:
            reasons = list(dict.fromkeys(reason for reason in scores.reasons if reason))
            left_out.append((u.label, reasons[0] if reasons else "there are fewer than two methods"))
        else:
            ranking.append(scores)
    shape = (len(ranking), len(names))
    ranks = np.array([u.ranks(u.means, u.ranked) for u in ranking]).reshape(shape)
    means = np.array([u.means * facts.sign(u.universe.metric) for u in ranking]).reshape(shape)
    better = np.array([u.better_than_random(seed, level) for u in ranking]).reshape(shape)
    order = np.array([u.significant_order(seed, level) for u in ranking]).reshape(*shape, len(names))
    kept = [i for i in range(len(names)) if len(ranking) and not np.isnan(ranks[:, i]).all()]
    kept.sort(key=lambda i: (np.nanmedian(ranks[:, i]), np.nanmean(ranks[:, i]), names[i]))
    w, low, high = _concordance(ranking, ranks, kept, seed, resamples, level)
    return Rankings(
        model=model,
        data=data,
        universes=tuple(u.universe for u in ranking),
        methods=tuple(names[i] for i in kept),
        ranks=ranks[:, kept],
        means=means[:, kept],
        better=better[:, kept],
        chance=np.array([u.random_rank() for u in ranking]),
        order=order[:, kept][:, :, kept],
        left_out=tuple(left_out),
        unranked=_unranked(names, ranking),
        w=w,
        low=low,
        high=high,
        n=max((u.scores.shape[1] for u in ranking), default=0),
    )


def _concordance(
    ranking: Sequence[_UniverseScores], ranks: Array, methods: Sequence[int], seed: int, resamples: int, level: float
) -> tuple[float | None, float | None, float | None]:
    """Kendall's W over the methods that all universes rank, with its percentile bootstrap interval."""
    common = [i for i in methods if not np.isnan(ranks[:, i]).any()]
    w = _w(ranks[:, common]) if len(ranking) > 1 and len(common) > 1 else None
    if w is None:
        return None, None, None
    resampled = np.stack([u.ranks(resampled_means(u.scores, resamples, seed), common)[common] for u in ranking])
    values = resampled_kendall_w(resampled)
    values = values[~np.isnan(values)]
    if not len(values) or ranking[0].scores.shape[1] < 2:
        return w, None, None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return w, min(float(low), w), max(float(high), w)


def _universe_scores(
    group: MetricGroup, universe: Universe, names: Sequence[str], facts: Facts, coverage_floor: float
) -> _UniverseScores:
    index = {name: i for i, name in enumerate(group.methods)}
    rows = [index.get(universe.methods.get(name, name)) for name in names]
    reasons = group.reasons(facts, coverage_floor)
    scores = [np.full(group.n, np.nan) if i is None else group.oriented[i] for i in rows]
    return _UniverseScores(
        universe=universe,
        scores=np.array(scores).reshape(-1, group.n),
        means=np.array([np.nan if i is None else group.sign * group.means[i] for i in rows]),
        random=group.oriented[index[facts.random]] if facts.random in index else None,
        reasons=tuple("missing: no row" if i is None else reasons[i] for i in rows),
    )


def _unranked(names: Sequence[str], ranking: Sequence[_UniverseScores]) -> dict[str, tuple[tuple[str, int], ...]]:
    found: dict[str, tuple[tuple[str, int], ...]] = {}
    for i, name in enumerate(names):
        counts = Counter(reason for u in ranking if (reason := u.reasons[i]))
        if counts:
            found[name] = tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    return found


def universes_of(record: Mapping[str, Any]) -> list[Universe]:
    """The universes of a run, from its record."""
    labels = record["methods"]
    return [
        Universe(u["label"], u["metric"], u["levels"], labels.get(u["levels"].get("sign", ""), {}))
        for u in record["universes"]
    ]


def rankings_missing(record: Mapping[str, Any], cases: Sequence[Rankings]) -> list[tuple[str, str]]:
    """All universes without a ranking, with the reason: those that were never run, and those of each case."""
    missing = [(g["label"], g["reason"]) for g in record["left_out"]]
    for case in cases:
        where = f"{case.model}: " if len(cases) > 1 else ""
        missing += [(label, f"{where}{reason}") for label, reason in case.left_out]
    return missing
