"""Rows 11 and 12: several processes on one folder, and what dead ones leave behind."""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

from heatcheck.run.claims import Claims

from .harness import HEARTBEAT, Lab, Trials, stored_cells

DUPLICATES = 0.05
HOUR = 3600.0


def done_twice(lab: Lab, out: Path) -> str | None:
    """Whether more than a few cells were computed by two processes."""
    cells = stored_cells(out)
    extra = len(cells) - len(set(cells))
    lab.notes["cells"] = lab.notes.get("cells", 0) + len(cells)
    lab.notes["done twice"] = lab.notes.get("done twice", 0) + extra
    return f"{extra} of {len(cells)} cells were computed twice" if extra > DUPLICATES * len(cells) else None


def crowds(lab: Lab, n: int, chance: random.Random) -> Trials:
    """Two, four or eight processes begin the same study in one folder at once, or one after another."""
    for i in range(n):
        out, many = lab.fresh(), (2, 4, 8)[i % 3]
        plans = [lab.plan(out, wait=chance.uniform(0, 1)) for _ in range(many)]
        ended = lab.together(plans, patience=900)
        codes = [outcome.code for outcome in ended]
        if any(codes):
            yield f"{many} processes: exit codes {codes}: {[o.told for o in ended if o.code][:1]}"
            continue
        problem = lab.problems(out) or done_twice(lab, out)
        yield f"{many} processes: {problem}" if problem else None


def crowds_with_deaths(lab: Lab, n: int, chance: random.Random) -> Trials:
    """One of three processes on a folder is killed: the others do what it had claimed."""
    for _ in range(n):
        out = lab.fresh()
        victim = lab.plan(out, signal=signal.SIGKILL, after=chance.uniform(0.3, 2.5))
        ended = lab.together([victim, lab.plan(out), lab.plan(out)], patience=900)
        codes = [outcome.code for outcome in ended[1:]]
        if any(codes):
            yield f"exit codes {codes}: {[outcome.told for outcome in ended[1:]]}"
        elif lab.bits(out) != lab.bits(lab.reference):
            yield "the others left other scores"
        else:
            yield lab.resumed(out)


def forge(lease: Path, kind: str) -> None:
    """Make a lease of a dead process look like another's."""
    owner = json.loads(lease.read_text())
    if kind == "reused pid":
        owner["pid"] = os.getpid()
    elif kind == "other host":
        owner["host"] = "somewhere else"
    elif kind == "garbage":
        lease.write_bytes(random.Random(0).randbytes(50))
        return
    elif kind == "empty":
        lease.write_bytes(b"")
        return
    lease.write_text(json.dumps(owner))
    if kind in ("an hour ahead", "an hour behind"):
        then = time.time() + (HOUR if kind == "an hour ahead" else -HOUR)
        owner["host"] = "somewhere else"
        lease.write_text(json.dumps(owner))
        os.utime(lease, (then, then))


KINDS = ("dead pid", "reused pid", "other host", "an hour ahead", "an hour behind", "garbage", "empty")


def stale_leases(lab: Lab, n: int, chance: random.Random) -> Trials:
    """A process is killed while it has claims, and its lease is forged: taken over within a few heartbeats."""
    tried, length = 0, lab.seconds
    for _ in range(20 * n):
        if tried == n:
            break
        out, kind = lab.fresh(), KINDS[tried % len(KINDS)]
        ended = lab.run(out, signal=signal.SIGKILL, after=chance.uniform(0.3, 1) * length)
        length = min(length, ended.seconds) if ended.code == 0 else length  # the machine has less other work now
        leases = list((out / "claims").glob("*.lease"))
        if not leases:
            shutil.rmtree(out, ignore_errors=True)
            continue
        tried += 1
        forge(leases[0], kind)
        again = lab.run(out)
        limit = 4 * lab.seconds + 6 * HEARTBEAT
        if again.code or again.seconds > limit:
            yield f"{kind}: exit code {again.code} after {again.seconds:.1f} s: {again.told}"
            continue
        left = claims_of(out)
        if left and again.seconds < 3 * HEARTBEAT:  # too short to see that a lease is not kept alive
            with Claims(out, heartbeat=HEARTBEAT):
                time.sleep(3 * HEARTBEAT)
            left = claims_of(out)
        problem = lab.problems(out) or (f"claims stay: {left}" if left else None)
        yield f"{kind}: {problem}" if problem else None


def claims_of(out: Path) -> list[str]:
    """The names of leases and claims in a run folder."""
    return [path.name for path in (out / "claims").glob("*")]
