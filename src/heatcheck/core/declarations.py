"""Reading what decorators declare from a file's syntax tree, without importing it."""

import ast
import re
from collections.abc import Mapping
from typing import Any


def constants_of(tree: ast.Module) -> dict[str, Any]:
    """A module's constants: names in capitals whose values are literals."""
    found: dict[str, Any] = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        name = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(name, ast.Name) and name.id.isupper():
            try:
                found[name.id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


def arguments_of(doc: str) -> dict[str, str]:
    """What a docstring says about each argument, one line each."""
    found: dict[str, list[str]] = {}
    section = re.search(r"^Args:\n(.*?)(?=\n\S|\Z)", doc, re.DOTALL | re.MULTILINE)
    for line in section[1].splitlines() if section else ():
        named = re.match(r"    (\w+): (.*)", line)
        if named:
            found[named[1]] = [named[2]]
        elif found and line.strip():
            found[next(reversed(found))].append(line.strip())
    return {name: " ".join(lines) for name, lines in found.items()}


def literal(node: ast.expr, constants: Mapping[str, Any]) -> Any:
    """A literal, or the constant that a name stands for.

    >>> literal(ast.parse("SIZES", mode="eval").body, {"SIZES": (1, 2)})
    (1, 2)

    Raises:
        RuntimeError: it is neither; says where.
    """
    if isinstance(node, ast.Name) and node.id in constants:
        return constants[node.id]
    try:
        return ast.literal_eval(node)
    except ValueError as problem:
        written = ast.unparse(node)
        raise RuntimeError(f"line {node.lineno}: {written} is neither a literal nor a constant") from problem


def keywords_of(call: ast.Call, constants: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a decorator; `**NAME` stands for a constant that several declarations share."""
    found: dict[str, Any] = {}
    for keyword in call.keywords:
        value = literal(keyword.value, constants)
        found.update({keyword.arg: value} if keyword.arg is not None else value)
    return found
