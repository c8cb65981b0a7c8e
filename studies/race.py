"""A race beside the full run: the best three methods for EfficientNet-Lite0 under SDS, with a margin of 0.03.

The race comes first; the full run goes on in its folder, so that both have the same scores.
"""

import sys

from studies.common import RUNS, SHARED, needed, table, timed

import heatcheck as hc

METHODS = [
    "saliency",
    "input_x_gradient",
    "smoothgrad(samples=2)",
    "integrated_gradients(steps=4)",
    "guided_backprop",
    "deep_lift",
    "lrp",
    "grad_cam",
    "grad_cam_pp",
    "layer_cam",
    "rise(samples=16)",
    "lime(samples=16)",
]
MARGIN = 0.03


def main(samples: int = 2000) -> None:
    pictures = SHARED / "data" / "imagenet-val-2000"
    needed(pictures)
    bench = hc.Benchmark(
        models="efficientnet_lite0", data=f"imagenet:{pictures}", methods=METHODS, metrics=["sds"], samples=samples
    )
    out = RUNS / f"race-{samples}"
    with timed("race"):
        found = bench.race(out, goal="top=3", margin=MARGIN, workers=2, maps="none")
    print(*found.verdicts, found.report.footing(), "", sep="\n")
    columns = ("method", "state", "decided", "difference", "against", "low", "high", "samples", "passes")
    table(columns, [tuple(_short(row[c]) for c in columns) for row in found.table().iter_rows(named=True)])
    with timed("full run"):
        result = bench.run(out, workers=2, maps="none")
    board = result.last().leaderboard().full.filter("ranked")
    means = dict(board.select("method", "mean").iter_rows())
    table(("method", "mean SDS of all"), [(m, f"{mean:.4f}") for m, mean in means.items()])
    chosen = found.report.cases[0].race.chosen
    regret = max(means[m] for m in means if m not in chosen) - min(means[m] for m in chosen)
    print(f"the full run's best three: {', '.join(list(means)[:3])}; the race's: {', '.join(chosen)}")
    print(f"the best that was left out is better than the worst that was chosen by {regret:+.4f} (margin {MARGIN})")
    print(f"share of the passes: {found.share:.3f}")


def _short(value: object) -> str:
    return f"{value:+.3f}" if isinstance(value, float) else "–" if value is None else str(value)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
