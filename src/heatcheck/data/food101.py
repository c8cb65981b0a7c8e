"""Food-101: pictures of 101 dishes."""

import json
from pathlib import Path, PurePosixPath

from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError, Modality, Sample
from heatcheck.data.base import Listing, SourceOptions, distinct
from heatcheck.data.catalogue import split_place
from heatcheck.data.folders import listed_picture
from heatcheck.data.labels import Labels, read_lines
from heatcheck.data.places import existing

SPLITS = ("test", "train")
"""Parts of the data set, the first by default."""


@source(
    "food101",
    form="food101:PATH[:SPLIT]",
    modality="image",
    about="Food-101: images/CLASS/ID.jpg and the lists in meta/; splits test, train",
    group="images",
    position=3,
    splits=SPLITS,
    present="splits_of",
    recognises="is_food101",
)
def food101(where: str, options: SourceOptions) -> Listing:
    """The pictures that `meta/test.txt` or `meta/train.txt` lists (or `.json`), with their folder as label.

    Classes are those of `meta/classes.txt` (or `.json`), else the folders of `images/` in sorted order.

    Args:
        where: the folder, or the one that holds `food-101/`; then, after a colon, `test` (as without) or `train`.
        options: what else a user says.
    """
    place, split = split_place(where, SPLITS)
    split = split or SPLITS[0]
    root = _root(place)
    list_file = _meta(root, split)
    if list_file is None:
        raise HeatcheckError(f"{str(root)!r} has neither meta/{split}.txt nor meta/{split}.json")
    files = [PurePosixPath(f"{entry}.jpg") for entry in _entries(list_file)]
    names = distinct([str(file) for file in files])

    def make(index: int) -> tuple[Sample, str]:
        return listed_picture(str(files[index]), root / "images", f"meta/{list_file.name}"), files[index].parent.name

    return Listing(
        name=f"food101-{split}",
        modality=Modality.IMAGE,
        names=names,
        make=make,
        label=lambda i: files[i].parent.name,
        labels=_classes(root) if options.classes is None else Labels.given(options.classes),
    )


def is_food101(root: Path) -> bool:
    """Whether a folder looks like Food-101: `images/`, and lists of splits in `meta/`."""
    return (root / "images").is_dir() and all(_meta(root, split) is not None for split in SPLITS)


def splits_of(where: str) -> tuple[str, ...]:
    """The splits of which there is a list."""
    root = _root(where)
    return tuple(split for split in SPLITS if _meta(root, split) is not None)


def _root(where: str) -> Path:
    root = existing(where, "folder")
    return root / "food-101" if (root / "food-101").is_dir() else root


def _meta(root: Path, name: str) -> Path | None:
    return next((p for s in (".txt", ".json") if (p := root / "meta" / f"{name}{s}").is_file()), None)


def _entries(file: Path) -> list[str]:
    """The lines of a text file; or a JSON file's list, or the lists of its classes one after the other."""
    if file.suffix == ".txt":
        return [line for line in read_lines(file, "Food-101's list ") if line]
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise HeatcheckError(f"{str(file)!r} cannot be read as JSON: {error}") from error
    lists = list(value.values()) if isinstance(value, dict) else [value]
    if not all(isinstance(entries, list) for entries in lists):
        raise HeatcheckError(f"{str(file)!r} is neither a list nor a list per class")
    return [str(entry) for entries in lists for entry in entries]


def _classes(root: Path) -> Labels:
    file = _meta(root, "classes")
    if file is not None:
        return Labels(tuple(_entries(file)))
    if not (root / "images").is_dir():
        raise HeatcheckError(f"{str(root)!r} has no subfolder images")
    return Labels(tuple(sorted(p.name for p in (root / "images").iterdir() if p.is_dir())), sorted_names=True)
