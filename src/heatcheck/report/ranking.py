"""A ranking over cases as page, tables and figures show it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from heatcheck import stats
from heatcheck.report.along import TrajectoryView, trajectory_views
from heatcheck.report.cases import COLOURS
from heatcheck.report.charts import Axis
from heatcheck.report.drawing import VectorFigure
from heatcheck.report.method_view import MethodView
from heatcheck.report.multiverse import Phrase
from heatcheck.report.ranking_figures import (
    agreement_figure,
    cases_figure,
    ends_of,
    factor_figure,
    kappa_axis,
    kappa_figure,
    share_figure,
    told,
    wins_figure,
)
from heatcheck.report.ranking_tables import counted, ranking_tables
from heatcheck.report.tables import MarkedTable
from heatcheck.report.wording import number
from heatcheck.stats import Facts
from heatcheck.stats.consistency import CONTRADICTS
from heatcheck.stats.meta_rank import OVER_PAIRS, OVER_SAMPLES

_FIGURE_CASES = 60  # more cases are in the table alone
_NAMED = 6  # contrary cases that are named in the verdict's list
STRENGTH = (
    (0.9, "agree almost completely"),
    (0.7, "mostly agree"),
    (0.5, "agree in part"),
    (0.0, "hardly agree"),
)
"""The verdict for a Kendall's W of at least this value."""


@dataclass(frozen=True)
class KappaRow:
    """A method on the board; positions are in per cent, None where there is no interval.

    Args:
        place: by κ; methods with the same κ share it.
        method: its name.
        kappa: as text.
        ends: its interval over models and data sets, or over samples where there are too few of them, as text.
        at: position of κ.
        reach: positions of that interval.
        inner: positions of the interval over samples.
        strength: by Bradley and Terry's model, as text.
        mean_rank: as text.
        won: the share of comparisons won, as text.
        tied: whether it may be as good as the best.
        cases: that rank it, where not all do.
        random: in how many cases it is not significantly better than random, such as `2 of 7`; empty where not tested.
    """

    place: int
    method: str
    kappa: str
    ends: str
    at: float
    reach: tuple[float, float] | None
    inner: tuple[float, float] | None
    strength: str
    mean_rank: str
    won: str
    tied: bool
    cases: str
    random: str


@dataclass(frozen=True)
class RankingView:
    """Everything that page, tables and figures show.

    Args:
        title: of the page.
        runs: names of the runs.
        verdict: in pieces of a sentence.
        chips: numbers in a few words, each with what it is.
        chips_over: what their intervals are over: `models and data` or `samples`; empty where there is none.
        contrary: cases that contradict the rest, with τ and a verdict.
        faster: methods that fall faster under LeRF than under MoRF, with the models and data where they do.
        random_told: in how many cases nothing is better than random, in a sentence; empty where random was not measured.
        random_cases: those cases, each with whether it has too few samples to show more.
        factor: the factor by which cases are divided; empty for none.
        factor_told: what the factor does, in a sentence.
        complete: whether every case ranks every method.
        axis: of κ.
        rows: the board, best κ first.
        tied_over: what ties are over: `models and data` or `samples`; empty where nothing is tied.
        figures: by name.
        tables: all of them.
        along: rankings along trainings.
        missing: (methods, cases, reason) of what is not ranked.
        left_out: (case, reason).
        notes: what was renamed or left out when runs were joined.
        kemeny: about Kemeny's ranking, in a sentence.
        pairs: of model and data set.
    """

    title: str
    runs: tuple[str, ...]
    verdict: tuple[Phrase, ...]
    chips: tuple[tuple[str, str, str], ...]
    chips_over: str
    contrary: tuple[tuple[str, str, str], ...]
    faster: tuple[tuple[str, str], ...]
    random_told: str
    random_cases: tuple[tuple[str, bool], ...]
    factor: str
    factor_told: str
    complete: bool
    axis: Axis
    rows: tuple[KappaRow, ...]
    tied_over: str
    figures: Mapping[str, VectorFigure]
    tables: tuple[MarkedTable, ...]
    along: tuple[TrajectoryView, ...]
    missing: tuple[tuple[str, str, str], ...]
    left_out: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    kemeny: str
    pairs: int

    def table(self, name: str) -> MarkedTable:
        """A table by its name."""
        return next(table for table in self.tables if table.name == name)


