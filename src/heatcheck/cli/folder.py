"""`report`, `doctor`, `export`, `merge` and `compact`: commands on runs that are there."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from heatcheck.cli.console import Json, Quiet, complain, emit, note, table
from heatcheck.cli.options import Output, Plugins, Preprocess
from heatcheck.core.files import FORMULA, written_atomically
from heatcheck.core.spec import SpecError

FAILED, DAMAGED = 3, 4
_ROWS = 1 << 17  # of a table, written at a time

Only = Annotated[
    bool, typer.Option("--only", help="The last study alone, not the union of all that were run into the folder.")
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.", show_default=False)]


class Format(StrEnum):
    """What `export` writes."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    MD = "md"
    TEX = "tex"


class Content(StrEnum):
    """The tables of a run."""

    SCORES = "scores"
    LEADERBOARD = "leaderboard"
    MEANS = "means"


def opened(run: Path, *, only: bool = False, verify: bool = False) -> Any:
    """A run's result."""
    from heatcheck.api.result import Result

    return Result.open(run.expanduser(), only=only, verify=verify)


def end(result: Any, run: Path) -> None:
    """Say what was written: of which studies, and what it lacks; where it lacks something, end with an exit code."""
    for line in result.lines:
        note(line)
    if result.missing:
        have = "cell has" if result.missing == 1 else "cells have"
        cells = f"{result.missing:,} of {result.scores().height:,} {have} no score: not computed, or lost"
        complain(f"{cells}. Run the same study into {run} again to fill in what is missing; the rest is kept.")
    if result.store.damaged or result.store.foreign:
        complain(f"{run} has damaged files; `heatcheck doctor {run}` names them")
        raise typer.Exit(DAMAGED)
    if result.missing:
        raise typer.Exit(FAILED)


def report(
    run: Run,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The HTML file; by default in the run's folder.")
    ] = None,
    only: Only = False,
) -> None:
    """Write a run's report again: one HTML file that needs no network.

    [bold]Examples[/bold]

    heatcheck report runs/default

    heatcheck report runs/default --out ~/report.html
    """
    result = opened(run, only=only)
    typer.echo(result.report(out.expanduser() if out else run.expanduser() / "report.html"))
    end(result, run)


def doctor(
    what: Annotated[str, typer.Argument(metavar="MODEL|RUN", help="A model's spec or folder, or a run's folder.")],
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="Data to try a model on; by default the embedded ones.")
    ] = None,
    preprocess: Preprocess = None,
    output: Output = None,
    plugin: Plugins = None,
    json: Json = False,
) -> None:
    """Say what will not work, and why, before it is run; or whether a run's files are whole.

    [bold]Examples[/bold]

    heatcheck doctor timm:resnet50

    heatcheck doctor runs/default
    """
    from heatcheck.core.plugins import load_plugin
    from heatcheck.models.catalogue import full_spec

    for file in plugin or ():
        load_plugin(file)
    path = Path(what).expanduser()
    if path.is_dir() and full_spec(what) == what:
        _doctor_run(path, json)
    else:
        _doctor_model(what, data, preprocess, output, json)


def _doctor_run(path: Path, json: bool) -> None:
    result = opened(path, verify=True)
    problems, remarks = result.check(), result.remarks()
    if json:
        emit({"run": path, "problems": problems, "remarks": remarks, "failed": result.failed})
    else:
        if problems:
            table(("problem",), ([problem] for problem in problems))
        if problems == result.incomplete():
            typer.echo(f"{path}: all files are whole")
        for remark in remarks:
            typer.echo(f"note: {remark}")
    if problems:
        raise typer.Exit(FAILED if problems == result.incomplete() else DAMAGED)


def _doctor_model(spec: str, data: str | None, preprocess: str | None, output: str | None, json: bool) -> None:
    from dataclasses import asdict

    from heatcheck.api.benchmark import demand_samples
    from heatcheck.api.doctor import examine
    from heatcheck.data.catalogue import default_data
    from heatcheck.data.load import load_data
    from heatcheck.models.training_record import told
    from heatcheck.run.rehearsal import applicable
    from heatcheck.training.defaults import load_model

    model = load_model(spec, preprocess=preprocess, output=output)
    samples = load_data(data or default_data(model.domain.modality))
    demand_samples(samples)
    x = model.encode(next(sample for sample in samples if not sample.problem))
    findings = [asdict(finding) for finding in examine(model, x)]
    broken = any(finding["severity"] == "error" for finding in findings)
    methods = {} if broken else applicable(model, x)
    training = told(model.trained) if model.trained else []
    if json:
        verdicts = [{"id": id, "applies": reason is None, "reason": reason} for id, reason in methods.items()]
        emit({"findings": findings, "methods": verdicts, **({"training": training} if training else {})})
    else:
        for line in training:
            typer.echo(line)
        columns = ("severity", "what", "where", "consequence", "remedy")
        if findings:
            table(columns, ([finding[c] for c in columns] for finding in findings))
        refused = {id: reason for id, reason in methods.items() if reason is not None}
        if refused:
            table(("does not apply", "because"), ([id, reason] for id, reason in refused.items()))
        if methods:
            typer.echo(f"{spec}: {len(methods) - len(refused)} of {len(methods)} methods apply")
    if broken:
        raise typer.Exit(FAILED)


