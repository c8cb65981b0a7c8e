"""Who is computing what, where several processes work on one run folder.

Each process has a lease in `claims/`, a small file that it touches while it lives; a claim is a file named after what is
claimed, with the name of its owner's lease in it, made so that only one process can. A claim saves others the work and
decides nothing: results are the same without any. Nobody's clock is read: a lease is stale when it has not changed for two
heartbeats of whoever looks, or at once where its process is known to be gone. Design: design/sharing.md.
"""

import contextlib
import json
import os
import re
import secrets
import socket
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

HEARTBEAT = float(os.environ.get("HEATCHECK_HEARTBEAT", "10"))
"""Seconds between two touches of a lease; all processes on a folder need about the same."""
_LEASE = ".lease"
_MOVED = ".gone-"
_TOKEN = re.compile(r"[0-9a-f]{16}")
_MOST = 4096  # bytes of a lease that are read
_POLL = (0.02, 1.0)  # seconds between two looks at a claim that is waited for, at first and at last
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe must not block


class Turn(Enum):
    """What became of an attempt to claim something."""

    MINE = "mine"
    TAKEN_OVER = "taken over"
    HELD = "held"


@dataclass(frozen=True)
class Owner:
    """The process that a lease is of.

    Args:
        host: the machine since it started, and its numbering of processes.
        pid: the process's number there.
        started: when it was started, in the machine's own units; None where that cannot be found out.
        name: the machine's name, for people.
    """

    host: str
    pid: int
    started: int | None
    name: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.name}"

    def gone(self) -> bool:
        """Whether it is certain that the process has ended; of other machines nothing is."""
        return self.host == host() and not running(self.pid, self.started)


