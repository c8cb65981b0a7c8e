"""The laboratory: a toy study, its result without faults, and runs of it in which something goes wrong."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import safe_open

from heatcheck.api.result import Result
from heatcheck.run.store import StoreWarning

from .toy import make_toy

MARK = "HEATCHECK_LABORATORY"
"""An environment variable by which processes of the laboratory are recognised."""
PAGE = "report.html"
HEARTBEAT = 0.5
"""Seconds between two touches of a lease, in the laboratory."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Args:
        code: its exit code; the negative number of a signal.
        seconds: how long it took.
        text: what it said.
        signalled: when it was sent its signal; None if it ended before.
        peak: the most memory that it held, in bytes.
        late: whether it did not end by itself.
    """

    code: int
    seconds: float
    text: str
    signalled: float | None = None
    peak: int = 0
    late: bool = False

    @property
    def told(self) -> str:
        """The last line that it said."""
        return (self.text.strip().splitlines() or [""])[-1][:200]


@dataclass
class Lab:
    """Runs of one toy study in forked children of a warm process.

    Args:
        folder: where everything happens.
        pictures: how many samples the study has.
    """

    folder: Path
    pictures: int = 16
    chunk: int = 4
    seconds: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)
    _count: int = 0
    _bits: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        server = [sys.executable, str(Path(__file__).with_name("server.py"))]
        self.mark = f"{os.getpid()}-{self.folder.name}"
        env = {**os.environ, MARK: self.mark, "OMP_NUM_THREADS": "1"}
        env["HEATCHECK_HEARTBEAT"] = str(HEARTBEAT)
        self._server = subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.study = make_toy(self.folder / "study", self.pictures)
        self.reference = self.folder / "reference"
        modules = self.folder / "modules.json"
        self.expect(self.run(self.reference, modules=str(modules), lean=False), 0)
        self._ask({"import": [name for name in json.loads(modules.read_text()) if "plugin" not in name]})
        self._ask({"warm": str(make_toy(self.folder / "warm", 8, plain=True))})
        timed = self.run(self.fresh())
        self.expect(timed, 0)
        self.seconds = timed.seconds

    def close(self) -> None:
        """End the warm process."""
        self._server.communicate(timeout=60)

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        found: list[dict[str, Any]] = json.loads(self._server.stdout.readline())["runs"]
        return found

    def fresh(self, of: Path | None = None) -> Path:
        """The name of a folder that is not there yet, or a copy of one; earlier ones are removed."""
        self._count += 1
        shutil.rmtree(self.folder / f"run{self._count - 3}", ignore_errors=True)
        made = self.folder / f"run{self._count}"
        return made if of is None else Path(shutil.copytree(of, made))

    def run(self, out: Path, *extra: str, **plan: Any) -> Outcome:
        """`heatcheck run` of the study into a folder; see `server.py` for what a plan may hold."""
        return self.together([self.plan(out, *extra, **plan)])[0]

    def plan(
        self, out: Path, *extra: str, study: Path | None = None, lean: bool = True, quiet: bool = True, **rest: Any
    ) -> dict[str, Any]:
        """A run as the server takes it.

        Args:
            out: its folder.
            extra: more options of the command line.
            study: another study file.
            lean: leave out the leaderboard and the page, which take most of the time of so small a run.
            quiet: leave out notes.
            rest: what goes wrong.
        """
        self._count += 1
        settings = {"heatcheck.run.execution.CHUNK": self.chunk, "heatcheck.run.store.MANY": 1}  # small, with an index
        options = ["--batch", "8", *(["-q"] if quiet else []), *([] if "-j" in extra else ["-j", "1"]), *extra]
        return {
            "args": ["run", str(study or self.study), "--out", str(out), *options],
            "log": str(self.folder / f"log{self._count % 50}"),
            "settings": {**settings, **rest.pop("settings", {})},
            "lean": lean,
            **rest,
        }

    def together(self, plans: list[dict[str, Any]], patience: float = 600.0) -> list[Outcome]:
        """Runs at the same time."""
        for plan in plans:
            Path(plan["log"]).unlink(missing_ok=True)
        found = self._ask({"runs": plans, "patience": patience})
        texts = [Path(plan["log"]).read_text(errors="replace") if Path(plan["log"]).exists() else "" for plan in plans]
        return [Outcome(text=text, **outcome) for outcome, text in zip(found, texts, strict=True)]

    def expect(self, outcome: Outcome, *codes: int) -> None:
        """Stop where the laboratory itself does not work."""
        if outcome.code not in codes:
            raise RuntimeError(f"exit code {outcome.code}: {outcome.text}")

    def bits(self, out: Path) -> list[tuple[Any, ...]]:
        """Every score of a folder with its status, in a fixed order."""
        return bits(Result.open(out))

    def problems(self, out: Path, reference: Path | None = None) -> str | None:
        """What is wrong with a folder after the last run into it; None if it is as if nothing had happened."""
        reference = reference or self.reference
        key = str(reference)
        if key not in self._bits:
            self._bits[key] = bits(Result.open(reference))
        with warnings.catch_warnings():
            warnings.simplefilter("error", StoreWarning)
            try:
                result = Result.open(out)
                found = bits(result)
                damage = result.check()
            except (Warning, Exception) as problem:
                return f"cannot be read: {problem}"
        if found != self._bits[key]:
            wrong = [(a, b) for a, b in zip(found, self._bits[key], strict=False) if a != b][:1]
            return f"other scores: {len(found)} rows instead of {len(self._bits[key])}, {wrong}"
        if damage:
            return f"check() says {damage}"
        if left := [str(path) for path in out.rglob("*") if path.name.startswith(".")]:
            return f"left behind: {left}"
        if not result.manifest["finished"]:
            return "run.json says that it is not finished"
        return None

    def resumed(self, out: Path, *extra: str, study: Path | None = None, reference: Path | None = None) -> str | None:
        """What is wrong after the same command was run again; None if all is well."""
        again = self.run(out, *extra, study=study)
        return f"run again: {again.code} {again.told}" if again.code else self.problems(out, reference)

    def orphans(self) -> list[int]:
        """Processes of this laboratory that nobody waits for."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                ours = f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            if ours and int(entry.name) != self._server.pid and parent not in (self._server.pid, os.getpid()):
                found.append(int(entry.name))
        return found


