"""`roar`: networks retrained without the most relevant pixels, or with them alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heatcheck.cli.console import Json, Quiet, emit, note, table
from heatcheck.cli.options import Device, Plugins, Preprocess
from heatcheck.cli.run import counted, resumable, show_leaderboard, size
from heatcheck.core.progress import clock
from heatcheck.core.spec import SpecError, split

if TYPE_CHECKING:
    from heatcheck.api.retraining_result import RetrainingPlan
    from heatcheck.api.roar import RetrainingStudy


def roar(
    model: Annotated[str, typer.Option("--model", "-m", help="The model that is explained.")],
    data: Annotated[str, typer.Option("--data", "-d", help="Its pictures, such as cifar10:DIR or imagenet:DIR.")],
    methods: Annotated[
        list[str], typer.Option("--methods", help="Methods, such as 'saliency,grad_cam'; random and sobel are added.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The study's folder; a study there is continued.")],
    levels: Annotated[str, typer.Option("--levels", help="Percents removed, or kept.")] = "10,30,50,70,90",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Trainings of each method and level.")] = 5,
    keep_top: Annotated[bool, typer.Option("--keep-top", help="KAR: keep the top and replace the rest.")] = False,
    both: Annotated[bool, typer.Option("--both", help="ROAR and KAR.")] = False,
    network: Annotated[
        str | None, typer.Option("--network", help="What is retrained, such as small:resnet8; else the model's own.")
    ] = None,
    held_out: Annotated[
        str | None, typer.Option("--held-out", help="What networks are judged by; else another split, or a fifth.")
    ] = None,
    variant: Annotated[str, typer.Option("--variant", "-v", help="Of the recipe roar, such as small.")] = "",
    change: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", help="A setting of the recipe, such as epochs=3 or samples=2000; repeatable."),
    ] = None,
    scalars: Annotated[
        bool, typer.Option("--scalars", help="Rank each channel of a pixel by itself, as the authors' code does.")
    ] = False,
    target: Annotated[
        str | None, typer.Option("--target", help="What is explained: predicted, label or a class.")
    ] = None,
    profile: Annotated[str, typer.Option("--profile", "-p", help="Where parameters of methods come from.")] = "default",
    workers: Annotated[
        int | None, typer.Option("--workers", "-j", min=1, help="Networks trained at a time; one per core by default.")
    ] = None,
    preprocess: Preprocess = None,
    device: Device = None,
    plugins: Plugins = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Tell trainings, passes, time and disk, and spend nothing.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Retrain networks without the most relevant pixels (ROAR), or with them alone (KAR): does accuracy follow the maps?

    A network per method, level and seed, each from scratch, on pictures to learn from and to be judged by that were
    changed alike; random and sobel beside the methods, and networks that saw the masks alone. Interrupted or killed, the
    same command goes on where it was.

    [bold]Examples[/bold]

    heatcheck roar --model timm:resnet50 --data imagenet:DIR --methods saliency --out runs/roar --plan

    heatcheck roar --model small:resnet20@W.safetensors --data cifar10:DIR --methods saliency,grad_cam --network
    small:resnet8 --variant small --levels 10,50,90 --seeds 2 --both --out runs/roar
    """
    from heatcheck.api.roar import PROTOCOLS, RetrainingStudy
    from heatcheck.training.loop import chosen_threads
    from heatcheck.training.recipe import parse_changes

    if both and keep_top:
        raise SpecError("--both and --keep-top: leave one of them out")
    study = RetrainingStudy(
        model=model,
        data=data,
        methods=[part for text in methods for part in split(text)],
        out=out.expanduser(),
        levels=percents(levels),
        seeds=seeds,
        protocols=PROTOCOLS if both else ("kar",) if keep_top else ("roar",),
        network=network,
        held_out=held_out,
        variant=variant,
        settings=parse_changes(change or ()),
        granularity="scalar" if scalars else "pixel",
        target=int(target) if target is not None and target.isdigit() else target,
        profile=profile,
        preprocess=preprocess,
        plugins=tuple(plugins or ()),
        workers=workers or chosen_threads(),
        device=device or "auto",
    )
    if plan or not (quiet or begun(study)):
        found = study.plan()
        if plan and json:
            emit(found.record())
            return
        for line in price(found, study):
            (typer.echo if plan else note)(line)
        if plan:
            return
    with resumable(study.out):
        done = study.run("none" if quiet else "auto")
        page = done.result.report(study.out / "report.html")
    if json:
        rows = done.accuracies().to_dicts()
        emit(
            {
                "run": study.out,
                "report": page,
                "accuracies": rows,
                "leaderboard": done.result.leaderboard().full.to_dicts(),
            }
        )
        return
    show_accuracies(done)
    show_leaderboard(done.result)
    typer.echo(f"report: {page}")


def percents(text: str) -> tuple[float, ...]:
    """Levels as users write them.

    >>> percents("10, 50,90")
    (10.0, 50.0, 90.0)
    """
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SpecError(f"--levels {text!r} should be percents with commas between them, such as 10,50,90") from None


def begun(study: "RetrainingStudy") -> bool:
    """Whether a study is under way in its folder, so that its price has been told."""
    return (study.out / "run.json").exists()


def price(found: "RetrainingPlan", study: "RetrainingStudy") -> list[str]:
    """What a study costs, in words."""
    each = f"{found.samples:,} pictures × {found.epochs} epochs, judged by {found.judged:,}, about {clock(found.training_seconds)}"
    return [
        f"maps of {found.samples + found.judged:,} pictures by {len(study.contestants)} methods: "
        f"{found.map_forwards:,} forwards and {found.map_backwards:,} backwards",
        f"{counted(found.trainings, 'training')}, {found.done:,} of them done; each {each}",
        f"{found.forwards:,} forwards and {found.backwards:,} backwards of the networks that are trained",
        f"time about {clock(found.seconds)}, {study.workers} at a time; disk about {size(found.disk_bytes)}",
    ]


def show_accuracies(done: Any) -> None:
    """Mean accuracies by protocol, method and level."""
    found = done.accuracies()
    whole = found.filter(found["protocol"] == "unmodified")["accuracy"].item()
    levels = done.study["levels"]
    rows = []
    for (protocol, method), part in found.filter(found["protocol"] != "unmodified").group_by(
        "protocol", "method", maintain_order=True
    ):
        at = {row["level"]: row for row in part.iter_rows(named=True)}
        rows.append([protocol, method, *(told(at[level]) for level in levels)])
    note(f"whole pictures: {whole:.1%}; the most frequent class: {done.study['chance']:.1%}")
    table(
        ("protocol", "method", *(f"{level:g} %" for level in levels)), rows, right=[f"{level:g} %" for level in levels]
    )


def told(row: dict[str, Any]) -> str:
    """An accuracy with its interval.

    >>> told({"accuracy": 0.5, "low": 0.48, "high": 0.52}), told({"accuracy": 0.5, "low": None, "high": None})
    ('50.0 ±2.0', '50.0')
    """
    half = "" if row["low"] is None else f" ±{50 * (row['high'] - row['low']):.1f}"
    return f"{100 * row['accuracy']:.1f}{half}"
