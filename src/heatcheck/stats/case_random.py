"""Cases beside the random control: in which of them nothing is better, and how often each method is not."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from heatcheck.stats.facts import Facts
from heatcheck.stats.leaderboard import against_random
from heatcheck.stats.meta_cases import CaseTable, MetaCase
from heatcheck.stats.paired import too_few
from heatcheck.stats.table import Array, groups

COLUMNS = {"method": pl.String, "not_better": pl.Int64, "tested": pl.Int64}


@dataclass(frozen=True)
class CasesAgainstRandom:
    """Tests of the methods that cases rank against the random control.

    Args:
        cases: all of them.
        methods: by name.
        better: [cases, methods], 1 where significantly better than random, 0 where not, NaN where not ranked or where random
            was not measured.
        few: [cases], whether there are too few samples for any method to be significantly better.
    """

    cases: tuple[MetaCase, ...]
    methods: tuple[str, ...]
    better: Array = field(repr=False)
    few: NDArray[np.bool_] = field(repr=False)

    @property
    def tested(self) -> int:
        """Cases with such tests."""
        return int((~np.isnan(self.better)).any(axis=1).sum())

    @property
    def nothing(self) -> tuple[int, ...]:
        """Numbers of the cases that have such tests, and in which no method is significantly better."""
        return tuple(np.flatnonzero((~np.isnan(self.better)).any(axis=1) & ~(self.better == 1).any(axis=1)).tolist())

    def columns(self, methods: Sequence[str]) -> pl.DataFrame:
        """Per method: in how many of the `tested` cases it is `not_better`."""
        order = [self.methods.index(m) for m in methods]
        counts = zip((self.better == 0).sum(axis=0), (~np.isnan(self.better)).sum(axis=0), strict=True)
        each = [(int(low), int(of)) for low, of in counts]
        return pl.DataFrame([(m, *each[k]) for m, k in zip(methods, order, strict=True)], schema=COLUMNS, orient="row")


def cases_against_random(
    scores: pl.DataFrame, facts: Facts, table: CaseTable, *, seed: int = 0, level: float = 0.95
) -> CasesAgainstRandom:
    """The tests of a run's leaderboard against random, for every case.

    Args:
        scores: the long table that the cases were made of.
        facts: directions, and the random control.
        table: what `case_table` gave.
        seed: of the tests.
        level: of the tests, Holm-corrected within a case.
    """
    number = {(c.model, c.data, c.protocol.name): i for i, c in enumerate(table.cases)}
    better = np.full(table.ranks.shape, np.nan)
    few = np.zeros(len(table.cases), dtype=bool)
    for group in groups(scores, facts):
        i = number.get((group.model, group.data, group.metric))
        if i is None or facts.random not in group.methods:
            continue
        p, _ = against_random(group, facts, seed, level)
        for k, method in enumerate(table.methods):
            at = group.methods.index(method) if method in group.methods else -1
            if at >= 0 and not np.isnan(p[at]) and not np.isnan(table.ranks[i, k]):
                better[i, k] = p[at] <= 1 - level
        random = group.oriented[group.methods.index(facts.random)]
        tests = [m for m, x in zip(group.methods, p, strict=True) if not np.isnan(x) and not facts.is_control(m)]
        common = (~np.isnan(group.oriented - random)).sum(axis=1)
        most = max((int(common[group.methods.index(m)]) for m in tests), default=0)
        few[i] = too_few(most, len(tests), level)
    return CasesAgainstRandom(table.cases, table.methods, better, few)
