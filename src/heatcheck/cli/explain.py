"""`explain`."""

import base64
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heatcheck.cli.console import Json, Quiet, console, emit, note
from heatcheck.cli.options import Device, Output, Plugins, Precision, Preprocess
from heatcheck.cli.run import counted
from heatcheck.core import catalogue
from heatcheck.core.files import printable
from heatcheck.core.plugins import load_plugin, with_plugin_hint
from heatcheck.core.progress import Progress, Silent, choose, clock
from heatcheck.core.spec import SpecError, split
from heatcheck.models.catalogue import default_model, modality_of_model
from heatcheck.models.targets import makes_number, target_of_explanation

if TYPE_CHECKING:
    from heatcheck.api.several import Explainer
    from heatcheck.data.base import Dataset
    from heatcheck.methods.base import Method
    from heatcheck.report import TextReading

EDGE, CAPTION, GAP = 224, 18, 6
COLUMNS = 8
"""Pictures in a line of the sheet."""
PICTURES = Path("explained.png")
"""Where explained pictures go if nobody says."""
SHEETS = (".png", ".html")
"""What explained texts can be saved as."""
WORDS = "orange words speak for the class, blue ones against it; in a pipe, their values are in brackets"
UNTOLD = 50
"""Passes that need no announcement on any machine; their time is not even measured."""
A_MOMENT = 3.0
"""Seconds that need no announcement."""


@dataclass(frozen=True)
class Explanation:
    """One input under one method."""

    input: str
    method: str
    target: int
    target_name: str
    shown: Any
    values: Any


