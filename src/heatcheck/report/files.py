"""A ranking over cases, or a comparison with a paper, as files: a page, JSON, tables and figures."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from heatcheck.core.files import as_json, make_folder, write_atomically
from heatcheck.report.drawing import VectorFigure
from heatcheck.report.html import ranking_page
from heatcheck.report.ranking import RankingView
from heatcheck.report.tables import FORMATS, MarkedTable
from heatcheck.report.wording import clean

PAGE, RECORD, TABLES, FIGURES = "rank.html", "rank.json", "tables", "figures"


def write_ranking_page(view: RankingView, path: Path) -> Path:
    """Write the page as one HTML file."""
    write_atomically(path, ranking_page(view).encode())
    return path


def save_ranking(view: RankingView, record: Mapping[str, Any], folder: Path) -> Path:
    """Write the page, the record, every table in every format and every figure as SVG and PNG; gives the page."""
    make_folder(folder)
    write_atomically(folder / RECORD, as_json(clean(dict(record))))
    write_all_tables(view.tables, folder / TABLES)
    write_figures(view.figures.values(), folder / FIGURES)
    return write_ranking_page(view, folder / PAGE)


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
