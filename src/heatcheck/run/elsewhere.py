"""What another process can load by its name, and what exists in this one only."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from heatcheck.core import catalogue
from heatcheck.core.plugins import plugin_module


def known_elsewhere(component: Any, plugins: Sequence[str]) -> bool:
    """Whether a worker process can build the component too: it is shipped, or declared in a plugin file."""
    cls = type(component)
    entry = catalogue.entries(cls.kind).get(component.id)
    if entry is None or (cls.__module__, cls.__name__) != (entry.module, entry.name):
        return False
    return entry.target is None or entry.module in {plugin_module(p) for p in plugins}


def only_here(
    models: Mapping[str, Any], data: str, target: Any, components: Iterable[Any], plugins: Sequence[str]
) -> Iterator[str]:
    """What no other process can load, with what would help.

    Args:
        models: what the user gave for each label.
        data: the data set's spec; empty if there is none.
        target: what is explained.
        components: methods and metrics.
        plugins: Python files that declare components.
    """
    for label, given in models.items():
        if not isinstance(given, str):
            yield f"model {label!r} is an object (name it by a spec, such as FILE.py:NAME)"
    if not data:
        yield "the data are objects (name them by a spec or a path)"
    if callable(target):
        yield "the target is a function (write FILE.py:FUNCTION)"
    for component in components:
        if not known_elsewhere(component, plugins):
            yield f"{type(component).kind} {component.id!r} is declared in this process (put it into a plugin file)"