def explain(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT", help="Pictures, or texts in quotes; - reads a text from stdin."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The model; an embedded one if not given.", show_default=False)
    ] = None,
    method: Annotated[str, typer.Option("--method", help="A method, several with commas, or all.")] = "saliency",
    text: Annotated[list[str] | None, typer.Option("--text", "-t", help="A text to explain.")] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="A class's number, column:N or FILE.py:F; by default the predicted class."),
    ] = None,
    preprocess: Preprocess = None,
    output: Output = None,
    device: Device = None,
    precision: Precision = None,
    profile: Annotated[
        str, typer.Option("--profile", "-p", help="Where parameters come from; quick is fast.")
    ] = "default",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A PNG; of texts, also an HTML page. Pictures need one: explained.png."),
    ] = None,
    plugin: Plugins = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Explain pictures or texts: pictures as a PNG with one row each, texts as coloured words here, or in a file.

    Warm parts speak for the class, cold ones against it.

    [bold]Examples[/bold]

    heatcheck explain cat.jpg --method integrated_gradients

    heatcheck explain cat.jpg --method all --profile quick --out sheet.png

    heatcheck explain cat.jpg dog.jpg --model timm:resnet50 --method grad_cam,lrp

    heatcheck explain "a dull and tedious film" --method lime

    heatcheck explain dull --model hf:my-bert

    echo "what a delight" | heatcheck explain - --method occlusion
    """
    from heatcheck.core.types import Modality
    from heatcheck.profiles import load_profile
    from heatcheck.run.runtime import device_name

    for path in plugin or ():
        load_plugin(path)
    surely = [*(text or ()), *([sys.stdin.read().strip()] if "-" in (inputs or ()) else [])]
    pictures, texts = sorted_out([name for name in inputs or () if name != "-"], model, bool(surely))
    texts += surely
    if bool(pictures) == bool(texts):
        raise SpecError("explain pictures or texts, one kind at a time: INPUT…, --text '…', or - for stdin")
    check_pictures(pictures)
    if texts and out is not None and out.suffix.lower() not in SHEETS:
        raise SpecError(f"--out: texts become a file that ends in {' or '.join(SHEETS)}, not {str(out)!r}")
    everything = method.strip() == "all"
    methods = [e.id for e in catalogue.methods_by_family()] if everything else split(method)
    settings = load_profile(profile, Modality.TEXT if texts else Modality.IMAGE)
    for _, wrong in (problem for name in methods for problem in catalogue.problems("method", settings.spec(name))):
        unknown = wrong.startswith("no method is called") and not plugin
        raise SpecError(f"--method: {with_plugin_hint(wrong) if unknown else wrong}")
    specs = {name: settings.apply("method", name) for name in methods}
    items: list[str | Path] = [*texts, *(Path(p).expanduser() for p in pictures)]
    read_as = {"preprocess": preprocess, "output": output, "device": device_name(device), "precision": precision}
    found = explained(model, items, specs, target_of_explanation(target), read_as, everything, quiet)
    shown: dict[str, list[Explanation]] = {}
    for e in found:
        shown.setdefault(e.shown["kind"], []).append(e)
    for kind, some in shown.items():
        DRAWINGS[kind].draw(some, out, json)
        if not json and DRAWINGS[kind].legend:
            note(DRAWINGS[kind].legend, quiet=quiet)
    if json:
        emit([DRAWINGS[e.shown["kind"]].record(e, out) for e in found])


def sorted_out(names: Sequence[str], model: str | None, with_texts: bool) -> tuple[list[str], list[str]]:
    """Which inputs are pictures, and which are texts.

    Those of a text model are texts unless there are such files; so are words beside a text, where none of the inputs is
    a file or ends as a picture's.

    Args:
        names: the inputs.
        model: the model's spec, if one is named.
        with_texts: whether other inputs are surely texts.
    """
    texts = [name for name in names if is_written_out(name)]
    unsure = [name for name in names if name not in texts and not _is_file(name)]
    if unsure and model is not None and modality_of_model(model) == "text":
        texts = [name for name in names if not _is_file(name)]
    elif (texts or with_texts) and not any(_is_file(name) or _ends_as_picture(name) for name in names):
        texts = list(names)
    return [name for name in names if name not in texts], texts


def check_pictures(names: Sequence[str]) -> None:
    """Refuse inputs that are no pictures.

    Raises:
        SpecError: there is no such file, or its name is no picture's; says how a text is explained.
    """
    for name in names:
        if not _is_file(name):
            raise SpecError(f"there is no picture {name!r}; to explain it as a text, write --text {name!r}")
        if not _ends_as_picture(name):
            raise SpecError(
                f"{name!r} does not end as a picture does, such as in .jpg; to explain the text in it, write "
                f"heatcheck explain - < {quote(name)}"
            )


def _is_file(name: str) -> bool:
    try:
        return Path(name).expanduser().is_file()
    except (OSError, ValueError):  # too long, or with a NUL
        return False


def _ends_as_picture(name: str) -> bool:
    from heatcheck.data.images import SUFFIXES

    return Path(name).suffix.lower() in SUFFIXES


def is_written_out(name: str) -> bool:
    """Whether an input is a text and not a picture's path: it has several words, and neither is a file nor ends as one.

    An empty one is a text as well.

    >>> is_written_out("a dull film"), is_written_out("my cat.jpg"), is_written_out("dull"), is_written_out("")
    (True, False, False, True)
    """
    if not name.strip():
        return True
    if len(name.split()) < 2:
        return False
    from heatcheck.data.places import kind_of

    return kind_of(Path(name)) is None and not _ends_as_picture(name)


def explained(
    model: str | None,
    items: Sequence[str | Path],
    methods: Mapping[str, str],
    target: str | int | None,
    read_as: Mapping[str, str | None],
    lenient: bool,
    quiet: bool,
) -> list[Explanation]:
    """Every input under every method, by its name and spec; with `lenient`, what does not apply is noted and left out.

    Pictures are given by their paths, texts as they are. Without a model, the embedded one of the inputs' modality explains them.
    """
    from heatcheck.api.benchmark import as_component
    from heatcheck.api.several import Explainer
    from heatcheck.core.types import NotApplicable
    from heatcheck.training.defaults import load_model

    samples = [(str(item), _alone(item, f"text {i}")) for i, item in enumerate(items, 1)]
    number = target if makes_number(target) else None
    loaded = load_model(model or default_model(samples[0][1].modality), **read_as, target=number)
    if read_as["device"] == "auto":
        note(f"the model computes on {loaded.device}", quiet=quiet)
    if unread := loaded.unread(sample for _, data in samples for sample in data):
        note(unread, quiet=quiet)
    target = None if number else target
    threads = os.cpu_count() or 1
    explainers = [Explainer(loaded, data, target=target, threads=threads) for _, data in samples]
    components = {name: as_component("method", spec) for name, spec in methods.items()}
    found = []
    with announced(explainers, components, quiet) as progress:
        for name, component in components.items():
            try:
                for (item, data), explainer in zip(samples, explainers, strict=True):
                    heat = explainer.explain(component)
                    shown = loaded.display(data[0], loaded.encode(data[0]))
                    aim = int(heat.target[0]) if heat.target is not None else -1
                    values = heat.values[0].float().cpu().numpy()
                    found.append(Explanation(item, name, aim, loaded.class_name(aim), shown, values))
            except NotApplicable as reason:
                if not lenient:
                    message = str(reason)
                    known = message.startswith(name.partition("(")[0])
                    raise NotApplicable(message if known else f"{name} {message}") from None
                if not quiet:
                    progress.note(f"skipped {name}: {reason}")
    for chosen in loaded.notes:
        note(chosen, quiet=quiet)
    order = [item for item, _ in samples]
    return sorted(found, key=lambda e: order.index(e.input))


def _alone(item: str | Path, name: str) -> "Dataset":
    """One input as a data set; a text is one also where it reads like a file's name."""
    from heatcheck.core.types import Modality
    from heatcheck.data.base import Dataset
    from heatcheck.data.load import load_data
    from heatcheck.data.texts import text_sample

    if isinstance(item, Path):
        return load_data([item])
    return Dataset(name, Modality.TEXT, (text_sample(name, item),))


