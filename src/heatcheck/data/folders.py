"""Pictures in folders and lists of files."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError, Modality, Sample, digest_of
from heatcheck.data import sidecars
from heatcheck.data.base import Listing, SourceOptions, distinct
from heatcheck.data.catalogue import split_place
from heatcheck.data.imagenet_names import imagenet_wnids
from heatcheck.data.images import SUFFIXES, picture_sample
from heatcheck.data.labels import Labels, as_index, is_missing, read_lines
from heatcheck.data.places import existing, kind_of
from heatcheck.data.references import picture_with
from heatcheck.data.tables import file_text, read_table

_WNID = re.compile(r"n\d{8}")
_SIDECARS = frozenset({"labels.csv", "classes.txt", *sidecars.FILES})
SPLITS = ("val", "test", "train")
"""Subfolders that hold a split, where there is `train` and another one."""
IMAGENET_SPLITS = ("val", "train")
"""Of ImageNet, the first by default."""
_LOOKED_AT = 100
"""Lines that tell a list of pictures from a file of texts."""


@source(
    "folder",
    form="folder:PATH[:SPLIT]",
    modality="image",
    about="a folder of pictures: flat, with a subfolder per class, or with a labels.csv; masks, boxes, parts; splits val, test, train where they are subfolders",
    group="images",
    position=1,
    splits=SPLITS,
    present="splits_of",
)
def folder(where: str, options: SourceOptions) -> Listing:
    """A folder of pictures, flat or with a subfolder per class.

    A lone subfolder (`images/`) only wraps the pictures. Classes are `classes=`, else the lines of
    `classes.txt`, else ImageNet's if subfolders are wnids, else the subfolders in sorted order.
    A `labels.csv` (file, label) beside the pictures labels them instead. References are read from `masks/`,
    `boxes.csv`, `parts.csv`, `parts/` and `without/`, where these are there.

    With a split, its subfolder is read in the same way, and classes are those of all splits together, so that every
    split numbers them alike.

    Args:
        where: the folder; then, after a colon, `val`, `test` or `train`.
        options: what else a user says.
    """
    place, split = split_place(where, SPLITS)
    root = existing(place, "folder")
    labels = Labels.given(options.classes) if options.classes is not None else None
    if not split:
        listing = picture_listing(root, root, options, labels)
        note = f"subfolders are splits, not classes: write folder:{place}:train for one of them"
        return replace(listing, notes=(note, *listing.notes)) if _only_splits(root) else listing
    inner = _split_folder(root, split, SPLITS)
    if labels is None:
        labels = Labels.given(root / "classes.txt") if (root / "classes.txt").is_file() else _common_labels(root)
    return replace(picture_listing(inner, inner, options, labels), name=f"{root.resolve().name}-{split}")


def splits_of(where: str) -> tuple[str, ...]:
    """The splits that a folder has: `train` and others, as subfolders."""
    root = existing(where, "folder")
    found = tuple(split for split in SPLITS if (root / split).is_dir())
    return found if "train" in found and len(found) > 1 else ()


def _only_splits(root: Path) -> bool:
    return bool(splits_of(str(root))) and {p.name for p in _subfolders(root)} <= set(SPLITS)


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        raise HeatcheckError(f"folder {str(folder)!r} cannot be read: {error.strerror}") from error


def _split_folder(root: Path, split: str, splits: tuple[str, ...]) -> Path:
    if not (root / split).is_dir():
        known = ", ".join(name for name in splits if (root / name).is_dir())
        raise HeatcheckError(f"{str(root)!r} has no subfolder {split}; of {', '.join(splits)} it has {known or 'none'}")
    return root / split


def _common_labels(root: Path) -> Labels | None:
    """The classes of all splits together, or None where each split finds the same ones, or none, by itself."""
    folders = [root / split for split in SPLITS if (root / split).is_dir()]
    tables = [_rows(folder / "labels.csv") for folder in folders if (folder / "labels.csv").is_file()]
    if tables:
        rows = [row for table in tables for row in table]
        return None if any("wnid" in row for row in rows) else Labels.of(row["label"] for row in rows)
    names = {path.name for folder in folders for path in _subfolders(folder)} - set(sidecars.FOLDERS)
    if len(names) < 2 or _are_wnids(names):
        return None
    return Labels(tuple(sorted(names)), sorted_names=True)


def _are_wnids(names: Iterable[str]) -> bool:
    """Whether all of these are wnids of ImageNet's thousand classes."""
    return all(_WNID.fullmatch(name) for name in names) and set(names) <= set(imagenet_wnids())


