"""Rankings along a training as the page and the terminal show them: a verdict, a chart of ranks, correlations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from heatcheck.report.multiverse import Phrase
from heatcheck.report.wording import number
from heatcheck.report.wording import rank as as_rank
from heatcheck.stats import AlongTraining, Checkpoint, Coefficient

_ROW = 30  # height of a rank, in pixels
_SETTLED = 0.8  # τ with the last ranking from which on a ranking counts as settled
_WIDE = 0.3  # an interval of W that is wider leaves open what the ranking does


@dataclass(frozen=True)
class RankDot:
    """A method at a checkpoint: its place in per cent of the plot, and what a reader is told about it."""

    left: float
    top: float
    told: str


@dataclass(frozen=True)
class RankLine:
    """A method along the training.

    Args:
        method: as the page knows it.
        line: an SVG path through its ranks.
        dots: its ranks.
        last: its last rank as text.
        label: where its name stands, in per cent from above; no two are the same.
    """

    method: Any
    line: str
    dots: tuple[RankDot, ...]
    last: str
    label: float


@dataclass(frozen=True)
class CheckpointRow:
    """A checkpoint: when it was kept, and the correlations of its ranking, each with its interval, as text."""

    name: str
    epoch: str
    accuracy: str
    last: tuple[tuple[str, str], ...]
    before: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class AlongView:
    """One metric along one training.

    Args:
        metric: its name.
        verdict: what it shows, in pieces.
        w: Kendall's W as text; empty where it does not exist.
        interval: of W, as text.
        at: positions of the interval's low end, W and its high end in per cent.
        height: of the chart, in pixels.
        ticks: (per cent, epoch, accuracy) of the checkpoints.
        places: (per cent from above, rank) of the ranks.
        lines: the methods, best at the last checkpoint first.
        rows: the checkpoints.
        n: samples.
        left_out: methods that are not ranked at every checkpoint, with a reason.
    """

    metric: str
    verdict: tuple[Phrase, ...]
    w: str
    interval: str
    at: tuple[float, float, float] | None
    height: int
    ticks: tuple[tuple[float, str, str], ...]
    places: tuple[tuple[float, str], ...]
    lines: tuple[RankLine, ...]
    rows: tuple[CheckpointRow, ...]
    n: int
    left_out: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class TrajectoryView:
    """One training on one data set, under all metrics."""

    name: str
    data: str
    metrics: tuple[AlongView, ...]


def trajectory_views(
    cases: Sequence[AlongTraining], methods: Mapping[tuple[str, str], Sequence[Any]]
) -> tuple[TrajectoryView, ...]:
    """What the page shows of all trainings.

    Args:
        cases: what `heatcheck.stats.along_training` returned.
        methods: the page's methods, by model and data set.
    """
    found: dict[tuple[str, str], list[AlongView]] = {}
    for case in cases:
        known = {m.name: m for m in methods[case.checkpoints[-1].model, case.data]}
        found.setdefault((case.training, case.data), []).append(along_view(case, known))
    return tuple(TrajectoryView(name, data, tuple(views)) for (name, data), views in found.items())


def along_view(case: AlongTraining, methods: Mapping[str, Any]) -> AlongView:
    """One metric along one training."""
    count = len(case.methods)
    left = _places(case.checkpoints)
    w = case.w
    return AlongView(
        metric=case.metric,
        verdict=tuple(verdict(case)),
        w="" if w.value is None else number(w.value, 2),
        interval=_interval(w),
        at=None if w.value is None else tuple(round(100 * _or(v, w.value), 2) for v in (w.low, w.value, w.high)),  # type: ignore[arg-type]
        height=_ROW * count,
        ticks=tuple((at, epoch(c), accuracy(c)) for at, c in zip(left, case.checkpoints, strict=True)),
        places=tuple((_top(r, count), str(r)) for r in range(1, count + 1)),
        lines=tuple(_line(case, k, methods[name], left) for k, name in enumerate(case.methods)),
        rows=tuple(_row(case, i) for i in range(len(case.checkpoints))),
        n=case.n,
        left_out=case.left_out,
    )


def _places(checkpoints: Sequence[Checkpoint]) -> list[float]:
    """Where checkpoints stand, in per cent, as far apart as their epochs."""
    first, last = checkpoints[0].epoch, checkpoints[-1].epoch
    if last <= first:
        return [round(100 * i / (len(checkpoints) - 1), 2) for i in range(len(checkpoints))]
    return [round(100 * (c.epoch - first) / (last - first), 2) for c in checkpoints]


def _top(rank: float, methods: int) -> float:
    return round(100 * (rank - 0.5) / methods, 2)


def _line(case: AlongTraining, k: int, method: Any, left: Sequence[float]) -> RankLine:
    count = len(case.methods)
    ranks = [float(r) for r in case.ranks[:, k]]
    points = [(x, _top(r, count)) for x, r in zip(left, ranks, strict=True)]
    path = f"M{points[0][0]:g} {points[0][1]:g}"
    for (x1, y1), (x2, y2) in pairwise(points):
        middle = round((x1 + x2) / 2, 2)
        path += f"C{middle:g} {y1:g} {middle:g} {y2:g} {x2:g} {y2:g}"
    dots = tuple(
        RankDot(x, y, f"rank {as_rank(r)}, mean {number(float(mean))}, epoch {epoch(c)}")
        for (x, y), r, mean, c in zip(points, ranks, case.means[:, k], case.checkpoints, strict=True)
    )
    return RankLine(method, path, dots, as_rank(ranks[-1]), _top(k + 1, count))


def _row(case: AlongTraining, i: int) -> CheckpointRow:
    c = case.checkpoints[i]
    return CheckpointRow(
        name=c.name,
        epoch=epoch(c),
        accuracy=accuracy(c) or "–",
        last=tuple(map(_shown, (case.tau_last[i], case.rho_last[i]))),
        before=tuple(map(_shown, (case.tau_before[i], case.rho_before[i]))),
    )


def _shown(c: Coefficient) -> tuple[str, str]:
    return number(c.value, 2), _interval(c)


def _interval(c: Coefficient) -> str:
    return "" if c.low is None else f"{number(c.low, 2)} to {number(c.high, 2)}"


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def epoch(checkpoint: Checkpoint) -> str:
    """An epoch in a few characters."""
    return f"{checkpoint.epoch:.3g}"


def accuracy(checkpoint: Checkpoint) -> str:
    """A checkpoint's accuracy in per cent; empty where it is not known."""
    return "" if checkpoint.accuracy is None else f"{100 * checkpoint.accuracy:.3g} %"


