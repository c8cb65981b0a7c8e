"""How far a run is: a bar with the time left on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable
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


class TimeLeft:
    """How long the rest will take, once enough has been seen to say so.

    The first passes are the slowest: worker processes start, the model warms up, and a chunk begins with the methods that
    need gradients. So the clock starts at the first pass, and nothing is said before a share of the work is done, or
    minutes of a long run.

    Args:
        now: a clock, in seconds.
    """

    QUIET = 20.0
    """Seconds after the first pass before anything is said."""
    SHARE = 0.2
    """The share of the passes that must have been made by then."""
    LONG = 180.0
    """Seconds after which a run is long, and a tenth of that share is enough."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.begin(0)

    def begin(self, total: int, done: int = 0) -> None:
        """A stretch of `total` passes starts, of which some are done already."""
        self.total, self.done, self.made = total, done, 0
        self.first: float | None = None

    def advance(self, passes: int) -> None:
        """Some passes were made."""
        if self.first is None:
            self.first = self.now()  # how long these took is not known
            self.done += passes
        else:
            self.made += passes

    def seconds(self) -> float | None:
        """Seconds left; None as long as it is too early to say."""
        if self.first is None or not self.made:
            return None
        elapsed = self.now() - self.first
        left = max(0, self.total - self.done - self.made)
        share = self.SHARE if elapsed < self.LONG else self.SHARE / 10
        if elapsed < self.QUIET or self.made < share * (self.made + left):
            return None
        return left * elapsed / self.made


class Lines:
    """A line now and then, for logs: at most one every `every` seconds."""

    def __init__(
        self, stream: TextIO | None = None, every: float = 15.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.stream, self.every, self.now = stream or sys.stderr, every, now
        self.what, self.total, self.passes = "", 0, 0
        self.start = self.last = now()
        self.left = TimeLeft(now)

    def begin(self, what: str, passes: int, done: int = 0) -> None:
        self.what, self.total, self.passes = what, passes, done
        self.start = self.last = self.now()
        self.left.begin(passes, done)
        self.note(f"{what}: about {passes:,} passes")

    def advance(self, passes: int) -> None:
        self.passes += passes
        self.left.advance(passes)
        if self.now() - self.last < self.every:
            return
        left = self.left.seconds()
        if left is not None:
            self.last = self.now()
            self.note(f"{self.what}: {min(99, 100 * self.passes // self.total)} %, about {clock(left)} left")

    def describe(self, what: str) -> None:
        """Say anew what the stretch is about, from the next line on."""
        self.what = what

    def note(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def end(self) -> None:
        self.note(f"{self.what}: done in {clock(self.now() - self.start)}")

    def stop(self) -> None:
        """The stretch is broken off."""
        self.note(f"{self.what}: stopped after {clock(self.now() - self.start)}")


class Bar:
    """A live bar on the terminal's error stream."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress
        from rich.text import Text

        left = self.left = TimeLeft()

        class LeftColumn(ProgressColumn):
            """The time left, where it can be said."""

            def render(self, task: Any) -> Text:
                seconds = left.seconds()
                return Text("" if seconds is None else f"· about {clock(seconds)} left")

        self.bar = RichProgress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("passes ·"),
            TimeElapsedColumn(),
            LeftColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.task: Any = None

    def begin(self, what: str, passes: int, done: int = 0) -> None:
        self.left.begin(passes, done)
        self.bar.start()
        self.task = self.bar.add_task(what, total=max(passes, 1), completed=done)

    def advance(self, passes: int) -> None:
        if self.task is not None:
            self.left.advance(passes)
            self.bar.advance(self.task, passes)

    def describe(self, what: str) -> None:
        """Say anew what the stretch is about."""
        if self.task is not None:
            self.bar.update(self.task, description=what)

    def note(self, text: str) -> None:
        self.bar.console.print(text, highlight=False, markup=False)

    def end(self) -> None:
        if self.task is not None:
            self.bar.remove_task(self.task)
            self.task = None
        self.bar.stop()


def stop(shown: Progress) -> None:
    """End a stretch that is broken off; what shows progress need not tell that from the end."""
    getattr(shown, "stop", shown.end)()


def describe(shown: Progress, what: str) -> None:
    """Say anew what the stretch is about, such as how well it goes; what shows progress need not be able to."""
    getattr(shown, "describe", lambda _: None)(what)


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
