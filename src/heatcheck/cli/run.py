"""`run` and `plan`."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from heatcheck.cli import options as o
from heatcheck.cli.console import Json, Quiet, complain, console, emit, note, table
from heatcheck.cli.folder import Only

FAILED, INTERRUPTED = 3, 130
_SKIPPED = "skipped: "
_LONG = 160  # characters of a reason on the terminal
_REASONS = 5  # that are listed when nothing could be ranked


@o.with_study_options()
def run(
    *,
    options: o.StudyOptions,
    report: Annotated[
        Path | None, typer.Option("--report", help="Where the report goes; by default the run's folder.")
    ] = None,
    only: Only = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure methods on a model and data: a leaderboard here, a report beside the numbers.

    Without a study, models and data: EfficientNet-Lite0 on real pictures, profile quick, in runs/default.
    What is finished is on disk; run again to continue, or to add methods, metrics, samples, models or data to the folder:
    leaderboard and report show everything that was run into it.

    [bold]Examples[/bold]

    heatcheck run

    heatcheck run study.toml --budget 2h

    heatcheck run --models timm:resnet50 --data folder:val --samples 200 --workers 2

    heatcheck run --methods "saliency,smoothgrad(of=input_x_gradient),mine" --plugin mine.py
    """
    wanted = options.study()
    folder = wanted.out or Path("runs/default")
    with resumable(folder):
        from heatcheck.api.benchmark import Benchmark, NothingScoredError
        from heatcheck.run.runtime import Runtime

        note(f"{', '.join(wanted.models)} on {wanted.data}, profile {wanted.profile}, into {folder}", quiet=quiet)
        runtime = Runtime.of(wanted.runtime, progress="none" if quiet else "auto")
        bench = Benchmark.from_study(wanted)
        if bench.lacks_random():
            note("random is added as a control: nothing is ranked without it", quiet=quiet)
        nothing = None
        try:
            result = bench.run(folder, samples=wanted.samples, runtime=runtime)
        except NothingScoredError as problem:
            result, nothing = problem.result, str(problem)
        mine = result.last()
        result = mine if only else result
        page = result.report(report.expanduser() if report else folder / "report.html")
    failed = mine.failed
    for line in without_pass(result.facts.get("passes", {})):
        note(line, quiet=quiet)
    if json:
        rows, along = result.leaderboard().full.to_dicts(), result.along_training()
        emit(
            {
                "run": folder,
                "report": page,
                "failed": failed,
                "skipped": skips(result),
                "notes": result.lines,
                "leaderboard": rows,
                **({"along_training": [case.record() for case in along]} if along else {}),
            }
        )
    else:
        show_leaderboard(result)
        console().print(f"report: {page}", soft_wrap=True)
    if failed:
        note(failures(mine, folder, known=nothing is not None))
    reasons = reasons_unranked(mine)
    if nothing:
        complain(nothing)
    elif reasons:
        complain(f"Nothing could be ranked: {'; '.join(reasons)}")
    if failed or reasons:
        raise typer.Exit(FAILED)


@o.with_study_options()
def plan(
    *,
    options: o.StudyOptions,
    json: Json = False,
) -> None:
    """Say what a run would cost, before anything is spent: passes exactly, time, memory and disk roughly.

    [bold]Examples[/bold]

    heatcheck plan

    heatcheck plan study.toml --json

    heatcheck plan --models timm:resnet50 --data folder:val --methods rise --metrics sds,infidelity
    """
    wanted = options.study()
    from heatcheck.api.benchmark import Benchmark

    found = Benchmark.from_study(wanted).plan(samples=wanted.samples, out=wanted.out, runtime=wanted.runtime)
    if json:
        emit(found.record())
        return
    counts = ("forwards", "backwards")
    columns = ("model", "kind", "name", *counts)
    table(columns, ([f"{row[c]:,}" if c in counts else row[c] for c in columns] for row in found.rows), right=counts)
    for line in summary(found):
        typer.echo(line)


def summary(found: Any) -> Iterator[str]:
    """A plan's totals in words."""
    from heatcheck.core.progress import clock

    yield f"{counted(found.samples, 'sample')}, {found.reused:,} of them already done"
    half = 0 < found.stored < found.cells
    if half:
        yield f"{found.stored:,} of {counted(found.cells, 'cell')} are stored already and not computed again"
    passes = f"{found.forwards:,} forwards and {found.backwards:,} backwards"
    shared = f"{found.shared:,} are used by several methods or metrics"
    yield f"{'at most ' if half else ''}{passes}; {shared}"
    time = "not known" if found.seconds is None else f"about {clock(found.seconds)}"
    yield f"time {time}, memory about {memory(found)}, disk about {size(found.disk_bytes)}"
    yield from found.notes
    for skip in found.skipped:
        yield f"skipped on {skip['model']}: {skip['component']} ({skip['reason']})"


