"""A run beside a paper, in words: scores side by side, and the paper's claims with their verdicts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from heatcheck.report.wording import decimals, number, rank
from heatcheck.stats.claims import HELD, NOT_HELD, UNDECIDED
from heatcheck.stats.evidence import NOT_TESTABLE

VERDICTS = (HELD, NOT_HELD, UNDECIDED, NOT_TESTABLE)
_CLASSES = dict(zip(VERDICTS, ("held", "nothere", "open", "unasked"), strict=True))
CASE = ("model", "data")
_MARGIN = 4.0  # per cent of a plot on either side
TITLES = {
    "table1": ("Table 1's form", "Mean scores; blanks where a method does not apply or was not measured."),
    "table2": ("Table 2's form", "What maps of 100 samples cost here; memory is the peak of the whole run."),
    "metric_correlation": (
        "Do metrics agree?",
        "Correlations over rows of a model and a method, metrics where lower is better negated. Within: after "
        "standardising within each model. Lowest and highest: when any one row is left out.",
    ),
    "best_faithfulness": (
        "Which method is best?",
        "Means over models. Raw is M4's sum, which the metric with the largest unit decides; standardised is the mean "
        "z-score within models. Wins: models on which its standardised score is the best.",
    ),
    "sensitivity": (
        "Which models are sensitive to the method?",
        "Standard deviation and range of the scores over methods.",
    ),
    "factors": (
        "Along what models differ in",
        "How far each method's score falls from the lowest to the highest value, by a line through all models; rho: "
        "Spearman's correlation of the value and the models' means.",
    ),
    "accuracy": ("Scores and accuracy", "The best method of every model beside the model's accuracy."),
    "stability": (
        "Stability of rankings",
        "Spearman's correlation of methods' means under two settings, over samples.",
    ),
    "separation": (
        "Which perturbation separates?",
        "From random: whether it is last, its rank, the smallest lead over it in standard errors, and AUROC of methods' "
        "scores against its. Between methods: the share of pairs that differ significantly, their mean distance, and the "
        "share of variance between methods.",
    ),
    "disagreement": (
        "How far maps disagree",
        "1 − Spearman's correlation between the maps of two methods, averaged over samples: 0 is the same order, 1 is "
        "none in common.",
    ),
    "overall": ("Overall score", "Of every model and method, raw and standardised."),
}


class HasComparison(Protocol):
    """What the page shows; `heatcheck.api.compare.PaperComparison` is one."""

    @property
    def run(self) -> str:
        """The run's name."""

    @property
    def paper(self) -> str:
        """The name of the paper's profile."""

    @property
    def beside(self) -> pl.DataFrame:
        """Our scores and the printed ones."""

    @property
    def correlations(self) -> pl.DataFrame:
        """How alike they rank methods."""

    @property
    def claims(self) -> tuple[dict[str, Any], ...]:
        """Every claim with its verdict."""

    @property
    def questions(self) -> Mapping[str, pl.DataFrame]:
        """What the paper asks beside its claims, as tables."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Of the run."""

    @property
    def title(self) -> str:
        """The paper, in words."""

    @property
    def sources(self) -> tuple[Any, ...]:
        """The paper's tables."""

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """All tables by name."""

    @property
    def board(self) -> pl.DataFrame | None:
        """The leaderboard."""


@dataclass(frozen=True)
class BesideRow:
    """A method: places are per cent of the plot, None where there is no interval."""

    method: str
    name: str
    ours: str
    interval: str
    theirs: str
    rank: str
    their_rank: str
    x: float
    x_low: float | None
    x_high: float | None
    x_theirs: float
    doubt: str
    settings: str
    best: bool
    their_best: bool
    tied: bool


@dataclass(frozen=True)
class BesideGroup:
    """One metric of one model beside the printed table."""

    title: str
    theirs: str
    table: str
    correlation: str
    ends: tuple[str, str]
    rows: tuple[BesideRow, ...]


