"""Preprocessing as other libraries describe it: timm, torchvision, transformers; and what a bare module lets guess."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image
from torch import nn

from heatcheck.core.types import HeatcheckError
from heatcheck.models.preprocess import CROP, Cut, Preprocess
from heatcheck.models.presets import FORM, PRESETS, parse_preprocess
from heatcheck.models.vision_shim import load_transformers

_MORE = ("do_pad", "rescale_offset", "do_flip_channel_order", "do_thumbnail", "do_align_long_axis")
"""What some image processors of transformers do beside scaling, cropping and normalising."""


def as_preprocess(value: Any) -> Preprocess | Cut | None:
    """Preprocessing in any of the forms in which users have it.

    Args:
        value: a `Preprocess` or a `Cut`; a text such as `imagenet`, `mean=…,std=…,size=…` or `tokens=…`; timm's `pretrained_cfg` or data
            config; torchvision's weights, their `transforms()` or a `Compose` of the usual steps; an image processor
            of transformers; the arguments of a `Preprocess` as a mapping; or None.

    Raises:
        HeatcheckError: it is none of these, or does more than scale, crop and normalise.
    """
    if value is None or isinstance(value, Preprocess | Cut):
        return value
    if isinstance(value, str):
        return _from_settings(parse_preprocess(value))
    if isinstance(value, Mapping):
        return from_timm(value) if "input_size" in value else _from_settings(value)
    if hasattr(value, "input_size") and hasattr(value, "mean"):
        return from_timm(vars(value))
    if callable(getattr(value, "transforms", None)):
        return as_preprocess(value.transforms())
    if {"mean", "std", "crop_size", "resize_size", "interpolation"} <= set(dir(value)):
        return from_torchvision(value)
    if isinstance(steps := getattr(value, "transforms", None), Sequence):
        return from_steps(steps)
    if hasattr(value, "image_mean") and hasattr(value, "to_dict"):
        return from_processor(value)
    raise HeatcheckError(
        f"preprocess={value!r} is a {type(value).__name__}; pass {FORM}, hc.Preprocess(…), torchvision's "
        "weights.transforms(), timm's pretrained_cfg or an image processor of transformers"
    )


def _from_settings(settings: Mapping[str, Any]) -> Preprocess | Cut:
    try:
        return Cut(**settings) if "tokens" in settings else Preprocess(**settings)
    except TypeError as problem:
        raise HeatcheckError(f"preprocess={dict(settings)!r}: {problem}; see hc.Preprocess") from problem


def from_timm(cfg: Mapping[str, Any]) -> Preprocess:
    """The preprocessing that a timm `pretrained_cfg` describes."""
    size = tuple(cfg["input_size"])[-2:]
    share = cfg.get("crop_pct") or CROP
    mode = cfg.get("crop_mode") or "center"
    if mode != "center" and (mode != "squash" or share < 1):
        raise HeatcheckError(
            f"timm's crop_mode={mode!r} with crop_pct={share} is not known here: pass preprocess=hc.Preprocess(…)"
        )
    return Preprocess(
        mean=cfg["mean"],
        std=cfg["std"],
        size=(size[0], size[1]),
        resize=int(min(size) / share),
        fit="squash" if mode == "squash" else "crop",
        interpolation=cfg.get("interpolation") or "bilinear",
    )


def from_torchvision(transforms: Any) -> Preprocess:
    """The preprocessing that torchvision's `weights.transforms()` describes."""
    return Preprocess(
        mean=transforms.mean,
        std=transforms.std,
        size=int(transforms.crop_size[0]),
        resize=int(transforms.resize_size[0]),
        interpolation=transforms.interpolation.value,
    )


def from_steps(steps: Sequence[Any]) -> Preprocess:
    """The preprocessing that the steps of a torchvision `Compose` describe: scale, crop, to tensor, normalise."""
    found: dict[str, Any] = {}
    scaled = False
    for step in steps:
        match type(step).__name__:
            case "Resize" if "resize" not in found and "size" not in found:
                found |= _resized(step)
            case "CenterCrop" if "resize" in found:
                found["size"] = _side(step.size)
            case "PILToTensor" | "ToImage":
                pass
            case "ToTensor" | "ConvertImageDtype":
                scaled = True
            case "ToDtype" if step.scale:
                scaled = True
            case "Normalize" if "mean" not in found:
                found |= {"mean": tuple(step.mean), "std": tuple(step.std)}
            case other:
                raise HeatcheckError(
                    f"preprocess=Compose(…) has the step {other}, where scaling, a centre crop and one normalisation "
                    f"are understood; pass {FORM}"
                )
    if not scaled:
        raise HeatcheckError("preprocess=Compose(…) lacks a step that brings colours to [0, 1], such as ToTensor()")
    if "size" not in found:
        raise HeatcheckError(f"preprocess=Compose(…) gives pictures of no fixed size; add CenterCrop, or pass {FORM}")
    return Preprocess(**{"mean": (0.0,) * 3, "std": (1.0,) * 3, **found})


def _resized(step: Any) -> dict[str, Any]:
    side = _side(step.size)
    how: dict[str, Any] = {"interpolation": getattr(step.interpolation, "value", step.interpolation)}
    return how | ({"resize": side} if isinstance(side, int) else {"size": side, "fit": "squash"})


