"""Data that are objects of the user's program: tensors, lists, torch data sets and loaders, iterables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    default_collate,
)

from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError, Modality, Sample, digest_of
from heatcheck.data.base import Listing, SourceOptions, distinct, numbered
from heatcheck.data.items import (
    CONTENT_KEYS,
    are_picture_paths,
    item_notes,
    keys_of,
    modality_of,
    reference_of,
    sample_of,
    split,
    unbatched,
)
from heatcheck.data.labels import Labels, as_index
from heatcheck.data.tables import Row, table_listing

_NAMES = {Modality.IMAGE: "pictures", Modality.TEXT: "texts"}
"""What a list of samples is called."""
_ENDLESS = 1000
"""Items of an iterable without a length that are read where nobody says how many."""


@source(
    "tensor",
    form="a torch Tensor or NumPy array, or (inputs, labels)",
    modality="image or text",
    about="ready for the model: floats [n, c, h, w] or token ids [n, t]; or pictures: uint8 [n, h, w, 3] or [n, 3, h, w]",
    group="objects",
    position=1,
)
def tensors(spec: Any, options: SourceOptions) -> Listing:
    """A batch of inputs, or a batch and its labels."""
    batch, labels = spec if isinstance(spec, tuple) else (spec, None)
    rows = unbatched(batch, options)
    if rows and (rows[0] is batch or modality_of(split(rows[0], options)[0]) is None):
        one = f"; for a single input write x[None]: {[1, *batch.shape]}" if batch.ndim in (1, 3) else ""
        raise HeatcheckError(
            f"{_article(batch)} of {batch.dtype} {list(batch.shape)} is not a batch of inputs: give floats [n, c, h, w] or "
            f"uint8 (pictures), or integers [n, t] (token ids){one}"
        )
    if labels is not None and getattr(labels, "ndim", 1) > 1:
        raise HeatcheckError(
            f"the labels have the shape {list(labels.shape)}: give a class index per input, and one batch of inputs; for "
            "a model of several inputs, give one and fix the others in a function around the model"
        )
    if labels is not None and len(labels) != len(rows):
        raise HeatcheckError(f"{len(labels)} labels were given for {len(rows)} inputs")
    written = [None] * len(rows) if labels is None else list(labels)
    return _listing("tensors", list(zip(rows, written, strict=True)), options)


def _article(batch: Any) -> str:
    return "a tensor" if isinstance(batch, Tensor) else "an array"


@source(
    "sequence",
    form="a list of texts, paths, pictures, tensors or (item, label) pairs",
    modality="image or text",
    about="samples held in memory; dicts may carry masks, boxes, parts or spans",
    group="objects",
    position=1,
    columns=True,
)
def sequence(spec: Any, options: SourceOptions) -> Listing:
    """A list of texts, paths, PIL images, arrays or tensors, or of pairs of such a thing and its label.

    Items may also be dicts, such as `{"image": …, "label": …, "boxes": …}`: these can carry references. Batches are
    taken apart.
    """
    return _listing("", [row for item in spec for row in unbatched(item, options)], options)


def _listing(name: str, items: Sequence[Any], options: SourceOptions) -> Listing:
    pairs = [split(item, options) for item in items]
    contents = [content for content, _ in pairs]
    as_paths = are_picture_paths(contents)
    modality = _common_modality(contents, as_paths)
    names = numbered(len(items))
    if as_paths or (contents and all(isinstance(c, Path) for c in contents)):
        names = distinct([str(content) for content in contents])
    labels = Labels.of((label for _, label in pairs), options.classes)
    return Listing(
        name=name or _NAMES[modality],
        modality=modality,
        names=names,
        make=lambda i: (sample_of(modality, names[i], contents[i], reference_of(items[i])), pairs[i][1]),
        labels=labels,
        notes=item_notes(items[0], len(items), labels, options) if items else (),
    )


def _common_modality(contents: Sequence[Any], as_paths: bool) -> Modality:
    if as_paths or not contents:
        return Modality.IMAGE
    found = next((m for m in map(modality_of, contents) if m is not None), None)
    if found is None:
        kinds = ", ".join(sorted({type(c).__name__ for c in contents}))
        raise HeatcheckError(f"a list of {kinds} holds no texts, paths, pictures or model-ready tensors")
    return found


@source(
    "torch",
    form="a torch Dataset or DataLoader, a data frame, an iterable",
    modality="image or text",
    about="items (picture | tensor | text, label), or dicts with such entries; batches are taken apart",
    group="objects",
    position=1,
    columns=True,
)
def torch_dataset(spec: Any, options: SourceOptions) -> Listing:
    """Anything with items: they are read one by one where they have positions, else once and in order."""
    if isinstance(spec, Mapping):
        return _from_mapping(spec, options)
    if isinstance(spec, DataLoader):
        return _from_loader(spec, options)
    records = _records(spec)
    if records is not None:
        return table_listing(type(spec).__name__, f"the {type(spec).__name__}", records, options)
    if hasattr(spec, "__len__") and hasattr(spec, "__getitem__"):
        return _from_dataset(type(spec).__name__, spec, range(len(spec)), spec.__getitem__, options)
    listing = _from_iterable(type(spec).__name__, spec, options)
    if options.classes is None and (names := _feature_names(spec, _label_key(spec, options))):
        return replace(listing, labels=Labels(names))
    return listing


def _label_key(spec: Any, options: SourceOptions) -> str | None:
    """The key of the labels, where a data set says which columns it has."""
    features = getattr(spec, "features", None)
    return keys_of(features, options)[1] if isinstance(features, Mapping) else None


def _feature_names(source: Any, key: str | None) -> tuple[str, ...]:
    """The names of the classes that a data set of Hugging Face states for a column."""
    features = getattr(source, "features", None)
    named = getattr(features[key], "names", None) if isinstance(features, Mapping) and key in features else None
    return tuple(map(str, named or ()))


def _records(spec: Any) -> list[Row] | None:
    """A data frame's rows, of pandas or polars."""
    if hasattr(spec, "to_dicts"):
        return [Row(cells) for cells in spec.to_dicts()]
    if hasattr(spec, "iloc") and hasattr(spec, "to_dict"):
        return [Row({str(k): v for k, v in cells.items()}) for cells in spec.to_dict("records")]
    return None


