"""One thread, repeatable properties, and the folder of shared facts."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from tests import shapes
from tests.browser import CHROMIUM, Browser

shapes.install()
torch.set_num_threads(1)
os.environ.setdefault(
    "HEATCHECK_DIGESTS", "off"
)  # pictures of tests come and go; the user's memory of files is not theirs
# Ray asks the system to serve its workers last; beside other tests they would wait for minutes.
os.environ.setdefault("RAY_worker_niceness", "0")
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60, database=None)
settings.load_profile("repeatable")


def pytest_runtest_setup() -> None:
    """The first calls of every test are checked."""
    shapes.begin_test()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with specifications, published tables and sample data."""
    given = os.environ.get("HEATCHECK_SHARED")
    folder = Path(given) if given else Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"no shared folder at {folder}; set HEATCHECK_SHARED")
    return folder


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium, started once; see `tests/browser.py`."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with Browser() as started:
        yield started


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


@pytest.fixture(scope="session")
def make_pictures():
    """Writes small pictures of noise, dark or bright, to a folder with one folder per class."""
    import numpy as np
    from PIL import Image

    def make(folder: Path, classes=("dark", "bright"), each: int = 10) -> Path:
        rng = np.random.default_rng(0)
        for i, name in enumerate(classes):
            (folder / name).mkdir(parents=True)
            for k in range(each):
                pixels = rng.integers(0, 128, (16, 16, 3)).astype(np.uint8) + np.uint8(110 * (i % 2))
                Image.fromarray(pixels).save(folder / name / f"{k:02d}.png")
        return folder

    return make


@pytest.fixture(scope="session")
def dark_and_bright(make_pictures, tmp_path_factory):
    """A folder with ten dark and ten bright pictures, to be learnt within seconds."""
    return make_pictures(tmp_path_factory.mktemp("data") / "pictures")
