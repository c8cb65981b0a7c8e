"""Retrained networks as the page shows them: accuracy over levels, and what the masks alone give away."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from heatcheck.report.charts import Axis, Curve, accuracy_chart
from heatcheck.stats import accuracy_curves

MASKS, WHOLE = "masks", "unmodified"
_TITLES = {"roar": "ROAR: the top is removed", "kar": "KAR: the top is kept", MASKS: "Masks alone"}
_AXES = {"roar": "removed", "kar": "kept", MASKS: "removed"}


class HasStyle(Protocol):
    """A method as the page knows it."""

    @property
    def name(self) -> str:
        """Its full name."""


@dataclass(frozen=True)
class AccuracyRow:
    """A method's accuracies at each level, as text: each with its interval over seeds, and that over seeds and pictures."""

    method: Any
    cells: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ProtocolView:
    """The networks of one protocol.

    Args:
        id: `roar`, `kar` or `masks`.
        title: what was done to the pictures.
        axis: what the horizontal axis counts.
        x: percent of the picture.
        y: accuracy.
        curves: one per method.
        rows: the same as a table.
        chance: the height of the most frequent class's share, in per cent of the plot from above.
    """

    id: str
    title: str
    axis: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]
    rows: tuple[AccuracyRow, ...]
    chance: float


@dataclass(frozen=True)
class RetrainingView:
    """A study of retraining.

    Args:
        protocols: that were trained, the masks alone last.
        levels: as text.
        whole: the accuracy on whole pictures, as text.
        chance: the share of the most frequent class, as text.
        leaks: methods whose masks alone are told apart better than by chance, and the highest accuracy of each, as text.
        trainings: how many networks there are.
        facts: the study.
    """

    protocols: tuple[ProtocolView, ...]
    levels: tuple[str, ...]
    whole: str
    chance: str
    leaks: tuple[tuple[Any, str], ...]
    trainings: int
    facts: Mapping[str, Any]


def retraining_view(record: Mapping[str, Any], methods: Sequence[HasStyle]) -> RetrainingView:
    """Everything the page shows of a study of retraining."""
    found = accuracy_curves(record["cells"])
    whole = found.filter(pl.col("protocol") == WHOLE).row(0, named=True)
    views = {m.name: m for m in methods}
    own = [m.name for m in methods]
    reach = {(row["protocol"], row["method"], row["level"]): _ends(row) for row in record.get("population", ())}
    protocols = tuple(
        _protocol(
            found.filter(pl.col("protocol") == id),
            id,
            whole,
            record,
            [m for m in own if m in record["methods"]],
            views,
            reach,
        )
        for id in (*record["protocols"], MASKS)
    )
    return RetrainingView(
        protocols=protocols,
        levels=tuple(f"{level:g} %" for level in record["levels"]),
        whole=_text(whole),
        chance=f"{100 * record['chance']:.1f} %",
        leaks=tuple((views[m], text) for m, text in leaks(found, record["chance"]) if m in views),
        trainings=len(record["cells"]),
        facts=record,
    )


def leaks(found: pl.DataFrame, chance: float) -> list[tuple[str, str]]:
    """Methods whose masks alone tell the class better than chance at some level, by the lower end of the interval.

    Without an interval nothing is said.
    """
    masks = found.filter((pl.col("protocol") == MASKS) & (pl.col("low") > chance)).sort("accuracy", descending=True)
    best = masks.unique("method", keep="first", maintain_order=True)
    return [
        (row["method"], f"{100 * row['accuracy']:.0f} % at {row['level']:g} %") for row in best.iter_rows(named=True)
    ]


def _protocol(
    table: pl.DataFrame,
    id: str,
    whole: Mapping[str, Any],
    record: Mapping[str, Any],
    names: Sequence[str],
    views: Mapping[str, HasStyle],
    reach: Mapping[tuple[str, str, float], str],
) -> ProtocolView:
    ends = {"roar": [(0.0, whole)], "kar": [(100.0, whole)]}.get(id, [])
    rows = {name: list(table.filter(pl.col("method") == name).sort("level").iter_rows(named=True)) for name in names}
    points = {
        name: sorted([*ends, *((row["level"], row) for row in own)], key=lambda p: p[0]) for name, own in rows.items()
    }
    x, y, curves = accuracy_chart(points, record["chance"])
    return ProtocolView(
        id=id,
        title=_TITLES[id],
        axis=f"percent of the picture {_AXES[id]}",
        x=x,
        y=y,
        curves=curves,
        rows=tuple(
            AccuracyRow(views[name], tuple((_text(row), reach.get((id, name, row["level"]), "")) for row in own))
            for name, own in rows.items()
        ),
        chance=100 - y.at(record["chance"]),
    )


def _text(row: Mapping[str, Any]) -> str:
    """An accuracy in percent, with its interval."""
    half = "" if row["low"] is None else f" ± {50 * (row['high'] - row['low']):.1f}"
    return f"{100 * row['accuracy']:.1f}{half}"


def _ends(row: Mapping[str, Any]) -> str:
    """The ends of an interval in percent; empty where there is none."""
    return "" if row["low"] is None else f"{100 * row['low']:.0f} to {100 * row['high']:.0f}"
