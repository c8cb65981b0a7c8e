"""The JSON files of a run folder: sealed with a checksum, and checked value by value.

The first line of a sealed file holds the SHA-256 of all its bytes with that checksum left empty. Files from before
have none: they are opened unchecked, if they hold nothing but what such files held, and said to be so.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from heatcheck.core.files import as_json

RUN, NUMERICS = "run.json", "numerics.json"
SEAL = "sha256"
_SEAL = re.compile(rb'\A\{\n "sha256": "([0-9a-f]{64})"')
_UNSEALED_RUN = {"heatcheck", "created", "study", "target", "seed", "maps", "data", "samples", "models", "methods"}
_UNSEALED_RUN |= {"metrics", "environment", "passes", "peak_bytes", "finished"}
_HEX = re.compile(r"[0-9a-f]{64}\Z")


class DamagedRecord(ValueError):
    """A record's bytes do not match its checksum, or a value in it cannot be."""


class _Entry(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class NumericsEntry(_Entry):
    """The shape of a model's calls."""

    forward: int = Field(ge=1, le=1 << 20)
    backward: int = Field(ge=1, le=1 << 20)
    threads: int = Field(ge=1, le=1 << 16)
    channels_last: bool
    compiled: bool = False
    rounding: list[Annotated[int, Field(ge=1, le=1 << 20)]] | None = Field(default=None, min_length=3, max_length=3)
    device: str
    torch: str
    capability: str


class SampleEntry(_Entry):
    """A sample of the study."""

    name: str
    digest: str
    context: str
    problem: str | None


class FiledEntry(_Entry):
    """A method or metric as one model sees it."""

    label: str
    name: str
    digest: Annotated[str, Field(min_length=1)]
    identity: dict[str, Any]


class TrainedEntry(_Entry):
    """How `heatcheck train` made a model."""

    recipe: str
    variant: str
    settings: dict[str, Any]
    parent: dict[str, str]
    data: str
    held_out: str
    samples: int = Field(ge=1)
    held_out_samples: int = Field(ge=0)
    accuracy: dict[str, float]
    chosen: float | None
    marks: list[str]
    checkpoint: str
    aligned: dict[str, str] | None
    reached: dict[str, float | None] | None = None


class ModelEntry(_Entry):
    """A model, and what applies to it."""

    name: str
    identity: Annotated[str, Field(min_length=1)]
    modality: Literal["image", "text"]
    classes: list[str] | None
    methods: list[FiledEntry]
    metrics: list[FiledEntry]
    skipped: dict[str, str]
    circular: list[list[str]]
    numerics: dict[str, Any]
    gallery: list[str]
    trained: TrainedEntry | None = None
    architecture: str = ""


class MethodEntry(_Entry):
    """What a report says about a method."""

    id: str
    label: str
    name: str
    control: bool


class MetricEntry(_Entry):
    """What a report says about a metric."""

    id: str
    label: str
    name: str
    better: Literal["higher", "lower"]


class DataEntry(_Entry):
    """The data set."""

    name: str
    n: int = Field(ge=0)
    notes: list[str]


class StudyRecord(_Entry):
    """A study as `describe` writes it down before anything is computed."""

    heatcheck: str
    created: str
    study: dict[str, Any]
    seed: int
    data: DataEntry
    samples: list[SampleEntry]
    models: list[ModelEntry]
    methods: list[MethodEntry]
    metrics: list[MetricEntry]
    environment: dict[str, str]


class RunRecord(StudyRecord):
    """`run.json`: the last study, and how far it is."""

    passes: dict[str, float]
    finished: bool


class RowEntry(_Entry):
    """A sample in a chunk."""

    digest: str
    context: str
    target: Any


class MapEntry(_Entry):
    """A method's maps in a chunk."""

    method: str
    tensor: str
    status: dict[str, str]


class ScoreEntry(_Entry):
    """A method's scores under a metric in a chunk."""

    method: str
    metric: str
    tensor: str
    status: dict[str, str]
    curve: str | None
    share: list[float]


class GroupEntry(_Entry):
    """Samples of one shape in a chunk, with all that was computed for them."""

    model: str
    seed: int
    samples: list[RowEntry]
    numerics: dict[str, Any]
    costs: dict[str, dict[str, float]]
    logits: str | None
    answers: int
    maps: list[MapEntry]
    scores: list[ScoreEntry]
    displays: list[dict[str, Any]]


class ChunkHeader(_Entry):
    """What a chunk says it holds."""

    groups: list[GroupEntry]


_NUMERICS = TypeAdapter(dict[str, NumericsEntry])


def sealed(value: Mapping[str, Any]) -> bytes:
    """A record's bytes, with their checksum in the first line."""
    empty = as_json({SEAL: "", **value})
    return as_json({SEAL: hashlib.sha256(empty).hexdigest(), **value})


def unsealed(data: bytes) -> tuple[dict[str, Any], bool]:
    """A record's content, and whether a checksum vouches for it.

    Raises:
        DamagedRecord: the checksum does not match, or the bytes are no record.
    """
    seal = _SEAL.match(data)
    if seal and hashlib.sha256(data[: seal.start(1)] + data[seal.end(1) :]).hexdigest() != seal[1].decode():
        raise DamagedRecord("its bytes do not match its checksum")
    try:
        value = json.loads(data)
    except ValueError as problem:
        raise DamagedRecord(f"it is no JSON: {problem}") from problem
    if not isinstance(value, dict) or (SEAL in value) != bool(seal):
        raise DamagedRecord("its checksum is not where it belongs")
    value.pop(SEAL, None)
    return value, bool(seal)


def checked(name: str, value: Mapping[str, Any], sealed: bool) -> None:
    """Refuse what no release has written: wrong kinds, impossible values and, without a checksum, unknown names.

    Raises:
        DamagedRecord: with the first value that cannot be.
    """
    unknown: list[str] = []
    try:
        if name == NUMERICS:
            _NUMERICS.validate_python(value)
            unknown = [] if sealed else [key for key in value if not _HEX.match(key)]
        elif name == RUN:
            RunRecord.model_validate(value)
            unknown = [] if sealed else sorted(value.keys() - _UNSEALED_RUN)
        else:
            StudyRecord.model_validate(value)
            unknown = [] if sealed else [SEAL]
    except ValidationError as problem:
        raise DamagedRecord(first_problem(problem)) from problem
    if unknown:
        raise DamagedRecord(f"nothing in it should be called {unknown[0]!r}")


def first_problem(problem: ValueError) -> str:
    """The first thing that is wrong with a record, and where it stands."""
    if not isinstance(problem, ValidationError):
        return str(problem)
    first = problem.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"it lacks {where}"
    return f"{where} cannot be {repr(first['input'])[:80]}: {first['msg'][:1].lower()}{first['msg'][1:]}"