def bits(result: Result) -> list[tuple[Any, ...]]:
    """Every score with its status, in a fixed order."""
    columns = ("model", "sample", "target", "method", "metric")
    return result.scores().select(*columns, "score", "status").sort(*columns).rows()


def stored_cells(out: Path) -> list[tuple[Any, ...]]:
    """Every score that the chunks of a folder hold, as often as they hold it."""
    headers = []
    for path in (out / "chunks").glob("*.safetensors"):
        with safe_open(path, framework="pt") as chunk:
            headers.append(json.loads(chunk.metadata()["heatcheck"]))
    return [
        (group["model"], sample["digest"], score["method"], score["metric"])
        for header in headers
        for group in header["groups"]
        for score in group["scores"]
        for sample in group["samples"]
    ]


def files_of(out: Path) -> list[Path]:
    """The files that a run folder is read from; the page is made from them, and quarantine is out of use."""
    return sorted(p for p in out.rglob("*") if p.is_file() and p.name != PAGE and "quarantine" not in p.parts)


@dataclass
class Tally:
    """What was seen of one fault.

    Args:
        row: its number in the table.
        fault: what goes wrong.
        by: how it is made to.
        tried: how often.
        failures: what went wrong that should not have.
        notes: numbers worth telling.
        seconds: how long all of it took.
    """

    row: str
    fault: str
    by: str
    tried: int = 0
    failures: list[str] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def survived(self) -> int:
        """Trials that ended as they should."""
        return self.tried - len(self.failures)


Trials = Iterator[str | None]
"""Of each trial what went wrong, or None."""


def draw(chance: random.Random, many: list[Any], n: int) -> list[Any]:
    """Some of many in their order; all where there are no more."""
    return many if n >= len(many) else [many[i] for i in sorted(chance.sample(range(len(many)), n))]


def timed(tally: Tally, trials: Trials, shown: Any = None) -> Tally:
    """Count trials."""
    start = time.monotonic()
    for problem in trials:
        tally.tried += 1
        if problem is not None:
            tally.failures.append(problem)
        if shown is not None:
            shown(tally)
    tally.seconds = time.monotonic() - start
    return tally
