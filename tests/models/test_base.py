"""Who a model is, and that looking at it leaves no trace."""

import copy
import linecache

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from heatcheck.core.types import HeatcheckError, Inputs, NotApplicable, Sample
from heatcheck.models.base import Layer
from heatcheck.models.load import load_model
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.torch_model import TorchModel
from heatcheck.models.vision_shim import load_timm, load_torchvision

from .conftest import Net

PIXELS = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
HALF = (0.5, 0.5, 0.5)


def identity(network, **facts):
    return load_model(network, **facts).identity


def test_copies_are_the_same_model(net):
    assert identity(net) == identity(copy.deepcopy(net)) == identity(net, name="another name")
    net.train()
    assert identity(net) == identity(copy.deepcopy(net).eval().requires_grad_(False))


def test_a_weight_a_buffer_and_a_precision_change_it(net):
    before = identity(net)
    assert identity(copy.deepcopy(net).double()) != before
    buffered = copy.deepcopy(net)
    buffered.register_buffer("shift", torch.zeros(1), persistent=False)
    one = identity(buffered)
    buffered.shift.fill_(1.0)
    assert identity(buffered) != one != before
    net.head.weight.data[0, 0] += 1e-6
    assert identity(net) != before


def test_preprocessing_changes_it(net):
    given = [Preprocess(mean=HALF, std=HALF, size=s) for s in (8, 9)]
    assert len({identity(net), *(identity(net, preprocess=p) for p in given)}) == 3


def test_an_attribute_and_a_setting_of_a_layer_change_it(net):
    before = identity(net)
    net.scale = 2.0
    assert identity(net) != before
    net.scale = 1.0
    net.conv.stride = (2, 2)
    assert identity(net) != before


def test_the_code_changes_it_but_comments_do_not():
    def build(body):
        space = {}
        lines = f"class Own(Net):\n    def forward(self, x):\n{body}"
        name = f"<{body}>"
        linecache.cache[name] = (len(lines), None, lines.splitlines(keepends=True), name)
        exec(compile(lines, name, "exec"), {"Net": Net, "__name__": "own"}, space)
        own = space["Own"](2)
        for weight in own.parameters():
            nn.init.ones_(weight)
        return identity(own)

    plain = build("        return self.head(x.mean((2, 3)))\n")
    assert plain == build("        '''A note.'''\n        # why\n        return self.head(x.mean((2, 3)))\n")
    assert plain != build("        return self.head(x.amax((2, 3)))\n")


def test_helpers_of_the_forward_pass_count():
    class Plus(Net):
        def forward(self, x):
            return self.helper(super().forward(x))

        def helper(self, x):
            return x + 1

    class Minus(Net):
        def forward(self, x):
            return self.helper(super().forward(x))

        def helper(self, x):
            return x - 1

    Minus.__qualname__ = Plus.__qualname__
    Minus.__name__ = Plus.__name__
    plus = Plus()
    minus = Minus()
    minus.load_state_dict(plus.state_dict())
    assert identity(plus) != identity(minus)


def test_the_users_module_is_untouched(net):
    net.train()
    handle = net.conv.register_forward_hook(lambda *_: None)
    net.head.bias.requires_grad_(False)
    before = copy.deepcopy(net.state_dict())
    model = load_model(net)
    x = Inputs({"pixels": PIXELS})
    model.logits(x)
    model.layers(x)
    model.randomised("", 0).logits(x)
    assert net.training
    assert all(m.training for m in net.modules())
    assert list(net.conv._forward_hooks) == [handle.id]
    assert [p.requires_grad for p in net.parameters()] == [True, True, True, False]
    assert all(p.grad is None for p in net.parameters())
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    net.head.bias.data += 1
    assert not torch.equal(model.module().head.bias, net.head.bias)
    assert not model.module().training
    assert not model.module().conv._forward_hooks


def test_the_global_random_state_is_untouched(bert_folder, tmp_path):
    torch.save(load_timm().create_model("test_resnet").state_dict(), tmp_path / "w.pt")
    before = torch.get_rng_state()
    load_model(f"timm:test_resnet@{tmp_path / 'w.pt'}")
    load_model(f"hf:{bert_folder}")
    assert torch.equal(torch.get_rng_state(), before)


def test_layers_and_attention_of_known_architectures():
    resnet = load_model(load_timm().create_model("test_resnet"))
    assert resnet.layers(Inputs({"pixels": torch.zeros(1, 3, 64, 64)}))[-1] == Layer("layer4", 96, 2, 2)
    assert resnet.attention_blocks() == []
    timm_vit = load_model(load_timm().create_model("test_vit"))
    assert timm_vit.attention_blocks() == [f"blocks.{i}.attn" for i in range(len(timm_vit.module().blocks))]
    vit = load_torchvision().models.VisionTransformer(16, 8, 2, 2, 8, 8, num_classes=3)
    model = load_model(vit)
    assert model.attention_blocks() == [f"encoder.layers.encoder_layer_{i}.self_attention" for i in range(2)]


def test_attention_weights_are_no_feature_maps():
    vit = load_timm().create_model("test_vit", img_size=32)
    for block in vit.blocks:
        block.attn.fused_attn = False
    names = [layer.name for layer in load_model(vit).layers(Inputs({"pixels": torch.zeros(1, 3, 32, 32)}))]
    assert names
    assert not [n for n in names if ".attn." in n]


