"""User-defined methods, metrics and fills, from Python files that a user names."""

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from heatcheck.core.spec import SpecError


def plugin_module(path: str | Path) -> str:
    """The module name a plugin file is imported under."""
    file = Path(path).expanduser().resolve()
    return f"heatcheck_plugin_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"


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
        del sys.modules[name]
        raise SpecError(f"plugin {str(path)!r} failed: {type(problem).__name__}: {problem}") from problem
    return module