def _side(size: Any) -> int | tuple[int, int]:
    """A side, or a height and a width; torchvision writes a side as a number or a list of one."""
    sides = [size] if isinstance(size, int) else list(size)
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def from_processor(processor: Any) -> Preprocess:
    """The preprocessing that a transformers image processor describes.

    Where the scaled picture exceeds the crop by an odd number of pixels, theirs may sit one pixel off.
    """
    facts = processor.to_dict()
    if facts.get("do_resize") is False or any(facts.get(more) for more in _MORE):
        raise HeatcheckError(
            f"{type(processor).__name__} does more than scale, crop and normalise: pass preprocess=hc.Preprocess(…)"
        )
    scale = facts.get("rescale_factor", 1 / 255) * 255 if facts.get("do_rescale", True) else 255.0
    normalise = facts.get("do_normalize", True)
    mean, std = (facts["image_mean"], facts["image_std"]) if normalise else ((0.0,) * 3, (1.0,) * 3)
    resize, size, fit = _processor_size(facts)
    return Preprocess(
        mean=tuple(m / scale for m in mean),
        std=tuple(s / scale for s in std),
        size=size,
        resize=resize,
        fit=fit,
        interpolation=Image.Resampling(int(facts.get("resample", Image.Resampling.BILINEAR))).name.lower(),
    )


def _processor_size(facts: Mapping[str, Any]) -> tuple[int | None, tuple[int, int], str]:
    size, crop = facts["size"], facts.get("crop_size") or facts["size"]
    edge = size if isinstance(size, int) else size.get("shortest_edge")
    if edge is None:
        whole = (int(size["height"]), int(size["width"]))
        if not facts.get("do_center_crop"):
            return None, whole, "squash"
        raise HeatcheckError("a processor that squashes and then crops: pass preprocess=hc.Preprocess(…)")
    share = facts.get("crop_pct")
    if share is not None:  # ConvNeXt's rule: large inputs are squashed, small ones cropped
        return (None, (edge, edge), "squash") if edge >= 384 else (int(edge / share), (edge, edge), "crop")
    if facts.get("do_center_crop"):
        side = (crop, crop) if isinstance(crop, int) else (int(crop["height"]), int(crop["width"]))
        return edge, side, "crop"
    raise HeatcheckError("a processor whose output has no fixed size: pass preprocess=hc.Preprocess(…)")


def inferred(network: nn.Module) -> Preprocess | None:
    """The preprocessing that a module itself knows of, as timm's do."""
    cfg = getattr(network, "pretrained_cfg", None) or getattr(network, "default_cfg", None)
    if cfg is not None and not isinstance(cfg, Mapping):
        cfg = vars(cfg)
    return from_timm(cfg) if cfg and {"mean", "std", "input_size"} <= set(cfg) else None


@dataclass(frozen=True)
class Guess:
    """Preprocessing that a module does not state, and what it was concluded from."""

    preprocess: Preprocess
    because: str


def likely(network: nn.Module) -> Guess | None:
    """The preprocessing that a module's origin or parts make likely, with the reason; None where nothing speaks for any."""
    return next(_guesses(network), None)


def _guesses(network: nn.Module) -> Iterator[Guess]:
    for path, module in network.named_modules():
        part = f"its part {path!r}" if path else "the module"
        if path and (known := inferred(module)) is not None:
            yield Guess(known, f"from the pretrained_cfg of {part}")
        if (processor := _own_processor(module)) is not None:
            yield Guess(processor, f"from the image processor that lies beside the weights of {part}")
        origin = type(module).__module__
        if origin.startswith("torchvision.models."):
            yield Guess(_imagenet(module), f"ImageNet's, since {part} is torchvision's {type(module).__name__}")
        elif origin.startswith("transformers.models.") and _picture_size(module) is not None:
            yield Guess(_imagenet(module), f"ImageNet's, since {part} is {type(module).__name__} of transformers")


def _own_processor(module: nn.Module) -> Preprocess | None:
    """What the image processor says that was saved with a model of transformers, where it is on this machine."""
    place = getattr(getattr(module, "config", None), "_name_or_path", "")
    if not place or "transformers" not in sys.modules:
        return None
    known = Path(place)
    if known.is_dir() and not (known / "preprocessor_config.json").is_file():
        return None
    try:
        return from_processor(load_transformers().AutoImageProcessor.from_pretrained(place, local_files_only=True))
    except (OSError, ValueError, KeyError, HeatcheckError):
        return None


def _imagenet(module: nn.Module) -> Preprocess:
    known = Preprocess(**PRESETS["imagenet"])
    size = _picture_size(module)
    return known if size is None else replace(known, size=size, resize=round(min(size) * 256 / 224))


def _picture_size(module: nn.Module) -> tuple[int, int] | None:
    """The side of the pictures that a module says it takes."""
    for owner in (getattr(module, "config", None), module):
        for name in ("image_size", "img_size"):
            size = getattr(owner, name, None)
            if isinstance(size, int):
                return size, size
            if isinstance(size, tuple | list) and len(size) == 2:
                return int(size[0]), int(size[1])
    return None