@contextmanager
def announced(explainers: "Sequence[Explainer]", methods: "Mapping[str, Method]", quiet: bool) -> Iterator[Progress]:
    """Say what all this will take, and show how far it is; work of a moment is done in silence."""
    passes = [explainer.passes(methods) for explainer in explainers]
    forwards, backwards = sum(f for f, _ in passes), sum(b for _, b in passes)
    seconds = explainers[0].seconds((forwards, backwards)) if forwards > UNTOLD and not quiet else 0.0
    progress = choose("auto") if seconds > A_MOMENT else PlainNotes()
    for explainer in explainers:
        explainer.report_to(progress.advance)
    if seconds > A_MOMENT:
        progress.note(
            f"{counted(len(methods), 'method')} on {counted(len(explainers), 'input')}: about {forwards + backwards:,} passes, "
            f"about {clock(seconds)}"
        )
    progress.begin("explain", forwards + backwards)
    try:
        yield progress
    finally:
        progress.end()


class PlainNotes(Silent):
    """Shows notes and no progress."""

    def note(self, text: str) -> None:
        note(text, quiet=False)


@dataclass(frozen=True)
class Drawing:
    """How explanations of one kind of input are shown.

    Args:
        draw: shows them; with the file that was asked for, and whether stdout is kept for JSON.
        record: one of them as JSON, with that file.
        legend: what is said below.
    """

    draw: Callable[[Sequence[Explanation], Path | None, bool], None]
    record: Callable[[Explanation, Path | None], dict[str, Any]]
    legend: str = ""


def save_sheet(found: Sequence[Explanation], out: Path | None, json: bool) -> None:
    """Save pictures and their maps as one PNG and print its path."""
    path = out or PICTURES
    sheet(found).save(path.expanduser(), "PNG")
    if not json:
        typer.echo(path)


def show_texts(found: Sequence[Explanation], out: Path | None, json: bool) -> None:
    """Print texts as coloured words, a line per sentence; or save them as a picture or a page."""
    from heatcheck.report import text_sheet, text_sheet_page

    rows: dict[str, list[Explanation]] = {}
    for e in found:
        rows.setdefault(e.input, []).append(e)
    if out is not None:
        readings = [[reading_of(e) for e in row] for row in rows.values()]
        if out.suffix.lower() == ".png":
            text_sheet(readings, note).save(out.expanduser(), "PNG")
        else:
            out.expanduser().write_text(text_sheet_page(readings), encoding="utf-8")
        if not json:
            typer.echo(out)
    elif not json:
        for e in found:
            console().print(coloured(e, colours=console().is_terminal), soft_wrap=True)


