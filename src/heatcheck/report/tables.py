"""Tables for papers and programs: CSV, Parquet, Markdown and LaTeX, with the best in bold and ties marked."""

import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from heatcheck.core.files import FORMULA
from heatcheck.report.wording import number, plain

TIED = "†"
"""The mark of what may be as good as the best."""
_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "κ": r"$\kappa$", "τ": r"$\tau$", "ρ": r"$\rho$", "−": r"$-$",
    "⊙": r"$\odot$", "×": r"$\times$", "·": r"$\cdot$", TIED: r"\textsuperscript{\textdagger}", "≥": r"$\geq$",
    "±": r"$\pm$", "η": r"$\eta$", "²": r"$^2$", "↑": r"$\uparrow$", "↓": r"$\downarrow$",
}  # fmt: skip
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#&])")

Cell = tuple[int, str]


@dataclass(frozen=True)
class MarkedTable:
    """A table, and which of its cells are best.

    Args:
        name: of its files.
        caption: what it shows, in a sentence.
        frame: its numbers and texts.
        places: decimals of its columns, where not three; None for scientific notation.
        best: (row, column) of cells that are shown in bold.
        tied: (row, column) of cells that may be as good as the best.
        heads: what columns are called where people read them.
        shown: what people read in a cell, where that is more than its value.
        hidden: columns that are for programs alone.
    """

    name: str
    caption: str
    frame: pl.DataFrame
    places: Mapping[str, int | None] = field(default_factory=dict)
    best: frozenset[Cell] = frozenset()
    tied: frozenset[Cell] = frozenset()
    heads: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[Cell, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()

    @property
    def visible(self) -> list[str]:
        """The columns that people read."""
        return [name for name in self.frame.columns if name not in self.hidden]

    @property
    def columns(self) -> list[str]:
        """What they are called there."""
        return [self.heads.get(name, name) for name in self.visible]

    def values(self, row: int) -> tuple[Any, ...]:
        """What the visible cells of a row stand for."""
        return self.frame.select(self.visible).row(row)

    def is_number(self, column: str) -> bool:
        """Whether a column has numbers."""
        return self.frame.schema[column].is_numeric()

    def rows(self) -> Iterator[list[tuple[str, bool, bool]]]:
        """Every cell as text, whether it is best, and whether it may be as good."""
        for i, row in enumerate(self.frame.select(self.visible).iter_rows()):
            yield [
                (
                    plain(self.shown[i, name]) if (i, name) in self.shown else self._text(name, value),
                    (i, name) in self.best,
                    (i, name) in self.tied,
                )
                for name, value in zip(self.visible, row, strict=True)
            ]

    def _text(self, column: str, value: Any) -> str:
        if value is None:
            return "–"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, int):
            return str(value)
        return number(value, self.places.get(column, 3)) if isinstance(value, float) else plain(str(value))

    def csv(self) -> bytes:
        """All digits, names as the frame has them; texts that a spreadsheet would take for a formula begin with `'`."""
        text = pl.col(pl.String)
        neutral = pl.when(text.str.contains(FORMULA)).then("'" + text).otherwise(text).name.keep()
        heads = {c: f"'{c}" for c in self.frame.columns if re.match(FORMULA, c)}
        return _without_nan(self.frame).with_columns(neutral).rename(heads).write_csv().encode()

    def parquet(self) -> bytes:
        """Like `csv`, with types."""
        out = io.BytesIO()
        _without_nan(self.frame).write_parquet(out)
        return out.getvalue()

    def markdown(self) -> bytes:
        """For README files and issues: the best in bold, ties with a dagger."""
        lines = ["| " + " | ".join(_escaped(head) for head in self.columns) + " |"]
        lines.append("|" + "|".join(" ---: " if self.is_number(c) else " --- " for c in self.visible) + "|")
        for row in self.rows():
            cells = (f"**{_escaped(text)}**" if best else _escaped(text) + TIED * tied for text, best, tied in row)
            lines.append("| " + " | ".join(cells) + " |")
        below = f"{_escaped(self.caption)} {self.legend}".strip()
        return ("\n".join([*lines, "", below]) + "\n").encode()

    def latex(self) -> bytes:
        r"""For papers: needs `\usepackage{booktabs}`."""
        form = "".join("r" if self.is_number(c) else "l" for c in self.visible)
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{tex(self.caption)} {tex(self.legend)}}}".replace(" }", "}"),
        ]
        lines += [rf"\label{{tab:{self.name.replace('_', '-')}}}", rf"\begin{{tabular}}{{{form}}}", r"\toprule"]
        lines += [" & ".join(tex(head) for head in self.columns) + r" \\", r"\midrule"]
        for row in self.rows():
            cells = (rf"\textbf{{{tex(text)}}}" if best else tex(text + TIED * tied) for text, best, tied in row)
            lines.append(" & ".join(cells) + r" \\")
        return ("\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n").encode()

    @property
    def legend(self) -> str:
        """What its marks mean; empty where it has none."""
        best = "Bold: best." if self.best else ""
        return f"{best} {TIED} may be as good." if self.tied else best


FORMATS: Mapping[str, Callable[[MarkedTable], bytes]] = {
    "csv": MarkedTable.csv,
    "parquet": MarkedTable.parquet,
    "md": MarkedTable.markdown,
    "tex": MarkedTable.latex,
}
"""What a table is written as, by the file's ending."""


def tex(text: str) -> str:
    r"""A foreign text for LaTeX, where nothing of it is a command.

    >>> tex("50 % of $x_1$ \\input{a}")
    '50 \\% of \\$x\\_1\\$ \\textbackslash{}input\\{a\\}'
    """
    return "".join(_TEX.get(letter, letter) for letter in plain(text))


def _escaped(text: str) -> str:
    """A foreign text for Markdown, in one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def _without_nan(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col(pl.Float64, pl.Float32).fill_nan(None))
