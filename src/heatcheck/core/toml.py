"""Reading TOML files and knowing where in the file everything stands, so that an error can point at it."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Keys = tuple[str | int, ...]
"""The way to a value: `("methods", 2, "samples")`."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'",
    re.DOTALL,
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ATOM = re.compile(r"[^,\]\}\n#]+")


class TomlError(ValueError):
    """A file that is not TOML."""


@dataclass(frozen=True)
class Document:
    """A TOML file's values and their places.

    Args:
        path: the file.
        text: what it holds.
        values: what that means.
        offsets: where each key and array item begins in the text.
    """

    path: Path
    text: str
    values: dict[str, Any]
    offsets: dict[Keys, int]

    def at(self, keys: Keys) -> str:
        """`file:line:column: ` of a key, or of the nearest one above it that is written down."""
        while keys and keys not in self.offsets:
            keys = keys[:-1]
        if not keys:
            return f"{self.path}: "
        before = self.text[: self.offsets[keys]]
        return f"{self.path}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}: "


def read(path: Path) -> Document:
    """Read a TOML file.

    Raises:
        TomlError: it is not there, or is not TOML; the message names the line.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as problem:
        raise TomlError(f"{path}: {problem.strerror or problem}") from problem
    except UnicodeDecodeError as problem:
        raise TomlError(f"{path}: not a UTF-8 text file (byte {problem.start})") from problem
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        what = re.sub(r" \(at .*\)$", "", str(problem))
        place = re.search(r"line (\d+), column (\d+)", str(problem))
        line, column = place.groups() if place else (text.count("\n") + 1, 1)
        raise TomlError(f"{path}:{line}:{column}: {what[:1].lower()}{what[1:]}") from problem
    offsets: dict[Keys, int] = {}
    for keys, offset in _Scanner(text).walk():
        offsets.setdefault(keys, offset)
    return Document(path, text, values, offsets)


class _Scanner:
    """Walks over text that is known to be TOML and says where keys and array items begin."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.i = 0
        self.tables: dict[Keys, int] = {}

    def walk(self) -> Iterator[tuple[Keys, int]]:
        """Every key and array item, in the order of the text; a table of many parts comes up more than once."""
        table: Keys = ()
        while not self._done():
            start = self.i
            if self._take("[["):
                table = self._array_table(self._key())
                self._take("]]")
            elif self._take("["):
                table = self._within(self._key())
                self._take("]")
            else:
                yield from self._pair(table)
                continue
            yield from ((table[:n], start) for n in range(1, len(table) + 1))

    def _array_table(self, keys: Keys) -> Keys:
        outer = self._within(keys[:-1]) + keys[-1:]
        self.tables[outer] = self.tables.get(outer, -1) + 1
        return (*outer, self.tables[outer])

    def _within(self, keys: Keys) -> Keys:
        """A table's path, through the latest item of every array of tables on the way."""
        path: Keys = ()
        for key in keys:
            path = (*path, key)
            if path in self.tables:
                path = (*path, self.tables[path])
        return path

    def _pair(self, table: Keys) -> Iterator[tuple[Keys, int]]:
        start = self._skip()
        key = self._key()
        yield from ((table + key[:n], start) for n in range(1, len(key) + 1))
        self._take("=")
        yield from self._value(table + key)

    def _value(self, path: Keys) -> Iterator[tuple[Keys, int]]:
        self._skip()
        if self._take("["):
            n = 0
            while not self._take("]"):
                yield (*path, n), self._skip()
                yield from self._value((*path, n))
                self._take(",")
                n += 1
        elif self._take("{"):
            while not self._take("}"):
                yield from self._pair(path)
                self._take(",")
        else:
            match = _STRING.match(self.text, self.i) or _ATOM.match(self.text, self.i)
            self.i = match.end() if match else len(self.text)

    def _key(self) -> Keys:
        parts: list[str] = []
        while match := _STRING.match(self.text, self._skip()) or _BARE.match(self.text, self.i):
            self.i = match.end()
            parts.append(tomllib.loads(f"k = {match[0]}")["k"] if match[0][0] in "\"'" else match[0])
            if not self._take("."):
                break
        return tuple(parts)

    def _skip(self) -> int:
        self.i = _BLANK.match(self.text, self.i).end()  # type: ignore[union-attr]
        return self.i

    def _take(self, mark: str) -> bool:
        self._skip()
        found = self.text.startswith(mark, self.i)
        self.i += len(mark) * found
        return found

    def _done(self) -> bool:
        return self._skip() >= len(self.text)
