"""Samples that are already in memory: tensors, lists, torch data sets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError, Modality, Sample, digest_of, digest_of_tensor
from heatcheck.data.base import Listing, SourceOptions, distinct, numbered
from heatcheck.data.images import SUFFIXES, picture_sample
from heatcheck.data.labels import Labels
from heatcheck.data.references import KINDS, picture_with, text_with
from heatcheck.data.tables import LABEL_COLUMNS, TEXT_COLUMNS
from heatcheck.data.texts import text_sample

_CONTENT_KEYS = (
    "image",
    "img",
    "picture",
    "pixel_values",
    "pixels",
    "input",
    "inputs",
    "input_ids",
    *TEXT_COLUMNS,
)
_LABEL_KEYS = (*LABEL_COLUMNS, "fine_label", "coarse_label")
_NAMES = {Modality.IMAGE: "pictures", Modality.TEXT: "texts"}
"""What a list of samples is called."""


@source(
    "tensor",
    form="a torch Tensor, or (tensor, labels)",
    modality="image or text",
    about="inputs that are ready for the model: floats [n, c, h, w] or token ids [n, t]",
    group="objects",
    position=1,
)
def tensors(spec: Any, options: SourceOptions) -> Listing:
    """Inputs that are ready for the model: a batch, or a batch and its labels."""
    batch, labels = spec if isinstance(spec, tuple) else (spec, None)
    if batch.ndim < 2 or _modality_of_tensor(batch[0] if len(batch) else batch.new_zeros(batch.shape[1:])) is None:
        raise HeatcheckError(
            f"a tensor of {batch.dtype} {list(batch.shape)} is not a batch of inputs: "
            "give floats [n, c, h, w] (pictures) or integers [n, t] (token ids)"
        )
    if labels is not None and len(labels) != len(batch):
        raise HeatcheckError(f"{len(labels)} labels were given for {len(batch)} inputs")
    written = [None] * len(batch) if labels is None else list(labels)
    return _listing("tensors", list(zip(batch, written, strict=True)), options)


@source(
    "sequence",
    form="a list of texts, paths, pictures or (item, label) pairs",
    modality="image or text",
    about="samples held in memory; dicts may carry masks, boxes, parts or spans",
    group="objects",
    position=1,
)
def sequence(spec: Any, options: SourceOptions) -> Listing:
    """A list of texts, paths, PIL images, arrays or tensors, or of pairs of such a thing and its label.

    Items may also be dicts, such as `{"image": …, "label": …, "boxes": …}`: these can carry references.
    """
    return _listing("", list(spec), options)


def _listing(name: str, items: Sequence[Any], options: SourceOptions) -> Listing:
    pairs = [_split(item) for item in items]
    contents = [content for content, _ in pairs]
    as_paths = _are_picture_paths(contents)
    modality = _common_modality(contents, as_paths)
    names = numbered(len(items))
    if as_paths or (contents and all(isinstance(c, Path) for c in contents)):
        names = distinct([str(content) for content in contents])
    return Listing(
        name=name or _NAMES[modality],
        modality=modality,
        names=names,
        make=lambda i: (_SAMPLES[modality](names[i], contents[i], _reference(items[i])), pairs[i][1]),
        labels=Labels.of((label for _, label in pairs), options.classes),
    )


@source(
    "torch",
    form="a torch Dataset",
    modality="image or text",
    about="items (picture | tensor | text, label), or dicts with such entries",
    group="objects",
    position=1,
)
def torch_dataset(spec: Any, options: SourceOptions) -> Listing:
    """A torch Dataset, or anything with items; one that cannot be read becomes a sample with a problem.

    Without a length, it gives its first items.
    """
    if not hasattr(spec, "__len__"):
        items = list(islice(spec, options.samples))
        return _dataset_listing(type(spec).__name__, len(items), items.__getitem__, options)
    given = getattr(spec, "classes", None)
    if options.classes is None and isinstance(given, list | tuple):
        options = SourceOptions(classes=[str(c) for c in given])
    return _dataset_listing(type(spec).__name__, len(spec), spec.__getitem__, options)


def _dataset_listing(name: str, length: int, get: Callable[[int], Any], options: SourceOptions) -> Listing:
    names = numbered(length)
    modality = _first_modality(length, get)

    def make(index: int) -> tuple[Sample, Any]:
        try:
            item = get(index)
            content, label = _split(item)
        except Exception as error:  # a user's code: one bad item must not cost the others
            problem = f"the item cannot be read: {type(error).__name__}: {error}"
            return Sample(names[index], digest_of("unreadable", names[index]), None, problem=problem), None
        return _SAMPLES[modality](names[index], content, _reference(item)), label

    return Listing(name=name, modality=modality, names=names, make=make, labels=Labels.given(options.classes))


def _first_modality(length: int, get: Callable[[int], Any]) -> Modality:
    """The modality of the first item that has one."""
    for index in range(length):
        try:
            found = _modality(_split(get(index))[0])
        except Exception:  # noqa: S112 (reported when the item is made)
            continue
        if found is not None:
            return found
    raise HeatcheckError(
        f"none of the data set's {length} items is a text, a picture or a tensor that is ready for a model; "
        f"items are (content, label), or dicts with one of {', '.join(_CONTENT_KEYS)}"
    )


def _split(item: Any) -> tuple[Any, Any]:
    """An item's content and label, None if it has none."""
    if isinstance(item, Mapping):
        content = next((item[key] for key in _CONTENT_KEYS if key in item), None)
        return content, next((item[key] for key in _LABEL_KEYS if key in item), None)
    if isinstance(item, tuple | list) and item:
        return item[0], item[1] if len(item) > 1 else None
    return item, None


