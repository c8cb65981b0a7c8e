"""Data sources and data sets. Listing the sources does not import torch; loading does."""

from typing import TYPE_CHECKING, Any

from heatcheck.core.sources import import_attribute
from heatcheck.data.catalogue import DataSource, sources

if TYPE_CHECKING:
    from heatcheck.data.base import Dataset
    from heatcheck.data.imagenet_names import imagenet_classes, imagenet_wnids
    from heatcheck.data.images import decode_image
    from heatcheck.data.load import load_data
    from heatcheck.data.references import region
    from heatcheck.data.sentiment import corpus

__all__ = [
    "DataSource",
    "Dataset",
    "corpus",
    "decode_image",
    "imagenet_classes",
    "imagenet_wnids",
    "load_data",
    "region",
    "sources",
]

_LAZY = {
    "Dataset": "base",
    "corpus": "sentiment",
    "decode_image": "images",
    "imagenet_classes": "imagenet_names",
    "imagenet_wnids": "imagenet_names",
    "load_data": "load",
    "region": "references",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_attribute(f"{__name__}.{_LAZY[name]}", name)
