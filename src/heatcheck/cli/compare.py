"""`compare`: a run beside a paper's scores and claims."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heatcheck.cli.console import Json, Quiet, emit, note, table
from heatcheck.cli.folder import Only, Run, opened
from heatcheck.core.spec import SpecError

if TYPE_CHECKING:
    from heatcheck.api.compare import PaperComparison


class TableFormat(StrEnum):
    """What tables are written as."""

    CSV = "csv"
    PARQUET = "parquet"
    MARKDOWN = "md"
    LATEX = "tex"


Tables = Annotated[
    Path | None, typer.Option("--tables", help="A folder that gets every table as a file.", show_default=False)
]
Format = Annotated[TableFormat, typer.Option("--format", "-f", help="Of the tables' files.")]
Figures = Annotated[
    Path | None,
    typer.Option("--figures", help="A folder that gets every figure as SVG and PNG.", show_default=False),
]


def compare(
    run: Run,
    paper: Annotated[
        str, typer.Argument(metavar="idsds|m4|metarank|perturbation", help="Which paper.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The HTML file; by default compare-PAPER.html in the run's folder."),
    ] = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            "--factor",
            help="What models differ in, for claims about depth, width, normalisation or bias: "
            "depth:MODEL=NUMBER,MODEL=NUMBER. Depths are read from names such as resnet50.",
            show_default=False,
        ),
    ] = None,
    others: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            help="A further run of other models, data or fills, on which claims are tested too; may be repeated.",
            show_default=False,
        ),
    ] = None,
    tables: Tables = None,
    format: Format = TableFormat.CSV,
    figures: Figures = None,
    only: Only = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Put a run beside a paper: its printed scores, and every claim with its verdict.

    A claim is held, not held, in want of more samples, or not testable with what was run, and then it is said why. Each
    is a number with its interval, over the run's own samples and networks: what does not hold here may hold there.

    [bold]Papers[/bold]

    idsds: Hesse et al. 2024. m4: Li et al. 2023. metarank: Duan et al. 2024, whose supplement prints claims and no scores.
    perturbation: Cohen et al. 2025, likewise.

    [bold]Examples[/bold]

    heatcheck run --profile idsds --data images --out runs/idsds

    heatcheck compare runs/idsds idsds

    heatcheck compare runs/idsds idsds --factor bias:resnet=1,xresnet=0 --tables tables --format tex --figures figures

    heatcheck compare runs/m4 m4 --json

    heatcheck compare runs/black perturbation --with runs/blur --with runs/inpaint

    heatcheck compare runs/resnet50 metarank --with runs/vit --with runs/squeezenet
    """
    factors = factors_of(factor or ())
    from heatcheck.api.compare import compare as put_beside
    from heatcheck.report.compare_figures import comparison_figures
    from heatcheck.report.compare_tables import marked_tables
    from heatcheck.report.files import write_all_tables, write_figures

    found = put_beside(opened(run, only=only), paper, factors=factors, others=[opened(other) for other in others or ()])
    page = found.report(out.expanduser() if out else run.expanduser() / f"compare-{paper}.html")
    written = write_all_tables(marked_tables(found), tables.expanduser(), [format]) if tables else []
    if figures:
        written += write_figures(comparison_figures(found).values(), figures.expanduser())
    if json:
        emit({**found.record(), "page": page, "files": written})
        return
    _show(found)
    for line in found.notes:
        note(line, quiet=quiet)
    for path in [*written, page]:
        typer.echo(path)


def factors_of(written: list[str] | tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Factors as they are written: `depth:resnet50=50,resnet101=101`.

    >>> factors_of(["bias:a=1,b=0"])
    {'bias': {'a': 1.0, 'b': 0.0}}
    """
    found: dict[str, dict[str, float]] = {}
    for text in written:
        name, colon, rest = text.partition(":")
        pairs = [part.rpartition("=") for part in rest.split(",") if part.strip()]
        try:
            values = {model.strip(): float(value) for model, sign, value in pairs if sign}
        except ValueError:
            values = {}
        if not colon or not name.strip() or len(values) != len(pairs) or not values:
            raise SpecError(f"--factor: {text!r} is not of the form depth:MODEL=NUMBER,MODEL=NUMBER")
        found.setdefault(name.strip(), {}).update(values)
    return found


def _show(found: "PaperComparison") -> None:
    from heatcheck.report.compare import answer, by_verdict, claim_words, correlation_words, groups
    from heatcheck.report.wording import plain

    typer.echo(f"{plain(found.run)} beside {found.title}")
    for group, row in zip(groups(found), found.correlations.iter_rows(named=True), strict=True):
        typer.echo(f"\n{plain(group.title)} beside {group.theirs}, {group.table}")
        rows = [
            (
                plain(r.name) + ("†" if r.settings else ""),
                r.ours,
                r.interval,
                r.theirs + ("*" if r.doubt else ""),
                r.rank,
                r.their_rank,
            )
            for r in group.rows
        ]
        heads = ("method", "ours", "interval", "theirs", "our rank", "their rank")
        table(heads, rows, right=heads[1:])
        typer.echo(correlation_words(row))
    if found.beside.height:
        typer.echo("* doubtful in print, † other settings than the paper's")
    typer.echo()
    verdicts = []
    for claim in by_verdict(found.claims):
        said = [part for part in (claim_words(claim)["number"], plain(claim["note"])) if part]
        verdicts.append((claim["verdict"], claim["says"], "; ".join(said)))
    table(("verdict", "claim", "here"), verdicts)
    typer.echo(answer(found.claims))
