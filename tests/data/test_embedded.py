"""The embedded defaults."""

import re
import sys
from importlib.machinery import ModuleSpec

import pytest
import torch
from torch import nn

from heatcheck.core.types import HeatcheckError, Modality
from heatcheck.data import imagenet_classes, imagenet_wnids, load_data
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.vision import VisionModel


def test_pictures() -> None:
    data = load_data("images")
    assert (data.name, data.modality, len(data)) == ("images", Modality.IMAGE, 28)
    assert not [s.problem for s in data if s.problem]
    assert [s.name for s in data] == sorted(s.name for s in data)
    labelled = {s.name: s.label for s in data if s.label is not None}
    assert len(labelled) == 20 and labelled["imagenet_16_251.jpg"] == 251
    assert {s.name.split(".")[0] for s in data if s.label is None} == {
        *("astronaut", "camera", "chelsea", "coffee", "motorcycle_left", "rocket"),
        *("china", "flower"),
    }
    assert data.classes is not None and data.classes[251].startswith("dalmatian")


def test_texts() -> None:
    data = load_data("texts")
    assert (data.name, data.modality, len(data)) == ("texts", Modality.TEXT, 48)
    assert data.classes == ("negative", "positive")
    assert sum(s.label for s in data) == 24
    assert all(s.reference["spans"] and not s.problem for s in data)


def test_subsets() -> None:
    assert len(load_data("images", samples=4)) == 4
    whole, part = load_data("texts"), load_data("texts", samples=5, seed=2)
    assert [s.digest for s in part] == [s.digest for s in whole.take(5, 2)]


@pytest.mark.parametrize(
    ("module", "package"), [("foolbox", "foolbox"), ("skimage", "scikit-image"), ("sklearn", "scikit-learn")]
)
def test_a_missing_package_is_named(module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    advice = rf'images needs {package}, which is not installed: pip install "heatcheck\[demo\]"'
    with pytest.raises(HeatcheckError, match=advice):
        load_data("images")


def test_a_package_without_its_pictures_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = ModuleSpec("foolbox", None, is_package=True)
    monkeypatch.setattr("heatcheck.data.packages.find_spec", lambda name: empty)
    with pytest.raises(HeatcheckError, match=r"the folder data of foolbox.*pip install --force-reinstall foolbox"):
        load_data("images")


def test_without_timm_there_are_no_class_names(monkeypatch: pytest.MonkeyPatch) -> None:
    imagenet_classes.cache_clear()
    imagenet_wnids.cache_clear()
    monkeypatch.setitem(sys.modules, "timm", None)
    data = load_data("images")
    assert data.classes is None and sum(s.label is not None for s in data) == 20
    with pytest.raises(HeatcheckError, match=r'pip install "heatcheck\[vision\]"'):
        imagenet_classes()


def test_imagenet_names() -> None:
    assert len(imagenet_classes()) == len(imagenet_wnids()) == len(set(imagenet_wnids())) == 1000
    assert list(imagenet_wnids()) == sorted(imagenet_wnids())
    assert imagenet_wnids()[0] == "n01440764" and imagenet_classes()[0] == "tench, Tinca tinca"
    assert imagenet_classes()[281].startswith("tabby") and "toilet tissue" in imagenet_classes()[999]


def test_every_picture_has_boxes_and_many_have_parts() -> None:
    data = load_data("images")
    parts = [s.reference["parts"] for s in data if "parts" in s.reference]
    assert all(s.reference["boxes"] for s in data)
    assert len(parts) >= 20 and min(map(len, parts)) >= 4
    dog = next(s for s in data if s.name == "imagenet_00_243.jpg")
    assert {"left ear", "right ear", "left eye", "right eye", "muzzle"} <= set(dog.reference["parts"])


@pytest.mark.parametrize("resize", [224, 256])
def test_references_of_pictures_survive_the_usual_crop(resize: int) -> None:
    model = VisionModel(nn.Flatten(), "m", preprocess=Preprocess(mean=(0, 0, 0), std=(1, 1, 1), resize=resize))
    for sample in load_data("images"):
        seen = model.references(sample, model.encode(sample))
        assert 0.005 < seen["mask"].float().mean() < 0.98, sample.name
        assert seen.get("parts", torch.ones(1, 1, 1)).flatten(1).any(1).all(), sample.name


def test_every_word_of_a_text_is_a_part() -> None:
    for sample in load_data("texts"):
        parts = [sample.content[a:b] for a, b in sample.reference["parts"].values()]
        assert {sample.content[a:b] for a, b in sample.reference["spans"]} <= set(parts)
        assert re.sub(r"\W", "", sample.content) == re.sub(r"\W", "", "".join(parts))
