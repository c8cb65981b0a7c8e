"""How far a ranking of methods moves when the same question is asked in other ways that are as defensible.

A universe is one way to ask: one metric with one set of parameters, and perhaps other maps of the same methods.
"""

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
from heatcheck.stats.paired import flips_for, holm, sign_flip, too_few
from heatcheck.stats.ranks import rank_of, rounded
from heatcheck.stats.table import Array, MetricGroup, groups, null

Row = dict[str, Any]

ROBUST = 0.9
"""Share of universes in which one method must beat another for their order to count as robust."""


@dataclass(frozen=True)
class Universe:
    """One way to ask the question.

    Args:
        label: its name.
        metric: the metric that is asked, by its label.
        levels: the choice that each factor has here.
        methods: the label of a method here, where it is not its own name (such as that of its absolute maps).
    """

    label: str
    metric: str
    levels: Mapping[str, str]
    methods: Mapping[str, str] = field(default_factory=dict)


def concordance_of(ranks: Array) -> Array:
    r"""Kendall's W, corrected for ties, of [universes, methods, cases], case by case.

    With average ranks the correction $m^2(n^3-n) - m\sum T$ is $12m$ times the sum of all squares of ranks
    around their mean.

    Returns:
        [cases]; NaN where a rank is missing, or every universe is one tie.
    """
    m, n = ranks.shape[:2]
    apart = ranks - (n + 1) / 2
    between = (apart.sum(axis=0) ** 2).sum(axis=0)
    scale = m * (apart**2).sum(axis=(0, 1))
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
        chance: [universes], the place of random among the methods, behind those it ties with; NaN where not measured.
        order: [universes, methods, methods], 1 where the first is significantly better than the second, −1 where
            worse, 0 where neither.
        left_out: universes that give no ranking, with the reason.
        unranked: reasons why a method is not ranked in some universe, by method; (reason, universes) pairs.
        w: Kendall's W over `common`; None where it does not exist.
        low: lower end of its bootstrap interval over samples.
        high: upper end.
        n: how many samples there are.
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
        """Whose they are, as columns."""
        return {"model": self.model, "data": self.data}

    @cached_property
    def common(self) -> tuple[int, ...]:
        """Methods that all universes rank, by their places."""
        return tuple(np.flatnonzero(~np.isnan(self.ranks).any(axis=0)).tolist())

    @cached_property
    def first(self) -> Array:
        """[universes, methods], 1 where no method ranks better."""
        best = np.fmin.reduce(self.ranks, axis=1, initial=np.inf)
        return np.asarray(self.ranks == best[:, None], dtype=np.float64)

    @cached_property
    def wins(self) -> Array:
        """[methods, methods]: the share of universes in which the first ranks before the second, ties half."""
        ahead, behind, both = self._duels
        points = ahead + (both - ahead - behind) / 2
        return np.asarray(np.divide(points, both, out=np.full(both.shape, np.nan), where=both > 0))

    @cached_property
    def _duels(self) -> tuple[Array, Array, Array]:
        """Universes in which the first ranks before the second, behind it, and in which both are ranked."""
        a, b = self.ranks[:, :, None], self.ranks[:, None, :]
        return tuple(np.sum(x, axis=0, dtype=np.float64) for x in (a < b, a > b, ~np.isnan(a - b)))  # type: ignore[return-value]

    def too_few(self, level: float = 0.95) -> bool:
        """Whether there are so few samples that no method could be significantly better than random."""
        return too_few(self.n, len(self.methods), level)

    def by_method(self) -> list[Row]:
        """Per method: where it stands over all universes, how often first, how often not better than random."""
        rows: list[Row] = []
        for i, method in enumerate(self.methods):
            mine = self.ranks[:, i][~np.isnan(self.ranks[:, i])]
            tested = self.better[:, i][~np.isnan(self.better[:, i])]
            rows.append(
                {
                    "method": method,
                    "mean_rank": float(mine.mean()),
                    "median": float(np.median(mine)),
                    "best": float(mine.min()),
                    "worst": float(mine.max()),
                    "first": int(self.first[:, i].sum()),
                    "ranked": len(mine),
                    "not_better_than_random": int(np.sum(tested == 0)) if len(tested) else None,
                    "tested": len(tested),
                }
            )
        return rows

    def by_chance(self) -> Row | None:
        """Where random would stand among the methods over all universes; None where it was not measured."""
        mine = self.chance[~np.isnan(self.chance)]
        if not len(mine):
            return None
        return {"median": float(np.median(mine)), "best": float(mine.min()), "worst": float(mine.max())}

    def by_universe(self) -> list[Row]:
        """Per universe: its choices and the rank of every method."""
        return [
            {
                "universe": u.label,
                "metric": u.metric,
                **{f"factor:{name}": level for name, level in u.levels.items()},
                "random": null(self.chance[i]),
                **{method: null(self.ranks[i, k]) for k, method in enumerate(self.methods)},
            }
            for i, u in enumerate(self.universes)
        ]

    def by_pair(self) -> list[Row]:
        """Per pair of methods, the one that wins more often first: in how many universes, and how surely.

        `kind`: `robust` where one ranks before the other in at least 90 % of the universes, else `depends`.
        `reversed`: significantly better in one universe and significantly worse in another.
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
                    "universes": int(self._duels[2][a, b]),
                    "kind": "robust" if self.wins[a, b] >= ROBUST else "depends",
                    "significant": int(np.sum(signs == 1)),
                    "against": int(np.sum(signs == -1)),
                    "reversed": bool((signs == 1).any() and (signs == -1).any()),
                }
            )
        return rows

    def by_factor(self) -> list[Row]:
        """Per factor: how far it alone moves the ranking, most first.

        `tau`: mean Kendall's τ_b of two universes that differ in nothing else; `swapped`: the mean share of pairs
        of methods whose order it turns round; `pairs`: how many such pairs of universes there are; `w`: Kendall's
        W within each of its levels (None for a level of one universe); `w_within`: their mean.
        """
        rows: list[Row] = []
        for factor in dict.fromkeys(name for u in self.universes for name in u.levels):
            levels = list(dict.fromkeys(u.levels[factor] for u in self.universes if factor in u.levels))
            if len(levels) < 2:
                continue
            moved = [self._moved(i, k) for i, k in self._twins(factor)]
            tau = np.array([t for t, _ in moved])
            within = {level: self._w_at(factor, level) for level in levels}
            known = [w for w in within.values() if w is not None]
            rows.append(
                {
                    "factor": factor,
                    "levels": levels,
                    "pairs": len(moved),
                    "tau": null(tau[~np.isnan(tau)].mean()) if np.any(~np.isnan(tau)) else None,
                    "swapped": float(np.mean([s for _, s in moved])) if moved else None,
                    "w_within": float(np.mean(known)) if known else None,
                    "w": within,
                }
            )
        return sorted(rows, key=lambda r: -1.0 if r["swapped"] is None else r["swapped"], reverse=True)

    def _twins(self, factor: str) -> Iterator[tuple[int, int]]:
        """Pairs of universes that differ in one factor only."""
        alike: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for i, u in enumerate(self.universes):
            if factor in u.levels:
                alike.setdefault(tuple(sorted((k, v) for k, v in u.levels.items() if k != factor)), []).append(i)
        for members in alike.values():
            yield from combinations(members, 2)

    def _moved(self, i: int, k: int) -> tuple[float, float]:
        """τ_b of two universes, and the share of pairs of methods that they order the other way round."""
        both = ~np.isnan(self.ranks[i] + self.ranks[k])
        x, y = self.ranks[i][both], self.ranks[k][both]
        above = np.triu_indices(len(x), k=1)
        turned = [np.sign(v[:, None] - v[None, :])[above] for v in (x, y)]
        return kendall_tau(x, y), float(np.mean(turned[0] * turned[1] < 0)) if len(above[0]) else 0.0

    def _w_at(self, factor: str, level: str) -> float | None:
        """Kendall's W of the universes at one level of a factor, over the methods that all of them rank."""
        mine = self.ranks[[u.levels.get(factor) == level for u in self.universes]]
        return _w(mine) if len(mine) > 1 else None

    def arranged(self) -> list[int]:
        """The universes in an order in which neighbours rank alike: along their first principal component."""
        filled = np.where(np.isnan(self.ranks), np.nanmean(self.ranks, axis=0), self.ranks)
        apart = filled - filled.mean(axis=0)
        if not np.abs(apart).max(initial=0.0) > 0:
            return list(range(len(filled)))
        along = np.round(apart @ np.linalg.svd(apart, full_matrices=False)[2][0], 9)
        return np.argsort(along if along[0] <= 0 else -along, kind="stable").tolist()  # type: ignore[no-any-return]


