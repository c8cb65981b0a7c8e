"""Texts: sites are token positions, the leaf is the word embedding of each."""

import itertools
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from heatcheck.core.types import HeatcheckError, Inputs, Modality
from heatcheck.domain.base import Domain, Units, Windows, reduce_over

MODALITY = "text"
UNITS = {
    "token": ("token", "Each token that is not special."),
    "word": ("word", "The tokens of a word together."),
    "sentence": ("sentence", "The tokens of a sentence together."),
}
"""What can be deleted together, by id: how it is written, and what it is."""
RUN = 5
"""The longest runs of units that are windows."""
UNIT_ROLES = {"site": "token", "cell": "token", "patch": "token", "segment": "word", "region": "word"}


@dataclass(frozen=True, kw_only=True)
class TextDomain(Domain):
    """Texts as `ids`, `attention`, `special`, `word` and `sentence`, each `[b, t]`.

    `special` marks [CLS], [SEP] and padding, which are never deleted; `word` and `sentence` number the word
    and sentence of each token (-1 for special ones); where the text is known, `begin` and `end` are the characters where
    each token begins and ends. Once a point of leaf space other than the tokens' own is asked for, `embeds[b, t, d]` is
    there too. Pairs of texts have `types[b, t]`, the part that each token belongs to, and texts with padding before them
    `start[b]`, the place of their first token.

    Args:
        embed: word embeddings of token ids.
        pad: the id that stands in the place of a token that is hidden from attention.
        mask: the mask token's id; None where the tokenizer has none.
        unk: the unknown-word token's id; None where the tokenizer has none.
        specials: ids that are never deleted, such as [CLS] and [SEP].
        spell: token ids to what people read.
        in_front: whether the network gets texts without the padding before them, which follows behind instead: most
            count places from the first, and many take their summary there. XLNet takes it from the last.
    """

    modality: ClassVar[Modality] = Modality.TEXT
    roles: ClassVar[Mapping[str, str]] = UNIT_ROLES
    aligned_by: ClassVar[str] = "word"
    windowed: ClassVar[tuple[str, ...]] = ("word", "sentence")
    usual_levels: ClassVar[Mapping[str, tuple[str, ...]]] = {"fill": ("mask", "pad", "unk"), "units": ("token", "word")}
    map_axes: ClassVar[int] = 2
    default_fill: ClassVar[str] = "pad"
    insertion_fill: ClassVar[str] = "pad"
    gradient_reduction: ClassVar[str] = "l2"
    """Behind a LayerNorm, as in BERT, the coordinates of an embedding's gradient sum to zero; its length says more."""
    inclusive_percentiles: ClassVar[bool] = True
    gallery: ClassVar[int] = 64
    """A text is a thousandth of a picture, so that the best and worst samples can be shown, too."""

    embed: Callable[[Tensor], Tensor] = field(compare=False)
    pad: int | None = None
    mask: int | None = None
    unk: int | None = None
    specials: frozenset[int] = frozenset()
    spell: Callable[[list[int]], list[str]] | None = field(default=None, compare=False)
    in_front: bool = True

    def shape(self, x: Inputs) -> tuple[int, int]:
        return 1, x["ids"].shape[1]

    def leaf(self, x: Inputs) -> Float[Tensor, "b t d"]:
        return x["embeds"] if "embeds" in x else self.embed(x["ids"])

    def with_leaf(self, x: Inputs, leaf: Float[Tensor, "b t d"]) -> Inputs:
        return x.replace(embeds=leaf)

    def reduce(self, values: Float[Tensor, "b t d"], how: str) -> Float[Tensor, "b t"]:
        return reduce_over(values, how, 2)

    def deletable(self, x: Inputs) -> Bool[Tensor, "b s"]:
        return ~x["special"]

    def seen(self, x: Inputs) -> Bool[Tensor, "b s"]:
        return x["attention"] > 0

    def entering(self, values: Shaped[Tensor, "b t ..."], x: Inputs) -> Shaped[Tensor, "b t ..."]:
        if "start" not in x or not self.in_front:
            return values
        places = torch.arange(values.shape[1], device=values.device)
        index = (places + x["start"][:, None]) % len(places)
        return values.gather(1, index.reshape(*index.shape, *[1] * (values.ndim - 2)).expand_as(values))

    def leaving(self, values: Shaped[Tensor, "b ... t"], x: Inputs) -> Shaped[Tensor, "b ... t"]:
        if "start" not in x or not self.in_front:
            return values
        places = torch.arange(values.shape[-1], device=values.device)
        index = (places - x["start"][:, None]) % len(places)
        return values.gather(-1, index.reshape(len(index), *[1] * (values.ndim - 2), -1).expand_as(values))

    def leaf_range(self, x: Inputs) -> Float[Tensor, " b"]:
        leaf, seen = self.leaf(x).detach(), self.seen(x)[..., None]
        low, high = torch.where(seen, leaf, torch.inf), torch.where(seen, leaf, -torch.inf)
        return (high.flatten(1).amax(1) - low.flatten(1).amin(1)).clamp_min(0)

    def leaf_mean(self, x: Inputs) -> Float[Tensor, " b"]:
        leaf, seen = self.leaf(x).detach(), self.seen(x)
        total = torch.where(seen[..., None], leaf, 0).sum((1, 2))
        return total / (seen.sum(1) * leaf.shape[2]).clamp_min(1)

    def leaf_noise(self, x: Inputs, draw: Callable[[int, Sequence[int]], Tensor]) -> Float[Tensor, "b t d"]:
        """As for every domain; a hidden token between others keeps its draw, so that hiding it changes no other's."""
        tokens, size = self.leaf(x).shape[1:]
        found = []
        for row, (first, last) in enumerate(self._ends(x)):
            found.append(F.pad(draw(row, (last - first, size)), (0, 0, first, tokens - last)))
        return torch.stack(found).to(x.device)

    def coarse_shape(self, x: Inputs, side: int) -> tuple[int, int]:
        """One row of cells, however many tokens there are: their number must not depend on padding."""
        return 1, side

    def enlarged(self, cells: Float[Tensor, "b r c"], x: Inputs) -> Float[Tensor, "b s"]:
        tokens = x["ids"].shape[1]
        found = []
        for own, (first, last) in zip(cells, self._ends(x), strict=True):
            row = F.interpolate(own[None], last - first, mode="linear", align_corners=False)[0, 0]
            found.append(F.pad(row, (first, tokens - last)))
        return torch.stack(found)

    def content(self, x: Inputs) -> list[Tensor]:
        return [ids[None, first:last] for ids, (first, last) in zip(x["ids"], self._ends(x), strict=True)]

    def _ends(self, x: Inputs) -> list[tuple[int, int]]:
        """The first token of each text that the model reads, and the place behind the last."""
        places = [[i for i, on in enumerate(seen) if on] for seen in self.seen(x).tolist()]
        return [(own[0], own[-1] + 1) if own else (0, x["ids"].shape[1]) for own in places]

    def token_id(self, name: str) -> int:
        """The id of the `pad`, `mask` or `unk` token."""
        token: int | None = getattr(self, name)
        if token is None:
            others = ["pad", *(other for other in ("unk", "mask") if getattr(self, other) is not None), "remove"]
            raise HeatcheckError(
                f"fill={name!r}: this model's tokenizer has no {name} token; fill={', '.join(others[:-1])} or remove can be used"
            )
        return token

    def wrap(self, x: Any) -> Inputs:
        """Token ids `[b, t]`, or a tokenizer's mapping with `input_ids` and `attention_mask`."""
        given = {"input_ids": x} if isinstance(x, Tensor) else dict(x)
        ids = given.get("input_ids")
        if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point():
            raise HeatcheckError("expected texts as strings, token ids [b, t], or a tokenizer's output with input_ids")
        attention = given.get("attention_mask", torch.ones_like(ids)).long()
        special = (attention == 0) | torch.isin(
            ids, torch.tensor(sorted(self.specials), dtype=ids.dtype, device=ids.device)
        )
        word = torch.where(special, -1, (~special).long().cumsum(1) - 1)
        sentence = torch.where(special, -1, 0)
        x = Inputs({"ids": ids, "attention": attention, "special": special, "word": word, "sentence": sentence})
        types = given.get("token_type_ids")
        if isinstance(types, Tensor) and bool(types.any()):
            x = x.replace(types=types.long())
        return with_start(x)

    def display(self, x: Inputs) -> dict[str, Any]:
        """The tokens that are attended to, with their words and sentences; padding before and behind is not shown.

        `first` is the place of the first of them in a map.
        """
        first, last = self._ends(x)[0]
        ids = x["ids"][0, first:last].tolist()
        tokens = self.spell(ids) if self.spell else [str(i) for i in ids]
        numbers = {name: x[name][0, first:last].tolist() for name in ("special", "word", "sentence")}
        return {"kind": "text", "tokens": tokens, "first": first, **numbers}

    def words(self, x: Inputs) -> list[list[tuple[int, ...]]]:
        number = torch.where(self.deletable(x), x["word"], -1).tolist()
        return [words_of(ids, own) for ids, own in zip(x["ids"].tolist(), number, strict=True)]

    def spelled(self, x: Inputs) -> list[tuple[str, ...]]:
        every = zip(x["ids"].tolist(), self.seen(x).tolist(), strict=True)
        seen = [[token for token, on in zip(*own, strict=True) if on] for own in every]
        return [tuple(self.spell(ids) if self.spell else map(str, ids)) for ids in seen]

    def aligned(self, views: Sequence[Inputs], kind: str = "") -> list[Int[Tensor, " _"]] | None:
        """Words or sentences by where they stand in the text; those that tokenizers cut differently are joined.

        One that a model cannot read to its end, because the text is too long for it, is nobody's.
        """
        kind = kind or self.aligned_by
        if not all("begin" in x and "end" in x for x in views):
            return None
        placed = [_places(x, kind) for x in views]
        read = min(max((end for _, end in own.values()), default=0) for own in placed)
        common: list[tuple[int, int]] = []
        for begin, end in sorted(place for own in placed for place in own.values()):
            if common and begin < common[-1][1]:
                common[-1] = (common[-1][0], max(common[-1][1], end))
            else:
                common.append((begin, end))
        starts = [begin for begin, _ in common]
        unit_of = [{unit: bisect_right(starts, begin) - 1 for unit, (begin, _) in own.items()} for own in placed]
        shared = set.intersection(*(set(own.values()) for own in unit_of))
        numbers = {unit: i for i, unit in enumerate(u for u in sorted(shared) if common[u][1] <= read)}
        return [
            torch.tensor([numbers.get(own.get(unit, -1), -1) for unit in x[kind][0].tolist()], device=x.device)
            for own, x in zip(unit_of, views, strict=True)
        ]

    def partition(self, kind: str, n: int | None, x: Inputs) -> tuple[Int[Tensor, "b s"], int]:
        width = x["ids"].shape[1]
        free = self.deletable(x)
        if kind == "token":
            return free.long().cumsum(1) - 1, width
        if kind in ("word", "sentence"):
            return x[kind], width
        raise self.unknown_units(kind)

    def groups(self, units: Units, x: Inputs) -> list[Int[Tensor, "b u"]]:
        """Sentences, and the words inside them; of what is larger than the units alone."""
        larger = itertools.takewhile(lambda kind: kind != units.name, reversed(UNITS))
        blank = units.index.new_zeros(len(x), units.width + 1)
        return [
            blank.scatter_reduce(1, units.slot, x[kind], "amin", include_self=False)[:, : units.width]
            for kind in larger
        ]

    def mix(self, x: Inputs, keep: Shaped[Tensor, "b s"], full: Inputs) -> Inputs:
        soft = keep.dtype != torch.bool
        whole = keep > 0 if soft else keep
        mixed = x.replace(
            ids=torch.where(whole, x["ids"], full["ids"]),
            attention=torch.where(whole, x["attention"], full["attention"]),
        )
        if soft or "embeds" in x or "embeds" in full:
            here, gone = self.leaf(x), self.leaf(full)
            share = keep.to(here.dtype)[..., None]
            mixed = mixed.replace(embeds=share * here + (1 - share) * gone)
        return mixed

    def windows(self, x: Inputs) -> Windows:
        """Runs of one to five consecutive tokens, special ones excluded."""
        free = self.deletable(x)
        tokens = free.shape[1]
        before = F.pad(free.long().cumsum(1), (1, 0))
        boxes, valid = [], []
        for length in range(1, min(RUN, tokens) + 1):
            left = torch.arange(tokens - length + 1, device=x.device)
            right = left + length
            boxes.append(torch.stack([torch.zeros_like(left), torch.ones_like(left), left, right], -1))
            valid.append(before[:, right] - before[:, left] == length)
        box = torch.cat(boxes).expand(len(x), -1, -1)
        return Windows(box, torch.cat(valid, 1), (1, tokens))

    def unit_windows(self, units: Units, x: Inputs) -> list[list[tuple[int, ...]]]:
        """Runs of one to five consecutive units that no special token parts."""
        part = (~self.deletable(x)).long().cumsum(1).tolist()
        found = []
        for n, index, own in zip(units.counts, units.index.tolist(), part, strict=True):
            parts: list[set[int]] = [set() for _ in range(n)]
            for unit, number in zip(index, own, strict=True):
                if unit >= 0:
                    parts[unit].add(number)
            runs = [range(k, k + length) for length in range(1, min(RUN, n) + 1) for k in range(n - length + 1)]
            whole = (len(run) == 1 or len(set().union(*(parts[u] for u in run))) == 1 for run in runs)
            found.append([tuple(run) for run, together in zip(runs, whole, strict=True) if together])
        return found

    def layout(self, values: Float[Tensor, "b t"], x: Inputs, interpolation: str) -> Float[Tensor, "b s"]:
        if values.shape[1] != x["ids"].shape[1]:
            raise HeatcheckError(f"a map over {values.shape[1]} tokens was given for texts of {x['ids'].shape[1]}")
        return values

    def cut_to_sites(self, values: Float[Tensor, "b t"], x: Inputs) -> Float[Tensor, "b s"]:
        return values[:, : x["ids"].shape[1]]

    def padded_as(self, values: Float[Tensor, "b t"], x: Inputs) -> Float[Tensor, "b s"]:
        return F.pad(values, (0, x["ids"].shape[1] - values.shape[1]))

    def as_map(self, sites: Float[Tensor, "b s"], x: Inputs) -> Float[Tensor, "b s"]:
        return sites

    def edges(self, x: Inputs) -> Float[Tensor, "b s"]:
        """How far each word embedding lies from those of its neighbours; padding is nobody's neighbour."""
        leaf, seen = self.leaf(x), self.seen(x)
        step = (leaf[:, 1:] - leaf[:, :-1]).square().sum(-1).sqrt() * (seen[:, 1:] & seen[:, :-1])
        return (F.pad(step, (1, 0)) + F.pad(step, (0, 1))) / 2


