"""A grid that runs in two seconds, whose model, method and metric do on given pictures what a trap file says."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

PLUGIN = '''
"""A model, a method and a metric that stumble where trap.json says: {"who", "what", "pictures": [sums of pixels]}."""

import ctypes
import json
import time
from pathlib import Path

import torch
from torch import nn

import heatcheck as hc

HERE = Path(__file__).parent


def key(picture):
    return round(float(((picture.double() + 1) * 127.5).round().sum()))


def trapped(x, who):
    """What the trap does, and on which rows; nothing where none is set for this part."""
    try:
        trap = json.loads((HERE / "trap.json").read_text())
    except FileNotFoundError:
        return None, []
    if trap["who"] != who:
        return None, []
    if trap["what"] == "oom":
        if len(x) > trap["most"]:
            raise torch.OutOfMemoryError("out of memory")
        return None, []
    rows = [i for i, one in enumerate(x.detach()) if key(one) in trap["pictures"]]
    return (trap["what"] if rows else None), rows


def spring(what, rows, values):
    """Values as the trap spoils them."""
    if what is None:
        return values
    if what == "raise":
        raise ValueError("a trap")
    if what == "segfault":
        ctypes.string_at(0)
    if what == "hang":
        time.sleep(10_000)
    if what == "shape":
        return values[..., :-1]
    if what == "none":
        return None
    spoilt = values.clone()
    spoilt[rows] = {"nan": float("nan"), "inf": float("inf")}[what]
    return spoilt


class Network(nn.Sequential):
    def __init__(self, seed):
        super().__init__(
            nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(96, 5)
        )
        rng = torch.Generator().manual_seed(seed)
        for weight in self.parameters():
            nn.init.normal_(weight, 0, 0.3, generator=rng)

    def forward(self, x):
        return spring(*trapped(x, "model"), super().forward(x))


def first():
    return Network(0)


def second():
    return Network(1)


@hc.method("stumbles", uses=())
def stumbles(model, x, target):
    return spring(*trapped(x, "method"), x * 1.0)


@hc.metric("weighs", better="higher")
def weighs(model, x, target, maps):
    spoilt = spring(*trapped(x, "metric"), maps.abs().flatten(2).mean(2).T)
    return None if spoilt is None else spoilt.T
'''
METHODS = ("saliency", "rise(samples=8)", "stumbles", "random")
METRICS = ("sds", "infidelity(samples=4)", "weighs")
MODELS = ("first", "second")


def make_toy(folder: Path, pictures: int, *, models: tuple[str, ...] = MODELS, plain: bool = False) -> Path:
    """A study file beside its plugin and pictures.

    Args:
        folder: where.
        pictures: how many.
        models: which of the plugin's.
        plain: without the plugin's own method and metric.
    """
    (folder / "pictures").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(pictures):
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(folder / "pictures" / f"{i:03d}.png")
    plugin = folder / "toy.py"
    plugin.write_text(PLUGIN.partition("@hc.")[0] if plain else PLUGIN)
    settings: dict[str, Any] = {
        "models": [f"{plugin}:{name}" for name in models],
        "data": f"folder:{folder / 'pictures'}",
        "preprocess": "mean=0.5 0.5 0.5,std=0.5 0.5 0.5,size=16,resize=16",
        "plugins": [] if plain else [str(plugin)],
        "methods": [name for name in METHODS if not plain or name != "stumbles"],
        "metrics": [name for name in METRICS if not plain or name != "weighs"],
    }
    study = folder / "study.toml"
    study.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    return study


def key_of(picture: Path) -> int:
    """How a trap names a picture."""
    with Image.open(picture) as opened:
        return int(np.asarray(opened, dtype=np.int64).sum())


def set_trap(study: Path, **trap: Any) -> None:
    """Set a trap, or remove it."""
    path = study.with_name("trap.json")
    path.unlink(missing_ok=True)
    if trap:
        path.write_text(json.dumps(trap))
