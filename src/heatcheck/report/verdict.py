"""The first screen: which method to use, how sure that is, what it costs, and what the run cannot say."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from heatcheck import stats
from heatcheck.report import wording
from heatcheck.report.cases import Tables
from heatcheck.report.charts import Axis
from heatcheck.report.method_view import MethodView
from heatcheck.report.verdict_view import Apart, ApartTable, FirstScreen, RankChart, RankRow, Sentence, Wording
from heatcheck.report.views import MetricView, OverallRow
from heatcheck.stats import Recommendation

_NAMED = 3  # methods that the sentence names
_ROWS = 24  # of the picture
_FEW = 30  # samples; with as many, half of the methods should differ from random where a metric is any good
_CHEAPER = 1.5  # a smaller difference in cost is not worth a word


def verdict_of(
    tables: Tables,
    methods: Sequence[MethodView],
    metrics: Sequence[MetricView],
    overall: Sequence[OverallRow],
    powerless: bool,
    concordance: str,
) -> FirstScreen:
    """The first screen of one case.

    Args:
        tables: the case's tables.
        methods: in the order of the page.
        metrics: in the order of the page.
        overall: methods by their mean rank.
        powerless: whether there are too few samples for any method to differ significantly from random.
        concordance: Kendall's W over all metrics, as text; empty where undefined.
    """
    views = {m.name: m for m in methods}
    limits = tuple(_limits(tables, metrics, concordance))
    costs = _Costs(tables)
    found = next(stats.recommendations(tables.board, tables.facts), None)
    if found is None:
        chart = rank_chart(stats.overall(tables.board, replace(tables.facts, paper=True)), views, costs, ())
        return FirstScreen(_nothing(tables, metrics), (), (), limits, chart and replace(chart, counts=False))
    group = (found.method, *found.ties)
    named = () if powerless or len(group) <= _NAMED else tuple(views[m] for m in found.ties)
    return FirstScreen(
        headline=_headline(found, views, costs, overall, powerless, len(tables.samples)),
        body=tuple(_body(found, views, costs, overall, powerless)),
        ties=named,
        limits=limits,
        chart=rank_chart(tables.totals, views, costs, group),
        apart=_apart(tables, found, views, [m.name for m in metrics]),
    )


def _apart(
    tables: Tables, found: Recommendation, views: Mapping[str, MethodView], order: Sequence[str]
) -> ApartTable | None:
    """Effect sizes of the recommended method against the others, under the metrics that count."""
    metrics = tuple(m for m in order if m in found.metrics)
    sizes = stats.against_others(tables.scores, tables.facts, found.method)
    cells: dict[tuple[str, str], Apart] = {}
    for row in sizes.iter_rows(named=True):
        other, metric = row["method"], row["metric"]
        won, lost = metric in found.wins.get(other, ()), metric in found.ahead.get(other, ())
        verdict = "better" if won else "worse" if lost else ""
        cells[other, metric] = Apart(wording.effect(row["effect"]), wording.per_cent(row["share"]), verdict)
    others = [m for m in tables.totals["method"] if any((m, metric) in cells for metric in metrics)]
    rows = tuple((views[m], tuple(cells.get((m, metric)) for metric in metrics)) for m in others)
    return ApartTable(views[found.method], metrics, rows) if rows else None


class _Costs:
    """What a map costs: passes, or seconds where none were counted."""

    def __init__(self, tables: Tables) -> None:
        rows = {r["method"]: r for r in stats.costs(tables.board).iter_rows(named=True)}
        self.unit = "passes" if any(r["passes"] for r in rows.values()) else "seconds"
        self._rows = rows

    def __getitem__(self, method: str) -> float | None:
        value = self._rows.get(method, {}).get(self.unit)
        return None if value is None else float(value)

    def short(self, method: str) -> str:
        """Passes or seconds, as a number."""
        return "–" if self[method] is None else wording.count(_tidy(self[method] or 0.0))

    def told(self, method: str) -> str:
        """Passes and seconds, in words."""
        row = self._rows.get(method, {})
        seconds = f"{wording.count(_tidy(row['seconds']))} s" if row.get("seconds") else ""
        if not row.get("passes"):
            return seconds or "an unknown time"
        passes = f"{wording.count(_tidy(row['passes']))} pass{'' if row['passes'] == 1 else 'es'}"
        return f"{passes} ({seconds})" if seconds else passes


def _tidy(value: float) -> float:
    """A whole number from 10 on, two significant digits below."""
    return float(round(value)) if value >= 10 else float(f"{value:.2g}")


def _headline(
    found: Recommendation,
    views: Mapping[str, MethodView],
    costs: _Costs,
    overall: Sequence[OverallRow],
    powerless: bool,
    samples: int,
) -> Sentence:
    chosen, ties = views[found.method], [views[m] for m in found.ties]
    rank = next(row.mean_rank for row in overall if row.method is chosen)
    over = f"{rank} over {_counted(len(found.metrics), 'metric')}"
    if powerless:
        return (
            Wording(f"{_counted(samples, 'sample')} {'tells' if samples == 1 else 'tell'} no two methods apart. "),
            Wording(method=chosen),
            Wording(f" has the best mean rank, {over}, but each of the others may be as good."),
        )
    if found.method in found.dominated:
        return (
            Wording("Each method here is beaten by another. Of those that beat one another in a circle, "),
            Wording(method=chosen),
            Wording(f" has the best mean rank, {over}."),
        )
    saving = _saving(found, views, costs)
    if not ties:
        among = _among(found, overall)
        return Wording("Use "), Wording(method=chosen), Wording(f": {among}it has the best mean rank, {over}.")
    if len(ties) < _NAMED:
        return (
            Wording("Use "),
            *_listed([chosen, *ties], "or"),
            Wording(": nothing here tells them apart"),
            *(saving or (Wording(", nor do their costs"),)),
            Wording("."),
        )
    return (
        Wording("Use "),
        Wording(method=chosen),
        Wording(f" or one of {len(ties)} others: nothing here tells them apart"),
        *saving,
        Wording("."),
    )


def _among(found: Recommendation, overall: Sequence[OverallRow]) -> str:
    """Which methods the recommended one is the best of, where others have a better mean rank."""
    better = _better_ranked(found, overall)
    enough = ["that most metrics rank"] if any(m not in found.dominated for m in better) else []
    which = enough + (["that no other beats"] if any(m in found.dominated for m in better) else [])
    return f"of the methods {' and '.join(which)}, " if which else ""


def _better_ranked(found: Recommendation, overall: Sequence[OverallRow]) -> list[str]:
    """Methods that have a better mean rank than the recommended one, best first."""
    raw = {row.method.name: row.raw for row in overall if row.raw is not None}
    return [name for name, rank in raw.items() if rank < raw[found.method]]


def _saving(found: Recommendation, views: Mapping[str, MethodView], costs: _Costs) -> Sentence:
    """Which of the methods that nothing tells apart is much cheaper than the recommended one; empty where none is."""
    known = [(costs[m], m) for m in (found.method, *found.ties)]
    priced = [(cost, name) for cost, name in known if cost]
    own = costs[found.method]
    if not priced or not own:
        return ()
    least, cheapest = min(priced, key=lambda pair: pair[0])
    if cheapest == found.method:
        return Wording(", and "), Wording(method=views[cheapest]), Wording(" costs least")
    ratio = own / least
    if ratio < _CHEAPER:
        return ()
    return Wording(", and "), Wording(method=views[cheapest]), Wording(f" costs {_times(ratio)} less")


def _times(ratio: float) -> str:
    return f"{wording.count(_tidy(ratio))} times"


def _body(
    found: Recommendation,
    views: Mapping[str, MethodView],
    costs: _Costs,
    overall: Sequence[OverallRow],
    powerless: bool,
) -> Iterator[Sentence]:
    chosen = Wording(method=views[found.method])
    if not powerless:
        yield _how_sure(found, views)
        yield from _passed_over(found, views, overall)
        yield _against_random(found)
    cheapest = min((m for m in found.ties if costs[m]), key=lambda m: costs[m] or 0.0, default=None)
    other: Sentence = ()
    if cheapest and (costs[cheapest] or 0) < (costs[found.method] or 0):
        other = Wording(", one of "), Wording(method=views[cheapest]), Wording(f" {costs.told(cheapest)}")
    yield Wording("A map of "), chosen, Wording(f" takes {costs.told(found.method)}"), *other, Wording(".")


_SURE = "(95 % confidence within each metric)."


def _how_sure(found: Recommendation, views: Mapping[str, MethodView]) -> Sentence:
    """Which of the others it is better than, and which of them are better than it under some metric."""
    chosen = Wording(method=views[found.method])
    behind = len(found.behind)
    others = len(found.ties) + len(found.lesser) + behind + len(found.ahead)
    if not others:
        return chosen, Wording(" is the only method that was ranked.")
    if found.ahead:
        return (*_better_and_worse(found, views, others), Wording(f" {_SURE}"))
    if not behind:
        each = f"any of the {others} others" if others > 1 else "the other method"
        return chosen, Wording(f" is not significantly better than {each} under any metric, and not worse {_SURE}")
    which = f"{'each' if behind == others else behind} of the {others} others" if others > 1 else "the other method"
    worse = "and worse than none under any" if others > 1 else "and worse under none"
    return chosen, Wording(f" is significantly better than {which} under some metric, {worse} {_SURE}")


def _better_and_worse(found: Recommendation, views: Mapping[str, MethodView], others: int) -> Iterator[Wording]:
    """How many it beats; the method that is better than it under most metrics, and where that one is worse."""
    chosen, behind = Wording(method=views[found.method]), len(found.behind)
    name, metrics = max(found.ahead.items(), key=lambda pair: len(pair[1]))
    other = Wording(method=views[name])
    if behind:
        them = "it" if behind == 1 else "them"
        won = f" is significantly better than {behind} of the {others} others and nowhere worse than {them}; but "
        yield from (chosen, Wording(won), other, Wording(" is better than it under "))
    else:
        yield from (other, Wording(" is significantly better than "), chosen, Wording(" under "))
    yield from _metric_names(metrics)
    yield Wording(" and worse under ")
    yield from _metric_names(found.wins[name]) if name in found.wins else [Wording("none")]
    more = len(found.ahead) - 1
    if more:
        worse = " and worse under others" if found.ahead.keys() <= found.wins.keys() else ""
        yield Wording(f", and {more} more {'is' if more == 1 else 'are'} better under some metrics{worse}")


def _passed_over(
    found: Recommendation, views: Mapping[str, MethodView], overall: Sequence[OverallRow]
) -> Iterator[Sentence]:
    """Why methods are not recommended that have a better mean rank, or that nothing tells apart from the recommended one."""
    passed = [m for m in _better_ranked(found, overall) if m in found.dominated]
    if passed and found.method not in found.dominated:
        have = "has a better mean rank" if len(passed) == 1 else "have better mean ranks"
        yield *_some(passed, views), Wording(f" {have}, but "), *_beaten(passed, found, views)
    lesser = [m for m in found.lesser if m not in passed]
    if lesser:
        start = Wording("Nothing tells ")
        yield start, *_some(lesser, views), Wording(" apart from it, but "), *_beaten(lesser, found, views)
    if found.seldom:
        one = len(found.seldom) == 1
        yield (
            *_some(list(found.seldom), views),
            Wording(
                f" {'is' if one else 'are'} significantly better than it under some metric and nowhere worse, but "
            ),
            Wording(f"too few metrics rank {'it' if one else 'them'} to recommend {'it' if one else 'them'}."),
        )


def _some(names: Sequence[str], views: Mapping[str, MethodView]) -> Iterator[Wording]:
    """A few methods by name, and how many more there are."""
    if len(names) <= _NAMED:
        yield from _listed([views[m] for m in names], "and")
        return
    for name in names[: _NAMED - 1]:
        yield from (Wording(method=views[name]), Wording(", "))
    yield Wording(f"and {len(names) - _NAMED + 1} more")


def _beaten(names: Sequence[str], found: Recommendation, views: Mapping[str, MethodView]) -> Iterator[Wording]:
    """What beats these methods: named where it is one method, under one set of metrics."""
    ((by, metrics), *more) = dict.fromkeys(found.dominated[m] for m in names)
    if more:
        yield Wording(
            "each of them is significantly worse than another method under some metric and better than it under none."
        )
        return
    them = "that one" if len(names) == 1 else "them"
    yield from (Wording(method=views[by]), Wording(f" is significantly better than {them} under "))
    yield from (*_metric_names(metrics), Wording(" and worse under none."))


def _against_random(found: Recommendation) -> Sentence:
    if not found.tested:
        return (Wording("It was not compared with a random map."),)
    if not found.not_better:
        n = len(found.tested)
        every = "the one metric" if n == 1 else f"all {n} metrics"
        return (Wording(f"It is better than a random map under {every}."),)
    if len(found.not_better) == len(found.tested):
        return (Wording("No metric finds it better than a random map."),)
    return Wording("It is not better than a random map under "), *_metric_names(found.not_better), Wording(".")


def _nothing(tables: Tables, metrics: Sequence[MetricView]) -> Sentence:
    if not tables.scores.height:
        return (Wording("Nothing was scored for this model."),)
    if any(m.best and m.left_out for m in metrics):
        n = len(tables.samples)
        more = f" {n} samples may be too few." if n < _FEW else ""
        return (
            Wording(
                "No method can be recommended: no metric counts in the mean rank, "
                f"as none finds most of the methods better than random.{more}"
            ),
        )
    return (Wording("No method can be recommended: no metric ranks at least two methods."),)


def _limits(tables: Tables, metrics: Sequence[MetricView], concordance: str) -> Iterator[Sentence]:
    """What the run cannot say."""
    run, n = tables.run, len(tables.samples)
    yield (
        Wording(
            f"How the methods do on another model or on other data: every score is of this model, on {_counted(n, 'sample')}. "
            "Intervals and tests are about the data that the samples were drawn from."
        ),
    )
    without = [m for m in metrics if m.best and m.left_out]
    for reason in dict.fromkeys(m.left_out for m in without):
        names = [m.name for m in without if m.left_out == reason]
        does = "does" if len(names) == 1 else "do"
        told = _about_several(reason) if len(names) > 1 else reason
        yield *_metric_names(names), Wording(f" {does} not count in the mean rank, as {told}.")
    if concordance and len(metrics) > 1:
        yield (
            Wording(
                f"Which metric is right: they agree with W = {concordance} (1 is full agreement, 0 is none), "
                "and a mean rank is a summary, not a test."
            ),
        )
    if run.get("profile_note") and not run.get("paper") and run.get("profile") != "default":
        yield (
            Wording(f"What full settings would give: profile {run.get('profile')} reduces them, see below under Run."),
        )
    skipped = {s.get("method") for s in run.get("skipped", ()) if s.get("method") and not s.get("metric")}
    if skipped:
        does = "does" if len(skipped) == 1 else "do"
        yield (Wording(f"Anything about {_counted(len(skipped), 'method')} that {does} not apply here, see Gaps."),)
    oracle = next((m["name"] for m in run.get("methods", ()) if m.get("id") == "oracle"), None)
    if oracle is not None and tables.board.filter(pl.col("method") == oracle).height:
        yield (
            Wording("How good a map can be: "),
            Wording(text=str(oracle), is_metric=True),
            Wording(
                ", the single-deletion oracle, is the best possible map only where units are deleted one at a time (sds); "
                "elsewhere it is a control like the others, no upper bound."
            ),
        )


def _about_several(reason: str) -> str:
    return reason.replace("it does not measure", "they do not measure")


def _counted(n: int, thing: str) -> str:
    return f"{n} {thing}{'' if n == 1 else 's'}"


def _listed(methods: Sequence[MethodView], word: str) -> Iterator[Wording]:
    for i, method in enumerate(methods):
        if i:
            yield Wording(f" {word} " if i == len(methods) - 1 else ", ")
        yield Wording(method=method)


def _metric_names(names: Sequence[str]) -> Iterator[Wording]:
    for i, name in enumerate(names):
        if i:
            yield Wording(" and " if i == len(names) - 1 else ", ")
        yield Wording(text=name, is_metric=True)


def rank_chart(
    totals: pl.DataFrame, views: Mapping[str, MethodView], costs: _Costs, group: Sequence[str]
) -> RankChart | None:
    """Mean ranks with the ranks that methods may have, cheapest method first.

    A circular score is not ranked, so it counts neither here nor in a mean rank.

    Args:
        totals: mean ranks, as `heatcheck.stats.overall` returns them.
        views: its methods by name.
        costs: what their maps cost.
        group: the recommended methods.
    """
    found = [r for r in totals.iter_rows(named=True) if r["mean_rank"] is not None]
    if len(found) < 2:
        return None
    worst = max(len(found), max(r["mean_high"] for r in found))
    axis = _rank_axis(worst)
    shown = sorted(found[:_ROWS], key=lambda r: (costs[r["method"]] or 0.0, r["mean_rank"]))
    heads = Counter(views[r["method"]].head for r in shown)
    rows, best = [], float("inf")
    for r in shown:
        front = r["mean_rank"] < best
        best = min(best, r["mean_rank"])
        low, high = r["mean_low"], r["mean_high"]
        rows.append(
            RankRow(
                method=views[r["method"]],
                brief=heads[views[r["method"]].head] == 1,
                mean_rank=f"{r['mean_rank']:.1f}",
                ranks=f"{low:.1f} to {high:.1f}" if high > low else "",
                left=axis.at(low),
                x=axis.at(r["mean_rank"]),
                right=axis.at(high),
                cost=costs.short(r["method"]),
                chosen=r["method"] in group,
                front=front,
            )
        )
    return RankChart(axis, tuple(rows), costs.unit, len(found) - len(shown))


def _rank_axis(worst: float) -> Axis:
    """Ranks from 1 to the last; at most seven of them are written."""
    low, high = 1 - 0.02 * worst, worst * 1.02
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 1000) if worst / s <= 7)
    places = range(1, int(worst) + 1, step) if step < 5 else (1, *range(step, int(worst) + 1, step))
    edge = Axis(low, high)
    return Axis(low, high, False, tuple((edge.at(k), str(k)) for k in places), 1)
