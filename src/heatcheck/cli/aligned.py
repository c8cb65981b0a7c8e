"""`aligned`: what alignment with single deletions has done to a network."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heatcheck.cli.console import Json, Quiet, emit, note, table
from heatcheck.cli.options import Device, Preprocess
from heatcheck.core.spec import SpecError

if TYPE_CHECKING:
    from heatcheck.api.alignment import AlignmentComparison
    from heatcheck.stats.estimates import Estimate


def aligned(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The aligned network, such as trained:FOLDER.")],
    before: Annotated[
        str | None, typer.Option("--before", help="What alignment began with; the training's record says it.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="Pictures with labels; by default those that were held out.")
    ] = None,
    samples: Annotated[int | None, typer.Option("--samples", "-n", min=1, help="How many samples; all else.")] = None,
    other: Annotated[
        str | None, typer.Option("--other", help="A network of another architecture, as a yardstick.")
    ] = None,
    units: Annotated[
        str | None, typer.Option("--units", help="What is deleted; by default the training's grid.")
    ] = None,
    fill: Annotated[
        str | None, typer.Option("--fill", help="What replaces it; by default the training's fill.")
    ] = None,
    channels: Annotated[
        str, typer.Option("--channels", help="Which channels of the last feature map, such as 15,106,676.")
    ] = "",
    top: Annotated[int, typer.Option("--top", min=1, help="Pictures per channel.")] = 9,
    sheet: Annotated[
        Path | None, typer.Option("--sheet", help="Write what the channels respond to as a picture, .png or .jpg.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of samples, channels, fills and intervals.")] = 0,
    preprocess: Preprocess = None,
    device: Device = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Of the CPU.")] = 1,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare a network before and after alignment: is it as good, does it bear deletions, is it still the same?

    [bold]Rows[/bold]

    clean: predictions that are right. worst deletion: pictures that stay right whichever single cell is deleted.

    probability, Grad-CAM: mean absolute difference between both networks; beside it that to another architecture.

    channels: how many of the pictures that a channel responds to most are the same before and after.

    [bold]Examples[/bold]

    heatcheck aligned trained:runs/aligned

    heatcheck aligned trained:runs/aligned --other timm:vgg16 --samples 500 --sheet channels.png

    heatcheck aligned trained:runs/aligned --channels 15,106,676 --json
    """
    wanted = _numbers(channels)

    from heatcheck.api.alignment import CHANNELS, compare_alignment

    found = compare_alignment(
        before,
        model,
        data,
        samples=samples,
        other=other,
        units=units,
        fill=fill,
        channels=wanted or CHANNELS,
        top=top,
        preprocess=preprocess,
        seed=seed,
        device=device,
        threads=threads,
        progress="none" if quiet else "auto",
    )
    written = None if sheet is None else found.save_sheet(sheet)
    if json:
        emit({**found.record(), **({"sheet": written} if written else {})})
        return
    _show(found)
    for line in found.notes:
        note(line, quiet=quiet)
    if written:
        typer.echo(written)


def _numbers(written: str) -> list[int]:
    try:
        return [int(part) for part in written.split(",") if part.strip()]
    except ValueError:
        raise SpecError(f"--channels: {written!r} is not a list of numbers such as 15,106,676") from None


def _show(found: "AlignmentComparison") -> None:
    typer.echo(
        f"{found.before} → {found.after}, {found.samples:,} samples of {found.data}, "
        f"{found.units} with {found.fill}; 95 % intervals"
    )
    rows = [
        (name, _percent(both.before), _percent(both.after), _percent(both.change, sign=True))
        for name, both in (("clean", found.clean), ("worst deletion", found.worst))
    ]
    table(("accuracy", "before", "after", "change"), rows, right=("before", "after", "change"))
    beside = [f"to {found.other}"] if found.yardstick else []
    likeness = [found.likeness, *([found.yardstick] if found.yardstick else [])]
    distances = [("probability", *(_number(one.probability) for one in likeness))]
    distances += [("Grad-CAM", *(_number(one.grad_cam) for one in likeness if one.grad_cam))]
    columns = ("mean absolute difference", "before to after", *beside)
    table(columns, [row for row in distances if len(row) > 1], right=columns[1:])
    if found.channels:
        rows = [(str(c.number), f"{c.common * len(c.before):.0f} of {len(c.before)}") for c in found.channels]
        table((f"channel of {found.layer}", "top pictures in common"), rows)
        typer.echo(f"by chance, {100 * found.chance:.0f} % of them would be")


def _percent(e: "Estimate", *, sign: bool = False) -> str:
    form = "+.1f" if sign else ".1f"
    return f"{100 * e.value:{form}} % ({100 * e.low:{form}} to {100 * e.high:{form}})"


def _number(e: "Estimate") -> str:
    return f"{e.value:.3f} ({e.low:.3f} to {e.high:.3f})"
