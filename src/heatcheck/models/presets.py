"""Preprocessing as a user writes it: `imagenet`, `clip,size=336`, `mean=0.5 0.5 0.5,std=0.5 0.5 0.5,size=96`, `tokens=256`."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from heatcheck.core.spec import SpecError, suggest

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "imagenet": {
            "mean": (0.485, 0.456, 0.406),
            "std": (0.229, 0.224, 0.225),
            "size": 224,
            "resize": 256,
            "interpolation": "bilinear",
        },
        "clip": {
            "mean": (0.48145466, 0.4578275, 0.40821073),
            "std": (0.26862954, 0.26130258, 0.27577711),
            "size": 224,
            "resize": 224,
            "interpolation": "bicubic",
        },
        "inception": {"mean": (0.5,) * 3, "std": (0.5,) * 3, "size": 299, "interpolation": "bicubic"},
    }
)
"""The usual ways to prepare a picture, by name: torchvision's, OpenAI's and Google's."""
FORM = "imagenet, clip, inception, or mean=…,std=…,size=… with one number per channel; for texts tokens=…"
_KEYS = ("mean", "std", "size", "resize", "fit", "interpolation", "tokens")
_NUMBERS = {"mean": float, "std": float, "size": int, "resize": int, "tokens": int}
_PART = re.compile(r"\s*(\w+)\s*=\s*([^=]*?)\s*(?:,\s*(?=\w+\s*=)|$)")


def parse_preprocess(text: str) -> dict[str, Any]:
    """The arguments of a `Preprocess` that a text describes: a name, single settings, or a name and changes to it.

    For texts, there is `tokens` alone, the argument of a `Cut`.

    >>> parse_preprocess("mean=0.5 0.5 0.5, std=0.2,0.2,0.2, size=96")
    {'mean': (0.5, 0.5, 0.5), 'std': (0.2, 0.2, 0.2), 'size': 96}

    Raises:
        SpecError: it cannot be read; repeats it, and says how it is written.
    """
    name, _, rest = text.strip().partition(",") if "=" not in text.partition(",")[0] else ("", "", text)
    name = name.strip()
    if name and name not in PRESETS:
        raise SpecError(f"preprocess={text!r} is not known{suggest(name, PRESETS)}; write {FORM}")
    settings: dict[str, Any] = dict(PRESETS[name]) if name else {}
    changes = _settings(text, rest)
    if "size" in changes and "resize" not in changes and "resize" in settings:  # the same share is cropped
        before = settings["size"]
        settings["resize"] = round(settings["resize"] * _shorter(changes["size"]) / before)
    settings.update(changes)
    if "tokens" in settings:
        if len(settings) > 1:
            raise SpecError(f"preprocess={text!r}: tokens= is for texts, and everything else for pictures")
        if not isinstance(settings["tokens"], int) or settings["tokens"] < 1:
            raise SpecError(f"preprocess={text!r}: tokens= is one whole number, such as 256")
        return settings
    if not {"mean", "std"} <= settings.keys():
        raise SpecError(f"preprocess={text!r} lacks mean= or std=; write {FORM}")
    return settings


def _settings(text: str, rest: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    at = 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            raise SpecError(f"preprocess={text!r} cannot be read from {rest[at:]!r} on; write {FORM}")
        key, value = part.groups()
        if key not in _KEYS:
            raise SpecError(f"preprocess={text!r}: there is no {key!r}{suggest(key, _KEYS)}")
        found[key] = _value(text, key, value)
        at = part.end()
    return found


def _value(text: str, key: str, value: str) -> Any:
    if key not in _NUMBERS:
        return value
    try:
        numbers = tuple(_NUMBERS[key](v) for v in re.split(r"[\s,]+", value))
    except ValueError:
        kind = "numbers" if _NUMBERS[key] is float else "whole numbers"
        raise SpecError(f"preprocess={text!r}: {key}={value!r} are no {kind}") from None
    return numbers if _NUMBERS[key] is float or len(numbers) > 1 else numbers[0]


def _shorter(size: int | tuple[int, ...]) -> int:
    return size if isinstance(size, int) else min(size)
