"""What there is: every method, metric and fill, found by reading the source, without importing torch.

A component is a class under `methods/`, `metrics/` or `fills/` with the decorator of its kind, whose arguments are
literals. Reading them from the syntax tree keeps `heatcheck list` quick and makes a new file enough to add one.
User-defined components join when their module is imported.
"""

import ast
import importlib
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from heatcheck.core.declarations import arguments_of, constants_of, keywords_of
from heatcheck.core.papers import references
from heatcheck.core.spec import Spec, SpecError, parse, suggest, write

KINDS = {"method": "methods", "metric": "metrics", "fill": "fills"}
"""Kinds of components, and the package of each."""
FOLDERS = {**KINDS, "executor": "run.executors"}
"""Everything that is found by reading a package's source."""
NESTED = {"fill": "fill", "baseline": "fill", "of": "method"}
"""Parameters that hold another component, and its kind."""
CHOICES: dict[str, tuple[str, ...]] = {
    "output": ("logit", "prob", "logprob", "margin", "accuracy"),
    "reduction": ("auto", "sum", "sum_abs", "mean_abs", "mean_square", "l2", "none"),
    "post": ("none", "abs", "relu"),
    "ties": ("random", "index", "reverse_index", "percentile_compat"),
}

FAMILIES = ("gradient", "relevance", "cam", "attention", "perturbation", "intrinsic", "own", "control")
"""Kinds of methods, in the order of lists; user-defined ones are `own` unless they declare a family."""
METRIC_FAMILIES = ("curve", "deletion", "imputation", "reference", "sanity", "form", "composite", "own")
"""Kinds of metrics, likewise."""

NOTES = ("Paper", "Differs", "Cost per sample")
"""What the last lines of a docstring are called."""


@dataclass(frozen=True)
class Entry:
    """One component as its source declares it: parameters with their defaults and types as they are written there."""

    kind: str
    id: str
    module: str
    name: str
    facts: Mapping[str, Any]
    doc: str
    params: Mapping[str, str]
    target: Any = field(default=None, repr=False)
    types: Mapping[str, str] = field(default_factory=dict, repr=False)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    inherited: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def meanings(self) -> dict[str, str]:
        """What each parameter is, as far as its docstring and those that it inherits from say."""
        said = {**self.inherited, **arguments_of(self.doc)}
        return {name: said[name] for name in self.params if name in said}

    @property
    def explanation(self) -> str:
        """The docstring between its first sentence and its list of arguments or notes: formula and background."""
        paragraphs = self.doc.strip().split("\n\n")[1:]
        ends = ("Args:", *(f"{title}:" for title in NOTES))
        return "\n\n".join(itertools.takewhile(lambda text: not text.startswith(ends), paragraphs))

    @property
    def summary(self) -> str:
        """The docstring's first sentence."""
        return self.doc.strip().split("\n\n")[0].replace("\n", " ").strip()

    def default(self, name: str) -> Any:
        """A parameter's default; its source text where that is not a literal."""
        try:
            return ast.literal_eval(self.params[name])
        except (ValueError, SyntaxError):
            return self.params[name]

    def note(self, title: str) -> str:
        """What the docstring says after `Title:`, up to the next title or an empty line: its paper, its cost."""
        found = re.search(rf"(?:^|\n|  ){title}:(.*?)(?=(?:\n|  )(?:{'|'.join(NOTES)}):|\n\n|\Z)", self.doc, re.DOTALL)
        return " ".join(found[1].split()).rstrip(".") if found else ""

    def record(self) -> dict[str, Any]:
        """What `list --json` shows."""
        facts = {k: list(v) if isinstance(v, tuple) else v for k, v in self.facts.items()}
        return {
            "id": self.id,
            "summary": self.summary,
            **facts,
            "params": {name: self.default(name) for name in self.params},
            "meanings": self.meanings,
            "choices": {name: list(words) for name, words in self.choices.items()},
            "paper": self.note("Paper"),
            "references": references(self.note("Paper")),
            "differs": self.note("Differs"),
            "cost": self.note("Cost per sample"),
        }


_own: dict[tuple[str, str], Entry] = {}


@cache
def _shipped(kind: str) -> dict[str, Entry]:
    folder = Path(__file__).parent.parent.joinpath(*FOLDERS[kind].split("."))
    trees = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.py"))}
    classes = {node.name: node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)}
    defaults = _decorator_defaults(kind, trees["base"])
    constants = {name: value for tree in trees.values() for name, value in constants_of(tree).items()}
    found: dict[str, Entry] = {}
    for stem, tree in trees.items():
        for node in tree.body:
            entry = _entry(kind, node, f"heatcheck.{FOLDERS[kind]}.{stem}", classes, defaults, constants)
            if entry is None:
                continue
            if entry.id in found:
                raise RuntimeError(f"two {kind}s are called {entry.id!r}: {found[entry.id].module} and {entry.module}")
            found[entry.id] = entry
    return found


