"""A run beside a paper as files: a page, JSON, tables and figures."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from heatcheck.core.files import as_json, make_folder, sweep_temporaries, write_atomically
from heatcheck.report.compare import TITLES, HasComparison, answer, by_verdict, claim_words, groups, shown
from heatcheck.report.compare_figures import UNTITLED, comparison_figures
from heatcheck.report.files import FIGURES, TABLES, write_all_tables, write_figures
from heatcheck.report.html import drawings, static_page
from heatcheck.report.tables import MarkedTable
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
        (
            *TITLES[name],
            shown(table),
            [(figures[f].title, drawn[f]) for f in drawn if f.startswith(name)],
            name in UNTITLED,
        )
        for name, table in found.questions.items()
        if table.height
    ]
    return static_page(
        "compare.html.j2",
        found=found,
        answer=answer(found.claims),
        claims=claims,
        groups=list(groups(found)),
        questions=questions,
    )


def save_comparison(found: HasComparison, record: Mapping[str, Any], folder: Path) -> Path:
    """Write the page, the record, every table in every format and every figure as SVG and PNG; gives the page."""
    make_folder(folder)
    write_atomically(folder / RECORD, as_json(clean(dict(record))))
    write_all_tables(marked_tables(found), folder / TABLES)
    write_figures(comparison_figures(found).values(), folder / FIGURES)
    return write_comparison(found, folder / PAGE)


def marked_tables(found: HasComparison) -> Iterator[MarkedTable]:
    """Every table with its caption and its best cells."""
    for name, frame in found.tables.items():
        caption = TITLES[name][0] if name in TITLES else name.replace("_", " ").capitalize()
        yield MarkedTable(name, f"{caption}.", frame, best=frozenset(found.bold(name)))
