"""What makes a model the one it is: digests of its weights, and of the code that uses them."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor, nn

from heatcheck.core.identity import digest
from heatcheck.core.types import digest_of_tensor


def weights_digest(network: nn.Module) -> str:
    """Digest of every parameter and buffer by name."""
    tensors = (*network.named_parameters(remove_duplicate=False), *network.named_buffers(remove_duplicate=False))
    return digest({name: digest_of_tensor(t) for name, t in tensors})


def architecture(network: nn.Module) -> dict[str, Any]:
    """The module tree, its plain attributes, and the code of every class that torch itself does not define."""
    used = {c for m in network.modules() for c in _up_to_forward(type(m))}
    return {
        "tree": repr(network),
        "attributes": {name: _plain_attributes(m) for name, m in network.named_modules()},
        "code": {f"{c.__module__}.{c.__qualname__}": _code(c) for c in used if not c.__module__.startswith("torch.")},
    }


def _up_to_forward(cls: type) -> list[type]:
    """A class and its bases as far as the one that defines its forward pass."""
    line = list(cls.__mro__)
    last = next((i for i, c in enumerate(line) if "forward" in vars(c)), 0)
    return line[: last + 1]


def _plain_attributes(module: nn.Module) -> dict[str, str]:
    """Numbers and words that a forward pass may read; where a model was loaded from is none of them."""
    plain = (bool, int, float, str)
    return {
        key: repr(value)
        for key, value in vars(module).items()
        if not key.startswith("_") and key not in ("training", "name_or_path")
        if isinstance(value, plain) or (isinstance(value, tuple) and all(isinstance(v, plain) for v in value))
    }


@cache
def _code(cls: type) -> dict[str, str]:
    """The source of a class's functions, without comments and docstrings."""
    members = {name: getattr(m, "__func__", getattr(m, "fget", m)) for name, m in vars(cls).items()}
    return {name: _source(m) for name, m in members.items() if inspect.isfunction(m)}


def _source(function: Callable[..., Any]) -> str:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def function_facts(function: Callable[..., Any]) -> dict[str, Any]:
    """A function's source, and the networks, tensors, numbers and strings in its closure and globals."""
    owner = getattr(function, "__self__", None if inspect.isroutine(function) else function)
    around: dict[str, Any] = dict(getattr(owner, "__dict__", {}))
    plain = getattr(function, "__func__", function)
    if inspect.isfunction(plain):
        seen = inspect.getclosurevars(plain)
        around.update({**seen.globals, **seen.nonlocals})
    try:
        source = inspect.getsource(function if inspect.isroutine(function) else type(function))
    except (OSError, TypeError):
        source = ""
    return {"source": source, "around": {name: _trace(value) for name, value in around.items()}}


def _trace(value: Any) -> str:
    if isinstance(value, nn.Module):
        return weights_digest(value)
    if isinstance(value, Tensor):
        return digest_of_tensor(value)
    return repr(value) if isinstance(value, bool | int | float | str) else type(value).__qualname__
