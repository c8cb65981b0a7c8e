"""A multiverse as the page and the terminal show it: a verdict, all rankings, and what changes them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from heatcheck.report.wording import number
from heatcheck.report.wording import rank as as_rank
from heatcheck.stats import Rankings

_SHADES = 8
_FIGURES = 30  # up to this many universes, cells have room for a number
_PAIRS = 6  # pairs of methods that are listed
STRENGTH = (
    (0.9, "The ranking hardly depends on the choice of settings"),
    (0.7, "The ranking is mostly stable"),
    (0.5, "The ranking depends strongly on the choice of settings"),
    (0.0, "There is no stable ranking"),
)
"""The verdict for a Kendall's W of at least this value."""
_STABLE = 0.7  # the least W of a ranking that is called stable


class HasName(Protocol):
    """A method as the page knows it."""

    @property
    def name(self) -> str:
        """Its full name."""


@dataclass(frozen=True)
class Phrase:
    """A piece of a sentence; `name` marks the name of a method."""

    text: str
    name: bool = False


@dataclass(frozen=True)
class RankCell:
    """A method in a universe.

    Args:
        at: the universe's column.
        shade: 8 for the first rank to 0 for the last; None where it is not ranked.
        rank: as text.
        worse: whether it is not significantly better than random there.
    """

    at: int
    shade: int | None
    rank: str
    worse: bool


@dataclass(frozen=True)
class MethodRow:
    """A method in all universes."""

    method: Any
    cells: tuple[RankCell, ...]
    median: str
    span: str
    first: int
    worse: int | None
    tested: int


@dataclass(frozen=True)
class FactorLevel:
    """A factor's level: the columns that have it, and Kendall's W among them."""

    name: str
    at: tuple[int, ...]
    w: str


@dataclass(frozen=True)
class Factor:
    """What one choice does to the ranking; `swapped` is a share, `bar` in per cent of the chart."""

    name: str
    levels: tuple[FactorLevel, ...]
    swapped: str
    bar: float
    tau: str
    within: str


@dataclass(frozen=True)
class Pair:
    """How often one method ranks before another; `tone` from −4 (never) to 4 (always)."""

    share: str
    tone: int
    reversed: bool


@dataclass(frozen=True)
class MultiverseView:
    """One model's multiverse.

    Args:
        base: the metric that was expanded.
        count: how many universes rank at least two methods.
        w: Kendall's W as text; empty where it does not exist.
        at: positions of W and its interval in per cent: low, W, high.
        interval: as text.
        verdict: sentences in pieces.
        labels: the universes in the order of their columns.
        figures: whether cells have room for their rank.
        rows: methods, best median rank first.
        chance: random's median rank, its range, and (column, opacity, rank) per universe; None if not measured.
        factors: what changes the ranking, most first.
        methods: rows and columns of the pairs.
        pairs: how often one method ranks before another, by their indices.
        left_out: universes without a ranking: (reason, labels).
        unranked: (method, reason, universes).
        ranks: [methods][universes], for the page's script.
    """

    base: str
    count: int
    w: str
    at: tuple[float, float, float] | None
    interval: str
    verdict: tuple[Phrase, ...]
    labels: tuple[str, ...]
    figures: bool
    rows: tuple[MethodRow, ...]
    chance: tuple[str, str, tuple[tuple[int, float, str], ...]] | None
    factors: tuple[Factor, ...]
    methods: tuple[Any, ...]
    pairs: Mapping[tuple[int, int], Pair]
    left_out: tuple[tuple[str, tuple[str, ...]], ...]
    unranked: tuple[tuple[str, str, int], ...]
    ranks: tuple[tuple[float | None, ...], ...]

    @property
    def width(self) -> float:
        """A column's width in per cent."""
        return 100 / max(self.count, 1)


