"""IDSDS on ImageNet's own pictures: EfficientNet-Lite0 aligned on 1,600 of 2,000, measured on the others."""

import sys

from studies.common import RUNS, SHARED, needed, score_rows, table, timed

import heatcheck as hc
from heatcheck.stats.claims import absolute_pairs, ranks_alike, raw_beats_absolute, smooth_pairs, smoothing_hurts

METHODS = {
    "I×G": "input_x_gradient",
    "I×G abs.": "input_x_gradient(post=abs)",
    "I×G-SG": "smoothgrad(of=input_x_gradient)",
    "IG": "integrated_gradients(steps=16)",
    "IG abs.": "integrated_gradients(steps=16, post=abs)",
    "IG-SG": "smoothgrad(of=integrated_gradients(steps=4))",
    "IG-U": "integrated_gradients(steps=16, baseline=uniform)",
    "Saliency": "saliency",
    "Grad-CAM": "grad_cam",
    "Grad-CAM++": "grad_cam_pp",
    "XGrad-CAM": "xgrad_cam",
    "Layer-CAM": "layer_cam",
    "LRP": "lrp",
    "DeepLIFT": "deep_lift",
    "random": "random",
}


def main(samples: int = 100) -> None:
    pictures = SHARED / "data" / "imagenet-val-2000"
    needed(pictures)
    data = f"imagenet:{pictures}"
    with timed("alignment"):
        aligned = hc.train("align", variant="small", model="efficientnet_lite0", data=data, out=RUNS / "lite0-aligned")
    with timed("Table 3 and likeness"):
        found = hc.compare_alignment(after=aligned.spec, other=other(), progress="none")
    found.save_sheet(RUNS / "lite0-channels.png")
    table(
        ("top-1 of 400", "before", "after", "change"),
        [
            (name, *(f"{e.value:.3f} ({e.low:.3f} to {e.high:.3f})" for e in (b.before, b.after, b.change)))
            for name, b in (("clean", found.clean), ("under the worst deletion", found.worst))
        ],
    )
    rows = [("before and after", found.likeness)] + (
        [(f"before and {found.other}", found.yardstick)] if found.other else []
    )
    table(
        ("mean absolute difference", "probability of the label", "Grad-CAM"),
        [(name, f"{like.probability.value:.4f}", f"{like.grad_cam.value:.4f}") for name, like in rows],
    )
    print("pictures that channels respond to, in common:", [f"{c.number}: {c.common:.0%}" for c in found.channels])
    with timed("scores"):
        bench = hc.Benchmark(
            models={"before": "efficientnet_lite0", "after": aligned.spec},
            data=f"test_part:{data}",
            methods=METHODS,
            metrics=["sds"],
            profile="idsds",
            samples=samples,
        )
        result = bench.run(RUNS / "lite0-idsds", workers=2)
    table(("method", "SDS before", "IDSDS after"), score_rows(result, {"before": "sds", "after": "idsds"}))
    scores, methods = result.scores(), [m for m in METHODS if m != "random"]
    facts = result.facts["methods"]
    print(ranks_alike(scores, ("before", "sds"), ("after", "idsds"), methods=methods))
    print(smoothing_hurts(scores, smooth_pairs(facts), models=["after"]))
    print(raw_beats_absolute(scores, absolute_pairs(facts), models=["after"]))
    print("page:", result.report(RUNS / "lite0-idsds" / "report.html"))


def other() -> str | None:
    """Another architecture as a yardstick, where its weights are there."""
    weights = SHARED / "weights" / "squeezenet1_0_imagenet.safetensors"
    return f"squeezenet1_0_v1@{weights}" if weights.exists() else None


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
