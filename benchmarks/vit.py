"""A real vision transformer: OpenAI CLIP's ViT-B/16 with its zero-shot ImageNet head, built as a user would build it.

    python benchmarks/vit.py --sheet sheet.png --samples 8       # every method on eight pictures, as one PNG
    python benchmarks/vit.py --samples 50 --out runs/vit         # accuracy, and SDS with 95 % intervals as a table

The weights are two files, found under `$HEATCHECK_SHARED/weights` or `../shared/weights`: the image tower in int8 with
a scale per row, and the embeddings of the 1,000 class names. Nothing of the package knows this network.
"""

import argparse
import os
from pathlib import Path

import polars as pl
import torch
import torch.nn.functional as F
from common import settle
from safetensors.torch import load_file
from torch import Tensor, nn

import heatcheck as hc
from heatcheck import stats
from heatcheck.cli.explain import Explanation, sheet
from heatcheck.models.vision_shim import load_transformers

SHARED = Path(os.environ.get("HEATCHECK_SHARED", Path(__file__).parents[2] / "shared"))
TOWER = "weights/clip_vit_b16_visual_openai_int8.safetensors"
HEAD = "weights/clip_vit_b16_imagenet1k_text_head.safetensors"
PICTURES = "data/imagenet-val-2000"
PREPROCESS = hc.Preprocess(
    mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711), size=224, resize=224
)
ATTENTION = (
    "rollout",
    "attention_grad_cam",
    "generic_attribution",
    "bt_head(steps=10)",
    "bt_token(steps=10)",
    "transformer_attribution",
    "legrad",
    "attn_lrp",
    "attn_lrp(variant=cp, gamma=0.1)",
    "lrp",
)
OTHERS = ("saliency", "saliency(post=abs)", "input_x_gradient", "random")


class ZeroShot(nn.Module):
    """Class scores are a hundred times the cosines between a picture's embedding and those of the class names."""

    def __init__(self, tower: nn.Module, names: Tensor) -> None:
        super().__init__()
        self.tower = tower
        self.register_buffer("names", F.normalize(names, dim=-1))

    def forward(self, pixels: Tensor) -> Tensor:
        image = F.normalize(self.tower(pixel_values=pixels).image_embeds, dim=-1)
        return 100 * image @ self.names.T


def load(shared: Path = SHARED) -> ZeroShot:
    """The classifier in float32, from the files beside the project."""
    clip = load_transformers()
    config = clip.CLIPVisionConfig(
        hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, patch_size=16,
        image_size=224, projection_dim=512, hidden_act="quick_gelu",
    )  # fmt: skip
    tower = clip.CLIPVisionModelWithProjection(config)
    missing, unexpected = tower.load_state_dict(floats(load_file(shared / TOWER)), strict=False)
    if unexpected or any(not name.endswith("position_ids") for name in missing):
        raise SystemExit(f"{shared / TOWER} is not this network: lacks {missing}, has {unexpected}")
    return ZeroShot(tower, load_file(shared / HEAD)["gpt3"].float()).eval()


def floats(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights in float32: `X.int8` times `X.scale`, one scale per row; the rest as it is."""
    whole = {name: value.float() for name, value in stored.items() if not name.endswith((".int8", ".scale"))}
    for name, value in stored.items():
        if name.endswith(".int8"):
            bare = name.removesuffix(".int8")
            whole[bare] = value.float() * stored[f"{bare}.scale"].float()[:, None]
    return whole


def as_model(network: nn.Module) -> hc.Model:
    """The network with CLIP's preprocessing."""
    return hc.load_model(network, name="CLIP ViT-B/16", preprocess=PREPROCESS)


def accuracy(model: hc.Model, data: hc.Dataset) -> float:
    """The share of pictures whose label is predicted."""
    with torch.inference_mode():
        right = [int(model.logits(model.encode(s)).argmax()) == s.label for s in data]
    return sum(right) / len(right)


def draw(model: hc.Model, data: hc.Dataset, methods: tuple[str, ...], out: Path) -> None:
    """Every picture under every method, as one PNG; eight pictures fill a micro-batch."""
    inputs = [model.encode(sample) for sample in data]
    pixels = torch.cat([x["pixels"] for x in inputs])
    found = []
    for method in methods:
        heat = hc.explain(model, pixels, method=method)
        for sample, x, values, aim in zip(data, inputs, heat.values.float().numpy(), heat.target.tolist(), strict=True):
            shown = model.display(sample, x)
            found.append(Explanation(sample.name, method, aim, model.class_name(aim), shown, values))
    sheet(found).save(out)


def table(result: hc.Result) -> str:
    """SDS of every method as a table of the documentation, best first."""
    board = stats.leaderboard(result.scores(), result.stats_facts).sort("mean", descending=True, nulls_last=True)
    lines = ["| method | SDS | 95 % interval | against random | pictures |", "| --- | --- | --- | --- | --- |"]
    verdicts = {True: "better", False: "not better", None: ""}
    for row in board.filter(pl.col("n_ok") > 0).iter_rows(named=True):
        interval = "" if row["low"] is None else f"{row['low']:+.2f} to {row['high']:+.2f}"
        verdict = verdicts[row["beats_random"]]
        lines.append(f"| `{row['method']}` | {row['mean']:+.2f} | {interval} | {verdict} | {row['n_ok']} |")
    return "\n".join(lines)


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--sheet", type=Path, help="draw a contact sheet into this PNG, and no table")
    parser.add_argument("--out", type=Path, default=Path("runs/vit"), help="the run's folder")
    parser.add_argument("--methods", help="some methods, with semicolons; all by default")
    options = parser.parse_args()
    settle()
    methods = tuple(options.methods.split(";")) if options.methods else (*ATTENTION, *OTHERS)
    model = as_model(load())
    data = hc.load_data(f"folder:{SHARED / PICTURES}", samples=options.samples, seed=0)
    if options.sheet:
        draw(model, data, methods, options.sheet)
        return
    print(f"accuracy on {len(data)} pictures: {accuracy(model, data):.2f}")
    bench = hc.Benchmark(models=model, data=data, methods=methods, metrics=["sds"])
    print(table(bench.run(options.out, threads=1)))


if __name__ == "__main__":
    main()
