"""Objects for workers that cannot load them by name. They travel as pickles: both sides must trust each other."""

import contextlib
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from heatcheck.core import catalogue
from heatcheck.core.types import HeatcheckError, Sample
from heatcheck.run.isolation import first_line
from heatcheck.run.resources import Resources
from heatcheck.run.work import Work


def model_parcel(resources: Resources, work: Work) -> bytes:
    """A work's model."""
    return packed(resources.models[work.model], f"model {work.model!r}")


def components_parcel(resources: Resources) -> bytes:
    """Everything that users declared, and the methods and metrics of the run."""
    declared = [entry for kind in catalogue.KINDS for entry in catalogue.own_entries(kind).values()]
    return packed((declared, resources.components), "a method, metric or fill of this run")


def samples_parcel(resources: Resources, work: Work) -> bytes:
    """A work's samples; files travel as their bytes."""
    return packed([_carried(sample) for sample in resources.samples(work)], f"the samples of {work.model!r}")


def _carried(sample: Sample) -> Sample:
    return replace(sample, content=sample.content.read_bytes()) if isinstance(sample.content, Path) else sample


def packed(value: Any, what: str) -> bytes:
    """An object as bytes, with the source of a user's own modules, which workers may not have.

    Raises:
        HeatcheckError: it cannot be sent.
    """
    from ray import cloudpickle

    with by_value(own_modules()):
        try:
            data: bytes = cloudpickle.dumps(value)
        except Exception as problem:
            raise HeatcheckError(
                f"{what} cannot be sent to Ray's workers: {first_line(problem)}; name it by a spec or put it into a plugin file "
                "that they can read"
            ) from problem
    return data


@contextlib.contextmanager
def by_value(modules: list[ModuleType]) -> Iterator[None]:
    """Pickle what these modules define with its source, not by its name."""
    from ray import cloudpickle

    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def own_modules() -> list[ModuleType]:
    """Imported modules that are neither installed, nor part of Python or of this package."""
    paths = sysconfig.get_paths()
    installed = tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    package = str(Path(__file__).parents[2])
    return [
        module
        for name, module in sys.modules.copy().items()
        if (file := getattr(module, "__file__", None))
        and not file.startswith((*installed, package))
        and module.__name__ == name
        and name != "__main__"
    ]
