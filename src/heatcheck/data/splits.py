"""What a model learns from and what it is evaluated on."""

from pathlib import Path

from heatcheck.core.types import HeatcheckError
from heatcheck.data.catalogue import source_named, sources, split_spec
from heatcheck.data.load import source_of, unknown_spec
from heatcheck.data.places import kind_of

_TRAIN = "train"
_EVALUATION = ("val", "validation", "test")
"""Splits to evaluate on, the first that there is."""
_PARTS = ("train_part", "test_part")


def training_specs(data: str, held_out: str | None = None) -> tuple[str, str]:
    """The spec of the samples to learn from, and of those to evaluate on.

    Data that have a split `train` beside `val` or `test` are used so; of others a fifth of each class is held out.

    Args:
        data: a source, or a path alone.
        held_out: what to evaluate on instead. Then `data` may name a split, and without one is learnt from as a whole,
            where it has no split `train`.

    Raises:
        HeatcheckError: `data` is neither a source nor a path, names a split without anything held out, or is itself
            what is held out.

    >>> training_specs("images")
    ('train_part:images', 'test_part:images')
    """
    splits = None if (whole := _whole(data)) != data else _splits(data)
    if held_out is None:
        if whole != data:
            raise HeatcheckError(
                f"data={data!r} is a part already, which leaves nothing to evaluate on: give {whole!r}, or say what is held out"
            )
        return splits or (f"train_part:{data}", f"test_part:{data}")
    learnt = data if splits is None else splits[0]
    if held_out == learnt:
        raise HeatcheckError(f"data={data!r}: {held_out!r} is what is learnt from; hold out something else")
    return learnt, held_out


def _whole(data: str) -> str:
    """The spec without the split or part that it names."""
    before, place, after = split_spec(data)
    heads = before.split(":")
    kept = [head for head in heads if head.partition("(")[0] not in _PARTS]
    if not place and len(kept) > 1 and (source := source_named(kept[-2])) is not None and source.only_split:
        kept = kept[:-1]
    return data if kept == heads and not after else ":".join(kept) + place


def _splits(data: str) -> tuple[str, str] | None:
    """The specs of the splits to learn from and to evaluate on, or None if the data have none."""
    before, place, _ = split_spec(data)
    source = source_named(before.removesuffix(":").rpartition(":")[2])
    if source is None or source.wraps:
        path = Path(place).expanduser()
        if not place.strip() or kind_of(path) is None:
            raise HeatcheckError(unknown_spec(place))
        source = sources()[source_of(path)]
        before = f"{before}{source.id}:"
    found = source.splits_at(place) if source.splits else ()
    evaluation = next((split for split in _EVALUATION if split in found), None)
    if _TRAIN not in found or evaluation is None:
        return None
    return before + source.with_split(place, _TRAIN), before + source.with_split(place, evaluation)
