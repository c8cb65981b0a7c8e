"""torchvision, timm and transformers, also where torchvision's compiled operators do not load.

A torchvision built for CUDA cannot load its operators beside a CPU build of torch, and then `import torchvision`
itself dies, and with it timm and transformers, although no classifier needs those operators. Declaring the two
that it stumbles over is enough. Every import of the three goes through here.
"""

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from heatcheck.core.extras import require

_SCHEMAS = tuple(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for op in ("nms", "qnms"))
_declared: list[torch.library.Library] = []
"""Libraries that must live as long as the process; their operators vanish with them."""


def load_torchvision(what: str = "heatcheck") -> Any:
    """The torchvision package; `what` needs it."""
    require(what, "torchvision")
    return _import_torchvision()


@cache
def _import_torchvision() -> Any:
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as problem:
        if "torchvision::nms does not exist" not in str(problem):
            raise
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for schema in _SCHEMAS:
        library.define(schema)  # type: ignore[no-untyped-call]
    _declared.append(library)
    return importlib.import_module("torchvision")


def load_timm(what: str = "heatcheck") -> Any:
    """The timm package; `what` needs it."""
    require(what, "timm", "torchvision")
    _import_torchvision()
    return importlib.import_module("timm")


def load_transformers(what: str = "heatcheck") -> Any:
    """The transformers package, which `what` needs; it imports torchvision wherever that is installed."""
    require(what, "transformers")
    if importlib.util.find_spec("torchvision") is not None:
        _import_torchvision()
    return importlib.import_module("transformers")


@contextmanager
def without_bars() -> Iterator[None]:
    """Hide transformers' progress bars for loading and saving."""
    logging = load_transformers().utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def without_reports() -> Iterator[None]:
    """Hide transformers' reports on weights that a file lacks or has beside a network's."""
    logging = load_transformers().utils.logging
    shown = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(shown)
