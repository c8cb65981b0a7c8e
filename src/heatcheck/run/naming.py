"""What a metric is called on one model: `sds` on a model that was trained to bear the same deletions is `idsds`.

The metric is the same, and so are its digest and its stored scores; design/training.md has the reasons.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heatcheck.core import catalogue
from heatcheck.core.spec import parse
from heatcheck.domain.component import Component
from heatcheck.models.base import Model
from heatcheck.models.training_record import TrainingRecord, reached

OUTSIDE, INSIDE = "sds", "idsds"
"""Single deletion on any model, and on one whose training showed it the same deletions."""

KEPT = (
    *("recipe", "variant", "settings", "data", "held_out", "samples", "held_out_samples"),
    *("accuracy", "chosen", "marks", "checkpoint"),
)
"""What a run's record keeps of a model's training, beside its parent and its deletions."""


@dataclass(frozen=True)
class Naming:
    """How tables call one model's metrics.

    Args:
        names: by label, those that are called otherwise.
        remarks: by the name that tables show, why it is so, or why not.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)


def training_facts(model: Model) -> dict[str, Any] | None:
    """What a run's record says about a model's training; None for models that were not trained by a recipe."""
    if model.trained is None:
        return None
    parent = model.trained["parent"]
    return {
        **{name: model.trained[name] for name in KEPT},
        "parent": {name: parent[name] for name in ("name", "spec", "identity", "architecture")},
        "aligned": aligned(model),
        "reached": reached(model.trained),
    }


def aligned(model: Model) -> dict[str, str] | None:
    """The deletions that a model was trained to bear, as a resolved metric writes them; None where it was not."""
    known = None if model.trained is None else TrainingRecord.model_validate(model.trained).aligned
    if known is None:
        return None
    fill: Component = catalogue.build("fill", known["fill"]).resolve(model.domain)
    return {"units": f"grid({known['grid']})", "fill": fill.name}


def naming(model: Mapping[str, Any]) -> Naming:
    """How the metrics of a model are called, from its part of a run's record.

    A label of the user's own is left as it is; only its remark says what it stands for.
    """
    deletions = (model.get("trained") or {}).get("aligned")
    names: dict[str, str] = {}
    remarks: dict[str, str] = {}
    taken = {metric["label"] for metric in model["metrics"]}
    for metric in model["metrics"]:
        label = metric["label"]
        if metric["identity"]["id"] != OUTSIDE or deletions is None:
            continue
        if other := difference(deletions, metric["name"]):
            remarks[label] = f"{label}, not {INSIDE}: {other}"
            continue
        name = INSIDE + label.removeprefix(OUTSIDE) if _is_own_name(label) else label
        if name not in taken:
            names[label] = name
        how = f"{deletions['units']} with {deletions['fill']}"
        remarks[names.get(label, label)] = (
            f"{name}: {OUTSIDE} on a model that was aligned with the same deletions, {how}"
        )
    return Naming(names, remarks)


def difference(deletions: Mapping[str, str] | None, metric: str) -> str:
    """Why `sds` is not `idsds` on a model: what its training deleted, and what the metric does; empty where it is.

    Args:
        deletions: what `aligned` gave.
        metric: the full name of the metric, resolved on the model's domain.

    >>> difference({"units": "grid(4)", "fill": "zero"}, "sds(units=grid(8), fill=zero)")
    'the model was aligned on grid(4) with zero, this is grid(8)'
    """
    if deletions is None:
        return "the model was not aligned with single deletions"
    params = parse(metric).params
    other = [str(params[name]) for name in ("units", "fill") if params[name] != deletions[name]]
    if not other:
        return ""
    return f"the model was aligned on {deletions['units']} with {deletions['fill']}, this is {' with '.join(other)}"


def _is_own_name(label: str) -> bool:
    """Whether a label is the metric's name, with parameters or what a union of studies adds, and not a user's word."""
    return label == OUTSIDE or label.startswith((f"{OUTSIDE}(", f"{OUTSIDE} ("))
