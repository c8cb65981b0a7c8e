"""Shapes in annotations are checked while testing: `Float[Tensor, "b c h w"]` means it.

jaxtyping's own import hook wraps every function, those defined inside others each time anew, whether or not a shape stands
in its signature; that took half of the time of the tests. Here only functions, methods and fields that name a shape are wrapped,
and of the calls in one test the first few are checked, then now and then one: all of them took another quarter.
"""

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FunctionType, ModuleType
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray, jaxtyped

CHECKED = (
    "heatcheck.core.types",
    "heatcheck.domain.base",
    "heatcheck.domain.image",
    "heatcheck.domain.text",
    "heatcheck.fills",
    "heatcheck.probe.answers",
    "heatcheck.probe.calls",
    "heatcheck.probe.deletions",
    "heatcheck.probe.inside",
    "heatcheck.probe.probe",
    "heatcheck.methods",
    "heatcheck.metrics",
)
"""Modules, and packages with all their modules."""
FIRST, SELDOM = 4, 16
"""How many calls of a function are checked in each test, and the one in so many that is checked after them."""
_calls: Counter[Callable[..., Any]] = Counter()


def begin_test() -> None:
    """Check the first calls again."""
    _calls.clear()


def sometimes(plain: Callable[..., Any], checked: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose shapes are checked in the first calls of a test, and seldom after them."""

    @wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        n = _calls[plain]
        _calls[plain] = n + 1
        return (checked if n < FIRST or n % SELDOM == 0 else plain)(*args, **kwargs)

    return call


def names_a_shape(annotation: Any) -> bool:
    """Whether an annotation is a shape, or has one inside, as in `tuple[Float[Tensor, "b"], ...] | None`."""
    if inspect.isclass(annotation) and issubclass(annotation, AbstractArray):
        return True
    return any(names_a_shape(part) for part in get_args(annotation))


def has_shapes(function: FunctionType) -> bool:
    """Whether a function's signature names a shape."""
    return any(map(names_a_shape, inspect.get_annotations(function).values()))


def check_shapes(module: ModuleType) -> None:
    """Wrap what a module defines and what names a shape."""
    for name, thing in list(vars(module).items()):
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        if isinstance(thing, FunctionType) and has_shapes(thing):
            setattr(module, name, _checked(thing))
        elif inspect.isclass(thing):
            _check_class(thing)


def _checked(function: FunctionType) -> Callable[..., Any]:
    return sometimes(function, jaxtyped(function, typechecker=beartype))


def _check_class(cls: type) -> None:
    for name, member in list(vars(cls).items()):
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if not isinstance(function, FunctionType) or not has_shapes(function):
            continue
        if not (name == "__init__" and is_dataclass(cls)):
            wrapped = _checked(function)
            setattr(cls, name, wrapped if member is function else type(member)(wrapped))
    if is_dataclass(cls) and any(names_a_shape(field.type) for field in fields(cls)):
        plain = cls.__init__
        jaxtyped(cls, typechecker=beartype)
        cls.__init__ = sometimes(plain, cls.__init__)


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        check_shapes(module)


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not any(name == module or name.startswith(f"{module}.") for module in CHECKED):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Check every module that is imported from now on; those that were imported before would go unchecked."""
    early = [name for name in sys.modules if name.startswith(CHECKED)]
    assert not early, f"imported before their shapes could be checked: {early}"
    sys.meta_path.insert(0, _Finder())