def _w(ranks: Array) -> float | None:
    """Kendall's W over the methods that all universes rank; None where it does not exist."""
    return null(kendall_w(ranks[:, ~np.isnan(ranks).any(axis=0)]))


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
    """The ranking of the methods in every universe, and how far they agree, per model and data set.

    Methods are ranked by their mean score in the metric's direction. Controls are not ranked; against random every
    method is tested in every universe.

    Args:
        scores: the long table of scores.
        facts: directions, controls, circular pairs.
        universes: the ways to ask.
        seed: of resamples and sign patterns.
        resamples: of the samples, the same in all universes.
        level: of the interval of W, and of tests.
        coverage_floor: a method scored on a smaller share of the samples is unranked.
    """
    held: dict[tuple[str, str], dict[str, MetricGroup]] = {}
    for group in groups(scores, facts):
        held.setdefault((group.model, group.data), {})[group.metric] = group
    return [
        _case(model, data, found, facts, universes, seed, resamples, level, coverage_floor)
        for (model, data), found in held.items()
    ]


@dataclass(frozen=True)
class _Standing:
    """One universe's numbers: gains of all methods, and why some are not ranked."""

    universe: Universe
    gains: Array
    means: Array
    chance: Array | None
    reasons: tuple[str | None, ...]

    @property
    def ranked(self) -> list[int]:
        return [i for i, why in enumerate(self.reasons) if why is None]

    def ranks(self, means: Array, which: Sequence[int]) -> Array:
        """Ranks of some methods by means [methods, …], rounding apart; NaN for the others."""
        out = np.full(means.shape, np.nan)
        rows = list(which)
        scale = float(np.abs(self.means[rows]).max()) if rows else 0.0
        out[rows] = rank_of(rounded(means[rows], scale))
        return out


