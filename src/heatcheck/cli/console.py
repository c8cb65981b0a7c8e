"""What commands say: results on stdout, everything else on stderr."""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

_WIDE = 200

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table; nothing else goes to stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes on stderr.")]


def console(*, stderr: bool = False) -> Any:
    """A rich console; wide where nobody's window limits it, so that no cell is cut."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else _WIDE, highlight=False, soft_wrap=stderr)


def complain(message: str) -> None:
    """An error, in red where there is colour."""
    from rich.text import Text

    console(stderr=True).print(Text("error: ", style="bold red") + Text(message, style="red"))


def note(message: str, *, quiet: bool = False) -> None:
    """Something worth a line beside the result."""
    if not quiet:
        typer.echo(message, err=True)


def emit(value: Any) -> None:
    """A result as JSON. What is not a finite number becomes null."""
    sys.stdout.write(json.dumps(plain(value), indent=1, allow_nan=False) + "\n")
    sys.stdout.flush()


def plain(value: Any) -> Any:
    """The same value in JSON's own terms."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str | int | float) or value is None:
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Iterable):
        return [plain(v) for v in value]
    return str(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()) -> None:
    """A plain table on stdout."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    console().print(made)
    sys.stdout.flush()