def multiverse_view(
    case: Rankings, base: str, left_out: Sequence[tuple[str, str]], methods: Sequence[HasName]
) -> MultiverseView:
    """Everything the page shows of one model's multiverse."""
    views = {m.name: m for m in methods}
    order = case.arranged() if case.universes else []
    places = {universe: i for i, universe in enumerate(order)}
    factors = case.by_factor()
    widest = max((f["swapped"] or 0.0 for f in factors), default=0) or 1.0
    known = [views[m] for m in case.methods]
    return MultiverseView(
        base=base,
        count=len(case.universes),
        w=number(case.w, 2) if case.w is not None else "",
        at=None if case.w is None else _positions(case.w, case.low, case.high),
        interval="" if case.low is None else f"{number(case.low, 2)} to {number(case.high, 2)}",
        verdict=tuple(verdict(case)),
        labels=tuple(case.universes[i].label for i in order),
        figures=len(order) <= _FIGURES,
        rows=tuple(_row(case, i, views[row["method"]], row, order) for i, row in enumerate(case.by_method())),
        chance=_chance(case, order),
        factors=tuple(_factor(case, row, places, widest) for row in factors),
        methods=tuple(known),
        pairs=_pairs(case),
        left_out=grouped(left_out),
        unranked=tuple((m, why, n) for m, whys in case.unranked.items() for why, n in whys),
        ranks=tuple(tuple(None if r != r else float(r) for r in case.ranks[order, i]) for i in range(len(known))),
    )


def _positions(w: float, low: float | None, high: float | None) -> tuple[float, float, float]:
    return tuple(round(100 * (w if v is None else v), 2) for v in (low, w, high))  # type: ignore[return-value]


def _row(case: Rankings, i: int, method: HasName, row: Mapping[str, Any], order: Sequence[int]) -> MethodRow:
    cells = []
    for at, u in enumerate(order):
        r = case.ranks[u, i]
        if r != r:
            continue
        last = max((x for x in case.ranks[u] if x == x), default=1.0)
        shade = round(_SHADES * (1 - (r - 1) / (last - 1))) if last > 1 else _SHADES
        cells.append(RankCell(at, shade, as_rank(float(r)), bool(case.better[u, i] == 0)))
    return MethodRow(
        method=method,
        cells=tuple(cells),
        median=as_rank(row["median"]),
        span=span(row),
        first=row["first"],
        worse=row["not_better_than_random"],
        tested=row["tested"],
    )


def _chance(case: Rankings, order: Sequence[int]) -> tuple[str, str, tuple[tuple[int, float, str], ...]] | None:
    row = case.by_chance()
    if row is None:
        return None
    places = [(at, float(case.chance[u])) for at, u in enumerate(order) if case.chance[u] == case.chance[u]]
    last = len(case.methods) + 1
    cells = tuple((at, round(0.08 + 0.5 * (last - place) / (last - 1), 3), as_rank(place)) for at, place in places)
    return as_rank(row["median"]), span(row), cells


def span(row: Mapping[str, Any]) -> str:
    """From the best rank to the worst."""
    return as_rank(row["best"]) if row["best"] == row["worst"] else f"{as_rank(row['best'])}–{as_rank(row['worst'])}"


def _factor(case: Rankings, row: Mapping[str, Any], places: Mapping[int, int], widest: float) -> Factor:
    name = row["factor"]
    levels = tuple(
        FactorLevel(
            name=level,
            at=tuple(sorted(places[i] for i, u in enumerate(case.universes) if u.levels.get(name) == level)),
            w=number(row["w"][level], 2),
        )
        for level in row["levels"]
    )
    swapped = row["swapped"]
    return Factor(
        name=name,
        levels=levels,
        swapped="–" if swapped is None else percent(swapped),
        bar=0.0 if swapped is None else round(100 * swapped / widest, 2),
        tau=number(row["tau"], 2),
        within=number(row["w_within"], 2),
    )


def _pairs(case: Rankings) -> dict[tuple[int, int], Pair]:
    index = {m: i for i, m in enumerate(case.methods)}
    found: dict[tuple[int, int], Pair] = {}
    for row in case.by_pair():
        a, b = index[row["a"]], index[row["b"]]
        for i, k, share in ((a, b, row["share"]), (b, a, 1 - row["share"])):
            found[i, k] = Pair(percent(share), round(8 * (share - 0.5)), row["reversed"])
    return found


def percent(share: float) -> str:
    """A share in whole per cent; only exactly 0 and 1 are shown as 0 % and 100 %."""
    whole = round(100 * share)
    if whole == 0 and share > 0:
        return "<1 %"
    return ">99 %" if whole == 100 and share < 1 else f"{whole} %"


