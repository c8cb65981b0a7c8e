"""Races: methods are compared on a growing number of samples and leave as soon as their place is certain.

At fixed sample counts, the looks, every pair of methods that are still in the race has a confidence interval of its mean
difference over all samples of the benchmark, from a confidence sequence at the level 1 − 0.05 / pairs. All intervals of all
looks hold at once with a probability of at least 95 %, so every claim of a race does. Ends never move outwards.

A method is better than another where the interval of their difference is above zero, or where it is better than a third
that is. What is certain then:

- among the best k: as many methods are worse as are not sought; out: k methods are better.
- the race ends before all places are certain where no method that is left out can be better than one that is chosen by
  more than the margin. Claims chain: a method that was out earlier is worse than one that is bounded by the margin.
- a method that is left out rests as soon as that holds for it: it is explained no further, unless others are chosen
  against which it does not hold. Then it is woken and makes up for the samples that it missed.
- the order is settled where no method can be better by more than the margin than one that stands before it.

What only the margin settles is not certain: such methods are chosen and left out, they are not the best and the others.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from heatcheck.stats.confidence_sequences import asymptotic, betting
from heatcheck.stats.table import Array, has_score

FIRST, RATIO, CHUNK = 16, 1.25, 8
_GOAL = re.compile(r"best|order|top\s*=\s*(\d+)")


def looks(samples: int) -> list[int]:
    """The sample counts at which a race decides: a quarter more each time, whole chunks of samples, and all in the end.

    Example:
        >>> looks(100)
        [16, 24, 32, 40, 56, 72, 96, 100]
    """
    found, n = [], FIRST
    while n < samples:
        found.append(n)
        n = max(n + CHUNK, CHUNK * math.ceil(RATIO * n / CHUNK))
    return [*found, samples]


def score_matrix(
    scores: pl.DataFrame, model: str, metric: str, methods: Sequence[str], samples: Sequence[str]
) -> Array:
    """Scores of methods × samples, in the given orders; NaN where there is none.

    Args:
        scores: the long table of scores.
        model: whose.
        metric: under which metric.
        methods: names, one per row.
        samples: names, one per column.
    """
    found = np.full((len(methods), len(samples)), np.nan)
    rows, columns = ({name: i for i, name in enumerate(names)} for names in (methods, samples))
    names = pl.col("model", "metric", "method", "sample").cast(pl.String)
    table = scores.with_columns(names).filter((pl.col("model") == model) & (pl.col("metric") == metric) & has_score())
    for method, sample, score in table.select("method", "sample", "score").iter_rows():
        if method in rows and sample in columns:
            found[rows[method], columns[sample]] = score
    return found


@dataclass(frozen=True)
class Goal:
    """What a race is to find.

    Args:
        best: how many best methods; None for the order of all.
        margin: differences that do not matter; 0 where all do.

    Example:
        >>> Goal.parse("top=3", 0.02)
        Goal(best=3, margin=0.02)
    """

    best: int | None = 1
    margin: float = 0.0

    @classmethod
    def parse(cls, text: str, margin: float | None = None) -> Self:
        """From `best`, `top=3` or `order`.

        Raises:
            ValueError: it is none of them, or the margin is no positive number.
        """
        found = _GOAL.fullmatch(text.strip())
        if found is None or found[1] == "0":
            raise ValueError(f"goal {text!r} should be best, top=K with K at least 1, such as top=3, or order")
        if margin is not None and not (0 < margin < math.inf):
            raise ValueError(
                f"margin {margin!r} should be a difference greater than 0 that does not matter; leave it out if every one does"
            )
        return cls(None if text.strip() == "order" else int(found[1] or 1), margin or 0.0)

    def __str__(self) -> str:
        return "order" if self.best is None else "best" if self.best == 1 else f"top={self.best}"


@dataclass(frozen=True)
class Race:
    """The race of one metric on one model: what is known after some samples.

    Args:
        methods: who races, at least two.
        goal: what is to be found.
        population: how many samples the benchmark has.
        reach: the largest possible difference of two scores; infinite where scores have no range.
        control: a method beside them that is not ranked, random; it leaves when all others are told from it.
        level: the probability that every claim is true.
        n: how many samples were looked at.
        mean: mean difference of every two methods, row − column, the control last.
        low: lower ends of its confidence intervals.
        high: upper ends.
        seen: how many samples every pair was compared on.
        decided: per method, the sample count at which its place was certain; 0 while it is not.
        compared: per method, the sample count at which it was last compared.
    """

    methods: tuple[str, ...]
    goal: Goal
    population: int
    reach: float = math.inf
    control: str | None = None
    level: float = 0.95
    n: int = 0
    mean: Array = field(default_factory=lambda: np.empty(0), repr=False)
    low: Array = field(default_factory=lambda: np.empty(0), repr=False)
    high: Array = field(default_factory=lambda: np.empty(0), repr=False)
    seen: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    decided: tuple[int, ...] = ()
    compared: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.methods) < 2:
            raise ValueError(f"a race needs at least two methods, not {list(self.methods)}")
        if self.goal.best is not None and self.goal.best >= len(self.methods):
            raise ValueError(
                f"goal {self.goal}: only {len(self.methods)} methods race ({', '.join(self.methods)}); ask for fewer"
            )
        if not self.decided:
            size = len(self.rows)
            blank = {"mean": 0.0, "low": -np.inf, "high": np.inf, "seen": 0}
            for name, value in blank.items():
                object.__setattr__(self, name, np.full((size, size), value))
            object.__setattr__(self, "seen", self.seen.astype(np.int64))
            object.__setattr__(self, "decided", (0,) * size)
            object.__setattr__(self, "compared", (0,) * size)

    @property
    def rows(self) -> tuple[str, ...]:
        """Who is explained: the methods, and the control last."""
        return self.methods if self.control is None else (*self.methods, self.control)

    @property
    def racing(self) -> tuple[str, ...]:
        """Who is explained further."""
        return tuple(self.rows[i] for i in self._awake())

    @property
    def behind(self) -> tuple[str, ...]:
        """Who was woken and must make up for samples that the others were compared on."""
        return tuple(self.rows[i] for i in self._awake() if self.compared[i] < self.n)

    @property
    def settled(self) -> bool:
        """Whether the goal is reached."""
        return all(self.decided[: len(self.methods)])

    @property
    def certain(self) -> tuple[bool, ...]:
        """Per method, whether the scores tell its place; else only the margin settles it, or it is equal to another."""
        m = len(self.methods)
        if self.goal.best is None:
            told = self.better | self.better.T | np.eye(len(self.rows), dtype=bool)
            return tuple(bool(row.all()) for row in told[:m, :m])
        inside, out = self._places()
        return tuple((inside | out).tolist())

    @property
    def alpha(self) -> float:
        """The probability of error of each pair."""
        size = len(self.rows)
        return (1 - self.level) / (size * (size - 1) / 2)

    @property
    def better(self) -> NDArray[np.bool_]:
        """Whether the row's method is certain to be better than the column's, itself or through others."""
        found = self.low > 0
        for middle in range(len(found)):
            found = found | (found[:, middle, None] & found[None, middle, :])
        return found

    @property
    def order(self) -> list[int]:
        """The methods, best first: who is certainly better comes first, else the better mean."""
        better = self.better
        left, found = list(range(len(self.methods))), list[int]()
        while left:
            free = [a for a in left if not any(better[b, a] for b in left)] or left
            strength = self.mean[np.ix_(free, free)].sum(axis=1)
            found.append(free[int(np.argmax(strength))])
            left.remove(found[-1])
        return found

    @property
    def chosen(self) -> tuple[str, ...]:
        """The best methods that were sought, best first; all, where the order is."""
        return tuple(self.methods[i] for i in self._ranked()[: self.goal.best])

    def _ranked(self) -> list[int]:
        """The methods in order, those that are certainly among the best before those that are certainly not."""
        if self.goal.best is None:
            return self.order
        inside, out = self._places()
        return sorted(self.order, key=lambda a: 2 * bool(out[a]) - bool(inside[a]))

    def after(self, scores: Array) -> Self:
        """The race after more samples.

        Args:
            scores: one row for each of `rows`, all samples so far in the order of the race, higher is better; NaN where
                there is no score. Rows of methods that left are not read.

        Raises:
            ValueError: there are no more samples than before and nobody was woken, there are more than all, or differences
                beyond the reach.
        """
        x = np.asarray(scores, dtype=np.float64)
        if len(x) != len(self.rows) or not self.n + (not self.behind) <= x.shape[1] <= self.population:
            raise ValueError(
                f"scores of {len(x)} methods on {x.shape[1]} samples do not go on from {len(self.rows)} on {self.n} of "
                f"{self.population}"
            )
        awake = self._awake()
        pairs = [(a, b) for a in awake for b in awake if a < b]
        mean, low, high, seen = self.mean.copy(), self.low.copy(), self.high.copy(), self.seen.copy()
        if pairs:
            first, second = (list(some) for some in zip(*pairs, strict=True))
            d = x[first] - x[second]
            bottom, top = self._ends(d)
            count = np.sum(~np.isnan(d), axis=1)
            middle = np.nansum(d, axis=1) / np.maximum(count, 1)
            if x.shape[1] < self.population:
                bottom, top = np.fmax(bottom, low[first, second]), np.fmin(top, high[first, second])
            mean[first, second], mean[second, first] = middle, -middle
            low[first, second], high[first, second] = bottom, top
            low[second, first], high[second, first] = -top, -bottom
            seen[first, second] = seen[second, first] = count
        compared = tuple(x.shape[1] if i in awake else n for i, n in enumerate(self.compared))
        now = replace(self, n=x.shape[1], mean=mean, low=low, high=high, seen=seen, compared=compared)
        gone = now._leaving()
        decided = tuple(n or (now.n if i in gone else 0) for i, n in enumerate(self.decided))
        return replace(now, decided=decided)

    def _ends(self, d: Array) -> tuple[Array, Array]:
        if math.isinf(self.reach):
            return asymptotic(d, alpha=self.alpha, population=self.population)
        return betting(d, alpha=self.alpha, reach=self.reach, population=self.population)

    def _places(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Who is certainly among the best that are sought, and who certainly is not."""
        m, k = len(self.methods), self.goal.best or 0
        better = self.better[:m, :m]
        inside, out = better.sum(axis=1) >= m - k, better.sum(axis=0) >= k
        if inside.sum() == k:
            out = ~inside
        elif out.sum() == m - k:
            inside = ~out
        return inside, out

    def _awake(self) -> list[int]:
        """The rows that are explained further."""
        resting = self._resting()
        return [i for i, n in enumerate(self.decided) if not n and i not in resting]

    def _resting(self) -> set[int]:
        """Who is left out and cannot be better by more than the margin than anyone who is chosen."""
        if self.goal.best is None:
            return set()
        ranked, inside = self._ranked(), self._places()[0]
        uncertain = [a for a in ranked[: self.goal.best] if not inside[a]]
        fine = self._fine()
        return {b for b in ranked[self.goal.best :] if all(fine[a, b] for a in uncertain)}

    def _fine(self) -> NDArray[np.bool_]:
        """Whether the column's method cannot be better than the row's by more than the margin."""
        return self.better | (self.goal.margin >= self.high.T)

    def _leaving(self) -> set[int]:
        """Whose place is certain now."""
        m = len(self.methods)
        everyone = set(range(len(self.rows)))
        if (self.n >= self.population and not self.behind) or self._reached():
            return everyone
        if self.goal.best is None:
            d = self.goal.margin
            alike = (self.low >= -d) & (self.high <= d) if d else np.zeros_like(self.low, dtype=bool)
            told = self.better | self.better.T | alike | np.eye(len(self.low), dtype=bool)
            gone = {a for a in range(m) if told[a, :m].all()}
        else:
            inside, out = self._places()
            gone = set(np.flatnonzero(inside | out).tolist())
        still = [a for a in self._awake() if a < m and a not in gone]
        apart = self.better | self.better.T
        if self.control is not None and all(apart[a, m] for a in still):
            gone.add(m)
        return gone

    def _reached(self) -> bool:
        """Whether no method can be better by more than the margin than one that stands before it, or is chosen."""
        ranked = self._ranked()
        if self.goal.best is None:
            fine = self._fine()
            return all(fine[a, b] for i, a in enumerate(ranked) for b in ranked[i + 1 :])
        out = self._places()[1]
        return {b for b in ranked[self.goal.best :] if not out[b]} <= self._resting()

    def states(self) -> list[str]:
        """What is known of each method's place, in words: best where that is certain, chosen where the margin settles it."""
        ranked = self._ranked()
        if self.goal.best is None:
            return [f"{'rank' if n else 'open, rank'} {ranked.index(a) + 1}" for a, n in enumerate(self._own())]
        sure = ("best", "not best") if self.goal.best == 1 else (f"top {self.goal.best}", f"not top {self.goal.best}")
        chosen, certain = set(ranked[: self.goal.best]), self.certain
        words = [(sure if certain[a] else ("chosen", "left out"))[a not in chosen] for a in range(len(ranked))]
        return [word if n else "open" for word, n in zip(words, self._own(), strict=True)]

    def _own(self) -> Sequence[int]:
        return self.decided[: len(self.methods)]

    def rivals(self) -> list[int]:
        """Whom each method is best compared with: the last that is chosen, the first that is not, or the next in order."""
        ranked = self._ranked()
        place = {a: i for i, a in enumerate(ranked)}
        k, last = self.goal.best, len(ranked) - 1
        if k is None:
            return [ranked[place[a] + 1 if place[a] < last else last - 1] for a in range(len(ranked))]
        return [ranked[k] if place[a] < k else ranked[k - 1] for a in range(len(ranked))]

    def table(self) -> list[dict[str, object]]:
        """One row per method, best first: state, when it was decided, and its difference with interval to a rival."""
        states, rivals, m = self.states(), self.rivals(), len(self.methods)
        return [
            {
                "method": self.methods[a],
                "state": states[a],
                "decided": self.decided[a] or None,
                "against": self.methods[b],
                "difference": float(self.mean[a, b]),
                "low": float(self.low[a, b]),
                "high": float(self.high[a, b]),
                "n": int(self.seen[a, b]),
                "beats_random": None if self.control is None else self._against_control(a, m),
            }
            for a in self._ranked()
            for b in (rivals[a],)
        ]

    def _against_control(self, a: int, control: int) -> bool | None:
        """Whether a method is better than the control; None where that is not certain."""
        better = self.better
        return True if better[a, control] else False if better[control, a] else None
