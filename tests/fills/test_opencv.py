"""Telea's and Navier–Stokes inpainting: OpenCV's bytes, and nothing but the hole touched."""

import sys

import numpy as np
import pytest
import torch

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError, Inputs, NotApplicable
from heatcheck.domain.image import ImageDomain
from heatcheck.testing import additive, toy_batch

cv2 = pytest.importorskip("cv2")

MUTANTS = (
    (
        "fills/opencv.py",
        "low + painted[hole] / 255 * (high - low)",
        "low + painted[hole] / 256 * (high - low)",
        "test_the_hole_holds_the_bytes_of_opencv",
    ),
    ("fills/opencv.py", "min(hole.shape) / 224", "1.0", "test_the_radius_grows_with_the_picture"),
    (
        "fills/opencv.py",
        'flag: ClassVar[str] = "INPAINT_TELEA"',
        'flag: ClassVar[str] = "INPAINT_NS"',
        "test_the_hole_holds_the_bytes_of_opencv",
    ),
    (
        "fills/opencv.py",
        'flag: ClassVar[str] = "INPAINT_NS"',
        'flag: ClassVar[str] = "INPAINT_TELEA"',
        "test_the_hole_holds_the_bytes_of_opencv",
    ),
)

FLAGS = {"telea": cv2.INPAINT_TELEA, "navier_stokes": cv2.INPAINT_NS}
DOMAIN = ImageDomain(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
SCALE = torch.tensor(DOMAIN.std)[:, None, None].double(), torch.tensor(DOMAIN.mean)[:, None, None].double()


def pictures(size=56, n=2, channels=3):
    """Smooth colours that are whole bytes."""
    rng = torch.Generator().manual_seed(0)
    rough = torch.rand(n, channels, 6, 6, generator=rng, dtype=torch.float64)
    smooth = torch.nn.functional.interpolate(rough, (size, size), mode="bicubic").clamp(0, 1)
    return (smooth * 255).round() / 255


def batch_of(colours, domain=DOMAIN):
    mean, std = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in (domain.mean, domain.std))
    return toy_batch(additive((3, 8, 8)), len(colours)).with_inputs(Inputs({"pixels": (colours - mean) / std}))