@source(
    "imagenet",
    form="imagenet:PATH[:SPLIT]",
    modality="image",
    about="ImageNet: val/nXXXXXXXX/*.JPEG, train/ likewise, or pictures with a labels.csv (file, label, wnid, name); splits val, train",
    licence="ImageNet's terms of access",
    group="images",
    position=2,
    splits=IMAGENET_SPLITS,
    present="imagenet_splits_of",
    recognises="is_imagenet",
)
def imagenet(where: str, options: SourceOptions) -> Listing:
    """ImageNet's pictures: wnid folders, here or in `val/` or `train/`, or pictures beside a `labels.csv`.

    Args:
        where: the folder; then, after a colon, `val` (as without) or `train`.
        options: what else a user says.
    """
    place, split = split_place(where, IMAGENET_SPLITS)
    root = existing(place, "folder")
    labels = Labels.imagenet() if options.classes is None else Labels.given(options.classes)
    if split == "train":
        inner = _split_folder(root, split, IMAGENET_SPLITS)
        return replace(picture_listing(inner, inner, options, labels), name=f"{root.resolve().name}-train")
    inner = root / "val" if (root / "val").is_dir() else root
    return picture_listing(root, inner, options, labels)


def imagenet_splits_of(where: str) -> tuple[str, ...]:
    """The splits that a folder has as subfolders, if it has both."""
    root = existing(where, "folder")
    return IMAGENET_SPLITS if all((root / split).is_dir() for split in IMAGENET_SPLITS) else ()


