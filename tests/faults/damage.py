"""Rows 6–8: files of a finished run that are flipped, cut, emptied, deleted or overwritten."""

import random
import warnings
from pathlib import Path

from heatcheck.api.result import Result

from .harness import Lab, Trials, bits, files_of


def damaged(lab: Lab, out: Path, what: str) -> str | None:
    """Whether reading shows a wrong number, and whether the next run repairs everything."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            result = Result.open(out)
            wrong = {row for row in bits(result) if not row[-1].startswith("missing")} - set(bits_of(lab))
            noticed = bool(result.check()) or bool(told)
        except OSError:
            wrong, noticed = set(), True
    if wrong:
        return f"{what}: wrong scores are read, such as {next(iter(wrong))}"
    if not noticed and not is_derived(what):
        return f"{what}: not noticed"
    before = len(list(out.rglob("*")))
    problem = lab.resumed(out)
    return f"{what}, of {before} files: {problem}" if problem else None


def is_derived(what: str) -> bool:
    """Whether a file is rebuilt from others whenever it does not fit them."""
    return not what.startswith(("chunks/", "studies/", "run.json", "numerics.json"))


def bits_of(lab: Lab) -> list[tuple[object, ...]]:
    """The reference's scores."""
    return bits(Result.open(lab.reference))


def victims(lab: Lab, n: int, chance: random.Random) -> list[str]:
    """Names of files, each kind as often as another, each file at least once where there are as many trials."""
    names = [str(path.relative_to(lab.reference)) for path in files_of(lab.reference)]
    return [names[i % len(names)] for i in range(n)] if n >= len(names) else chance.sample(names, n)


def flips(lab: Lab, n: int, chance: random.Random) -> Trials:
    """One bit of one file is another: noticed, set aside, computed again."""
    for name in victims(lab, n, chance):
        out = lab.fresh(lab.reference)
        raw = bytearray((out / name).read_bytes())
        at, bit = chance.randrange(len(raw)), 1 << chance.randrange(8)
        raw[at] ^= bit
        (out / name).write_bytes(raw)
        yield damaged(lab, out, f"{name}, bit {bit} of byte {at}")


def cuts(lab: Lab, n: int, chance: random.Random) -> Trials:
    """A file is cut at a random length, emptied or deleted."""
    for name in victims(lab, n, chance):
        out = lab.fresh(lab.reference)
        path, how = out / name, ("cut", "emptied", "deleted")[chance.randrange(3)]
        if how == "deleted":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size) if how == "cut" else 0])
        problem = damaged(lab, out, f"{name}, {how}")
        deleted_record = how == "deleted" and name.endswith("json") and problem and problem.endswith("not noticed")
        yield lab.resumed(out) if deleted_record else problem


def lost_records(lab: Lab, n: int, chance: random.Random) -> Trials:
    """Several files at once are gone or hold something else."""
    for _ in range(n):
        out = lab.fresh(lab.reference)
        several = chance.sample(files_of(out), chance.randrange(2, len(files_of(out))))
        for path in several:
            garbage = chance.choice([None, b"", b"{}", b"null", b"[1, 2", chance.randbytes(2000)])
            path.unlink() if garbage is None else path.write_bytes(garbage)
        problem = lab.resumed(out)
        yield f"{[path.name[:12] for path in several]}: {problem}" if problem else None
