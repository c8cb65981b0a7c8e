"""Places365: pictures of 365 kinds of places."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError, Modality, Sample
from heatcheck.data.base import Listing, SourceOptions, distinct
from heatcheck.data.catalogue import split_place
from heatcheck.data.folders import listed_picture, picture_listing
from heatcheck.data.labels import Labels, read_lines
from heatcheck.data.places import existing

SPLITS = ("val", "train")
"""Parts of the data set, the first by default."""
CATEGORIES = "categories_places365.txt"
_LISTS = {"val": "places365_val.txt", "train": "places365_train_standard.txt"}
_LISTS_IN = (".", "filelist_places365-standard", "places365_devkit")
_PICTURES_IN = {
    "val": ("val_256", "val_large"),
    "train": ("data_256", "data_256_standard", "data_large", "data_large_standard"),
}
_COUNT = 365


@source(
    "places365",
    form="places365:PATH[:SPLIT]",
    modality="image",
    about="Places365: the devkit's lists with val_256/ and data_256/, or val/CLASS and train/CLASS; splits val, train",
    group="images",
    position=3,
    splits=SPLITS,
    present="splits_of",
    recognises="is_places365",
)
def places365(where: str, options: SourceOptions) -> Listing:
    """Pictures of places, in the layout of the devkit or with a folder per class.

    The devkit has `places365_val.txt` and `places365_train_standard.txt` (a picture and its class number per line), whose
    pictures lie in `val_256/` and `data_256/` (or `val_large/`, `data_large/`), and `categories_places365.txt`. With
    folders, `apartment_building-outdoor/` is the class `apartment_building/outdoor`; without the file of categories,
    classes are the folders in sorted order.

    Args:
        where: the folder; then, after a colon, `val` (as without) or `train`.
        options: what else a user says.
    """
    place, split = split_place(where, SPLITS)
    split = split or SPLITS[0]
    root = existing(place, "folder")
    name = f"places365-{split}"
    devkit = _devkit(root, split)
    labels = _labels(root) if options.classes is None else Labels.given(options.classes)
    if devkit is not None:
        return replace(_listed(devkit, labels), name=name)
    if not (root / split).is_dir():
        raise HeatcheckError(
            f"{place!r} has neither {_LISTS[split]} with {' or '.join(_PICTURES_IN[split])}, nor a subfolder {split}"
        )
    return replace(picture_listing(root / split, root / split, options, labels), name=name)


def is_places365(root: Path) -> bool:
    """Whether a folder looks like Places365: the devkit's files, or 365 classes from `airfield` to `zen_garden`."""
    if _find(root, CATEGORIES) is not None and splits_of(str(root)):
        return True
    folders = {path.name for path in (root / "val").iterdir()} if (root / "val").is_dir() else set()
    return len(folders) == _COUNT and {"airfield", "zen_garden"} <= folders


def splits_of(where: str) -> tuple[str, ...]:
    """The splits whose pictures are there."""
    root = existing(where, "folder")
    return tuple(split for split in SPLITS if (root / split).is_dir() or _devkit(root, split) is not None)


@dataclass(frozen=True)
class _Devkit:
    """A list of pictures, and the folder that they lie in."""

    file: Path
    pictures: Path


def _devkit(root: Path, split: str) -> _Devkit | None:
    file = _find(root, _LISTS[split])
    pictures = next((root / name for name in _PICTURES_IN[split] if (root / name).is_dir()), None)
    return None if file is None or pictures is None else _Devkit(file, pictures)


def _find(root: Path, name: str) -> Path | None:
    return next((root / inner / name for inner in _LISTS_IN if (root / inner / name).is_file()), None)


def _listed(devkit: _Devkit, labels: Labels) -> Listing:
    lines = [line for line in read_lines(devkit.file, "Places365's list ") if line]
    pairs = [(picture.lstrip("/"), label or None) for picture, _, label in (line.partition(" ") for line in lines)]

    def make(index: int) -> tuple[Sample, str | None]:
        picture, label = pairs[index]
        return listed_picture(picture, devkit.pictures, devkit.file.name), label

    return Listing(
        name="",
        modality=Modality.IMAGE,
        names=distinct([picture for picture, _ in pairs]),
        make=make,
        label=lambda i: pairs[i][1],
        labels=labels,
    )


def _labels(root: Path) -> Labels:
    """The categories by number and name; where they are not listed, the folders of both splits, sorted."""
    file = _find(root, CATEGORIES)
    if file is not None:
        names = _categories(file)
        return Labels(names, {name.replace("/", "-"): i for i, name in enumerate(names)})
    folders = {p.name for split in SPLITS if (root / split).is_dir() for p in (root / split).iterdir() if p.is_dir()}
    names = tuple(sorted(folders))
    return Labels(names or None, sorted_names=bool(names))


def _categories(file: Path) -> tuple[str, ...]:
    """Class names by number, from lines such as `/a/apartment_building/outdoor 8`."""
    lines: Sequence[list[str]] = [line.split() for line in read_lines(file, "Places365's categories ") if line]
    for at, words in enumerate(lines):
        if len(words) != 2 or words[1] != str(at) or words[0].count("/") < 2:
            raise HeatcheckError(f"{str(file)!r}, line {at + 1}: {' '.join(words)!r} is not /letter/name {at}")
    return tuple(words[0].split("/", 2)[2] for words in lines)
