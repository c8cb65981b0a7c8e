"""The floors of the house: a module imports from its own floor and from those before it, never from those behind."""

import ast
import functools
from collections import defaultdict
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "heatcheck"
FLOORS = (
    *("core", "domain", "data", "models", "fills", "probe", "methods", "metrics", "profiles", "training", "run"),
    *("stats", "report", "api", "testing", "cli"),
)
TABLES_ONLY = {"stats": {"core", "stats"}, "report": {"core", "stats", "report"}}
"""Floors that get tables: of what lies before them they may know this much."""
LOADERS = {"core/catalogue.py", "core/sources.py"}
"""What imports components by name, and so is free to import any."""
TOP = {"__init__.py", "__main__.py", "py.typed"}
FILES = sorted(SOURCE.rglob("*.py"))


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def module_of(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports_of(path):
    """Every module of ours that a file imports: at the top, inside functions, for types, and by name."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            pytest.fail(f"{path}: relative import in line {node.lineno}")
        elif isinstance(node, ast.ImportFrom) and node.module == "heatcheck":
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("heatcheck."):
            yield node.module.removeprefix("heatcheck."), node.lineno
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "heatcheck":
                    yield alias.name.removeprefix("heatcheck").removeprefix(".") or "__init__", node.lineno
        elif isinstance(node, ast.Constant | ast.JoinedStr) and path.relative_to(SOURCE).as_posix() not in LOADERS:
            for text in _texts(node):
                if text.startswith("heatcheck.") and text.split(".")[1] in FLOORS:
                    yield text.removeprefix("heatcheck."), node.lineno


def _texts(node):
    """What a string that could name a module begins with: `"heatcheck.run.store"`, `f"heatcheck.{folder}"`."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) and " " not in node.value.strip() else []
    return []


def imports_by_name(path):
    """Lines that call `import_module` or `__import__`."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.endswith("import_module") or called == "__import__":
                yield node


def floor_of(module):
    return module.partition(".")[0]


def test_every_module_is_on_a_floor():
    assert {path.name for path in SOURCE.iterdir() if path.is_file()} == TOP
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(FLOORS)


def test_imports_go_down():
    wrong = []
    for path in FILES:
        if path.parent == SOURCE:
            continue  # the public surface and `python -m heatcheck` stand above all floors
        own = floor_of(module_of(path))
        allowed = TABLES_ONLY.get(own, set(FLOORS[: FLOORS.index(own) + 1]))
        seen = [(name, line) for name, line in imports_of(path) if floor_of(name) not in allowed]
        wrong += [f"{path.relative_to(SOURCE)}:{line} imports {name}" for name, line in seen]
    assert not wrong


def test_only_the_loaders_import_our_modules_by_name():
    wrong = []
    for path in FILES:
        file = path.relative_to(SOURCE).as_posix()
        for call in imports_by_name(path) if file not in {*LOADERS, "__init__.py"} else ():
            named = call.args[0]
            if not isinstance(named, ast.Constant) or named.value.startswith("heatcheck"):
                wrong.append(f"{file}:{call.lineno} imports {ast.unparse(named)}")
    assert not wrong


def test_packages_form_no_cycle():
    edges = defaultdict(set)
    for path in FILES:
        if path.parent != SOURCE:
            own = floor_of(module_of(path))
            edges[own] |= {floor_of(name) for name, _ in imports_of(path)} - {own}
    done, open_ = set(), []

    def visit(package):
        assert package not in open_, f"cycle: {' → '.join([*open_[open_.index(package) :], package])}"
        if package not in done:
            open_.append(package)
            for other in sorted(edges[package]):
                visit(other)
            done.add(open_.pop())

    for package in FLOORS:
        visit(package)


def test_modules_of_a_floor_form_no_cycle():
    """Modules, too, import one another one way only, as far as they import when they are loaded."""
    names = {module_of(path): path for path in FILES if path.parent != SOURCE}
    edges = defaultdict(set)
    for name, path in names.items():
        for node in tree_of(path).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("heatcheck."):
                base = node.module.removeprefix("heatcheck.")
                edges[name] |= {t for t in [base, *(f"{base}.{a.name}" for a in node.names)] if t in names} - {name}
    done, open_ = set(), []

    def visit(module):
        assert module not in open_, f"cycle: {' → '.join([*open_[open_.index(module) :], module])}"
        if module not in done:
            open_.append(module)
            for other in sorted(edges[module]):
                if not module.startswith(f"{other}.") and "." in other:
                    visit(other)
            done.add(open_.pop())

    for module in sorted(names):
        visit(module)


def test_no_class_name_is_used_twice():
    """Networks of `models/architectures` are named as in their papers, and are left out."""
    homes = defaultdict(list)
    for path in FILES:
        if "architectures" not in path.parts:
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.ClassDef):
                    homes[node.name].append(path.relative_to(SOURCE).as_posix())
    twice = {name: files for name, files in homes.items() if len(files) > 1}
    assert not twice
