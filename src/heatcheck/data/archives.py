"""Tar archives, read member by member into memory; nothing is written."""

import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from heatcheck.core.types import HeatcheckError

_MOST_MEMBERS = 500_000


def read_members(
    path: Path, wanted: Callable[[PurePosixPath], bool], *, longest: int, largest: int
) -> dict[PurePosixPath, bytes]:
    """The contents of an archive's wanted files, by name. Links, and names that lead outside, are passed over.

    Args:
        path: the archive, compressed or not.
        wanted: whether a file is to be read.
        longest: bytes that a file may have.
        largest: bytes that all files may have together.

    Raises:
        HeatcheckError: it cannot be read, or unpacks to more than that.
    """
    found: dict[PurePosixPath, bytes] = {}
    total = 0
    try:
        with tarfile.open(path, "r:*") as archive:
            for count, member in enumerate(archive):
                total += member.size
                if count > _MOST_MEMBERS or total > largest or member.size > longest:
                    raise HeatcheckError(f"{str(path)!r} unpacks to more than such an archive should hold")
                name = PurePosixPath(member.name)
                if not member.isreg() or name.is_absolute() or ".." in name.parts or not wanted(name):
                    continue
                file = archive.extractfile(member)
                found[name] = file.read() if file is not None else b""
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise HeatcheckError(f"{str(path)!r} is not a tar archive that can be read: {error}") from error
    return found
