"""Which parts a bird of each class has, and which classes remain possible where parts are missing."""

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from heatcheck.core.spec import suggest
from heatcheck.core.types import HeatcheckError

VARIANTS: Mapping[str, int] = {"beak": 4, "eye": 3, "foot": 4, "tail": 9, "wing": 6}
"""How many variants of each part there are, as many as FunnyBirds has."""
PARTS = tuple(VARIANTS)
CLASS_COUNT = 50
_APART = 2
"""Parts in which two classes differ at least, so that a bird without one part still has one class."""


def _choose() -> tuple[Mapping[str, int], ...]:
    """Combinations in an arbitrary, fixed order that are far enough apart and use all variants of a part equally."""
    every = itertools.product(*(range(n) for n in VARIANTS.values()))
    chosen: list[tuple[int, ...]] = []
    used: Counter[tuple[int, int]] = Counter()
    for one in sorted(every, key=lambda c: hashlib.sha256(bytes(c)).digest()):
        fair = all(
            used[i, v] < math.ceil(CLASS_COUNT / n) for i, (v, n) in enumerate(zip(one, VARIANTS.values(), strict=True))
        )
        if fair and all(sum(a != b for a, b in zip(one, other, strict=True)) >= _APART for other in chosen):
            chosen.append(one)
            used.update(enumerate(one))
        if len(chosen) == CLASS_COUNT:
            break
    return tuple(dict(zip(PARTS, one, strict=True)) for one in chosen)


CLASSES = _choose()
"""The variant of each part, by class."""
CLASS_NAMES = tuple(f"bird {i:02d}" for i in range(CLASS_COUNT))


def label_of(index: int) -> int:
    """The class of a split's picture: every class has the same number of pictures."""
    return index % CLASS_COUNT


def agreeing(classes: Sequence[Mapping[str, int]], shown: Mapping[str, int]) -> tuple[int, ...]:
    """The classes whose parts are those that are shown; parts that are not shown may be any.

    >>> agreeing([{"eye": 0, "tail": 0}, {"eye": 1, "tail": 0}], {"tail": 0})
    (0, 1)
    """
    return tuple(i for i, own in enumerate(classes) if all(own[part] == v for part, v in shown.items()))


def possible_classes(label: int, removed: Iterable[str]) -> tuple[int, ...]:
    """The classes that a bird of this class may belong to, as far as its remaining parts tell.

    >>> possible_classes(7, ["eye"]), len(possible_classes(7, PARTS))
    ((7,), 50)
    """
    gone = checked_parts(removed)
    return agreeing(CLASSES, {part: v for part, v in CLASSES[label].items() if part not in gone})


def random_removal(rng: np.random.Generator, probability: float = 0.5) -> tuple[str, ...]:
    """Parts to leave away from a training picture: none half of the time, else 0 to 5 of them, as FunnyBirds has it.

    Args:
        rng: where the choice comes from.
        probability: of leaving away any number of parts.
    """
    if rng.random() >= probability:
        return ()
    count = int(rng.integers(len(PARTS) + 1))
    chosen = rng.permutation(len(PARTS))[:count]
    return tuple(part for i, part in enumerate(PARTS) if i in chosen)


def checked_parts(names: Iterable[str]) -> Collection[str]:
    """The names as a set, if all of them are parts."""
    found = {names} if isinstance(names, str) else set(names)
    for name in sorted(found):
        if name not in VARIANTS:
            raise HeatcheckError(f"birds have no part {name!r}{suggest(name, PARTS)}")
    return found
