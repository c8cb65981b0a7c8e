"""What stands below a leaderboard: what its marks mean, and why methods are not ranked or have no score."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from heatcheck import stats
from heatcheck.report.wording import effect, per_cent
from heatcheck.stats.power import needed, round_number, short

CIRCULAR = "·"
HEAVY_TAIL = "!"
PART = "*"
NO_MEAN_RANK = "No metric counts in the mean rank, so no method has one."


@dataclass(frozen=True)
class Note:
    """One line below a leaderboard.

    Args:
        text: what it says; it may hold foreign names.
        mark: the mark in the table that it explains, if any.
        finding: whether it says something about the result, not only about the table.
    """

    text: str
    mark: str = ""
    finding: bool = False


def notes(case: pl.DataFrame, facts: stats.Facts) -> Iterator[Note]:
    """What is to be said about the leaderboard of one model on one data set.

    Args:
        case: the rows of one model and data set of what `heatcheck.stats.leaderboard` returned.
        facts: directions, controls, and which metrics do not count in the mean rank.
    """
    yield from _remarks(case, facts)
    yield from _against_random(case, facts)
    totals = stats.overall(case, facts)
    yield from _left_out(case, totals, facts)
    yield from _unranked(case)
    part = totals.filter(pl.col("mean_rank").is_not_null() & (pl.col("metrics") < pl.col("of")))
    for k, of in part.select("metrics", "of").head(1).iter_rows():
        words = f"ranked under {k} of {of} metrics; mean ranks over different metrics are only roughly comparable"
        yield Note(words, f"({k}/{of})")
    yield from _detectable(case)
    yield from _effects(case)
    if case["circular"].any():
        yield Note("circular: the method makes the metric's own queries; not ranked", CIRCULAR)
    if not case.filter(pl.col("ranked") & (pl.col("n_ok") < pl.col("n"))).is_empty():
        yield Note("mean over part of the samples; the others have no score", PART)
    if case["heavy_tail"].any():
        yield Note("heavy tail: a few samples dominate the mean; the interval is likely to be too short", HEAVY_TAIL)


def _remarks(case: pl.DataFrame, facts: stats.Facts) -> Iterator[Note]:
    """What the names of metrics stand for on this model, and what their scores rest on."""
    for key in case.select("model", "data", "metric").unique(maintain_order=True).iter_rows():
        if key in facts.remarks:
            yield Note(facts.remarks[key], finding=True)


def _against_random(case: pl.DataFrame, facts: stats.Facts) -> Iterator[Note]:
    """Which methods are not better than random; or that there are too few samples to tell."""
    tests = stats.smallest_p_values(case, facts.random)
    few = {r["metric"]: r["samples"] for r in tests.iter_rows(named=True) if stats.too_few(r["samples"], r["tests"])}
    if few:
        under = "" if len(few) == len(tests) else f" under {', '.join(sorted(few))}"
        n = max(few.values())
        samples = f"{n} sample{'' if n == 1 else 's'}"
        yield Note(f"With {samples}, no method can be significantly better than random{under}; use more.", finding=True)
    metrics_of: dict[tuple[str, ...], list[str]] = {}
    for row in stats.not_better_than_random(case).iter_rows(named=True):
        if row["methods"] and row["metric"] not in few:
            metrics_of.setdefault(tuple(row["methods"]), []).append(row["metric"])
    for methods, metrics in metrics_of.items():
        yield Note(f"not better than random under {', '.join(metrics)}: {', '.join(methods)}", finding=True)


def _detectable(case: pl.DataFrame) -> Iterator[Note]:
    """What the samples can tell apart under each metric, and what a quarter of that would take."""
    for (n,), some in stats.detectable_on(case).group_by("samples", maintain_order=True):
        rows = some.rows(named=True)
        told = ", ".join(f"{short(row['difference'])} ({row['metric']})" for row in rows)
        needs = [needed(row, row["difference"] / 4) for row in rows if row["difference"]]
        price = f"; a quarter of that would need about {round_number(max(needs)):,}" if needs else ""
        yield Note(f"{n:,} samples tell apart means that differ by {told}{price}")


def _effects(case: pl.DataFrame) -> Iterator[Note]:
    """How far the best mean of every metric is from the next one, sample by sample."""
    told = []
    for (metric,), rows in case.filter("ranked").group_by("metric", maintain_order=True):
        best, *others = rows.select("method", "best_effect", "best_share").rows(named=True)
        if others and others[0]["best_effect"] is not None:
            other = others[0]
            won = f"{best['method']} before {other['method']}, better on {per_cent(1 - other['best_share'])} of the samples"
            told.append(f"{won}, effect {effect(-other['best_effect'])} ({metric})")
    if told:
        yield Note(f"best and next: {'; '.join(told)}")


def _left_out(case: pl.DataFrame, totals: pl.DataFrame, facts: stats.Facts) -> Iterator[Note]:
    """Which metrics do not count in the mean rank, and why; and that there is none where no metric counts."""
    without = stats.left_out(case, facts)
    for (reason,), group in without.group_by("reason", maintain_order=True):
        yield Note(f"not in the mean rank: {', '.join(group['metric'])} ({reason})", finding=True)
    if without.height and totals["mean_rank"].is_null().all():
        yield Note(NO_MEAN_RANK, finding=True)


def _unranked(case: pl.DataFrame) -> Iterator[Note]:
    """Why methods are not ranked, and which controls failed; methods with equal reasons share a line."""
    methods = case.filter(~pl.col("ranked") & ~pl.col("control") & ~pl.col("circular"))
    broken = pl.col("reason").str.contains("failed: |missing: ", literal=False)
    controls = case.filter(pl.col("control") & pl.col("mean").is_null() & broken)
    controls = controls.with_columns(pl.col("reason").str.strip_prefix("control; "))
    for rows, words in ((methods, "not ranked"), (controls, "no score")):
        by_method = rows.group_by("method", "reason").agg(pl.col("metric").sort())
        merged = by_method.group_by("metric", "reason").agg(pl.col("method").sort()).sort("method", "reason")
        for metrics, reason, names in merged.iter_rows():
            yield Note(f"{', '.join(names)} {words} under {', '.join(metrics)}: {reason}")
