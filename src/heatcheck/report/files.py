"""Tables and figures as files of a folder."""

from collections.abc import Iterable
from pathlib import Path

from heatcheck.core.files import make_folder, write_atomically
from heatcheck.report.drawing import VectorFigure
from heatcheck.report.tables import FORMATS, MarkedTable

TABLES, FIGURES = "tables", "figures"


def write_all_tables(
    tables: Iterable[MarkedTable], folder: Path, formats: Iterable[str] = tuple(FORMATS)
) -> list[Path]:
    """Write every table in each of some formats; gives the files."""
    make_folder(folder)
    written = []
    for table in tables:
        for ending in formats:
            written.append(folder / f"{table.name}.{ending}")
            write_atomically(written[-1], FORMATS[ending](table))
    return written


def write_figures(figures: Iterable[VectorFigure], folder: Path) -> list[Path]:
    """Write every figure as SVG and PNG; gives the files."""
    make_folder(folder)
    written = []
    for figure in figures:
        for ending, content in (("svg", figure.svg().encode()), ("png", figure.png())):
            written.append(folder / f"{figure.name}.{ending}")
            write_atomically(written[-1], content)
    return written
