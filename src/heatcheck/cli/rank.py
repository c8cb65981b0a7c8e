"""`rank`: one ranking from many runs."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heatcheck.cli.console import Json, Quiet, console, emit, note
from heatcheck.cli.folder import FAILED, Only
from heatcheck.core.spec import split

if TYPE_CHECKING:
    from heatcheck.api.rank import Ranked


class RankBy(StrEnum):
    """What cases may be divided by."""

    MODEL = "model"
    DATA = "data"
    METRIC = "metric"
    PROTOCOL = "protocol"
    CHECKPOINT = "checkpoint"


def rank(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs' folders: the same methods and metrics.")],
    by: Annotated[
        RankBy | None,
        typer.Option("--by", help="One ranking for each of these; a protocol is a metric with its parameters."),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metrics", help="Metrics that make cases; all that measure faithfulness if not given."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for page, JSON, tables and figures.")] = Path(
        "runs/rank"
    ),
    only: Only = False,
    seed: Annotated[int, typer.Option("--seed", help="Of the resamples.")] = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Rank methods over many cases (Meta-Rank): every model, on every data set, under every metric of the runs.

    κ says how much more often than not a method beats another one, with intervals over models and data sets and over
    samples; beside it Bradley–Terry, mean ranks, Borda's and Kemeny's rankings, how far the cases agree, and which of them
    contradict the rest. The folder gets a page, JSON, tables (CSV, Parquet, Markdown, LaTeX) and figures (SVG, PNG).

    [bold]Examples[/bold]

    heatcheck rank runs/lite0 runs/resnet50 runs/squeezenet

    heatcheck rank runs/* --by protocol --metrics morf,lerf --out runs/meta

    heatcheck rank runs/along --by checkpoint

    heatcheck rank runs/* --json | jq '.methods[] | [.method, .kappa]'
    """
    from heatcheck.api.rank import rank as rank_runs
    from heatcheck.report.ranking_tables import counted

    wanted = [name for text in metrics or () for name in split(text)] or None
    note(f"reading {len(runs)} run{'' if len(runs) == 1 else 's'} …", quiet=quiet)
    found = rank_runs(runs, by=by and by.value, metrics=wanted, only=only, seed=seed)
    for line in found.runs.notes:
        note(line, quiet=quiet)
    note(f"writing {counted(len(found.table.cases), 'case')}, tables and figures into {out} …", quiet=quiet)
    page = found.save(out.expanduser())
    if json:
        emit({"page": page, **found.record()})
    else:
        show(found)
        console().print(f"page: {page}", soft_wrap=True)
    if found.runs.missing:
        have = "cell has" if found.runs.missing == 1 else "cells have"
        note(
            f"{found.runs.missing:,} {have} no score because something failed or is missing; `heatcheck doctor` names them"
        )
        raise typer.Exit(FAILED)


def show(found: "Ranked") -> None:
    """The ranking in the terminal."""
    from rich.text import Text

    from heatcheck.report.terminal import AlongTable
    from heatcheck.report.wording import plain

    view, out = found.view, console()
    out.print(Text(plain("".join(part.text for part in view.verdict))))
    if view.random_told:
        out.print(Text(plain(view.random_told)))
    out.print(_board(view))
    if view.tied_over:
        out.print(Text(f"† may be as good as the best over other {view.tied_over}", style="dim"))
    for name, value, ends in view.chips:
        out.print(Text(f"{name} {value}" + (f"  ({ends} over {view.chips_over})" if ends else ""), style="dim"))
    for case, tau, verdict in view.contrary:
        out.print(Text(plain(f"{case}: τ with the others {tau}, {verdict}")))
    for method, where in view.faster:
        out.print(Text(plain(f"{method} falls faster when the least relevant go first: {where}")))
    if view.factor and found.by:
        out.print(Text(plain(f"by {view.factor}: {view.factor_told}")))
    if found.along_training:
        out.print(AlongTable(found.along_training))
    for methods, cases, reason in view.missing:
        out.print(Text(plain(f"not ranked: {methods} in {cases}: {reason}"), style="dim"))
    for case, reason in view.left_out:
        out.print(Text(plain(f"no case: {case}: {reason}"), style="dim"))


def _board(view: Any) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from heatcheck.report.wording import plain

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("method", overflow="fold")
    over = "models and data" if view.rows[0].reach else "samples"
    heads = ["κ", f"95 % interval over {over}", "Bradley–Terry", "mean rank", "won"]
    heads += ["not better than random"] if view.random_told else []
    for head in heads:
        table.add_column(head, justify="right", no_wrap=head != heads[-1])
    for row in view.rows:
        mark = " †" if row.tied else ""
        cases = f" ({row.cases})" if row.cases else ""
        cells = [row.kappa + mark, row.ends, row.strength, row.mean_rank, row.won]
        cells += [row.random or "–"] if view.random_told else []
        table.add_row(Text(plain(row.method) + cases), *cells, style="bold" if row.place == 1 else "")
    return table
