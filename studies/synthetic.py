"""Squares: EfficientNet-Lite0 learns to find them, SynScore is measured, and M4's overall score is completed."""

import sys

from studies.common import RUNS, SHARED, needed, score_rows, table, timed

import heatcheck as hc

METHODS = ["saliency(post=abs)", "integrated_gradients(steps=10, post=abs)", "input_x_gradient(post=abs)", "grad_cam"]
METHODS += ["smoothgrad(samples=8, post=abs)", "occlusion(units=grid(14))", "random"]


def main(samples: int = 60) -> None:
    pictures = SHARED / "data" / "imagenet-val-2000"
    needed(pictures)
    data = f"imagenet:{pictures}"
    with timed("training"):
        done = hc.train("synthetic", variant="small", model="efficientnet_lite0", data=data, out=RUNS / "lite0-squares")
    print("accuracy on held-out pictures, half of them with a square:", done.record.accuracy)
    out = RUNS / "m4"
    with timed("SynScore"):
        squares = hc.Benchmark(
            models={"squares": done.spec},
            data=f"squares:test_part:{data}",
            methods=METHODS,
            metrics=["synscore", "synscore(kind=ap)"],
            samples=samples,
        ).run(out, workers=2)
    for kind in ("synscore", "synscore(kind=ap)"):
        table(("method", kind), score_rows(squares, {"squares": kind}))
    with timed("the other four"):
        result = hc.Benchmark(
            models=["efficientnet_lite0", *others()],
            data=f"test_part:{data}",
            methods=METHODS,
            metrics=["m4_overall"],
            profile="quick",
            samples=samples // 3,
        ).run(out, workers=2)
    print(result.leaderboard())
    print("page:", result.report(out / "report.html"))


def others() -> list[str]:
    """A second model, which PScore needs."""
    file = SHARED / "weights" / "squeezenet1_0_imagenet.safetensors"
    return [f"squeezenet1_0_v1@{file}"] if file.exists() else []


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