def words_of(ids: Sequence[int], number: Sequence[int]) -> list[tuple[int, ...]]:
    """The tokens of each word, given the number of each token's word, or -1 where it is none's.

    >>> words_of([101, 7, 8, 9, 102], [-1, 0, 0, 1, -1])
    [(7, 8), (9,)]
    """
    found: dict[int, list[int]] = {}
    for id, own in zip(ids, number, strict=True):
        found.setdefault(own, []).append(id)
    return [tuple(found[own]) for own in sorted(found) if own >= 0]


def padding_of(x: Inputs) -> Bool[Tensor, "b t"]:
    """The places that no token of a text ever had."""
    return x["special"] & (x["attention"] == 0)


def with_start(x: Inputs) -> Inputs:
    """The same texts, with the place of their first token where there is padding before one of them."""
    before = (x["attention"] > 0).long().cumsum(1) == 0
    start = torch.where(before.all(1), 0, before.sum(1))
    return x.replace(start=start) if bool(start.any()) else x


def _places(x: Inputs, kind: str) -> dict[int, tuple[int, int]]:
    """Where each word or sentence of a text begins and ends, by its number; without those of no characters."""
    found: dict[int, tuple[int, int]] = {}
    for unit, begin, end in zip(*(x[name][0].tolist() for name in (kind, "begin", "end")), strict=True):
        if unit >= 0 and begin < end:
            first, last = found.get(unit, (begin, end))
            found[unit] = (min(first, begin), max(last, end))
    return found
