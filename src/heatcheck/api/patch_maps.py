"""Maps of gradients on networks that cut pictures into patches, and how far they show the patches."""

from collections.abc import Sequence

import numpy as np

from heatcheck.api.model_specs import patch_of
from heatcheck.api.questions import MAPPED
from heatcheck.api.result import Result
from heatcheck.run.reader import SectionReader
from heatcheck.stats.patch_borders import border_excess

SHOWING = ("integrated_gradients", "smoothgrad")
"""Methods whose maps are said to show patches, whatever their settings."""


def borders(result: Result, most: int = MAPPED) -> dict[tuple[str, str], np.ndarray]:
    """How far stored maps show the borders of patches, per sample, by model and method.

    The side of a patch comes from a stored map of an attention method, which has a value per patch, or else from the
    model's spec or name. Networks without patches, and maps that are not stored pixel by pixel, are left out.

    Args:
        result: a run.
        most: samples of each model whose maps are read.
    """
    found: dict[tuple[str, str], np.ndarray] = {}
    methods = [m["name"] for m in result.facts["methods"] if m["id"] in SHOWING]
    attentive = [m["name"] for m in result.facts["methods"] if m.get("family") == "attention"]
    for section in result.sections if methods else ():
        samples = [s["name"] for s in section.manifest["samples"]][:most]
        for model in (m["name"] for m in section.manifest["models"] if m["modality"] == "image"):
            grid, patch = _grid(section, model, samples, attentive), patch_of(result.facts, model)
            for method in methods if grid or patch else ():
                maps = (section.map(model, sample, method) for sample in samples)
                values = np.array([border_excess(a, _side(a.shape, grid, patch)) for a in maps if a is not None])
                if (~np.isnan(values)).any():
                    found[model, method] = values[~np.isnan(values)]
    return found


def _grid(
    section: SectionReader, model: str, samples: Sequence[str], attentive: Sequence[str]
) -> tuple[int, ...] | None:
    """Patches down and across, from the first stored map of an attention method."""
    maps = (section.map(model, sample, method) for sample in samples[:1] for method in attentive)
    return next((a.shape for a in maps if a is not None), None)


def _side(shape: tuple[int, ...], grid: tuple[int, ...] | None, patch: int) -> int:
    """Pixels of a patch's side in a map; 0 where its patches are not square, or their side is not known."""
    if grid is not None:
        (high, rest), (wide, left) = (divmod(n, cells) for n, cells in zip(shape, grid, strict=True))
        return high if high == wide and not rest and not left else 0
    return patch if patch and not any(n % patch for n in shape) else 0
