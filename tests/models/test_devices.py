"""Devices and precisions: which there are, which one is meant, and that an answer says what it was computed in."""

import pytest
import torch
from torch import nn

import heatcheck as hc
from heatcheck.core.types import HeatcheckError, NotApplicable
from heatcheck.models import devices
from heatcheck.models.devices import WORKER, check_precision, choose_device, own_device
from heatcheck.testing import gap_linear

MUTANTS = (
    (
        "models/torch_model.py",
        '**({} if self.precision == FP32 else {"precision": self.precision}),',
        "",
        "test_a_precision_is_another_identity_of_the_same_lineage",
    ),
    (
        "models/devices.py",
        'int(os.environ.get(WORKER, "0")) % max(1, torch.cuda.device_count())',
        "0",
        "test_worker_processes_share_the_gpus",
    ),
)


@pytest.fixture(autouse=True)
def trusted(request, monkeypatch):
    """Takes it that this CPU computes in half precision, which a trial in a process of its own takes seconds to say."""
    if "process_of_its_own" not in request.node.name:
        monkeypatch.setattr(devices, "_cpu_computes", lambda precision: True)


@pytest.fixture
def two_gpus(monkeypatch):
    """A machine that says that it has two GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_auto_takes_the_best_there_is(two_gpus):
    assert devices.devices()[:2] == ["cuda:0", "cuda:1"] and devices.devices()[-1] == "cpu"
    assert choose_device("auto") == "cuda"
    assert [choose_device(name) for name in ("cpu", "cuda", "cuda:1")] == ["cpu", "cuda", "cuda:1"]


def test_without_an_accelerator_auto_is_the_cpu():
    assert choose_device("auto") == ("cpu" if devices.devices() == ["cpu"] else devices.devices()[0].partition(":")[0])


def test_a_device_that_is_not_there_is_an_error_that_says_what_there_is(two_gpus):
    with pytest.raises(HeatcheckError, match=r"'cuda:7' is not there: this machine has cuda:0, cuda:1 and cpu"):
        choose_device("cuda:7")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("ask", [lambda m, x: hc.explain(m, x, method="saliency", device="cuda"), None])
def test_the_verbs_refuse_a_device_that_is_not_there(ask, net):
    x = torch.rand(2, 3, 8, 8)
    ask = ask or (lambda m, x: hc.score(m, x, torch.rand(1, 2, 8, 8), metric="sds", device="cuda"))
    with pytest.raises(HeatcheckError, match="this machine has cpu"):
        ask(net, x)


def test_worker_processes_share_the_gpus(two_gpus, monkeypatch):
    found = []
    for number in range(3):
        monkeypatch.setenv(WORKER, str(number))
        found.append(str(own_device("cuda")))
    assert found == ["cuda:0", "cuda:1", "cuda:0"]
    assert str(own_device("cuda:1")) == "cuda:1"


def test_a_module_stays_where_it_lives_unless_it_is_moved(net):
    there = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).to("meta")
    model = hc.load_model(there)
    assert model.device.type == "meta" and model.on(torch.device("meta")) is model
    assert hc.load_model(net).on(torch.device("meta")).device.type == "meta"
    assert hc.load_model(net, device="cpu").device.type == "cpu"


def test_a_precision_is_another_identity_of_the_same_lineage(net):
    plain, half = hc.load_model(net), hc.load_model(net, precision="bf16")
    assert plain.identity == hc.load_model(net, precision="fp32").identity
    assert half.identity not in (plain.identity, hc.load_model(net, precision="fp16").identity)
    assert half.lineage == plain.identity, "the random control draws the same numbers"
    assert half.computing_in("fp32").identity == plain.identity


def test_half_precision_rounds_passes_and_gives_scores_in_the_models_own_type(net):
    x = torch.rand(2, 3, 8, 8)
    plain, half = hc.load_model(net), hc.load_model(net, precision="bf16")
    a, b = (m.logits(m.domain.wrap(x)) for m in (plain, half))
    assert b.dtype == a.dtype == torch.float32
    assert not torch.equal(a, b)
    torch.testing.assert_close(a, b, rtol=0.05, atol=0.05)
    heat = hc.explain(net, x, method="integrated_gradients(steps=4)", precision="bf16")
    assert heat.values.dtype == torch.float32 and heat.status == ("ok", "ok")
    scores = hc.score(net, x, heat, metric="sds(units=grid(2))", precision="bf16")
    assert scores.dtype == torch.float64 and bool(scores.isfinite().all())


def test_what_rewrites_the_arithmetic_says_that_it_needs_full_precision(net):
    with pytest.raises(NotApplicable, match="computes in bf16; use precision fp32"):
        hc.explain(net, torch.rand(1, 3, 8, 8), method="lrp", precision="bf16")


def test_a_precision_that_a_device_does_not_have_is_refused():
    with pytest.raises(HeatcheckError, match=r"tf32.*the device is cpu; use fp32"):
        check_precision("tf32", "cpu")
    with pytest.raises(HeatcheckError, match="precision='fp8' is not one of fp32, tf32, bf16, fp16"):
        check_precision("fp8", "cpu")


def test_a_cpu_that_dies_of_half_precision_is_found_out_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(devices, "_TRIAL", "import os; os.abort()  # {dtype}")
    devices._cpu_computes.cache_clear()
    try:
        with pytest.raises(HeatcheckError, match=r"bf16.*does not work on this CPU"):
            check_precision("bf16", "cpu")
    finally:
        devices._cpu_computes.cache_clear()


def test_a_function_has_no_precision_to_choose():
    toy = gap_linear(dtype=torch.float32)
    with pytest.raises(HeatcheckError, match="is a function, which computes as it is written"):
        hc.load_model(lambda x: toy.module()(x), precision="bf16")
