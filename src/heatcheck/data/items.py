"""Samples that are already in memory, one by one: what an item's content and label are, and what a batch holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from heatcheck.core.spec import suggest
from heatcheck.core.types import HeatcheckError, Modality, Sample, TextPair, digest_of_tensor
from heatcheck.data.base import SourceOptions
from heatcheck.data.images import SUFFIXES, picture_sample
from heatcheck.data.labels import Labels
from heatcheck.data.references import KINDS, picture_with, text_with
from heatcheck.data.tables import LABEL_COLUMNS, TEXT_COLUMNS, asked_columns, text_of, usual_pair
from heatcheck.data.texts import text_sample

CONTENT_KEYS = (
    "image",
    "img",
    "picture",
    "pixel_values",
    "pixels",
    "input",
    "inputs",
    *TEXT_COLUMNS,
    "input_ids",
)
LABEL_KEYS = (*LABEL_COLUMNS, "fine_label", "coarse_label")
_TOKENS = ("input_ids", "attention_mask", "token_type_ids")
_INTEGERS = (torch.int64, torch.int32, torch.int16)
_FEW = 10
"""Items of which each may have another class."""
_SHOWN = 40
"""Characters of a text that a message repeats."""


def split(item: Any, options: SourceOptions) -> tuple[Any, Any]:
    """An item's content and label, None if it has none.

    Raises:
        HeatcheckError: the item is a dict without a known key, or holds several inputs.

    >>> split(("It rains.", "It is wet.", 0), SourceOptions())
    (TextPair(first='It rains.', second='It is wet.'), 0)
    """
    if isinstance(item, Mapping):
        contents, label = keys_of(item, options)
        found = _tokens(item) if contents == ("input_ids",) else text_of(item, contents)
        return _content(found), None if label is None else item[label]
    if isinstance(item, tuple | list) and item and not isinstance(item, TextPair):
        return _split_parts(item)
    return _content(item), None


def _split_parts(item: Sequence[Any]) -> tuple[Any, Any]:
    if _is_pair(item):
        if len(item) > 3 or not _may_be_label(item[2]):
            raise HeatcheckError(
                f"{_parts(item)}: two texts and their label are understood, (first, second, label), or one text and its label; "
                'for more, give dicts such as {"premise": …, "hypothesis": …, "label": …, "spans": …}'
            )
        return TextPair(str(item[0]), str(item[1])), item[2]
    if len(item) > 1 and not _may_be_label(item[1]):
        raise HeatcheckError(
            f"{_parts(item)}: one input and its label are understood; for a model of several inputs, give one and fix the "
            "others in a function around the model, for what a map should show, give dicts such as "
            '{"image": …, "label": …, "mask": …}'
        )
    return _content(item[0]), item[1] if len(item) > 1 else None


def _is_pair(item: Sequence[Any]) -> bool:
    """Whether an item of three or more parts begins with two texts."""
    return len(item) > 2 and all(isinstance(part, str) for part in item[:2]) and not are_picture_paths(item[:1])


def keys_of(item: Mapping[str, Any], options: SourceOptions) -> tuple[tuple[str, ...], str | None]:
    """The keys of a dict's content, two for a pair of texts, and of its label: those a user names, else usual ones.

    Raises:
        HeatcheckError: there is no such key, or the dict holds a picture and tokens.
    """
    keys = [str(key) for key in item]
    asked = asked_columns(options.text_column, keys)
    contents = tuple(_asked(key, "text_column", keys) for key in asked) or _usual_keys(item)
    label = next((k for k in LABEL_KEYS if k in item), None)
    if options.label_column is not None:
        label = _asked(options.label_column, "label_column", keys)
    if not contents:
        raise HeatcheckError(
            f"items are dicts with {', '.join(keys) or 'nothing'}: which holds the text or picture? Pass text_column=, or "
            f"call it {', '.join(CONTENT_KEYS[:3])}, {TEXT_COLUMNS[0]} …"
        )
    if "pixel_values" in item and "input_ids" in item and options.text_column is None:
        raise HeatcheckError(
            "items hold several inputs, pixel_values and input_ids: one is explained at a time; name it with text_column= "
            "and fix the other in a function around the model"
        )
    return contents, label


def _usual_keys(item: Mapping[str, Any]) -> tuple[str, ...]:
    """The key of a picture or of something that is ready for a model, the two keys of a pair, or that of a text.

    Token ids are taken where no text stands beside them.
    """
    ready = next(((key,) for key in CONTENT_KEYS[: CONTENT_KEYS.index(TEXT_COLUMNS[0])] if key in item), ())
    texts = usual_pair(map(str, item)) or next(((key,) for key in TEXT_COLUMNS if key in item), ())
    if "input_ids" in item and not (texts and all(_are_texts(item[key]) for key in texts)):
        texts = ("input_ids",)
    return ready or texts


def _are_texts(value: Any) -> bool:
    """Whether it is a text, or a batch of texts."""
    return isinstance(value, str) or (isinstance(value, list | tuple) and all(isinstance(v, str) for v in value))


def _asked(key: str | int, option: str, keys: Sequence[str]) -> str:
    if key in keys:
        return str(key)
    near = suggest(str(key), keys)
    hint = near if "did you mean" in near else ""
    raise HeatcheckError(f"{option}={key!r}: items have no such key; they have {', '.join(keys)}{hint}")


def item_notes(item: Any, n: int, labels: Labels, options: SourceOptions) -> tuple[str, ...]:
    """Which keys of dicts and parts of tuples are used, and which are not, by the first of n items."""
    if isinstance(item, Mapping):
        return _key_notes(item, options)
    if not isinstance(item, tuple | list) or isinstance(item, TextPair):
        return ()
    if _is_pair(item):
        return ("items are pairs of texts, their first two parts, and labels, the third",)
    if len(item) > 2:
        rest = ", ".join(_kind(part) for part in item[2:])
        return (f"contents are the first part of items, labels the second; not used: {rest}",)
    return _second_texts(item, n, labels)


def _second_texts(item: Sequence[Any], n: int, labels: Labels) -> tuple[str, ...]:
    """A note, where no two labels are the same and they may be the second texts of pairs."""
    texts = len(item) == 2 and all(isinstance(part, str) for part in item) and not are_picture_paths(item[:1])
    if not texts or not labels.only_names or labels.classes is None or len(labels.classes) != n:
        return ()
    if n <= _FEW and not all(len(name.split()) > 1 for name in labels.classes):
        return ()
    return (
        f"every label is another text, such as {_kind(item[1])}: if items are pairs of texts, give "
        "hc.TextPair(first, second), or (first, second, label)",
    )


def _key_notes(item: Mapping[str, Any], options: SourceOptions) -> tuple[str, ...]:
    contents, label = keys_of(item, options)
    beside = "input_ids" in item and contents != ("input_ids",)
    used = {*contents, *KINDS, *(_TOKENS if "input_ids" in item else ()), *((label,) if options.labels_count else ())}
    unused = [str(key) for key in item if key not in used]
    labels = ", no labels" if label is None else f", labels are {label!r}"
    shown = " and ".join(map(repr, contents))
    said = f"pairs of {shown}" if len(contents) == 2 else shown
    rest = f"{'; not used: ' if unused else ''}{', '.join(unused)}"
    tokens = _BESIDE if beside else ""
    return (f"contents are {said}{labels if options.labels_count else ''}{rest}{tokens}",)


_BESIDE = "; token ids beside them are not used (--text-column input_ids, in Python text_column=, names them instead)"


def unbatched(item: Any, options: SourceOptions) -> list[Any]:
    """The items of a batch; an item that is no batch by itself."""
    if isinstance(item, Mapping):
        n = _batch_size(item[keys_of(item, options)[0][0]])
        return [item] if n is None else [{k: _row(v, i, n) for k, v in item.items()} for i in range(n)]
    if isinstance(item, tuple | list) and item and not isinstance(item, TextPair):
        n = _batch_size(item[0])
        return [item] if n is None else [tuple(_row(part, i, n) for part in item) for i in range(n)]
    n = _batch_size(item)
    return [item] if n is None else [item[i] for i in range(n)]


def _batch_size(content: Any) -> int | None:
    """How many inputs a content holds; None if it is one by itself."""
    if isinstance(content, TextPair):
        return None
    if isinstance(content, Tensor | np.ndarray):
        batch = content.ndim == 4 or (content.ndim == 2 and _is_integral(content))
        return len(content) if batch else None
    if isinstance(content, list | tuple) and content:
        return len(content) if not isinstance(content[0], int | float | np.number) else None
    return None


def _row(part: Any, index: int, n: int) -> Any:
    sized = hasattr(part, "__len__") and not isinstance(part, str | bytes | Mapping) and getattr(part, "ndim", 1) > 0
    return part[index] if sized and len(part) == n else part


def _is_integral(values: Tensor | np.ndarray) -> bool:
    return values.dtype in _INTEGERS if isinstance(values, Tensor) else values.dtype.kind == "i"


def _tokens(item: Mapping[str, Any]) -> Any:
    """Token ids without padding, where a mask says which they are."""
    ids, mask, kinds = (_content(item.get(key)) for key in _TOKENS)
    if isinstance(kinds, Tensor) and kinds.any():
        raise HeatcheckError(
            "items are pairs of texts (token_type_ids are not all 0), of which only token ids are given: give the two "
            'texts, such as {"premise": …, "hypothesis": …, "label": …}, or hc.TextPair(first, second)'
        )
    whole = isinstance(ids, Tensor) and isinstance(mask, Tensor) and ids.shape == mask.shape
    return ids[mask.bool()] if whole else ids


def _content(value: Any) -> Any:
    """A content in one of the forms that samples are made of."""
    if isinstance(value, list) and value and all(isinstance(v, int) and not isinstance(v, bool) for v in value):
        return torch.tensor(value)
    if isinstance(value, np.ndarray):
        ready = value.ndim == 3 and value.dtype.kind == "f" and value.shape[0] in (1, 3)
        tokens = value.ndim == 1 and value.dtype.kind == "i"
        return torch.from_numpy(np.ascontiguousarray(value)) if ready or tokens else value
    if isinstance(value, Tensor) and value.dtype == torch.uint8:
        last = value.movedim(0, -1) if value.ndim == 3 and value.shape[0] in (1, 3, 4) else value
        return last.contiguous().numpy()
    return str(value) if isinstance(value, np.str_) else value


def _may_be_label(part: Any) -> bool:
    if isinstance(part, Tensor | np.ndarray):
        return part.ndim < 2
    return not isinstance(part, Mapping | Image.Image | Path | bytes)


def _parts(item: Sequence[Any]) -> str:
    return f"items have {len(item)} parts, {', '.join(_kind(part) for part in item)}"


def _kind(part: Any) -> str:
    if isinstance(part, str):
        return repr(part if len(part) <= _SHOWN else f"{part[: _SHOWN - 1]}…")
    if isinstance(part, Tensor | np.ndarray):
        return f"{type(part).__name__} {list(part.shape)}"
    return f"dict with {', '.join(map(str, part))}" if isinstance(part, Mapping) else type(part).__name__


def reference_of(item: Any) -> dict[str, Any]:
    """What an item's map should show, if it is a dict that says so."""
    return {kind: item[kind] for kind in KINDS if kind in item} if isinstance(item, Mapping) else {}


