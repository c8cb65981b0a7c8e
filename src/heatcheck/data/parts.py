"""A source in two parts, one to learn from and one that is held out, each with its share of every class."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError
from heatcheck.data.base import Listing, SourceOptions
from heatcheck.data.load import listing_of

PARAMS = ("seed", "share")
SHARE = 0.2


@source(
    "train_part",
    form="train_part:SOURCE",
    modality="image or text",
    about="the samples of another source that test_part:SOURCE leaves, to learn from",
    licence="the source's",
    group="parts",
    position=1,
    columns=True,
    params=PARAMS,
)
def part_to_train(where: str, options: SourceOptions, *, seed: int = 0, share: float = SHARE) -> Listing:
    """What a source holds beside its `test_part` of the same seed and share.

    Args:
        where: the source, such as `images` or `folder:PATH`.
        options: what else a user says.
        seed: which samples are held out.
        share: how many of them, between 0 and 1.
    """
    return _part_of_source("train_part", where, options, seed, share)


@source(
    "test_part",
    form="test_part:SOURCE",
    modality="image or text",
    about="a fifth of the samples of another source, of each class its share; test_part(seed=3, share=0.1):SOURCE another tenth",
    licence="the source's",
    group="parts",
    position=2,
    columns=True,
    params=PARAMS,
)
def part_to_test(where: str, options: SourceOptions, *, seed: int = 0, share: float = SHARE) -> Listing:
    """A share of a source's samples, to evaluate on what was learnt from the others.

    Args:
        where: the source, such as `images` or `folder:PATH`.
        options: what else a user says.
        seed: which samples are held out.
        share: how many of them, between 0 and 1.
    """
    return _part_of_source("test_part", where, options, seed, share)


def _part_of_source(id: str, where: str, options: SourceOptions, seed: Any, share: Any) -> Listing:
    whole = listing_of(where, replace(options, samples=None))
    plain = whole if options.classes is None else listing_of(where, replace(options, samples=None, classes=None))
    chosen = part(plain, id, seed=seed, share=share)
    listing = restricted(whole, chosen)
    note = f"{len(chosen):,} of the {len(whole.names):,} samples of {where}, chosen by seed {seed} from each class"
    return replace(listing, name=f"{id}-{whole.name}", notes=(note, *whole.notes))


def part(listing: Listing, id: str, *, seed: Any, share: Any) -> list[int]:
    """The positions of the samples in `train_part` or `test_part`. Labels alone are read, where a source can tell them.

    Raises:
        HeatcheckError: the seed is no integer, the share is not between 0 and 1, or nothing is left.
    """
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise HeatcheckError(f"seed={seed!r}: give an integer, such as {id}(seed=3)")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise HeatcheckError(f"share={share!r}: give a number between 0 and 1, such as {id}(share=0.1)")
    n = len(listing.names)
    held = held_out(listing.names, [listing.class_at(i) for i in range(n)], seed, share)
    chosen = held if id == "test_part" else sorted(set(range(n)) - set(held))
    if n and not chosen:
        taken = f"a share of {share} of {n} samples is {len(held)}"
        raise HeatcheckError(f"{id} of {listing.name!r} is empty: {taken}; give another share, such as {id}(share=0.5)")
    return chosen


def held_out(names: Sequence[str], classes: Sequence[int | None], seed: int, share: float) -> list[int]:
    """The positions of a share of the samples, ascending: `round(share · n)` in all, of each class its share.

    Samples are sorted by class and then by a hash of seed and name; every 1/share-th is taken, from a start that the
    seed gives. So each class has its share within one sample, and those without a class count as one. The order of the
    samples has no influence.

    >>> held_out(["a", "b", "c", "d"], [0, 1, 0, 1], 0, 0.5)
    [1, 2]
    """
    n = len(names)
    count = round(share * n)
    order = sorted(range(n), key=lambda i: (-1 if (c := classes[i]) is None else c, _hash(seed, names[i]), i))
    start = int.from_bytes(_hash(seed, ""), "big") % n if n else 0
    return sorted(i for at, i in enumerate(order) if (at * count + start) % n + count >= n)


def restricted(listing: Listing, positions: Sequence[int]) -> Listing:
    """The listing with the samples at these positions alone."""
    label = listing.label
    return replace(
        listing,
        names=[listing.names[i] for i in positions],
        make=lambda i: listing.make(positions[i]),
        label=None if label is None else lambda i: label(positions[i]),
    )


def _hash(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"part|{seed}|{name}".encode(errors="surrogatepass")).digest()
