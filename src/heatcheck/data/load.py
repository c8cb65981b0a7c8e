"""Loads data: a spec, a path or an object becomes a data set."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from heatcheck.core.spec import SpecError, suggest
from heatcheck.core.types import HeatcheckError, Sample, TextPair
from heatcheck.data.base import Dataset, LabelsArg, Listing, SourceOptions, TextColumnArg
from heatcheck.data.catalogue import DataSource, parameters, source_at, source_named, sources
from heatcheck.data.images import SUFFIXES
from heatcheck.data.labels import ClassesArg, Labels, read_lines
from heatcheck.data.places import kind_of, near_names
from heatcheck.data.tables import read_table


def load_data(
    spec: Any,
    *,
    samples: int | None = None,
    seed: int | None = 0,
    labels: LabelsArg = None,
    classes: ClassesArg = None,
    text_column: TextColumnArg = None,
    label_column: str | int | None = None,
) -> Dataset:
    """A data set from a spec, a path or an object.

    Folders are sorted by name; tables, lists and tensors keep their order. What cannot be used stays in as a
    sample with a `problem`.

    Args:
        spec: a source that `heatcheck list data` shows, such as `images`, `folder:PATH` or `csv:FILE`; a path; a batch
            of inputs or (inputs, labels); a list of texts, paths, pictures or (item, label) pairs; a torch Dataset or
            DataLoader; a data set of Hugging Face; a data frame; an iterable of items; or a data set.
        samples: how many to use; all if None. Nothing else is read.
        seed: which ones, at random; the first ones if None.
        labels: labels to use instead: in order, by sample name, or a CSV file with columns file and label.
        classes: class names by index: a list, a file with one per line, or `imagenet`.
        text_column: the table's column with the text, by name or position; of dicts, the key of the content. Two, such
            as `("premise", "hypothesis")`, are a pair of texts.
        label_column: the table's column with the label; of dicts, the key of the label.

    Raises:
        HeatcheckError: the spec means nothing, or there are no samples.

    >>> [s.label for s in load_data([("good", "pos"), ("bad", "neg")])]
    [1, 0]
    """
    if isinstance(spec, Dataset):
        if any(option is not None for option in (labels, classes, text_column, label_column)):
            raise HeatcheckError("labels, classes and columns belong to the source; this data set is already loaded")
        return spec if samples is None else spec.take(samples, seed)
    options = SourceOptions(samples=samples, classes=classes, text_column=text_column, label_column=label_column)
    listing = listing_of(spec, options)
    if labels is not None:
        listing = _relabelled(listing, labels, classes)
    return listing.collect(samples, seed)


def listing_of(spec: Any, options: SourceOptions) -> Listing:
    """What a spec, a path or an object holds, before any of it is read."""
    if not isinstance(spec, str | Path):
        return _from_object(spec, options)
    text = str(spec)
    head, colon, where = text.partition(":")
    source = source_named(head) if isinstance(spec, str) else None
    if source is not None and source.form == text:
        return _call(source.id, (), options)
    if source is not None and source.only_split:
        return _call(source.id, (_split(source, text),), options)
    if source is not None and colon and source.takes_place:
        try:
            params = parameters(text)
        except SpecError as error:
            raise HeatcheckError(f"data={error}") from error
        return _call(source.id, (where,), options, params)
    path = Path(text).expanduser()
    if text.strip() and kind_of(path) is not None:
        if path.suffix.lower() in SUFFIXES and kind_of(path) == "file":
            return _call("sequence", ([path],), options)
        return _call(source_of(path), (str(path),), options)
    raise HeatcheckError(unknown_spec(text))


def _split(source: DataSource, text: str) -> str:
    split = source.split_in(text)
    if split is None:
        raise HeatcheckError(
            f"data={text!r}: {source.id} has the splits {', '.join(source.splits)}; write {source.form}"
        )
    return split


def _call(
    id: str, place: tuple[Any, ...], options: SourceOptions, params: Mapping[str, Any] = MappingProxyType({})
) -> Listing:
    named = options.text_column is not None or options.label_column is not None
    if named and not sources()[id].columns:
        tables = ", ".join(suffix for source in sources().values() if source.columns for suffix in source.suffixes)
        raise HeatcheckError(f"text_column and label_column are for tables ({tables}), not for {id!r} data")
    listing: Listing = sources()[id].load()(*place, options, **params)
    return listing


def _from_object(spec: Any, options: SourceOptions) -> Listing:
    pair = isinstance(spec, tuple) and len(spec) == 2
    if isinstance(spec, Tensor | np.ndarray) or (pair and isinstance(spec[0], Tensor | np.ndarray)):
        return _call("tensor", (spec,), options)
    if isinstance(spec, Image.Image | TextPair):
        return _call("sequence", ([spec],), options)
    if pair and _are_columns(*spec):
        return _call("sequence", (list(zip(*spec, strict=True)),), options)
    if isinstance(spec, list | tuple):
        return _call("sequence", (spec,), options)
    if hasattr(spec, "__getitem__") or hasattr(spec, "__iter__"):
        return _call("torch", (spec,), options)
    raise HeatcheckError(f"data={spec!r} is a {type(spec).__name__}, which is no data source; {_accepted()}")


def _are_columns(contents: Any, labels: Any) -> bool:
    """Whether a pair is a list of contents and as many labels, and not two items with a label each."""
    if not isinstance(contents, list | tuple) or not isinstance(labels, list | tuple | Tensor | np.ndarray):
        return False
    if len(contents) != len(labels) or len({type(content) for content in contents}) != 1:
        return False
    return len(contents) != 2 or not all(isinstance(label, str) for label in labels)


def source_of(path: Path) -> str:
    """The id of the source that reads a path."""
    found = source_at(path) or ("folder" if path.is_dir() else None)
    if found is not None:
        return found
    raise HeatcheckError(
        f"data={str(path)!r}: cannot tell what a {path.suffix or 'nameless'} file holds; {_accepted()}"
    )


def unknown_spec(text: str) -> str:
    """What to say of a spec that is neither a source nor a path."""
    id = text.partition(":")[0].partition("(")[0]
    kinds = [id for id, source in sources().items() if source.has_spec]
    near = suggest(id, kinds)
    hint = near if "did you mean" in near else near_names(Path(text).expanduser())
    return f"data={text!r} is neither a data source nor an existing path{hint}; {_accepted()}"


def _accepted() -> str:
    return "accepted are " + "; ".join(source.form for source in sources().values())


def _relabelled(listing: Listing, labels: LabelsArg, classes: ClassesArg) -> Listing:
    """The listing with other labels."""
    written = _written(listing.names, labels)
    reader = listing.labels if classes is None and listing.labels.classes else Labels.of(written, classes)

    def make(index: int) -> tuple[Sample, Any]:
        return listing.make(index)[0], written[index]

    return replace(listing, make=make, labels=reader, label=lambda i: written[i])


def _written(names: Sequence[str], labels: Any) -> Sequence[Any]:
    if isinstance(labels, str | Path):
        labels = _label_file(Path(labels))
    if isinstance(labels, Mapping):
        by_name = labels
        tails = {name: by_name[Path(name).name] for name in names if Path(name).name in by_name}
        found = [by_name.get(name, tails.get(name)) for name in names]
        if names and all(label is None for label in found):
            raise HeatcheckError(f"labels= names none of the {len(names)} samples; the first is {names[0]!r}")
        return found
    written: list[Any] = list(labels)
    if len(written) != len(names):
        raise HeatcheckError(f"labels= holds {len(written)} labels for {len(names)} samples")
    return written


def _label_file(path: Path) -> Any:
    """A CSV file's labels by file name, or a text file's in order."""
    if path.suffix.lower() != ".csv":
        return read_lines(path, "labels")
    rows = [row.cells for row in read_table(path.expanduser(), ",", header=True)]
    if not rows or not {"file", "label"} <= set(rows[0]):
        columns = ", ".join(rows[0]) if rows else "none"
        raise HeatcheckError(f"labels={str(path)!r}: columns are {columns}; expected file and label")
    return {row["file"]: row["label"] for row in rows}
