"""What every method and metric costs on one sample of a model, in passes, with its own defaults.

`python -m heatcheck.api.costs FILE` writes down the costs on the embedded defaults, which `heatcheck list` shows.
"""

import json
import sys
from pathlib import Path
from typing import Any

from heatcheck.core import catalogue
from heatcheck.core.sources import default_source
from heatcheck.core.types import Inputs, Modality, NotApplicable, Sample
from heatcheck.data.catalogue import sources
from heatcheck.data.documents import no_documents
from heatcheck.data.load import load_data
from heatcheck.domain.base import Domain
from heatcheck.models.base import Model
from heatcheck.models.catalogue import default_model
from heatcheck.probe.asks import Shape, passes_of
from heatcheck.run.rehearsal import applicable
from heatcheck.training.defaults import load_model

Cost = dict[str, int]


def costs(model: Model, sample: Sample) -> dict[str, dict[str, Cost | None]]:
    """The cost of each shipped method and metric, by kind and id; None where it does not apply to the model.

    A method has `forwards` and `backwards`. A metric has `shared` ones, which all methods have in common, `forwards` and
    `backwards` for each method, and `explanations` for each method.
    """
    x = model.encode(sample)
    shape = Shape(model.domain, x, model, model.references(sample, x))
    refused = applicable(model, x)
    return {
        "method": {id: None if refused[id] else method_cost(id, shape) for id in _shipped("method")},
        "metric": {id: metric_cost(id, shape) for id in _shipped("metric")},
    }


def method_cost(id: str, shape: Shape) -> Cost:
    """What a method asks about one sample."""
    component = catalogue.build("method", id).for_corpus(no_documents).resolve(shape.domain)
    forwards, backwards = passes_of(component.asks(shape), component.passes(shape))
    return {"forwards": forwards, "backwards": backwards}


def metric_cost(id: str, shape: Shape) -> Cost | None:
    """What a metric asks about one sample, a composite through its parts; None where it does not apply."""
    try:
        component = catalogue.build("metric", id).resolve(shape.domain)
        own = component.parts if component.composite else (id,)
        parts = [catalogue.build("metric", part).resolve(shape.domain) for part in own]
    except NotApplicable:
        return None
    one, other = (set().union(*(part.asks(shape, method) for part in parts)) for method in ("one", "other"))
    beside = [part.passes(shape) for part in parts]
    forwards, backwards = passes_of(one - other, (sum(f for f, _ in beside), sum(b for _, b in beside)))
    explanations = len(set().union(*(part.reexplanations(shape) for part in parts)))
    return {
        "shared": sum(passes_of(one & other)),
        "forwards": forwards,
        "backwards": backwards,
        "explanations": explanations,
    }


def _shipped(kind: str) -> list[str]:
    return [entry.id for entry in catalogue.entries(kind).values() if entry.module.startswith("heatcheck.")]


def written(found: dict[str, Any]) -> str:
    """As JSON, with a line for each method and metric."""
    models = []
    for modality, facts in found.items():
        lines = [f'  "{name}": {json.dumps(facts[name], ensure_ascii=False)}' for name in ("model", "sample")]
        for kind in ("method", "metric"):
            own = ",\n".join(f'   "{id}": {json.dumps(cost)}' for id, cost in sorted(facts[kind].items()))
            lines.append(f'  "{kind}": {{\n{own}\n  }}')
        models.append(f' "{modality}": {{\n' + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(models) + "\n}\n"


def embedded() -> dict[str, Any]:
    """The costs on the embedded defaults: for each modality its model, a description of the sample, and the costs."""
    found: dict[str, Any] = {}
    for modality in Modality:
        model = load_model(default_model(modality))
        sample = load_data(default_source(sources(), modality).id)[0]
        found[str(modality)] = {"model": model.name, "sample": described(model.domain, model.encode(sample))}
        found[str(modality)] |= costs(model, sample)
    return found


def described(domain: Domain, x: Inputs) -> str:
    """What kind of sample the costs are for."""
    if domain.modality == Modality.IMAGE:
        return "a picture of {} × {} pixels".format(*domain.shape(x))
    return f"a text of {int(domain.deletable(x).sum())} tokens"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(written(embedded()), encoding="utf-8")
