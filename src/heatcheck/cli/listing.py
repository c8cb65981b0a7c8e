"""`list`: everything of a kind as a table, or one of them as a card."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from heatcheck.cli.cards import card
from heatcheck.cli.console import Json, console, emit, note, table
from heatcheck.cli.costs import costs_of, shown_cost
from heatcheck.cli.options import Plugins
from heatcheck.core import catalogue
from heatcheck.core.plugins import load_plugin, with_plugin_hint
from heatcheck.core.spec import SpecError, suggest


class Kind(StrEnum):
    """What can be listed."""

    METHODS = "methods"
    METRICS = "metrics"
    MODELS = "models"
    DATA = "data"
    FILLS = "fills"
    UNITS = "units"
    PROFILES = "profiles"
    RECIPES = "recipes"


COLUMNS = {
    Kind.METHODS: ("id", "family", "on", "passes", "summary"),
    Kind.METRICS: ("id", "family", "on", "better", "passes", "summary"),
    Kind.MODELS: ("form", "modality", "about"),
    Kind.DATA: ("form", "modality", "about"),
    Kind.FILLS: ("id", "on", "summary"),
    Kind.UNITS: ("form", "on", "summary"),
    Kind.PROFILES: ("id", "target", "note"),
    Kind.RECIPES: ("id", "variants", "about"),
}
OWN = (Kind.METHODS, Kind.METRICS, Kind.FILLS)
"""What users can declare themselves."""
_LEAST = 16  # characters of a summary that say something
LEGEND = {
    Kind.METHODS: "passes: forwards and backwards per sample on the default model, with default parameters",
    Kind.METRICS: "passes per sample on the default model: once for all methods, for each method; maps: explained again",
}


def show(
    what: Annotated[Kind | None, typer.Argument(help="What to list; without it, what can be listed.")] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One of them, shown in full.", show_default=False)
    ] = None,
    plugin: Plugins = None,
    json: Json = False,
) -> None:
    """List what there is: methods, metrics, models, data, fills, units, profiles or recipes; or show one of them in full.

    With --json: an array of objects, each with its id and all that it declares; with a name, that object alone.

    [bold]Examples[/bold]

    heatcheck list methods

    heatcheck list methods rise

    heatcheck list metrics --json

    heatcheck list methods --plugin mine.py
    """
    for path in plugin or ():
        load_plugin(path)
    if what is None:
        show_kinds(json)
        return
    rows = records(what)
    found = rows if name is None else find(what, name, rows, own=not plugin and what in OWN)
    if json:
        emit(found)
    elif isinstance(found, dict):
        card(what, found, plugin or ())
    else:
        show_table(what, found)


def show_kinds(json: bool) -> None:
    """How many there are of each kind."""
    counts = {str(kind): len(records(kind)) for kind in Kind}
    if json:
        emit(counts)
        return
    table(("kind", "there are"), ((kind, str(n)) for kind, n in counts.items()), right=("there are",))
    note("heatcheck list KIND shows them, heatcheck list KIND NAME one of them in full")


def records(what: Kind) -> list[dict[str, Any]]:
    """Everything of one kind, as it declares itself; methods and metrics with what they cost."""
    if what is Kind.METHODS:
        return [{**entry.record(), "passes": costs_of(entry)} for entry in catalogue.methods_by_family()]
    if what is Kind.METRICS:
        return [{**entry.record(), "passes": costs_of(entry)} for entry in catalogue.metrics_by_family()]
    if what is Kind.FILLS:
        return [entry.record() for entry in catalogue.entries("fill").values()]
    if what is Kind.UNITS:
        return [{"id": id, **facts} for id, facts in {**catalogue.units(), **catalogue.unit_roles()}.items()]
    if what is Kind.PROFILES:
        from heatcheck.profiles import names

        return [_profile_record(name) for name in names()]
    if what is Kind.RECIPES:
        from heatcheck.training.recipe import load_recipe, recipes

        return [load_recipe(id).record() for id in recipes()]
    if what is Kind.DATA:
        from heatcheck.data.catalogue import sources

        return [source.record() for source in sources().values()]
    from heatcheck.models.catalogue import models

    return [model.record() for model in models().values()]


def _profile_record(name: str) -> dict[str, Any]:
    """A profile, and what is different on a modality that it has settings of its own for."""
    from heatcheck.profiles import load_profile

    common = {field: value for field, value in vars(load_profile(name)).items() if field != "name"}
    special = {}
    for modality in common["on"]:
        own = vars(load_profile(name, modality))
        if changed := {field: own[field] for field in common if own[field] != common[field]}:
            special[modality] = changed
    return {"id": name, **common, **special}


def find(what: Kind, name: str, rows: Iterable[Mapping[str, Any]], *, own: bool = False) -> dict[str, Any]:
    """One of them by id, however it is written with parameters or a place: `rise(samples=500)`, `timm:resnet50`.

    Where it may be a user's own, an unknown one is answered with how that is made known.
    """
    known = {row["id"]: dict(row) for row in rows}
    id = name.strip()
    for mark in ("(", "@", ":"):
        id = id if id in known else id.partition(mark)[0]
    if id not in known:
        unknown = f"list {what}: none is called {name!r}{suggest(id, known)}"
        raise SpecError(with_plugin_hint(unknown) if own else unknown)
    return known[id]


def show_table(what: Kind, rows: list[dict[str, Any]]) -> None:
    """A line for each, in full where a program reads it; on a terminal cut to its width, under their families."""
    columns = COLUMNS[what]
    cells = [{column: _cell(column, row) for column in columns} for row in rows]
    right = ("passes",) if what is Kind.METHODS else ()
    if not sys.stdout.isatty():
        table(columns, ([row[column] for column in columns] for row in cells), right=right)
        return
    for row in cells:
        row["on"] = row.get("on", "").replace("image, text", "both")
    _fitted([column for column in columns if column != "family"], cells, right)
    if "passes" in columns:
        note(LEGEND[what])
    note(f"heatcheck list {what} NAME shows one of them in full")


def _fitted(columns: Sequence[str], rows: Sequence[Mapping[str, str]], right: Sequence[str]) -> None:
    """One line each: the last column is cut, and the family is a heading. Folded where that leaves too little."""
    from rich.table import Table
    from rich.text import Text

    screen = console()
    widths = [max(len(column), *(len(row[column]) for row in rows)) for column in columns[:-1]]
    room = screen.width - sum(widths) - 2 * len(widths)
    if room < _LEAST:
        table(columns, ([row[column] for column in columns] for row in rows), right=right)
        return
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, width in zip(columns, (*widths, room), strict=True):
        made.add_column(column, width=width, no_wrap=True, justify="right" if column in right else "left")
    family = ""
    for row in rows:
        if row.get("family", "") != family:
            family = row["family"]
            made.add_row(Text(family, style="bold"))
        made.add_row(*(Text(row[column]) for column in columns))
    screen.print(made)


def _cell(column: str, row: Mapping[str, Any]) -> str:
    value = row.get(column)
    if column == "passes":
        return shown_cost(row)
    if isinstance(value, list | tuple):
        return ", ".join("…" if v is None else str(v) for v in value)
    return "" if value is None else str(value)
