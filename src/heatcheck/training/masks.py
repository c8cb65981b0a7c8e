"""Which pixels of each picture a map ranks highest, packed into bits, for trainings without them or with them alone."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from heatcheck.core.files import as_json, make_folder, read_patiently, write_atomically, written_atomically
from heatcheck.core.types import HeatcheckError, Streams
from heatcheck.domain.base import Units
from heatcheck.metrics.curves import by_relevance, tie_breakers

BITS, FACTS = "bits.npy", "masks.json"
CHANNELS = 3


def top_count(level: float, n: int) -> int:
    """How many of n are the top `level` percent: ⌊level · n / 100⌋, without rounding errors.

    >>> top_count(30, 1024), top_count(32.3, 1000), top_count(100, 7)
    (307, 323, 7)
    """
    return int(Fraction(str(level)) * n / 100)


def top_masks(values: Float[Tensor, "b n"], levels: Sequence[float], streams: Streams) -> list[Bool[np.ndarray, "b n"]]:
    """The highest values of each sample, one mask per level; equal values are ordered by the sample's own draw."""
    b, n = values.shape
    units = Units("scalar", torch.arange(n).expand(b, n), torch.full((b,), n), n)
    place = by_relevance(values[None], tie_breakers(streams, units, "random"), units)[0]
    return [(place < top_count(level, n)).numpy() for level in levels]


@dataclass(frozen=True)
class TopMasks:
    """The top pixels, or scalars, of every picture under one method, at one level.

    Args:
        level: percent of each picture.
        shape: height and width of the pictures, and 3 where channels are ranked one by one, else 1.
        colour: what replaces a pixel: the mean of each channel over the samples that are learnt from, in 8 bits.
        digest: of everything in it.
        bits: a row per picture, eight pixels to a byte.
        rows: the row of each picture, by its sample's digest.
        without_map: pictures whose map failed; their pixels are in random order.
    """

    level: float
    shape: tuple[int, int, int]
    colour: tuple[int, int, int]
    digest: str
    bits: NDArray[np.uint8]
    rows: Mapping[str, int] = field(repr=False)
    without_map: int = 0

    @property
    def granularity(self) -> str:
        """What was ranked: a `pixel` at a time, or each `scalar` of it."""
        return "scalar" if self.shape[2] == CHANNELS else "pixel"

    def top(self, sample: str) -> Bool[np.ndarray, "h w c"]:
        """Where the highest values of a picture are.

        Raises:
            HeatcheckError: there is no map of it.
        """
        if sample not in self.rows:
            raise HeatcheckError(f"there is no mask of the sample {sample[:12]}: its map was not made")
        n = int(np.prod(self.shape))
        return np.unpackbits(self.bits[self.rows[sample]], count=n).astype(bool).reshape(self.shape)

    @classmethod
    def open(cls, folder: Path) -> "TopMasks":
        """Masks that `write_masks` has written; their bits are read as they are needed.

        Raises:
            HeatcheckError: there are none.
        """
        facts = read_facts(folder)
        if facts is None:
            raise HeatcheckError(
                f"{str(folder)!r} holds no masks, or they are not finished; run `heatcheck roar` again"
            )
        samples = facts.pop("samples")
        bits = np.load(folder / BITS, mmap_mode="r", allow_pickle=False)
        shape, colour = tuple(facts.pop("shape")), tuple(facts.pop("colour"))
        return cls(shape=shape, colour=colour, bits=bits, rows={s: i for i, s in enumerate(samples)}, **facts)


def read_facts(folder: Path) -> dict[str, Any] | None:
    """What is known about masks; None where they are not finished."""
    try:
        found: dict[str, Any] = json.loads(read_patiently(folder / FACTS, Path.read_bytes))
    except FileNotFoundError:
        return None
    return found


def write_masks(
    folders: Mapping[float, Path],
    samples: Sequence[str],
    maps: Iterable[tuple[Float[Tensor, "b n"], Sequence[bool]]],
    *,
    shape: tuple[int, int, int],
    colour: tuple[int, int, int],
    seed: int,
) -> None:
    """Rank the maps of one method and write its masks, a folder per level; maps are held a batch at a time.

    Args:
        folders: where to, by level.
        samples: digests of the pictures, in the order of their maps.
        maps: batches of maps, and which of them are there; where one is not, all values must be equal.
        shape: of the masks.
        colour: what replaces a pixel.
        seed: of ties.
    """
    n = int(np.prod(shape))
    width, done, without = (n + 7) // 8, 0, 0
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(samples), width)}
    with ExitStack() as stack:
        files, sums = {}, {}
        for level, folder in folders.items():
            make_folder(folder)
            files[level] = stack.enter_context(written_atomically(folder / BITS))
            np.lib.format.write_array_header_1_0(files[level], header)
            sums[level] = hashlib.sha256(json.dumps([level, shape, colour, *samples]).encode())
        for values, there in maps:
            streams = Streams(seed, tuple(samples[done : done + len(values)]))
            for level, mask in zip(folders, top_masks(values, list(folders), streams), strict=True):
                packed = np.packbits(mask, axis=1).tobytes()
                files[level].write(packed)
                sums[level].update(packed)
            done += len(values)
            without += sum(not good for good in there)
    if done != len(samples):
        raise HeatcheckError(f"there are {done} maps of {len(samples)} pictures")
    for level, folder in folders.items():
        facts = {
            "level": level,
            "shape": shape,
            "colour": colour,
            "digest": sums[level].hexdigest(),
            "without_map": without,
            "samples": list(samples),
        }
        write_atomically(folder / FACTS, as_json(facts))


def batched(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Rows in lists of at most `size`.

    >>> list(batched("abc", 2))
    [['a', 'b'], ['c']]
    """
    held: list[Any] = []
    for row in rows:
        held.append(row)
        if len(held) == size:
            yield held
            held = []
    if held:
        yield held