def grouped(left_out: Sequence[tuple[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Labels of what is left out, by reason; the most frequent reason first."""
    found: dict[str, list[str]] = {}
    for label, reason in left_out:
        found.setdefault(reason.partition("the same as ")[1] or reason, []).append(label)
    words = {"the same as ": "the same as another universe"}
    return tuple(
        (words.get(reason, reason), tuple(labels))
        for reason, labels in sorted(found.items(), key=lambda item: -len(item[1]))
    )


def verdict(case: Rankings) -> Iterator[Phrase]:
    """What the multiverse shows, in a few sentences."""
    u = len(case.universes)
    if case.w is None:
        why = "there are fewer than two universes" if u < 2 else "fewer than two methods are ranked in all universes"
        if u > 1 and len(case.common) > 1:
            why = "all methods tie in every universe"
        yield Phrase(f"Agreement cannot be measured: {why}.")
        return
    interval = "" if case.low is None else f" ({number(case.low, 2)} to {number(case.high, 2)})"
    yield Phrase(f"{_strength(case)}: over {u} universes, Kendall's W of {len(case.common)} methods is ")
    yield Phrase(f"{number(case.w, 2)}{interval}. ")
    yield from _winners(case, u)
    yield from _movers(case)
    yield from _orders(case)
    if case.too_few():
        yield Phrase(
            f" With {case.n} sample{'' if case.n == 1 else 's'}, no method can be significantly better than random; use more."
        )


def _strength(case: Rankings) -> str:
    """The strongest claim that holds for the whole interval of W; none if there are too few samples."""
    if case.low is not None and case.high is not None and not case.too_few():
        safe = case.low if case.low >= _STABLE else case.high
        if case.low >= _STABLE or case.high < _STABLE:
            return next(words for least, words in STRENGTH if safe >= least)
    few = "1 sample is" if case.n == 1 else f"{case.n} samples are"
    return f"{few} too few to say whether the ranking is stable"


def _winners(case: Rankings, u: int) -> Iterator[Phrase]:
    rows = sorted((r for r in case.by_method() if r["first"]), key=lambda r: -r["first"])
    yield Phrase(rows[0]["method"], name=True)
    if rows[0]["first"] == u:
        yield Phrase(" comes first in all of them.")
    else:
        yield Phrase(f" comes first in {rows[0]['first']} of them")
        others = len(rows) - 1
        if others:
            yield Phrase(f"; {others} other method{'s come' if others > 1 else ' comes'} first in others")
        yield Phrase(".")


def _movers(case: Rankings) -> Iterator[Phrase]:
    rows = [r for r in case.by_factor() if r["swapped"] is not None]
    if not rows:
        return
    if not rows[0]["swapped"]:
        yield Phrase(" No single choice changes the order of any two methods.")
        return
    shares = {r["factor"]: percent(r["swapped"]) for r in rows}
    highest, lowest = percent(rows[0]["swapped"]), percent(rows[-1]["swapped"])
    most, least = ([name for name, share in shares.items() if share == end] for end in (highest, lowest))
    matter = "matters" if len(most) == 1 else "matter"
    alone = "changing it alone" if len(most) == 1 else "changing one of them alone"
    degree = "equally" if len(most) == len(rows) > 1 else "most"
    yield Phrase(f" {_listed(most, 'The')} {matter} {degree}: {alone} reverses {highest} of the pairs of methods")
    if highest != lowest:
        yield Phrase(f"; {_listed(least)} {'matters' if len(least) == 1 else 'matter'} least ({lowest})")
    yield Phrase(".")


def _listed(factors: Sequence[str], article: str = "the") -> str:
    """`the fill`, `the fill and the units`, `the fill, the units and the sign`."""
    *first, last = (f"{article if i == 0 else 'the'} {name}" for i, name in enumerate(factors))
    return f"{', '.join(first)} and {last}" if first else last


def _orders(case: Rankings) -> Iterator[Phrase]:
    pairs = case.by_pair()
    robust = sum(p["kind"] == "robust" for p in pairs)
    turned = sum(p["reversed"] for p in pairs)
    yield Phrase(f" {robust} of {len(pairs)} pairs of methods keep their order in at least 90 % of the universes")
    if turned:
        pair = "1 pair" if turned == 1 else f"{turned} pairs"
        yield Phrase(f"; in {pair}, either method is significantly better in some universe")
    yield Phrase(".")


def shakiest(case: Rankings) -> list[dict[str, Any]]:
    """The pairs with the least stable order: significant reversals first, then those closest to half and half."""
    pairs = [p for p in case.by_pair() if p["kind"] == "depends"]
    return sorted(pairs, key=lambda p: (not p["reversed"], abs(p["share"] - 0.5)))[:_PAIRS]
