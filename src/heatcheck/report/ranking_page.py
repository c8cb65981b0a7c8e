"""A ranking over cases as files: a page, JSON, tables and figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heatcheck.core.files import as_json, make_folder, write_atomically
from heatcheck.report.files import FIGURES, TABLES, write_all_tables, write_figures
from heatcheck.report.html import ranking_page
from heatcheck.report.ranking import RankingView
from heatcheck.report.wording import clean

PAGE, RECORD = "rank.html", "rank.json"


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
