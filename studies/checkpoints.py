"""Ranks along one training: ten checkpoints of a ResNet-20 on CIFAR-10, ranked by MoRF, LeRF and SDS."""

import sys

from rich.console import Console
from studies.common import CIFAR10, RUNS, needed, timed

import heatcheck as hc
from heatcheck.report.terminal import AlongTable

METHODS = [
    "saliency",
    "input_x_gradient",
    "integrated_gradients(steps=10)",
    "guided_backprop",
    "deconvolution",
    "deep_lift",
]
METHODS += ["lrp", "guided_grad_cam", "grad_cam", "random"]


def main(samples: int = 100) -> None:
    needed(CIFAR10)
    with timed("training"):
        done = hc.train(
            "plain", variant="small", model="small:resnet20", data=f"cifar10:{CIFAR10}", out=RUNS / "r20-plain", keep=10
        )
    print("accuracy:", [f"epoch {k.epoch:g}: {k.accuracy:.3f}" for k in done.record.kept])
    bench = hc.Benchmark(
        models=f"{done.spec}@*",
        data=f"cifar10:{CIFAR10}",
        methods=METHODS,
        metrics=["morf(steps=10)", "lerf(steps=10)", "sds"],
        target="label",
        samples=samples,
    )
    with timed("scores"):
        result = bench.run(RUNS / "r20-checkpoints", workers=2)
    page = result.report(RUNS / "r20-checkpoints" / "report.html")
    Console().print(AlongTable(result.along_training()))
    print("page:", page)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
