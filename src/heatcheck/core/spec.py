"""How a component is written with its parameters, everywhere: `smoothgrad(of=input_x_gradient, samples=8)`."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_TEXT = r'"(?:[^"\\]|\\.)*"'
_TOKEN = re.compile(
    rf"\s*(?:(?P<text>{_TEXT})|"
    r"(?P<number>-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\w.]))|(?P<name>[^\W\d][\w.\-]*)|(?P<mark>[(),=]))"
)
_WORDS = {"true": True, "false": False, "none": None}


class SpecError(ValueError):
    """Something written in a way that cannot be read."""


@dataclass(frozen=True)
class Spec:
    """An id and its parameters; parameters may be specs themselves."""

    id: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.params:
            return self.id
        if list(self.params) == ["n"]:
            return f"{self.id}({write(self.params['n'])})"
        inner = ", ".join(f"{k}={write(v)}" for k, v in self.params.items())
        return f"{self.id}({inner})"


def write(value: Any) -> str:
    """A parameter's value as `parse` reads it; words that would be read as something else stand in double quotes."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and not _plain(value):
        return json.dumps(value, ensure_ascii=False)
    return repr(value) if isinstance(value, float) else str(value)


def _plain(text: str) -> bool:
    """Whether a word, a number used as a name, or a component can be written as it is."""
    try:
        tokens = _tokens(text)
        read, rest = _value(tokens, text)
    except SpecError:
        return False
    if rest or tokens[0][0] == "text" or isinstance(read, bool | float):
        return False
    return (read if isinstance(read, str) else str(read).lower()) == text


def parse(text: str) -> Spec:
    """Read `id` or `id(key=value, …)`.

    >>> parse("smoothgrad(of=integrated_gradients(steps=8), samples=4)").params["samples"]
    4
    >>> str(parse("grid(4)"))
    'grid(4)'
    """
    tokens = _tokens(text)
    spec, rest = _spec(tokens, text)
    if rest:
        raise SpecError(f"{text!r}: did not expect {rest[0][1]!r} after {spec}; write id(key=value, …)")
    return spec


def split(text: str) -> list[str]:
    """Split a comma-separated list of specs at its outer commas."""
    parts, depth, start = [], 0, 0
    unquoted = re.sub(_TEXT, lambda quoted: "_" * len(quoted[0]), text)
    for i, c in enumerate(unquoted):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [p.strip() for p in [*parts, text[start:]] if p.strip()]


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if not match or match.lastgroup is None:
            raise SpecError(f"{text!r}: cannot read {text[at:]!r}; write id(key=value, …)")
        tokens.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return tokens


def _spec(tokens: list[tuple[str, str]], text: str) -> tuple[Spec, list[tuple[str, str]]]:
    if not tokens or tokens[0][0] != "name":
        raise SpecError(f"{text!r}: expected an id; write id(key=value, …)")
    name, tokens = tokens[0][1], tokens[1:]
    params: dict[str, Any] = {}
    if not tokens or tokens[0][1] != "(":
        return Spec(name), tokens
    tokens = tokens[1:]
    while tokens and tokens[0][1] != ")":
        if len(tokens) > 1 and tokens[1][1] == "=":
            key, tokens = tokens[0][1], tokens[2:]
        else:
            key = "n"
        if key in params:
            raise SpecError(f"{text!r}: {key} is given twice")
        params[key], tokens = _value(tokens, text)
        if tokens and tokens[0][1] == ",":
            tokens = tokens[1:]
        elif tokens and tokens[0][1] != ")":
            raise SpecError(f"{text!r}: expected a comma before {tokens[0][1]!r}")
    if not tokens:
        raise SpecError(f"{text!r}: the bracket is not closed")
    return Spec(name, params), tokens[1:]


def _value(tokens: list[tuple[str, str]], text: str) -> tuple[Any, list[tuple[str, str]]]:
    if not tokens or tokens[0][0] == "mark":
        raise SpecError(f"{text!r}: a value is missing; write id(key=value, …)")
    kind, token = tokens[0]
    if kind == "text":
        return _unquoted(token), tokens[1:]
    if kind == "number":
        return (int(token) if re.fullmatch(r"-?\d+", token) else float(token)), tokens[1:]
    if token.lower() in _WORDS:
        return _WORDS[token.lower()], tokens[1:]
    spec, rest = _spec(tokens, text)
    return str(spec) if spec.params else spec.id, rest


def _unquoted(token: str) -> str:
    try:
        return str(json.loads(token))
    except json.JSONDecodeError as problem:
        raise SpecError(f"cannot read {token}: {problem.msg}") from None


def suggest(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?` where a known name is near, else the known names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    return f"; known: {', '.join(names)}" if names else ""