def _decorator_defaults(kind: str, base: ast.Module) -> dict[str, Any]:
    """What a component declares when it is silent: the keyword defaults of its kind's decorator."""
    arguments = next(n.args for n in base.body if isinstance(n, ast.FunctionDef) and n.name == kind)
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {arg.arg: ast.literal_eval(default) for arg, default in pairs if default is not None}


def _entry(
    kind: str,
    node: ast.stmt,
    module: str,
    classes: Mapping[str, ast.ClassDef],
    defaults: Mapping[str, Any],
    constants: Mapping[str, Any],
) -> Entry | None:
    if not isinstance(node, ast.ClassDef):
        return None
    for call in node.decorator_list:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == kind:
            facts = {**defaults, **keywords_of(call, constants)}
            fields = _fields(node, classes)
            params = {name: ast.unparse(f.value) for name, f in fields.items() if f.value is not None}
            types = {name: ast.unparse(f.annotation) for name, f in fields.items()}
            doc = ast.get_docstring(node) or ""
            words = {**CHOICES, **_choices(node, classes, constants)}
            choices = {name: tuple(words[name]) for name in params if name in words}
            id = ast.literal_eval(call.args[0])
            inherited = _inherited_meanings(node, classes)
            return Entry(
                kind, id, module, node.name, facts, doc, params, types=types, choices=choices, inherited=inherited
            )
    return None


def _choices(
    node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], constants: Mapping[str, Any]
) -> dict[str, tuple[str, ...]]:
    """What a class's own words may be, as far as they are literals or named constants; inherited where it is silent."""
    for item in node.body:
        if (
            isinstance(item, ast.AnnAssign)
            and ast.unparse(item.target) == "choices"
            and isinstance(item.value, ast.Dict)
        ):
            found = {}
            for key, value in zip(item.value.keys, item.value.values, strict=True):
                known = constants.get(value.id) if isinstance(value, ast.Name) else None
                if key is not None and (known is not None or isinstance(value, ast.Tuple)):
                    found[ast.literal_eval(key)] = known or ast.literal_eval(value)
            return found
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            return _choices(classes[base.id], classes, constants)
    return {}


def _inherited_meanings(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> dict[str, str]:
    """What the docstrings of a class's bases say about their parameters."""
    found: dict[str, str] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name) and base.id in classes:
            above = classes[base.id]
            found |= {**_inherited_meanings(above, classes), **arguments_of(ast.get_docstring(above) or "")}
    return found


def _fields(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> dict[str, ast.AnnAssign]:
    """A dataclass's fields, inherited ones first, as `dataclasses.fields` orders them."""
    fields: dict[str, ast.AnnAssign] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name) and base.id in classes:
            fields.update(_fields(classes[base.id], classes))
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        if not ast.unparse(item.annotation).startswith("ClassVar"):
            fields[item.target.id] = item
    return fields


