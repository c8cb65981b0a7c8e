"""A ranking over cases as files: a page, JSON, tables and figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heatcheck.core.files import as_json, make_folder, write_atomically
from heatcheck.report.html import ranking_page
from heatcheck.report.ranking import RankingView
from heatcheck.report.tables import FORMATS
from heatcheck.report.wording import clean

PAGE, RECORD, TABLES, FIGURES = "rank.html", "rank.json", "tables", "figures"


def write_ranking_page(view: RankingView, path: Path) -> Path:
    """Write the page as one HTML file."""
    write_atomically(path, ranking_page(view).encode())
    return path


def save_ranking(view: RankingView, record: Mapping[str, Any], folder: Path) -> Path:
    """Write the page, the record, every table in every format and every figure as SVG and PNG; gives the page."""
    for part in (folder, folder / TABLES, folder / FIGURES):
        make_folder(part)
    write_atomically(folder / RECORD, as_json(clean(dict(record))))
    for table in view.tables:
        for ending, write in FORMATS.items():
            write_atomically(folder / TABLES / f"{table.name}.{ending}", write(table))
    for figure in view.figures.values():
        write_atomically(folder / FIGURES / f"{figure.name}.svg", figure.svg().encode())
        write_atomically(folder / FIGURES / f"{figure.name}.png", figure.png())
    return write_ranking_page(view, folder / PAGE)
