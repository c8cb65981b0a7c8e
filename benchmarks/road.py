"""ROAD's imputation: milliseconds per deletion, ours against the published procedure and pytorch-grad-cam's copy of it.

    python benchmarks/road.py
    python benchmarks/road.py --size 384 --repeats 5

Scattered holes are what gradient maps leave, blobs what CAMs leave. All solvers see the same pictures and holes in
turns, in seconds of the processor with one thread, and the table says how far their results are apart. The whole metric
against pytorch-grad-cam's, model passes included, is a row of `benchmarks/metrics.py`.
"""

import argparse
from collections.abc import Callable

import numpy as np
import torch
from common import attempt, clock, median, settle
from rich.console import Console
from rich.table import Table
from scipy import ndimage
from scipy.sparse import csc_matrix, lil_matrix
from scipy.sparse.linalg import spsolve

from heatcheck.fills.linear import grid_system, neighbour_means
from heatcheck.models.vision_shim import load_torchvision

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
KINDS = ("scattered", "blobs")
NEIGHBOURS = [((dy, dx), 1 / 6 if 0 in (dy, dx) else 1 / 12) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]

Impute = Callable[[np.ndarray, np.ndarray], np.ndarray]


def published(picture: np.ndarray, hole: np.ndarray) -> np.ndarray:
    """The authors' way: a list-of-lists matrix filled neighbour by neighbour, and a general sparse solver."""
    h, w = hole.shape
    y, x = np.nonzero(hole)
    n = len(y)
    number = np.full((h, w), -1)
    number[hole] = np.arange(n)
    left, right, weight = lil_matrix((n, n)), np.zeros((n, picture.shape[2])), np.ones(n)
    for (dy, dx), share in NEIGHBOURS:
        inside = (y + dy >= 0) & (y + dy < h) & (x + dx >= 0) & (x + dx < w)
        weight[~inside] -= share
        rows = np.flatnonzero(inside)
        at = y[rows] + dy, x[rows] + dx
        known = ~hole[at]
        right[rows[known]] += share * picture[at][known]
        left[rows[~known], number[at][~known]] = -share
    left[np.arange(n), np.arange(n)] = weight
    return spsolve(csc_matrix(left), right)


def grad_cam() -> Impute:
    """Pytorch-grad-cam's imputer without its noise; it takes and gives single precision."""
    load_torchvision()  # it wants that too
    from pytorch_grad_cam.metrics.road import NoisyLinearImputer

    call = NoisyLinearImputer(noise=0.0)

    def impute(picture: np.ndarray, hole: np.ndarray) -> np.ndarray:
        filled = call(torch.from_numpy(picture).permute(2, 0, 1).float(), torch.from_numpy(~hole).float())
        return filled.permute(1, 2, 0).numpy()[hole]

    return impute


def hole_of(kind: str, share: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """The top share of noise, or of a coarse map drawn smoothly as a CAM is."""
    heat = rng.random((size, size))
    if kind == "blobs":
        heat = ndimage.zoom(rng.random((7, 7)), size / 7, order=1)[:size, :size]
    return heat > np.quantile(heat, 1 - share)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--size", type=int, default=224, help="pixels per side")
    options.add_argument("--repeats", type=int, default=3)
    given = options.parse_args()
    settle()
    reasons: dict[str, str] = {}
    solvers: dict[str, Impute | None] = {
        "ours": neighbour_means,
        "published": published,
        "grad-cam": attempt(grad_cam, "grad-cam", reasons),
    }
    there = {who: call for who, call in solvers.items() if call}
    rng = np.random.default_rng(0)
    noise = rng.random((given.size, given.size, 3))
    picture = 0.9 * ndimage.gaussian_filter(noise, (3, 3, 0)) + 0.1 * noise
    grid_system(given.size, given.size)
    table = Table(title=f"ms per deletion, {given.size} × {given.size} pixels, 3 channels, one thread")
    for column in ("holes", "removed", *there, *(f"{who} ÷ ours" for who in there if who != "ours"), "largest gap"):
        table.add_column(column, justify="left" if column == "holes" else "right")
    for kind in KINDS:
        for share in SHARES:
            spent: dict[str, list[float]] = {who: [] for who in there}
            gap = 0.0
            for _ in range(given.repeats):
                hole = hole_of(kind, share, given.size, rng)
                found = {}
                for who, call in there.items():
                    start = clock()
                    found[who] = call(picture, hole)
                    spent[who].append(clock() - start)
                gap = max(gap, *(float(np.abs(found[who] - found["ours"]).max()) for who in there))
            ms = {who: 1000 * (median(times) or 0.0) for who, times in spent.items()}
            ratios = [f"{ms[who] / ms['ours']:.1f}" for who in there if who != "ours"]
            table.add_row(kind, f"{share:.0%}", *(f"{v:.0f}" for v in ms.values()), *ratios, f"{gap:.0e}")
    Console().print(table)
    for who, why in reasons.items():
        print(f"{who}: {why}")


if __name__ == "__main__":
    main()
