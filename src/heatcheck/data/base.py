"""A data set: samples in a fixed order, with a name and class names."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import numpy as np
from torch import Tensor

from heatcheck.core.files import printable
from heatcheck.core.types import HeatcheckError, Modality, PathLike, Sample, digest_of
from heatcheck.data.digests import digests
from heatcheck.data.labels import ClassesArg, Labels
from heatcheck.data.references import plain

_CAUSES = 3
"""Reasons that are listed in full."""


@dataclass(frozen=True, eq=False)
class Dataset(Sequence[Sample]):
    """Samples in a fixed order.

    Args:
        name: what the scores table shows.
        modality: what kind of classifier reads them.
        samples: the samples; no two have the same name.
        classes: class names by index, where known.
        notes: what a reader should know about how it was put together (files left aside, duplicates).
        sorted_names: whether the classes are only the names that occur, sorted: a model may number them otherwise.
        fractional: where labels are numbers, as a regression has them, one of them; then no sample has a class. Else empty.
    """

    name: str
    modality: Modality
    samples: tuple[Sample, ...] = field(repr=False)
    classes: tuple[str, ...] | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    sorted_names: bool = False
    fractional: str = ""

    def __post_init__(self) -> None:
        name, count = Counter(s.name for s in self.samples).most_common(1)[0] if self.samples else ("", 0)
        if count > 1:
            raise HeatcheckError(f"data set {self.name!r}: {count} samples are called {name!r}; names must differ")

    def __len__(self) -> int:
        return len(self.samples)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> "Dataset": ...
    def __getitem__(self, index: int | slice) -> "Sample | Dataset":
        if isinstance(index, slice):
            return replace(self, samples=self.samples[index])
        return self.samples[index]

    def take(self, n: int, seed: int | None = None) -> "Dataset":
        """The first n samples, or with a seed a random n of them, in the order they have here.

        With one seed, a smaller subset is part of a larger one, so results can be reused.
        """
        return replace(self, samples=tuple(self.samples[i] for i in choose([s.name for s in self.samples], n, seed)))

    def identity(self) -> str:
        """A digest of contents, labels and references; names, class names and order do not count."""
        facts = [[s.digest, s.label, s.problem is None, {k: plain(v) for k, v in s.reference.items()}] for s in self]
        return digest_of(self.modality, *sorted(json.dumps(fact, sort_keys=True) for fact in facts))


def choose(names: Sequence[str], n: int | None, seed: int | None) -> list[int]:
    """Positions of a subset, ascending: the first n, or the n whose names a seed ranks first."""
    if n is None:
        return list(range(len(names)))
    if n < 1:
        raise HeatcheckError(f"samples={n}: ask for at least one sample")
    if seed is None:
        return list(range(min(n, len(names))))
    rank = [hashlib.sha256(f"{seed}|{name}".encode(errors="surrogatepass")).digest() for name in names]
    return sorted(sorted(range(len(names)), key=rank.__getitem__)[:n])


TextColumnArg = str | int | list[str | int] | tuple[str | int, ...] | None
"""A column by name or position, or the two columns of a pair of texts, as a sequence or with a comma between."""
LabelsArg = PathLike | Sequence[Any] | Mapping[str, Any] | Tensor | np.ndarray | None


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What a user may say about a source beside its place; notes leave out labels that do not count."""

    samples: int | None = None
    classes: ClassesArg = None
    text_column: TextColumnArg = None
    label_column: str | int | None = None
    labels_count: bool = True


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What a source holds, before any of it is read, so that a subset reads nothing else.

    Args:
        name: the data set's name.
        modality: what kind of classifier reads it.
        names: one per sample, in order.
        make: reads the sample at a position, without a label, and its label as it is written.
        labels: how to read those labels.
        label: the label at a position as it is written, without reading the sample; None if `make` has to be asked.
        notes: what a reader should know.
        noticed: notes on what was found while samples were read; asked afterwards.
    """

    name: str
    modality: Modality
    names: Sequence[str]
    make: Callable[[int], tuple[Sample, Any]]
    labels: Labels
    label: Callable[[int], Any] | None = None
    notes: tuple[str, ...] = ()
    noticed: Callable[[], tuple[str, ...]] = tuple

    def class_at(self, index: int) -> int | None:
        """The class of a sample, which is not read where its label is known without."""
        written = self.make(index)[1] if self.label is None else self.label(index)
        return self.labels.read(written)[0]

    def shown_names(self) -> list[str]:
        """The samples' names as tables show them; no two are the same."""
        return distinct([printable(name) for name in self.names])

    def sample(self, index: int, name: str) -> tuple[Sample, str | None]:
        """Read one sample, with its label; and what is wrong with the label."""
        sample, written = self.make(index)
        label, trouble = self.labels.read(written)
        problem = None if sample.problem is None else printable(sample.problem)
        return replace(sample, name=name, label=label, problem=problem), trouble

    def collect(self, samples: int | None, seed: int | None) -> Dataset:
        """Read the chosen samples."""
        if not self.names:
            raise HeatcheckError(f"data set {self.name!r} holds no samples{_because(self.notes)}")
        names = self.shown_names()
        odd: list[tuple[str, str]] = []
        chosen = []
        for i in choose(self.names, samples, seed):
            sample, trouble = self.sample(i, names[i])
            if trouble is not None:
                odd.append((trouble, names[i]))
            chosen.append(sample)
        if known := digests():
            known.write()
        few = (f"only {_counted(len(chosen))} there, not {samples}",) if samples and len(chosen) < samples else ()
        odd_ones = (*_unreadable(chosen), *_unlabelled(odd, len(chosen)), *_duplicates(chosen))
        notes = (*self.notes, *few, *self.noticed(), *odd_ones)
        classes = None if self.labels.classes is None else tuple(map(printable, self.labels.classes))
        return Dataset(
            printable(self.name),
            self.modality,
            tuple(chosen),
            classes,
            tuple(map(printable, notes)),
            self.labels.sorted_names,
            self.labels.fractional,
        )


