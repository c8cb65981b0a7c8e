"""What learnt inpainters share, with a painter whose every pixel is known."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from heatcheck.core import catalogue
from heatcheck.core.types import HeatcheckError, Inputs, NotApplicable
from heatcheck.domain.image import ImageDomain
from heatcheck.fills import painting
from heatcheck.fills.base import fill
from heatcheck.fills.painting import PAINTINGS, Painter, Paintings, covered
from heatcheck.testing import additive, probe_for, toy_batch

MUTANTS = (
    (
        "fills/painting.py",
        "torch.where(kept, pixels, back)",
        "back",
        "test_kept_pixels_stay_and_holes_hold_what_was_painted",
    ),
    (
        "fills/painting.py",
        "return np.ascontiguousarray(rgb[y, x])",
        "return rgb.copy()",
        "test_covering_takes_the_nearest_kept_colour",
    ),
    (
        "fills/painting.py",
        "key.update(np.packbits(hole).tobytes() + seen.tobytes())",
        "key.update(seen.tobytes())",
        "test_another_hole_in_the_same_colours_is_another_painting",
    ),
    ("fills/painting.py", "and raw[:_CHECK] == _checksum(data)", "", "test_damaged_files_are_painted_again"),
)
MODEL = additive((3, 16, 16))
calls = []


@dataclass(frozen=True, kw_only=True, repr=False)
class Negative(Painter):
    """Paints the negative of what it sees, everywhere."""

    path: str = ""
    shift: int = 0

    def files(self):
        if not Path(self.path).is_file():
            raise NotApplicable(f"no network at {self.path}")
        return [Path(self.path)]

    def paint(self, rgb, hole):
        calls.append((rgb.copy(), hole.copy()))
        return 255 - rgb


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    fill("test_negative", on=("image",), needs=("weights",))(Negative)
    monkeypatch.setenv("HEATCHECK_CACHE", str(tmp_path / "cache"))
    PAINTINGS.forget()
    PAINTINGS._written = 0
    calls.clear()
    yield
    del catalogue._own["fill", "test_negative"]


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "net").write_bytes(b"weights")
    return f'test_negative(path="{tmp_path / "net"}")'


def erased(spec, batch, keep, domain=MODEL.domain):
    unit = catalogue.build("fill", spec)
    return unit.erase(domain, batch.x, keep, batch.x)["pixels"]


def some(batch, seed=0):
    """Masks that keep about half."""
    rng = torch.Generator().manual_seed(seed)
    h, w = batch.x["pixels"].shape[2:]
    return torch.rand(len(batch), h * w, generator=rng) < 0.5


def test_kept_pixels_stay_and_holes_hold_what_was_painted(spec):
    batch = toy_batch(MODEL, 3)
    keep = some(batch)
    got = erased(spec, batch, keep)
    for i in range(3):
        pixels, kept = batch.x["pixels"][i], keep[i].reshape(16, 16)
        assert torch.equal(got[i][:, kept], pixels[:, kept])
        places = np.argwhere(kept.numpy())
        for y, x in np.argwhere(~kept.numpy()):
            colour = np.rint((got[i][:, y, x].numpy() * 0.25 + 0.5) * 255)
            distance = ((places - (y, x)) ** 2).sum(1)
            nearest = [
                255 - np.rint((pixels[:, a, b].numpy() * 0.25 + 0.5).clip(0, 1) * 255)
                for a, b in places[distance == distance.min()]
            ]
            assert any(np.array_equal(colour, n) for n in nearest)


def test_what_was_in_the_hole_is_never_seen(spec):
    batch = toy_batch(MODEL, 1)
    keep = some(batch)
    other = torch.where(keep.reshape(1, 1, 16, 16), batch.x["pixels"], 1.9)
    erased(spec, batch, keep)
    again = erased(spec, batch.with_inputs(Inputs({"pixels": other})), keep)
    assert len(calls) == 1
    assert torch.equal(again, erased(spec, batch, keep))


def test_nothing_and_everything(spec):
    batch = toy_batch(MODEL, 3)
    unit = catalogue.build("fill", spec)
    whole = torch.ones(3, 256, dtype=torch.bool)
    assert torch.equal(erased(spec, batch, whole), batch.x["pixels"]) and not calls
    full = unit.full(MODEL.domain, batch)["pixels"]
    assert len(calls) == 1 and not calls[0][0].any() and calls[0][1].all()
    assert torch.equal(full, torch.full_like(full, 2.0))  # white: the negative of black
    assert torch.equal(erased(spec, batch, ~whole), full)


def test_neighbours_and_order_do_not_matter(spec):
    batch = toy_batch(MODEL, 3)
    keep = some(batch)
    all_of_them = erased(spec, batch, keep)
    for order in ([2, 0, 1], [1]):
        PAINTINGS.forget()
        assert torch.equal(erased(spec, batch.take(order), keep[order]), all_of_them[order])


def test_painting_again_changes_nothing(spec):
    batch = toy_batch(MODEL, 2)
    keep = some(batch)
    once = erased(spec, batch, keep)
    assert torch.equal(erased(spec, batch.with_inputs(Inputs({"pixels": once})), keep), once)


def test_grey_pictures_are_painted_and_others_refused(spec):
    grey = additive((1, 16, 16))
    batch = toy_batch(grey, 2)
    keep = some(batch)
    got = erased(spec, batch, keep, grey.domain)
    assert got.shape == (2, 1, 16, 16) and torch.equal(got.flatten(1)[keep], batch.x["pixels"].flatten(1)[keep])
    wide = ImageDomain(mean=(0.5,) * 5, std=(0.25,) * 5)
    five = batch.with_inputs(Inputs({"pixels": torch.zeros(2, 5, 16, 16, dtype=torch.float64)}))
    with pytest.raises(NotApplicable, match="5 channels"):
        erased(spec, five, keep, wide)
    with pytest.raises(NotApplicable, match="normalisation is not known"):
        erased(spec, batch, keep, ImageDomain())
    with pytest.raises(HeatcheckError, match="part of a pixel"):
        erased(spec, batch, keep.double(), grey.domain)


def test_models_share_what_was_painted(spec, monkeypatch):
    batch = toy_batch(MODEL, 2)
    units = MODEL.domain.units("cell", batch.x)
    probe_for(MODEL).singles(batch, spec, units)
    first = len(calls)
    other = additive((3, 16, 16), seed=7)
    probe_for(other).singles(toy_batch(other, 2), spec, units)
    assert len(calls) == first > 0
    PAINTINGS.forget()
    probe_for(other).singles(toy_batch(other, 2), spec, units)
    assert len(calls) == first  # from the folder
    PAINTINGS.forget()
    monkeypatch.setenv("HEATCHECK_PAINTINGS", "0")
    monkeypatch.setenv("HEATCHECK_CACHE", os.environ["HEATCHECK_CACHE"] + "-other")
    probe_for(other).singles(toy_batch(other, 2), spec, units)
    assert len(calls) == 2 * first and not Path(os.environ["HEATCHECK_CACHE"]).exists()


def test_the_place_of_a_network_does_not_matter_but_its_bytes_do(spec, tmp_path):
    batch = toy_batch(MODEL, 1)
    keep = some(batch)
    erased(spec, batch, keep)
    (tmp_path / "moved").write_bytes(b"weights")
    erased(f'test_negative(path="{tmp_path / "moved"}")', batch, keep)
    assert len(calls) == 1
    erased(spec.replace(")", ", shift=1)"), batch, keep)
    assert len(calls) == 2
    before = catalogue.build("fill", spec).identity()
    (tmp_path / "net").write_bytes(b"other weights")
    assert catalogue.build("fill", spec).identity() != before
    erased(spec, batch, keep)
    assert len(calls) == 3


def test_another_hole_in_the_same_colours_is_another_painting(spec):
    batch = toy_batch(MODEL, 1)
    plain = batch.with_inputs(Inputs({"pixels": torch.zeros_like(batch.x["pixels"])}))
    left = torch.arange(256)[None] % 16 < 4
    erased(spec, plain, left)
    erased(spec, plain, left.flip(1))
    assert len(calls) == 2


def test_a_network_that_is_not_there_is_a_reason_and_still_has_a_name():
    unit = catalogue.build("fill", 'test_negative(path="/no where")')
    assert unit.identity()["files"] == []
    assert catalogue.build("fill", unit.name) == unit
    with pytest.raises(NotApplicable, match="no network at /no where"):
        unit.resolve(MODEL.domain)


# -- the cache ---------------------------------------------------------------------------------------------------


def files():
    return sorted(p for p in (Path(os.environ["HEATCHECK_CACHE"]) / "paintings").glob("*/*"))


@pytest.mark.parametrize(
    "harm",
    [lambda raw: raw[:-3], lambda raw: b"", lambda raw: bytes(16) + raw[16:], lambda raw: raw[:20] + b"x" + raw[21:]],
)
def test_damaged_files_are_painted_again(harm):
    made = []

    def make():
        made.append(1)
        return b"abc" * 10

    assert Paintings().get("k" * 40, 30, make) == Paintings().get("k" * 40, 30, make) == b"abc" * 10
    assert len(made) == 1
    (path,) = files()
    path.write_bytes(harm(path.read_bytes()))
    assert Paintings().get("k" * 40, 30, make) == b"abc" * 10
    assert len(made) == 2
    assert Paintings().get("k" * 40, 30, make) == b"abc" * 10
    assert len(made) == 2


def test_a_file_of_another_size_is_not_read():
    Paintings().get("k" * 40, 3, lambda: b"abc")
    assert Paintings().get("k" * 40, 6, lambda: b"abcdef") == b"abcdef"


def test_the_folder_is_bounded(monkeypatch):
    noise = np.random.default_rng(0)
    monkeypatch.setenv("HEATCHECK_PAINTINGS", "1")
    monkeypatch.setattr(painting, "_SWEEP_EVERY", 1)
    keep = Paintings()
    for i in range(8):
        keep.get(f"{i}" * 40, 2**18, lambda: noise.bytes(2**18))
        os.utime(files()[-1], ns=(i * 10**9, i * 10**9))
    names = [p.name[0] for p in files()]
    assert sum(p.stat().st_size for p in files()) <= 2**20 + 2**18 + 2**12
    assert "7" in names and "0" not in names


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setenv("HEATCHECK_PAINTINGS", "0")
    monkeypatch.setattr(painting, "_MEMORY_MB", 1)
    keep = Paintings()
    for i in range(8):
        keep.get(str(i), 2**18, lambda: bytes(2**18))
    assert list(keep._held) == ["4", "5", "6", "7"]


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HEATCHECK_CACHE", str(tmp_path / "file"))
    assert Paintings().get("k" * 40, 3, lambda: b"abc") == b"abc"


def test_the_limit_must_be_a_number(monkeypatch):
    monkeypatch.setenv("HEATCHECK_PAINTINGS", "lots")
    with pytest.raises(HeatcheckError, match="HEATCHECK_PAINTINGS='lots' is not a number"):
        Paintings().get("k" * 40, 3, lambda: b"abc")


def test_covering_takes_the_nearest_kept_colour():
    rgb = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    hole = np.ones((3, 3), bool)
    hole[0, 0] = False
    assert (covered(rgb, hole) == rgb[0, 0]).all()
    assert not covered(rgb, np.ones((3, 3), bool)).any()
    assert (covered(rgb, np.zeros((3, 3), bool)) == rgb).all()
