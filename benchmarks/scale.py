"""Time, memory and bytes per cell of runs as large as papers' tables: does the cost grow with the samples, and no faster?

    python benchmarks/scale.py                        # 1,000 and 10,000 samples
    python benchmarks/scale.py 50000 --keep /tmp/big  # one size; the run stays
    python benchmarks/scale.py 50000 --only "open;scores" --keep /tmp/big

A run with made-up numbers, without maps, is written through the store, chunk by chunk, as workers write it. Then each step is
measured in a process of its own: seconds of the clock and of its processors, which include no imports, and the peak of its
resident memory.
"""

import argparse
import hashlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from heatcheck.core import catalogue
from heatcheck.core.identity import digest
from heatcheck.core.types import Sample
from heatcheck.core.version import __version__
from heatcheck.probe.calls import Spent
from heatcheck.run import compaction, history
from heatcheck.run.grid import Labelled
from heatcheck.run.lacking import context_of, lacking
from heatcheck.run.manifest import component_facts, environment
from heatcheck.run.packing import SampleGroup, ScoreColumn
from heatcheck.run.reader import RunReader
from heatcheck.run.store import Store
from heatcheck.run.task import CHUNK

METRICS = (
    "sds", "morf", "lerf", "infidelity", "sparseness", "complexity",
    "road", "irof", "relevance_mass", "max_sensitivity",
)  # fmt: skip
CURVES, STEPS, CLASSES, MODEL = 2, 21, 1000, digest({"model": "made up"})
"""How many metrics have a curve, of how many steps; the model's classes and identity."""


def components(methods: int, metrics: int) -> tuple[list[Labelled], list[Labelled]]:
    """As many methods and metrics of the catalogue, controls among them, filed under digests of their own."""

    def some(kind: str, n: int, first: tuple[str, ...]) -> list[Labelled]:
        known = [id for id, entry in catalogue.entries(kind).items() if entry.record().get("family") != "composite"]
        ids = [*(id for id in first if id in known), *(id for id in known if id not in first)][:n]
        built = [catalogue.build(kind, id) for id in ids]
        return [Labelled(c.id, c, digest(c.identity())) for c in built]

    return some("method", methods, ("random", "saliency")), some("metric", metrics, METRICS)


def samples(n: int) -> list[Sample]:
    """Samples with names and digests, and nothing in them."""
    return [
        Sample(content=None, name=f"val/ILSVRC2012_val_{i:08d}.JPEG", digest=_sha(i), label=i % CLASSES)
        for i in range(n)
    ]


def _sha(i: int) -> str:
    return hashlib.sha256(str(i).encode()).hexdigest()


def manifest(folder: Store, data: list[Sample], methods: list[Labelled], metrics: list[Labelled]) -> None:
    """Write the study down as a run does."""
    entries = [
        {"name": s.name, "digest": s.digest, "label": s.label, "context": context_of(s), "problem": None} for s in data
    ]
    numerics = {"forward": 8, "backward": 8, "threads": 1, "channels_last": False, "device": "cpu"}
    model = {
        "name": "made-up",
        "identity": MODEL,
        "modality": "image",
        "preprocessing": "",
        "notes": [],
        "classes": None,
        "methods": [m.record() for m in methods],
        "metrics": [m.record() for m in metrics],
        "skipped": {},
        "circular": [],
        "numerics": {**numerics, "torch": torch.__version__, "capability": ""},
        "gallery": [],
    }
    study = {
        "heatcheck": __version__,
        "created": "2026-01-01T00:00:00+00:00",
        "study": {"profile": "default"},
        "target": "predicted",
        "seed": 0,
        "maps": "none",
        "data": {"name": "pictures", "n": len(data), "notes": []},
        "samples": entries,
        "models": [model],
        "methods": [component_facts(m.label, m.component) for m in methods],
        "metrics": [component_facts(m.label, m.component) for m in metrics],
        "environment": environment(),
        "passes": asdict(Spent()),
        "finished": True,
    }
    history.begin(folder, study)


def build(folder: Path, n: int, methods: int, metrics: int) -> None:
    """Write a whole run."""
    store = Store.open(folder, create=True)
    data = samples(n)
    known = components(methods, metrics)
    manifest(store, data, *known)
    rng = np.random.default_rng(0)
    share = tuple(i / (STEPS - 1) for i in range(STEPS))
    for start in range(0, n, CHUNK):
        store.commit([group(data[start : start + CHUNK], *known, rng, share)])


