"""The command line. Nothing heavy is imported before a command needs it."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from heatcheck.cli import (
    aligned,
    compare,
    explain,
    fills,
    folder,
    gate,
    listing,
    multiverse,
    race,
    rank,
    roar,
    run,
    train,
)
from heatcheck.cli.console import complain
from heatcheck.cli.folder import DAMAGED
from heatcheck.core.files import cannot, is_of_disk
from heatcheck.core.spec import SpecError

__all__ = ["app", "main"]


class CommandGroup(TyperGroup):
    """Turns mistakes of the user into a message and exit code 2, a disk that refuses into 4, an interrupt into 130."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            complain("interrupted")
            raise typer.Exit(run.INTERRUPTED) from stopped
        except Exception as problem:
            if isinstance(problem, typer.BadParameter):
                problem.message = problem.message.removeprefix("Value error, ")  # pydantic's, and no help to anybody
            if os.environ.get("HEATCHECK_DEBUG"):
                raise
            if isinstance(problem, OSError) and is_of_disk(problem):
                complain(str(cannot("read or write", Path(problem.filename or "a file"), problem)))
                raise typer.Exit(DAMAGED) from problem
            if not _is_user_error(problem):
                raise
            complain(str(problem))
            raise typer.Exit(2) from problem


def _is_user_error(problem: Exception) -> bool:
    """Whether it is one of heatcheck's own errors; `HeatcheckError` exists only once a command has imported torch."""
    types = sys.modules.get("heatcheck.core.types")
    return isinstance(problem, SpecError) or (types is not None and isinstance(problem, types.HeatcheckError))


app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"heatcheck {version('heatcheck')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Do your heatmaps tell the truth? Measure how faithful attribution methods are, and rank them.

    [bold]Start here[/bold]

    heatcheck run  [dim]· a real model on real pictures, ends with a leaderboard and a report[/dim]

    heatcheck list methods  [dim]· what there is; likewise metrics, models, data[/dim]

    heatcheck plan --models timm:resnet50 --data folder:val  [dim]· what it would cost[/dim]

    [bold]Exit codes[/bold]  0 all is well · 1 a gate is not passed · 2 wrong usage · 3 finished, but some samples failed or are missing · 4 a
    run's files are damaged, or the disk refuses · 130 interrupted
    """


app.command("run")(run.run)
app.command("plan")(run.plan)
app.command("race")(race.race)
app.command("multiverse")(multiverse.multiverse)
app.command("train")(train.train)
app.command("roar")(roar.roar)
app.command("aligned")(aligned.aligned)
app.command("compare")(compare.compare)
app.command("gate")(gate.gate)
app.command("explain")(explain.explain)
app.command("fills")(fills.fills)
app.command("list")(listing.show)
app.command("report")(folder.report)
app.command("doctor")(folder.doctor)
app.command("export")(folder.export)
app.command("merge")(folder.merge)
app.command("rank")(rank.rank)
app.command("compact")(folder.compact)


def _stop(*_: Any) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """The `heatcheck` program. SIGTERM interrupts it from its first moment to its last, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _stop)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # --threads sets those of the model; others only wait in circles
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app(prog_name="heatcheck")
    except KeyboardInterrupt:
        sys.exit(run.INTERRUPTED)
