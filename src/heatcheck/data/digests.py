"""Digests of files, remembered by path, size, times of change and inode, so that unchanged pictures are read once.

As git does: a file whose size, inode and times of change, of its content and of its entry in the folder, are what they
were counts as unchanged. One that was changed within the last seconds is read again, since a second change may leave no
trace in the times.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

from heatcheck.core.cache import cache_folder

SWITCH = "HEATCHECK_DIGESTS"
"""An environment variable: `off` remembers nothing, a path is the file to remember in."""
SETTLED = 2_000_000_000
"""Nanoseconds after its last change from which a file is remembered."""
TOGETHER = 500
"""Digests that are written at a time."""
_TABLE = """
create table if not exists files (
    path text primary key, facts text, digest text
) without rowid
"""


class Digests:
    """What is known about files. Where its own file cannot be used, everything is read each time.

    Args:
        file: where it is kept.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._new: list[tuple[str, str, str]] = []
        self._reading: sqlite3.Connection | None = None

    def of(self, path: Path, reader: str, make: Callable[[], tuple[str, str | None]]) -> tuple[str, str | None]:
        """A file's digest and why it cannot be used, as remembered, else made now; only what can be used is remembered.

        Args:
            path: the file.
            reader: who says whether it can be used; another one is asked anew.
            make: reads the file.

        Raises:
            OSError: there is no such file.
        """
        place, before = str(path.absolute()), path.stat()
        facts = facts_of(before, reader)
        known = self._known(place)
        if known is not None and known[0] == facts:
            return known[1], None
        digest, problem = make()
        settled = time.time_ns() - max(before.st_mtime_ns, before.st_ctime_ns) >= SETTLED
        if settled and problem is None and facts_of(path.stat(), reader) == facts:
            self._new.append((place, facts, digest))
            if len(self._new) >= TOGETHER:
                self.write()
        return digest, problem

    def write(self) -> None:
        """Keep what is new; where that fails, it is found out again another time."""
        new, self._new = self._new, []
        if not new:
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.file, timeout=5.0)) as connection, connection:
                connection.execute(_TABLE)
                connection.executemany("insert or replace into files values (?, ?, ?)", new)
        except (OSError, sqlite3.Error):
            return

    def _known(self, place: str) -> tuple[str, str] | None:
        if self._reading is None:
            if not self.file.is_file():
                return None
            self._reading = sqlite3.connect(self.file, timeout=5.0, check_same_thread=False)
        try:
            query = "select facts, digest from files where path = ?"
            found: tuple[str, str] | None = self._reading.execute(query, (place,)).fetchone()
        except (sqlite3.Error, UnicodeEncodeError):
            return None
        return found


def facts_of(state: os.stat_result, reader: str) -> str:
    """What a file's content is recognised by."""
    return f"{state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} {state.st_ino} {reader}"


def digests() -> Digests | None:
    """What is remembered for this user; None where that is turned off."""
    wanted = os.environ.get(SWITCH, "")
    if wanted == "off":
        return None
    return _remembered(Path(wanted).expanduser() if wanted else cache_folder() / "digests.sqlite")


@cache
def _remembered(file: Path) -> Digests:
    return Digests(file)
