"""Tables of any content as Markdown and as LaTeX."""

import re
from collections.abc import Collection, Iterator
from typing import Any

import polars as pl

from heatcheck.report.wording import number_of_size, plain

_SPECIAL = re.compile(r"[\\&%$#_{}~^<>|\"]")
_WRITTEN = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
}

Cell = tuple[int, str]


def as_markdown(table: pl.DataFrame, *, bold: Collection[Cell] = ()) -> str:
    r"""A table in Markdown.

    Args:
        table: of any columns.
        bold: cells that stand out, by row and column.

    >>> print(as_markdown(pl.DataFrame({"method": ["a|b"], "score": [0.5]}), bold={(0, "score")}))
    | method | score |
    | --- | ---: |
    | a\|b | **0.500** |
    <BLANKLINE>
    """
    columns = [(name, _is_number(dtype)) for name, dtype in table.schema.items()]
    lines = [[_in_markdown(name) for name, _ in columns], ["---:" if right else "---" for _, right in columns]]
    for i, row in enumerate(table.iter_rows(named=True)):
        cells = [_in_markdown(_text(row[name])) for name, _ in columns]
        lines.append([f"**{c}**" if (i, n) in bold and c else c for c, (n, _) in zip(cells, columns, strict=True)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_latex(table: pl.DataFrame, *, bold: Collection[Cell] = (), caption: str = "") -> str:
    r"""A table in LaTeX, for the package booktabs.

    Args:
        table: of any columns.
        bold: cells that stand out, by row and column.
        caption: above it; no floating table without one.

    >>> print(as_latex(pl.DataFrame({"method": ["a_b"], "score": [0.5]})))
    \begin{tabular}{lr}
    \toprule
    method & score \\
    \midrule
    a\_b & 0.500 \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """
    inner = "\n".join(_latex_lines(table, bold)) + "\n"
    if not caption:
        return inner
    return f"\\begin{{table}}\n\\caption{{{in_latex(caption)}}}\n{inner}\\end{{table}}\n"


def _latex_lines(table: pl.DataFrame, bold: Collection[Cell]) -> Iterator[str]:
    names = table.columns
    sides = "".join("r" if _is_number(dtype) else "l" for dtype in table.dtypes)
    yield f"\\begin{{tabular}}{{{sides}}}"
    yield "\\toprule"
    yield " & ".join(map(in_latex, names)) + r" \\"
    yield "\\midrule"
    for i, row in enumerate(table.iter_rows(named=True)):
        cells = [in_latex(_text(row[name])) for name in names]
        shown = [f"\\textbf{{{c}}}" if (i, n) in bold and c else c for c, n in zip(cells, names, strict=True)]
        yield " & ".join(shown) + r" \\"
    yield "\\bottomrule"
    yield "\\end{tabular}"


def in_latex(text: str) -> str:
    r"""A string with LaTeX's own characters escaped.

    >>> in_latex("50 % of a_b")
    '50 \\% of a\\_b'
    """
    return _SPECIAL.sub(lambda m: _WRITTEN.get(m[0], f"\\{m[0]}"), plain(text)).replace("−", "$-$")


def _in_markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<>\[\]])", r"\\\1", plain(text)).replace("\n", " ")


def _is_number(dtype: pl.DataType) -> bool:
    return dtype.is_numeric()


def _text(value: Any) -> str:
    """A cell as text: numbers with three figures, nothing for nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "" if value != value else f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else _float(value)
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _float(value: float) -> str:
    return f"{value:.3f}".replace("-", "−") if 0.001 <= abs(value) < 100 else number_of_size(value)
