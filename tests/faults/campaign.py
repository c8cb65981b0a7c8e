"""The whole campaign: every fault in full number, a table of what was seen.

python -m tests.faults.campaign                      # all rows, about half an hour
python -m tests.faults.campaign --row 6 --row 7      # some rows
python -m tests.faults.campaign --scale 0.1          # a tenth of the trials
python -m tests.faults.campaign --write              # and the table in docs/reliability.md
"""

import argparse
import fcntl
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from . import crowds, damage, disks, kills, parts
from .harness import Lab, Tally, Trials, timed

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
SEEN = Path(__file__).with_name("seen.json")
BEGIN, END = "<!-- seen -->", "<!-- end of what was seen -->"


@dataclass(frozen=True)
class Row:
    """A fault that the laboratory makes.

    Args:
        number: of the row in the table.
        trials: makes it, so and so often.
        full: trials in the campaign; of a fault that has so many places, all of them if that is no more.
        fast: trials in the tests that run with every change.
        fault: in words.
        by: how it is made.
    """

    number: str
    trials: Callable[[Lab, int, random.Random], Trials]
    full: int
    fast: int
    fault: str
    by: str

    @property
    def name(self) -> str:
        """The name of its function."""
        return self.trials.__name__

    def run(self, lab: Lab, n: int, seed: int = 0, shown: Callable[[Tally], None] | None = None) -> Tally:
        """Try it n times."""
        lab.notes.clear()
        tally = timed(Tally(self.number, self.fault, self.by), self.trials(lab, n, random.Random(seed)), shown)
        tally.notes = dict(lab.notes)
        return tally


EVERY = 100_000
ROWS = [
    Row("1", kills.random_kills, 100, 2, "`kill -9` at a random moment", "SIGKILL after U(0, T) seconds"),
    Row("1", kills.kills_with_workers, 6, 0, "the same of a run with two workers", "SIGKILL of the driver"),
    Row("2", kills.commit_points, EVERY, 2, "`kill -9` at each commit point", "before, after and in the middle of each call that writes"),
    Row("3", kills.kills_in_a_row, 30, 1, "two to four kills in a row", "as in row 1, into the same folder"),
    Row("4", kills.signals, 40, 2, "SIGINT and SIGTERM", "a signal after U(0, T) seconds"),
    Row("5", kills.dead_workers, 6, 0, "one of two workers is killed", "SIGKILL of the worker"),
    Row("5", kills.workers_that_always_die, 2, 0, "every worker is killed at once", "SIGKILL of each as it appears"),
    Row("6", damage.flips, 200, 4, "one bit flipped in any file", "a random bit, each file in turn"),
    Row("7", damage.cuts, 100, 3, "a file cut, emptied or deleted", "a random length, each file in turn"),
    Row("8", damage.lost_records, 30, 1, "several files gone or overwritten", "a random choice, with garbage"),
    Row("9", disks.full_disks, 20, 1, "disk full", "a tmpfs of a random size, which then grows"),
    Row("9", disks.file_limits, 20, 1, "no file may grow further", "RLIMIT_FSIZE"),
    Row("10", disks.failing_writes, EVERY, 1, "the k-th write, sync or rename fails", "EIO once, every k"),
    Row("10", disks.lasting_full, EVERY, 1, "no write succeeds from the k-th on", "ENOSPC, every k"),
    Row("10", disks.failing_reads, EVERY, 1, "the k-th read fails", "EIO once, every k"),
    Row("10", disks.lasting_read_errors, EVERY, 1, "no read succeeds from the k-th on", "EMFILE, every k"),
    Row("11", crowds.crowds, 15, 1, "two, four and eight processes on one folder", "started within a second"),
    Row("11", crowds.crowds_with_deaths, 8, 1, "one of three processes on one folder is killed", "SIGKILL after U(0.3, 2.5) seconds"),
    Row("12", crowds.stale_leases, 28, 1, "leases of dead processes: reused pid, other host, clock off by an hour, garbage", "forged leases; heartbeats of half a second"),
    Row("13", parts.spoilt, 26, 1, "a method, metric or model raises, or returns NaN, Inf, a wrong shape, nothing", "a plugin, on given pictures"),
    Row("14", parts.hangs_and_crashes, 6, 0, "a sample hangs, or ends its process", "a plugin that sleeps or reads address 0"),
    Row("14", parts.crashes_at_first, 3, 0, "one of the first samples ends the process, without a time limit", "as above"),
    Row("15", parts.short_memory, 7, 1, "out of memory at more than k inputs", "the model raises, k = 1 … 7"),
    Row("16", parts.bad_pictures, 4, 1, "ten files among the pictures that are none", "a folder of them"),
    Row("17", parts.other_settings, 24, 1, "other methods, metrics, samples and workers", "random subsets"),
    Row("18", parts.seeds, 4, 1, "the same seed twice, another seed", "`--seed`"),
    Row("19", parts.swapped_weights, 6, 1, "weights change under the same name", "another network in the model's file"),
    Row("26", kills.soak, 20, 0, "soak: 500 samples, a kill time and again", "as in row 1; resident memory at each commit"),
]  # fmt: skip


