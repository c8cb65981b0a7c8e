"""Checkpoints: read without running code, or refused with the reason."""

import os
import pickle  # noqa: TID251 - to make the kind of file that must not be opened
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from heatcheck.core.types import HeatcheckError
from heatcheck.models.weights import fill_by_position, fill_network, load_weights


class Hostile:
    """A pickle that leaves a mark when it is opened."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


def same(state, network):
    return all(torch.equal(state[k], v) for k, v in network.state_dict().items())


def test_safetensors_and_torch_files(net, tmp_path):
    save_file(net.state_dict(), tmp_path / "a.safetensors")
    torch.save(net.state_dict(), tmp_path / "a.pt")
    assert same(load_weights(tmp_path / "a.safetensors"), net)
    assert same(load_weights(str(tmp_path / "a.pt")), net)


@pytest.mark.parametrize("key", ["state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_wrapped_state_dicts_are_taken_out(net, tmp_path, key, prefix):
    torch.save({key: {prefix + k: v for k, v in net.state_dict().items()}, "epoch": 3}, tmp_path / "a.pt")
    assert same(load_weights(tmp_path / "a.pt"), net)


@pytest.mark.parametrize("nested", [False, True])
def test_hostile_files_are_refused_unopened(tmp_path, nested):
    mark = tmp_path / "mark"
    hostile = Hostile(mark)
    torch.save({"weight": torch.zeros(1), "more": hostile} if nested else hostile, tmp_path / "bad.pt")
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(hostile))
    for name in ("bad.pt", "raw.pt"):
        with pytest.raises(HeatcheckError, match="run its code"):
            load_weights(tmp_path / name)
    assert not mark.exists()
    hostile.__reduce__()[0](str(mark))
    assert mark.exists()  # it would have shown


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: None, "no checkpoint.*did you mean net.pt"),
        (lambda p: p.write_bytes(b""), "is empty"),
        (lambda p: p.write_bytes(b"hello"), "neither safetensors nor"),
        (lambda p: torch.save([1, 2], p), "holds a list"),
        (lambda p: torch.save({"a": torch.zeros(1), "epoch": 3}, p), "epoch are no tensors"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, make, message):
    (tmp_path / "net.pt").touch()
    make(tmp_path / "nets.pt")
    with pytest.raises(HeatcheckError, match=message):
        load_weights(tmp_path / "nets.pt")


def test_a_truncated_file_is_told(net, tmp_path):
    save_file(net.state_dict(), tmp_path / "a.safetensors")
    torch.save(net.state_dict(), tmp_path / "a.pt")
    for name in ("a.safetensors", "a.pt"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-40])
        with pytest.raises(HeatcheckError, match=rf"{name}' (is no whole|cannot be read)"):
            load_weights(path)


def test_names_and_shapes_that_do_not_fit_are_told(net):
    state = net.state_dict()
    state["head.weight"] = torch.zeros(5, 4)
    state["neck.weight"] = state.pop("conv.bias")
    with pytest.raises(HeatcheckError) as caught:
        fill_network(net, state, "a.pt")
    for part in ("missing conv.bias", "unknown neck.weight", "head.weight is (5, 4), not (3, 4)"):
        assert part in str(caught.value)


def test_half_precision_fills_a_single_precision_network(net):
    state = {k: v.half() for k, v in net.state_dict().items()}
    fill_network(net, state, "a")
    assert net.conv.weight.dtype == torch.float32
    assert torch.equal(net.conv.weight, state["conv.weight"].float())


def test_by_position(net):
    want = {f"p{i}": torch.full_like(v, i) for i, v in enumerate(net.state_dict().values())}
    fill_by_position(net, want, "package")
    assert [float(v.flatten()[0]) for v in net.state_dict().values()] == [0, 1, 2, 3]
    with pytest.raises(HeatcheckError, match="3 tensors, not 4"):
        fill_by_position(net, dict(list(want.items())[:3]), "package")
    want["p1"] = torch.zeros(7)
    with pytest.raises(HeatcheckError, match=r"entry 1, p1, is \(7,\), but conv.bias"):
        fill_by_position(net, want, "package")


def test_only_this_module_calls_torch_load():
    source = Path(load_weights.__code__.co_filename).parents[1]
    assert [p.name for p in source.rglob("*.py") if "torch.load(" in p.read_text()] == ["weights.py"]
