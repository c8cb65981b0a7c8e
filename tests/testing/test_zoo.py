"""Every method on every architecture: it works, or is refused for the reason that the documentation gives."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.testing.zoo import ZOO, brief, page, picture, small, table

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.slow
def test_the_page_is_what_it_would_be_now():
    assert PAGE.read_text(encoding="utf-8") == page(table()), "run `make docs`"


def promised() -> list[tuple[str, str]]:
    """What the page says that works."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.read_text().splitlines() if "|" in line]
    return [(name, row[0].strip("`")) for row in rows[2:] for name, cell in zip(rows[0][1:], row[1:], strict=True)
            if cell == "✓"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_what_the_page_promises_gives_maps(name):
    model, x = small(name), picture(name)["pixels"]
    narrow = min(model.layers(picture(name)), key=lambda layer: layer.channels).name
    for method in (m for n, m in promised() if n == name):
        component = catalogue.build("method", brief(method))
        if method in ("score_cam", "ablation_cam"):  # as many passes as channels
            component = replace(component, layer=narrow)
        heat = hc.explain(model, x, method=component, target=1)
        if "needs a reference" in heat.status[0]:  # which these pictures do not have
            continue
        assert heat.status == ("ok",), (method, heat.status)
        assert torch.isfinite(heat.values).all() and heat.values.shape[-2:].numel() > 1, method
