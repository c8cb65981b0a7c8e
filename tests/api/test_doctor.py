"""Each complaint is raised by a patient who has it, and by no healthy one."""

import pytest
import torch
import torch.nn.functional as F
from tests.models.conftest import Net, say
from torch import nn

from heatcheck.api.doctor import examine
from heatcheck.core.types import Inputs
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.vision_shim import load_timm
from heatcheck.training.defaults import load_model

X = Inputs({"pixels": torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))})
HEALTHY = Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3, size=8)


class InPlace(Net):
    def __init__(self):
        super().__init__()
        self.act = nn.ReLU(inplace=True)


class Reused(Net):
    def forward(self, x):
        return self.head(self.act(self.act(self.conv(x))).mean((2, 3)))


class Functional(Net):
    def forward(self, x):
        return self.head(F.relu(self.conv(x)).mean((2, 3)))


class Pair(Net):
    def forward(self, x):
        return super().forward(x), x


class Softmaxed(Net):
    def forward(self, x):
        return super().forward(x).softmax(1)


class Infinite(Net):
    def forward(self, x):
        return super().forward(x) / 0


class Detached(Net):
    def forward(self, x):
        return super().forward(x.detach())


class Rounded(Net):
    def forward(self, x):
        return super().forward(x).round()


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(192, 3)

    def forward(self, x):
        return self.head(x.flatten(1))


class Broken(Net):
    def forward(self, x):
        raise ValueError("too small")


COMPLAINTS = {
    InPlace: ("activations work in place", "act", "note"),
    Reused: ("used more than once", "act (2 times)", "note"),
    Functional: ("called as functions", "the network", "note"),
    Pair: ("of the outputs '0' [n, 3], '1' [n, 3, 8, 8], '0' is taken", "Pair", "note"),
    Softmaxed: ("look like probabilities", "add up to 1", "warning"),
    Infinite: ("not finite", "3 of 3", "error"),
    Detached: ("gradients do not reach", "", "warning"),
    Rounded: ("gradient is zero everywhere", "", "warning"),
    Flat: ("no spatial layer", "Flat", "warning"),
    Broken: ("fails on an input: ValueError: too small", "(3, 8, 8)", "error"),
}


def findings(model, x=X):
    return [f for f in examine(model, x) if "no preprocessing" not in f.what]


def test_a_healthy_model_has_no_complaints(net):
    assert examine(load_model(net.eval(), preprocess=HEALTHY), X) == []


@pytest.mark.parametrize("patient", COMPLAINTS, ids=lambda c: c.__name__)
def test_complaints(patient):
    what, where, severity = COMPLAINTS[patient]
    torch.manual_seed(0)
    told = findings(load_model(patient().eval(), preprocess=HEALTHY))
    mine = [f for f in told if what in f.what]
    assert len(mine) == 1
    assert where in mine[0].where
    assert mine[0].severity == severity
    assert mine[0].consequence
    assert mine[0].remedy or severity == "note"
    others = {c: [f for f in told if text in f.what] for c, (text, *_) in COMPLAINTS.items() if c is not patient}
    allowed = {Infinite: {Rounded}}.get(patient, set())
    assert not [c for c, f in others.items() if f and c not in allowed]


def test_training_mode_and_hooks(net):
    net.train().conv.register_forward_hook(lambda *_: None)
    told = " | ".join(f.what for f in findings(load_model(net, preprocess=HEALTHY)))
    assert "training mode" in told
    assert "1 hooks" in told


def test_unknown_preprocessing(net):
    (finding,) = examine(load_model(net.eval()), X)
    assert finding.what == "no preprocessing is known"
    assert "hc.Preprocess" in finding.remedy


def test_black_boxes():
    (finding,) = findings(load_model(lambda x: x.mean((2, 3))))
    assert "black box" in finding.what


def test_without_an_input_only_the_outside_is_told():
    assert [f.what for f in findings(load_model(Softmaxed().eval()), None)] == []
    assert len(findings(load_model(InPlace().eval()), None)) == 1


def test_fused_attention():
    vit = load_timm().create_model("test_vit", img_size=32).eval()
    x = Inputs({"pixels": torch.rand(1, 3, 32, 32)})
    assert next(f.where for f in findings(load_model(vit), x) if "fused" in f.what).startswith("blocks.0.attn")
    for block in vit.blocks:
        block.attn.fused_attn = False
    assert not [f for f in findings(load_model(vit), x) if "fused" in f.what]


def test_a_text_classifier(bert_folder):
    model = load_model(f"hf:{bert_folder}")
    (finding,) = examine(model, model.encode(say("the film was good")))
    assert finding.what == "there is no spatial layer"
    assert finding.severity == "note"


def test_examining_changes_nothing(net):
    model = load_model(net)
    before = model.identity
    examine(model, X)
    del model.identity
    assert model.identity == before
    assert not any(m._forward_hooks for m in model.module().modules())
