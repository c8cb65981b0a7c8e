"""`race`: the best methods with as few passes as the samples allow."""

from pathlib import Path
from typing import Annotated, Any

import typer

from heatcheck.cli import options as o
from heatcheck.cli.console import Json, Quiet, emit, note, table
from heatcheck.cli.run import FAILED, resumable


@o.with_study_options(without=("shard",))
def race(
    *,
    options: o.StudyOptions,
    goal: Annotated[
        str, typer.Option("--goal", "-g", help="What is to be found: best, top=K (such as top=3) or order.")
    ] = "best",
    margin: Annotated[
        float | None,
        typer.Option(
            "--margin",
            help="Differences of scores that do not matter, such as 0.03; without one, equal methods need all samples.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the best methods, or their order, with as few passes as the samples allow.

    Runs the study on more and more samples, in one seeded order, and stops explaining a method as soon as its place is
    certain, whatever happens on the others; a metric whose goal is reached is asked no further. Verdicts are about the
    mean over all samples and hold with 95 % confidence, however often it was looked. A method is called best where that is
    certain, and chosen where only the margin settles it. Killed or interrupted, the same
    command goes on and ends with the same verdict; `heatcheck run` into the same folder measures the rest.

    [bold]Examples[/bold]

    heatcheck race --goal top=3 --margin 0.03 --metrics sds

    heatcheck race study.toml --goal best --json

    heatcheck race --models timm:resnet50 --data folder:val --metrics sds,morf --goal order --margin 0.02 --budget 2h
    """
    wanted = options.study()
    folder = wanted.out or Path("runs/default")
    with resumable(folder):
        from heatcheck.api.benchmark import Benchmark
        from heatcheck.run.runtime import Runtime

        note(f"{', '.join(wanted.models)} on {wanted.data}, profile {wanted.profile}, into {folder}", quiet=quiet)
        found = Benchmark.from_study(wanted).race(
            folder,
            goal=goal,
            margin=margin,
            samples=wanted.samples,
            runtime=Runtime.of(wanted.runtime, progress="none" if quiet else "auto"),
        )
    if json:
        emit(found.record())
    else:
        show(found)
    if not found.finished:
        note(f"the time is used up; run the same command again to go on from {folder}", quiet=quiet)
        raise typer.Exit(FAILED)


def show(found: Any) -> None:
    """Verdicts, tables and what they took, on stdout."""
    columns = ("method", "state", "decided at", "difference", "against", "95 % interval", "samples", "passes")
    for case in found.report.cases:
        typer.echo(case.verdict())
        table(columns, (_cells(row) for row in case.rows()), right=("decided at", "difference", "samples", "passes"))
        typer.echo("")
    typer.echo(found.report.footing())


def _cells(row: dict[str, Any]) -> list[Any]:
    if row["against"] is None:
        return [row["method"], row["state"], "–", "–", "–", "–", f"{row['samples']:,}", f"{row['passes']:,}"]
    ends = "–" if row["low"] == -float("inf") else f"{_signed(row['low'])} to {_signed(row['high'])}"
    return [
        row["method"],
        row["state"],
        "–" if row["decided"] is None else f"{row['decided']:,}",
        _signed(row["difference"]),
        row["against"],
        ends,
        f"{row['samples']:,}",
        f"{row['passes']:,}",
    ]


def _signed(value: float) -> str:
    """A difference with its sign; a minus is as long as a plus.

    >>> _signed(-0.0021), _signed(0.03)
    ('−0.002', '+0.030')
    """
    return f"{value:+.3f}".replace("-", "−")
