"""Preprocessing, compared with that of timm, torchvision and transformers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import nn
from torch.testing import assert_close

from heatcheck.core.types import HeatcheckError, Sample
from heatcheck.models.preprocess import Preprocess, ready
from heatcheck.models.transforms import from_processor, from_timm, from_torchvision, inferred
from heatcheck.models.vision import VisionModel
from heatcheck.models.vision_shim import load_timm, load_torchvision, load_transformers

HALF = (0.5, 0.5, 0.5)
MUTANTS = (
    (
        "models/vision.py",
        'known["mask"] if "mask" in known else known["boxes"]',
        'known.get("boxes", known.get("mask"))',
        "test_a_mask_counts_more_than_boxes_and_what_the_crop_misses_is_empty",
    ),
    (
        "models/vision.py",
        "return self._preprocess.mask(whole)",
        "return self._preprocess.mask(whole).flip(1)",
        "test_boxes_and_parts_follow_the_picture_as_masks_do",
    ),
)
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
    with pytest.raises(HeatcheckError, match=r"hc\.Preprocess"):
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


def slow_carried(box, size, made):
    """Every pixel that the model sees, followed back to the one it comes from; and which lie between two of them."""
    (width, height), (rows, columns) = size, made.size
    if made.resize is None:
        scaled, left, top = (columns, rows), 0, 0
    else:
        short, long = sorted(size)
        longer = int(made.resize * long / short)
        scaled = (made.resize, longer) if width <= height else (longer, made.resize)
        left, top = round((scaled[0] - columns) / 2), round((scaled[1] - rows) / 2)
    seen, between = torch.zeros(2, rows, columns, dtype=torch.bool)
    for y in range(rows):
        for x in range(columns):
            at_x, at_y = x + left, y + top
            if 0 <= at_x < scaled[0] and 0 <= at_y < scaled[1]:
                from_x, over_x = divmod((2 * at_x + 1) * width, 2 * scaled[0])
                from_y, over_y = divmod((2 * at_y + 1) * height, 2 * scaled[1])
                between[y, x] = over_x == 0 or over_y == 0
                seen[y, x] = box[0] <= from_x < box[2] and box[1] <= from_y < box[3]
    return seen, between


@given(st.data())
def test_boxes_and_parts_follow_the_picture_as_masks_do(data):
    width, height = data.draw(st.tuples(st.integers(8, 60), st.integers(8, 60)), "size")
    size = data.draw(st.tuples(st.integers(4, 24), st.integers(4, 24)), "seen")
    fit = data.draw(st.sampled_from(["crop", "squash"]))
    made = Preprocess(mean=HALF, std=HALF, size=size, resize=data.draw(st.integers(6, 40)), fit=fit)
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    box = [left, top, data.draw(st.integers(left + 1, width)), data.draw(st.integers(top + 1, height))]
    mask = np.zeros((height, width), dtype=bool)
    mask[box[1] : box[3], box[0] : box[2]] = True
    model = VisionModel(nn.Flatten(), "m", preprocess=made)
    picture = np.zeros((height, width, 3), dtype=np.uint8)

    def carried(**reference):
        sample = Sample("s", "d", picture, reference=reference)
        return model.references(sample, model.encode(sample))

    seen = carried(boxes=[box])
    assert set(seen) == {"mask"} and seen["mask"].shape == size
    assert torch.equal(seen["mask"], carried(mask=mask)["mask"])
    both = carried(parts={"a": box, "b": mask, "c": [box, box]})
    assert both["part_names"] == ("a", "b", "c")
    assert torch.equal(both["parts"], seen["mask"].expand(3, *size))
    expected, between = slow_carried(box, (width, height), made)
    assert ((seen["mask"] == expected) | between).all()


def test_a_mask_counts_more_than_boxes_and_what_the_crop_misses_is_empty():
    model = VisionModel(nn.Flatten(), "m", preprocess=Preprocess(mean=HALF, std=HALF, size=20, resize=20))
    picture = np.zeros((40, 100, 3), dtype=np.uint8)
    mask = np.ones((40, 100), dtype=bool)
    sample = Sample("s", "d", picture, reference={"mask": mask, "boxes": [[0, 0, 5, 5]], "other": 1})
    seen = model.references(sample, model.encode(sample))
    assert seen["mask"].all() and seen["other"] == 1 and "boxes" not in seen
    missed = Sample(
        "s", "d", picture, reference={"boxes": [[0, 0, 9, 40]], "parts": {"in": [40, 0, 60, 40], "out": [0, 0, 9, 9]}}
    )
    seen = model.references(missed, model.encode(missed))
    assert not seen["mask"].any() and seen["parts"].flatten(1).any(1).tolist() == [True, False]


def test_pictures_without_a_part_are_read_as_the_picture_is(tmp_path):
    model = VisionModel(nn.Flatten(), "m", preprocess=Preprocess(mean=HALF, std=HALF, size=20, resize=24))
    noise(50, 40).save(tmp_path / "without.png")
    reference = {
        "parts": {"eye": [0, 0, 9, 9], "ear": [9, 0, 20, 9]},
        "without": {"ear": tmp_path / "without.png", "eye": np.full((40, 50, 3), 255, dtype=np.uint8)},
    }
    sample = Sample("s", "d", np.asarray(noise(50, 40)), reference=reference)
    x = model.encode(sample)
    without = model.references(sample, x)["without"]
    assert without["pixels"].shape == (2, 3, 20, 20)
    assert (without["pixels"][0] == 1).all() and torch.equal(without["pixels"][1:], x["pixels"])


def test_ready_tensors_have_references_on_their_own_pixels():
    model = VisionModel(nn.Flatten(), "m")
    gone = torch.zeros(3, 6, 8)
    reference = {"boxes": [[0, 0, 3, 2]], "parts": {"a": torch.ones(6, 8)}, "without": {"a": gone}}
    sample = Sample("s", "d", torch.ones(3, 6, 8), reference=reference)
    seen = model.references(sample, model.encode(sample))
    assert seen["mask"].sum() == 6 and seen["mask"][:2, :3].all() and seen["parts"].shape == (1, 6, 8)
    assert torch.equal(seen["without"]["pixels"], gone[None])
    wrong = Sample("s", "d", torch.ones(3, 6, 8), reference={"mask": torch.ones(8, 6)})
    with pytest.raises(HeatcheckError, match="the mask is 6 × 8, its picture 8 × 6"):
        model.references(wrong, model.encode(wrong))


def test_large_pictures_are_read_smaller_and_their_boxes_still_fit(tmp_path):
    y, x = np.mgrid[0:3600, 0:4800]
    inside = (x >= 1200) & (x < 3600) & (y >= 900) & (y < 2700)
    Image.fromarray(np.where(inside, 255, 0).astype(np.uint8)).save(tmp_path / "large.jpg")
    made = Preprocess(mean=HALF, std=HALF, size=64, resize=64, interpolation="nearest")
    model = VisionModel(nn.Flatten(), "m", preprocess=made)
    sample = Sample("s", "d", tmp_path / "large.jpg", reference={"boxes": [[1200, 900, 3600, 2700]]})
    pixels = model.encode(sample)
    differ = (pixels["pixels"][0, 0] > 0) ^ model.references(sample, pixels)["mask"]
    assert differ.sum() <= 64  # a row or column of the border, where the reduced picture is rounded
