"""A made-up run that looks like a real one: real pictures, smooth maps, scores with known merits."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from heatcheck import stats
from heatcheck.report.board import Leaderboard

SCORES = {
    "run": pl.String,
    "model": pl.String,
    "data": pl.String,
    "sample": pl.String,
    "target": pl.Int64,
    "method": pl.String,
    "metric": pl.String,
    "score": pl.Float64,
    "status": pl.String,
    "seconds": pl.Float64,
    "forwards": pl.Int64,
    "backwards": pl.Int64,
}
SAMPLES = {
    "model": pl.String,
    "sample": pl.String,
    "label": pl.Int64,
    "label_name": pl.String,
    "target": pl.Int64,
    "target_name": pl.String,
    "predicted": pl.Int64,
    "predicted_name": pl.String,
    "prob": pl.Float64,
    "status": pl.String,
}
CURVES = {"sample": pl.String, "method": pl.String, "share": pl.List(pl.Float64), "curve": pl.List(pl.Float64)}

# name: merit between 0 (random) and 1, native side of the map, forwards, backwards
METHODS = {
    "integrated_gradients(steps=50)": (0.62, 48, 50, 50),
    "grad_cam": (0.74, 7, 1, 1),
    "smoothgrad(of=input_x_gradient, samples=25)": (0.45, 48, 25, 25),
    "saliency": (0.22, 48, 1, 1),
    "input_x_gradient": (0.3, 48, 1, 1),
    "guided_backprop": (0.02, 48, 1, 1),
    "rise(masks=200)": (0.68, 48, 200, 0),
    "occlusion(units=grid(4))": (0.8, 4, 17, 0),
    "lime(samples=100)": (0.6, 14, 100, 0),
    "deep_lift": (0.4, 48, 2, 2),
    "layer_cam": (0.66, 14, 1, 1),
}
CONTROLS = {"random": (0.0, 48, 0, 0), "sobel": (0.12, 48, 0, 0), "center": (0.3, 48, 0, 0), "constant": (0.0, 4, 0, 0)}
METRICS = {
    "sds": (
        "higher",
        (-1, 1),
        "Do the units that matter most to the map matter most to the model, when each is deleted alone?",
        0.85,
        0.0,
        0.16,
    ),
    "morf": (
        "lower",
        (0, 1),
        "How fast does the class fade while the most relevant units are removed first?",
        0.12,
        0.42,
        0.09,
    ),
    "abpc": (
        "higher",
        (-1, 1),
        "How far apart are the curves of removing the most and the least relevant first?",
        0.55,
        0.0,
        0.11,
    ),
    "infidelity": (
        "lower",
        (0, None),
        "Does the map foretell how the output changes under random perturbations?",
        0.004,
        0.019,
        0.003,
    ),
    "mprt": ("higher", (None, 1), "Does the map change when the model's weights are randomised?", 0.7, 0.35, 0.12),
}
PICTURES = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png", "hubble_deep_field.jpg")
WORDS = [
    "[CLS]",
    "this",
    "film",
    "is",
    "a",
    "quiet",
    "##ly",
    "devastating",
    "portrait",
    "of",
    "two",
    "people",
    "who",
    "can",
    "##not",
    "stop",
    "hurting",
    "each",
    "other",
    "[SEP]",
]


def pictures(side):
    import skimage

    folder = Path(skimage.__file__).parent / "data"
    found = {}
    for name in PICTURES:
        image = Image.open(folder / name).convert("RGB")
        short = min(image.size)
        left, top = (image.width - short) // 2, (image.height - short) // 2
        found[name] = np.asarray(image.crop((left, top, left + short, top + short)).resize((side, side)))
    return found


def smooth(rng, side, spread):
    """A map of a few soft blobs and some noise; signed."""
    y, x = np.mgrid[0:side, 0:side] / side
    heat = np.zeros((side, side))
    for sign in (1, 1, 1, -0.5):
        cy, cx = rng.uniform(0.2, 0.8, 2)
        heat += sign * rng.uniform(0.5, 1) * np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / (2 * spread**2))
    return heat + (0.25 * rng.normal(size=heat.shape) if side > 20 else 0)


class FakeResult:
    """A `RunSource` held in memory."""

    def __init__(self, facts, scores, samples, curves, maps, displays, shown):
        self.facts = facts
        self._scores, self._samples, self._curves = scores, samples, curves
        self._maps, self._displays, self._shown = maps, displays, shown

    def scores(self):
        return self._scores

    def leaderboard(self):
        facts = stats.Facts.of(self.facts)
        return Leaderboard(stats.leaderboard(self._scores, facts), facts)

    def samples(self):
        return self._samples

    def curves(self, model, metric):
        return self._curves.get((model, metric), pl.DataFrame(schema=CURVES))

    def map(self, model, sample, method):
        return self._maps.get((model, sample, method))

    def display(self, model, sample):
        return self._displays.get((model, sample))

    def gallery(self):
        return self._shown

    def within(self, data):
        return self


def build(
    *,
    models=("tv:efficientnet_lite0",),
    methods=None,
    metrics=tuple(METRICS),
    n=24,
    text=False,
    side=48,
    shown=4,
    spoil=True,
    word=lambda kind, name: name,
    seed=0,
):
    """A run. `word(kind, name)` may rewrite any string of it; `spoil` makes some scores fail."""
    rng = np.random.default_rng(seed)
    methods = METHODS if methods is None else methods
    everyone = {word("method", m): v for m, v in {**methods, **CONTROLS}.items() if m != "random"} | {
        "random": CONTROLS["random"]
    }
    controls = {word("method", m) for m in CONTROLS} | {"random"}
    photos = pictures(side) if not text else {}
    ids = [
        word("sample", f"review {i:03d}" if text else f"{[*photos][i % len(photos)]}#{i}" if photos else f"s{i}")
        for i in range(n)
    ]
    metric_names = {m: word("metric", m) for m in metrics}
    data = word("data", "movie reviews" if text else "sample pictures")
    circular = (
        [[word("method", "occlusion(units=grid(4))"), metric_names["sds"]]]
        if "sds" in metrics and "occlusion(units=grid(4))" in methods
        else []
    )

    scores, samples, curves, maps, displays = [], [], {}, {}, {}
    hardness = rng.normal(size=n)
    for model in (word("model", m) for m in models):
        for i, sample in enumerate(ids):
            classes = (
                ["negative", "positive"] if text else ["Egyptian cat", "espresso", "space shuttle", "motor scooter"]
            )
            label, predicted = int(rng.integers(len(classes))), int(rng.integers(len(classes)))
            samples.append(
                (
                    model,
                    sample,
                    label,
                    word("class", classes[label]),
                    predicted,
                    word("class", classes[predicted]),
                    predicted,
                    word("class", classes[predicted]),
                    float(rng.uniform(0.4, 1)),
                    "ok",
                )
            )
            if text:
                tokens = [word("token", w) for w in WORDS] + [word("token", f"extra{i}")]
                displays[model, sample] = {
                    "kind": "text",
                    "tokens": tokens,
                    "special": [w.startswith("[") for w in WORDS] + [False],
                }
            else:
                displays[model, sample] = {"kind": "image", "rgb": photos[PICTURES[i % len(PICTURES)]]}
            if i >= shown:
                continue
            for method, (_, native, *_) in everyone.items():
                if text:
                    maps[model, sample, method] = rng.normal(size=len(tokens)).astype(np.float32)
                elif method == "random":
                    maps[model, sample, method] = rng.uniform(size=(side, side)).astype(np.float32)
                else:
                    heat = smooth(rng, native, 0.12 if native > 8 else 0.2)
                    maps[model, sample, method] = (np.abs(heat) if "cam" in method or "sal" in method else heat).astype(
                        np.float32
                    )
        for metric, name in metric_names.items():
            _better, _, _, good, bad, noise = METRICS[metric]
            rows = []
            for method, (merit, _, forwards, backwards) in everyone.items():
                lean = rng.normal() * 0.12 if merit else 0.0
                for i, sample in enumerate(ids):
                    level = bad + (good - bad) * (merit + lean if method not in controls else merit)
                    value = level + noise * (0.5 * hardness[i] + rng.normal())
                    status = "ok"
                    if spoil and method.startswith("constant"):
                        status = word("status", "undefined: the map's units, or the drops, are all equal")
                    elif spoil and method.startswith("lime") and i % 3:
                        status = word("status", "failed: RuntimeError: the solver did not converge")
                    ok = status == "ok"
                    scores.append(
                        (
                            "r",
                            model,
                            data,
                            sample,
                            1,
                            method,
                            name,
                            float(value) if ok else None,
                            status,
                            0.01 * (1 + forwards),
                            forwards,
                            backwards,
                        )
                    )
                    if ok and metric in ("morf", "abpc"):
                        share = np.linspace(0, 1, 11)
                        rate = 1 + 8 * max(merit + lean, 0)
                        curve = 0.8 * np.exp(-rate * share) + 0.03 * rng.normal(size=11)
                        rows.append((sample, method, share.tolist(), curve.tolist()))
            if rows:
                curves[model, name] = pl.DataFrame(rows, schema=CURVES, orient="row")
    samples.append(
        (
            word("model", models[0]),
            word("sample", "broken.png"),
            None,
            None,
            None,
            None,
            None,
            None,
            None,
            word("status", "failed: cannot identify image file"),
        )
    )
    facts = {
        "name": word("name", "First look"),
        "created": word("created", "2026-05-04 10:11:12 UTC"),
        "heatcheck_version": word("version", "0.1.0"),
        "profile": word("profile", "quick"),
        "profile_note": word(
            "note", "Quick: fewer samples and steps than the papers; good for a look, not for a claim."
        ),
        "seed": 0,
        "target": word("target", "predicted"),
        "study": {"samples": n, "nested": {"list": [1, 2, {"deep": word("study", "x")}]}},
        "environment": {"torch": "2.13.0", "python": word("environment", "3.13.1"), "cpu": "AVX2"},
        "numerics": {"batch": 16, "threads": 2, "dtype": word("numerics", "float32")},
        "models": [
            {
                "name": word("model", m),
                "identity": "sha256:ab12cd34",
                "modality": "text" if text else "image",
                "classes_known": True,
                "note": word("modelnote", "eval mode"),
            }
            for m in models
        ],
        "data": {"name": data, "n": n, "notes": [word("datanote", "centre crop")]},
        "methods": [
            {
                "name": m,
                "id": m.partition("(")[0],
                "summary": word("summary", "Spread the output over the input."),
                "control": m in controls,
                "paper": word("paper", "someone2020"),
                "cost": word("cost", f"{v[2]} forwards"),
            }
            for m, v in everyone.items()
        ],
        "metrics": [
            {
                "name": metric_names[m],
                "id": m,
                "summary": word("summary", METRICS[m][2]),
                "better": METRICS[m][0],
                "within": list(METRICS[m][1]),
                "paper": word("paper", "hesse2024"),
                "cost": word("cost", "17 forwards, shared"),
                "differs": word("differs", "an undefined score is a status."),
            }
            for m in metrics
        ],
        "circular": circular,
        "skipped": [
            {
                "model": word("model", models[0]),
                "method": word("method", "rollout"),
                "metric": None,
                "reason": word("reason", "needs attention layers, and the model has none"),
            },
            {
                "model": word("model", models[0]),
                "method": word("method", "grad_cam"),
                "metric": metric_names[metrics[0]] if metrics else None,
                "reason": word("reason", "not asked"),
            },
        ],
        "passes": {"forwards": 18234, "backwards": 3120, "asked": 40211, "seconds": 181.2},
    }
    gallery = [(word("model", m), s) for m in models for s in ids[:shown]]
    return FakeResult(
        facts,
        pl.DataFrame(scores, schema=SCORES, orient="row"),
        pl.DataFrame(samples, schema=SAMPLES, orient="row"),
        curves,
        maps,
        displays,
        gallery,
    )


@pytest.fixture(scope="session")
def fake():
    return build
