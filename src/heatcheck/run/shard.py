"""A share of a study's samples, for schedulers that start the same command many times."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from heatcheck.core.spec import SpecError

T = TypeVar("T")
_FORM = re.compile(r"(\d+)/(\d+)")


class Shard(NamedTuple):
    """Every `of`-th sample, beginning with that of this number: shares differ by one sample at most, and none overlap.

    >>> str(Shard.parse("3/16")), Shard(2, 3).share("abcdefgh")
    ('shard 3 of 16', ['b', 'e', 'h'])
    """

    number: int
    of: int

    def __str__(self) -> str:
        return f"shard {self.number} of {self.of}"

    @classmethod
    def parse(cls, text: object) -> "Shard":
        """A shard as it is written: `3/16` is the third of sixteen.

        Raises:
            SpecError: it is written otherwise, or there is no such share.
        """
        found = _FORM.fullmatch(text) if isinstance(text, str) else None
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise SpecError(
                f"shard = {text!r} should be a number and how many there are, such as 3/16; from 1/16 to 16/16"
            )
        return cls(int(found[1]), int(found[2]))

    def holds(self, position: int) -> bool:
        """Whether the sample at this place of the data, counted from 0, belongs to it."""
        return position % self.of == self.number - 1

    def share(self, samples: Sequence[T]) -> list[T]:
        """The samples that belong to it."""
        return [sample for i, sample in enumerate(samples) if self.holds(i)]


def shard_text(value: Any) -> Any:
    """A shard as it is written, or None.

    >>> shard_text("03/16")
    '3/16'
    """
    return None if value is None else "{0.number}/{0.of}".format(Shard.parse(value))


def elsewhere(manifest: Mapping[str, Any]) -> list[str]:
    """Names of a study's samples that belong to shards which were not run into its folder; empty for whole runs."""
    here = [Shard.parse(text) for text in manifest.get("shards", ())]
    names = [sample["name"] for sample in manifest["samples"]] if here else []
    return [name for i, name in enumerate(names) if not any(shard.holds(i) for shard in here)]


def told(manifest: Mapping[str, Any]) -> list[str]:
    """What a reader must know of a folder that has some shards of a study only."""
    others, n = elsewhere(manifest), len(manifest["samples"])
    if not others:
        return []
    here = sorted(Shard.parse(text) for text in manifest["shards"])
    which = (
        ", ".join(map(str, here))
        if len({shard.of for shard in here}) > 1 or len(here) == 1
        else (f"shards {', '.join(str(shard.number) for shard in here)} of {here[0].of}")
    )
    return [
        f"This is {which}: {n - len(others):,} of {n:,} samples. `heatcheck merge` joins the folders of all shards."
    ]
