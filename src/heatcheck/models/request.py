"""What a user says about a model beside its spec."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from heatcheck.core.types import PathLike
from heatcheck.models.preprocess import Preprocess

Trainer = Callable[[Path, Path], object]
"""Trains a model from a folder with its backbone into an empty folder."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a user may say about a model beside its spec; None leaves it to the model.

    Args:
        name: what tables call it.
        preprocess: what is done to a picture before the model sees it.
        tokens: how many tokens of a text it sees.
        guess: whether a likely preprocessing may stand in where a module does not state its own.
        classes: class names.
        checkpoint: a local file with its weights.
        identity: what a function's results are filed under.
        modality: `image` or `text`, for architectures that exist for both.
        headless: whether a network without a classifier's last layer will do; it gets one that has learnt nothing.
        trainers: what trains a model on first use, by its id.
    """

    name: str
    preprocess: Preprocess | None = None
    tokens: int | None = None
    guess: bool = False
    classes: tuple[str, ...] | None = None
    checkpoint: PathLike | None = None
    identity: str | None = None
    modality: str | None = None
    headless: bool = False
    trainers: Mapping[str, Trainer] = field(default_factory=dict)
