"""Fonts of this machine that can draw a text, whatever its script."""

import os
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import ImageFont

_NAMES = (
    "DejaVuSans.ttf",
    "Arial Unicode.ttf",
    "arial.ttf",
    "NotoSans-Regular.ttf",
    "NotoSansCJK-Regular.ttc",
    "DroidSansFallbackFull.ttf",
    "wqy-zenhei.ttc",
    "PingFang.ttc",
    "msyh.ttc",
)
"""Fonts with many letters, the first that has all of a word is taken; then Pillow's own, and whatever else there is."""
_FILES = (".ttf", ".otf", ".ttc")
_ODD = ("bold", "italic", "oblique", "mono", "condensed", "light", "black", "thin", "serif")
_NO_INK = ("Cc", "Cf", "Zs", "Zl", "Zp")
_ABSENT = "\U0010ffff"  # no character: what a font shows for it, it shows for all that it lacks


@dataclass
class _Face:
    """A font in the sizes that were asked for."""

    path: str | None
    _sizes: dict[int, Any] = field(default_factory=dict)
    _has: dict[str, bool] = field(default_factory=dict)

    def at(self, size: int) -> Any:
        """The font in a size.

        Raises:
            OSError: it cannot be read, or has no such size.
        """
        if size not in self._sizes:
            load = ImageFont.load_default(size) if self.path is None else ImageFont.truetype(self.path, size)
            self._sizes[size] = load
        return self._sizes[size]

    def has(self, letter: str, size: int) -> bool:
        """Whether it has a glyph of its own for a character."""
        if letter not in self._has:
            own, absent = (self.at(size).getmask(each) for each in (letter, _ABSENT))
            self._has[letter] = (own.size, bytes(own)) != (absent.size, bytes(absent))
        return self._has[letter]


class Fonts:
    """Finds a font for every word, and keeps which characters none has."""

    def __init__(self) -> None:
        self.lacking: dict[str, None] = {}
        self._faces: list[_Face] = []
        self._more = _all_faces()

    def of(self, text: str, size: int) -> Any:
        """The first font with all characters of a text; else that with most of them."""
        letters = {letter for letter in text if _has_ink(letter)}
        best, most = None, -1
        for face in self._opened(size):
            known = sum(face.has(letter, size) for letter in letters)
            if known > most:
                best, most = face, known
            if known == len(letters):
                break
        if best is None:
            return ImageFont.load_default(size)
        self.lacking.update(
            dict.fromkeys(letter for letter in text if letter in letters and not best.has(letter, size))
        )
        return best.at(size)

    def _opened(self, size: int) -> Iterator[_Face]:
        yield from self._faces
        for face in self._more:
            try:
                face.at(size)
            except OSError:  # there is none of that name, or it has pictures of one size only
                continue
            self._faces.append(face)
            yield face


def _has_ink(letter: str) -> bool:
    return unicodedata.category(letter) not in _NO_INK and not "\ufe00" <= letter <= "\ufe0f"


def _all_faces() -> Iterator[_Face]:
    yield from (_Face(name) for name in _NAMES)
    yield _Face(None)
    found = [path for folder in font_folders() for path in folder.rglob("*") if path.suffix.lower() in _FILES]
    yield from (_Face(str(path)) for path in sorted(found, key=_preference) if path.name not in _NAMES)


def _preference(path: Path) -> tuple[int, str]:
    """Upright letters of usual weight first."""
    name = path.stem.lower()
    return sum(word in name for word in _ODD), str(path)


def font_folders() -> list[Path]:
    """Where systems keep their fonts."""
    home = Path.home()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA", str(home))
        return [Path(os.environ.get("WINDIR", "C:/Windows"), "Fonts"), Path(local, "Microsoft/Windows/Fonts")]
    if sys.platform == "darwin":
        return [Path("/System/Library/Fonts"), Path("/Library/Fonts"), home / "Library/Fonts"]
    shared = os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share"
    data = os.environ.get("XDG_DATA_HOME") or str(home / ".local/share")
    return [Path(folder, "fonts") for folder in (data, *shared.split(":"))] + [home / ".fonts"]
