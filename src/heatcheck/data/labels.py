"""Labels as people write them, and the class indices they mean."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from heatcheck.core.types import HeatcheckError, PathLike
from heatcheck.data.imagenet_names import imagenet_classes, imagenet_wnids

ClassesArg = PathLike | Sequence[str] | None


@dataclass(frozen=True)
class Labels:
    """Reads labels.

    Args:
        classes: class names by index; without them a label must be an index.
        aliases: further names of classes, such as ImageNet's wnids.
        sorted_names: whether the classes are only the names that occur, sorted.
        only_names: whether an index, which these classes had nowhere before, means none of them.
        fractional: where labels are numbers, as a regression has them, and no classes, one of them; else empty.
    """

    classes: tuple[str, ...] | None = None
    aliases: Mapping[str, int] = field(default_factory=dict)
    sorted_names: bool = False
    only_names: bool = False
    fractional: str = ""

    def read(self, written: Any) -> tuple[int | None, str | None]:
        """A class index, or None where nothing is written; and what is wrong with the label, if anything."""
        if is_missing(written):
            return None, None
        if _is_list(written):
            return None, "its label is a list of classes; name the one to explain with --target (in Python target=)"
        if isinstance(written, str) and written.strip() in self._by_name:
            index = self._by_name[written.strip()]
            return (
                index,
                None if index is not None else f"label {written!r} is not unique: several classes have that name",
            )
        if self.fractional:
            return None, None if as_number(written) is not None else f"label {_short(written)} is not a number"
        if self.only_names and as_number(written) is not None:
            return None, f"label {_short(written)} is a number, while most labels are names"
        index = as_index(written)
        if index is None:
            known = f"one of the {len(self.classes)} class names or an index" if self.classes else "a class index"
            return None, f"label {_short(written)} is not {known}"
        if index < 0 or (self.classes is not None and index >= len(self.classes)):
            upper = f"0 to {len(self.classes) - 1}" if self.classes else "0 or more"
            return None, f"label {index} is not a class index ({upper})"
        return index, None

    @cached_property
    def _by_name(self) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        for i, name in enumerate(self.classes or ()):
            found[name] = None if name in found else i
        return {**found, **self.aliases}

    @classmethod
    def imagenet(cls) -> "Labels":
        """ImageNet's thousand classes, by index, name or wnid."""
        return cls(imagenet_classes(), {wnid: i for i, wnid in enumerate(imagenet_wnids())})

    @classmethod
    def of(cls, written: Iterable[Any], classes: ClassesArg = None) -> "Labels":
        """The classes given, else the sorted names that occur, unless labels are mostly numbers.

        Numbers are indices, unless one of them is a fraction: then none is. Where words stand among them, most must be
        fractions for that, as either may be a slip.
        """
        if classes is not None:
            return cls.given(classes)
        present = [w for w in written if not is_missing(w)]
        named = [w.strip() for w in present if isinstance(w, str) and as_number(w) is None]
        if 2 * len(named) > len(present):
            return cls(tuple(sorted(set(named))), sorted_names=True, only_names=True)
        numbers = [number for number in map(as_number, present) if number is not None]
        fractions = [number for number in numbers if not number.is_integer()]
        regression = 2 * len(fractions) > len(numbers) if named else bool(fractions)
        return cls(fractional=f"{fractions[0]:g}") if regression else cls()

    @classmethod
    def given(cls, classes: ClassesArg) -> "Labels":
        """The classes a user names: a list, a file with one name per line, `imagenet`, or None."""
        if classes is None:
            return cls()
        if classes == "imagenet":
            return cls.imagenet()
        if isinstance(classes, str | Path):
            return cls(read_lines(Path(classes), "classes"))
        return cls(tuple(str(name) for name in classes))


def read_lines(path: Path, what: str) -> tuple[str, ...]:
    """A text file's lines without empty ones at its end."""
    try:
        text = path.expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise HeatcheckError(f"{what}={str(path)!r} cannot be read: {error}") from error
    return tuple(line.strip() for line in text.rstrip().splitlines())


def is_missing(written: Any) -> bool:
    """Whether there is no label: None, NaN, an empty cell."""
    if written is None or (isinstance(written, str) and written.strip().lower() in ("", "nan")):
        return True
    return isinstance(written, float) and written != written


def _is_list(written: Any) -> bool:
    """Whether a label is a list, or a tensor or array of several values."""
    return isinstance(written, list | tuple) or (getattr(written, "ndim", 0) > 0 and as_number(written) is None)


def as_index(written: Any) -> int | None:
    """An integer written as a number, a numeric text or a one-element tensor; None if it is none of these."""
    number = as_number(written)
    return int(number) if number is not None and number.is_integer() else None


def as_number(written: Any) -> float | None:
    """A finite number, written as one, as a text or as a one-element tensor; None if it is none of these."""
    if hasattr(written, "item") and getattr(written, "size", None) is not None:
        try:
            written = written.item()
        except (ValueError, RuntimeError):
            return None
    try:
        number = float(written)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