def is_imagenet(root: Path) -> bool:
    """Whether a folder looks like ImageNet: wnid folders, here or in `val/`."""
    inner = root / "val" if (root / "val").is_dir() else root
    names = [path.name for path in inner.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return bool(names) and all(_WNID.fullmatch(name) for name in names)


@source(
    "files",
    form="files:LIST.txt",
    modality="image",
    about="a list of pictures, one path per line, each with a label after a tab or comma if it is known",
    group="images",
    position=5,
    suffixes=(".txt", ".lst"),
    recognises="lists_pictures",
)
def files(where: str, options: SourceOptions) -> Listing:
    """A list of pictures: a path per line, relative to the list, then a tab or comma and the label, if known."""
    path = existing(where, "file")
    lines = [line for line in read_lines(path, "files") if line]
    pairs = [_path_and_label(line, path.parent) for line in lines]
    names = distinct([written for written, _ in pairs])

    def make(index: int) -> tuple[Sample, str | None]:
        written, label = pairs[index]
        return picture_sample(names[index], path.parent / Path(written).expanduser()), label

    return Listing(
        name=path.stem,
        modality=Modality.IMAGE,
        names=names,
        make=make,
        label=lambda i: pairs[i][1],
        labels=Labels.of((label for _, label in pairs), options.classes),
    )


def lists_pictures(path: Path) -> bool:
    """Whether most lines of a file name a picture; those of other text files are texts."""
    if not path.is_file():
        return False
    lines = [line.strip() for line in file_text(path).split("\n")[:_LOOKED_AT] if line.strip()]
    named = [
        any(word.lower().endswith(tuple(SUFFIXES)) for word in re.split(r"[\s,]+", line))
        or kind_of(path.parent / _path_and_label(line, path.parent)[0]) == "file"
        for line in lines
    ]
    return sum(named) * 2 > len(named)


def _path_and_label(line: str, base: Path) -> tuple[str, str | None]:
    if "\t" in line:
        written, label = line.split("\t", 1)
        return written.strip(), label
    if "," in line and kind_of(base / line) is None:
        written, label = line.rsplit(",", 1)
        return written.strip(), label
    return line, None


@dataclass(frozen=True)
class Found:
    """A folder's pictures, in order, and what a reader should know of its other files."""

    pictures: tuple[PurePosixPath, ...]
    notes: tuple[str, ...]


def search(root: Path) -> Found:
    """The pictures in a folder and below, without those that are references of others."""
    pictures, others, notes = [], [], []
    files, circles = _walk(root)
    for path in files:
        relative = PurePosixPath(path.relative_to(root).as_posix())
        if path.suffix.lower() in SUFFIXES:
            pictures.append(relative)
        elif relative.name not in _SIDECARS:
            others.append(relative)
    pictures, _ = sidecars.split(pictures)
    if others:
        kinds = Counter(path.suffix.lower() or "no suffix" for path in others)
        shown = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
        notes.append(f"{len(others)} files are left aside, not being pictures: {shown}")
    if circles:
        links = "1 link leads" if len(circles) == 1 else f"{len(circles)} links lead"
        first = circles[0].relative_to(root).as_posix()
        notes.append(f"{links} back to a folder that is read already and is not followed: {first}")
    return Found(tuple(sorted(pictures, key=str)), tuple(notes))


def _walk(root: Path) -> tuple[list[Path], list[Path]]:
    """Every file in a folder and below, and the links that are not followed.

    Each folder is entered once, whatever links lead to it; a folder's own place goes before links to it. A link to a
    folder that holds the root is not followed either.
    """
    files: list[Path] = []
    circles: list[Path] = []
    entered = {parent.resolve() for parent in (root, *root.resolve().parents)}
    folders: list[Path] = [root]
    links: list[Path] = []
    while folders or links:
        folder = folders.pop() if folders else links.pop(0)
        if folder != root:
            real = folder.resolve()
            if real in entered:
                circles.append(folder)
                continue
            entered.add(real)
        for path in sorted(folder.iterdir()):
            if path.name.startswith("."):
                continue
            if path.is_dir():
                (links if path.is_symlink() else folders).append(path)
            elif path.is_file() or path.suffix.lower() in SUFFIXES:
                files.append(path)
    return files, circles


def picture_listing(root: Path, inner: Path, options: SourceOptions, labels: Labels | None) -> Listing:
    """The pictures of a folder, labelled by a `labels.csv` or by their subfolders, with the references beside them.

    Args:
        root: the folder that a user names.
        inner: the folder in it that holds the pictures; sidecars may lie in either.
        options: what else a user says.
        labels: how to read labels; None to find out.
    """
    try:
        found = search(inner)
    except OSError as error:
        raise HeatcheckError(f"folder {str(inner)!r} cannot be read: {error.strerror}") from error
    table = next((p for p in (root / "labels.csv", inner / "labels.csv") if p.is_file()), None)
    if labels is None and (root / "classes.txt").is_file():
        labels = Labels.given(root / "classes.txt")
    if table is not None:
        listing = _with_table(root.resolve().name, inner, found, _rows(table), labels)
    else:
        listing = _with_subfolders(root.resolve().name, inner, found, labels)
    return with_references(listing, sidecars.beside((root, inner), listing.names))


def with_references(listing: Listing, known: sidecars.Sidecars) -> Listing:
    """The listing with what its pictures' maps should show."""

    def make(index: int) -> tuple[Sample, Any]:
        sample, written = listing.make(index)
        label, _ = listing.labels.read(written)
        return picture_with(sample, known.of(listing.names[index], label, listing.labels)), written

    return replace(listing, make=make, notes=(*listing.notes, *known.notes))


def _with_subfolders(name: str, root: Path, found: Found, labels: Labels | None) -> Listing:
    wrapped = _wrapped(found.pictures, labels)
    written = [path.parts[wrapped] if len(path.parts) > wrapped + 1 else None for path in found.pictures]
    groups = sorted({w for w in written if w is not None})
    notes = list(found.notes)
    if groups and None in written:
        notes.append(f"{written.count(None)} pictures lie beside the class folders and have no label")
    if labels is None and groups and _are_wnids(groups):
        labels = Labels.imagenet()
        notes.append("subfolders are ImageNet wnids, so labels are ImageNet's; pass classes= for another order")
    if not groups:
        notes.append("no labels: neither class subfolders nor a labels.csv")
    if labels is None:
        labels = Labels(tuple(groups) or None, sorted_names=bool(groups))
        notes.extend(_misleading(groups))
    return Listing(
        name=name,
        modality=Modality.IMAGE,
        names=[str(path) for path in found.pictures],
        make=lambda i: (picture_sample(str(found.pictures[i]), root / found.pictures[i]), written[i]),
        label=written.__getitem__,
        labels=labels,
        notes=tuple(notes),
    )


def _misleading(groups: list[str]) -> list[str]:
    numeric = all(group.isdecimal() for group in groups)
    if not numeric or groups == sorted(groups, key=int):
        return []
    return ["class folders are numbers, sorted as text (10 before 2), like torchvision's; else pass classes="]


def _wrapped(pictures: tuple[PurePosixPath, ...], labels: Labels | None) -> int:
    """How many outer folders hold all the pictures without being a class."""
    depth = 0
    while True:
        heads = {path.parts[depth] if len(path.parts) > depth + 1 else None for path in pictures}
        head = heads.pop() if len(heads) == 1 else None
        if head is None or _WNID.fullmatch(head) or (labels is not None and labels.read(head)[0] is not None):
            return depth
        depth += 1


def _rows(table: Path) -> list[Mapping[str, str]]:
    rows = [row.cells for row in read_table(table, ",", header=True)]
    if rows and not ({"file", "label"} <= set(rows[0]) or {"file", "wnid"} <= set(rows[0])):
        raise HeatcheckError(f"{table}: columns are {', '.join(rows[0])}; expected file and label (or wnid)")
    return rows


def _with_table(name: str, root: Path, found: Found, rows: list[Mapping[str, str]], labels: Labels | None) -> Listing:
    by_name = {str(path): str(path) for path in found.pictures}
    tails = Counter(path.name for path in found.pictures)
    by_name.update({path.name: str(path) for path in found.pictures if tails[path.name] == 1})
    row_of = {by_name.get(row["file"], row["file"]): row for row in rows}
    names = sorted({*map(str, found.pictures), *row_of})
    if labels is None:
        has_wnid = bool(rows) and "wnid" in rows[0]
        labels = Labels.imagenet() if has_wnid else Labels.of(row["label"] for row in rows)
    unlisted = len(names) - len(row_of)
    notes = (
        *found.notes,
        *([f"{unlisted} pictures are not in labels.csv and have no label"] if unlisted else []),
    )

    def label(index: int) -> str | None:
        return _label_in(row_of.get(names[index], {}), labels)

    def make(index: int) -> tuple[Sample, Any]:
        return listed_picture(names[index], root, "labels.csv"), label(index)

    return Listing(name=name, modality=Modality.IMAGE, names=names, make=make, labels=labels, label=label, notes=notes)


def listed_picture(file: str, root: Path, listed_in: str) -> Sample:
    """A picture that a list names, relative to a folder; one that lies outside it has a problem and is not looked at."""
    if ".." in PurePosixPath(file).parts or PurePosixPath(file).is_absolute():
        problem = f"{listed_in} names {file!r}, which lies outside its folder"
        return Sample(file, digest_of("outside", file), root, problem=problem)
    return picture_sample(file, root / file)


def _label_in(row: Mapping[str, str], labels: Labels) -> str | None:
    """A row's label; where index and wnid disagree, a text with both, which is no class."""
    label, wnid = row.get("label"), row.get("wnid")
    if is_missing(label):
        return wnid
    if wnid is not None and wnid in labels.aliases and as_index(label) not in (None, labels.aliases[wnid]):
        return f"{label} (wnid {wnid} is class {labels.aliases[wnid]})"
    return label
