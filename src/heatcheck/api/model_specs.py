"""What is known of a run's networks from their specs: depth, width, normalisation, biases, and the side of patches."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from heatcheck.models.architectures.small.source import small_settings

FACTORS = ("depth", "width", "normalisation", "bias")
_PUBLISHED = re.compile(
    r"(?:(wide)resnet(50|101)2|(x?fixup)?resnet(18|34|50|101|152)(?:v1)?|(x?)vgg(11|13|16|19)(bn)?)"
)
_PATCH = re.compile(r"patch(\d{1,2})(?!\d)|vit[-_ ]?[a-z]{1,5}[-_/ ]?(\d{1,2})(?!\d)")


def specs_of(facts: Mapping[str, Any], name: str) -> Iterator[str]:
    """What may tell the network behind a model: the spec that its training began with, its own, and its label."""
    model: Mapping[str, Any] = next((m for m in facts["models"] if m["name"] == name), {})
    parent = (model.get("trained") or {}).get("parent") or {}
    own = facts.get("study", {}).get("models", {})
    for spec in (parent.get("spec"), parent.get("name"), own.get(name), name):
        if spec:
            yield str(spec)


def patch_of(facts: Mapping[str, Any], name: str) -> int:
    """The side of a vision transformer's patches in pixels, as its spec or name tells it; 0 where none does."""
    return next((side for side in map(patch_in, specs_of(facts, name)) if side), 0)


def patch_in(spec: str) -> int:
    """The side of a patch in a spec.

    >>> [patch_in(spec) for spec in ("timm:vit_base_patch16_224", "CLIP ViT-B/32", "small:vit", "resnet50")]
    [16, 32, 4, 0]
    """
    if settings := small_settings(spec):
        return int(settings[1].get("patch", 0))
    found = _PATCH.search(spec.lower())
    return int(found[1] or found[2]) if found else 0


def factors_of_models(facts: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """What a run's models differ in, by factor: a number per model, of models that are alike in everything else.

    Where several groups of models differ in a factor, that with most values counts, and of these the first.

    >>> names = ("vgg16", "vgg16_bn", "resnet50", "wide_resnet50_2")
    >>> factors_of_models({"models": [{"name": name} for name in names]})
    {'width': {'resnet50': 1.0, 'wide_resnet50_2': 2.0}, 'normalisation': {'vgg16': 0.0, 'vgg16_bn': 1.0}}
    """
    known = {}
    for model in (str(m["name"]) for m in facts["models"]):
        designs = (design_in(spec) for spec in specs_of(facts, model))
        if design := next((found for found in designs if found), None):
            known[model] = design
    factors: dict[str, dict[str, float]] = {}
    for factor in FACTORS:
        groups: dict[str, dict[str, float]] = {}
        for model, design in known.items():
            if factor in design:
                rest = sorted((name, str(value)) for name, value in design.items() if name != factor)
                groups.setdefault(str(rest), {})[model] = float(design[factor])
        widest = max(groups.values(), key=lambda values: len(set(values.values())), default={})
        if len(set(widest.values())) > 1:
            factors[factor] = widest
    return factors


def design_in(spec: str) -> dict[str, Any]:
    """What a spec or a name tells of a network: its family, its factors, and its other parameters; empty where nothing.

    Fixup networks are residual ones without normalisation.

    >>> design_in("xfixup_resnet50@weights.pth")
    {'family': 'resnet', 'depth': 50, 'width': 1, 'normalisation': False, 'bias': False}
    """
    if settings := small_settings(spec):
        id, given = settings
        normalised = {"normalisation": given.pop("norm") == "batch"} if "norm" in given else {}
        if id == "fixup":
            id, normalised = "resnet", {"normalisation": False}
        given.pop("classes")
        return {"family": f"small {id}", **given, **normalised}
    name = re.sub(r"[-_ ]", "", spec.lower().rpartition(":")[2].partition("@")[0].partition(".")[0])
    found = _PUBLISHED.fullmatch(name)
    if not found:
        return {}
    wide, wide_depth, fixup, depth, x, vgg, normed = found.groups()
    if vgg:
        return {"family": "vgg", "depth": int(vgg), "width": 1, "normalisation": bool(normed), "bias": not x}
    return {
        "family": "resnet",
        "depth": int(depth or wide_depth),
        "width": 2 if wide else 1,
        "normalisation": not fixup,
        "bias": fixup != "xfixup",
    }
