"""IDSDS over depth: the CIFAR-10 ResNets 20, 32, 44 and 56, aligned, on the same 500 pictures."""

import sys

from studies.common import CIFAR10, RUNS, SHARED, needed, score_rows, table, timed
from studies.idsds_imagenet import METHODS as SLOWER

import heatcheck as hc
from heatcheck.api.train import Trained
from heatcheck.stats.claims import absolute_pairs, falls_with_depth, raw_beats_absolute, smooth_pairs, smoothing_hurts

METHODS = {label: spec.replace("steps=16", "steps=8") for label, spec in SLOWER.items()}
DEPTHS = (20, 32, 44, 56)
WEIGHTS = {depth: SHARED / "weights" / f"cifar10_resnet{depth}_akamaster.safetensors" for depth in DEPTHS}


def main(samples: int = 500) -> None:
    needed(CIFAR10, *WEIGHTS.values())
    models, accuracies = {}, []
    for depth in DEPTHS:
        done = aligned(depth)
        models[f"ResNet-{depth}"] = done.spec
        accuracies.append((f"ResNet-{depth}", *(f"{done.record.accuracy[k]:.3f}" for k in ("before", "chosen"))))
    table(("top-1 of 10,000", "before", "after"), accuracies)
    bench = hc.Benchmark(
        models=models, data=f"cifar10:{CIFAR10}", methods=METHODS, metrics=["sds"], profile="idsds", samples=samples
    )
    with timed("scores"):
        result = bench.run(RUNS / "cifar-idsds", workers=2)
    table(("IDSDS", *models), score_rows(result, dict.fromkeys(models, "idsds")))
    scores, facts, names = result.scores(), result.facts["methods"], list(models)
    methods = [m for m in METHODS if m != "random"]
    depths = {f"ResNet-{d}": float(d) for d in DEPTHS}
    for verdict in (
        falls_with_depth(scores, depths, methods=methods),
        smoothing_hurts(scores, smooth_pairs(facts), models=names),
        raw_beats_absolute(scores, absolute_pairs(facts), models=names),
    ):
        print(verdict)
    print("page:", result.report(RUNS / "cifar-idsds" / "report.html"))


def aligned(depth: int) -> Trained:
    """A ResNet after alignment, which is done once."""
    with timed(f"alignment of ResNet-{depth}"):
        return hc.train(
            "align",
            variant="cifar",
            model=str(WEIGHTS[depth]),
            data=f"cifar10:{CIFAR10}",
            out=RUNS / f"r{depth}-aligned",
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
