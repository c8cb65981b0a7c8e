"""Labels that are names, matched with the classes of the models that are to be measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from heatcheck.core.types import Sample
from heatcheck.data.base import Dataset, causes

_SHOWN = 4
"""Classes that a note lists."""


@dataclass(frozen=True)
class _Match:
    """Which class of a model each label of the data means, None for no class; and what a reader should know."""

    classes: Mapping[int, int | None]
    note: str = ""


def match_labels(data: Dataset, models: Mapping[str, Sequence[str] | None]) -> Dataset:
    """The data with each label as the number of the class that has its name in the models.

    Names that only occur in the data have no numbers of their own, so those that the models do not know are left out.
    Where classes were given with an order, that order stays, unless the models have the same names in another one or
    none of them. What is changed, left out or guessed is noted.

    Args:
        data: samples with labels, and class names where these are known.
        models: class names by model, None where they are not known.
    """
    present = sorted({s.label for s in data if s.label is not None})
    if data.classes is None or not present or present[-1] >= len(data.classes):
        return data
    found = {model: _match(data, present, model, names) for model, names in models.items() if names}
    if not found:
        return _noted(data, _in_sorted_order(data, "the models name no classes")) if data.sorted_names else data
    first, *others = found.values()
    if any(other.classes != first.classes for other in others):
        unlabelled = tuple(replace(s, label=None) for s in data)
        note = f"{', '.join(found)} number the classes {_listed(data.classes, present)} differently, so labels are not used"
        return _noted(replace(data, samples=unlabelled), f"{note}; run these models one by one to have them used")
    unknown = [
        (f"{data.classes[s.label]!r} is no class of {', '.join(found)}", s.name)
        for s in data
        if s.label is not None and first.classes[s.label] is None
    ]
    samples = tuple(s if s.label is None else replace(s, label=first.classes[s.label]) for s in data)
    lost = f"{len(unknown)} of {len(data)} samples count as unlabelled: {causes(unknown)}" if unknown else ""
    names = next(tuple(names) for names in models.values() if names)
    changed = replace(data, samples=samples, classes=data.classes if first.note == "" else names, sorted_names=False)
    return _noted(changed, first.note, lost)


def strange_labels(samples: Sequence[Sample], model: str, classes: int, fractional: str = "") -> str:
    """Which labels are no classes of a model, in a sentence; empty where all of them are.

    Args:
        samples: with their labels.
        model: its name.
        classes: how many it has.
        fractional: one of the labels, where they are numbers as a regression has them.
    """
    if fractional:
        return f"labels are numbers, such as {fractional}, and no classes of {model}: all samples count as unlabelled"
    odd = [
        (f"label {s.label} is no class of {model} (0 to {classes - 1})", s.name)
        for s in samples
        if s.label is not None and s.label >= classes
    ]
    return f"{len(odd)} of {len(samples)} samples count as unlabelled: {causes(odd)}" if odd else ""


def _match(data: Dataset, present: Sequence[int], model: str, names: Sequence[str]) -> _Match:
    ours = data.classes or ()
    known = _by_name(names)
    same: dict[int, int | None] = {i: i for i in present}
    here = {i: i < len(names) and _plain(ours[i]) == _plain(names[i]) for i in present}
    named = {
        i: i if here[i] else known.get(_plain(ours[i])) for i in present
    }  # a name may occur twice: ImageNet's cranes
    if not any(index is not None for index in named.values()):
        if len(ours) != len(names):
            return _Match(named)
        guess = _in_sorted_order(data, f"{model} calls its {len(names)} classes {_listed(names, range(len(names)))}")
        return _Match(same, guess if data.sorted_names else "")
    reordered = {_plain(name) for name in ours} == {_plain(name) for name in names}
    if not data.sorted_names and not reordered and (len(ours) == len(names) or None in named.values()):
        return _Match(same)
    if named == same and not data.sorted_names:
        return _Match(same)
    pairs = [f"{ours[i]} = {index}" for i, index in named.items() if index is not None]
    return _Match(named, f"labels are names, numbered as {model} numbers its classes: {_short(pairs)}")


def _in_sorted_order(data: Dataset, why: str) -> str:
    pairs = [f"{name} = {i}" for i, name in enumerate(data.classes or ())]
    return f"labels are names, numbered in sorted order: {_short(pairs)}; a guess, since {why}"


def _by_name(names: Sequence[str]) -> dict[str, int | None]:
    """Classes by their names and, where these are unique, by the synonyms that a name lists after commas."""
    found: dict[str, int | None] = {}
    for part in (False, True):
        mine: dict[str, int | None] = {}
        for i, name in enumerate(names):
            for word in {_plain(synonym) for synonym in name.split(",")} if part else {_plain(name)}:
                mine[word] = i if mine.get(word, i) == i else None
        found = {**mine, **found}
    return found


def _plain(name: str) -> str:
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def _listed(names: Sequence[str], which: Sequence[int]) -> str:
    return _short([names[i] for i in which])


def _short(parts: Sequence[str]) -> str:
    return ", ".join(parts[:_SHOWN]) + (" …" if len(parts) > _SHOWN else "")


def _noted(data: Dataset, *notes: str) -> Dataset:
    return replace(data, notes=(*data.notes, *(note for note in notes if note)))
