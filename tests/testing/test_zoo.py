"""Every method on every architecture: it works, or is refused for the reason that the documentation gives."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.testing.text_zoo import FAMILIES, TEXT, small_text
from heatcheck.testing.zoo import ZOO, brief, page, picture, small, table, text_table

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.slow
def test_the_page_is_what_it_would_be_now():
    assert PAGE.read_text(encoding="utf-8") == page(table(), text_table()), "run `make docs`"


def promised() -> list[tuple[str, str]]:
    """What the page says that works: architectures and methods."""
    found, head = [], []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells[:1] == ["method"]:
            head = cells
        elif cells:
            found += [(name, cells[0].strip("`")) for name, cell in zip(head, cells, strict=True) if cell == "✓"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_what_the_page_promises_for_texts_gives_maps(name):
    methods = [method for family, method in promised() if family == name]
    assert len(methods) >= 20
    for method in methods:
        heat = hc.explain(small_text(name), [TEXT], method="idf(corpus=texts)" if method == "idf" else brief(method))
        if "needs" in heat.status[0]:  # a reference, which this text does not have
            continue
        assert heat.status == ("ok",), (method, heat.status)
        assert torch.isfinite(heat.values).all(), method


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
