"""Writing files that are whole or absent, and reading them with suspicion."""

import contextlib
import hashlib
import json
import os
import re
import secrets
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp-"
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_ESCAPED_BYTES = range(0xDC80, 0xDD00)
"""How Python writes bytes of a file name that are no UTF-8."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside the target, sync, rename, sync the folder: a kill at any moment leaves old or new, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with temporary.open("xb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, value: Any) -> None:
    """Readable JSON, written atomically; NaN is refused. What UTF-8 cannot hold, of odd file names, is written as an escape."""
    text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    write_atomically(path, text.encode(errors="backslashreplace"))


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
    """Remove temporary files of processes that no longer live."""
    for path in folder.glob(f"{TEMPORARY}*"):
        pid = path.name.removeprefix(TEMPORARY).split("-")[0]
        if pid.isdigit() and not _alive(int(pid)):
            with contextlib.suppress(OSError):
                path.unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def sha256_of(path: Path) -> str:
    """Digest of a file's bytes."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