def host() -> str:
    """This machine since it was started, and the space of its process numbers: containers have their own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{socket.gethostname()} {uuid.getnode():x}"


def start_of(pid: int) -> tuple[str, int] | None:
    """A process's state and start, by the kernel's own count; None where there is no such process, or no such count."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def running(pid: int, started: int | None) -> bool:
    """Whether a process of this machine runs that has this number and, where it is known, this start."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    except OSError:
        return True
    found = start_of(pid)
    if found is None or started is None:
        return True
    return found[0] not in "ZX" and found[1] == started


@dataclass
class Claims:
    """This process's lease on a run folder, and the claims that it holds.

    Where the folder refuses the files, everything is granted: work may then be done twice, which harms nobody.

    Args:
        folder: the run's folder.
        heartbeat: seconds between two touches of the lease.
        now: a clock that only goes forward.
    """

    folder: Path
    heartbeat: float = HEARTBEAT
    now: Callable[[], float] = time.monotonic
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    company: bool = False
    """Whether another process has been seen here."""
    broken: str | None = None
    """Why no claims can be made."""
    _held: set[str] = field(default_factory=set)
    _seen: dict[str, tuple[object, float]] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _heart: threading.Thread | None = None

    @property
    def place(self) -> Path:
        """The folder of leases and claims."""
        return self.folder / "claims"

    # -- the lease -----------------------------------------------------------------------------------------

    def join(self) -> None:
        """Take a lease and keep it alive until `leave`; clear away what dead processes left."""
        self._write_lease()
        self.sweep()
        self._heart = threading.Thread(target=self._beat, name="heatcheck-lease", daemon=True)
        self._heart.start()

    def leave(self) -> None:
        """Give back all claims and the lease; the last one removes the folder."""
        self._ended.set()
        if self._heart is not None:
            self._heart.join()
        for key in {*self._held, *self._names()}:
            self.release(key)
        self.sweep()
        with contextlib.suppress(OSError):
            self._lease(self.token).unlink()
        with contextlib.suppress(OSError):
            self.place.rmdir()

    def __enter__(self) -> "Claims":
        self.join()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _beat(self) -> None:
        while not self._ended.wait(self.heartbeat):
            with self._lock:
                try:
                    os.utime(self._lease(self.token))
                except FileNotFoundError:  # somebody took this process for dead: it was stopped for a while
                    self._write_lease()
                except OSError:
                    continue
                self.look_around()

    def _write_lease(self) -> None:
        mine = start_of(os.getpid())
        owner = {
            "host": host(),
            "pid": os.getpid(),
            "started": mine[1] if mine else None,
            "name": socket.gethostname(),
        }
        self._create(self._lease(self.token), json.dumps(owner).encode())

    def _lease(self, token: str) -> Path:
        return self.place / f"{token}{_LEASE}"

    def look_around(self) -> None:
        """See whether other processes have leases, and whether these are kept alive."""
        for name in self._names():
            if name.endswith(_LEASE) and name != f"{self.token}{_LEASE}":
                self.company |= self.alive(name.removesuffix(_LEASE))

    def sweep(self) -> None:
        """Remove the leases of dead processes, and what they claimed."""
        for name in self._names():
            token = name.removesuffix(_LEASE)
            if name.startswith(_MOVED):
                self._remove(self.place / name)
            elif name == token and name not in self._held and self._owner_of(name) is None:
                self._take_away(name)
            elif name != token and token != self.token and not self.alive(token):
                self._remove(self.place / name)
        self.look_around()

    def alive(self, token: str) -> bool:
        """Whether a lease is kept alive; one that has just been seen for the first time is."""
        if token == self.token:
            return True
        found = self._read(self._lease(token))
        if found is None:
            self._seen.pop(token, None)
            return False
        owner = as_owner(found[0])
        return not (owner is not None and owner.gone()) and not self._stale(token, found[1])

    def _stale(self, name: str, beat: object) -> bool:
        """Whether something has not changed for two heartbeats of looking at it."""
        with self._lock:
            known = self._seen.get(name)
            if known is None or known[0] != beat:
                self._seen[name] = beat, self.now()
                return False
            return self.now() - known[1] >= 2 * self.heartbeat

    # -- claims --------------------------------------------------------------------------------------------

    def claim(self, key: str) -> Turn:
        """Try to claim something; what this process holds already is granted again."""
        if key in self._held:
            return Turn.MINE
        if self._create(self.place / key, self.token.encode()):
            self._held.add(key)
            return Turn.MINE
        owner = self._owner_of(key)
        if owner == self.token:  # it could not be removed when it was given back
            self._held.add(key)
            return Turn.MINE
        self.company = True
        if owner is not None or not self._take_away(key):
            return Turn.HELD
        if self._create(self.place / key, self.token.encode()):
            self._held.add(key)
            return Turn.TAKEN_OVER
        return Turn.HELD

    def holds(self, key: str) -> bool:
        """Whether this process has claimed something."""
        return key in self._held

    def release(self, key: str) -> None:
        """Give a claim back; one that another process has taken over is left alone."""
        self._held.discard(key)
        found = self._read(self.place / key)
        if found is not None and found[0] == self.token.encode():
            self._remove(self.place / key)

    def holder(self, key: str) -> str | None:
        """Who else claims something, in words; None if nobody does who is alive."""
        token = self._owner_of(key)
        if token is None or token == self.token:
            return None
        found = self._read(self._lease(token))
        owner = as_owner(found[0]) if found else None
        return "another process" if owner is None else str(owner)

    @contextlib.contextmanager
    def alone(self, key: str, waiting: Callable[[str], object] = lambda who: None) -> Iterator[None]:
        """Let one process at a time in; the others wait for it, or take over if it dies.

        Args:
            key: what is claimed.
            waiting: called once with who is inside, if somebody is.
        """
        pauses = growing_pauses()
        told = False
        while self.claim(key) is Turn.HELD:
            who = self.holder(key)
            if who is not None and not told:
                told = True
                waiting(who)
            time.sleep(next(pauses))
        try:
            yield
        finally:
            self.release(key)

    def _owner_of(self, key: str) -> str | None:
        """The token of a claim's owner, who is alive; empty if it is not known yet; None where the claim is void."""
        found = self._read(self.place / key)
        if found is None:
            return None
        content, beat = found
        token = content.decode(errors="replace")
        if _TOKEN.fullmatch(token):
            return token if self.alive(token) else None
        return None if self._stale(key, beat) else ""  # another has just made it, or it is garbage

    def _take_away(self, key: str) -> bool:
        """Remove a void claim, so that of several processes that see it one removes it; whether the way is free."""
        path, aside = self.place / key, self.place / f"{_MOVED}{secrets.token_hex(8)}"
        before = self._read(path)
        try:
            path.rename(aside)
        except OSError:
            return not os.path.lexists(path)
        after = self._read(aside)
        void = before is not None and after is not None and after[0] == before[0]
        if not void:  # another process was faster, and this is its claim
            with contextlib.suppress(OSError):
                os.link(aside, path)
        self._remove(aside)
        return void

    # -- files ---------------------------------------------------------------------------------------------

    def _names(self) -> list[str]:
        try:
            return sorted(path.name for path in self.place.iterdir())
        except OSError:
            return []

    def _create(self, path: Path, content: bytes) -> bool:
        """Make a file that is not there; where none can be made at all, it counts as made."""
        for _ in range(3):
            try:
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
                try:
                    os.write(handle, content)
                finally:
                    os.close(handle)
                return True
            except FileExistsError:
                return False
            except FileNotFoundError:  # the last of the others removes the folder when it leaves
                with contextlib.suppress(OSError):
                    self.place.mkdir(parents=True, exist_ok=True)
            except OSError as problem:
                self.broken = problem.strerror or str(problem)
                return True
        self.broken = f"{self.place} cannot be made"
        return True

    def _read(self, path: Path) -> tuple[bytes, object] | None:
        """A file's content and what changes when it is touched; None if there is none. What is no file is empty."""
        try:
            handle = os.open(path, _FLAGS)  # to open it asks a network disk for what is true now
        except FileNotFoundError:
            return None
        except OSError:
            return self._of_no_file(path)
        try:
            facts = os.fstat(handle)
            content = os.read(handle, _MOST) if stat.S_ISREG(facts.st_mode) else b""
        except OSError:
            return self._of_no_file(path)
        finally:
            os.close(handle)
        return content, (facts.st_mtime_ns, facts.st_ino)

    def _of_no_file(self, path: Path) -> tuple[bytes, object] | None:
        try:
            facts = os.lstat(path)
        except OSError:
            return None
        return b"", (facts.st_mtime_ns, facts.st_ino)

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()


def as_owner(content: bytes) -> Owner | None:
    """What a lease says; None where it says nothing that can be believed."""
    try:
        plain: Any = json.loads(content)
        owner = Owner(**{name: plain[name] for name in ("host", "pid", "started", "name")})
    except (ValueError, KeyError, TypeError):
        return None
    numbers = type(owner.pid) is int and owner.pid > 0 and (owner.started is None or type(owner.started) is int)
    return owner if numbers and isinstance(owner.host, str) and isinstance(owner.name, str) else None


def growing_pauses() -> Iterator[float]:
    """Seconds to wait between two looks, longer and longer."""
    pause, most = _POLL
    while True:
        yield pause
        pause = min(most, 1.5 * pause)