def _counted(n: int) -> str:
    return "1 sample is" if n == 1 else f"{n:,} samples are"


def _because(notes: tuple[str, ...]) -> str:
    return f" ({'; '.join(notes)})" if notes else ""


def causes(reasons: Iterable[tuple[str, str]]) -> str:
    """The most frequent reasons with how often each occurs and the first sample that has it, from (reason, name).

    >>> causes([("it is empty", "a.png"), ("it is empty", "b.png"), ("it is torn", "c.png")])
    "2 × it is empty, such as 'a.png'; 1 × it is torn, such as 'c.png'"
    """
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for reason, name in reasons:
        counts[reason] += 1
        first.setdefault(reason, name)
    shown = [f"{n} × {reason}, such as '{first[reason]}'" for reason, n in counts.most_common(_CAUSES)]
    more = len(counts) - len(shown)
    return "; ".join([*shown, *([f"and {more} more reasons"] if more > 0 else [])])


def unreadable(samples: Iterable[Sample]) -> list[tuple[str, str]]:
    """Why samples cannot be read, with their names; a reason does not repeat the file's path."""
    return [(s.problem.removesuffix(f": {s.content}"), s.name) for s in samples if s.problem is not None]


def _unreadable(samples: Sequence[Sample]) -> tuple[str, ...]:
    found = unreadable(samples)
    return (f"{len(found)} of {len(samples)} samples cannot be read: {causes(found)}",) if found else ()


def _unlabelled(odd: Sequence[tuple[str, str]], n: int) -> tuple[str, ...]:
    return (f"{len(odd)} of {n} samples count as unlabelled: {causes(odd)}",) if odd else ()


def _duplicates(samples: Sequence[Sample]) -> tuple[str, ...]:
    groups: dict[str, list[str]] = {}
    for sample in samples:
        groups.setdefault(sample.digest, []).append(sample.name)
    twice = [names for names in groups.values() if len(names) > 1]
    if not twice:
        return ()
    shown = ", ".join(" = ".join(names[:3]) for names in twice[:3])
    return (f"{sum(map(len, twice))} samples share their content with another, all are kept: {shown}",)


def distinct(names: Sequence[str]) -> list[str]:
    """The names, with `#2`, `#3` … after repeated ones."""
    seen: set[str] = set()
    result = []
    for name in names:
        unique, k = name, 1
        while unique in seen:
            k += 1
            unique = f"{name}#{k}"
        seen.add(unique)
        result.append(unique)
    return result


def numbered(n: int) -> list[str]:
    """Names for samples that have none: their position."""
    return [f"{i:05d}" for i in range(n)]