def group(
    some: list[Sample], methods: list[Labelled], metrics: list[Labelled], rng: Any, share: tuple[float, ...]
) -> SampleGroup:
    """A chunk's numbers: methods differ in their means, and one score in a hundred is undefined."""
    rows = len(some)
    value = rng.normal(size=(len(methods), len(metrics), rows))
    value += np.linspace(0, 1, len(methods))[:, None, None]
    holes = rng.random(value.shape) < 0.01
    value[holes] = np.nan
    curves = torch.from_numpy(rng.random((len(methods), CURVES, rows, STEPS)))
    top = rng.integers(0, CLASSES, (rows, 2)).tolist()
    records = [
        {
            "name": s.name,
            "digest": s.digest,
            "label": s.label,
            "context": context_of(s),
            "top": top[i],
            "prob": [0.75, 0.125],
            "target": top[i][0],
        }
        for i, s in enumerate(some)
    ]
    columns = [
        ScoreColumn(
            m.digest,
            k.digest,
            torch.from_numpy(value[i, j]),
            ["undefined: made so" if hole else "ok" for hole in holes[i, j]],
            curves[i, j] if j < CURVES else None,
            share if j < CURVES else (),
        )
        for i, m in enumerate(methods)
        for j, k in enumerate(metrics)
    ]
    seconds = rng.random(len(methods)).tolist()
    costs = {
        m.digest: {"forwards": 64.0, "backwards": 0.0, "seconds": s} for m, s in zip(methods, seconds, strict=True)
    }
    logits = torch.from_numpy(rng.normal(size=(rows, CLASSES)).astype(np.float32))
    return SampleGroup(MODEL, 0, records, logits, scores=columns, costs=costs)


# -- what is measured ---------------------------------------------------------------------------------------


def rebuild(folder: Path, _: Any) -> None:
    """Opening it without its index, as after a copy of the chunks."""
    shutil.rmtree(folder / "index", ignore_errors=True)
    RunReader.open(folder)


def open_(folder: Path, _: Any) -> None:
    """Opening it."""
    RunReader.open(folder)


def resume(folder: Path, _: Any) -> None:
    """Opening it and finding out that nothing is missing."""
    record = json.loads((folder / "run.json").read_bytes())
    data, filed = samples(record["data"]["n"]), record["models"][0]
    methods, metrics = ([Labelled(e["label"], None, e["digest"]) for e in filed[k]] for k in ("methods", "metrics"))
    model = SimpleNamespace(identity=MODEL)
    grid = SimpleNamespace(
        model=model,
        methods=list(methods),
        metrics=list(metrics),
        target="predicted",
        seed=0,
        keeps_maps=lambda _: False,
    )
    start = time.perf_counter()
    store = Store.open(folder, create=True)
    missing = lacking(store, data, grid)
    print(json.dumps({"seconds": time.perf_counter() - start}))
    if missing:
        raise SystemExit(f"{len(missing)} samples should not be missing")


def compact(folder: Path, _: Any) -> None:
    """Few large chunks out of many small ones."""
    compaction.compact(Store.open(folder, create=True))


def scores(folder: Path, _: Any) -> None:
    """Opening it and making the table of scores."""
    table = RunReader.open(folder).scores()
    if table.height == 0 or table["score"].null_count() > 0.02 * table.height:
        raise SystemExit(f"the table lacks scores: {table}")


def leaderboard(folder: Path, _: Any) -> None:
    """From the folder to means, intervals and ranks."""
    _result(folder).leaderboard()


def differences(folder: Path, _: Any) -> None:
    """From the folder to all comparisons between two methods."""
    from heatcheck import stats

    result = _result(folder)
    stats.differences(result.scores(), result.stats_facts)


def report(folder: Path, _: Any) -> None:
    """From the folder to the page."""
    _result(folder).report(folder / "report.html")


def export(folder: Path, _: Any) -> None:
    """From the folder to a Parquet file."""
    from typer.testing import CliRunner

    from heatcheck.cli import app

    done = CliRunner().invoke(app, ["export", str(folder), "--out", str(folder / "scores.parquet")])
    if done.exit_code:
        raise SystemExit(done.output)


