"""What methods and metrics cost on the embedded defaults, in words; read from a file, so that torch is not imported."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from heatcheck.core.catalogue import Entry


@cache
def written() -> dict[str, Any]:
    """What `make docs` wrote down: by modality, the model, the sample, and costs by kind and id."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("costs.json").read_text(encoding="utf-8"))
    return found


def costs_of(entry: Entry) -> dict[str, Any]:
    """The costs of a shipped component by model; null where it does not apply, nothing where it is not known."""
    if not entry.module.startswith("heatcheck."):
        return {}
    return {
        facts["model"]: facts[entry.kind][entry.id] for facts in written().values() if entry.id in facts[entry.kind]
    }


def shown_cost(row: Mapping[str, Any]) -> str:
    """The cost on the first default model to which it applies."""
    return next((in_words(cost) for cost in row["passes"].values() if cost is not None), "")


def in_words(cost: Mapping[str, int]) -> str:
    """A cost in a few words.

    >>> in_words({"forwards": 50, "backwards": 50})
    '100'
    >>> in_words({"shared": 2, "forwards": 31, "backwards": 0, "explanations": 0})
    '2 once, 31 each'
    """
    passes = cost["forwards"] + cost["backwards"]
    if "shared" not in cost:
        return f"{passes:,}"
    parts = [f"{cost['shared']:,} once"] if cost["shared"] else []
    parts += [f"{passes:,} each"] if passes else []
    parts += [f"{_count(cost['explanations'], 'map')} each"] if cost["explanations"] else []
    return ", ".join(parts) or "0"


def in_full(cost: Mapping[str, int]) -> str:
    """A cost as a sentence of a card.

    >>> in_full({"forwards": 1, "backwards": 1})
    '1 forward and 1 backward pass'
    >>> in_full({"shared": 0, "forwards": 0, "backwards": 0, "explanations": 4})
    '4 more explanations for each method'
    """
    own = [_count(cost[name], name[:-1]) for name in ("forwards", "backwards") if cost[name]]
    passes = f"{' and '.join(own)} pass{'es' if cost['forwards'] > 1 else ''}" if own else ""
    if "shared" not in cost:
        return passes or "no passes"
    parts = [f"{_count(cost['shared'], 'pass')} once for all methods"] if cost["shared"] else []
    parts += [f"{passes} for each method"] if own else []
    parts += [f"{_count(cost['explanations'], 'more explanation')} for each method"] if cost["explanations"] else []
    return ", ".join(parts) or "no passes"


def _count(n: int, noun: str) -> str:
    many = {"pass": "passes", "more explanation": "more explanations", "map": "maps"}
    return f"{n:,} {noun if n == 1 else many.get(noun, noun)}"
