"""Every Python block of the README and of docs/ runs, page by page, as a reader would paste it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [
    name
    for name in ["README.md", *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").glob("*.md"))]
    if BLOCK.search((ROOT / name).read_text(encoding="utf-8"))
]
PICTURE = """
import numpy, PIL.Image
noise = numpy.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=numpy.uint8)
"""
READERS_OWN = {
    "README.md": """
import torch
my_module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 5))
my_dataset = [(torch.rand(3, 16, 16), i % 5) for i in range(8)]
my_method, model, x = "saliency", my_module, torch.rand(4, 3, 16, 16)
""",
    "docs/compare.md": """
import torch
import heatcheck as hc
network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 5))
photos = [(torch.rand(3, 16, 16), i % 5) for i in range(4)]
hc.Benchmark(models=network, data=photos, methods=["saliency", "input_x_gradient"], metrics=["sds"]).run("runs/idsds")
""",
    "docs/gate.md": """
import torch
import heatcheck as hc
photos = [(torch.rand(3, 16, 16), i % 5) for i in range(6)]
for name in ("full", "int8"):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 5))
    bench = hc.Benchmark(models={name: network}, data=photos, methods=["saliency"], metrics=["sds"], target=0)
    bench.run(f"runs/{name}")
""",
    "docs/multiverse.md": """
import torch
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 5))
photos = [(torch.rand(3, 16, 16), i % 5) for i in range(4)]
""",
    "docs/race.md": """
import torch
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 5))
photos = [(torch.rand(3, 16, 16), i % 5) for i in range(18)]
""",
    "docs/ranking.md": """
import torch
import heatcheck as hc
photos = [(torch.rand(3, 16, 16), i % 5) for i in range(4)]
for name in ("lite0", "resnet50"):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 5))
    bench = hc.Benchmark(
        models={name: network}, data=photos, methods=["saliency", "input_x_gradient"], metrics=["morf", "lerf"]
    )
    bench.run(f"runs/{name}")
""",
    "docs/references.md": f"""
import heatcheck as hc
{PICTURE}
PIL.Image.fromarray(noise).save("cat.jpg")
nose_mask = numpy.zeros((300, 400), dtype=bool)
nose_mask[100:120, 150:170] = True
""",
    "docs/your-own-model.md": f"""
{PICTURE}
import pathlib
pathlib.Path("pics").mkdir()
for i in range(3):
    PIL.Image.fromarray(numpy.roll(noise, 50 * i, 0)).save(f"pics/{{i}}.png")
""",
    "docs/your-own-method.md": f"{PICTURE}\nPIL.Image.fromarray(noise).save('photo.jpg')",
}
"""What a page's reader has already: a picture, a model, data."""


def script(page: str, text: str) -> str:
    """The blocks of a page as one file, after what its reader has."""
    return "\n\n".join([READERS_OWN.get(page, ""), *BLOCK.findall(text)])


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(code, encoding="utf-8")
    known = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "mine.py"], cwd=folder, env=known, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    found = run(tmp_path, script(page, (ROOT / page).read_text(encoding="utf-8")))
    assert found.returncode == 0, found.stderr[-3000:]


def test_a_block_that_fails_would_be_noticed(tmp_path: Path) -> None:
    assert run(tmp_path, script("x.md", "```python\nimport heatcheck as hc\nhc.no_such_name\n```\n")).returncode == 1
