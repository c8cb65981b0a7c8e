"""What there is: every method, metric and fill, found by reading the source, without importing torch.

A unit is a class under `methods/`, `metrics/` or `fills/` with the decorator of its kind, whose arguments are
literals. Reading them from the syntax tree keeps `heatcheck list` quick and makes a new file enough to add one.
Units of one's own join when their module is imported.
"""

import ast
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from heatcheck.spec import Spec, SpecError, parse, suggest

KINDS = {"method": "methods", "metric": "metrics", "fill": "fills"}


@dataclass(frozen=True)
class Entry:
    """One unit as its source declares it."""

    kind: str
    id: str
    module: str
    name: str
    facts: Mapping[str, Any]
    doc: str
    params: Mapping[str, str]
    target: Any = field(default=None, repr=False)

    @property
    def summary(self) -> str:
        """The docstring's first sentence."""
        return self.doc.strip().split("\n\n")[0].replace("\n", " ").strip()

    def note(self, title: str) -> str:
        """What the docstring says after `Title:`, such as its paper or cost."""
        for line in self.doc.splitlines():
            for part in line.split("  "):
                if part.strip().startswith(f"{title}:"):
                    return part.strip().removeprefix(f"{title}:").strip().rstrip(".")
        return ""

    def record(self) -> dict[str, Any]:
        """What `list --json` shows."""
        facts = {k: list(v) if isinstance(v, tuple) else v for k, v in self.facts.items()}
        return {
            "id": self.id,
            "summary": self.summary,
            **facts,
            "params": dict(self.params),
            "paper": self.note("Paper"),
            "differs": self.note("Differs"),
            "cost": self.note("Cost per sample"),
        }


_own: dict[tuple[str, str], Entry] = {}


@cache
def _shipped(kind: str) -> dict[str, Entry]:
    folder = Path(__file__).parent / KINDS[kind]
    found: dict[str, Entry] = {}
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            entry = _entry(kind, node, f"heatcheck.{KINDS[kind]}.{path.stem}")
            if entry is None:
                continue
            if entry.id in found:
                raise RuntimeError(
                    f"two {kind}s are called {entry.id!r}: {found[entry.id].module} and {entry.module}"
                )
            found[entry.id] = entry
    return found


def _entry(kind: str, node: ast.stmt, module: str) -> Entry | None:
    if not isinstance(node, ast.ClassDef):
        return None
    for call in node.decorator_list:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == kind:
            facts = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}
            params = {
                item.target.id: ast.unparse(item.value)
                for item in node.body
                if isinstance(item, ast.AnnAssign)
                and isinstance(item.target, ast.Name)
                and item.value is not None
                if not ast.unparse(item.annotation).startswith("ClassVar")
            }
            doc = ast.get_docstring(node) or ""
            return Entry(kind, ast.literal_eval(call.args[0]), module, node.name, facts, doc, params)
    return None


def entries(kind: str) -> dict[str, Entry]:
    """All units of a kind by id, shipped ones and one's own."""
    own = {i: e for (k, i), e in _own.items() if k == kind}
    return {**_shipped(kind), **own}


def register(entry: Entry) -> None:
    """Add a unit of one's own; an id can be taken again only by the same module."""
    if entry.id in _shipped(entry.kind):
        raise SpecError(f"a {entry.kind} called {entry.id!r} already exists in heatcheck; choose another id")
    held = _own.get((entry.kind, entry.id))
    if held is not None and held.module != entry.module:
        raise SpecError(f"{entry.kind} {entry.id!r} is already defined in {held.module}; choose another id")
    _own[entry.kind, entry.id] = entry


def find(kind: str, id: str) -> Entry:
    """The entry of an id; an unknown one is answered with near names."""
    known = entries(kind)
    if id not in known:
        raise SpecError(f"no {kind} is called {id!r}{suggest(id, known)}")
    return known[id]


def unit_class(kind: str, id: str) -> Any:
    """The class behind an id, imported now."""
    entry = find(kind, id)
    if entry.target is not None:
        return entry.target
    return getattr(importlib.import_module(entry.module), entry.name)


def build(kind: str, spec: Any, **defaults: Any) -> Any:
    """A unit from its spec (`"rise(samples=128)"`), or the unit itself where one is given.

    Args:
        kind: method, metric or fill.
        spec: text, a parsed spec, a unit, or a unit's class.
        **defaults: parameters used where the spec names none (a profile's).
    """
    if isinstance(spec, type):
        return spec(**defaults)
    if not isinstance(spec, str | Spec):
        return spec
    parsed = parse(spec) if isinstance(spec, str) else spec
    cls = unit_class(kind, parsed.id)
    params = {**defaults, **parsed.params}
    unknown = set(params) - set(cls.parameters())
    if unknown:
        wrong = sorted(unknown)[0]
        raise SpecError(f"{kind} {parsed.id} has no parameter {wrong!r}{suggest(wrong, cls.parameters())}")
    return cls(**params)
