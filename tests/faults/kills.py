"""Rows 1–5 and 26: processes that are killed, interrupted or lose their workers."""

import json
import random
import signal
import time
from pathlib import Path

from .harness import Lab, Trials, draw, stored_cells
from .toy import make_toy


def killed(lab: Lab, out: Path, chance: random.Random, *extra: str, lean: bool = True) -> bool:
    """Kill a run at a random moment; whether it was still running."""
    length = lab.seconds * (1 if lean else 2.5)
    return (
        lab.run(out, *extra, lean=lean, signal=signal.SIGKILL, after=chance.uniform(0, length)).code == -signal.SIGKILL
    )


def redone(out: Path) -> str | None:
    """Whether a score was computed and stored twice."""
    cells = stored_cells(out)
    twice = len(cells) - len(set(cells))
    return f"{twice} scores were computed twice" if twice else None


def random_kills(lab: Lab, n: int, chance: random.Random) -> Trials:
    """`kill -9` at a random moment, then the same command again; every fifth time with leaderboard and page."""
    tried = 0
    while tried < n:
        out = lab.fresh()
        if killed(lab, out, chance, lean=tried % 5 != 4):
            tried += 1
            yield lab.resumed(out) or redone(out)


def kills_in_a_row(lab: Lab, n: int, chance: random.Random) -> Trials:
    """Two to four kills, those after the first during recovery."""
    tried = 0
    while tried < n:
        out = lab.fresh()
        kills = sum(killed(lab, out, chance) for _ in range(2 + tried % 3))
        if kills >= 2:
            tried += 1
            yield lab.resumed(out) or redone(out)


def kills_with_workers(lab: Lab, n: int, chance: random.Random) -> Trials:
    """`kill -9` of a run with two workers: they end with it, and nothing is lost."""
    for _ in range(n):
        out = lab.fresh()
        ended = lab.run(out, "-j", "2", signal=signal.SIGKILL, after=chance.uniform(0.5, 6))
        deadline = time.monotonic() + 20  # one that was only being started ends when it finds its input closed
        while (orphans := lab.orphans()) and time.monotonic() < deadline:
            time.sleep(0.2)
        if orphans:
            yield f"workers {orphans} live on"
        else:
            yield lab.resumed(out) if ended.code == -signal.SIGKILL else lab.problems(out)


def commit_points(lab: Lab, n: int, chance: random.Random) -> Trials:
    """A kill before and after each call that writes, and in the middle of what is written."""
    calls = counted(lab, lab.fresh(), "writes")
    points = []
    for k, (name, _, _) in enumerate(calls, 1):
        points += [(k, "before")] if name == "mkdir" else [(k, "before"), (k, "after")]
        points += [(k, "half")] if name == "write" else []
    for k, what in draw(chance, points, n):
        out = lab.fresh()
        lab.expect(lab.run(out, fault={"folder": str(out), "at": k, "what": what}), -signal.SIGKILL)
        problem = lab.resumed(out) or redone(out)
        yield f"{what} call {k}, {calls[k - 1][:2]}: {problem}" if problem else None


def counted(lab: Lab, out: Path, kind: str, **plan: object) -> list[tuple[str, str, int]]:
    """The calls by which a run touches its folder, in their order."""
    log = lab.folder / "calls.json"
    log.unlink(missing_ok=True)
    lab.expect(lab.run(out, fault={"folder": str(out), "kind": kind, "log": str(log)}, **plan), 0)
    found: list[tuple[str, str, int]] = json.loads(log.read_text())
    return found


def signals(lab: Lab, n: int, chance: random.Random) -> Trials:
    """SIGINT or SIGTERM at a random moment: exit code 130 within ten seconds, nothing half written."""
    tried = 0
    while tried < n:
        out, sign = lab.fresh(), (signal.SIGINT, signal.SIGTERM)[tried % 2]
        ended = lab.run(out, lean=False, signal=sign, after=chance.uniform(0, 2.5 * lab.seconds))
        if ended.signalled is None:
            continue
        tried += 1
        left = [path.name for path in out.rglob(".*")] if out.exists() else []
        if ended.code == 0 and ended.seconds - ended.signalled < 0.05:
            yield None  # it had ended already
        elif ended.code != 130 or ended.seconds - ended.signalled > 10 or left:
            yield f"{sign.name} after {ended.signalled:.2f} s: exit code {ended.code}, left {left}: {ended.told}"
        else:
            yield lab.resumed(out)


def dead_workers(lab: Lab, n: int, chance: random.Random) -> Trials:
    """One of two workers is killed: its work is done by another."""
    for _ in range(n):
        out = lab.fresh()
        ended = lab.run(out, "-j", "2", signal=signal.SIGKILL, victims="one", after=chance.uniform(0.2, 6))
        yield f"exit code {ended.code}: {ended.told}" if ended.code else lab.problems(out)


def workers_that_always_die(lab: Lab, n: int, chance: random.Random) -> Trials:
    """Every worker is killed as soon as it is there: the run ends with a reason, and the next one has no holes.

    So is the copy of the driver in which models are tried, if it lives long enough; then nothing is begun.
    """
    for _ in range(n):
        out = lab.fresh()
        ended = lab.run(out, "-j", "2", signal=signal.SIGKILL, victims="all", after=0.2, quiet=False)
        if ended.code not in (2, 3) or "SIGKILL" not in ended.text:
            yield f"exit code {ended.code}: {ended.told}"
        else:
            yield lab.resumed(out)


def soak(lab: Lab, n: int, chance: random.Random, pictures: int = 500) -> Trials:
    """A long run, killed n times and resumed each time; then whether one without kills grows with its samples."""
    study = make_toy(lab.folder / "soak", pictures, models=("first",))
    whole, out, log = lab.folder / "soaked", lab.folder / "killed", lab.folder / "soak.json"
    plan = lab.plan(whole, study=study, fault={"folder": str(whole), "log": str(log)})
    (ended,) = lab.together([plan], patience=900)
    lab.expect(ended, 0)
    for _ in range(n):
        lab.run(out, study=study, signal=signal.SIGKILL, after=chance.uniform(0.3, 0.3 + 2 * ended.seconds / n))
        yield None
    yield lab.resumed(out, study=study, reference=whole) or redone(out)
    held = [bytes_ for name, where, bytes_ in json.loads(log.read_text()) if name == "replace" and "chunks" in where]
    early, last = max(held[: len(held) // 5]), held[-1]
    lab.notes |= {"resident at a fifth": early, "resident at the end": last, "samples": pictures}
    growth = last / early - 1
    yield f"resident memory grows by {growth:.1%}" if growth >= 0.05 else None