def hole_of(size=56):
    hole = torch.zeros(size, size, dtype=torch.bool)
    hole[size // 4 : size // 2, size // 3 :] = True
    hole |= torch.rand(size, size, generator=torch.Generator().manual_seed(1)) < 0.2
    return hole


def covered(picture, hole):
    """The hole with the colour of the kept pixel that is nearest to each of its own, found one by one."""
    kept = torch.nonzero(~hole).double()
    out = picture.copy()
    for y, x in torch.nonzero(hole).tolist():
        near = kept[((kept - torch.tensor([y, x])) ** 2).sum(1).argmin()].long()
        out[y, x] = picture[near[0], near[1]]
    return out


def erased(spec, batch, hole, domain=DOMAIN):
    unit = catalogue.build("fill", spec)
    keep = ~hole.flatten().expand(len(batch), -1)
    return unit.erase(domain, batch.x, keep, unit.full(domain, batch))["pixels"]


@pytest.mark.parametrize("id", FLAGS)
def test_the_hole_holds_the_bytes_of_opencv(id):
    colours, hole = pictures(), hole_of()
    assert catalogue.build("fill", id).radius == 3
    got = erased(f"{id}(radius=8)", batch_of(colours), hole) * SCALE[0] + SCALE[1]
    for own, colour in zip(got, colours, strict=True):
        picture = (colour.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
        expected = cv2.inpaint(covered(picture, hole), hole.numpy().astype(np.uint8), 2, FLAGS[id])  # 8 at 224
        assert (np.abs(own.permute(1, 2, 0).numpy() * 255 - expected)[hole.numpy()] < 1e-4).mean() > 0.97
    other = erased(f"{next(i for i in FLAGS if i != id)}(radius=8)", batch_of(colours), hole)
    assert not torch.equal(other * SCALE[0] + SCALE[1], got)


@pytest.mark.parametrize("id", FLAGS)
def test_the_radius_grows_with_the_picture(id):
    colours = pictures(56, 1)
    hole = torch.zeros(56, 56, dtype=torch.bool)
    hole[10:40, 15:45] = True
    got = erased(f"{id}(radius=20)", batch_of(colours), hole) * SCALE[0] + SCALE[1]
    picture = (colours[0].permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
    expected = cv2.inpaint(picture, hole.numpy().astype(np.uint8), 5, FLAGS[id])
    assert np.abs(got[0].permute(1, 2, 0).numpy() * 255 - expected)[hole.numpy()].max() < 1e-4
    assert not torch.equal(got, erased(id, batch_of(colours), hole) * SCALE[0] + SCALE[1])


@pytest.mark.parametrize("id", FLAGS)
def test_kept_pixels_keep_their_bits_and_the_hole_forgets(id):
    batch = toy_batch(additive((3, 16, 16)), 2)
    domain, hole = additive((3, 16, 16)).domain, hole_of(16)
    got = erased(id, batch, hole, domain)
    assert torch.equal(got[:, :, ~hole], batch.x["pixels"][:, :, ~hole])
    other = torch.where(hole, 1.5, batch.x["pixels"])
    assert torch.equal(erased(id, batch.with_inputs(Inputs({"pixels": other})), hole, domain), got)
    none, every = torch.zeros_like(hole), torch.ones_like(hole)
    assert torch.equal(erased(id, batch, none, domain), batch.x["pixels"])
    mean = batch.x["pixels"].mean((2, 3), keepdim=True)
    torch.testing.assert_close(erased(id, batch, every, domain), mean.expand_as(got))


@pytest.mark.parametrize("id", FLAGS)
def test_neighbours_and_order_change_no_bit(id):
    batch, hole = batch_of(pictures(32, 3)), hole_of(32)
    whole = erased(id, batch, hole)
    for rows in ([2], [1, 0]):
        assert torch.equal(erased(id, batch.take(rows), hole), whole[rows])


@pytest.mark.parametrize("id", FLAGS)
@pytest.mark.parametrize("channels", [1, 4])
def test_other_numbers_of_channels_go_one_by_one(id, channels):
    domain = ImageDomain(mean=(0.0,) * channels, std=(1.0,) * channels)
    colours, hole = pictures(32, 1, channels), hole_of(32)
    got = erased(id, batch_of(colours, domain), hole, domain)
    for c in range(channels):
        alone = ImageDomain(mean=(0.0,), std=(1.0,))
        assert torch.equal(erased(id, batch_of(colours[:, c : c + 1], alone), hole, alone), got[:, c : c + 1])


@pytest.mark.parametrize("id", FLAGS)
def test_a_flat_picture_comes_back_but_for_rounding(id):
    colours = torch.full((1, 3, 24, 24), 100 / 255, dtype=torch.float64)
    got = erased(id, batch_of(colours), hole_of(24)) * SCALE[0] + SCALE[1]
    torch.testing.assert_close(got, colours, atol=3 / 255, rtol=0)


@pytest.mark.parametrize("id", FLAGS)
def test_what_is_missing_is_said(id, monkeypatch):
    unit = catalogue.build("fill", id)
    with pytest.raises(SpecError, match=r"radius=0.0 must be more than 0"):
        catalogue.build("fill", f"{id}(radius=0)")
    batch = batch_of(pictures(16, 1))
    with pytest.raises(HeatcheckError, match=r"part of a pixel"):
        unit.erase(DOMAIN, batch.x, torch.full((1, 256), 0.5), batch.x)
    with pytest.raises(NotApplicable, match=r"normalisation is not known"):
        unit.erase(ImageDomain(), batch.x, ~hole_of(16).flatten()[None], batch.x)
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(
        NotApplicable, match=rf'{id} needs opencv-python-headless.*pip install "heatcheck\[inpainting\]"'
    ):
        unit.resolve(DOMAIN)
