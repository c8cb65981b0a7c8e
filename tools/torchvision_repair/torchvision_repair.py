"""Lets `import torchvision` work where a CPU build of torch meets a torchvision that was built for CUDA.

Such a torchvision cannot load its compiled operators, and `import torchvision` dies while it registers the gradient
and the shape of two of them, and with it timm and transformers, although no classifier needs those operators.
Declaring the two is enough. Calling one of them is still torchvision's own error, which says that they are missing.
"""

import importlib.util
import re
from pathlib import Path

SCHEMAS = tuple(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for op in ("nms", "qnms"))
_declared = []
"""Libraries that must live as long as the process; their operators vanish with them."""


def declare_missing_operators() -> None:
    """Declare what torchvision stumbles over. Torch calls this when it is imported; torchvision is not imported."""
    import torch

    if torch.version.cuda is None and _built_for_cuda():
        library = torch.library.Library("torchvision", "DEF")
        for schema in SCHEMAS:
            library.define(schema)
        _declared.append(library)


def _built_for_cuda() -> bool:
    """Whether the installed torchvision says so: its version ends in `+cu130` or the like."""
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return False
    version = Path(found.origin).with_name("version.py")
    return version.is_file() and re.search(r"\+cu\d+['\"]", version.read_text(encoding="utf-8")) is not None