@pytest.mark.parametrize("wrap", [lambda y: (y, 0), lambda y: [y], lambda y: {"logits": y, "loss": 0}])
def test_logits_are_found_in_what_networks_return(net, wrap):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net

        def forward(self, x):
            return wrap(self.inner(x))

    assert_close(load_model(Wrapped()).logits(Inputs({"pixels": PIXELS})), net.eval()(PIXELS))


def test_what_is_no_classifier_is_refused():
    with pytest.raises(HeatcheckError, match=r"the output is \[2, 3, 8, 8\] for 2 inputs"):
        load_model(nn.ReLU()).logits(Inputs({"pixels": PIXELS}))


def test_inputs_get_the_networks_precision(net):
    model = load_model(net.double())
    assert model.encode(Sample("t", "d", PIXELS[0]))["pixels"].dtype == torch.float64


def test_channels_last_gives_the_same_identity_and_nearly_the_same_logits(net):
    first, second = (TorchModel(net, "n", load_model(net).domain, channels_last=flag) for flag in (False, True))
    assert first.identity == second.identity
    assert_close(first.logits(Inputs({"pixels": PIXELS})), second.logits(Inputs({"pixels": PIXELS})))


class Upside(nn.Module):
    """Registered from the output to the input, with weights of its own, attention, and a head that is never used."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.arange(3.0).reshape(1, 3, 1, 1))
        self.head = nn.Linear(4, 3)
        self.spare = nn.Sequential(nn.Linear(4, 3))
        self.look = nn.MultiheadAttention(4, 1, batch_first=True)
        self.norm = nn.BatchNorm2d(4)
        self.conv = nn.Conv2d(3, 4, 4, stride=4)

    def forward(self, x):
        cells = self.norm(self.conv(x + self.shift)).flatten(2).transpose(1, 2)
        return self.head(self.look(cells, cells, cells)[0].mean(1))


class TestRandomised:
    """Layers in the order of their use, and twins with some of them drawn anew."""

    X = Inputs({"pixels": PIXELS})

    def test_layers_come_in_the_order_of_use(self):
        model = load_model(Upside())
        assert model.weighted_layers(self.X) == [".", "conv", "norm", "look", "look.out_proj", "head"]
        assert not any(m._forward_pre_hooks for m in model.module().modules())

    def test_one_several_and_all_layers(self):
        model = load_model(Upside())
        before = model.module().state_dict()

        def changed(layer):
            twin = model.randomised(layer, 0).module().state_dict()
            return {k for k, v in twin.items() if not torch.equal(v, before[k])}

        assert changed(".") == {"shift"}
        assert changed("head") == {"head.weight", "head.bias"}
        assert changed(["head", "conv"]) == {"head.weight", "head.bias", "conv.weight", "conv.bias"}
        still = {"norm.weight", "norm.bias", "look.in_proj_bias", "look.out_proj.bias"}  # ones and zeros have no spread
        everything = {k for k, _ in model.module().named_parameters()} - still
        assert changed("") == everything
        assert changed([]) == set()

    def test_a_layers_draws_depend_on_the_seed_and_its_name_alone(self):
        model = load_model(Upside())
        one, two, all_ = (model.randomised(layer, 7).module() for layer in ("head", ["conv", "head"], ""))
        assert torch.equal(one.head.weight, two.head.weight)
        assert torch.equal(one.head.weight, all_.head.weight)
        assert not torch.equal(one.head.weight, model.randomised("head", 8).module().head.weight)
        assert_close(one.head.weight.mean(), model.module().head.weight.mean(), atol=0.5, rtol=0)

    def test_classes_are_counted_once(self):
        model = load_model(Upside())
        assert model.class_count(self.X) == 3
        model.logits = None
        assert model.class_count(self.X) == 3


class TestFunctions:
    """Any function is a black box."""

    def test_it_answers_and_shows_nothing(self, net):
        model = load_model(lambda x: net(x).tolist(), name="box")
        assert not model.differentiable
        assert_close(model.logits(Inputs({"pixels": PIXELS})), net(PIXELS))
        x = Inputs({"pixels": PIXELS})
        for ask in (model.module, lambda: model.weighted_layers(x), model.attention_blocks):
            with pytest.raises(NotApplicable, match="box is a black box"):
                ask()
        with pytest.raises(NotApplicable):
            model.layers(Inputs({"pixels": PIXELS}))

    def test_its_preprocessing_is_used(self, picture):
        model = load_model(lambda x: x.mean((2, 3)), preprocess=Preprocess(mean=HALF, std=HALF, size=16))
        assert model.encode(picture)["pixels"].shape == (1, 3, 16, 16)
        assert model.domain.mean == HALF

    def test_identity(self, net):
        def wrapped(network):
            return lambda x: network(x)

        other = copy.deepcopy(net)
        other.head.bias.data += 1
        same = {load_model(wrapped(n), name="f").identity for n in (net, copy.deepcopy(net))}
        assert len(same) == 1
        assert load_model(wrapped(other), name="f").identity not in same
        given = {load_model(wrapped(n), name="f", identity="v1").identity for n in (net, other)}
        assert len(given) == 1
        assert load_model(wrapped(net), name="f", identity="v2").identity not in given
        prepared = load_model(wrapped(net), name="f", identity="v1", preprocess=Preprocess(mean=HALF, std=HALF))
        assert prepared.identity not in given

    def test_wrong_shapes_are_told(self):
        with pytest.raises(HeatcheckError, match=r"\[3\] for 2 inputs"):
            load_model(lambda x: x.mean((0, 2, 3))).logits(Inputs({"pixels": PIXELS}))