def are_picture_paths(contents: Sequence[Any]) -> bool:
    """Whether these texts are paths of pictures."""
    return bool(contents) and all(isinstance(c, str) and Path(c).suffix.lower() in SUFFIXES for c in contents)


def modality_of(content: Any) -> Modality | None:
    """What kind of classifier reads a content; None if none does."""
    if isinstance(content, str | TextPair):
        return Modality.TEXT
    if isinstance(content, Path | Image.Image | np.ndarray | bytes):
        return Modality.IMAGE
    return _modality_of_tensor(content) if isinstance(content, Tensor) else None


def _modality_of_tensor(tensor: Tensor) -> Modality | None:
    if tensor.ndim == 3 and tensor.is_floating_point():
        return Modality.IMAGE
    return Modality.TEXT if tensor.ndim == 1 and tensor.dtype in _INTEGERS else None


def sample_of(modality: Modality, name: str, content: Any, reference: Mapping[str, Any]) -> Sample:
    """A sample of a content and its references."""
    return _SAMPLES[modality](name, content, reference)


def _image(name: str, content: Any, reference: Mapping[str, Any]) -> Sample:
    ready = isinstance(content, Tensor)
    sample = _tensor_sample(name, content, Modality.IMAGE) if ready else picture_sample(name, content)
    return picture_with(sample, reference)


def _text(name: str, content: Any, reference: Mapping[str, Any]) -> Sample:
    if isinstance(content, str | TextPair):
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
