"""Geometry of the charts, in per cent of the plot, so that they scale to any width without a script."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from heatcheck.report.wording import count, decimals, number
from heatcheck.stats import mean_band

Array = NDArray[np.float64]
_MARGIN = 0.04
_LINE = 5.5  # height of a name, in per cent
_SWAP = 60  # names of points right of this are on the left, in per cent


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic scale.

    Args:
        low: the value at 0 %.
        high: the value at 100 %.
        log: whether decades are equally wide.
        ticks: (per cent, label) pairs.
        places: decimals of its numbers.
    """

    low: float
    high: float
    log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()
    places: int | None = 3

    def at(self, value: float) -> float:
        """Position of a value in per cent, clipped to the plot."""
        low, high, v = self.low, self.high, value
        if self.log:
            low, high, v = math.log10(low), math.log10(high), math.log10(max(value, self.low))
        return round(min(max(100 * (v - low) / (high - low), 0.0), 100.0), 2)


def linear(values: Sequence[float], ticks: int = 5) -> Axis:
    """An axis around the finite values."""
    finite = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-300):
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    digits = decimals(max(abs(low), abs(high)))
    pad = (high - low) * _MARGIN
    low, high = low - pad, high + pad
    raw = (high - low) / ticks
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(s * unit for s in (1, 2, 5, 10) if s * unit >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    needed = -math.floor(math.log10(step) + 1e-9)
    places = None if needed > 6 or step >= 1e5 else max(needed, 0)
    axis = Axis(low, high)
    marks = tuple((axis.at(k * step), number(k * step, places)) for k in range(first, last + 1))
    return Axis(low, high, False, marks, digits)


def logarithmic(values: Sequence[float]) -> Axis:
    """An axis of decades around the positive values."""
    positive = [v for v in values if math.isfinite(v) and v > 0] or [1.0, 10.0]
    low, high = min(positive) / 1.5, max(positive) * 1.5
    axis = Axis(low, high, True)
    span = math.log10(high / low)
    digits = (1,) if span > 2 else (1, 3) if span > 1 else (1, 2, 5)
    every = max(1, math.ceil(span / 6))
    marks = tuple(
        (axis.at(d * 10.0**e), count(d * 10.0**e) if e >= -3 else f"1e−{-e}")
        for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for d in digits
        if e % every == 0 and low <= d * 10.0**e <= high
    )
    return Axis(low, high, True, marks, None)


def scale(values: Sequence[float]) -> Axis:
    """Linear, unless positive values span more than two and a half decades."""
    finite = [v for v in values if math.isfinite(v)]
    if finite and min(finite) > 0 and max(finite) / min(finite) > 300:
        return logarithmic(finite)
    return linear(finite)


@dataclass(frozen=True)
class Curve:
    """One method's mean curve and its band.

    Args:
        method: its name.
        mean: one value per point of the grid.
        line: the mean as an SVG path.
        band: the interval as a closed SVG path; empty where there are fewer than two samples.
        n: how many samples it is the mean of.
    """

    method: str
    mean: tuple[float, ...]
    line: str
    band: str
    n: int


@dataclass(frozen=True)
class CurveChart:
    """Mean curves of all methods over the share removed.

    Args:
        grid: shares, from 0 to 1.
        x: horizontal axis.
        y: vertical axis.
        curves: one per method, in the order asked for.
    """

    grid: tuple[float, ...]
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class _Stack:
    """The curves of one method that can be drawn, those of equal length together.

    Args:
        blocks: shares and curves, both [curves, points], and the places of the curves among all.
    """

    blocks: tuple[tuple[Array, Array, NDArray[np.int64]], ...]

    @classmethod
    def of(cls, part: pl.DataFrame) -> "_Stack":
        """Curves with as many shares as values, all finite, in the order of their rows."""
        lengths = part.select(pl.col("share", "curve").list.len()).with_columns(row=pl.int_range(pl.len()))
        usable = lengths.filter((pl.col("share") == pl.col("curve")) & (pl.col("curve") > 1))
        blocks = []
        for (length,), rows in usable.group_by("curve", maintain_order=True):
            some = part[rows["row"]]
            share, curve = (
                some[c].explode().cast(pl.Float64).to_numpy().reshape(-1, length) for c in ("share", "curve")
            )
            finite = np.isfinite(share).all(axis=1) & np.isfinite(curve).all(axis=1)
            if finite.any():
                blocks.append((share[finite], curve[finite], rows["row"].to_numpy()[finite]))
        return cls(tuple(blocks))

    @property
    def n(self) -> int:
        return sum(len(rows) for _, _, rows in self.blocks)

    @property
    def first(self) -> Array:
        """The shares of the first curve."""
        share, _, _ = min(self.blocks, key=lambda block: int(block[2][0]))
        return np.asarray(share[0])

    def on(self, grid: Array) -> Array:
        """All curves on one grid, [curves, points], interpolated linearly where they have other shares."""
        places = np.sort(np.concatenate([rows for _, _, rows in self.blocks]))
        values = np.empty((self.n, len(grid)))
        rises = bool((np.diff(grid) > 0).all())
        for share, curve, rows in self.blocks:
            same = rises and share.shape[1] == len(grid) and np.array_equal(share, np.broadcast_to(grid, share.shape))
            drawn = curve if same else [np.interp(grid, s, c) for s, c in zip(share, curve, strict=True)]
            values[np.searchsorted(places, rows)] = drawn
        return values


def _by_method(curves: pl.DataFrame) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    names = pl.col("method", "sample").cast(pl.String)
    return iter(curves.with_columns(names).sort("method", "sample").group_by("method", maintain_order=True))


def curve_chart(
    curves: pl.DataFrame, methods: Sequence[str], *, seed: int = 0, resamples: int = 1000, level: float = 0.95
) -> CurveChart | None:
    """Mean curves with percentile bootstrap bands over samples; None where there is nothing to draw.

    Curves with other shares (texts of unequal length) are interpolated linearly onto one grid.
    """
    stacks = {str(method): _Stack.of(part) for (method,), part in _by_method(curves)}
    shares = [share for stack in stacks.values() for share, _, _ in stack.blocks]
    if not shares:
        return None
    grid = next(stack for stack in stacks.values() if stack.n).first
    if any(share.shape[1] != len(grid) or not np.allclose(share, grid) for share in shares):
        grid = np.linspace(0.0, 1.0, min(41, max(share.shape[1] for share in shares)))
    found: dict[str, tuple[Array, Array | None, int]] = {}
    for method in methods:
        if method not in stacks or not stacks[method].n:
            continue
        values = stacks[method].on(grid)
        band = mean_band(values, seed=seed, resamples=resamples, level=level)
        found[method] = values.mean(axis=0), band, len(values)
    if not found:
        return None
    drawn = [v for mean, band, _ in found.values() for v in (mean, *(() if band is None else band))]
    y = linear([float(v) for v in np.concatenate(drawn)])
    edge = Axis(float(grid[0]), float(grid[-1]))
    x = Axis(edge.low, edge.high, False, tuple((edge.at(t), f"{t:.0%}") for t in (0, 0.25, 0.5, 0.75, 1)), 2)
    return CurveChart(
        grid=tuple(grid.tolist()),
        x=x,
        y=y,
        curves=tuple(
            Curve(
                method=method,
                mean=tuple(mean.tolist()),
                line=_path(grid, mean, x, y),
                band="" if band is None else _closed(grid, band, x, y),
                n=n,
            )
            for method, (mean, band, n) in found.items()
        ),
    )


def accuracy_chart(
    points: Mapping[str, Sequence[tuple[float, Mapping[str, Any]]]], chance: float
) -> tuple[Axis, Axis, tuple[Curve, ...]]:
    """Accuracies over percents of the picture, with their intervals where there are any.

    Args:
        points: per method, percents in rising order, each with accuracy, low, high and seeds.
        chance: an accuracy that the axis must reach, too.

    Returns:
        the axes, and a curve per method.
    """
    each = [row for own in points.values() for _, row in own]
    drawn = [float(row[k]) for row in each for k in ("accuracy", "low", "high") if row[k] is not None]
    y, edge = linear([*drawn, chance]), Axis(0.0, 100.0)
    y = Axis(y.low, y.high, False, tuple((at, f"{float(text):.0%}") for at, text in y.ticks), y.places)
    x = Axis(0.0, 100.0, False, tuple((edge.at(t), f"{t} %") for t in (0, 25, 50, 75, 100)), 0)
    curves = []
    for method, own in points.items():
        grid = np.array([at for at, _ in own])
        mean, low, high = (
            np.array([np.nan if row[k] is None else row[k] for _, row in own]) for k in ("accuracy", "low", "high")
        )
        band = np.stack([low, high])
        curves.append(
            Curve(
                method=method,
                mean=tuple(mean.tolist()),
                line=_path(grid, mean, x, y),
                band=_closed(grid, band, x, y) if np.isfinite(band).all() else "",
                n=min(row["seeds"] for _, row in own),
            )
        )
    return x, y, tuple(curves)


def _points(grid: Array, values: Array, x: Axis, y: Axis) -> list[str]:
    return [f"{x.at(float(g)):g} {100 - y.at(float(v)):.6g}" for g, v in zip(grid, values, strict=True)]


def _path(grid: Array, values: Array, x: Axis, y: Axis) -> str:
    return "M" + "L".join(_points(grid, values, x, y))


def _closed(grid: Array, band: Array, x: Axis, y: Axis) -> str:
    there, back = _points(grid, band[1], x, y), _points(grid, band[0], x, y)
    return "M" + "L".join(there + back[::-1]) + "Z"


def spark(share: Sequence[float], curve: Sequence[float], low: float, high: float) -> str:
    """A curve as an SVG path in a square of 100 × 100, of at most 41 points.

    >>> spark((0, 0.5, 1), (1, 0.5, 0), 0, 1)
    'M0 0L50 50L100 100'
    """
    picked = sorted({round(i * (len(curve) - 1) / 40) for i in range(41)}) if len(curve) > 41 else range(len(curve))
    x, y = Axis(min(share), max(share)), Axis(low, high)
    return "M" + "L".join(f"{x.at(share[i]):.3g} {100 - y.at(curve[i]):.3g}" for i in picked)


@dataclass(frozen=True)
class Point:
    """One method in the plane of cost and faithfulness.

    Args:
        method: its name.
        cost: per sample.
        mean: its score.
        left: position in per cent.
        top: position in per cent, from above.
        ranked: whether it may lie on the front.
        front: whether it is on the Pareto front: no cheaper ranked method is as good.
        named: whether there is room for its name.
    """

    method: str
    cost: float
    mean: float
    left: float
    top: float
    ranked: bool
    front: bool
    named: bool


@dataclass(frozen=True)
class CostChart:
    """Cost against faithfulness.

    Args:
        cost: what the horizontal axis counts.
        x: cost, logarithmic.
        y: mean score, better upwards.
        points: all methods with a score and a cost.
        steps: the Pareto front as (x1, y1, x2, y2) lines.
        swap: points right of this, in per cent, have their name on the left.
    """

    cost: str
    x: Axis
    y: Axis
    points: tuple[Point, ...]
    steps: tuple[tuple[float, float, float, float], ...]
    swap: float = _SWAP


def cost_chart(board: Sequence[Mapping[str, object]], higher: bool) -> CostChart | None:
    """Mean score over passes per sample (seconds where no passes were counted); None without costs."""
    passes = [(r, float(r["forwards"] or 0) + float(r["backwards"] or 0)) for r in board]  # type: ignore[arg-type]
    seconds = [(r, float(r["seconds"] or 0)) for r in board]  # type: ignore[arg-type]
    known, cost = (passes, "passes") if any(c > 0 for _, c in passes) else (seconds, "seconds")
    usable = [(r, c) for r, c in known if r["mean"] is not None and c > 0]
    if not usable:
        return None
    means = [float(r["mean"]) for r, _ in usable]  # type: ignore[arg-type]
    x, y = logarithmic([c for _, c in usable]), scale(means)
    best = -math.inf
    front: list[str] = []
    for (r, _), mean in sorted(zip(usable, means, strict=True), key=lambda p: (p[0][1], -p[1] if higher else p[1])):
        gain = mean if higher else -mean
        if r["ranked"] and gain > best:
            best = gain
            front.append(str(r["method"]))
    places = [
        (x.at(c), round(100 - y.at(m), 2) if higher else y.at(m)) for (_, c), m in zip(usable, means, strict=True)
    ]
    names = [str(r["method"]) for r, _ in usable]
    named = _room(places, names, [name in front for name in names])
    points = tuple(
        Point(str(r["method"]), c, m, *place, bool(r["ranked"]), str(r["method"]) in front, i in named)
        for i, ((r, c), m, place) in enumerate(zip(usable, means, places, strict=True))
    )
    edge = {p.method: p for p in points}
    steps: list[tuple[float, float, float, float]] = []
    for a, b in pairwise(front):
        p, q = edge[a], edge[b]
        steps += [(p.left, p.top, q.left, p.top), (q.left, p.top, q.left, q.top)]
    if front:
        last = edge[front[-1]]
        steps.append((last.left, last.top, 100.0, last.top))
    return CostChart(cost, x, y, points, tuple(steps))


def _room(places: Sequence[tuple[float, float]], names: Sequence[str], first: Sequence[bool]) -> set[int]:
    """Points whose names overlap no other name and no other point; names on the front have priority and may overlap points."""
    boxes = []
    for (left, _), name in zip(places, names, strict=True):
        width = 3 + 1.5 * len(name.partition("(")[0])
        boxes.append((left - width, left) if left > _SWAP else (left, left + width))
    named: set[int] = set()
    for i in sorted(range(len(places)), key=lambda i: (not first[i], places[i])):
        near = [j for j, place in enumerate(places) if j != i and abs(place[1] - places[i][1]) < _LINE]
        (low, high) = boxes[i]
        clash = any(j in named and low < boxes[j][1] and boxes[j][0] < high for j in near)
        covers = not first[i] and any(low - 1 <= places[j][0] <= high + 1 for j in near)
        if not clash and not covers and low >= 0 and high <= 104:
            named.add(i)
    return named
