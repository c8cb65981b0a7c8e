"""`fills`: how far each fill takes a model from what it knows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from heatcheck.cli.console import Json, Quiet, console, emit, note, table
from heatcheck.cli.options import Plugins
from heatcheck.cli.run import FAILED
from heatcheck.core import catalogue
from heatcheck.core.plugins import load_plugin
from heatcheck.core.spec import SpecError, split

if TYPE_CHECKING:
    from heatcheck.api.fills import FillComparison

_NUMBERS = ("distance", "kept", "entropy", "confidence", "ms each")
_ENOUGH = 8  # with fewer samples the distance between two of them says little


def fills(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="The model, such as timm:resnet50; else an embedded one."),
    ] = None,
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="Data, such as folder:val; else embedded ones that it reads.")
    ] = None,
    fill: Annotated[
        list[str] | None, typer.Option("--fill", help="Fills, such as zero,blur; commas or repeated. All else.")
    ] = None,
    share: Annotated[str, typer.Option("--share", help="Shares of the units that are deleted.")] = "0.25,0.5,0.75",
    units: Annotated[str, typer.Option("--units", help="What is deleted; an 8 × 8 grid, or tokens.")] = "patch",
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, help="How many samples.")] = 8,
    seed: Annotated[int, typer.Option("--seed", help="Of every random stream.")] = 0,
    plugin: Plugins = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare fills: how far does deleting with each of them take a model from what it knows?

    The same random units are deleted with every fill. A fill that is near deletes what a unit says and leaves the rest
    of the input believable.

    [bold]Columns[/bold], each a mean over samples and shares

    distance: how far the model's last features move; 1 is as far as another sample, so take 8 samples or more.

    kept: samples whose predicted class stays. entropy: of the prediction, in nats. confidence: the largest probability.

    ms each: time to make one deleted input; from the shortest to the longest share's where several are asked. The exit code is 3 if a fill named by --fill cannot be used.

    [bold]Examples[/bold]

    heatcheck fills

    heatcheck fills timm:resnet50 folder:val --samples 32

    heatcheck fills efficientnet_lite0 images --fill zero,blur,linear --share 0.5 --json
    """
    for path in plugin or ():
        load_plugin(path)
    chosen = [spec for text in fill or () for spec in split(text)] or None
    for _, wrong in (problem for spec in chosen or () for problem in catalogue.problems("fill", spec)):
        raise SpecError(f"--fill: {wrong}")
    shares = _shares(share)

    from heatcheck.api.defaults import with_embedded
    from heatcheck.api.fills import compare_fills
    from heatcheck.data.load import load_data

    (model,), data = with_embedded(None if model is None else [model], data)
    compared = compare_fills(
        model,
        load_data(data, samples=samples, seed=seed),
        fills=chosen,
        shares=shares,
        units=units,
        seed=seed,
        tell=lambda name: note(f"{name} …", quiet=quiet or json or not console(stderr=True).is_terminal),
    )
    if json:
        emit({"model": model, "data": data, "units": units, "seed": seed, **compared.record()})
    else:
        _show(compared)
    if compared.samples < _ENOUGH:
        note(_few(compared.samples), quiet=quiet)
    if chosen and any(f.reason for f in compared.fills):
        raise typer.Exit(FAILED)


def _few(samples: int) -> str:
    if samples == 1:
        return f"warning: one sample has no other to be compared with, so there is no distance; take {_ENOUGH} or more"
    return f"warning: {samples} samples are few, and distances depend on which they are; take {_ENOUGH} or more"


def _shares(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise SpecError(f"--share: {text!r} is not a list of numbers such as 0.25,0.5") from None


def _show(compared: "FillComparison") -> None:
    clean = compared.clean
    rows: list[Sequence[str]] = [("nothing deleted", *_cells(0.0, 1.0, clean.entropy, clean.confidence), "")]
    for f in compared.fills:
        if not f.reason:
            means = (f.mean(what) for what in ("distance", "kept", "entropy", "confidence"))
            rows.append((f.fill, *_cells(*means), _milliseconds([e.seconds for e in f.effects])))
    table(("fill", *_NUMBERS), rows, right=_NUMBERS)
    place = "logits (no feature layer)" if compared.features == "logits" else f"the features of {compared.features}"
    typer.echo(f"{compared.samples} sample{'' if compared.samples == 1 else 's'}; distance in {place}")
    typer.echo(
        "distance: 1 is as far as another sample; kept: same class as before; entropy: of the prediction, in nats; "
        "confidence: largest probability"
    )
    for f in compared.fills:
        if f.reason:
            typer.echo(f.reason if f.reason.startswith(f.fill) else f"{f.fill}: {f.reason}")


def _milliseconds(seconds: Sequence[float]) -> str:
    """The time of the only share, or of the shortest and the longest."""
    shown = [f"{1000 * s:.1f}" for s in (min(seconds), max(seconds))]
    return shown[0] if len(seconds) == 1 else " to ".join(shown)


def _cells(distance: float, kept: float, entropy: float, confidence: float) -> tuple[str, str, str, str]:
    far = "–" if distance != distance else f"{distance:.3f}"
    return far, f"{100 * kept:.0f} %", f"{entropy:.3f}", f"{confidence:.3f}"
