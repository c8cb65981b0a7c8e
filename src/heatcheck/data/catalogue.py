"""Every data source, found without importing torch: loaders under `@source(...)` declare themselves in their files."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from heatcheck.core.sources import Source, default_source, import_attribute, read_sources

GROUPS = ("embedded", "images", "texts", "objects")
"""Groups of sources, in the order of the list."""


@dataclass(frozen=True, kw_only=True)
class DataSource(Source):
    """What a data source declares. Its loader gets the place, where it takes one, and the user's `SourceOptions`.

    Args:
        licence: under which terms its contents may be used.
        suffixes: of the files that it reads where the user gives a path alone.
        columns: whether its files have columns that the user can name.
        splits: parts that can be named after the path, the default first.
        recognises: a function of its module that says whether a folder has its layout.
    """

    licence: str = "its owner's"
    suffixes: tuple[str, ...] = ()
    columns: bool = False
    splits: tuple[str, ...] = ()
    recognises: str = ""

    @property
    def takes_place(self) -> bool:
        """Whether it is written with a path or another source after a colon."""
        return self.form.startswith(f"{self.id}:")

    @property
    def has_spec(self) -> bool:
        """Whether it can be written as text; the others are objects."""
        return self.takes_place or self.form == self.id

    def fits(self, folder: Path) -> bool:
        """Whether a folder has this source's layout."""
        return bool(self.recognises) and bool(import_attribute(self.module, self.recognises)(folder))


@cache
def sources() -> Mapping[str, DataSource]:
    """All data sources by id."""
    return MappingProxyType(read_sources("data", DataSource, GROUPS))


def default_data(modality: str) -> str:
    """The spec of the embedded data for a modality.

    >>> default_data("text")
    'texts'
    """
    return default_source(sources(), modality).id


def split_spec(data: str) -> tuple[str, str, str]:
    """What a spec says before the path it names, that path, and what it says after it.

    >>> split_spec("squares:folder:val"), split_spec("eraser:movies.tar.gz:val"), split_spec("images")
    (('squares:folder:', 'val', ''), ('eraser:', 'movies.tar.gz', ':val'), ('images', '', ''))
    """
    id, colon, place = data.partition(":")
    source = sources().get(id)
    if source is not None and source.form == id and not colon:
        return data, "", ""
    if source is None or not colon or not source.takes_place:
        return "", data, ""
    if source.form == f"{id}:SOURCE":
        before, place, after = split_spec(place)
        return f"{id}:{before}", place, after
    rest, colon, split = place.rpartition(":")
    if colon and split in source.splits:
        return f"{id}:", rest, f":{split}"
    return f"{id}:", place, ""