def ranking_view(
    *,
    names: Sequence[str],
    facts: Facts,
    table: stats.CaseTable,
    board: stats.MetaBoard,
    agreement: stats.MetaAgreement,
    factor: stats.FactorRankings | None,
    along: Sequence[stats.AlongTraining],
    orders: pl.DataFrame,
    random: stats.CasesAgainstRandom,
    by_share: pl.DataFrame,
    notes: Sequence[str],
) -> RankingView:
    """Everything that page, tables and figures show."""
    methods = board.methods
    figures = {"kappa": kappa_figure(board), "wins": wins_figure(board)}
    if len(table.cases) <= _FIGURE_CASES:
        figures["cases"] = cases_figure(table, methods)
        if len(table.cases) > 1:
            figures["agreement"] = agreement_figure(table, agreement.matrix)
    if factor is not None and len(factor.levels) > 1:
        figures["factor"] = factor_figure(factor)
    if not by_share.is_empty():
        figures["accuracy_by_share"] = share_figure(by_share, methods, facts.random)
    return RankingView(
        title=f"{len(methods)} methods over {counted(len(table.cases), 'case')}",
        runs=tuple(names),
        verdict=tuple(_verdict(board, agreement, table)),
        chips=tuple(_chips(agreement)),
        chips_over=_chips_over(agreement),
        contrary=tuple((c.case.name, told(c.tau), c.verdict) for c in agreement.contrary),
        faster=tuple(_faster(orders)),
        random_told=_random_told(random),
        random_cases=tuple((table.cases[i].name, bool(random.few[i])) for i in random.nothing),
        factor="" if factor is None else factor.factor,
        factor_told="" if factor is None else _factor_told(factor),
        complete=table.complete,
        axis=kappa_axis(board),
        rows=tuple(_rows(board, random)),
        tied_over=board.tied_over if any(board.tied) else "",
        figures=figures,
        tables=tuple(ranking_tables(facts, table, board, agreement, factor, along, orders, random, by_share)),
        along=_along(along, methods),
        missing=tuple(_grouped(table)),
        left_out=tuple((case.name, reason) for case, reason in table.left_out),
        notes=tuple(notes),
        kemeny=_kemeny(board),
        pairs=len(table.pairs),
    )