def _from_mapping(spec: Mapping[str, Any], options: SourceOptions) -> Listing:
    """A batch of columns; a dict of data sets is asked for one of them."""
    if spec and all(_has_items(v) and not isinstance(v, _COLUMNS) for v in spec.values()):
        names = [str(name) for name in spec]
        raise HeatcheckError(f"data= is a dict of data sets, {', '.join(names)}: pass one, such as data[{names[-1]!r}]")
    return _listing("", unbatched(spec, options), options)


def _has_items(value: Any) -> bool:
    return hasattr(value, "__getitem__") or hasattr(value, "__iter__")


_COLUMNS = (Tensor, np.ndarray, list, tuple, str)


def _from_loader(loader: "DataLoader[Any]", options: SourceOptions) -> Listing:
    """A loader's data set, in its own order; what the loader's collate function does is done to each item."""
    source, collate = loader.dataset, loader.collate_fn
    notes: tuple[str, ...] = ()
    if isinstance(source, IterableDataset):
        return _from_iterable(type(source).__name__, loader, options)
    sampler = loader.sampler
    indices: Sequence[int] = range(len(source))  # type: ignore[arg-type]
    if isinstance(sampler, SubsetRandomSampler):
        indices = sorted(int(i) for i in sampler.indices)
    elif not isinstance(sampler, SequentialSampler | RandomSampler) or type(loader.batch_sampler) not in (
        BatchSampler,
        type(None),
    ):
        chooser = sampler if type(loader.batch_sampler) in (BatchSampler, type(None)) else loader.batch_sampler
        raise HeatcheckError(
            f"the DataLoader's {type(chooser).__name__} gives no order that another run could repeat: pass its data set, "
            "loader.dataset, or a torch.utils.data.Subset of it"
        )
    if isinstance(sampler, RandomSampler | SubsetRandomSampler):
        notes = ("the DataLoader shuffles; its data set is read in its own order, so that runs can be repeated",)

    def get(index: int) -> Any:
        item = source[index]
        if collate is default_collate:
            return item
        return collate([item]) if loader.batch_size is not None else collate(item)

    listing = _from_dataset(type(source).__name__, source, indices, get, options)
    return replace(listing, notes=(*notes, *listing.notes))