def _case(
    model: str,
    data: str,
    found: Mapping[str, MetricGroup],
    facts: Facts,
    universes: Sequence[Universe],
    seed: int,
    resamples: int,
    level: float,
    floor: float,
) -> Rankings:
    twins = {label for u in universes for name, label in u.methods.items() if label != name}
    everyone = {name for group in found.values() for name in group.methods}
    names = sorted(name for name in everyone - twins if not facts.is_control(name))
    seen: list[_Standing] = []
    left_out: list[tuple[str, str]] = []
    for u in universes:
        if u.metric not in found:
            left_out.append((u.label, "nothing was scored"))
            continue
        one = _seen(found[u.metric], u, names, facts, floor)
        if len(one.ranked) < 2:
            reasons = list(dict.fromkeys(why for why in one.reasons if why))
            left_out.append((u.label, reasons[0] if reasons else "there are fewer than two methods"))
        else:
            seen.append(one)
    ranks = np.array([s.ranks(s.means, s.ranked) for s in seen]).reshape(len(seen), len(names))
    there = [i for i in range(len(names)) if len(seen) and not np.isnan(ranks[:, i]).all()]
    there.sort(key=lambda i: (np.nanmedian(ranks[:, i]), np.nanmean(ranks[:, i]), names[i]))
    common = [i for i in there if not np.isnan(ranks[:, i]).any()]
    w = low = high = None
    if len(seen) > 1 and len(common) > 1:
        w = _w(ranks[:, common])
    if w is not None:
        drawn = np.stack([s.ranks(resampled_means(s.gains, resamples, seed), common)[common] for s in seen])
        spread = concordance_of(drawn)
        spread = spread[~np.isnan(spread)]
        if len(spread) and seen[0].gains.shape[1] > 1:
            ends = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2])
            low, high = min(float(ends[0]), w), max(float(ends[1]), w)
    shape = (len(seen), len(names))
    means = np.array([s.means * facts.sign(s.universe.metric) for s in seen]).reshape(shape)
    better = np.array([_better(s, seed, level) for s in seen]).reshape(shape)
    order = np.array([_order(s, seed, level) for s in seen]).reshape(*shape, len(names))
    return Rankings(
        model=model,
        data=data,
        universes=tuple(s.universe for s in seen),
        methods=tuple(names[i] for i in there),
        ranks=ranks[:, there],
        means=means[:, there],
        better=better[:, there],
        chance=np.array([_chance(s) for s in seen]),
        order=order[:, there][:, :, there],
        left_out=tuple(left_out),
        unranked=_unranked(names, seen),
        w=w,
        low=low,
        high=high,
        n=max((s.gains.shape[1] for s in seen), default=0),
    )