def _verdict(board: stats.MetaBoard, agreement: stats.MetaAgreement, table: stats.CaseTable) -> Iterator[Phrase]:
    leaders = board.leaders
    tied = [m for m, t in zip(board.methods, board.tied, strict=True) if t and m not in leaders]
    share = float(board.borda_share[0])
    yield from _listed(leaders, "and")
    verb, wins = ("leads", "it wins") if len(leaders) == 1 else ("share the lead", "each wins")
    shown, over = _either(board.kappa[0], board.kappa_samples[0])
    yield Phrase(f" {verb} with κ {told(shown, over=over)}: {wins} {share:.0%} of its comparisons")
    them = "it" if len(leaders) == 1 else "them"
    behind = [m for m in board.methods if m not in leaders]
    if board.tied_over and behind:
        where = "on these samples" if board.tied_over == OVER_SAMPLES else "over other models and data"
        if len(tied) == len(behind) > 1:
            yield Phrase(f"; {where}, nothing here tells {them} apart from any other method")
        elif tied:
            yield Phrase(f"; {where}, nothing here tells {them} apart from ")
            yield from _listed(tied, "or")
        else:
            yield Phrase(f"; {where}, every other method is behind {them} by more than chance")
    yield Phrase(". ")
    if board.tied_over != OVER_PAIRS:
        few = f"{counted(board.pairs, 'pair')} of model and data set {'is' if board.pairs == 1 else 'are'} too few"
        yield Phrase(f"{few} to say how sure that is on other models and data. ")
    w, over = _either(agreement.w, agreement.w_samples)
    if w.value is not None and len(table.cases) > 1:
        words = _strength(w)
        if board.tied_over == OVER_SAMPLES and behind and len(tied) == len(behind):
            words = "samples that do not tell the methods apart do not say how far the cases agree"
        of = (
            ""
            if agreement.common == len(board.methods)
            else f" of the {agreement.common} methods that all of them rank"
        )
        stop = ";" if ":" in words else ":"
        yield Phrase(f"{words[0].upper()}{words[1:]}{stop} Kendall's W{of} is {told(w, over=over)}. ")
    sure = [c for c in agreement.contrary if c.verdict == CONTRADICTS]
    if agreement.contrary:
        many = len(sure) or len(agreement.contrary)
        verb = ("contradicts" if many == 1 else "contradict") if sure else "may contradict"
        yield Phrase(f"{counted(many, 'case')} {verb} the mean of the others. ")


def _either(between: stats.Coefficient, within: stats.Coefficient) -> tuple[stats.Coefficient, str]:
    """A number with its interval over models and data sets, else over samples; and what the interval is over."""
    if between.low is not None:
        return between, OVER_PAIRS
    return within, OVER_SAMPLES if within.low is not None else ""


def _random_told(random: stats.CasesAgainstRandom) -> str:
    """In how many cases nothing is better than random, in a sentence; empty where random was not measured."""
    if not random.tested:
        return ""
    nothing = random.nothing
    of = counted(random.tested, "case")
    beside = len(random.cases) - random.tested
    untested = f" Random was not measured in {counted(beside, 'case')}." if beside else ""
    if not nothing:
        return f"In every one of {of} some method is significantly better than random.{untested}"
    few = sum(bool(random.few[i]) for i in nothing)
    names = ", ".join(random.cases[i].name for i in nothing[:_NAMED])
    names += f" and {len(nothing) - _NAMED} more" if len(nothing) > _NAMED else ""
    told = f"In {len(nothing)} of {of} nothing is significantly better than random: {names}"
    if few:
        one = "it has" if len(nothing) == 1 else "one of them has"
        have = one if few == 1 else "all of them have" if few == len(nothing) else f"{few} of them have"
        told += f"; {have} too few samples to show that anything is"
    return f"{told}.{untested}"


def _strength(w: stats.Coefficient) -> str:
    """What Kendall's W says, with both ends of its interval where they say something else."""
    said = [
        next(words for least, words in STRENGTH if end >= least)
        for end in (w.value or 0.0, w.low, w.high)
        if end is not None
    ]
    low, high = (said[1], said[2]) if len(said) == 3 else (said[0], said[0])
    if low == high:
        return f"the cases {said[0]}"
    return f"how far the cases agree is not certain: they may {low}, or {high}"


def _listed(methods: Sequence[str], last: str) -> Iterator[Phrase]:
    for i, method in enumerate(methods):
        yield Phrase("" if i == 0 else f" {last} " if i == len(methods) - 1 else ", ")
        yield Phrase(method, name=True)


