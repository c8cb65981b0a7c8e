"""What decides a chunk, as plain data: it can be sent to any process that can load the same models and data."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from heatcheck.probe.numerics import Numerics


class ComponentRef(NamedTuple):
    """A method or metric as one model sees it: the label tables show, its full name, the digest it is filed under."""

    label: str
    name: str
    digest: str


class SampleRef(NamedTuple):
    """A sample by its name in the data set, the digest of its content, and its label as the run numbers classes."""

    name: str
    digest: str
    label: int | None = None


class Cell(NamedTuple):
    """A sample's clean outputs, its map by a method, or the map's score under a metric; digests, empty where it has none."""

    sample: str
    method: str = ""
    metric: str = ""


class FailedCell(NamedTuple):
    """A cell that was tried in this invocation and is not tried again in it, with its status."""

    cell: Cell
    status: str


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where models and data come from, as a user wrote it; empty where they exist in this process only.

    Args:
        models: specs by the label tables show.
        preprocess: what is done to pictures or texts, as plain data; None for what the models say.
        output: which part of the models' output is taken; None for what it says itself.
        precision: in what passes are computed.
        data: the data set's spec.
        text_column: the table's column with the text, or the two columns of a pair.
        label_column: the table's column with the label.
        samples: how many of its samples; all if None.
        seed: by which they are chosen.
        plugins: Python files that declare components.
        portable: whether another process can load everything that the run uses.
        only_here: what it cannot load, in words.
    """

    models: dict[str, str] = field(default_factory=dict)
    preprocess: dict[str, Any] | None = None
    output: str | int | None = None
    precision: str = "fp32"
    data: str = ""
    text_column: str | int | tuple[str | int, ...] | None = None
    label_column: str | int | None = None
    samples: int | None = None
    seed: int | None = None
    plugins: tuple[str, ...] = ()
    portable: bool = False
    only_here: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Work:
    """Everything that decides a chunk: one model × a handful of samples × methods × metrics.

    Args:
        model: the label tables show.
        identity: the model's identity; whoever loads another one refuses the work.
        samples: the samples of this chunk.
        methods: the methods that apply to the model, resolved.
        metrics: the metrics that apply, resolved; those that compare models are left out.
        target: what is explained: predicted, label, top2, the number of a class, or a number made of the output.
        seed: of every random stream.
        numerics: the shape of every model call.
        maps: which maps are stored: keep, gallery or none.
        gallery: digests of the samples whose maps and pictures the report shows.
        out: the run's folder.
        sources: where models and data come from.
        timeout: seconds that one cell may take.
        alone: whether every cell is computed alone, because a process ended while it computed several.
        failed: cells that have failed in this invocation.
        resumed: whether another process began it and died: what it has saved is looked up first.
        scout: whether the model is only asked about each sample once, to see that it answers.
        following: samples that whoever gets this work is likely to get next; they may be read ahead.
    """

    model: str
    identity: str
    samples: tuple[SampleRef, ...]
    methods: tuple[ComponentRef, ...]
    metrics: tuple[ComponentRef, ...]
    target: str | int = "predicted"
    seed: int = 0
    numerics: Numerics = field(default_factory=Numerics)
    maps: str = "keep"
    gallery: tuple[str, ...] = ()
    out: str = ""
    sources: Sources = field(default_factory=Sources)
    timeout: float | None = None
    alone: bool = False
    failed: tuple[FailedCell, ...] = ()
    resumed: bool = False
    scout: bool = False
    following: tuple[SampleRef, ...] = field(default=(), compare=False)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> "Work":
        """The work that `to_json` wrote."""
        plain: dict[str, Any] = json.loads(line)
        sources: dict[str, Any] = plain.pop("sources")
        sources |= {name: tuple(value) for name, value in sources.items() if isinstance(value, list)}
        return cls(
            samples=tuple(SampleRef(*ref) for ref in plain.pop("samples")),
            following=tuple(SampleRef(*ref) for ref in plain.pop("following")),
            numerics=Numerics(**plain.pop("numerics")),
            gallery=tuple(plain.pop("gallery")),
            sources=Sources(**sources),
            methods=tuple(ComponentRef(*ref) for ref in plain.pop("methods")),
            metrics=tuple(ComponentRef(*ref) for ref in plain.pop("metrics")),
            failed=tuple(FailedCell(Cell(*cell), status) for cell, status in plain.pop("failed")),
            **plain,
        )
