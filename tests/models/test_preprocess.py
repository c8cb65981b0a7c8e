"""Preprocessing, held to what timm, torchvision and transformers do themselves."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from heatcheck.models.preprocess import Preprocess, from_processor, from_timm, from_torchvision, inferred, ready
from heatcheck.models.vision_shim import load_timm, load_torchvision, load_transformers
from heatcheck.types import HeatcheckError, Sample

HALF = (0.5, 0.5, 0.5)
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def noise(width, height):
    rng = np.random.Generator(np.random.PCG64(0))
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("shape", [(61, 40), (40, 61), (33, 33), (200, 90)])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_equals_timm(shape, interpolation):
    timm = load_timm()
    cfg = {
        "input_size": (3, 32, 32),
        "crop_pct": 0.9,
        "interpolation": interpolation,
        "crop_mode": "center",
        **IMAGENET,
    }
    theirs = timm.data.create_transform(**{k: v for k, v in cfg.items() if k != "crop_mode"}, is_training=False)
    picture = noise(*shape)
    assert_close(from_timm(cfg).normalised(picture)[0], theirs(picture), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(61, 40), (40, 61), (200, 90)])
def test_equals_torchvision(shape):
    transforms = load_torchvision().transforms._presets.ImageClassification(crop_size=32, resize_size=39)
    picture = noise(*shape)
    assert_close(from_torchvision(transforms).normalised(picture)[0], transforms(picture), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("ViT", {"size": {"height": 32, "width": 24}, "do_resize": True, "resample": 2}),
        ("ConvNext", {"size": {"shortest_edge": 32}, "crop_pct": 0.875}),
        ("Bit", {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}, "do_center_crop": True}),
    ],
)
def test_is_near_transformers(kind, facts):
    processor = getattr(load_transformers(), f"{kind}ImageProcessor")(**facts)
    y, x = np.mgrid[0:88, 0:70]
    picture = Image.fromarray(np.stack([x * 3, y * 2, x + y], -1).astype(np.uint8))
    mine = from_processor(processor).normalised(picture)
    theirs = processor(picture, return_tensors="pt")["pixel_values"]
    assert mine.shape == theirs.shape
    assert (mine - theirs).abs().max() < 2 / 255 / 0.2  # they may scale tensors, where Pillow scales bytes


def test_known_colour():
    grey = Image.new("RGB", (20, 20), (255, 0, 51))
    values = Preprocess(mean=(0.5, 0.25, 0.0), std=(0.5, 0.5, 2.0), size=8).normalised(grey)
    assert_close(values[0, :, 3, 3], torch.tensor([1.0, -0.5, 0.1]))


def test_grey_models_get_one_channel():
    assert Preprocess(mean=(0.5,), std=(0.5,), size=8).normalised(noise(20, 20)).shape == (1, 1, 8, 8)


def test_tensors_are_taken_as_they_are():
    content = torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(0))
    for read in (Preprocess(mean=HALF, std=HALF), ready):
        assert torch.equal(read(Sample("t", "d", content))["pixels"], content[None])


def test_tensors_that_are_no_input_are_refused():
    with pytest.raises(HeatcheckError, match=r"uint8 \[3, 5, 5\]"):
        ready(Sample("t", "d", torch.zeros(3, 5, 5, dtype=torch.uint8)))
    with pytest.raises(HeatcheckError, match=r"\[2, 3, 5, 5\]"):
        ready(Sample("t", "d", torch.zeros(2, 3, 5, 5)))
    with pytest.raises(HeatcheckError, match="preprocess=hc"):
        ready(Sample("t", "d", "cat.jpg"))


def test_masks_follow_the_picture():
    mask = np.zeros((40, 80), dtype=bool)
    mask[:, 40:] = True
    carried = Preprocess(mean=HALF, std=HALF, size=20, resize=20).mask(mask)
    assert carried.shape == (20, 20)
    assert torch.equal(carried, (torch.arange(20) >= 10).expand(20, 20))


def test_the_record_is_plain_and_tells_everything_apart():
    base = {"mean": HALF, "std": HALF, "size": 32}
    records = [
        Preprocess(**base).record(),
        *(
            Preprocess(**{**base, **other}).record()
            for other in (
                {"mean": (0.5, 0.5, 0.4)},
                {"std": (1, 1, 1)},
                {"size": (32, 31)},
                {"resize": 40},
                {"fit": "squash"},
                {"interpolation": "bilinear"},
            )
        ),
    ]
    assert len({str(r) for r in records}) == 7
    assert records[0] == Preprocess(mean=list(HALF), std=list(HALF), size=(32, 32), resize=36).record()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mean": (0.5, 0.5)}, "one value per channel"),
        ({"std": (0.5, 0.5, 0.0)}, "positive"),
        ({"fit": "stretch"}, "crop, squash"),
        ({"interpolation": "cubic"}, "bicubic"),
        ({"size": 0}, "size=0"),
        ({"resize": -1}, "resize=-1"),
    ],
)
def test_nonsense_is_refused(wrong, message):
    with pytest.raises(HeatcheckError, match=message):
        Preprocess(**{"mean": HALF, "std": HALF, **wrong})


def test_timm_networks_know_their_own(net):
    assert inferred(load_timm().create_model("test_resnet")).size == (160, 160)
    assert inferred(net) is None


def test_unknown_cropping_is_refused():
    with pytest.raises(HeatcheckError, match="crop_mode='border'"):
        from_timm({"input_size": (3, 8, 8), "crop_mode": "border", **IMAGENET})
