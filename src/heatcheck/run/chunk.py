"""What has been computed and is not on disk yet; it is saved after some seconds, and when the chunk ends."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor

from heatcheck.core.types import Attribution, Scores
from heatcheck.probe.calls import Spent
from heatcheck.probe.probe import Probe
from heatcheck.run.isolation import join, join_maps
from heatcheck.run.pace import SAVE, now
from heatcheck.run.packing import MapColumn, SampleGroup, ScoreColumn

T = TypeVar("T")
Cost = Mapping[str, float]
Rows = tuple[int, ...]


@dataclass
class Finished:
    """Finished cells of samples of one shape, one by one; saved as columns over samples.

    Args:
        model: the model's identity.
        seed: of every random stream.
        records: a record per sample.
        logits: the clean outputs, a row per sample.
        probe: who was asked; its answers are saved too.
        displays: what the report shows of these samples.
        keeps_maps: whether maps are stored.
        saved_answers: questions whose answers are on disk.
        saved_records: whether the samples' records are on disk.
    """

    model: str
    seed: int
    records: list[dict[str, Any]]
    logits: Tensor
    probe: Probe
    displays: list[dict[str, Any]]
    keeps_maps: bool
    saved_answers: set[bytes]
    saved_records: bool = False
    _maps: dict[str, dict[int, tuple[Attribution, Cost]]] = field(default_factory=dict)
    _scores: dict[tuple[str, str], dict[int, Scores]] = field(default_factory=dict)

    def add_map(self, method: str, row: int, found: Attribution, cost: Cost) -> None:
        """A sample's map, and what it cost."""
        self._maps.setdefault(method, {})[row] = found, cost

    def add_score(self, method: str, metric: str, row: int, found: Scores) -> None:
        """A map's score."""
        self._scores.setdefault((method, metric), {})[row] = found

    def take(self) -> list[SampleGroup]:
        """Everything that is new since the last time; samples that have the same columns are a group."""
        groups: dict[Rows, SampleGroup] = {}

        def group(rows: Rows) -> SampleGroup:
            if rows not in groups:
                records = [self.records[i] for i in rows]
                groups[rows] = SampleGroup(self.model, self.seed, records, logits=self.logits[list(rows)])
                groups[rows].numerics = {**self.probe.numerics.record(), "halved": self.probe.halved}
            return groups[rows]

        if not self.saved_records:
            self.saved_records = True
            group(tuple(range(len(self.records)))).displays = self.displays
        for method, cells in self._maps.items():
            for rows in alike(cells, lambda cell: (cell[0].values.shape[1:], bool(cell[1]))):
                own = group(rows)
                own.costs[method] = mean_cost([cells[i][1] for i in rows])
                if self.keeps_maps:
                    own.maps.append(MapColumn(method, join_maps([cells[i][0] for i in rows])))
        for (method, metric), found in self._scores.items():
            for rows in alike(found, lambda s: (None if s.curve is None else s.curve.shape[-1], s.share)):
                s = join([found[i] for i in rows], dim=1)
                curve = None if s.curve is None else s.curve[0]
                group(rows).scores.append(ScoreColumn(method, metric, s.value[0], list(s.status[0]), curve, s.share))
        self._maps, self._scores = {}, {}
        if groups:
            first = next(iter(groups.values()))
            first.answers = {k: v for k, v in self.probe.answered().items() if k not in self.saved_answers}
            self.saved_answers |= first.answers.keys()
        return list(groups.values())


def alike(cells: Mapping[int, T], kind: Callable[[T], Hashable]) -> list[Rows]:
    """The samples of each kind of cell."""
    found: dict[Hashable, list[int]] = {}
    for row in sorted(cells):
        found.setdefault(kind(cells[row]), []).append(row)
    return [tuple(rows) for rows in found.values()]


def mean_cost(costs: list[Cost]) -> dict[str, float]:
    """What one map costs in the mean."""
    return {name: sum(cost[name] for cost in costs) / len(costs) for name in costs[0]}


@dataclass
class Chunk:
    """Groups that are not on disk yet, and what all of them cost.

    Args:
        commit: writes groups; None to keep them here.
        spent: passes and time.
    """

    commit: Callable[[list[SampleGroup]], object] | None = None
    spent: Spent = field(default_factory=Spent)
    groups: list[SampleGroup] = field(default_factory=list)
    _open: Finished | None = None
    _saved: float = 0.0

    def __post_init__(self) -> None:
        self._saved = now()

    def open(self, finished: Finished) -> None:
        """Go on with other samples."""
        self.close()
        self._open = finished

    def close(self) -> None:
        """No more cells of these samples come."""
        if self._open is not None:
            self.groups += self._open.take()
            self._open = None

    def save(self) -> None:
        """Write everything that is finished."""
        if self._open is not None:
            self.groups += self._open.take()
        if self.groups and self.commit is not None:
            self.commit(self.groups)
            self.groups = []
        self._saved = now()

    def save_when_due(self) -> None:
        """Write what is finished where the last time is long ago."""
        if self.commit is not None and now() - self._saved >= SAVE:
            self.save()
