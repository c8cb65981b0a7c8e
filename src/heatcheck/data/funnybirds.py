"""FunnyBirds in its published layout: pictures, part maps, re-rendered removals."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError, Modality, Sample
from heatcheck.data.base import Listing, SourceOptions
from heatcheck.data.birds.classes import agreeing
from heatcheck.data.catalogue import split_place
from heatcheck.data.images import picture_sample
from heatcheck.data.labels import Labels
from heatcheck.data.places import existing
from heatcheck.data.references import picture_with

SPLITS = ("test", "train")
"""The first by default."""
COLOURS: Mapping[str, Sequence[tuple[int, int, int]]] = {
    "beak": ((255, 255, 0),),
    "eye": ((255, 255, 253), (255, 255, 254)),
    "foot": ((255, 0, 1), (255, 0, 2)),
    "tail": ((0, 0, 255),),
    "wing": ((0, 255, 1), (0, 255, 2)),
}
"""The colours of the parts in the part maps; left and right are one part."""
_LONGEST_FILE = 500_000_000


@dataclass(frozen=True)
class FunnyBird:
    """A picture: its class, and the variant of each part that is drawn, as `dataset_SPLIT.json` has it."""

    label: int
    shown: Mapping[str, int]


@source(
    "funnybirds",
    form="funnybirds:PATH[:SPLIT]",
    modality="image",
    about="FunnyBirds as published: part maps, pictures re-rendered without each part; splits test, train",
    licence="as its authors state",
    group="images",
    position=6,
    splits=SPLITS,
    present="splits_of",
    recognises="is_funnybirds",
)
def funnybirds(where: str, options: SourceOptions) -> Listing:
    """One split of FunnyBirds (Hesse, Schaub-Meyer and Roth 2023).

    All parts that a bird has are listed, also those that its pose hides, as the paper's protocol counts them. From
    training pictures parts may be missing; `possible` then has every class that the remaining parts allow.

    Args:
        where: the folder; then, after a colon, `test` (as without) or `train`.
        options: what else a user says.
    """
    place, named = split_place(where, SPLITS)
    root, split = existing(place, "folder"), named or SPLITS[0]
    if split not in splits_of(place):
        known = ", ".join(splits_of(place)) or "none of these"
        raise HeatcheckError(f"{place!r} has no dataset_{split}.json; of {', '.join(SPLITS)} it has {known}")
    classes = _classes(root)
    birds = _pictures(root, split, classes)
    files = [f"{bird.label}/{i:06d}" for i, bird in enumerate(birds)]

    def make(index: int) -> tuple[Sample, int]:
        name = f"{split}/{files[index]}.png"
        known = _reference(root, split, files[index], birds[index], classes)
        return picture_with(picture_sample(name, root / name), known), birds[index].label

    return Listing(
        name=f"{root.resolve().name}-{split}",
        modality=Modality.IMAGE,
        names=[f"{split}/{file}.png" for file in files],
        make=make,
        label=lambda i: birds[i].label,
        labels=Labels.given([str(i) for i in range(len(classes))] if options.classes is None else options.classes),
        notes=_notes(root, split),
    )


def splits_of(where: str) -> tuple[str, ...]:
    """The splits that a folder has."""
    return tuple(split for split in SPLITS if (Path(where).expanduser() / f"dataset_{split}.json").is_file())


def is_funnybirds(root: Path) -> bool:
    """Whether a folder looks like FunnyBirds: a table of classes, of parts and of a split's pictures."""
    tables = all((root / name).is_file() for name in ("classes.json", "parts.json"))
    return tables and bool(splits_of(str(root)))


def _reference(
    root: Path, split: str, file: str, bird: FunnyBird, classes: Sequence[Mapping[str, int]]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    drawn = sorted(bird.shown)
    if len(drawn) < len(COLOURS):
        found["possible"] = agreeing(classes, bird.shown)
    if (root / f"{split}_part_map").is_dir():
        part_map = root / f"{split}_part_map" / f"{file}.png"
        found["parts"] = {part: {"picture": part_map, "colours": COLOURS[part]} for part in drawn}
        folder = root / f"{split}_interventions" / file
        rendered = {part: folder / f"body_{'_'.join(p for p in drawn if p != part)}.png" for part in drawn}
        if all(path.is_file() for path in rendered.values()):
            found["without"] = rendered
    return found


def _notes(root: Path, split: str) -> tuple[str, ...]:
    if not (root / f"{split}_part_map").is_dir():
        return (f"there is no {split}_part_map/: no parts are known",)
    if not (root / f"{split}_interventions").is_dir():
        return (f"there is no {split}_interventions/: parts are filled, not re-rendered",)
    return ()


def _classes(root: Path) -> list[dict[str, int]]:
    """The variant of each part, by class."""
    rows = _table(root / "classes.json", list)
    try:
        found = {int(row["class_idx"]): {part: int(row["parts"][part]) for part in COLOURS} for row in rows}
        return [found[i] for i in range(len(rows))]
    except (KeyError, TypeError, ValueError) as error:
        raise HeatcheckError(
            f"{str(root / 'classes.json')!r} should list a class_idx from 0 and the parts {', '.join(COLOURS)} of each "
            f"class: {error!r}"
        ) from error


def _pictures(root: Path, split: str, classes: Sequence[Mapping[str, int]]) -> list[FunnyBird]:
    variants = _table(root / "parts.json", dict)
    if not all(isinstance(variants.get(part), list) for part in COLOURS):
        raise HeatcheckError(f"{str(root / 'parts.json')!r} should list the variants of {', '.join(COLOURS)}")
    path = root / f"dataset_{split}.json"
    found = []
    for i, row in enumerate(_table(path, list)):
        label = row.get("class_idx") if isinstance(row, dict) else None
        if type(label) is not int or not 0 <= label < len(classes):
            raise HeatcheckError(f"{str(path)!r}: picture {i} has no class_idx from 0 to {len(classes) - 1}")
        found.append(FunnyBird(label, {part: v for part in COLOURS if (v := _variant(row, part, variants[part])) >= 0}))
    return found


def _variant(row: Mapping[str, Any], part: str, variants: Sequence[Any]) -> int:
    """The variant of a part whose attributes a picture has; -1 where it was left away."""
    own = {key.removeprefix(f"{part}_"): value for key, value in row.items() if key.startswith(f"{part}_")}
    return variants.index(own) if own in variants else -1


def _table(path: Path, kind: type) -> Any:
    try:
        if path.stat().st_size > _LONGEST_FILE:
            raise HeatcheckError(f"{str(path)!r} has over {_LONGEST_FILE // 10**6} MB")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise HeatcheckError(f"{str(path)!r} cannot be read: {error}") from error
    if not isinstance(found, kind):
        raise HeatcheckError(f"{str(path)!r} holds a {type(found).__name__} where a {kind.__name__} belongs")
    return found