def skips(result: Any) -> list[dict[str, Any]]:
    """What was skipped: for a whole model, and then per metric, method and reason with the number of samples."""
    import polars as pl

    whole: list[dict[str, Any]] = list(result.facts["skipped"])
    known = {
        (skip.get("model"), component, skip["reason"])
        for skip in whole
        for component in (skip.get("method"), skip.get("metric"))
    }
    cells = (
        result.scores()
        .filter(pl.col("status").cast(pl.String).str.starts_with(_SKIPPED))
        .with_columns(reason=pl.col("status").cast(pl.String).str.strip_prefix(_SKIPPED))
        .group_by("model", "method", "metric", "reason", maintain_order=True)
        .agg(samples=pl.len())
    )
    return whole + [
        row
        for row in cells.iter_rows(named=True)
        if known.isdisjoint((row["model"], row[kind], row["reason"]) for kind in ("method", "metric"))
    ]


def failures(result: Any, folder: Path, *, known: bool = False) -> str:
    """How many cells failed, the most frequent reasons unless they are known, and the command that lists them all."""
    from heatcheck.api.result import cells_failed
    from heatcheck.data.base import causes

    why = [(_shortened(status), sample) for status, sample in result.lacking().select("status", "sample").iter_rows()]
    every = f"`heatcheck export {quote(str(folder))} --format csv --out -` lists them all"
    return f"{cells_failed(result.failed)}{'' if known else f': {causes(why)}'}; {every}"


def _shortened(status: str) -> str:
    reason = status.removeprefix("failed: ")
    return reason if len(reason) <= _LONG else f"{reason[:_LONG]}…"


def reasons_unranked(result: Any) -> list[str]:
    """Why no method has any score, most frequent reason first; empty if one has. Controls count if nothing else ran."""
    import polars as pl

    controls = [m["name"] for m in result.facts.get("methods", ()) if m["control"]]
    scores = result.scores()
    mine = scores.filter(~pl.col("method").cast(pl.String).is_in(controls))
    mine = scores if mine.is_empty() else mine
    if "ok" in mine["status"].unique():
        return []
    each = (
        mine.group_by("status", maintain_order=True)
        .agg(pl.len(), pl.col("metric").unique(maintain_order=True), pl.col("method").unique(maintain_order=True))
        .sort("len", descending=True, maintain_order=True)
    )
    reasons = [_reason(row, mine) for row in each.iter_rows(named=True)] or ["there are no scores"]
    more = len(reasons) - _REASONS
    return reasons if more <= 0 else [*reasons[:_REASONS], f"and {counted(more, 'more reason')}"]


def _reason(row: dict[str, Any], scores: Any) -> str:
    """A reason, with the methods and metrics that it concerns unless it concerns all."""
    named = [", ".join(row[kind]) for kind in ("method", "metric") if len(row[kind]) < scores[kind].n_unique()]
    reason = str(row["status"]).removeprefix(_SKIPPED)
    return f"{' under '.join(named)}: {reason}" if named else reason


def counted(n: int, noun: str) -> str:
    """`1 sample`, `1,200 samples`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def without_pass(passes: Mapping[str, float]) -> Iterator[str]:
    """The share of the time in which no pass was in flight, in words; nothing where an older run did not count it.

    >>> list(without_pass({"seconds": 6.0, "slope_seconds": 3.0, "elapsed": 10.0, "loading": 0.5}))
    ['no pass was in flight for 10 % of the time, 5 % went into reading samples']
    """
    if elapsed := passes.get("elapsed"):
        idle = max(0.0, 1 - (passes["seconds"] + passes["slope_seconds"]) / elapsed)
        read = passes.get("loading", 0.0) / elapsed
        yield f"no pass was in flight for {100 * idle:.0f} % of the time, {100 * read:.0f} % went into reading samples"


def memory(found: Any) -> str:
    """The most that each process of a plan holds, in words."""
    where = [
        f"{row['process']} on {row['device']}" if row["device"] != "cpu" else row["process"] for row in found.memory
    ]
    return ", ".join(f"{size(row['bytes'])} in {who}" for row, who in zip(found.memory, where, strict=True))


def size(count: float) -> str:
    """Bytes as people say them."""
    for factor, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= factor:
            return f"{count / factor:.1f} {name}"
    return f"{count:.0f} bytes"


def show_leaderboard(result: Any) -> None:
    """The leaderboard on stdout."""
    from heatcheck.report import terminal

    console().print(terminal.leaderboard(result))
    if cases := result.along_training():
        console().print(terminal.AlongTable(cases))


@contextlib.contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Interrupted inside, by Ctrl-C or SIGTERM, say what is saved and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        some = any(folder.rglob("*.safetensors"))
        saved = f"finished work is saved in {folder}" if some else "nothing was finished yet"
        note(f"\ninterrupted: {saved}; run the same command again to {'continue' if some else 'begin anew'}")
        raise typer.Exit(INTERRUPTED) from None
