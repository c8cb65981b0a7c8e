"""The verdict on a candidate, as words, Markdown and JUnit XML."""

from collections.abc import Iterator
from typing import Any, Protocol

import polars as pl
from markupsafe import escape

from heatcheck.report.wording import number, p_value, plain
from heatcheck.stats.inferiority import INFERIOR, NOT_INFERIOR, UNDECIDED

_SENTENCE = {
    NOT_INFERIOR: "NOT INFERIOR: every method is explained as faithfully, within the margin",
    INFERIOR: "INFERIOR: some method is worse by more than the margin, for sure",
    UNDECIDED: "UNDECIDED: the samples do not show that every method stays within the margin, nor that one does not",
}
COLUMNS = ("metric", "method", "verdict", "base", "candidate", "difference", "margin", "n", "p", "maps agree")


class HasVerdict(Protocol):
    """What is shown; `heatcheck.api.gate.Gate` is one."""

    @property
    def base(self) -> str:
        """The base's name."""

    @property
    def candidate(self) -> str:
        """The candidate's name."""

    @property
    def data(self) -> str:
        """The data set's name."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know."""

    @property
    def verdict(self) -> str:
        """That of all methods together."""

    @property
    def same(self) -> bool:
        """Whether base and candidate are the same model."""

    @property
    def table(self) -> pl.DataFrame:
        """A row per metric and method."""


def sentence(found: HasVerdict) -> str:
    """The verdict in a sentence, which tells inferior from undecided."""
    same = (
        "; base and candidate are the same model, so that this says nothing about a changed one" if found.same else ""
    )
    return f"{_SENTENCE[found.verdict]}{same}."


def cells(found: HasVerdict) -> list[tuple[str, ...]]:
    """The table's rows as text, in the order of `COLUMNS`; the worst difference first."""
    rows = found.table.sort("difference", nulls_last=False, maintain_order=True)
    return [_cells(row) for row in rows.iter_rows(named=True)]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    verdict = f"{row['verdict']}: {row['why']}" if row["why"] else row["verdict"]
    span = "" if row["low"] is None else f" ({number(row['low'])} to {number(row['high'])})"
    maps = "–"
    if row["maps"] is not None:
        maps = _agree(row["maps"], row["maps_tenth"])
    return (
        plain(row["metric"]),
        plain(row["method"]),
        verdict,
        number(row["base"]),
        number(row["candidate"]),
        f"{number(row['difference'])}{span}",
        f"{row['margin']:g}",
        str(row["n"]),
        p_value(row["p"]).removeprefix("p ").removeprefix("= "),
        maps,
    )


def _agree(mean: float, tenth: float) -> str:
    """How far maps agree; the value that a tenth lie below, where it is another.

    >>> _agree(1.0, 1.0), _agree(0.9, 0.7)
    ('1.00 on all samples', '0.90, a tenth below 0.70')
    """
    if mean > 1 - 1e-9:
        return "1.00 on all samples"
    shown = number(mean, 2), number(tenth, 2)
    return shown[0] if shown[0] == shown[1] else f"{shown[0]}, a tenth below {shown[1]}"


def gate_markdown(found: HasVerdict) -> str:
    """The verdict as Markdown, for a comment on a change."""
    lines = [
        f"**{sentence(found)}**",
        "",
        f"{_md(found.candidate)} beside {_md(found.base)}, on {_md(found.data)}.",
        "",
    ]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(map(_md, row)) + " |" for row in cells(found)]
    lines += ["", about(), *(f"- {_md(note)}" for note in found.notes)]
    return "\n".join(lines) + "\n"


def _md(text: str) -> str:
    return "".join(f"\\{c}" if c in "\\|*_`<>[]" else c for c in plain(text)).replace("\n", " ")


def about() -> str:
    """How the numbers are to be read."""
    return (
        "Differences are candidate minus base on the same samples, above zero where the candidate is better, with 95 % "
        "intervals; maps agree: Spearman's correlation of both maps, averaged over samples."
    )


def junit(found: HasVerdict) -> str:
    """The verdict as JUnit XML: a test case per metric and method; what is not shown to be not inferior fails."""
    rows = list(found.table.iter_rows(named=True))
    failed = sum(row["verdict"] != NOT_INFERIOR for row in rows)
    head = f'<testsuite name="heatcheck gate" tests="{len(rows)}" failures="{failed}" errors="0" skipped="0">'
    body = [line for row in rows for line in _case(row)]
    return "\n".join(
        ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>", head, *body, "</testsuite>", "</testsuites>", ""]
    )


def _case(row: dict[str, Any]) -> Iterator[str]:
    place = f'<testcase classname="gate.{_xml(row["metric"])}" name="{_xml(row["method"])}"'
    if row["verdict"] == NOT_INFERIOR:
        yield place + "/>"
        return
    told = f"{row['verdict']}: difference {number(row['difference'])}, margin {row['margin']:g}, {row['n']} samples"
    if row["why"]:
        told += f"; {row['why']}"
    yield f'{place}><failure type="{row["verdict"]}" message="{_xml(told)}"/></testcase>'


def _xml(text: str) -> str:
    return str(escape(plain(text).replace("\n", " ").replace("\t", " ")))
