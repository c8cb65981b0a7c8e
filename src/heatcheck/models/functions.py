"""What decides the values of a user's function, as plain data: its code, and all that the code reads."""

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn

from heatcheck.core.identity import digest
from heatcheck.core.types import digest_of_tensor

_DEPTH = 4
"""How far functions that call other functions are followed."""


def facts_of(function: Callable[..., Any], depth: int = _DEPTH) -> dict[str, Any]:
    """A function's code, its defaults, and what it reads from its closure and globals.

    Two functions with the same facts give the same values; comments, docstrings and the place of a function do not count.
    """
    if isinstance(function, functools.partial):
        held = [_trace(v, depth) for v in function.args], {k: _trace(v, depth) for k, v in function.keywords.items()}
        return {"of": facts_of(function.func, depth), "held": held}
    if inspect.ismethod(function):
        return {"of": facts_of(function.__func__, depth), "self": _trace(vars(function.__self__), depth)}
    if isinstance(function, nn.Module):
        return {"of": _trace(function, depth)}
    if not isinstance(function, FunctionType):
        call = type(function).__call__
        name = getattr(function, "__qualname__", type(function).__qualname__)
        own = facts_of(call, depth) if isinstance(call, FunctionType) else name
        return {"of": own, "self": _trace(getattr(function, "__dict__", {}), depth)}
    seen = inspect.getclosurevars(function)
    around = {name: _trace(value, depth - 1) for name, value in {**seen.globals, **seen.nonlocals}.items()}
    defaults = [_trace(v, depth - 1) for v in function.__defaults__ or ()]
    named = {k: _trace(v, depth - 1) for k, v in (function.__kwdefaults__ or {}).items()}
    return {"code": _code(function), "around": around, "defaults": [defaults, named]}


def _code(function: FunctionType) -> Any:
    """The source without comments and docstrings; the compiled code of lambdas, of which several may share a line."""
    if function.__name__ != "<lambda>":
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError):
            return _compiled(function.__code__)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        return ast.unparse(tree)
    return _compiled(function.__code__)


def _compiled(code: CodeType) -> list[Any]:
    consts = [_compiled(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return [code.co_code.hex(), consts, list(code.co_names), list(code.co_varnames)]


def _trace(value: Any, depth: int) -> Any:
    if isinstance(value, nn.Module):
        return {
            "module": repr(value),
            "weights": digest({k: digest_of_tensor(t) for k, t in value.state_dict().items()}),
        }
    if isinstance(value, Tensor):
        return digest_of_tensor(value)
    if isinstance(value, ModuleType):
        return value.__name__
    if depth < 0:
        return type(value).__qualname__
    if isinstance(value, Mapping):
        return {repr(key): _trace(v, depth - 1) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_trace(v, depth - 1) for v in value]
    if isinstance(value, FunctionType | functools.partial):
        return facts_of(value, depth - 1)
    return repr(value) if isinstance(value, bool | int | float | str | None) else type(value).__qualname__