@cache
def _domains() -> list[dict[str, Any]]:
    """What the modules of `domain/` declare in capitals: their modality, units and roles."""
    folder = Path(__file__).parent.parent / "domain"
    return [constants_of(ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.py"))]


@cache
def modalities() -> tuple[str, ...]:
    """What classifiers read, as far as there is a domain for it.

    >>> modalities()
    ('image', 'text')
    """
    return tuple(domain["MODALITY"] for domain in _domains() if "MODALITY" in domain)


@cache
def units() -> dict[str, dict[str, Any]]:
    """What can be deleted together, by id: how it is written, on which modalities, what it is, and if it needs the CPU."""
    return {
        id: {
            "form": form,
            "on": (domain["MODALITY"],),
            "summary": summary,
            "host": id in domain.get("HOST_UNITS", ()),
        }
        for domain in _domains()
        for id, (form, summary) in domain.get("UNITS", {}).items()
    }


@cache
def unit_roles() -> dict[str, dict[str, Any]]:
    """Units by what they are for, and which ones that means on each modality."""
    here = {d["MODALITY"]: d["UNIT_ROLES"] for d in _domains() if "UNIT_ROLES" in d}
    purposes = next(d["ROLES"] for d in _domains() if "ROLES" in d)
    return {
        role: {
            "form": role,
            "on": tuple(here),
            "summary": f"{purpose}: {', '.join(f'{names[role]} on {modality}s' for modality, names in here.items())}.",
        }
        for role, purpose in purposes.items()
    }


def entries(kind: str) -> dict[str, Entry]:
    """All components of a kind by id, shipped and user-defined."""
    return {**_shipped(kind), **own_entries(kind)}


def own_entries(kind: str) -> dict[str, Entry]:
    """The user-defined components of a kind by id."""
    return {i: e for (k, i), e in _own.items() if k == kind}


def register(entry: Entry) -> None:
    """Add a user-defined component; an id can be declared again only by the same module."""
    if entry.id in _shipped(entry.kind):
        raise SpecError(f"a {entry.kind} called {entry.id!r} already exists in heatcheck; choose another id")
    earlier = _own.get((entry.kind, entry.id))
    if earlier is not None and earlier.module != entry.module:
        raise SpecError(f"{entry.kind} {entry.id!r} is already defined in {earlier.module}; choose another id")
    _own[entry.kind, entry.id] = entry


def find(kind: str, id: str) -> Entry:
    """The entry of an id; an unknown one is answered with near names."""
    known = entries(kind)
    if id not in known:
        raise SpecError(f"no {kind} is called {id!r}{suggest(id, known)}")
    return known[id]


def methods_by_family() -> list[Entry]:
    """Every method, grouped by family."""
    return sorted(entries("method").values(), key=lambda e: FAMILIES.index(e.facts["family"]))


def metrics_by_family() -> list[Entry]:
    """Every metric, grouped by family."""
    return sorted(entries("metric").values(), key=lambda e: METRIC_FAMILIES.index(e.facts["family"]))


def component_class(kind: str, id: str) -> Any:
    """The class behind an id, imported now."""
    entry = find(kind, id)
    if entry.target is not None:
        return entry.target
    return getattr(importlib.import_module(entry.module), entry.name)


def build(kind: str, spec: Any, **defaults: Any) -> Any:
    """A component from its spec (`"rise(samples=128)"`), or the component itself where one is given.

    Args:
        kind: method, metric or fill.
        spec: text, a parsed spec, a component, or a component's class.
        **defaults: parameters used where the spec names none (a profile's).
    """
    if isinstance(spec, type):
        return spec(**defaults)
    if not isinstance(spec, str | Spec):
        return spec
    parsed = parse(spec) if isinstance(spec, str) else spec
    cls = component_class(kind, parsed.id)
    params = {**defaults, **parsed.params}
    unknown = set(params) - set(cls.parameters())
    if unknown:
        wrong = sorted(unknown)[0]
        raise SpecError(_no_parameter(kind, parsed.id, wrong, cls.parameters()))
    return cls(**{name: _as_declared(value, cls.parameters()[name]) for name, value in params.items()})


def _as_declared(value: Any, default: Any) -> Any:
    """A written value as its parameter wants it: `none` and `4` may be words (a layer's name), 5 stands for 5.0."""
    if value is None and isinstance(default, str):
        return "none"
    if type(value) is int and isinstance(default, str):
        return str(value)
    return float(value) if type(value) is int and isinstance(default, float) else value


def _no_parameter(kind: str, id: str, wrong: str, known: Mapping[str, Any]) -> str:
    return f"{kind} {id} has no parameter {wrong!r}{suggest(wrong, known)}"


_NUMBERS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "bool": (bool, "true or false"),
}


def problems(kind: str, spec: str | Spec) -> Iterator[tuple[tuple[str, ...], str]]:
    """What is wrong with a written component, as far as its source tells, without importing it.

    Yields:
        the parameters that lead to the mistake (`("of", "samples")`; empty for the component itself), and what it is.
    """
    try:
        parsed = parse(spec) if isinstance(spec, str) else spec
        entry = find(kind, parsed.id)
    except SpecError as problem:
        yield (), str(problem)
        return
    for name, value in parsed.params.items():
        if name not in entry.params:
            yield (name,), _no_parameter(kind, parsed.id, name, entry.params)
            continue
        expected, words = _NUMBERS.get(entry.types.get(name, ""), (object, ""))
        if name in NESTED and value == "auto":
            continue
        if name in NESTED:
            yield from (((name, *path), what) for path, what in problems(NESTED[name], str(value)))
        elif name in entry.choices and write(value) not in entry.choices[name]:
            near = suggest(write(value), entry.choices[name])
            yield (name,), f"{kind} {parsed.id}: there is no {name}={value!r}{near}"
        elif name == "units" and (id := str(value).partition("(")[0]) not in {*units(), *unit_roles()}:
            yield (name,), f"{kind} {parsed.id}: there are no units {value!r}{suggest(id, [*units(), *unit_roles()])}"
        elif not isinstance(value, expected) or (isinstance(value, bool) and expected not in (bool, object)):
            yield (name,), f"{kind} {parsed.id}: {name}={value!r} is not {words}"