def _seen(group: MetricGroup, universe: Universe, names: Sequence[str], facts: Facts, floor: float) -> _Standing:
    place = {name: i for i, name in enumerate(group.methods)}
    rows = [place.get(universe.methods.get(name, name)) for name in names]
    whys = group.reasons(facts, floor)
    gains = np.array([np.full(group.n, np.nan) if i is None else group.gains[i] for i in rows]).reshape(-1, group.n)
    means = np.array([np.nan if i is None else group.sign * group.means[i] for i in rows])
    reasons = tuple("missing: no row" if i is None else whys[i] for i in rows)
    chance = group.gains[place[facts.random]] if facts.random in place else None
    return _Standing(universe, gains, means, chance, reasons)


def _unranked(names: Sequence[str], seen: Sequence[_Standing]) -> dict[str, tuple[tuple[str, int], ...]]:
    found: dict[str, tuple[tuple[str, int], ...]] = {}
    for i, name in enumerate(names):
        whys = [why for s in seen if (why := s.reasons[i])]
        if whys:
            counted = {why: whys.count(why) for why in whys}
            found[name] = tuple(sorted(counted.items(), key=lambda item: (-item[1], item[0])))
    return found


def _better(s: _Standing, seed: int, level: float) -> Array:
    """1 where a ranked method is significantly better than random, Holm-corrected over the methods."""
    out = np.full(len(s.gains), np.nan)
    if s.chance is not None:
        tests = flips_for(len(s.ranked), level)
        p = holm(sign_flip(s.gains[s.ranked] - s.chance, alternative="greater", flips=tests, seed=seed))
        out[s.ranked] = np.where(np.isnan(p), np.nan, p <= 1 - level)
    return out


def _chance(s: _Standing) -> float:
    """Random's place among the ranked methods and itself, each compared on common samples."""
    if s.chance is None:
        return float("nan")
    each = s.gains[s.ranked] - s.chance
    ahead = [d[~np.isnan(d)].mean() >= 0 for d in each if not np.isnan(d).all()]
    return 1.0 + sum(map(bool, ahead)) if ahead else float("nan")


def _order(s: _Standing, seed: int, level: float) -> Array:
    """Which of two ranked methods is significantly better, Holm-corrected over all pairs."""
    out = np.zeros((len(s.gains), len(s.gains)))
    pairs = list(combinations(s.ranked, 2))
    each = np.array([s.gains[a] - s.gains[b] for a, b in pairs])
    p = holm(sign_flip(each, flips=flips_for(len(pairs), level), seed=seed))
    for (a, b), d, adjusted in zip(pairs, each, p, strict=True):
        if adjusted <= 1 - level:
            out[a, b] = np.sign(d[~np.isnan(d)].mean())
            out[b, a] = -out[a, b]
    return out


def universes_of(record: Mapping[str, Any]) -> list[Universe]:
    """The universes of a run, from its own record."""
    signed = record["methods"]
    return [
        Universe(u["label"], u["metric"], u["levels"], signed.get(u["levels"].get("sign", ""), {}))
        for u in record["universes"]
    ]


def rankings_missing(record: Mapping[str, Any], cases: Sequence[Rankings]) -> list[tuple[str, str]]:
    """Everything that was asked for and gives no ranking, with the reason."""
    told = [(g["label"], g["reason"]) for g in record["left_out"]]
    for case in cases:
        where = f"{case.model}: " if len(cases) > 1 else ""
        told += [(label, f"{where}{reason}") for label, reason in case.left_out]
    return told
