"""Torchvision loads whatever its compiled operators do."""

import importlib
import subprocess
import sys

import pytest
import torch

from heatcheck.core.types import HeatcheckError
from heatcheck.models import vision_shim


def test_torchvision_timm_and_transformers_import_in_an_environment_that_make_did_not_build(monkeypatch):
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")  # so that torch does not call the repair of `make`
    code = (
        "from heatcheck.models.vision_shim import load_timm, load_torchvision, load_transformers\n"
        "load_transformers().BertForSequenceClassification, load_timm().create_model, load_torchvision().models.resnet18"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_declared_where_torchvision_is_whole(monkeypatch):
    monkeypatch.setattr(torch.library, "Library", lambda *_: pytest.fail("declared an operator that exists"))
    whole = object()
    monkeypatch.setattr(importlib, "import_module", lambda name: whole)
    assert vision_shim._import_torchvision.__wrapped__() is whole


def test_missing_operators_are_declared_and_the_import_tried_again(monkeypatch):
    defined, tries = [], []

    class Library:
        def __init__(self, *place):
            assert place == ("torchvision", "DEF")

        def define(self, schema):
            defined.append(schema.partition("(")[0])

    def broken_once(name):
        tries.append(name)
        if len(tries) == 1:
            raise RuntimeError("operator torchvision::nms does not exist")
        return "torchvision"

    monkeypatch.setattr(torch.library, "Library", Library)
    monkeypatch.setattr(importlib, "import_module", broken_once)
    monkeypatch.setattr(vision_shim, "_declared", [])
    assert vision_shim._import_torchvision.__wrapped__() == "torchvision"
    assert defined == ["nms", "qnms"]


def test_other_failures_are_not_hidden(monkeypatch):
    def broken(name):
        raise RuntimeError("something else")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(RuntimeError, match="something else"):
        vision_shim._import_torchvision.__wrapped__()


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    advice = r'model timm:resnet50 needs timm, which is not installed: pip install "heatcheck\[vision\]"'
    with pytest.raises(HeatcheckError, match=advice):
        vision_shim.load_timm("model timm:resnet50")