def _result(folder: Path) -> Any:
    from heatcheck.api.result import Result

    return Result.open(folder)


STEPS_OF = {
    "index rebuild": rebuild,
    "open": open_,
    "resume check": resume,
    "scores": scores,
    "leaderboard": leaderboard,
    "differences": differences,
    "report": report,
    "export": export,
    "compact": compact,
    "open, compacted": open_,
    "resume, compacted": resume,
    "scores, compacted": scores,
}
BARS = {
    "index rebuild": 300,
    "open": 30,
    "resume check": 30,
    "scores": 60,
    "leaderboard": 60,
    "differences": 180,
    "report": 300,
    "export": 180,
}
"""Seconds that a step may take at 50,000 samples × 23 methods × 10 metrics, within 4 GB."""


def measured(step: str, folder: Path, given: Any) -> dict[str, float]:
    """A step's seconds and peak memory, in a new process."""
    shape = ["--methods", str(given.methods), "--metrics", str(given.metrics)]
    line = [sys.executable, __file__, "--step", step, "--keep", str(folder), *shape]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        return {
            "seconds": float("nan"),
            "cpu": float("nan"),
            "peak": float("nan"),
            "problem": done.stderr.strip().splitlines()[-1],
        }
    told: dict[str, float] = {}
    for text in done.stdout.splitlines():
        told = {**json.loads(text), **told} if text.startswith("{") else told
    return told


def one(step: str, folder: Path, given: Any) -> None:
    """Run a step here, and print what it took."""
    import polars  # noqa: F401

    import heatcheck.stats  # noqa: F401

    start, processor = time.perf_counter(), time.process_time()
    STEPS_OF[step](folder, given)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    took = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - processor, "peak": peak}
    print(json.dumps(took))


def disk(folder: Path) -> tuple[int, int]:
    """Bytes and files of a run."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".html", ".parquet")]
    return sum(path.stat().st_size for path in files), len(files)


def main() -> None:
    """Build, measure, print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("sizes", type=int, nargs="*", default=[1000, 10_000], help="numbers of samples")
    options.add_argument("--methods", type=int, default=23)
    options.add_argument("--metrics", type=int, default=10)
    options.add_argument("--only", help=f"steps, with semicolons between: {', '.join(STEPS_OF)}")
    options.add_argument("--keep", type=Path, help="the run's folder; one that is there is not built again")
    options.add_argument("--json", action="store_true", help="one line of JSON per step")
    options.add_argument("--step", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.step:
        one(given.step, given.keep, given)
        return
    steps = given.only.split(";") if given.only else list(STEPS_OF)
    table = Table(title=f"{given.methods} methods × {given.metrics} metrics, without maps")
    for column in ("samples", "step", "seconds", "of processors", "peak MB", "µs per cell", "bar"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for n in given.sizes:
        folder = given.keep / str(n) if given.keep else Path(tempfile.mkdtemp(prefix="heatcheck-scale-"))
        cells = n * given.methods * given.metrics
        for step in ([] if (folder / "run.json").exists() else ["build"]) + steps:
            if step == "build":
                start, processor = time.perf_counter(), time.process_time()
                build(folder, n, given.methods, given.metrics)
                told = {
                    "seconds": time.perf_counter() - start,
                    "cpu": time.process_time() - processor,
                    "peak": float("nan"),
                }
            else:
                told = measured(step.strip(), folder, given)
            size, files = disk(folder)
            row = {"samples": n, "step": step.strip(), **told, "bytes_per_cell": size / cells, "files": files}
            if given.json:
                print(json.dumps(row), flush=True)
            else:
                bar = BARS.get(step.strip())
                took, each = told["seconds"], 1e6 * told["seconds"] / cells
                words = told.get("problem", f"{took:,.1f}")
                table.add_row(
                    f"{n:,}",
                    step,
                    words,
                    f"{told['cpu']:,.1f}",
                    f"{told['peak'] / 1e6:,.0f}",
                    f"{each:.2f}",
                    f"{bar or '–'}",
                )
                print(f"{n:,} {step}: {words} s, {size / cells:.1f} bytes per cell, {files:,} files", file=sys.stderr)
        if not given.keep:
            shutil.rmtree(folder)
    if not given.json:
        Console().print(table)


if __name__ == "__main__":
    main()
