"""Pictures with YOLO labels: where each object is, as a box or a polygon."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError, Modality, Sample
from heatcheck.data.base import Listing, SourceOptions
from heatcheck.data.folders import search
from heatcheck.data.images import picture_sample
from heatcheck.data.labels import Labels, read_lines
from heatcheck.data.places import existing
from heatcheck.data.references import picture_with, size_of

LABELS = ("labels", "polygons")
"""Folders of label files, in the place of `images`."""
_CONFIGS = ("classes.yaml", "data.yaml", "dataset.yaml", "config.yaml")
_NAME = re.compile(r"(?:\s*(\d+)\s*:|\s*-)\s*(.+?)\s*")
_LONGEST_FILE = 4_000_000
_OVERSHOOT = 0.01


@dataclass(frozen=True)
class _Object:
    kind: int
    corners: tuple[float, ...]
    """x, y, x, y, … as shares of the picture's width and height."""

    def area(self) -> float:
        x, y = self.corners[::2], self.corners[1::2]
        return 0.5 * abs(sum(x[i - 1] * y[i] - x[i] * y[i - 1] for i in range(len(x))))

    def in_pixels(self, width: int, height: int) -> list[float]:
        return [v * (height if i % 2 else width) for i, v in enumerate(self.corners)]


@source(
    "yolo",
    form="yolo:PATH",
    modality="image",
    about="pictures with YOLO boxes or polygons, such as COCO's: masks of the main class, every class a part",
    group="images",
    position=3,
    recognises="is_yolo",
)
def yolo(where: str, options: SourceOptions) -> Listing:
    """Pictures in `images/` with a text file each in `labels/` or `polygons/`, or beside it: a line per object.

    A line is the class, then centre, width and height of a box or the corners of a polygon, as shares of the picture.
    The mask is made of all objects of the class that covers most of the picture; every class is a part. That class is
    also the label, if `classes=` has its name: class numbers of a detector are not those of a classifier.
    """
    root = existing(where, "folder")
    found = search(root)
    texts = {path: _labels_of(root, path) for path in found.pictures}
    if not any(texts.values()):
        raise HeatcheckError(
            f"{where!r}: no picture has a text file of its name beside it or in {' or '.join(LABELS)}/"
        )
    names = _class_names(root)
    labels = Labels() if options.classes is None else Labels.given(options.classes)

    def make(index: int) -> tuple[Sample, Any]:
        path = found.pictures[index]
        sample = picture_sample(str(path), root / path)
        try:
            objects = _read(texts[path])
        except HeatcheckError as error:
            return Sample(sample.name, sample.digest, sample.content, problem=sample.problem or str(error)), None
        if sample.problem is not None or not objects:
            return sample, None
        return picture_with(sample, _reference(objects, names, size_of(sample.content))), label(index)

    def label(index: int) -> str | None:
        try:
            objects = _read(texts[found.pictures[index]])
        except HeatcheckError:
            return None
        main = _main_class(objects, names) if objects else None
        return main if labels.read(main)[1] is None else None

    unlabelled = sum(file is None for file in texts.values())
    return Listing(
        name=root.resolve().name,
        modality=Modality.IMAGE,
        names=[str(path) for path in found.pictures],
        make=make,
        label=label,
        labels=labels,
        notes=(
            "the mask shows the class that covers most of the picture",
            *(["no labels: pass classes= to have that class as label"] if options.classes is None else []),
            *([f"{unlabelled} pictures have no label file"] if unlabelled else []),
        ),
    )


def is_yolo(root: Path) -> bool:
    """Whether a folder looks like YOLO's: `images/`, and text files in `labels/` or `polygons/`."""
    return (root / "images").is_dir() and any(
        next((root / f).rglob("*.txt"), None) for f in LABELS if (root / f).is_dir()
    )


def _labels_of(root: Path, picture: PurePosixPath) -> Path | None:
    """The label file of a picture: as the picture, with `labels` or `polygons` for `images`, or beside it."""
    text = picture.with_suffix(".txt")
    places = [text]
    if "images" in text.parts:
        at = len(text.parts) - 1 - text.parts[::-1].index("images")
        places += [PurePosixPath(*text.parts[:at], folder, *text.parts[at + 1 :]) for folder in LABELS]
    return next((root / place for place in places if (root / place).is_file()), None)


def _read(path: Path | None) -> list[_Object]:
    if path is None:
        return []
    if path.stat().st_size > _LONGEST_FILE:
        raise HeatcheckError(f"{path.name} has over {_LONGEST_FILE // 10**6} MB: no picture shows so much")
    objects = []
    for number, line in enumerate(read_lines(path, "labels"), 1):
        if line:
            try:
                objects.append(_object(line))
            except HeatcheckError as error:
                raise HeatcheckError(f"{path.name}, line {number}: {error}") from error
    return objects


def _object(line: str) -> _Object:
    kind, *numbers = line.split()
    try:
        values = [float(v) for v in numbers]
    except ValueError as error:
        raise HeatcheckError(f"not a class and numbers: {error}") from error
    if not kind.isdecimal():
        raise HeatcheckError(f"{kind!r} is no class number")
    if len(values) == 4:
        x, y, w, h = values
        values = [x - w / 2, y - h / 2, x + w / 2, y - h / 2, x + w / 2, y + h / 2, x - w / 2, y + h / 2]
    if len(values) < 6 or len(values) % 2:
        raise HeatcheckError(f"{len(values)} numbers are neither a box (4) nor the corners of a polygon (6, 8, …)")
    if not all(-_OVERSHOOT <= v <= 1 + _OVERSHOOT for v in values):
        raise HeatcheckError("numbers are shares of the picture: from 0 to 1")
    return _Object(int(kind), tuple(values))


def _main_class(objects: Sequence[_Object], names: Mapping[int, str]) -> str:
    """The name of the class that covers most of the picture."""
    areas: dict[int, float] = {}
    for thing in objects:
        areas[thing.kind] = areas.get(thing.kind, 0.0) + thing.area()
    main = max(sorted(areas), key=areas.__getitem__)
    return names.get(main, str(main))


def _reference(objects: Sequence[_Object], names: Mapping[int, str], size: tuple[int, int]) -> dict[str, Any]:
    """The references of a picture: the main class as mask, every class as part."""
    parts = {
        names.get(kind, str(kind)): {"polygons": [o.in_pixels(*size) for o in objects if o.kind == kind]}
        for kind in sorted({thing.kind for thing in objects})
    }
    return {"mask": parts[_main_class(objects, names)], "parts": parts}


def _class_names(root: Path) -> dict[int, str]:
    """Class names from `classes.txt`, or from the `names:` of a YAML file; none if there is neither."""
    if (root / "classes.txt").is_file():
        return dict(enumerate(read_lines(root / "classes.txt", "classes")))
    config = next((root / name for name in _CONFIGS if (root / name).is_file()), None)
    if config is None:
        return {}
    lines = [line for line in config.read_text(encoding="utf-8", errors="replace").splitlines() if line[:1] != "#"]
    start = next((i for i, line in enumerate(lines) if line.startswith("names:")), len(lines))
    inline = lines[start].partition(":")[2].strip(" []{}") if start < len(lines) else ""
    entries = [e if ":" in e else f"- {e}" for e in inline.split(",")] if inline else lines[start + 1 :]
    found: dict[int, str] = {}
    for line in entries:
        match = _NAME.fullmatch(line)
        if line.strip() and match is None:
            break
        if match is not None:
            found[len(found) if match[1] is None else int(match[1])] = match[2].strip(" '\"")
    return found
