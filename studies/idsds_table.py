"""IDSDS's whole table on CIFAR-10: all methods of the profile on four aligned ResNets and one as it was, beside the paper."""

import sys

from studies.common import CIFAR10, RUNS, needed, table, timed
from studies.idsds_cifar import DEPTHS, WEIGHTS, aligned

import heatcheck as hc


def main(samples: int = 24, *depths: int) -> None:
    needed(CIFAR10, *WEIGHTS.values())
    models = {f"ResNet-{depth}": aligned(depth).spec for depth in depths or DEPTHS}
    models["ResNet-20, not aligned"] = str(WEIGHTS[20])
    bench = hc.Benchmark(models=models, data=f"cifar10:{CIFAR10}", profile="idsds", samples=samples)
    with timed("scores"):
        bench.run(RUNS / "idsds-table", workers=2)
    found = hc.compare(RUNS / "idsds-table", "idsds")
    for name in ("correlations", "claims"):
        shown = found.tables[name]
        table(shown.columns, [tuple(_short(value) for value in row) for row in shown.iter_rows()])
    print("page:", found.save(RUNS / "idsds-table-compared"))


def _short(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else "–" if value is None else str(value)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
