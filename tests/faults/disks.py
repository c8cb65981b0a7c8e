"""Rows 9 and 10: disks that are full, and calls that fail."""

import errno
import os
import random
import signal
import subprocess
from pathlib import Path

from .harness import Lab, Outcome, Trials, draw, files_of
from .kills import counted


def is_a_sentence(outcome: Outcome, *causes: int) -> str | None:
    """Whether a run that a disk refused says so in a line, with exit code 4."""
    if outcome.code != 4 or "Traceback" in outcome.text:
        return f"exit code {outcome.code}: {outcome.text.strip()[-300:]}"
    if not any(os.strerror(cause) in outcome.text for cause in causes):
        return f"the cause is not told: {outcome.told}"
    return None


def quarantined(out: Path) -> str | None:
    """Whether a file was set aside, which a disk that refuses is no reason for."""
    aside = [path.name for path in (out / "quarantine").glob("*")]
    return f"healthy files were set aside: {aside}" if aside else None


def file_limits(lab: Lab, n: int, chance: random.Random) -> Trials:
    """The kernel lets no file grow beyond a limit; then it does."""
    sizes = sorted(path.stat().st_size for path in files_of(lab.reference))
    for _ in range(n):
        out, limit = lab.fresh(), chance.randrange(1, sizes[-1])
        ended = lab.run(out, limit=limit)
        problem = is_a_sentence(ended, errno.EFBIG) if ended.code else None
        yield problem or lab.resumed(out) or quarantined(out)


def can_mount(folder: Path) -> bool:
    """Whether this machine lets us make a small disk."""
    folder.mkdir(exist_ok=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, check=False)
    return made.returncode == 0 and subprocess.run(["umount", folder], check=False).returncode == 0


def full_disks(lab: Lab, n: int, chance: random.Random) -> Trials:
    """The run folder is on a disk of a few kilobytes, which then grows."""
    if not can_mount(lab.folder / "disk"):
        return
    total = sum(path.stat().st_size for path in files_of(lab.reference)) // 1024
    for _ in range(n):
        out = lab.fresh()
        out.mkdir()
        size = 4 * chance.randrange(1, total // 4 + 8)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", out], check=True)
        try:
            ended = lab.run(out)
            problem = is_a_sentence(ended, errno.ENOSPC) if ended.code else None
            subprocess.run(["mount", "-o", "remount,size=64m", out], check=True)
            problem = problem or lab.resumed(out) or quarantined(out)
            yield f"{size} kB: {problem}" if problem else None
        finally:
            subprocess.run(["umount", out], check=True)


def half_done(lab: Lab) -> Path:
    """A folder with some chunks, so that a run into it reads as well as writes."""
    out = lab.fresh(lab.reference)
    for chunk in sorted((out / "chunks").iterdir())[::2]:
        chunk.unlink()
    return out


def failing(
    lab: Lab, calls: list[tuple[str, str, int]], n: int, chance: random.Random, fault: dict[str, object]
) -> Trials:
    """One call after another fails: the run ends well or with a sentence, and the next one has everything."""
    cause = getattr(errno, str(fault["what"]))
    for k in draw(chance, list(range(1, len(calls) + 1)), n):
        out = half_done(lab)
        ended = lab.run(out, fault={"folder": str(out), "at": k, **fault})
        if ended.code == -signal.SIGKILL or ended.late:
            problem: str | None = f"it did not end: {ended.told}"
        else:
            problem = is_a_sentence(ended, cause) if ended.code else None
        stays = calls[k - 1][0] == "unlink"  # what cannot be removed stays until the next run
        left = [path.name for path in out.rglob(".*") if not stays]
        if not ended.code and not problem and not stays:
            problem = lab.problems(out)
        problem = problem or (f"left behind: {left}" if left else None) or lab.resumed(out) or quarantined(out)
        yield f"{fault['what']} at call {k}, {calls[k - 1][:2]}: {problem}" if problem else None


def failing_writes(lab: Lab, n: int, chance: random.Random) -> Trials:
    """Each call that writes raises EIO once."""
    yield from failing(lab, counted(lab, half_done(lab), "writes"), n, chance, {"kind": "writes", "what": "EIO"})


def lasting_full(lab: Lab, n: int, chance: random.Random) -> Trials:
    """From each call that writes on, all of them raise ENOSPC."""
    fault = {"kind": "writes", "what": "ENOSPC", "times": 10**9}
    yield from failing(lab, counted(lab, half_done(lab), "writes"), n, chance, fault)


def failing_reads(lab: Lab, n: int, chance: random.Random) -> Trials:
    """Each call that reads raises EIO once."""
    yield from failing(lab, counted(lab, half_done(lab), "reads"), n, chance, {"kind": "reads", "what": "EIO"})


def lasting_read_errors(lab: Lab, n: int, chance: random.Random) -> Trials:
    """From each call that reads on, all of them raise EMFILE."""
    fault = {"kind": "reads", "what": "EMFILE", "times": 10**9}
    yield from failing(lab, counted(lab, half_done(lab), "reads"), n, chance, fault)