def reading_of(e: Explanation) -> "TextReading":
    """An explained text as the report shows it."""
    from heatcheck.report import TextReading
    from heatcheck.report.texts import Text, Values

    text = Text.of(e.shown)
    return TextReading(e.method, e.target_name, text, Values.of(e.values, text))


def picture_record(e: Explanation, out: Path | None) -> dict[str, Any]:
    """A picture's map by its shape and file."""
    return {**_facts(e), "shape": list(e.values.shape), "out": out or PICTURES}


def text_record(e: Explanation, out: Path | None) -> dict[str, Any]:
    """A text's tokens with their values."""
    return {
        **_facts(e),
        "tokens": list(e.shown["tokens"]),
        "values": e.values.tolist(),
        **({"out": out} if out else {}),
    }


def _facts(e: Explanation) -> dict[str, Any]:
    return {"input": e.input, "method": e.method, "target": e.target, "target_name": e.target_name}


DRAWINGS = {"image": Drawing(save_sheet, picture_record), "text": Drawing(show_texts, text_record, WORDS)}
"""By the kind of display that a model gives of its input."""


def sheet(found: Sequence[Explanation]) -> Any:
    """All explanations as one picture: for each input, itself and its maps with captions, in lines of equal length."""
    import numpy as np
    from PIL import Image, ImageDraw

    from heatcheck.report.exhibits import overlay, picture

    rows: dict[str, list[Explanation]] = {}
    for e in found:
        rows.setdefault(e.input, []).append(e)
    tiles: list[list[tuple[Any, str]]] = []
    for name, row in rows.items():
        rgb = np.asarray(row[0].shown["rgb"], dtype=np.uint8)
        drawn = [(picture(rgb, EDGE), f"{printable(Path(name).name)}: {row[0].target_name}")]
        drawn += [(overlay(rgb, e.values, EDGE), e.method) for e in row]
        tiles += [drawn[i : i + COLUMNS] for i in range(0, len(drawn), COLUMNS)]
    wide, high = EDGE + GAP, EDGE + CAPTION + GAP
    page = Image.new("RGB", (max(map(len, tiles), default=1) * wide - GAP, max(1, len(tiles)) * high - GAP), "white")
    pen = ImageDraw.Draw(page)
    for y, line in enumerate(tiles):
        for x, (exhibit, caption) in enumerate(line):
            tile = Image.open(io.BytesIO(base64.b64decode(exhibit["src"].partition(",")[2])))
            page.paste(tile, (x * wide, y * high))
            pen.text((x * wide + 2, y * high + EDGE + 3), _fitting(pen, caption), fill="black")
    return page


def _fitting(pen: Any, caption: str) -> str:
    while pen.textlength(caption) > EDGE and len(caption) > 1:
        caption = caption.removesuffix("…")[:-1] + "…"
    return caption


def coloured(e: Explanation, *, colours: bool = True) -> Any:
    """A text's tokens, a line per sentence: warm where they speak for the class, cold where they speak against it.

    Without colours, each such token is followed by its value.
    """
    from rich.text import Text

    from heatcheck.report import shade

    reading = reading_of(e)
    shown = Text.assemble((f"{e.method} → {e.target_name}", "bold"), (f"  full colour {reading.full}", "dim"))
    values = iter(reading.told)
    for line in (line for block in reading.blocks for line in block.lines):
        shown.append("\n ")
        begun = False
        for gap, piece, css in (token for _, run in line for token in run):
            told = next(values)
            if css == "sp":
                continue
            shown.append(" " if gap or not begun else "")
            begun = True
            level = int(css[1:]) if css else 0
            ink = "black on rgb({},{},{})".format(*shade(level)) if level else ""
            shown.append(printable(piece), style=ink)
            if level and not colours:
                shown.append(f"[{told.rpartition(': ')[2]}]")
    return shown
