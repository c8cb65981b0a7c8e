"""ROAR and KAR of three methods, random and Sobel at three levels, with two seeds, on CIFAR-10."""

from studies.common import CIFAR10, RUNS, SHARED, needed, table, timed

import heatcheck as hc


def main() -> None:
    weights = SHARED / "weights" / "cifar10_resnet20_akamaster.safetensors"
    needed(CIFAR10, weights)
    with timed("ROAR and KAR"):
        found = hc.roar(
            str(weights),
            f"cifar10:{CIFAR10}",
            methods=["saliency", "integrated_gradients(steps=10)", "grad_cam"],
            levels=(10, 50, 90),
            seeds=2,
            protocols=("roar", "kar"),
            network="small:vgg(depth=8, width=8, norm=batch)",
            variant="small",
            workers=2,
            out=RUNS / "roar",
        )
    rows = found.accuracies()
    table(rows.columns, rows.rows())
    print(found.result.leaderboard())
    print("page:", found.result.report(RUNS / "roar" / "report.html"))


if __name__ == "__main__":
    main()
