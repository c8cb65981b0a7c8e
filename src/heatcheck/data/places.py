"""Paths that users give."""

from pathlib import Path

from heatcheck.core.spec import suggest
from heatcheck.core.types import HeatcheckError


def kind_of(path: Path) -> str | None:
    """`folder`, `file`, `device` for anything else, or None if there is nothing that can be reached."""
    try:
        if path.is_dir():
            return "folder"
        return "file" if path.is_file() else "device" if path.exists() else None
    except (OSError, ValueError):  # too long, or forbidden
        return None


def existing(where: str, kind: str) -> Path:
    """The folder or file a user names; one that is not there is answered with near names beside it."""
    path = Path(where).expanduser()
    found = kind_of(path) if where.strip() else None
    if found == kind:
        return path
    if found is not None:
        raise HeatcheckError(f"{where!r} is a {found}, not a {kind}")
    raise HeatcheckError(f"there is no {kind} {where!r}{near_names(path)}")


def near_names(path: Path) -> str:
    """`; did you mean …?` where a name beside the path is near."""
    if kind_of(path.parent) != "folder":
        return ""
    near = suggest(path.name, (p.name for p in path.parent.iterdir()))
    return near if "did you mean" in near else ""