def _reference(item: Any) -> dict[str, Any]:
    """What an item's map should show, if it is a dict that says so."""
    return {kind: item[kind] for kind in KINDS if kind in item} if isinstance(item, Mapping) else {}


def _are_picture_paths(contents: Sequence[Any]) -> bool:
    return bool(contents) and all(isinstance(c, str) and Path(c).suffix.lower() in SUFFIXES for c in contents)


def _common_modality(contents: Sequence[Any], as_paths: bool) -> Modality:
    if as_paths or not contents:
        return Modality.IMAGE
    found = next((m for m in map(_modality, contents) if m is not None), None)
    if found is None:
        kinds = ", ".join(sorted({type(c).__name__ for c in contents}))
        raise HeatcheckError(f"a list of {kinds} holds no texts, paths, pictures or model-ready tensors")
    return found


def _modality(content: Any) -> Modality | None:
    if isinstance(content, str):
        return Modality.TEXT
    if isinstance(content, Path | Image.Image | np.ndarray | bytes):
        return Modality.IMAGE
    return _modality_of_tensor(content) if isinstance(content, Tensor) else None


def _modality_of_tensor(tensor: Tensor) -> Modality | None:
    if tensor.ndim == 3 and tensor.is_floating_point():
        return Modality.IMAGE
    integral = tensor.dtype in (torch.int64, torch.int32, torch.int16)
    return Modality.TEXT if tensor.ndim == 1 and integral else None


def _image(name: str, content: Any, reference: Mapping[str, Any]) -> Sample:
    ready = isinstance(content, Tensor)
    sample = _tensor_sample(name, content, Modality.IMAGE) if ready else picture_sample(name, content)
    return picture_with(sample, reference)


def _text(name: str, content: Any, reference: Mapping[str, Any]) -> Sample:
    if isinstance(content, str):
        return text_with(text_sample(name, content), reference)
    ready = isinstance(content, Tensor)
    sample = _tensor_sample(name, content, Modality.TEXT) if ready else text_sample(name, content)
    return replace(sample, reference=reference)


_SAMPLES: Mapping[Modality, Callable[[str, Any, Mapping[str, Any]], Sample]] = {
    Modality.IMAGE: _image,
    Modality.TEXT: _text,
}
"""What makes a sample of a content and its references."""


def _tensor_sample(name: str, tensor: Tensor, modality: Modality) -> Sample:
    problem = None
    if _modality_of_tensor(tensor) is not modality:
        problem = f"a tensor of {tensor.dtype} {list(tensor.shape)} is not one {modality} that is ready for a model"
    elif not torch.isfinite(tensor).all():
        problem = "the tensor has values that are not finite"
    return Sample(name, digest_of_tensor(tensor), tensor, problem=problem)
