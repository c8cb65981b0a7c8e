"""Tables as files: CSV, Parquet, Markdown and LaTeX, by the name's ending."""

from collections.abc import Collection
from pathlib import Path

import polars as pl

from heatcheck.core.files import written_atomically
from heatcheck.report.tables import Cell, as_latex, as_markdown

_FORMULA = r"^[=+\-@\t\r]"


def write_table_file(table: pl.DataFrame, path: Path, *, bold: Collection[Cell] = ()) -> Path:
    """Write a table, atomically; its folder is made. What is not a number is null.

    In CSV, texts that a spreadsheet would take for a formula begin with `'`.

    Args:
        table: of any columns.
        path: ends in .csv, .parquet, .md or .tex.
        bold: cells that stand out in Markdown and LaTeX, by row and column.

    Raises:
        ValueError: the ending is another.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = table.with_columns(pl.col(pl.Float64, pl.Float32).fill_nan(None))
    with written_atomically(path) as file:
        match path.suffix:
            case ".parquet":
                plain.write_parquet(file)
            case ".csv":
                text = pl.col(pl.String)
                neutral = pl.when(text.str.contains(_FORMULA)).then("'" + text).otherwise(text).name.keep()
                file.write(plain.with_columns(neutral).write_csv().encode())
            case ".md":
                file.write(as_markdown(plain, bold=bold).encode())
            case ".tex":
                file.write(as_latex(plain, bold=bold).encode())
            case other:
                raise ValueError(f"{path}: tables are written as .csv, .parquet, .md or .tex, not as {other!r}")
    return path
