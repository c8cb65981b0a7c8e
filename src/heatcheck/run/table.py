"""The table of scores and the curves, made from the index as columns: no loop over cells."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from heatcheck.core.types import OK, Scores
from heatcheck.run.columns import Array
from heatcheck.run.index import Index
from heatcheck.run.packing import PRICES
from heatcheck.run.store import Store

if TYPE_CHECKING:
    import polars as pl

COLUMNS = (
    "run", "model", "data", "sample", "target", "method", "metric",
    "score", "status", "seconds", "forwards", "backwards",
)  # fmt: skip


class Vocabulary:
    """Texts of a column by number; the first two stand for a score that is ok and for one that is missing."""

    def __init__(self, known: Sequence[str]) -> None:
        self.all = list(known)
        self._numbers = {text: i for i, text in enumerate(known)}

    def add(self, text: str) -> int:
        """A text's number."""
        if text not in self._numbers:
            self._numbers[text] = len(self.all)
            self.all.append(text)
        return self._numbers[text]


@dataclass
class CellBlock:
    """One model's cells: scores and statuses as [sample, method, metric], costs as [sample, method, 3].

    `pairs` are the methods and metrics that have rows in the table.
    """

    value: Array
    status: Array
    prices: Array
    model: str = ""
    data: str = ""
    samples: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    target: list[int | None] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        index: Index,
        model: str,
        seed: int,
        scored: Sequence[str],
        mapped: Sequence[str],
        methods: Sequence[str],
        metrics: Sequence[str],
        statuses: Vocabulary,
    ) -> "CellBlock":
        """What the index has for samples, by their row keys, under methods and metrics, by their digests."""
        keys = list(dict.fromkeys(scored))
        at = index.find("scores", model, seed, keys, methods, metrics)
        kinds = np.append(index.statuses("scores"), 0)[at]
        status = np.full(at.shape, 1, np.uint32)
        for kind in np.unique(kinds[at >= 0]):
            text = index.texts.all[kind] if kind else OK
            status[(at >= 0) & (kinds == kind)] = statuses.add(text)
        value = np.append(index.numbers.values, np.nan)[at]
        places = {key: i for i, key in enumerate(keys)}
        order = np.array([places[key] for key in scored], dtype=np.int64)
        if not np.array_equal(order, np.arange(len(keys))):
            value, status = value[order], status[order]
        keys = list(dict.fromkeys(mapped))
        places = {key: i for i, key in enumerate(keys)}
        at = index.find("costs", model, seed, keys, methods)
        prices = np.append(index.numbers.prices, np.full((1, 3), np.nan), 0)[at]
        return cls(value, status, prices[np.array([places[key] for key in mapped], dtype=np.int64)])

    def skip(self, axis: int, places: Sequence[int], status: int) -> None:
        """Say that methods (axis 1) or metrics (axis 2) were skipped; what a method says counts."""
        chosen = (slice(None),) * axis + (list(places),)
        self.status[chosen] = status

    def scores(self, methods: Sequence[int], metric: int, statuses: Vocabulary) -> Scores:
        """Some methods' scores under one metric."""
        words = np.array(statuses.all, dtype=object)[self.status[:, methods, metric].T]
        value = np.where(self.status[:, methods, metric].T == 0, self.value[:, methods, metric].T, np.nan)
        return Scores(torch.from_numpy(value), tuple(tuple(row) for row in words))

    def fill(self, methods: Sequence[int], metric: int, scores: Scores, statuses: Vocabulary) -> None:
        """Put in scores that were made of others."""
        self.value[:, methods, metric] = scores.value.numpy().T
        self.status[:, methods, metric] = np.array([[statuses.add(s) for s in row] for row in scores.status]).T

    def only(self, pairs: list[tuple[int, int]]) -> "CellBlock":
        """With these methods and metrics in the table."""
        self.pairs = pairs
        return self

    def frame(self) -> "pl.DataFrame":
        """Its rows, sample by sample, with numbers of names instead of names."""
        import polars as pl

        n = len(self.samples)
        methods, metrics = (np.array([pair[i] for pair in self.pairs], dtype=np.int64) for i in (0, 1))
        target = pl.Series(self.target, dtype=pl.Int64)
        return pl.DataFrame(
            {
                "sample": np.repeat(np.arange(n, dtype=np.uint32), len(self.pairs)),
                "target": target.gather(np.repeat(np.arange(n, dtype=np.uint32), len(self.pairs))),
                "method": np.tile(methods.astype(np.uint32), n),
                "metric": np.tile(metrics.astype(np.uint32), n),
                "score": self.value[:, methods, metrics].reshape(-1),
                "status": self.status[:, methods, metrics].reshape(-1),
                **{name: self.prices[:, methods, i].reshape(-1) for i, name in enumerate(PRICES)},
            }
        )