def _from_iterable(name: str, spec: Iterable[Any], options: SourceOptions) -> Listing:
    """The first items of something that can only be read in order; all of them, where it ends soon."""
    limit = _ENDLESS if options.samples is None else options.samples
    rows = _rows(spec, options)
    items = list(islice(rows, limit))
    if options.samples is None and next(rows, None) is not None:
        raise HeatcheckError(
            f"the {name} has no length and gives over {_ENDLESS:,} items, perhaps without end: say how many to read with "
            "samples="
        )
    if not items:
        raise HeatcheckError(f"the {name} gives no items; a generator can be read only once: make a list of it")
    return _listing(name, items, options)


def _rows(spec: Iterable[Any], options: SourceOptions) -> Iterator[Any]:
    for item in spec:
        yield from unbatched(item, options)


def _from_dataset(
    name: str, source: Any, indices: Sequence[int], get: Callable[[int], Any], options: SourceOptions
) -> Listing:
    """Items by position; one that cannot be read becomes a sample with a problem."""
    names = [f"{i:05d}" for i in indices]

    def one(index: int) -> Any:
        rows = unbatched(get(index), options)
        if len(rows) != 1:
            raise HeatcheckError(f"the item is a batch of {len(rows)}; give one input per item")
        return rows[0]

    first, modality = _first(indices, one, options)
    labels = _labels(source, indices, one, first, options)

    def make(position: int) -> tuple[Sample, Any]:
        try:
            item = one(indices[position])
            content, label = split(item, options)
        except Exception as error:  # a user's code: one bad item must not cost the others
            kind = "" if isinstance(error, HeatcheckError) else f"{type(error).__name__}: "
            problem = f"the item cannot be read: {kind}{error}"
            return Sample(names[position], digest_of("unreadable", names[position]), None, problem=problem), None
        return sample_of(modality, names[position], content, reference_of(item)), label

    said = item_notes(one(first), len(indices), labels, options)
    notes = (*said, *_changing(modality, lambda: split(one(first), options)[0]))
    return Listing(name=name, modality=modality, names=names, make=make, labels=labels, notes=notes)


def _first(indices: Sequence[int], one: Callable[[int], Any], options: SourceOptions) -> tuple[int, Modality]:
    """The first item that can be read, and its modality."""
    refusal: HeatcheckError | None = None
    for index in indices:
        try:
            found = modality_of(split(one(index), options)[0])
        except HeatcheckError as error:
            refusal = refusal or error
            continue
        except Exception:  # noqa: S112 (reported when the item is made)
            continue
        if found is not None:
            return index, found
    if refusal is not None:
        raise refusal
    raise HeatcheckError(
        f"none of the data set's {len(indices)} items is a text, a picture or a tensor that is ready for a model; "
        f"items are (content, label), or dicts with one of {', '.join(CONTENT_KEYS)}"
    )


def _labels(
    source: Any, indices: Sequence[int], one: Callable[[int], Any], first: int, options: SourceOptions
) -> Labels:
    """The classes that a user gives, else the data set's own, else the words that its labels are.

    All labels are read for this where the first is a word, a fraction, or written as one.
    """
    if options.classes is not None:
        return Labels.given(options.classes)
    item = one(first)
    label = split(item, options)[1]
    key = keys_of(item, options)[1] if isinstance(item, Mapping) else None
    named = _feature_names(source, key)
    inner = getattr(source, "dataset", source)
    given = named or getattr(source, "classes", getattr(inner, "classes", None))
    if isinstance(given, list | tuple):
        by_folder = hasattr(source, "class_to_idx") or hasattr(inner, "class_to_idx")
        return Labels(tuple(str(name) for name in given), sorted_names=by_folder)
    plain = label.item() if getattr(label, "ndim", None) == 0 else label
    if not isinstance(plain, float) and (not isinstance(plain, str) or as_index(plain) is not None):
        return Labels()
    return Labels.of(_written(indices, one, options))


def _written(indices: Sequence[int], one: Callable[[int], Any], options: SourceOptions) -> Iterator[Any]:
    """Every label of a data set."""
    for index in indices:
        try:
            yield split(one(index), options)[1]
        except Exception:  # noqa: S112 (reported when the item is made)
            continue


def _changing(modality: Modality, read: Callable[[], Any]) -> tuple[str, ...]:
    """A note, where an item is another one when it is read again."""
    once, again = (sample_of(modality, "", read(), {}).digest for _ in range(2))
    if once == again:
        return ()
    return (
        "items change from one reading to the next (random transforms?), so that no run can be repeated or resumed",
    )
