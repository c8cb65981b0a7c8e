"""A run beside a paper as files: a page, JSON, tables and figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heatcheck.core.files import as_json, make_folder, sweep_temporaries, write_atomically
from heatcheck.report.compare import TITLES, HasComparison, answer, by_verdict, claim_words, groups
from heatcheck.report.compare_figures import UNTITLED, comparison_figures, models_map
from heatcheck.report.compare_tables import marked_table, marked_tables
from heatcheck.report.files import FIGURES, TABLES, write_all_tables, write_figures
from heatcheck.report.html import drawings, scripted_page
from heatcheck.report.wording import clean

PAGE, RECORD = "compare.html", "compare.json"


def write_comparison(found: HasComparison, path: Path) -> Path:
    """Write the page to `path`, atomically."""
    write_atomically(path, render_comparison(found).encode())
    sweep_temporaries(path.parent)
    return path


def render_comparison(found: HasComparison) -> str:
    """The page as text."""
    claims = [{**claim, **claim_words(claim)} for claim in by_verdict(found.claims)]
    figures = comparison_figures(found)
    drawn = drawings(figures)
    questions = [
        {
            "title": TITLES[name][0],
            "about": TITLES[name][1],
            "table": marked_table(found, name, table),
            "figures": [(figures[f].title, drawn[f]) for f in drawn if f.startswith(name)],
            "captioned": name in UNTITLED,
        }
        for name, table in found.questions.items()
        if table.height
    ]
    return scripted_page(
        "compare.html.j2",
        found=found,
        answer=answer(found.claims),
        claims=claims,
        groups=list(groups(found)),
        questions=questions,
        models=models_map(found),
        drawn=drawn,
    )


def save_comparison(found: HasComparison, record: Mapping[str, Any], folder: Path) -> Path:
    """Write the page, the record, every table in every format and every figure as SVG and PNG; gives the page."""
    make_folder(folder)
    write_atomically(folder / RECORD, as_json(clean(dict(record))))
    write_all_tables(marked_tables(found), folder / TABLES)
    write_figures(comparison_figures(found).values(), folder / FIGURES)
    return write_comparison(found, folder / PAGE)
