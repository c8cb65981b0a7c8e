"""What papers have printed: their tables as CSV files, each with its source and what is doubtful about it.

The values are the papers' own. Method scores exist for IDSDS and M4; Meta-Rank's supplement prints none.
"""

import csv
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from heatcheck.core.papers import PAPERS
from heatcheck.core.spec import SpecError, suggest

FOLDER = Path(__file__).parent
PAPERS_BY_PROFILE = {"idsds": "hesse2024", "m4": "li2023", "metarank": "duan2024", "perturbation": "cohen2025"}
"""The papers that runs are compared with, by the names that users write: their profiles' where they have one."""
_OUTLIER = "outlier"
_WHOLE_ROW = "1"


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper.

    Args:
        name: of the file, without its ending.
        paper: key of the paper.
        where: in the paper.
        about: what it holds.
        caveat: what a reader must know; empty for nothing.
        scores: columns that hold scores, and the ids of their metrics here.
        rows: all cells as printed.
    """

    name: str
    paper: str
    where: str
    about: str
    caveat: str = ""
    scores: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[Mapping[str, str], ...] = field(default=(), repr=False)

    @property
    def source(self) -> str:
        """Paper and place, in words."""
        return f"{PAPERS[self.paper]}, {self.where}"


@cache
def published_tables(paper: str | None = None) -> tuple[PublishedTable, ...]:
    """All tables, or those of one paper, by the name of its profile.

    >>> [table.where for table in published_tables("idsds")][:2]
    ['Table 3', 'Table 4']

    Raises:
        SpecError: the paper is not known.
    """
    told: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "tables.toml").read_text(encoding="utf-8"))
    key = None if paper is None else paper_key(paper)
    return tuple(
        PublishedTable(name=name, rows=_rows(name), **entry)
        for name, entry in told.items()
        if key is None or entry["paper"] == key
    )


def paper_key(paper: str) -> str:
    """A paper's key, by the name that users write.

    Raises:
        SpecError: there is none of that name.
    """
    if paper not in PAPERS_BY_PROFILE:
        raise SpecError(f"no paper {paper!r} to compare with{suggest(paper, PAPERS_BY_PROFILE)}")
    return PAPERS_BY_PROFILE[paper]


def published_scores(paper: str) -> list[dict[str, Any]]:
    """Every printed score of a paper: `table`, `model`, `method`, `metric` by our id, `value`, `doubt`.

    `doubt` says why a cell is doubtful; empty where it is not.

    >>> [row["value"] for row in published_scores("idsds") if row["method"] == "IG-U" and row["metric"] == "idsds"]
    [0.255]
    """
    return [
        {
            "table": table.where,
            "model": row.get("model") or _model_of(row["method"]),
            "method": row["method"],
            "metric": metric,
            "value": float(row[column]),
            "doubt": _doubt(row),
        }
        for table in published_tables(paper)
        for column, metric in table.scores.items()
        for row in table.rows
    ]


def _rows(name: str) -> tuple[dict[str, str], ...]:
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def _model_of(method: str) -> str:
    """The network of IDSDS's tables, which do not name it."""
    return {"B-cos": "B-cos ResNet-50", "BagNet-33": "BagNet-33"}.get(method, "ResNet-50")


def _doubt(row: Mapping[str, str]) -> str:
    if row.get("doubtful") in (None, "", "0"):
        return ""
    return row.get("note") or {_WHOLE_ROW: "repaired from a scan", _OUTLIER: "an outlier"}.get(
        row["doubtful"], "doubtful"
    )
