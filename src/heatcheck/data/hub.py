"""Data sets of Hugging Face `datasets`: from the hub, from its cache, or from a folder of their files."""

import importlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from heatcheck.core.extras import require
from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError
from heatcheck.data.base import Listing, SourceOptions
from heatcheck.data.catalogue import split_brackets
from heatcheck.data.objects import torch_dataset
from heatcheck.data.places import kind_of

SPLITS = ("validation", "test", "train")
"""Parts that data sets usually have, the first that there is by default: the labels of a test part are often kept."""
_SAVED = ("dataset_dict.json", "state.json")
"""Files by which a folder of `save_to_disk` is known."""
_SUFFIXES = (".parquet", ".jsonl", ".arrow")
_LOCAL = "give a folder of its parquet or jsonl files instead: hf-data:./FOLDER"


@source(
    "hf-data",
    form="hf-data:NAME[:CONFIG][[SPLIT]]",
    modality="image or text",
    about="a data set of Hugging Face, such as hf-data:glue:sst2[validation]: from the hub, its cache, or a folder of parquet or jsonl files (hf-data:./FOLDER); never remote code",
    group="texts",
    position=6,
    columns=True,
    splits=SPLITS,
    present="splits_of",
    recognises="is_data_folder",
)
def hub_data(where: str, options: SourceOptions) -> Listing:
    """One split of a data set, as `datasets.load_dataset` loads it; scripts are never run.

    Args:
        where: a name on the hub, then, after a colon, a configuration; or a folder, also one of `save_to_disk`. A split
            in brackets, such as `[train]` or `[train[:100]]`; without, `validation`, else `test`, else `train`.
        options: what else a user says.
    """
    place, split = split_brackets(where)
    loaded = _loaded(where, place, split)
    notes: tuple[str, ...] = ()
    if isinstance(loaded, Mapping):
        known = [str(name) for name in loaded]
        if split and split not in known:
            raise HeatcheckError(f"hf-data:{where}: there is no split {split!r}; there are {', '.join(known)}")
        if not split:
            split = next((name for name in SPLITS if name in known), known[-1])
            others = ", ".join(name for name in known if name != split)
            notes = (f"the split is {split!r}; others are {others}, to be named in brackets",) if others else ()
        loaded = loaded[split]
    listing = torch_dataset(loaded, options)
    stem = Path(place.rstrip("/")).name if _is_folder(place) else place.replace(":", "-").rpartition("/")[2]
    part = re.sub(r"\W+", "-", split).strip("-")
    return replace(listing, name=f"{stem}-{part}" if part else stem, notes=(*notes, *listing.notes))


def splits_of(place: str) -> tuple[str, ...]:
    """The splits that a data set has."""
    if _is_saved(place):
        return tuple(_loaded(place, place, ""))
    datasets = _package(place)
    with _explained(place):
        name, config = _named(place)
        return tuple(map(str, datasets.get_dataset_split_names(name, config)))


def is_data_folder(root: Path) -> bool:
    """Whether a folder holds tables of texts, by itself or in subfolders, or what `save_to_disk` has written."""
    if any((root / file).is_file() for file in _SAVED):
        return True
    inside = [path for path in root.iterdir() if not path.name.startswith(".")]
    nested = [path for folder in inside if folder.is_dir() for path in folder.iterdir()]
    return any(path.suffix.lower() in _SUFFIXES for path in (*inside, *nested))


def _loaded(where: str, place: str, split: str) -> Any:
    """A data set, or several by split."""
    datasets = _package(where)
    if not place.strip():
        raise HeatcheckError("hf-data: lacks a name: write hf-data:NAME, hf-data:NAME:CONFIG or hf-data:./FOLDER")
    with _explained(where), _silent(datasets):
        if _is_saved(place):
            return datasets.load_from_disk(str(Path(place).expanduser()))
        name, config = _named(place)
        return datasets.load_dataset(name, config, split=split or None)


def _named(place: str) -> tuple[str, str | None]:
    """A data set's name or folder, and its configuration."""
    if place.startswith((".", "/", "~")) or _is_folder(place):
        path = Path(place).expanduser()
        if kind_of(path) != "folder":
            raise HeatcheckError(f"there is no folder {place!r}")
        return str(path), None
    name, _, config = place.partition(":")
    return name, config or None


def _is_folder(place: str) -> bool:
    return kind_of(Path(place).expanduser()) == "folder"


def _is_saved(place: str) -> bool:
    return any((Path(place).expanduser() / file).is_file() for file in _SAVED)


def _package(where: str) -> Any:
    require(f"data hf-data:{where}", "datasets")
    return importlib.import_module("datasets")


@contextmanager
def _silent(datasets: Any) -> Iterator[None]:
    """Without progress bars, whose lines would stand between ours."""
    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            datasets.enable_progress_bars()


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """Say in our words why a data set cannot be loaded."""
    try:
        yield
    except HeatcheckError:
        raise
    except Exception as error:  # the library, the hub and the network have errors of many kinds
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        why = f"{type(error).__name__}: {lines[0] if lines else ''}"
        raise HeatcheckError(f"hf-data:{where} cannot be loaded ({why[:300]}); {_advice(error)}") from error


def _advice(error: Exception) -> str:
    said = f"{type(error).__name__} {error}".lower()
    if "config name" in said or "builderconfig" in said:
        return "name a configuration after a colon: hf-data:NAME:CONFIG"
    if "split" in said:
        return "name a split that there is in brackets: hf-data:NAME[train]"
    if "script" in said:
        return f"its code is never run; {_LOCAL}"
    if any(word in said for word in ("offline", "connection", "couldn't reach", "resolve", "timeout", "network")):
        return f"without a network only what was loaded before can be; load it once where there is one, or {_LOCAL}"
    return f"check its name; {_LOCAL}"
