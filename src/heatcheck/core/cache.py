"""Where what was trained once is kept: whole folders, or none."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    """`HEATCHECK_CACHE`, else `heatcheck` in the user's cache folder."""
    if own := os.environ.get("HEATCHECK_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "heatcheck"


def cached_folder(name: str, make: Callable[[Path], object]) -> Path:
    """The cached folder called `name`, made now if there is none.

    It is filled under another name and renamed when it is whole, so that a kill leaves none, and of two processes
    that make it at once the first one's stays.

    Args:
        name: should change with everything that decides the contents.
        make: fills an empty folder.
    """
    target = cache_folder() / name
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    try:
        make(making)
        making.chmod(0o755)
        with contextlib.suppress(OSError):
            making.rename(target)
        if not target.is_dir():
            raise OSError(f"{making} could not be renamed to {target}")
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return target
