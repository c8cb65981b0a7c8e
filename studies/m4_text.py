"""M4 on texts: two encoders learn movie reviews, and M4's methods and metrics are run on both, with PScore over them."""

import argparse

from studies.common import RUNS, SHARED, needed, table, timed
from studies.encoders import ENCODERS

import heatcheck as hc

MOVIES = SHARED / "data" / "movies.tar.gz"
METHODS = ["LIME", "IG", "SG", "GA", "BT/H", "BT/T", "random", "constant"]


def main() -> None:
    wanted = arguments()
    needed(MOVIES)
    models = {}
    for label, folder in [(label, ENCODERS[label]()) for label in wanted.encoders]:
        out = RUNS / f"m4-text-{label.lower()}-{wanted.tokens}"
        with timed(f"fine-tuning {label}"):
            done = hc.train(
                "text",
                variant="small",
                settings={"epochs": wanted.epochs, "tokens": wanted.tokens},
                model=f"hf:{folder}",
                data=reviews("train", wanted.learnt),
                held_out=reviews("test", wanted.learnt),
                out=out,
            )
        print(f"{label}: accuracy on held-out reviews", done.record.accuracy)
        models[label] = done.spec
    small = [f"lime(samples={wanted.lime})", f"integrated_gradients(steps={wanted.steps})"]
    small += [f"smoothgrad(samples={wanted.steps})", "generic_attribution", f"bt_head(steps={wanted.steps})"]
    small += [f"bt_token(steps={wanted.steps})", "random", "constant"]
    curves = {metric: f"{metric}(steps={wanted.steps})" for metric in ("morf", "abpc")}
    metrics = curves | {"pscore": "pscore", "infidelity": "infidelity"}
    benchmark(models, "m4-text", dict(zip(METHODS, small, strict=True)), metrics, wanted.samples, wanted)
    if wanted.whole:
        benchmark(models, "m4-text-whole", None, None, wanted.whole, wanted)


def arguments() -> argparse.Namespace:
    """How large the study is; by default as its page tells."""
    options = argparse.ArgumentParser(prog="python -m studies.m4_text", description=__doc__)
    options.add_argument("--samples", type=int, default=40, help="documents of the validation split")
    options.add_argument(
        "--whole", type=int, default=3, help="documents that M4's full settings are run on; 0 for none"
    )
    options.add_argument("--tokens", type=int, default=256, help="tokens of a document that are read")
    options.add_argument("--lime", type=int, default=250, help="masks of LIME")
    options.add_argument("--steps", type=int, default=20, help="steps of IG, BT and curves, copies of SG")
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--learnt", type=int, default=0, help="documents that are learnt from; 0 for all")
    options.add_argument("--encoders", nargs="+", choices=list(ENCODERS), default=["MiniLM-L3", "DeBERTa-L6"])
    return options.parse_args()


def reviews(split: str, many: int) -> object:
    """The documents of a split, or some of them."""
    spec = f"eraser:{MOVIES}:{split}"
    return hc.load_data(spec, samples=many) if many else spec


def benchmark(
    models: dict[str, str],
    name: str,
    methods: dict[str, str] | None,
    metrics: dict[str, str] | None,
    samples: int,
    wanted: argparse.Namespace,
) -> None:
    """Run M4's metrics and print a table of each, models beside each other; without methods and metrics, the profile's."""
    with timed(f"{name}, {samples} documents"):
        result = hc.Benchmark(
            models=models,
            data=f"eraser:{MOVIES}:val",
            methods=methods,
            metrics=metrics,
            profile="m4",
            preprocess=f"tokens={wanted.tokens}",
            samples=samples,
        ).run(RUNS / name, workers=2)
    board = result.leaderboard().full
    for metric in dict.fromkeys(board["metric"]):
        rows = []
        for method in METHODS:
            cells = board.filter((board["metric"] == metric) & (board["method"] == method))
            means = dict(zip(cells["model"], cells["mean"], strict=True))
            rows.append((method, *("–" if means.get(m) is None else f"{means[m]:.4f}" for m in models)))
        table((metric, *models), rows)
    print("page:", result.report(RUNS / name / "report.html"))


if __name__ == "__main__":
    main()
