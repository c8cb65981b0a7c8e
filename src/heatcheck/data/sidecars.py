"""References that lie beside a folder's pictures: `masks/`, `boxes.csv`, `parts.csv`, `parts/` and `without/`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from heatcheck.core.spec import suggest
from heatcheck.core.types import HeatcheckError
from heatcheck.data.images import SUFFIXES
from heatcheck.data.labels import Labels, is_missing
from heatcheck.data.references import check_box
from heatcheck.data.tables import read_table

FILES = frozenset({"boxes.csv", "parts.csv"})
FOLDERS = ("masks", "parts", "without")
_EDGES = ("left", "top", "right", "bottom")


@dataclass(frozen=True)
class Box:
    """A row of a table of boxes."""

    edges: tuple[float, float, float, float]
    cells: Mapping[str, str]


@dataclass(frozen=True)
class Sidecars:
    """References of pictures, by the pictures' names.

    Args:
        masks: paths of mask pictures.
        boxes: rows of `boxes.csv`.
        parts: boxes or paths of masks, by part.
        without: paths of the pictures re-rendered without a part, by part.
        notes: what a reader should know.
    """

    masks: Mapping[str, Path] = field(default_factory=dict)
    boxes: Mapping[str, Sequence[Box]] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    without: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def of(self, name: str, label: int | None = None, labels: Labels | None = None) -> dict[str, Any]:
        """A picture's references; boxes of another class than the picture's label are left out."""
        found: dict[str, Any] = {}
        if name in self.masks:
            found["mask"] = self.masks[name]
        boxes = [b.edges for b in self.boxes.get(name, ()) if _belongs(b.cells.get("class"), label, labels)]
        if boxes:
            found["boxes"] = boxes
        if name in self.parts:
            found["parts"] = self.parts[name]
        if name in self.without:
            found["without"] = self.without[name]
        return found


def _belongs(written: str | None, label: int | None, labels: Labels | None) -> bool:
    if is_missing(written) or label is None or labels is None:
        return True
    return labels.read(written)[0] == label


def beside(roots: Sequence[Path], names: Sequence[str]) -> Sidecars:
    """The sidecars of these pictures; each kind is read from the first folder that has it.

    Raises:
        HeatcheckError: a table lacks columns, names an unknown picture, or has a box that is none.
    """
    boxes, parts = (_first(roots, file) for file in ("boxes.csv", "parts.csv"))
    folders = {kind: _first(roots, kind) for kind in FOLDERS}
    if not any((boxes, parts, *folders.values())):
        return Sidecars()
    pictures = _Names(names)
    notes: list[str] = []
    regions: dict[str, dict[str, Any]] = {}
    if parts is not None:
        for name, rows in _table(parts, ("part",), pictures).items():
            for row in rows:
                regions.setdefault(name, {}).setdefault(row.cells["part"].strip(), []).append(row.edges)
    for name, inside in _by_part(folders["parts"], pictures, notes).items():
        regions.setdefault(name, {}).update(inside)
    return Sidecars(
        masks=_by_picture(folders["masks"], pictures, notes),
        boxes=_table(boxes, (), pictures) if boxes is not None else {},
        parts=regions,
        without=_by_part(folders["without"], pictures, notes),
        notes=tuple(notes),
    )


def split(paths: Iterable[PurePosixPath]) -> tuple[list[PurePosixPath], list[PurePosixPath]]:
    """A folder's pictures, and its sidecars: files in a folder such as `masks/` that are named after a picture."""
    ours: list[PurePosixPath] = []
    inside: dict[str, list[PurePosixPath]] = {}
    for path in paths:
        if len(path.parts) > 1 and path.parts[0] in FOLDERS:
            inside.setdefault(path.parts[0], []).append(path)
        else:
            ours.append(path)
    if not inside:
        return ours, []
    stems = _Names([str(path) for path in ours])
    sidecars: list[PurePosixPath] = []
    for kind, found in inside.items():
        owned = any(stems.get(_owner(kind, path.relative_to(kind))) for path in found)
        (sidecars if owned else ours).extend(found)
    return ours, sidecars


def _owner(kind: str, path: PurePosixPath) -> str:
    """The name, without a suffix, of the picture that a sidecar belongs to."""
    return str(path.with_suffix("") if kind == "masks" else path.parent)


class _Names:
    """Pictures by name, by the ends of their paths and by these without a suffix, where that is unique."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self._known: dict[str, str | None] = {}
        for name in self.names:
            path = PurePosixPath(name)
            tails = ["/".join(path.parts[i:]) for i in range(len(path.parts))]
            for tail in {*tails, *(str(PurePosixPath(t).with_suffix("")) for t in tails)}:
                self._known[tail] = name if self._known.get(tail, name) == name else None
        self._known.update({name: name for name in self.names})

    def get(self, written: str) -> str | None:
        """The picture that is meant, if one is."""
        return self._known.get(written)


def _first(roots: Sequence[Path], name: str) -> Path | None:
    kind = Path.is_file if name in FILES else Path.is_dir
    return next((root / name for root in roots if kind(root / name)), None)


def _table(path: Path, more: tuple[str, ...], pictures: _Names) -> dict[str, list[Box]]:
    rows = read_table(path, ",", header=True)
    wanted = ("file", *more, *_EDGES)
    if rows and not set(wanted) <= set(rows[0].cells):
        raise HeatcheckError(f"{path}: columns are {', '.join(rows[0].cells)}; expected {', '.join(wanted)}")
    found: dict[str, list[Box]] = {}
    for line, row in enumerate(rows, 2):
        try:
            found.setdefault(_named(row.cells["file"], pictures), []).append(_box(row.cells, row.problem))
        except HeatcheckError as error:
            raise HeatcheckError(f"{path}, row {line}: {error}") from error
    return found


def _named(written: str, pictures: _Names) -> str:
    name = pictures.get(written.strip())
    if name is None:
        raise HeatcheckError(f"there is no picture {written!r} in the folder{suggest(written, pictures.names)}")
    return name


def _box(cells: Mapping[str, str], problem: str | None) -> Box:
    if problem is not None:
        raise HeatcheckError(problem)
    try:
        left, top, right, bottom = (float(cells[edge]) for edge in _EDGES)
    except ValueError as error:
        raise HeatcheckError(f"a box needs four numbers: {error}") from error
    check_box((left, top, right, bottom))
    return Box((left, top, right, bottom), cells)


def _by_picture(folder: Path | None, pictures: _Names, notes: list[str]) -> dict[str, Path]:
    return {name: path for name, path in _owned(folder, "masks", pictures, notes)}


def _by_part(folder: Path | None, pictures: _Names, notes: list[str]) -> dict[str, dict[str, Path]]:
    found: dict[str, dict[str, Path]] = {}
    for name, path in _owned(folder, "parts", pictures, notes):
        found.setdefault(name, {})[path.stem] = path
    return found


def _owned(folder: Path | None, kind: str, pictures: _Names, notes: list[str]) -> list[tuple[str, Path]]:
    """The folder's pictures with the picture that each belongs to; the number of others is noted."""
    if folder is None:
        return []
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
    pairs = [(pictures.get(_owner(kind, PurePosixPath(p.relative_to(folder).as_posix()))), p) for p in files]
    owned = [(name, path) for name, path in pairs if name is not None]
    if owned and len(owned) < len(pairs):
        notes.append(f"{len(pairs) - len(owned)} files in {folder.name}/ belong to no picture here")
    return owned
