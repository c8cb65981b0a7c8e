"""`gate`: may a changed model take the place of the one it came from?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from heatcheck.cli.console import Json, Quiet, emit, note, table
from heatcheck.core.files import write_atomically
from heatcheck.core.spec import SpecError

NOT_PASSED = 1


def gate(
    base: Annotated[
        str, typer.Argument(metavar="BASE", help="The run of the model that is there.", show_default=False)
    ],
    candidate: Annotated[
        str,
        typer.Argument(metavar="CANDIDATE", help="The run of the model that is to take its place.", show_default=False),
    ],
    metric: Annotated[list[str], typer.Option("--metric", "-m", help="A metric that both runs have; may be repeated.")],
    margin: Annotated[
        list[float],
        typer.Option("--margin", help="By how much the mean score may be worse, in the metric's unit; one for each."),
    ],
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", help="A method that must pass; by default all that both runs have.", show_default=False
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="One run with both: BASE and CANDIDATE are then models' names.", show_default=False),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Write JUnit XML to this file.", show_default=False)
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Write Markdown to this file.", show_default=False)
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check that a quantised, pruned, distilled or fine-tuned model is explained as faithfully as before.

    Scores are compared sample by sample. A method passes where the whole 95 % interval of the difference, and a test, say
    that the candidate's mean is not worse by the margin or more: few samples never pass. Both runs must have the same data,
    methods and metrics; what differs is refused.

    [bold]Exit codes[/bold]  0 not inferior · 1 inferior, or undecided: the output says which · 2 wrong usage

    [bold]Examples[/bold]

    heatcheck gate runs/full runs/int8 --metric sds --margin 0.05

    heatcheck gate full int8 --run runs/both --metric sds --margin 0.05 --method grad_cam --junit gate.xml

    heatcheck gate runs/full runs/pruned -m sds --margin 0.05 -m morf --margin 0.02 --markdown comment.md
    """
    margins = margins_of(metric, margin)
    from heatcheck.api.gate import gate as judge
    from heatcheck.report.gate import COLUMNS, about, cells, gate_markdown, sentence
    from heatcheck.report.gate import junit as as_junit

    sides = (base, candidate) if run else (Path(base).expanduser(), Path(candidate).expanduser())
    found = judge(*sides, margins=margins, methods=method, run=run.expanduser() if run else None)
    for path, text in ((junit, as_junit), (markdown, gate_markdown)):
        if path:
            write_atomically(path.expanduser(), text(found).encode())
    if json:
        emit(found.record())
    else:
        typer.echo(f"{found.candidate} beside {found.base}, on {found.data}")
        table(COLUMNS, cells(found), right=("base", "candidate", "margin", "n", "p"))
        typer.echo(sentence(found))
        for line in (about(), *found.notes):
            note(line, quiet=quiet)
    if not found.passed:
        raise typer.Exit(NOT_PASSED)


def margins_of(metrics: Sequence[str], margins: Sequence[float]) -> dict[str, float]:
    """A margin for each metric.

    >>> margins_of(["sds", "morf"], [0.05, 0.02])
    {'sds': 0.05, 'morf': 0.02}
    """
    if len(metrics) != len(margins):
        raise SpecError(
            f"{_counted(metrics, 'metric')} ({', '.join(metrics)}) and {_counted(margins, 'margin')}: give each metric its own --margin, "
            f"in the metric's unit"
        )
    if len(set(metrics)) < len(metrics):
        raise SpecError(f"--metric: {', '.join(metrics)}: each metric once")
    return dict(zip(metrics, margins, strict=True))


def _counted(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"
