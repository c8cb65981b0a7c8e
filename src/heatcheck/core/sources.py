"""Sources that declare themselves: functions under `@source(...)`, found by reading the files of a package.

Data sources and model sources are loader functions. Their declarations are read from the syntax trees, so listing them
imports nothing, and a new file is enough to add one. A source's module is imported when the source is loaded.
"""

import ast
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from heatcheck.core.declarations import constants_of, keywords_of, literal

Loader = TypeVar("Loader", bound=Callable[..., Any])


def source(*names: str, prefix: str = "", **facts: Any) -> Callable[[Loader], Loader]:
    """Declare a function as the loader of a source, or of several.

    The arguments are read from the syntax tree: they must be literals, or constants of the same file that are literals.

    Args:
        *names: one source each; its id is the prefix and the name.
        prefix: what the ids have in common.
        **facts: the fields of its `Source`. `{id}` and `{name}` in a text are replaced.
    """
    return lambda loader: loader


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a source declares.

    Args:
        id: its spec, or the prefix of its spec.
        form: how it is written.
        modality: image, text, or either.
        about: what it is, in a line.
        licence: under which terms its contents may be used.
        group: where it is listed.
        position: its place within the group; sources of equal position are sorted by file and line.
        default: whether it is used for its modality where the user names none.
        module: where its loader is defined.
        function: its loader's name.
    """

    listed: ClassVar[tuple[str, ...]] = ("id", "form", "modality", "about", "licence")
    """The fields that `heatcheck list` shows."""

    id: str
    form: str
    modality: str
    about: str
    licence: str
    group: str
    position: int = 99
    default: bool = False
    module: str
    function: str

    def load(self) -> Any:
        """The loader, imported now."""
        return import_attribute(self.module, self.function)

    def record(self) -> dict[str, str]:
        """What `heatcheck list --json` shows."""
        return {field: getattr(self, field) for field in self.listed}


S = TypeVar("S", bound=Source)


def read_sources(package: str, kind: type[S], groups: Sequence[str]) -> dict[str, S]:
    """The sources of a package by id, in the order of their groups and positions.

    Args:
        package: a package of heatcheck, such as `data`.
        kind: the class of its sources, whose fields they declare.
        groups: every group, in the order of the list.
    """
    folder = Path(__file__).parent.parent / package
    found = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "@source(" in text:
            module = ".".join(("heatcheck", package, *path.relative_to(folder).with_suffix("").parts))
            found += [kind(module=module, **declared) for declared in _declarations(ast.parse(text))]
    by_id = {s.id: s for s in sorted(found, key=lambda s: (groups.index(s.group), s.position))}
    if len(by_id) < len(found):
        twice = sorted({s.id for s in found if by_id[s.id] is not s})
        raise RuntimeError(f"sources of {package} that are declared twice: {', '.join(twice)}")
    return by_id


def default_source(sources: Mapping[str, S], modality: str) -> S:
    """The source that is used for a modality where the user names none."""
    return next(s for s in sources.values() if s.default and s.modality == modality)


def import_attribute(module: str, name: str) -> Any:
    """What a module calls by a name, imported now."""
    return getattr(importlib.import_module(module), name)


def _declarations(tree: ast.Module) -> Iterator[dict[str, Any]]:
    """The fields of every source that a file declares."""
    constants = constants_of(tree)
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        for call in function.decorator_list:
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "source":
                facts = keywords_of(call, constants)
                prefix = facts.pop("prefix", "")
                for name in (literal(a, constants) for a in call.args):
                    filled = {field: _filled(value, prefix + name, name) for field, value in facts.items()}
                    yield {"id": prefix + name, "function": function.name, **filled}


def _filled(value: Any, id: str, name: str) -> Any:
    return value.replace("{id}", id).replace("{name}", name) if isinstance(value, str) else value
