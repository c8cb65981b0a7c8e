"""Runs from different machines joined into one folder."""

from collections.abc import Callable, Iterable
from pathlib import Path

from heatcheck.core.types import HeatcheckError
from heatcheck.run.merge import Merged, merge_runs


def merge(runs: Iterable[str | Path], out: str | Path, *, tell: Callable[[str], object] = lambda line: None) -> Merged:
    """Join runs into a folder of their own: the union of what they have computed, shards or whole studies.

    The runs themselves stay as they are. Where two of them have different values of one cell, the first one's is kept and
    both are reported; damaged files are left out and reported. `Result.open(out)` reads the result.

    >>> merged = merge(["runs/1", "runs/2"], out="runs/all")   # doctest: +SKIP
    >>> for line in merged.lines():                             # doctest: +SKIP
    ...     print(line)

    Args:
        runs: folders that `heatcheck run` made.
        out: a new folder, or one that an earlier merge of them was making.
        tell: told of each run when its turn comes.

    Raises:
        HeatcheckError: there is nothing to merge, or `out` is a run of its own.
    """
    folders = [Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    if not folders:
        raise HeatcheckError("merge needs the folders of the runs that it joins, and got none")
    return merge_runs(folders, Path(out), tell)
