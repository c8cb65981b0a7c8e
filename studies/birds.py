"""Birds: a small network learns them, and methods are judged by re-rendered birds without one part."""

import sys

from studies.common import RUNS, score_rows, table, timed

import heatcheck as hc

METHODS = [
    "part_oracle",
    "saliency",
    "input_x_gradient",
    "integrated_gradients(steps=16)",
    "grad_cam",
    "guided_backprop",
    "lrp",
    "deep_lift",
    "smoothgrad(samples=8)",
    "occlusion",
    "random",
    "signed_random",
]


def main(samples: int = 300) -> None:
    with timed("training"):
        done = hc.train(
            "birds",
            variant="small",
            model="small:vgg(depth=8, width=24, norm=batch, size=64)",
            data="birds",
            out=RUNS / "birds",
        )
    print("accuracy on 500 birds:", done.record.accuracy)
    bench = hc.Benchmark(
        models={"birds": done.spec},
        data="birds",
        methods=METHODS,
        metrics=["part_deletion"],
        target="label",
        samples=samples,
    )
    with timed("scores"):
        result = bench.run(RUNS / "birds-parts", workers=2)
    table(("method", "part_deletion"), score_rows(result, {"birds": "part_deletion"}))
    print("page:", result.report(RUNS / "birds-parts" / "report.html"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