@dataclass(frozen=True)
class Suite:
    """Faults that other tests make; each of them is a trial."""

    number: str
    fault: str
    by: str
    tests: tuple[str, ...]

    def run(self) -> Tally:
        """Run the tests."""
        start = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--no-header", *self.tests]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout)}
        bad = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        bad += [done.stdout[-300:] + done.stderr[-300:]] if not counts else []
        return Tally(self.number, self.fault, self.by, sum(counts.values()) or 1, bad, seconds=time.monotonic() - start)


SUITES = [
    Suite("13", "models that answer differently each time, by batch, or change their input", "networks that do", ("tests/run/test_behaviour.py", "-k", "noticed")),
    Suite("16", "pictures and texts that cannot be read, or hardly", "files and strings", ("tests/data/test_images.py", "tests/data/test_tables.py", "tests/data/test_load.py", "-k", "bad or broken or no_picture or invalid or one_token or very_long or odd_one")),
    Suite("20", "any field of the identity changed, any of the runtime", "generated from the schema", ("tests/core/test_identity.py", "tests/api/test_study.py", "-k", "identity or row")),
    Suite("21", "hostile weights, data files, hub folders and names", "files that leave a mark when they are run", ("tests/faults/test_hostile_files.py", "tests/models/test_load.py", "tests/data/test_folders.py", "-k", "mark or crafted or not_opened or not_evaluated or remote_code")),
    Suite("22", "hostile archives", "members that lead outside, links, devices, bombs", ("tests/faults/test_hostile_files.py", "tests/data/test_eraser.py", "-k", "archive or bomb")),
    Suite("23", "hostile strings in every field of a report", "62 payloads, read as HTML and opened in Chromium", ("tests/report/test_hostile.py",)),
    Suite("24", "the network is gone in the middle of a download", "a server that hangs up", ("tests/faults/test_download.py",)),
    Suite("25", "older and newer stores", "a folder of an earlier release, and ones of later ones", ("tests/run/test_old_layout.py", "tests/faults/test_versions.py")),
]  # fmt: skip


def markdown(tallies: list[Tally]) -> str:
    """The table of what was seen."""
    lines = ["| row | fault | made by | tried | survived |", "| --- | --- | --- | ---: | ---: |"]
    for t in sorted(tallies, key=lambda t: int(t.row)):
        lines.append(f"| {t.row} | {t.fault} | {t.by} | {t.tried} | {t.survived} |")
    return "\n".join(lines)


def note(text: str) -> None:
    """A line of progress."""
    sys.stderr.write(text + "\n")


def main() -> int:
    """Run the campaign; 1 if anything did not survive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", action="append", help="only this row, by number or name; may be repeated")
    parser.add_argument("--scale", type=float, default=1.0, help="the share of the trials")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write the table into docs/reliability.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    tallies: list[Tally] = []

    def finished(tally: Tally) -> None:
        tallies.append(tally)
        if options.write:
            publish(tally)
        note(f"row {tally.row}: {tally.fault}: {tally.survived} of {tally.tried} survived, {tally.seconds:.0f} s")
        for failure in tally.failures[:5]:
            note(f"    {failure}")

    began = time.monotonic()
    wanted = [row for row in ROWS if not options.row or {row.number, row.name} & set(options.row)]
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        if wanted:
            with Lab(Path(folder)) as lab:
                note(f"a run takes {lab.seconds:.1f} s")
                for row in wanted:
                    n = row.full if options.scale == 1 else max(1, round(min(row.full, 150) * options.scale))
                    finished(row.run(lab, n, options.seed, progress()))
    for suite in SUITES:
        if not options.row or suite.number in options.row:
            finished(suite.run())
    note(f"all of it took {(time.monotonic() - began) / 60:.0f} minutes")
    sys.stdout.write(markdown(tallies) + "\n")
    return int(any(tally.failures for tally in tallies))


def progress() -> Callable[[Tally], None]:
    """Says every ten seconds how far a row is."""
    last = time.monotonic()

    def shown(tally: Tally) -> None:
        nonlocal last
        if time.monotonic() - last > 10:
            last = time.monotonic()
            note(f"  row {tally.row}: {tally.tried} tried, {len(tally.failures)} not survived")

    return shown


def publish(tally: Tally) -> None:
    """Write down what was seen of a fault, as data and in the table of the page; what was seen of it before is replaced."""
    with PAGE.open(encoding="utf-8") as page:  # several campaigns may be under way
        fcntl.flock(page, fcntl.LOCK_EX)
        _publish(tally)


def _publish(tally: Tally) -> None:
    known = [Tally(**row) for row in json.loads(SEEN.read_text())] if SEEN.exists() else []
    rows = [old for old in known if (old.row, old.fault) != (tally.row, tally.fault)] + [tally]
    order = [(row.number, row.fault) for row in (*ROWS, *SUITES)]
    rows = sorted((t for t in rows if (t.row, t.fault) in order), key=lambda t: order.index((t.row, t.fault)))
    SEEN.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{markdown(rows)}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
