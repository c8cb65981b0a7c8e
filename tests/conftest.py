"""One thread, repeatable properties, and the folder of shared facts."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
os.environ.setdefault(
    "HEATCHECK_DIGESTS", "off"
)  # pictures of tests come and go; the user's memory of files is not theirs
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60, database=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with specifications, published tables and sample data."""
    given = os.environ.get("HEATCHECK_SHARED")
    folder = Path(given) if given else Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"no shared folder at {folder}; set HEATCHECK_SHARED")
    return folder


@pytest.fixture(scope="session")
def make_study(tmp_path_factory):
    """Makes a study file beside a tiny real network in a checkpoint and small pictures in a folder."""
    import numpy as np
    from PIL import Image
    from safetensors.torch import save_file

    from heatcheck.models.vision_shim import load_timm

    def make(pictures: int, settings: str) -> Path:
        folder = tmp_path_factory.mktemp("study")
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = load_timm().create_model("test_resnet", pretrained=False, num_classes=7)
        save_file(network.state_dict(), folder / "weights.safetensors")
        rng = np.random.default_rng(0)
        (folder / "pictures").mkdir()
        for i in range(pictures):
            coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((64, 64)).save(folder / "pictures" / f"{i:02d}.png")
        named = f'models = ["timm:test_resnet@{folder}/weights.safetensors"]\ndata = "folder:pictures"\n'
        (folder / "study.toml").write_text(named + settings)
        return folder / "study.toml"

    return make
