"""Birds as a data set."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from heatcheck.core.sources import source
from heatcheck.core.types import Modality, Sample
from heatcheck.data.base import Listing, SourceOptions, numbered
from heatcheck.data.birds.classes import CLASS_NAMES, label_of
from heatcheck.data.birds.render import masks_of, picture_of
from heatcheck.data.birds.scene import SPLITS
from heatcheck.data.images import picture_sample
from heatcheck.data.labels import Labels


@source(
    "birds",
    form="birds[:SPLIT]",
    modality="image",
    about="birds drawn here, 50 classes by beak, eye, foot, tail and wing: part masks, pictures without each part; splits test, train",
    licence="Apache-2.0",
    group="embedded",
    position=2,
    splits=("test", "train"),
)
def birds(split: str, options: SourceOptions) -> Listing:
    """Pictures of birds, 64 × 64, each class with the same number of them: 500 in all to test, 5,000 to train.

    A class is a combination of parts; pose, background and light are random, but always the same for one picture. After
    FunnyBirds (hesse2023), drawn in two dimensions.

    Args:
        split: `test` or `train`.
        options: what else a user says.
    """
    names = numbered(SPLITS[split])
    return Listing(
        name=f"birds-{split}",
        modality=Modality.IMAGE,
        names=names,
        make=lambda i: (_sample(names[i], split, i), label_of(i)),
        label=label_of,
        labels=Labels.given(CLASS_NAMES if options.classes is None else options.classes),
    )


def _sample(name: str, split: str, index: int) -> Sample:
    plain = picture_sample(name, picture_of(split, index))
    return Sample(name, plain.digest, plain.content, reference=BirdReference(split, index))


@dataclass(frozen=True)
class BirdReference(Mapping[str, Any]):
    """Where a bird's parts are, and the bird without each of them; painted when somebody looks."""

    split: str
    index: int

    @cached_property
    def parts(self) -> Mapping[str, np.ndarray]:
        """The mask of each part that shows."""
        return masks_of(self.split, self.index)

    @cached_property
    def without(self) -> Mapping[str, np.ndarray]:
        """The picture without each of these parts."""
        return {part: picture_of(self.split, self.index, [part]) for part in self.parts}

    def __getitem__(self, kind: str) -> Any:
        return _KINDS[kind](self)

    def __iter__(self) -> Iterator[str]:
        return iter(_KINDS)

    def __len__(self) -> int:
        return len(_KINDS)

    def __reduce__(self) -> tuple[Any, ...]:
        return BirdReference, (self.split, self.index)


_KINDS: Mapping[str, Callable[[BirdReference], Any]] = {"parts": lambda r: r.parts, "without": lambda r: r.without}
