"""A run's own record, `run.json`: the study, its models, how and where it was computed."""

import datetime
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from heatcheck.core import catalogue
from heatcheck.core.version import __version__
from heatcheck.probe.calls import Spent
from heatcheck.run.lacking import context_of
from heatcheck.run.naming import training_facts
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import Part, Setup


def describe(setup: Setup, runtime: Runtime, parts: Sequence[Part]) -> dict[str, Any]:
    """The record as it is before anything is computed."""
    return {
        "heatcheck": __version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "study": setup.record,
        "target": setup.target,
        "seed": setup.seed,
        "maps": runtime.maps,
        "data": {"name": setup.data.name, "n": len(setup.data), "notes": list(setup.data.notes)},
        "samples": [
            {
                "name": s.name,
                "digest": s.digest,
                "label": s.label,
                "context": context_of(s),
                "problem": s.problem,
            }
            for s in setup.data
        ],
        "models": [model_record(part) for part in parts],
        "methods": [component_facts(label, component) for label, component in setup.methods],
        "metrics": [component_facts(label, component) for label, component in setup.metrics],
        "environment": environment(),
        "passes": asdict(Spent()),
        "finished": False,
        **({"shards": [runtime.shard]} if runtime.shard else {}),
    }


def model_record(part: Part) -> dict[str, Any]:
    """What the record says about one model."""
    grid = part.grid
    trained = training_facts(grid.model)
    return {
        "name": part.label,
        "identity": grid.model.identity,
        "modality": str(grid.model.domain.modality),
        "preprocessing": grid.model.preprocessing,
        "notes": part.remarks,
        "classes": list(grid.model.classes) if grid.model.classes else None,
        "methods": [m.record() for m in grid.methods],
        "metrics": [m.record() for m in (*grid.metrics, *part.across)],
        "skipped": part.skipped,
        "circular": part.circular,
        **({"comparisons": part.comparisons} if part.comparisons else {}),
        "numerics": grid.numerics.record(),
        "gallery": sorted(grid.gallery),
        **({"trained": trained} if trained else {}),
        **({"architecture": part.architecture} if part.architecture else {}),
    }


def component_facts(label: str, component: Any) -> dict[str, Any]:
    """What a report says about a method or metric."""
    return {
        **catalogue.find(type(component).kind, component.id).record(),
        "label": label,
        "name": component.name,
    }


def environment() -> dict[str, str]:
    """The machine and versions, without anything private."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
    }
