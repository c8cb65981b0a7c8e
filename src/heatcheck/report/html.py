"""The report: one HTML file that needs nothing else."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from heatcheck.core.files import sweep_temporaries, write_atomically
from heatcheck.core.papers import cited
from heatcheck.report import wording
from heatcheck.report.drawing import VectorFigure
from heatcheck.report.heat_map import heat_map, heat_map_figure
from heatcheck.report.page import capped, page_view
from heatcheck.report.source import RunSource
from heatcheck.report.text_sheet import TextReading

_FILES = Path(__file__).parent / "templates"


def write_report(result: RunSource, path: str | Path, *, title: str | None = None) -> Path:
    """Write a run's report to `path`, atomically.

    Args:
        result: the run.
        path: where to; its folder is made.
        title: a headline other than the models on the data.
    """
    target = Path(path)
    page = render(result, title=title)
    write_atomically(target, page.encode())
    sweep_temporaries(target.parent)
    return target


def render(result: RunSource, *, title: str | None = None) -> str:
    """The page as text. The same run gives the same bytes."""
    view = page_view(result, title)
    css, js = _own_file("style.css"), _own_file("script.js")
    page = _environment().get_template("report.html.j2")
    return page.render(
        view=view,
        facts=view.facts,
        data=wording.clean(view.data),
        css=css,
        js=js,
        drawn=drawings({"models": heat_map_figure(view.heat_map)} if view.heat_map else {}),
        csp=_policy(css, js),
    )


def text_sheet_page(rows: Sequence[Sequence[TextReading]]) -> str:
    """Explained texts as a page of their own: per text, its readings side by side. It needs no script."""
    return static_page("text_sheet.html.j2", rows=rows)


def static_page(template: str, **values: Any) -> str:
    """A page in the report's style that needs no script."""
    css = _own_file("style.css")
    return _environment().get_template(template).render(css=css, csp=_policy(css), **values)


def scripted_page(template: str, **values: Any) -> str:
    """A page in the report's style whose tables sort and whose themes change."""
    css, js = _own_file("style.css"), _own_file("script.js")
    page = _environment().get_template(template)
    return page.render(data={"cases": []}, css=css, js=js, csp=_policy(css, js), **values)


def ranking_page(view: Any) -> str:
    """The page of a ranking over cases."""
    return scripted_page("ranking.html.j2", view=view, figures=drawings(view.figures))


def drawings(figures: Mapping[str, VectorFigure]) -> dict[str, Markup]:
    """Figures as parts of a page; they escape their words themselves."""
    return {name: Markup(drawn.svg()) for name, drawn in figures.items()}  # noqa: S704


def _own_file(name: str) -> Markup:
    """One of our own files, which are trusted; everything else is escaped."""
    return Markup((_FILES / name).read_text(encoding="utf-8"))  # noqa: S704


def _policy(css: str, js: str | None = None) -> str:
    """Nothing but our own style, our own script and embedded pictures."""
    policy = {
        "default-src": "'none'",
        "script-src": "'none'" if js is None else _digest(js),
        "style-src": _digest(css),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{what} {where}" for what, where in policy.items())


def models_figure(result: RunSource) -> str | None:
    """M4's figure of a run as an SVG file: models against methods, per metric and averaged; None for a single model."""
    found = heat_map(result.leaderboard().full, result.facts)
    return heat_map_figure(found).svg() if found else None


@cache
def _environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(_FILES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "number": wording.number,
        "count": wording.count,
        "brief": wording.brief,
        "cited": cited,
        "day": wording.day,
        "capped": capped,
        "pairs": _pairs,
    }
    return env


def _plain(value: Any) -> Any:
    return wording.plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _pairs(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """A JSON value as (dotted path, text) lines."""
    if isinstance(value, dict) and value:
        return [line for k, v in value.items() for line in _pairs(v, f"{prefix}.{k}" if prefix else str(k))]
    if isinstance(value, list | tuple):
        flat = all(not isinstance(v, dict | list | tuple) for v in value)
        if flat:
            return [(prefix, ", ".join(map(str, value)) or "–")]
        return [line for i, v in enumerate(value) for line in _pairs(v, f"{prefix}[{i}]")]
    if isinstance(value, float):
        return [(prefix, f"{value:.4g}")]
    return [(prefix, "–" if value is None or value == {} else str(value))]
