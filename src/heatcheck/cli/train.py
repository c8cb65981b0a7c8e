"""`train`: a model by a recipe."""

from pathlib import Path
from typing import Annotated

import typer

from heatcheck.cli.console import Json, emit, note
from heatcheck.cli.options import Device, Preprocess
from heatcheck.cli.run import resumable, size
from heatcheck.core.progress import clock


def train(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="align, birds, plain, roar, synthetic or text.")],
    model: Annotated[str, typer.Option("--model", "-m", help="The model that learns, such as timm:resnet50.")],
    data: Annotated[
        str, typer.Option("--data", "-d", help="What it learns from; a source's training split is taken by itself.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Its folder, by default one in runs/; a training there is continued.",
            show_default=False,
        ),
    ] = None,
    held_out: Annotated[
        str | None, typer.Option("--held-out", help="What it is judged by; else another split, or a fifth of the data.")
    ] = None,
    variant: Annotated[str, typer.Option("--variant", "-v", help="Of the recipe, such as small.")] = "",
    change: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="A setting of the recipe, such as lr=0.01; repeatable.")
    ] = None,
    keep: Annotated[
        int, typer.Option("--keep", min=0, help="How many checkpoints to keep along the way, evenly spread.")
    ] = 0,
    preprocess: Preprocess = None,
    device: Device = None,
    threads: Annotated[int | None, typer.Option("--threads", help="Of the CPU; one per processor by default.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Tell passes, time and disk, and train nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    json: Json = False,
) -> None:
    """Train a model by a recipe; its folder then is a model, trained:FOLDER.

    A training that was interrupted goes on when the same command is run again, to the same bits. Several GPUs:
    accelerate launch -m heatcheck train …

    [bold]Examples[/bold]

    heatcheck train align --model efficientnet_lite0 --data imagenet:val --variant small --out runs/aligned

    heatcheck train plain --model small:resnet20 --data cifar10:DIR --variant small --out runs/r20 --keep 10

    heatcheck train text --model ./my-bert --data eraser:movies

    heatcheck train align --model timm:resnet50 --data imagenet:DIR --set fill=blur --set grid=8 --plan

    heatcheck list recipes
    """
    from heatcheck.api.train import plan_of, prepared
    from heatcheck.models.training_record import told
    from heatcheck.training.loop import fit, resumed
    from heatcheck.training.recipe import parse_changes

    folder = out.expanduser() if out is not None else usual_folder(recipe, variant, model, data)
    if not plan:
        note(f"{model} on {data}, recipe {recipe}, into {folder}", quiet=quiet)
    ready = prepared(
        recipe, variant, parse_changes(change or ()), model, data, held_out, preprocess, device or "auto", threads
    )
    known = ready.record if plan and out is None else resumed(ready.record, folder)
    if plan or not (quiet or known.finished or known.accuracy):
        found = plan_of(ready, keep)
        if plan and json:
            emit(found.record())
            return
        note(
            f"{found.samples:,} samples × {found.epochs} epochs in {found.steps:,} steps: {found.forwards:,} forwards and "
            f"{found.backwards:,} backwards, about {clock(found.seconds or 0)}, disk about {size(found.disk_bytes)}"
        )
        if plan:
            return
    with resumable(folder):
        record = fit(ready.task, ready.network, ready.record, folder, keep=keep, progress="none" if quiet else "auto")
    if json:
        emit({"model": f"trained:{folder}", **record.model_dump(mode="json")})
        return
    for line in told(record.model_dump()):
        typer.echo(line)
    typer.echo(f"model: trained:{folder}")


def usual_folder(recipe: str, variant: str, model: str, data: str) -> Path:
    """Where a training goes if nobody says.

    >>> str(usual_folder("text", "embedded", "./my-bert", "eraser:movies"))
    'runs/text-embedded-my-bert-eraser-movies'
    """
    from heatcheck.api.study import folder_name

    return Path("runs", folder_name([*(part for part in (recipe, variant) if part), model], data))
