"""A warm process that runs `heatcheck` in forked children, with faults: importing torch once makes a trial cost a second.

Reads requests as JSON lines, `{"runs": [RUN, …]}`, and answers each with `{"runs": [OUTCOME, …]}`. The runs of a request
go on at the same time. A RUN has `args` (of the command line), `log` (where its output goes) and, where wanted:

- `signal` with `after` (seconds) and `victims` (`self`, `one` of its own children, or `all` of them time and again);
- `limit`, bytes that a file may have; `wait`, seconds before it begins; `settings`, values of module attributes;
- `lean`: no leaderboard and no page; `fault`: see `Shim`; `modules`: where to write down what was imported.

A request may also name modules to `import`, and a study to `warm` up with: whatever a process does only once is then done.
Tables are never made here: polars would start threads, which do not live on in a forked child.
"""

import builtins
import contextlib
import errno
import importlib
import io
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

SYSTEM = ("open", "fsync", "replace", "rename", "link", "mkdir", "unlink", "listdir", "scandir", "utime")
WRITES = {"create", "write", "fsync", "replace", "rename", "link", "mkdir", "unlink", "utime"}
READS = {"open", "read", "listdir", "scandir", "map"}


class Shim:
    """Counts the calls by which this process touches files of a folder, and lets one of them go wrong.

    Args of the fault, as a dictionary:
        folder: whose files count.
        kind: `writes` or `reads`: which calls are counted.
        at: the number of the call that goes wrong, from 1; 0 for none.
        what: `before` or `after` (the process is killed there), `half` (half of what is written, then killed), or the name
            of an error.
        times: how many calls from there on raise the error.
        log: where all counted calls are written, with the bytes resident after each.
    """

    def __init__(self, fault: dict[str, Any]) -> None:
        self.folder = os.path.realpath(fault["folder"])
        self.counted = WRITES if fault.get("kind", "writes") == "writes" else READS
        self.at, self.what, self.times = fault.get("at", 0), fault.get("what", "before"), fault.get("times", 1)
        self.log, self.calls = fault.get("log"), list[tuple[str, str, int]]()

    def inside(self, path: Any) -> str | None:
        """The path below the folder, or None for one that is elsewhere."""
        try:
            name = Path(f"/proc/self/fd/{path}").readlink() if isinstance(path, int) else path
            real = os.path.normpath(Path.cwd() / os.fspath(name))
        except (OSError, TypeError, ValueError):
            return None
        real = os.fsdecode(real)
        return os.path.relpath(real, self.folder) if real == self.folder or real.startswith(self.folder + "/") else None

    def call(self, name: str, path: Any, do: Any, half: Any = None) -> Any:
        """Do a call, or let it go wrong."""
        where = self.inside(path)
        if where is None or name not in self.counted or (name == "unlink" and self.what == "ENOSPC"):
            return do()  # a full disk lets files be removed
        self.calls.append((name, where, resident() if self.log else 0))
        number = len(self.calls)
        if not self.at <= number < self.at + self.times or not self.at:
            return do()
        if self.what == "half" and half is not None:
            half()
        elif self.what == "after":
            with contextlib.suppress(OSError):
                do()
        elif self.what not in ("before", "half"):
            code = getattr(errno, self.what)
            raise OSError(code, os.strerror(code), str(path))
        os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Stand between the process and its files."""
        for name in SYSTEM:
            self._wrap(os, name)
        plain = io.open

        def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            writes = any(letter in mode for letter in "wxa+")
            opened = self.call("create" if writes else "open", file, lambda: plain(file, mode, *args, **kwargs))
            return opened if isinstance(file, int) or self.inside(file) is None else Handle(opened, file, self)

        io.open = builtins.open = opening  # type: ignore[assignment]
        for module in [
            m for name, m in sys.modules.items() if name.startswith("heatcheck") and hasattr(m, "safe_open")
        ]:
            self._wrap(module, "safe_open", "map")

    def _wrap(self, owner: Any, name: str, called: str | None = None) -> None:
        plain = getattr(owner, name)

        def wrapped(path: Any, *args: Any, **kwargs: Any) -> Any:
            return self.call(called or name, path, lambda: plain(path, *args, **kwargs))

        setattr(owner, name, wrapped)

    def end(self) -> None:
        """Write down what was counted."""
        if self.log:
            os.write(os.open(self.log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), json.dumps(self.calls).encode())


class Handle:
    """An open file whose reads and writes are counted."""

    def __init__(self, file: Any, path: Any, shim: Shim) -> None:
        self._file, self._path, self._shim = file, path, shim

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._file, name)
        if name not in ("write", "read", "readinto", "readline"):
            return value

        def counted(*args: Any) -> Any:
            def half() -> None:
                value(args[0][: len(args[0]) // 2])
                self._file.flush()

            return self._shim.call("write" if name == "write" else "read", self._path, lambda: value(*args), half)

        return counted

    def __enter__(self) -> "Handle":
        self._file.__enter__()
        return self

    def __exit__(self, *rest: Any) -> Any:
        return self._file.__exit__(*rest)

    def __iter__(self) -> Any:
        return iter(self._file)


def resident() -> int:
    """Bytes of memory that this process holds."""
    with os.fdopen(os.open("/proc/self/statm", os.O_RDONLY), "rb") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def child(run: dict[str, Any]) -> None:
    """One run of the command line, in a process of its own; never returns."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.default_int_handler if name == signal.SIGINT else signal.SIG_DFL)
    code, shim = 1, None
    try:
        out = os.open(run["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((nothing, 0), (out, 1), (out, 2)):
            os.dup2(old, new)
        time.sleep(run.get("wait", 0))
        if run.get("limit"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (run["limit"], run["limit"]))
        for place, value in run.get("settings", {}).items():
            module, _, name = place.rpartition(".")
            setattr(importlib.import_module(module), name, value)
        if run.get("lean"):
            import heatcheck.api.result
            import heatcheck.cli.run

            heatcheck.cli.run.show_leaderboard = lambda result: None
            heatcheck.api.result.Result.report = lambda self, path: path  # type: ignore[method-assign]
        if run.get("fault"):
            shim = Shim(run["fault"])
            shim.install()
        sys.argv = ["heatcheck", *run["args"]]
        from heatcheck.cli import main

        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if shim is not None:
            shim.end()
        if run.get("modules"):
            Path(run["modules"]).write_text(json.dumps(sorted(sys.modules)))
        os._exit(code)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def serve(runs: list[dict[str, Any]], patience: float) -> list[dict[str, Any]]:
    """Start runs, send their signals in time, wait for all."""
    started = time.monotonic()
    pids: dict[int, dict[str, Any]] = {}
    for run in runs:
        pid = os.fork()
        if pid == 0:
            child(run)
        pids[pid] = {**run, "outcome": {"code": None, "seconds": 0.0, "signalled": None}}
    living = set(pids)
    while living:
        now = time.monotonic() - started
        for pid in list(living):
            run, outcome = pids[pid], pids[pid]["outcome"]
            done, status, used = os.wait4(pid, os.WNOHANG)
            if done:
                living.discard(pid)
                outcome |= {"code": os.waitstatus_to_exitcode(status), "seconds": now, "peak": used.ru_maxrss * 1024}
            elif "signal" in run and outcome["signalled"] is None and now >= run["after"]:
                victims = {"self": [pid], "one": children(pid)[:1], "all": children(pid)}[run.get("victims", "self")]
                for victim in victims:
                    with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                        os.kill(victim, run["signal"])
                if victims and run.get("victims") != "all":
                    outcome["signalled"] = now
            elif now > patience:
                os.kill(pid, signal.SIGKILL)
                outcome["late"] = True
        time.sleep(0.002)
    return [run["outcome"] for run in pids.values()]


def warm_up(study: str) -> None:
    """Compute a study here, without making tables of it."""
    from heatcheck.api.benchmark import Benchmark
    from heatcheck.api.study import Study
    from heatcheck.run.execution import execute
    from heatcheck.run.runtime import Runtime

    setup = Benchmark.from_study(Study.load(study)).with_random().setup()
    execute(setup, Path(study).with_name("out"), Runtime(batch=8, progress="none"))


def main() -> None:
    """Serve until the input ends."""
    import heatcheck.cli  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        for name in request.get("import", ()):
            try:
                importlib.import_module(name)
            except Exception:  # parts of packages that are not meant to be imported alone
                continue
        if "warm" in request:
            warm_up(request["warm"])
        found = serve(request.get("runs", []), request.get("patience", 600.0))
        sys.stdout.write(json.dumps({"runs": found}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
