"""Every model that has a name, found without importing torch: loaders under `@source(...)` declare themselves."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from heatcheck.core.sources import Source, default_source, import_attribute, read_sources
from heatcheck.models.file_names import TRAINED, holds_training, holds_transformers
from heatcheck.models.targets import function_of

GROUPS = ("embedded", "weights", "hubs", "own")
"""Groups of models, in the order of the list."""
IN_FILE = "FILE.py"
"""The id of models in users' own files."""
OF_TRANSFORMERS = "hf:"
"""What the specs of models begin with that transformers loads."""


@dataclass(frozen=True, kw_only=True)
class ModelSource(Source):
    """What a model, or a family of models, declares. Its loader gets the model's name and the user's `Request`.

    Args:
        licence: under which terms its weights may be used.
        install: what makes it available.
        reads: a function of its module that says of which modality a named model is, where it can be of either.
    """

    listed: ClassVar[tuple[str, ...]] = ("id", "form", "modality", "about", "install", "licence")

    licence: str = "as its publisher states"
    install: str
    reads: str = ""

    @property
    def is_family(self) -> bool:
        """Whether it is written with the name of a model after a colon."""
        return self.form.startswith(f"{self.id}:")

    @property
    def takes_checkpoint(self) -> bool:
        """Whether its form has a place for a file with weights."""
        return "@" in self.form


@cache
def models() -> Mapping[str, ModelSource]:
    """All models and families by id."""
    return MappingProxyType(read_sources("models", ModelSource, GROUPS))


def source_id(spec: str) -> str:
    """The id that a spec begins with, known or not.

    >>> source_id("timm:resnet50@weights.pt"), source_id("mine.py:net")
    ('timm', 'FILE.py')
    """
    place = spec.partition("@")[0]
    return IN_FILE if place.endswith(".py") or function_of(place) else re.split("[:@]", spec)[0]


def full_spec(spec: str) -> str:
    """The spec of a model that was written as nothing but its folder: of a training, or one that transformers saved to.

    Any other is as it is, and so is the name of a model, whatever folder has the same.
    """
    folder, at, checkpoint = spec.partition("@")
    named = models().get(folder)
    if named is not None and not named.is_family:
        return spec
    if holds_training(Path(folder)):
        return f"{TRAINED}{folder}{at}{checkpoint}"
    return f"{OF_TRANSFORMERS}{Path(spec).expanduser()}" if holds_transformers(Path(spec)) else spec


def default_model(modality: str) -> str:
    """The spec of the embedded model for a modality.

    >>> default_model("image")
    'efficientnet_lite0'
    """
    return default_source(models(), modality).id


def modality_of_model(spec: str) -> str:
    """The modality of what a model reads; `image` where that is not known before it is loaded.

    >>> modality_of_model("minilm_sentiment"), modality_of_model("timm:resnet50@weights.pt")
    ('text', 'image')
    """
    spec = full_spec(spec)
    source = models().get(source_id(spec))
    if source is None or not source.reads:
        return source.modality if source is not None and source.modality == "text" else "image"
    name = spec.partition(":")[2]
    name = name.partition("@")[0] if source.takes_checkpoint else name
    return str(import_attribute(source.module, source.reads)(name))
