"""Rows 13–19: models, methods, metrics and data that misbehave, and settings that must not matter."""

import random
import shutil
from pathlib import Path
from typing import Any

from heatcheck.api.result import Result

from .harness import Lab, Trials, bits
from .toy import METHODS, METRICS, key_of, make_toy, set_trap

SPOILS = [
    *(("method", what) for what in ("raise", "nan", "inf", "shape", "none")),
    *(("metric", what) for what in ("raise", "nan", "inf", "shape", "none")),
    *(("model", what) for what in ("raise", "nan", "inf")),
]
SAMPLE, METHOD, METRIC, STATUS = 1, 3, 4, -1


def touched(row: tuple[Any, ...], who: str, names: set[str]) -> bool:
    """Whether a trap may spoil a cell."""
    part = {"method": row[METHOD] == "stumbles", "metric": row[METRIC] == "weighs", "model": True}[who]
    return part and row[SAMPLE] in names


def told_apart(lab: Lab, out: Path, who: str, names: set[str]) -> str | None:
    """Whether exactly the trapped cells have no score, and all others the reference's."""
    found, known = bits(Result.open(out)), bits(Result.open(lab.reference))
    for mine, other in zip(found, known, strict=True):
        if touched(mine, who, names):
            if mine[STATUS] == "ok":
                return f"{mine} has a score"
        elif mine != other:
            return f"{mine} instead of {other}"
    return None


def spoilt(lab: Lab, n: int, chance: random.Random) -> Trials:
    """A method, metric or model raises, or returns NaN, Inf, a wrong shape or nothing on some pictures."""
    pictures = sorted((lab.study.parent / "pictures").iterdir())
    for i in range(n):
        who, what = SPOILS[i % len(SPOILS)]
        chosen = chance.sample(pictures[3:], chance.randrange(1, 4))
        set_trap(lab.study, who=who, what=what, pictures=[key_of(path) for path in chosen])
        out = lab.fresh()
        try:
            ended = lab.run(out)
            expected = {0, 3} if who == "metric" and what in ("nan", "inf") else {3}  # these mean: there is no score
            problem = None if ended.code in expected else f"exit code {ended.code}: {ended.told}"
            problem = problem or told_apart(lab, out, who, {path.name for path in chosen})
        finally:
            set_trap(lab.study)
        if problem is None and not (who == "metric" and what in ("nan", "inf")):
            problem = lab.resumed(out)
        yield f"{who} {what}: {problem}" if problem else None


def hangs_and_crashes(lab: Lab, n: int, chance: random.Random) -> Trials:
    """A model, method or metric hangs, or ends its process, on one picture: only that picture is lost."""
    pictures = sorted((lab.study.parent / "pictures").iterdir())
    kinds = [(who, what) for what in ("hang", "segfault") for who in ("method", "model", "metric")]
    for i in range(n):
        (who, what), victim = kinds[i % len(kinds)], chance.choice(pictures)
        set_trap(lab.study, who=who, what=what, pictures=[key_of(victim)])
        out = lab.fresh()
        try:
            ended = lab.together([lab.plan(out, "-j", "2", "--timeout", "20")], patience=900)[0]
            problem = None if ended.code == 3 else f"exit code {ended.code}: {ended.told}"
            problem = problem or told_apart(lab, out, who, {victim.name})
        finally:
            set_trap(lab.study)
        problem = problem or lab.resumed(out, "-j", "2", "--timeout", "120")
        yield f"{who} {what} on {victim.name}: {problem}" if problem else None


def crashes_at_first(lab: Lab, n: int, chance: random.Random) -> Trials:
    """A model ends its process on one of the first pictures, and no time limit is given."""
    pictures = sorted((lab.study.parent / "pictures").iterdir())
    for i in range(n):
        victim = pictures[i % 3]
        set_trap(lab.study, who="model", what="segfault", pictures=[key_of(victim)])
        out = lab.fresh()
        try:
            ended = lab.run(out)
            for _ in range(2):
                if ended.code < 0:
                    ended = lab.run(out)
            problem = None if ended.code == 3 else f"exit code {ended.code}: {ended.told}"
            problem = problem or told_apart(lab, out, "model", {victim.name})
        finally:
            set_trap(lab.study)
        problem = problem or lab.resumed(out)
        yield f"{victim.name}: {problem}" if problem else None


def short_memory(lab: Lab, n: int, chance: random.Random) -> Trials:
    """The model runs out of memory at more than k inputs: smaller batches, the same numbers within 1e-5."""
    known = bits(Result.open(lab.reference))
    for i in range(n):
        most = 1 + i % 7
        set_trap(lab.study, who="model", what="oom", most=most)
        out = lab.fresh()
        try:
            ended = lab.run(out)
        finally:
            set_trap(lab.study)
        if ended.code:
            yield f"at most {most}: exit code {ended.code}: {ended.told}"
            continue
        far = [(a, b) for a, b in zip(bits(Result.open(out)), known, strict=True) if not near(a, b)]
        yield (
            f"at most {most}: {len(far)} of {len(known)} differ, such as {far[0]}"
            if len(far) > len(known) / 100
            else None
        )


