"""`list`."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from heatcheck.cli.console import Json, emit, table
from heatcheck.cli.options import Plugins
from heatcheck.core import catalogue
from heatcheck.core.plugins import load_plugin


class Kind(StrEnum):
    """What can be listed."""

    METHODS = "methods"
    METRICS = "metrics"
    MODELS = "models"
    DATA = "data"
    FILLS = "fills"
    UNITS = "units"
    PROFILES = "profiles"


COLUMNS = {
    Kind.METHODS: ("id", "family", "on", "uses", "summary"),
    Kind.METRICS: ("id", "family", "on", "better", "needs", "summary"),
    Kind.MODELS: ("form", "modality", "about"),
    Kind.DATA: ("form", "modality", "about"),
    Kind.FILLS: ("id", "on", "summary"),
    Kind.UNITS: ("form", "on", "summary"),
    Kind.PROFILES: ("id", "target", "note"),
}


def show(
    what: Annotated[Kind, typer.Argument(help="What to list.")],
    plugin: Plugins = None,
    json: Json = False,
) -> None:
    """List what there is: methods, metrics, models, data, fills, units or profiles.

    With --json: an array of objects, each with its id and all that it declares.

    [bold]Examples[/bold]

    heatcheck list methods

    heatcheck list metrics --json

    heatcheck list methods --plugin mine.py
    """
    for path in plugin or ():
        load_plugin(path)
    rows = records(what)
    if json:
        emit(rows)
    else:
        table(COLUMNS[what], ([_cell(row.get(c)) for c in COLUMNS[what]] for row in rows))


def records(what: Kind) -> list[dict[str, Any]]:
    """Everything of one kind, as it declares itself."""
    if what is Kind.METHODS:
        return [entry.record() for entry in catalogue.methods_by_family()]
    if what is Kind.METRICS:
        return [entry.record() for entry in catalogue.metrics_by_family()]
    if what is Kind.FILLS:
        return [entry.record() for entry in catalogue.entries("fill").values()]
    if what is Kind.UNITS:
        return [{"id": id, **facts} for id, facts in {**catalogue.units(), **catalogue.unit_roles()}.items()]
    if what is Kind.PROFILES:
        from heatcheck.profiles import load_profile, names

        profiles = [load_profile(name) for name in names()]
        return [{"id": p.name, **{k: v for k, v in vars(p).items() if k != "name"}} for p in profiles]
    if what is Kind.DATA:
        from heatcheck.data.catalogue import sources

        return [source.record() for source in sources().values()]
    from heatcheck.models.catalogue import models

    return [model.record() for model in models().values()]


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, list | tuple):
        return ", ".join("…" if v is None else str(v) for v in value)
    return "" if value is None else str(value)
