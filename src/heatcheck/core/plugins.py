"""User-defined methods, metrics and fills, from Python files that a user names."""

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError

PREFIX = "heatcheck_plugin_"


def plugin_module(path: str | Path) -> str:
    """The module name a plugin file is imported under."""
    file = Path(path).expanduser().resolve()
    return f"{PREFIX}{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"


def load_plugin(path: str | Path) -> ModuleType:
    """Run a Python file once, so that the methods, metrics and fills it declares exist.

    Raises:
        SpecError: it is not there, or it fails; the message repeats why.
    """
    file = Path(path).expanduser().resolve()
    name = plugin_module(file)
    if name in sys.modules:
        return sys.modules[name]
    if not file.is_file() or file.suffix != ".py":
        raise SpecError(f"plugin {str(path)!r} is not a Python file")
    found = importlib.util.spec_from_file_location(name, file)
    if found is None or found.loader is None:
        raise SpecError(f"plugin {str(path)!r} cannot be imported")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except Exception as problem:
        place = line_of(problem)
        del sys.modules[name]
        raise SpecError(f"plugin {str(path)!r} failed{place}: {type(problem).__name__}: {problem}") from problem
    return module


def with_plugin_hint(unknown: str) -> str:
    """A message about an unknown id, and how a user's own component is made known.

    >>> with_plugin_hint("no metric is called 'mine'; did you mean abpc?")
    "no metric is called 'mine'; did you mean abpc? Your own need --plugin FILE.py"
    """
    return f"{unknown}{' Your' if unknown.endswith('?') else '; your'} own need --plugin FILE.py"


def line_of(problem: BaseException) -> str:
    """Where in a user's own file an exception was raised, as ` (mine.py, line 12)`; nothing if it was raised elsewhere.

    A user's own file is a plugin, or one that declares a method, metric or fill.
    """
    declared = [entry for kind in catalogue.KINDS for entry in catalogue.own_entries(kind).values()]
    names = {entry.module for entry in declared} | {name for name in sys.modules if name.startswith(PREFIX)}
    files = {getattr(sys.modules.get(name), "__file__", None) for name in names} - {None}
    files |= {file for entry in declared if entry.module not in sys.modules for file in _code_files(entry.target)}
    if isinstance(problem, SyntaxError) and problem.filename is not None and problem.filename in files:
        return f" ({Path(problem.filename).name}, line {problem.lineno})"
    for frame in reversed(traceback.extract_tb(problem.__traceback__)):
        if frame.filename in files:
            return f" ({Path(frame.filename).name}, line {frame.lineno})"
    return ""


def _code_files(component: type) -> Iterator[str]:
    """The files in which the functions of a class were written; it may have come here without its module."""
    for value in vars(component).values():
        code = getattr(inspect.unwrap(getattr(value, "__func__", value)), "__code__", None)
        if code is not None:
            yield code.co_filename