def export(
    run: Run,
    table: Annotated[
        Content,
        typer.Option(
            "--table",
            "-t",
            help="scores: a row per model, sample, method and metric; leaderboard: all statistics, a row per model, method and "
            "metric; means: a row per method and a column per metric, for papers.",
        ),
    ] = Content.SCORES,
    format: Annotated[
        Format | None,
        typer.Option(
            "--format", "-f", help="Parquet, unless --out says otherwise; md and tex are for the short tables."
        ),
    ] = None,
    out: Annotated[str | None, typer.Option("--out", "-o", help="A file, or - for stdout.", show_default=False)] = None,
    only: Only = False,
    json: Json = False,
) -> None:
    """Write a run's scores, its leaderboard or a paper's table of means.

    [bold]Examples[/bold]

    heatcheck export runs/default --format csv

    heatcheck export runs/default --format csv --out - | head

    heatcheck export runs/default --out scores.parquet

    heatcheck export runs/default --table means --out table.tex
    """
    if json:
        format, out = Format.JSON, out or "-"
    kind = format or _by_suffix(out) or Format.PARQUET
    if table == Content.SCORES and kind in (Format.MD, Format.TEX):
        raise SpecError(f"{kind}: a row per sample is too much to read; choose --table means or --table leaderboard")
    result = opened(run, only=only)

    def write(file: BinaryIO) -> None:
        if table == Content.SCORES:
            write_table(result.scores(), kind, file)
        else:
            write_marked(result.leaderboard().table(table), kind, file)

    if out == "-":
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        path = Path(out).expanduser() if out else run.expanduser() / f"{table}.{kind}"
        with written_atomically(path) as file:
            write(file)
        note(f"{kind}: {path.stat().st_size:,} bytes")
        typer.echo(path)
    end(result, run)


def merge(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs' folders, shards or whole studies.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder that gets everything; a new one.")],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Join runs that were made on different machines: the union of what they have computed.

    The runs themselves stay as they are; files are linked where that is possible, else copied. Where two runs have
    different values of one cell, the first run's is kept and both are told (exit code 3, as where cells are missing).
    Damaged files are left out (exit code 4). Killed half-way, the same command goes on.

    [bold]Examples[/bold]

    heatcheck merge runs/shard-* --out runs/all

    heatcheck merge laptop/run cluster/run --out both
    """
    from dataclasses import asdict

    from heatcheck.api.merge import merge as join

    found = join(runs, out, tell=lambda line: note(line, quiet=quiet))
    if json:
        emit({**asdict(found), "examples": [conflict._asdict() for conflict in found.examples]})
    else:
        for line in found.lines():
            typer.echo(line)
    if found.damaged:
        raise typer.Exit(DAMAGED)
    if found.conflicts or found.maps or found.missing:
        raise typer.Exit(FAILED)


def compact(run: Run, json: Json = False) -> None:
    """Put a run's many small files together into few large ones; nothing in them changes.

    A run of more than 4,000 samples does this by itself when it ends. Others may read the folder meanwhile, and a run may
    go on in it. Stopped halfway, it has lost nothing: call it again.

    [bold]Examples[/bold]

    heatcheck compact runs/default
    """
    from heatcheck.run.compaction import compact as put_together
    from heatcheck.run.store import Store

    folder = run.expanduser()
    Store.open(folder)  # refuses what is no run
    done = put_together(Store.open(folder, create=True))
    if json:
        emit({"run": run, "before": done.before, "after": done.after, "disputed": done.disputed})
        return
    typer.echo(f"{run}: {done.before:,} chunk files before, {done.after:,} now")
    if done.disputed:
        note(f"{done.disputed:,} of them hold cells that differ from one another, and stay as they are")


def _by_suffix(out: str | None) -> Format | None:
    suffix = Path(out or "").suffix.removeprefix(".").lower()
    if not suffix:
        return None
    if suffix not in list(Format):
        raise SpecError(f"--out: cannot tell the format of {out!r}; add --format {', '.join(Format)}")
    return Format(suffix)


def write_marked(table: Any, kind: Format, file: BinaryIO) -> None:
    """Write a short table, with its marks where people read it."""
    from heatcheck.report.tables import FORMATS

    if kind == Format.JSON:
        _write_json(table.frame, file)
    else:
        file.write(FORMATS[kind](table))


def write_table(frame: Any, kind: Format, file: BinaryIO) -> None:
    """Write a table part by part, so that no second copy is held; what is not a number is null, names are strings.

    In CSV, texts that a spreadsheet would take for a formula begin with `'`; numbers stay as they are.
    """
    {Format.PARQUET: _write_parquet, Format.CSV: _write_csv, Format.JSON: _write_json}[kind](frame, file)


def _plain(frame: Any) -> Any:
    import polars as pl

    return frame.with_columns(
        pl.col(pl.Float64, pl.Float32).fill_nan(None), pl.col(pl.Categorical, pl.Enum).cast(pl.String)
    )


def _write_parquet(frame: Any, file: BinaryIO) -> None:
    _plain(frame.lazy()).sink_parquet(file)


def _write_csv(frame: Any, file: BinaryIO) -> None:
    import polars as pl

    text = pl.col(pl.String)
    neutral = pl.when(text.str.contains(FORMULA)).then("'" + text).otherwise(text).name.keep()
    file.write(_plain(frame.clear()).write_csv().encode())
    for part in frame.iter_slices(
        _ROWS
    ):  # not by polars: where a pipe's reader goes away, its error says so in words only
        file.write(_plain(part).with_columns(neutral).write_csv(include_header=False).encode())


def _write_json(frame: Any, file: BinaryIO) -> None:
    before = "["
    for part in frame.iter_slices(_ROWS):
        file.write((before + _plain(part).write_json().removeprefix("[").removesuffix("]")).encode())
        before = ","
    file.write(b"]\n" if before == "," else b"[]\n")
