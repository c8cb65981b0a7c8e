"""Writing files that are whole or absent, and reading them with suspicion."""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

TEMPORARY = ".tmp-"
FORMULA = r"^[=+\-@\t\r]"
"""How a text begins that a spreadsheet would take for a formula; CSV files have `'` before it."""
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ESCAPED_BYTES = range(0xDC80, 0xDD00)
"""How Python writes bytes of a file name that are no UTF-8."""
_LEFT = re.compile(rf"{re.escape(TEMPORARY)}(\d+)-|\.report\.html\.(\d+)\.part$")  # the second: of reports, once
_PAUSES = (0.05, 0.25)  # before a file is read again
_PASSING = {errno.EIO, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT}
_FULL = "free some space, then run the same command again: what was finished before is whole"
_CLOSED = "make it writable, or choose another place"
_SEVERAL = "raise the limit with `ulimit -n`, or use fewer workers, then try again"
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EROFS: _CLOSED,
    errno.EACCES: "look at its permissions, or choose another place",
    errno.EPERM: "look at its permissions, or choose another place",
    errno.EMFILE: _SEVERAL,
    errno.ENFILE: _SEVERAL,
    errno.EIO: "look after the disk or the network, then try again",
    errno.EEXIST: "a file has the name of a folder that is needed; rename it",
    errno.ENOTDIR: "a file has the name of a folder that is needed; rename it",
    errno.EISDIR: "a folder has the name of the file; rename it",
    errno.ENAMETOOLONG: "choose a shorter name",
}
T = TypeVar("T")


class StorageError(OSError):
    """A file cannot be read or written: the message says which one, why and what to try."""


def cannot(verb: str, path: Path, problem: OSError) -> StorageError:
    """A read or write error as a sentence."""
    if isinstance(problem, StorageError):
        return problem
    cause = os.strerror(problem.errno) if problem.errno else str(problem)
    remedy = _REMEDIES.get(problem.errno or 0, "")
    return StorageError(f"cannot {verb} {path}: {cause}{remedy and f'; {remedy}'}")


def is_of_disk(problem: OSError) -> bool:
    """Whether an error says that the disk, or the limits around it, stand in the way."""
    return isinstance(problem, StorageError) or problem.errno in _REMEDIES


def make_folder(path: Path) -> None:
    """Make a folder where there is none."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise cannot("make the folder", path, problem) from problem


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside the target, sync, rename, sync the folder: a kill at any moment leaves old or new, never half.

    Raises:
        StorageError: no space, no permission, a failing disk; what was there before is as it was.
    """
    with written_atomically(path) as file:
        file.write(data)


@contextlib.contextmanager
def written_atomically(path: Path) -> Iterator[BinaryIO]:
    """A file to write piece by piece, which takes its name when all is written: as `write_atomically`."""
    make_folder(path.parent)
    temporary = path.parent / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with temporary.open("xb") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(path)
    except BaseException as problem:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(problem, OSError):
            raise cannot("write", path, problem) from problem
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_patiently(path: Path, read: Callable[[Path], T]) -> T:
    """What `read` makes of a file, tried again after errors that may pass; an absent file stays an absent file.

    Raises:
        FileNotFoundError: there is none.
        StorageError: it is there and cannot be read.
    """
    for pause in (*_PAUSES, None):
        try:
            return read(path)
        except FileNotFoundError:
            raise
        except OSError as problem:
            if pause is None or problem.errno not in _PASSING:
                raise cannot("read", path, problem) from problem
            time.sleep(pause)
    raise AssertionError


def as_json(value: Any) -> bytes:
    """Readable JSON; NaN is refused. What UTF-8 cannot hold, of odd file names, is written as an escape."""
    text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace")


def printable(text: str) -> str:
    r"""A name that every file and screen can hold: bytes that are no UTF-8 and control characters become `\xe9`.

    >>> printable(b"caf\xe9.png".decode(errors="surrogateescape"))
    'caf\\xe9.png'
    """
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code in _ESCAPED_BYTES:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def sweep_temporaries(folder: Path) -> None:
    """Remove what processes that no longer live left half written."""
    for path in left_behind(folder):
        with contextlib.suppress(OSError):
            path.unlink()


def left_behind(folder: Path) -> list[Path]:
    """Files that processes which no longer live left half written."""
    found = []
    for path in folder.glob(".*"):
        name = _LEFT.match(path.name)
        if name and not alive(int(name[1] or name[2])):
            found.append(path)
    return sorted(found)


def alive(pid: int) -> bool:
    """Whether a process of this machine is there and has not ended, though its parent may not know of its end yet."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):  # not Linux, or it has gone meanwhile
        return True
    return state not in ("Z", "X")


def sha256_of(path: Path) -> str:
    """Digest of a file's bytes."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