def verdict(case: AlongTraining) -> Iterator[Phrase]:
    """What the rankings along a training show, in plain words."""
    many, methods = len(case.checkpoints), len(case.methods)
    if case.w.value is None:
        yield Phrase("Agreement cannot be measured: all methods tie at every checkpoint.")
        return
    interval = f" ({_interval(case.w)})" if case.w.low is not None else ""
    yield Phrase(
        f"Over {many} checkpoints, {_strength(case)}: Kendall's W of {methods} methods is "
        f"{number(case.w.value, 2)}{interval}. "
    )
    settled = _settled(case)
    if settled == 0:
        yield Phrase(f"All rankings resemble the last one (τ of at least {_SETTLED:g}). ")
    elif settled < many - 1:
        yield Phrase(
            f"From epoch {epoch(case.checkpoints[settled])} on, they resemble the last one (τ of at least {_SETTLED:g}). "
        )
    else:
        yield Phrase(f"Even the last but one differs from the last (τ below {_SETTLED:g}). ")
    first = [int((case.ranks[:, k] == case.ranks.min(axis=1)).sum()) for k in range(methods)]
    best = max(range(methods), key=lambda k: first[k])
    yield Phrase(case.methods[best], name=True)
    yield Phrase(f" comes first at {'all' if first[best] == many else f'{first[best]} of the {many}'} checkpoints.")


def _settled(case: AlongTraining) -> int:
    """The first checkpoint from which on all rankings resemble the last."""
    found = len(case.checkpoints) - 1
    while found and _or(case.tau_last[found - 1].value, 0.0) >= _SETTLED:
        found -= 1
    return found


def _strength(case: AlongTraining) -> str:
    """The strongest claim that holds for the whole interval of W."""
    low, high = case.w.low, case.w.high
    if low is None or high is None or high - low > _WIDE:
        few = "1 sample is" if case.n == 1 else f"{case.n} samples are"
        return f"{few} too few to say whether the ranking is stable"
    if low >= 0.9:
        return "the ranking hardly changes"
    if low >= 0.7:
        return "the ranking stays mostly the same"
    return "there is no stable ranking" if high < 0.5 else "the ranking changes in part"
