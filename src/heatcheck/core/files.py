"""Writing files that are whole or absent, and reading them with suspicion."""

import contextlib
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp-"


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
    """Readable JSON, written atomically; NaN is refused."""
    write_atomically(path, (json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode())


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
