"""Every data source, found without importing torch: loaders under `@source(...)` declare themselves in their files."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from heatcheck.core.sources import Source, default_source, import_attribute, read_sources
from heatcheck.core.spec import SpecError, parse, suggest

GROUPS = ("embedded", "images", "texts", "parts", "objects")
"""Groups of sources, in the order of the list."""


@dataclass(frozen=True, kw_only=True)
class DataSource(Source):
    """What a data source declares. Its loader gets the place, where it takes one, and the user's `SourceOptions`.

    Args:
        licence: under which terms its contents may be used.
        suffixes: of the files that it reads where the user gives a path alone.
        columns: whether its files have columns that the user can name.
        splits: parts that can be named after the path; without a name the first is meant, of `folder` everything.
        present: a function of its module that says which of the splits a place has; where it is not given, all.
        params: what can be set in brackets after the id, such as `nwpu(seed=3):PATH`.
        recognises: a function of its module that says whether a folder has its layout; of a source that shares a suffix
            with others, whether a file is its own.
    """

    licence: str = "its owner's"
    suffixes: tuple[str, ...] = ()
    columns: bool = False
    splits: tuple[str, ...] = ()
    present: str = ""
    params: tuple[str, ...] = ()
    recognises: str = ""

    @property
    def takes_place(self) -> bool:
        """Whether it is written with a path or another source after a colon."""
        return self.form.startswith(f"{self.id}:")

    @property
    def has_spec(self) -> bool:
        """Whether it can be written as text; the others are objects."""
        return self.takes_place or self.only_split or self.form == self.id

    @property
    def only_split(self) -> bool:
        """Whether it is written alone or with a split after a colon, such as `birds` or `birds:train`."""
        return self.form == f"{self.id}[:SPLIT]"

    def split_in(self, spec: str) -> str | None:
        """The split that a spec without a path names, the first if it names none; None where it is no such spec.

        >>> sources()["birds"].split_in("birds"), sources()["birds"].split_in("birds:moon")
        ('test', None)
        """
        if not self.only_split:
            return None
        return next((split for split in self.splits if spec in (self.id, f"{self.id}:{split}")), None)

    @property
    def brackets_splits(self) -> bool:
        """Whether a split is named in brackets after the place, and the place may be a name that is no path."""
        return self.form.endswith("[[SPLIT]]")

    def with_split(self, place: str, split: str) -> str:
        """A place with a split named after it."""
        return f"{place}[{split}]" if self.brackets_splits else f"{place}:{split}"

    @property
    def wraps(self) -> bool:
        """Whether its place is another source."""
        return self.form == f"{self.id}:SOURCE"

    def fits(self, path: Path) -> bool:
        """Whether a folder has this source's layout, or a file its form."""
        return bool(self.recognises) and bool(import_attribute(self.module, self.recognises)(path))

    def splits_at(self, place: str) -> tuple[str, ...]:
        """The splits that a place has."""
        if not self.present:
            return self.splits
        found = import_attribute(self.module, self.present)(place)
        return tuple(split for split in self.splits if split in found)


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


def modality_of_data(data: str) -> str:
    """The modality of what a spec or a path holds; `image` where it means nothing.

    A source that can hold either is opened, and a folder is looked at; else nothing is read.

    >>> modality_of_data("texts"), modality_of_data("test_part:csv:reviews.csv"), modality_of_data("squares:folder:x")
    ('text', 'text', 'image')
    """
    head, _, place = data.partition(":")
    named = source_named(head)
    if named is not None and (named.modality in _MODALITIES or not named.has_spec):
        return named.modality if named.has_spec else _MODALITIES[0]
    if named is not None and named.wraps:
        return modality_of_data(place)
    source = named or sources()[source_at(Path(data).expanduser()) or "folder"]
    if source.modality in _MODALITIES:
        return source.modality
    from heatcheck.core.types import HeatcheckError

    loading = "heatcheck.data.load"
    try:
        return str(import_attribute(loading, "load_data")(data, samples=1, seed=None).modality)
    except HeatcheckError:
        return _MODALITIES[0]