def by_verdict(claims: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    """Claims in the order of their verdicts: those that could be tested first."""
    return sorted(claims, key=lambda claim: VERDICTS.index(claim["verdict"]))


def answer(claims: tuple[dict[str, Any], ...]) -> str:
    """How many claims have which verdict, in a sentence.

    >>> answer(({"verdict": "held"}, {"verdict": "not testable here"}, {"verdict": "held"}))
    'Of 3 claims, 2 held, 0 did not hold, 0 need more samples, and 1 cannot be tested here.'
    """
    held, not_held, undecided, untested = (sum(c["verdict"] == v for c in claims) for v in VERDICTS)
    needs = "needs" if undecided == 1 else "need"
    return (
        f"Of {len(claims)} claims, {held} held, {not_held} did not hold, {undecided} {needs} more samples, "
        f"and {untested} cannot be tested here."
    )


def claim_words(claim: Mapping[str, Any]) -> dict[str, str]:
    """A claim's number with its interval, as text, and the class of its verdict."""
    value, low, high = (claim[k] for k in ("value", "low", "high"))
    words = ""
    if value == value:
        words = f"{claim['effect']}: {number(value)}"
        if low == low:
            words += f" ({number(low)} to {number(high)})"
    return {"number": words, "css": _CLASSES[claim["verdict"]]}


def significantly_better(board: pl.DataFrame | None) -> dict[tuple[str, ...], set[str]]:
    """The methods that are significantly better than a ranked one, by its model, data set, metric and name."""
    if board is None:
        return {}
    ranked = board.filter(pl.col("beaten_by").is_not_null())
    return {
        (model, data, metric, method): set(by)
        for model, data, metric, method, by in ranked.select(*CASE, "metric", "method", "beaten_by").iter_rows()
    }


def marked_beside(found: HasComparison) -> pl.DataFrame:
    """Our scores and the printed ones, and which are `best`, `their_best`, and `tied`.

    Tied are those of ours that are not the best, and that no other method of the table is significantly better than.
    Where there is one method, nothing is best.
    """
    case = (*CASE, "metric")
    several = pl.len().over(case) > 1
    places = {"best": "rank", "their_best": "their_rank"}
    table = found.beside.with_columns(
        **{name: several & (pl.col(rank) == pl.col(rank).min().over(case)) for name, rank in places.items()}
    )
    better = significantly_better(found.board)
    methods = {key: set(part["method"]) for key, part in table.group_by(case)}
    tied = []
    for row in table.iter_rows(named=True):
        key = tuple(row[c] for c in case)
        by = better.get((*key, row["method"]))
        tied.append(by is not None and len(methods[key]) > 1 and not row["best"] and not by & methods[key])
    return table.with_columns(tied=pl.Series(tied, dtype=pl.Boolean))


def groups(found: HasComparison) -> Iterator[BesideGroup]:
    """Our scores and the printed ones, a group per model, data set and metric."""
    known = {(r["model"], r["data"], r["metric"]): r for r in found.correlations.iter_rows(named=True)}
    several = found.beside["data"].n_unique() > 1 if found.beside.height else False
    for key, group in marked_beside(found).group_by(*CASE, "metric", maintain_order=True):
        rows = sorted(group.iter_rows(named=True), key=lambda row: (row["rank"], row["as"]))
        values = [v for row in rows for v in (row["low"], row["high"], row["ours"], row["theirs"]) if v is not None]
        low, high = min(values), max(values)
        places = decimals(max(abs(low), abs(high)))
        correlation = known[str(key[0]), str(key[1]), str(key[2])]
        yield BesideGroup(
            title=" · ".join(map(str, key if several else (key[0], key[2]))),
            theirs=correlation["their_model"],
            table=rows[0]["table"],
            correlation=correlation_words(correlation),
            ends=(number(low, places), number(high, places)),
            rows=tuple(_row(row, low, high, places) for row in rows),
        )


def correlation_words(row: Mapping[str, Any]) -> str:
    """Spearman's correlation with its intervals, as text."""
    if row["spearman"] is None:
        return (
            f"no rank correlation: {row['methods']} method{'' if row['methods'] == 1 else 's'} in common, 3 are needed"
        )
    words = f"rank correlation {number(row['spearman'], 2)} over {row['methods']} methods"
    if row["low"] is not None:
        words += f", {number(row['low'], 2)} to {number(row['high'], 2)} over methods and samples"
        words += f", {number(row['samples_low'], 2)} to {number(row['samples_high'], 2)} over samples alone"
    return words


def _row(row: Mapping[str, Any], low: float, high: float, places: int | None) -> BesideRow:
    def at(value: float | None) -> float | None:
        if value is None:
            return None
        share = (value - low) / (high - low) if high > low else 0.5
        return round(_MARGIN + (100 - 2 * _MARGIN) * share, 2)

    interval = "" if row["low"] is None else f"{number(row['low'], places)} to {number(row['high'], places)}"
    return BesideRow(
        method=row["method"],
        name=row["as"],
        ours=number(row["ours"], places),
        interval=interval,
        theirs=number(row["theirs"], places),
        rank=rank(row["rank"]),
        their_rank=rank(row["their_rank"]),
        x=at(row["ours"]) or 0.0,
        x_low=at(row["low"]),
        x_high=at(row["high"]),
        x_theirs=at(row["theirs"]) or 0.0,
        doubt=row["doubt"],
        settings=row["settings"],
        best=row["best"],
        their_best=row["their_best"],
        tied=row["tied"],
    )