def near(mine: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two rows agree within the tolerance of another batch size."""
    if mine[:5] != other[:5] or mine[STATUS] != other[STATUS]:
        return False
    a, b = mine[5], other[5]
    return a == b or (a is not None and b is not None and abs(a - b) <= 1e-5 * (1 + abs(b)))


BAD_FILES: dict[str, bytes] = {
    "empty.png": b"",
    "text.png": b"this is no picture",
    "header.png": b"\x89PNG\r\n\x1a\n",
    "header.jpg": b"\xff\xd8\xff\xe0\x00\x10JFIF",
    "huge.png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x0f\xff\xff\x00\x0f\xff\xff\x08\x02\x00\x00\x00",
    "zeros.png": bytes(5000),
    "script.png": b"<svg onload=alert(1)>",
}


def bad_pictures(lab: Lab, n: int, chance: random.Random) -> Trials:
    """Files among the pictures that are none, or odd: a status each, and the others as they were."""
    good = set(bits(Result.open(lab.reference)))
    for _ in range(n):
        pictures = Path(shutil.copytree(lab.study.parent / "pictures", lab.fresh() / "pictures"))
        whole = (pictures / "000.png").read_bytes()
        bad = {**BAD_FILES, "cut.png": whole[: chance.randrange(8, len(whole) // 2)]}
        for name, content in bad.items():
            (pictures / name).write_bytes(content)
        (pictures / "folder.png").mkdir()
        (pictures / "broken.png").symlink_to(pictures / "nowhere")
        out = lab.fresh()
        ended = lab.run(out, "--data", f"folder:{pictures}")
        rows = set(bits(Result.open(out))) if ended.code == 3 else set()
        lost = good - rows
        told = {row[SAMPLE] for row in rows if row[STATUS].startswith("failed")}
        if ended.code != 3 or lost or not bad.keys() <= told:
            yield f"exit code {ended.code}: lost {sorted(lost)[:1]}, not told {bad.keys() - told}: {ended.told}"
        else:
            yield None


def other_settings(lab: Lab, n: int, chance: random.Random) -> Trials:
    """Fewer methods or metrics, fewer samples, other orders and workers: the cells that remain have the same bits."""
    known = set(bits(Result.open(lab.reference)))
    for i in range(n):
        methods = chance.sample(METHODS, chance.randrange(1, len(METHODS) + 1))
        metrics = chance.sample(METRICS, chance.randrange(1, len(METRICS) + 1))
        options = ["--methods", ",".join(methods), "--metrics", ",".join(metrics)]
        options += ["-n", str(chance.randrange(1, lab.pictures))] if i % 3 == 1 else []
        options += ["-j", str(chance.choice([2, 3]))] if i % 6 == 5 else []
        out = lab.fresh()
        ended = lab.run(out, *options)
        other = set(bits(Result.open(out))) - known if not ended.code else set()
        yield f"{options}: exit code {ended.code}, {sorted(other)[:1]}" if ended.code or other else None


def seeds(lab: Lab, n: int, chance: random.Random) -> Trials:
    """The same seed gives the same bits; another changes what is random, and that alone."""
    known = bits(Result.open(lab.reference))
    for _ in range(n):
        seed = chance.randrange(1, 10**6)
        found = []
        for _ in range(2):
            out = lab.fresh()
            lab.expect(lab.run(out, "--seed", str(seed)), 0)
            found.append(bits(Result.open(out)))
        fixed = [(a, b) for a, b in zip(found[0], known, strict=True) if a[METHOD] in ("saliency", "stumbles")]
        fixed = [(a, b) for a, b in fixed if a[METRIC] != "infidelity(samples=4)"]
        drawn = [(a, b) for a, b in zip(found[0], known, strict=True) if a[METHOD] in ("random", "rise(samples=8)")]
        if found[0] != found[1]:
            yield f"seed {seed} gives two results"
        elif any(a != b for a, b in fixed) or all(a == b for a, b in drawn):
            yield f"seed {seed} changes the wrong cells"
        else:
            yield None


def swapped_weights(lab: Lab, n: int, chance: random.Random) -> Trials:
    """A model's weights change under its name, in the same folder: computed anew; and back: nothing is computed."""
    study = make_toy(lab.fresh() / "study", 4, models=("first",))
    plain = (study.parent / "toy.py").read_text()
    out, alone = lab.fresh(), lab.folder / "swapped"
    lab.expect(lab.run(out, study=study), 0)
    original = bits(Result.open(out, only=True))
    for _ in range(n):
        seed = chance.randrange(1, 10**6)
        (study.parent / "toy.py").write_text(plain.replace("return Network(0)", f"return Network({seed})"))
        lab.expect(lab.run(out, study=study), 0)
        shutil.rmtree(alone, ignore_errors=True)
        lab.expect(lab.run(alone, study=study), 0)
        changed, fresh = bits(Result.open(out, only=True)), bits(Result.open(alone))
        (study.parent / "toy.py").write_text(plain)
        files = sorted((out / "chunks").iterdir())
        lab.expect(lab.run(out, study=study), 0)
        if changed != fresh or changed == original:
            yield f"seed {seed}: results of other weights"
        elif bits(Result.open(out, only=True)) != original or sorted((out / "chunks").iterdir()) != files:
            yield f"seed {seed}: the first weights were computed again"
        else:
            yield None
