"""Models in a user's own Python file."""

import inspect
from typing import Any

from torch import nn

from heatcheck.core.plugins import line_of, load_plugin
from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError
from heatcheck.models.base import Model
from heatcheck.models.objects import model_of
from heatcheck.models.request import Request
from heatcheck.models.targets import function_of


@source(
    "FILE.py",
    form="FILE.py:NAME[@CHECKPOINT]",
    modality="either",
    about="from a Python file of yours: a module, what builds one without arguments, or a function to class scores",
    install="nothing: the file is run, so it must be one that you trust",
    group="own",
)
def model_in_file(spec: str, request: Request) -> Model:
    """What a file calls by a name; a class or a function that needs no arguments is called first."""
    named = function_of(spec)
    if named is None:
        raise HeatcheckError(f"model={spec!r} names nothing in the file: write FILE.py:NAME")
    file, name = named
    own = load_plugin(file)
    if not hasattr(own, name):
        there = ", ".join(key for key, value in vars(own).items() if _may_be_model(value, own.__name__)) or "none"
        raise HeatcheckError(f"model={spec!r}: nothing in {file} is called {name!r}; possible are: {there}")
    return model_of(_built(getattr(own, name), spec), request)


def _built(found: Any, spec: str) -> Any:
    if isinstance(found, nn.Module | Model) or not callable(found) or not _needs_nothing(found):
        return found
    try:
        return found()
    except Exception as problem:
        raise HeatcheckError(
            f"model={spec!r} could not be built{line_of(problem)}: {type(problem).__name__}: {problem}"
        ) from problem


def _needs_nothing(found: Any) -> bool:
    """Whether a class or a function is there to build a model: it can be called without arguments."""
    if isinstance(found, type):
        return True
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(p.default is not p.empty for p in parameters)


def _may_be_model(value: Any, module: str) -> bool:
    return isinstance(value, nn.Module) or (callable(value) and getattr(value, "__module__", None) == module)