def joined(run: str, blocks: Sequence[CellBlock], statuses: Vocabulary) -> "pl.DataFrame":
    """One row per model, sample, method and metric. Names are enumerations in the order of the alphabet."""
    import polars as pl

    words: dict[str, Any] = {
        "run": [run],
        "model": [b.model for b in blocks],
        "data": [b.data for b in blocks],
        "sample": [name for b in blocks for name in b.samples],
        "method": [name for b in blocks for name in b.methods],
        "metric": [name for b in blocks for name in b.metrics],
    }
    kinds = {name: pl.Enum(sorted(set(texts))) for name, texts in words.items()}
    frames = []
    for block in blocks:
        frame = block.frame()
        named = [
            pl.Series(name, getattr(block, f"{name}s"), dtype=kinds[name]).gather(frame[name]).alias(name)
            for name in ("sample", "method", "metric")
        ]
        fixed = {"run": run, "model": block.model, "data": block.data}
        frames.append(
            frame.with_columns(
                *named,
                *(pl.lit(text, dtype=kinds[name]).alias(name) for name, text in fixed.items()),
                pl.when(pl.col("status") == 0).then(pl.col("score")).alias("score"),
                *(pl.col(name).fill_nan(None) for name in PRICES),
            )
        )
    table = pl.concat(frames)
    names = pl.Series(statuses.all, dtype=pl.String)
    return table.with_columns(names.gather(table["status"]).alias("status")).select(COLUMNS)


def curve_rows(
    store: Store, key: tuple[str, int, str | None], samples: Mapping[str, str], methods: Mapping[str, str]
) -> "pl.DataFrame":
    """Every stored curve of a model, seed and metric: sample, method, the shares of its steps, and the curve.

    Args:
        store: the folder.
        key: the model's identity, the seed, the metric's digest.
        samples: row keys by name.
        methods: digests by label.
    """
    import polars as pl

    model, seed, metric = key
    index = store.index
    keys = list(dict.fromkeys(samples.values()))
    places = {k: i for i, k in enumerate(keys)}
    at = index.find("scores", model, seed, keys, list(methods.values()), [metric or ""])[..., 0]
    where = at[[places[k] for k in samples.values()]].reshape(-1) if len(keys) else at.reshape(-1)
    cell = np.flatnonzero((where >= 0) & (np.append(index.statuses("scores"), 0)[where] == 0))
    item = np.searchsorted(index.cell_starts["scores"], where[cell], side="right") - 1
    has = index.columns.score_curve[item] > 0
    cell, item = cell[has], item[has]
    row = where[cell] - index.cell_starts["scores"][item]
    group = np.searchsorted(index.starts["scores"], item, side="right") - 1
    names, labels = pl.Series(list(samples), dtype=pl.String), pl.Series(list(methods), dtype=pl.String)
    numbers, share = np.unique(index.columns.score_share[item], return_inverse=True)
    known = [json.loads(index.texts.all[number]) if number else [] for number in numbers]
    width = max(1, len(methods))
    return pl.DataFrame(
        {
            "sample": names.gather(cell // width),
            "method": labels.gather(cell % width),
            "share": pl.Series(known, dtype=pl.List(pl.Float64)).gather(share),
            "curve": _curves(store, item, index.columns.file[group], row),
        }
    )


def _curves(store: Store, item: Array, file: Array, row: Array) -> "pl.Series":
    """The curves of cells, by their columns, files and rows; each file is read once, each column in one go."""
    import polars as pl

    order = np.argsort(item, kind="stable")
    _, starts = np.unique(item[order], return_index=True)
    found: dict[int, list[tuple[Array, Array]]] = {}
    for cells in np.split(order, starts[1:]) if len(order) else []:
        first = cells[0]
        name = store.index.texts.all[store.index.columns.score_curve[item[first]]]
        values = store.chunk(store.index.names[file[first]]).tensor(name).double().numpy()
        found.setdefault(values.shape[1], []).append((cells, values[row[cells]]))
    parts = [pl.DataFrame({"at": pl.Series([], dtype=pl.Int64), "curve": pl.Series([], dtype=pl.List(pl.Float64))})]
    for pieces in found.values():
        at, curves = (np.concatenate([piece[i] for piece in pieces]) for i in (0, 1))
        parts.append(pl.DataFrame({"at": at, "curve": pl.Series(curves).arr.to_list()}))
    return pl.concat(parts).sort("at")["curve"]