_MODALITIES = ("image", "text")


def source_at(path: Path) -> str | None:
    """The id of the source whose layout a folder has, or whose suffix a file has; None if it is no such thing.

    Of several sources that have the suffix, the first that recognises the file is meant, else the last.
    """
    if path.is_dir():
        return next((id for id, source in sources().items() if source.fits(path)), None)
    named = [id for id, source in sources().items() if path.suffix.lower() in source.suffixes]
    return next((id for id in named[:-1] if sources()[id].fits(path)), named[-1] if named else None)


def split_spec(data: str) -> tuple[str, str, str]:
    """What a spec says before the path it names, that path, and what it says after it.

    >>> split_spec("squares:folder:val"), split_spec("eraser:movies.tar.gz:val"), split_spec("images")
    (('squares:folder:', 'val', ''), ('eraser:', 'movies.tar.gz', ':val'), ('images', '', ''))
    """
    head, colon, place = data.partition(":")
    source = source_named(head)
    if source is not None and (data == source.form or source.split_in(data) is not None):
        return data, "", ""
    if source is None or not colon or not source.takes_place:
        return "", data, ""
    if source.wraps:
        before, place, after = split_spec(place)
        return f"{head}:{before}", place, after
    if source.brackets_splits:
        path, split = split_brackets(place)
        return f"{head}:", path, f"[{split}]" if split else ""
    path, split = split_place(place, source.splits)
    return f"{head}:", path, f":{split}" if split else ""


def on_hub(data: str) -> bool:
    """Whether what a spec names is on a hub, and no path.

    >>> on_hub("test_part:hf-data:imdb[train]"), on_hub("hf-data:./mine"), on_hub("folder:mine")
    (True, False, False)
    """
    before, place, _ = split_spec(data)
    source = source_named(before.removesuffix(":").rpartition(":")[2])
    return source is not None and source.brackets_splits and not place.startswith((".", "/", "~"))


def source_named(head: str) -> DataSource | None:
    """The source that a spec names before its first colon, with or without parameters."""
    return sources().get(head.partition("(")[0])


def split_place(place: str, splits: Sequence[str]) -> tuple[str, str]:
    """A path and the split that is named after it, if any; a path that exists as it is written names none.

    >>> split_place("movies.tar.gz:val", ("test", "val")), split_place("movies:old", ("test", "val"))
    (('movies.tar.gz', 'val'), ('movies:old', ''))
    """
    path, colon, split = place.rpartition(":")
    if colon and split in splits and not os.path.lexists(place):
        return path, split
    return place, ""


def split_brackets(place: str) -> tuple[str, str]:
    """A name or path, and the split that is named after it in brackets, if any.

    >>> split_brackets("glue:sst2[train[:100]]"), split_brackets("imdb")
    (('glue:sst2', 'train[:100]'), ('imdb', ''))
    """
    name, bracket, rest = place.partition("[")
    return (name, rest[:-1]) if bracket and rest.endswith("]") else (place, "")


def parameters(data: str) -> Mapping[str, Any]:
    """What a spec sets in brackets before its first colon.

    Raises:
        SpecError: the brackets cannot be read, or its source has no such parameter.

    >>> parameters("test_part(seed=3, share=0.1):images")
    {'seed': 3, 'share': 0.1}
    """
    head = data.partition(":")[0]
    source = source_named(head)
    if source is None or "(" not in head:
        return {}
    params = parse(head).params
    for name in params:
        if name not in source.params:
            known = suggest(name, source.params) or f"; {source.id} has none"
            raise SpecError(f"{data!r}: no parameter is called {name!r}{known}")
    return params


def check_parameters(data: str) -> None:
    """Check what a spec, and the spec that it wraps, set in brackets.

    Raises:
        SpecError: they cannot be read, or a source has no such parameter.
    """
    parameters(data)
    head, _, place = data.partition(":")
    source = source_named(head)
    if source is not None and source.wraps:
        check_parameters(place)