def _rows(board: stats.MetaBoard, random: stats.CasesAgainstRandom) -> Iterator[KappaRow]:
    axis = kappa_axis(board)
    tests = {m: (low, of) for m, low, of in random.columns(board.methods).iter_rows()}

    def places(c: stats.Coefficient) -> tuple[float, float] | None:
        return None if c.low is None or c.high is None else (axis.at(c.low), axis.at(c.high))

    for i, method in enumerate(board.methods):
        c = board.kappa[i]
        ranked = int(board.ranked[i])
        yield KappaRow(
            place=board.places[i],
            method=method,
            kappa=number(c.value, 2),
            ends=ends_of(_either(c, board.kappa_samples[i])[0]),
            at=axis.at(float(c.value or 0.0)),
            reach=places(c),
            inner=places(board.kappa_samples[i]),
            strength=number(board.strength[i].value, 2),
            mean_rank=number(float(board.mean_rank[i]), 2),
            won=f"{board.borda_share[i]:.0%}",
            tied=bool(board.tied[i]),
            cases="" if ranked == board.of else f"{ranked} of {board.of} cases",
            random="{} of {}".format(*tests[method]) if tests[method][1] else "",
        )


def _chips(agreement: stats.MetaAgreement) -> Iterator[tuple[str, str, str]]:
    names = ("Kendall's W", "mean τ", "mean ρ", "same best", "same worst", "MoRF–LeRF τ")
    over = _chips_over(agreement)
    for name, both in zip(names, agreement.measures.values(), strict=True):
        c = both[over == OVER_SAMPLES]
        if c.value is not None:
            yield name, number(c.value, 2), "" if c.low is None else ends_of(c)


def _chips_over(agreement: stats.MetaAgreement) -> str:
    """What the intervals of all chips are over: models and data where any has such an interval."""
    known = [c for both in agreement.measures.values() if (c := both[0]).value is not None]
    if any(c.low is not None for c in known):
        return OVER_PAIRS
    return OVER_SAMPLES if any(c.low is not None for _, c in agreement.measures.values()) else ""


def _faster(orders: pl.DataFrame) -> Iterator[tuple[str, str]]:
    found = orders.filter(pl.col("verdict") == "faster under LeRF")
    for (method,), part in found.group_by("method", maintain_order=True):
        pairs = part.select("model", "data").unique(maintain_order=True).rows()
        yield str(method), ", ".join(f"{model} · {data}" for model, data in pairs)


def _factor_told(factor: stats.FactorRankings) -> str:
    if len(factor.levels) < 2:
        return f"All cases have one {factor.factor}, {factor.levels[0].level}."
    told = f"Kendall's τ between the rankings of two levels is {number(factor.tau, 2)} on average"
    if factor.within is None:
        return f"{told}."
    return (
        f"{told}; between two cases of one level {number(factor.within, 2)}, of different levels "
        f"{number(factor.between, 2)}. The nearer these two are, the less the {factor.factor} matters."
    )


def _kemeny(board: stats.MetaBoard) -> str:
    found = board.consensus
    total = int(board.cases.sum() / 2)
    told = f"Kemeny's ranking contradicts {found.contradicted:g} of {total} comparisons"
    if not found.exact:
        return f"{told}; with this many methods it comes from a search, and a better one may exist."
    return f"{told}, and no ranking contradicts fewer" + (
        f"; {found.optima} do equally well." if found.optima != 1 else "."
    )


def _grouped(table: stats.CaseTable) -> Iterator[tuple[str, str, str]]:
    """Methods that are not ranked, with the cases and the reason; those with equal ones together."""
    where: dict[tuple[str, str], list[str]] = {}
    for case, method, reason in table.missing:
        where.setdefault((method, reason), []).append(case.name)
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (method, reason), cases in where.items():
        together.setdefault((reason, tuple(cases)), []).append(method)
    for (reason, names), methods in together.items():
        shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        yield ", ".join(methods), shown, reason


def _along(along: Sequence[stats.AlongTraining], methods: Sequence[str]) -> tuple[TrajectoryView, ...]:
    names = list(dict.fromkeys([*methods, *(m for case in along for m in case.methods)]))
    views = [MethodView(i, name, False, i % COLOURS, i // COLOURS % 3) for i, name in enumerate(names)]
    return trajectory_views(along, {(case.checkpoints[-1].model, case.data): views for case in along})
