"""How far a run is: a bar with the time left on a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any, Protocol, TextIO, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """What a run tells while it goes on."""

    def begin(self, what: str, passes: int, done: int = 0) -> None:
        """A stretch of work of about `passes` model passes starts."""

    def advance(self, passes: int) -> None:
        """Some passes were made."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def end(self) -> None:
        """The stretch is over."""


class Silent:
    """Says nothing."""

    def begin(self, what: str, passes: int, done: int = 0) -> None: ...

    def advance(self, passes: int) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


class Lines:
    """A line now and then, for logs: at most one every `every` seconds."""

    def __init__(self, stream: TextIO | None = None, every: float = 15.0) -> None:
        self.stream, self.every = stream or sys.stderr, every
        self.what, self.total, self.passes = "", 0, 0
        self.start = self.last = time.monotonic()

    def begin(self, what: str, passes: int, done: int = 0) -> None:
        self.what, self.total, self.passes = what, passes, 0
        self.start = self.last = time.monotonic()
        self.note(f"{what}: about {passes:,} passes")

    def advance(self, passes: int) -> None:
        self.passes += passes
        now = time.monotonic()
        if now - self.last >= self.every and self.passes * 50 >= self.total > 0:
            self.last = now
            left = (now - self.start) / self.passes * max(0, self.total - self.passes)
            self.note(f"{self.what}: {min(99, 100 * self.passes // self.total)} %, about {clock(left)} left")

    def note(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def end(self) -> None:
        self.note(f"{self.what}: done in {clock(time.monotonic() - self.start)}")


class Bar:
    """A live bar on the terminal's error stream."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.bar = RichProgress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("passes ·"),
            TimeElapsedColumn(),
            TextColumn("· left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.task: Any = None

    def begin(self, what: str, passes: int, done: int = 0) -> None:
        self.bar.start()
        self.task = self.bar.add_task(what, total=max(passes, 1), completed=done)

    def advance(self, passes: int) -> None:
        if self.task is not None:
            self.bar.advance(self.task, passes)

    def note(self, text: str) -> None:
        self.bar.console.print(text, highlight=False, markup=False)

    def end(self) -> None:
        if self.task is not None:
            self.bar.remove_task(self.task)
            self.task = None
        self.bar.stop()


def choose(how: "str | Progress") -> Progress:
    """`auto` (a bar on a terminal, lines elsewhere), `bar`, `lines`, `none`, or an object with the same methods."""
    if not isinstance(how, str):
        return how
    if how == "auto":
        how = "bar" if sys.stderr.isatty() else "lines"
    kinds: dict[str, type[Progress]] = {"bar": Bar, "lines": Lines, "none": Silent}
    return kinds[how]()


def clock(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
