"""The tables of a comparison with a paper as people read them: the best in bold, ties marked, numbers in their own units."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from heatcheck.report.compare import CASE, TITLES, HasComparison, marked_beside, significantly_better
from heatcheck.report.tables import Cell, MarkedTable
from heatcheck.report.wording import decimals, number_of_size, rank

MEGABYTE = 1_000_000
_CAPTIONS = {
    "beside": "Our scores beside those that {} printed; ranks are among the methods that both have.",
    "correlations": "How alike our scores and those that {} printed rank methods, with intervals over methods and samples, and over samples alone.",
    "claims": "What is claimed by {}, and what the scores here say about it.",
}
_HEADS: Mapping[str, Mapping[str, str]] = {
    "beside": {
        "as": "in the paper",
        "low": "ours, from",
        "high": "ours, to",
        "rank": "our rank",
        "table": "printed in",
        "settings": "other settings here",
    },
    "correlations": {"spearman": "Spearman", "samples_low": "over samples, from", "samples_high": "over samples, to"},
    "claims": {"claim": "name", "says": "claim", "where": "in the paper", "effect": "what should be above 0", "counted": "n counts"},
    "table2": {"forwards": "forward passes", "backwards": "backward passes", "peak_bytes": "peak memory (MB)"},
    "metric_correlation": {
        "a": "metric",
        "b": "with",
        "pearson": "Pearson",
        "spearman": "Spearman",
        "within": "within models",
        "pearson_lowest": "Pearson, lowest",
        "pearson_highest": "Pearson, highest",
        "spearman_lowest": "Spearman, lowest",
        "spearman_highest": "Spearman, highest",
        "most_influential": "row that matters most",
        "pearson_without": "Pearson without it",
    },
    "best_faithfulness": {"raw": "raw sum"},
    "sensitivity": {"deviation": "standard deviation", "best": "best method"},
    "overall": {"raw": "raw sum", "of": "of metrics"},
    "factors": {"from": "lowest", "to": "highest", "low": "fall, from", "high": "fall, to", "rho": "Spearman", "n": "samples"},
    "accuracy": {
        "best": "best method",
        "low": "score, from",
        "high": "score, to",
        "accuracy_low": "accuracy, from",
        "accuracy_high": "accuracy, to",
    },
    "stability": {"a": "setting", "b": "other setting", "spearman": "Spearman", "n": "samples"},
    "separation": {
        "random_rank": "random's rank",
        "random_margin": "least lead over random (standard errors)",
        "auroc": "AUROC",
        "pairs": "pairs of methods",
        "separable": "pairs told apart",
        "spread": "mean distance",
        "eta_squared": "η²",
    },
    "disagreement": {"a": "method", "b": "other method", "n": "samples"},
}  # fmt: skip
_ENDS = {"low": "from", "high": "to"}

Marks = tuple[set[Cell], set[Cell]]
"""The best cells, and those that may be as good."""


def marked_tables(found: HasComparison) -> Iterator[MarkedTable]:
    """Every table with its caption, its heads and its marks; files for programs keep names and units."""
    for name, frame in found.tables.items():
        yield marked_table(found, name, frame)


def marked_table(found: HasComparison, name: str, frame: pl.DataFrame) -> MarkedTable:
    """A table of a comparison."""
    best, tied = _MARKS[name](found, frame) if name in _MARKS else (set(), set())
    own = {**_ENDS, **_HEADS.get(name, {}), **(_arrows(found, frame) if name == "table1" else {})}
    return MarkedTable(
        name,
        caption(found, name),
        frame,
        _places(frame),
        frozenset(best),
        frozenset(tied),
        {c: own.get(c, c if name == "table1" else c.replace("_", " ")) for c in frame.columns},
        _shown(frame),
        tuple(c for c in frame.columns if not set(frame[c].unique().to_list()) - {None, ""}),
    )


def caption(found: HasComparison, name: str) -> str:
    """What a table shows, in sentences."""
    if name in _CAPTIONS:
        return _CAPTIONS[name].format(found.title.partition(",")[0])
    title, about = TITLES[name]
    return f"{title} {about}" if title.endswith("?") else f"{title}. {about}"


def _arrows(found: HasComparison, frame: pl.DataFrame) -> dict[str, str]:
    """Metrics with their directions."""
    better = {m["name"]: m["better"] for m in found.facts.get("metrics", ())}
    return {c: f"{c} {'↑' if better[c] == 'higher' else '↓'}" for c in frame.columns if c in better}


def _places(frame: pl.DataFrame) -> dict[str, int | None]:
    """Decimals of the columns whose numbers are very small or large."""
    largest = {
        c: float(frame[c].fill_nan(None).abs().max() or 0.0)  # type: ignore[arg-type]
        for c, kind in frame.schema.items()
        if kind.is_float()
    }
    return {c: decimals(size) for c, size in largest.items() if size and not 0.01 <= size < 10}


def _shown(frame: pl.DataFrame) -> dict[Cell, str]:
    """Ranks and counts as whole numbers, bytes as megabytes, times with three digits."""
    found = {}
    for column in (c for c in frame.columns if c in _SAID):
        for i, value in enumerate(frame[column]):
            if value is not None:
                found[i, column] = _SAID[column](value)
    return found


def _whole(value: float) -> str:
    return f"{value:,.0f}"


_SAID: Mapping[str, Callable[[Any], str]] = {
    "rank": rank,
    "their_rank": rank,
    "forwards": _whole,
    "backwards": _whole,
    "seconds": number_of_size,
    "peak_bytes": lambda value: _whole(value / MEGABYTE),
}


# -- what is best ----------------------------------------------------------------------------------------------------


def best_cells(frame: pl.DataFrame, column: str, keys: Sequence[str], *, least: bool = False) -> set[Cell]:
    """The highest (or least) cells of a column among the rows with equal keys; none where there is nothing to choose.

    >>> sorted(best_cells(pl.DataFrame({"m": ["a", "a", "b"], "x": [1.0, 2.0, 3.0]}), "x", ["m"]))
    [(1, 'x')]
    """
    known = frame.with_row_index("row").filter(pl.col(column).is_not_null())
    end = pl.col(column).min() if least else pl.col(column).max()
    chosen = known.filter((pl.col(column) == end.over(keys)) & (pl.len().over(keys) > 1))
    return {(int(i), column) for i in chosen["row"]}


def _several(columns: Sequence[str], keys: Sequence[str], *, least: bool = False) -> Callable[..., Marks]:
    def marks(_: HasComparison, frame: pl.DataFrame) -> Marks:
        by = [key for key in keys if key in frame.columns]
        cells = (best_cells(frame, c, by, least=least) for c in columns if c in frame.columns)
        return set().union(*cells), set()

    return marks


def _beside(found: HasComparison, _: pl.DataFrame) -> Marks:
    """The best of ours and of theirs, and those of ours that may be as good."""
    best: set[Cell] = set()
    tied: set[Cell] = set()
    for i, row in enumerate(marked_beside(found).iter_rows(named=True)):
        best |= {(i, column) for column, mark in (("ours", "best"), ("theirs", "their_best")) if row[mark]}
        if row["tied"]:
            tied.add((i, "ours"))
    return best, tied


def _table1(found: HasComparison, frame: pl.DataFrame) -> Marks:
    """The best mean of every model under every metric, and those that no method is significantly better than."""
    best: set[Cell] = set()
    tied: set[Cell] = set()
    if found.board is None:
        return best, tied
    better = significantly_better(found.board)
    firsts = set(found.board.filter(pl.col("rank") == 1).select(*CASE, "metric", "method").iter_rows())
    alone = found.board["data"].unique().to_list()
    for i, row in enumerate(frame.iter_rows(named=True)):
        for metric in (c for c in frame.columns if c not in (*CASE, "method")):
            key = row["model"], row["data"] if "data" in row else alone[0], metric, row["method"]
            if key in firsts:
                best.add((i, metric))
            elif better.get(key) == set():
                tied.add((i, metric))
    return best, tied


def _accuracy(found: HasComparison, frame: pl.DataFrame) -> Marks:
    """The best model by score and by accuracy on each data set, and those whose interval meets the best one's."""
    better = {m["name"]: m["better"] for m in found.facts.get("metrics", ())}
    least = any(better.get(metric) == "lower" for metric in frame["metric"].unique())
    best: set[Cell] = set()
    tied: set[Cell] = set()
    rows = frame.rows(named=True)
    for column, low, high, down in (
        ("score", "low", "high", least),
        ("accuracy", "accuracy_low", "accuracy_high", False),
    ):
        top = best_cells(frame, column, ("data", "metric"), least=down)
        best |= top
        for i, _ in top:
            for k, row in enumerate(rows):
                same = row["data"] == rows[i]["data"] and row["metric"] == rows[i]["metric"]
                known = same and row[low] is not None and rows[i][low] is not None
                if known and (k, column) not in top and row[low] <= rows[i][high] and rows[i][low] <= row[high]:
                    tied.add((k, column))
    return best, tied


_MARKS: Mapping[str, Callable[[HasComparison, pl.DataFrame], Marks]] = {
    "beside": _beside,
    "table1": _table1,
    "table2": _several(("seconds",), CASE, least=True),
    "overall": _several(("raw", "standardised"), CASE),
    "best_faithfulness": _several(("raw", "standardised", "wins"), ("modality",)),
    "separation": _several(("auroc", "separable", "eta_squared"), CASE),
    "accuracy": _accuracy,
}
"""The tables in which something is best."""
