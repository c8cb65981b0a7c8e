"""Networks for other classes and networks begun anew: what is replaced, what is kept, and which are of one kind."""

import math

import pytest
import torch
from torch import nn

from heatcheck.core.types import HeatcheckError, Inputs
from heatcheck.models.architectures.small.vgg import SmallVgg
from heatcheck.models.load import load_model
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.retarget import reinitialised, with_classes
from heatcheck.models.same_architecture import network_architecture, same_architecture
from heatcheck.models.vision_shim import load_timm, load_torchvision, load_transformers
from heatcheck.testing.models import fill_weights

from .conftest import Net, save_text_model

MUTANTS = (
    ("models/retarget.py", "_recount(network, before, width)", "pass", "test_a_b_cos_network_gets_the_bias_of_its_classes"),
    ("models/retarget.py", "*sorted(as_wide - set(entered))", "", "test_heads_that_help_in_training_are_new_too"),
    ("models/retarget.py", "for several in (1, 2):", "for several in (1,):", "test_two_heads_that_answer_together"),
    ("models/retarget.py", "# shapes that no longer fit\n        return False", "\n        return True",
     "test_a_network_without_a_last_layer_is_refused"),
    ("models/retarget.py", "twin.to(memory_format=torch.contiguous_format)", "twin.cpu()",
     "test_how_weights_lie_in_memory_does_not_matter"),
    ("models/same_architecture.py", "architecture(without_width(model, x))", "architecture(model.module())",
     "test_weights_and_classes_do_not_make_another_architecture"),
)  # fmt: skip

SIDE = 32
READ = Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3, size=SIDE)
NAMES = ("ant", "bee", "cat")


def seeded(make, **facts):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make(**facts).eval()


def timm(name, **facts):
    return seeded(load_timm().create_model, model_name=name, num_classes=11, **facts)


def torchvision(name, **facts):
    return seeded(getattr(load_torchvision().models, name), num_classes=11, **facts)


def picture(side=SIDE, n=2):
    return torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(0))


NETWORKS = {
    "timm": (lambda: timm("test_resnet"), {"fc"}),
    "timm's ViT": (lambda: timm("test_vit", img_size=SIDE), {"head"}),
    "torchvision": (lambda: torchvision("mobilenet_v3_small"), {"classifier.3"}),
    "a convolution": (lambda: torchvision("squeezenet1_1"), {"classifier.1"}),
    "a user's own": (lambda: seeded(Net, classes=11), {"head"}),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_layer_that_decides_the_width_is_new(kind):
    make, heads = NETWORKS[kind]
    network = make()
    model = load_model(network, preprocess=READ)
    before = torch.get_rng_state()
    changed = with_classes(model, NAMES, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert changed(picture()).shape == (2, 3)
    own, new = network.state_dict(), changed.state_dict()
    assert {name.rpartition(".")[0] for name in own if own[name].shape != new[name].shape} == heads
    assert all(torch.equal(own[name], new[name]) for name in own if name.rpartition(".")[0] not in heads)
    assert all(p.requires_grad for p in changed.parameters()) and not changed.training
    head = changed.get_submodule(next(iter(heads)))
    assert head.weight.std() > 0 and len(head.weight.unique()) > head.weight.numel() / 2
    again, other = (with_classes(model, NAMES, seed=s).get_submodule(next(iter(heads))) for s in (3, 4))
    assert torch.equal(again.weight, head.weight) and not torch.equal(other.weight, head.weight)
    assert model.module()(picture()).shape == (2, 11)  # the model is as it was


def test_as_many_classes_as_before_are_a_new_layer_too():
    model = load_model(timm("test_resnet"), preprocess=READ)
    changed = with_classes(model, [str(i) for i in range(11)], seed=0)
    assert not torch.equal(changed.fc.weight, model.module().fc.weight)


def test_two_heads_that_answer_together():
    network = timm("deit_tiny_distilled_patch16_224", img_size=SIDE, embed_dim=24, depth=1, num_heads=2)
    changed = with_classes(load_model(network, preprocess=READ), NAMES, seed=0)
    assert changed(picture()).shape == (2, 3)
    assert not torch.equal(changed.head.weight, changed.head_dist.weight)
    assert changed.num_classes == 3


def test_heads_that_help_in_training_are_new_too():
    class Helped(Net):
        def __init__(self):
            super().__init__(11)
            self.aux = nn.Linear(4, 11)

        def forward(self, x):
            out = super().forward(x)
            return (out, self.aux(self.conv(x).mean((2, 3)))) if self.training else out

    changed = with_classes(load_model(seeded(Helped), preprocess=READ), NAMES, seed=0).train()
    assert [out.shape for out in changed(picture())] == [(2, 3), (2, 3)]
    assert changed.aux.weight.std() > 0


def test_a_text_classifier(tmp_path):
    folder = save_text_model(tmp_path / "bert")
    model = load_model(f"hf:{folder}")
    changed = with_classes(model, NAMES, seed=0)
    words = torch.tensor([[2, 8, 9, 3]])
    assert changed(words).logits.shape == (1, 3)
    assert changed.config.num_labels == 3 and changed.num_labels == 3
    assert model.module().config.num_labels != 3
    spread = changed.classifier.weight.std() / changed.config.initializer_range
    assert 0.7 < spread < 1.3 and not changed.classifier.bias.any()
    assert torch.equal(changed.get_input_embeddings().weight, model.module().get_input_embeddings().weight)
    anew = reinitialised(changed, 1)
    assert torch.isfinite(anew(words).logits).all()
    assert not any(
        torch.equal(a, b) for a, b in zip(anew.parameters(), changed.parameters(), strict=True) if a.std() > 0
    )
    assert all(map(torch.equal, reinitialised(changed, 1).parameters(), anew.parameters()))
    assert same_architecture(model, load_model(f"hf:{save_text_model(tmp_path / 'other', seed=4, num_labels=5)}"))


def test_a_b_cos_network_gets_the_bias_of_its_classes():
    changed = with_classes(load_model("small:bcos8"), NAMES, seed=0)
    assert changed.logit_bias == -math.log(2) and changed.fc.linear.weight.shape[0] == 3
    assert changed(picture()).shape == (2, 3)


@pytest.mark.parametrize("spec", ["resnet8", "fixup8", "vgg8(width=4)", "vit(dim=16, depth=1, heads=2)", "bagnet9(width=4)",
                                  "bcos8"])  # fmt: skip
def test_a_small_network_for_other_classes_begins_as_one_that_was_built_for_them(spec):
    changed = reinitialised(with_classes(load_model(f"small:{spec}"), NAMES, seed=5), 0)
    built = load_model(f"small:{spec}", classes=NAMES)
    assert all(map(torch.equal, changed.state_dict().values(), built.module().state_dict().values()))
    assert same_architecture(load_model(f"small:{spec}"), built)


class Cosines(nn.Module):
    """No layer is as wide as the output: class names are rows of a tensor."""

    def __init__(self):
        super().__init__()
        self.tower = Net(4)
        self.names = nn.Parameter(torch.ones(4, 4))

    def forward(self, x):
        return self.tower(x) @ self.names.T


def test_a_network_without_a_last_layer_is_refused():
    with pytest.raises(
        HeatcheckError, match=r"no last layer can be replaced: its 4 outputs are those of no linear layer"
    ):
        with_classes(load_model(Cosines(), name="clip", preprocess=READ), NAMES, seed=0)
    with pytest.raises(HeatcheckError, match="colours is a function: there is no network"):
        with_classes(load_model(lambda x: x.mean((2, 3)), name="colours"), NAMES, seed=0)
    model = load_model(Net(), name="net")
    with pytest.raises(HeatcheckError, match=r"net: its preprocessing is not known.*pass preprocess="):
        with_classes(model, NAMES, seed=0)
    assert with_classes(model, ("a", "b"), seed=0, x=Inputs({"pixels": picture()}))(picture()).shape == (2, 2)
    model.release()
    with pytest.raises(HeatcheckError, match="net has let go of its weights"):
        with_classes(model, NAMES, seed=0, x=Inputs({"pixels": picture()}))


@pytest.mark.parametrize(("classes", "said"), [
    ([], "at least two classes"), (["only"], r"at least two classes, and got \['only'\]"),
    (["a", "b", "a"], "a is there more than once"),
])  # fmt: skip
def test_too_few_classes_and_doubled_names(net, classes, said):
    with pytest.raises(HeatcheckError, match=said):
        with_classes(load_model(net, preprocess=READ), classes, seed=0)


# -- begun anew --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: timm("test_resnet"), lambda: timm("test_vit", img_size=SIDE),
                                  lambda: timm("test_convnext"), lambda: torchvision("shufflenet_v2_x0_5"),
                                  lambda: Net(11)], ids=["resnet", "vit", "convnext", "torchvision", "own"])  # fmt: skip
def test_every_weight_is_drawn_anew(make):
    network = fill_weights(make(), 9, torch.float32)
    for buffer in network.buffers():
        if buffer.is_floating_point():
            buffer.fill_(5.0)
    kept = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    before = torch.get_rng_state()
    anew = reinitialised(network, 1)
    assert torch.equal(torch.get_rng_state(), before)
    for name, weight in anew.named_parameters():
        assert torch.isfinite(weight).all() and not torch.equal(weight, kept[name]), name
    for name, buffer in anew.named_buffers():
        if name.endswith("running_var"):
            assert torch.equal(buffer, torch.ones_like(buffer)), name
    assert all(torch.equal(kept[name], tensor) for name, tensor in network.state_dict().items())
    assert torch.isfinite(anew(picture())).all() and all(p.requires_grad for p in anew.parameters())
    assert all(map(torch.equal, reinitialised(network, 1).parameters(), anew.parameters()))
    assert not all(map(torch.equal, reinitialised(network, 2).parameters(), anew.parameters()))


def test_a_linear_layer_begins_as_torch_begins_it():
    with torch.random.fork_rng():
        torch.manual_seed(4)
        want = nn.Linear(3, 2)
    assert torch.equal(reinitialised(nn.Linear(3, 2), 4).weight, want.weight)


def test_how_weights_lie_in_memory_does_not_matter():
    facts = {"depth": 8, "width": 4, "norm": "batch", "bias": True, "classes": 3, "size": 32}
    network, turned = SmallVgg(**facts), SmallVgg(**facts).to(memory_format=torch.channels_last)
    assert all(map(torch.equal, reinitialised(network, 0).parameters(), reinitialised(turned, 0).parameters()))


def test_tied_weights_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.there, self.back = nn.Linear(3, 3), nn.Linear(3, 3)
            self.back.weight = self.there.weight

    anew = reinitialised(Tied(), 0)
    assert anew.back.weight is anew.there.weight


def test_a_weight_that_nobody_draws_is_named():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.temperature = nn.Linear(3, 2), nn.Parameter(torch.ones(1))

    with pytest.raises(
        HeatcheckError, match=r"Own cannot begin anew: nothing draws temperature; give .* reset_parameters"
    ):
        reinitialised(Own(), 0)


# -- one architecture --------------------------------------------------------------------------------------------


def test_weights_and_classes_do_not_make_another_architecture():
    one = load_model(timm("test_resnet"), preprocess=READ)
    two = load_model(load_timm().create_model("test_resnet", num_classes=2), preprocess=READ)
    patches = load_model(with_classes(one, ("no patch", "patch"), seed=0), preprocess=READ, name="patches")
    assert one.identity != two.identity
    assert same_architecture(one, two) and same_architecture(one, patches)
    assert len(network_architecture(one)) == len(one.identity)


@pytest.mark.parametrize("other", ["resnet14", "resnet(depth=8, width=8)", "resnet(depth=8, norm=none)",
                                   "resnet(depth=8, bias=false)", "fixup8", "vgg8(width=4)"])  # fmt: skip
def test_depth_width_norm_and_biases_do(other):
    assert not same_architecture(load_model("small:resnet8"), load_model(f"small:{other}"))


def test_so_does_what_a_network_computes():
    class Doubled(Net):
        def forward(self, x):
            return 2 * super().forward(x)

    one, other, scaled = (load_model(n, preprocess=READ) for n in (Net(), Doubled(), Net(scale=2.0)))
    assert not same_architecture(one, other) and not same_architecture(one, scaled)


def test_transformers_classifiers_of_pictures():
    transformers = load_transformers()
    config = transformers.ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
                                    image_size=SIDE, patch_size=16, num_labels=11)  # fmt: skip
    network = seeded(transformers.ViTForImageClassification, config=config)
    changed = with_classes(load_model(network, preprocess=READ), NAMES, seed=0)
    assert changed(picture()).logits.shape == (2, 3)
    anew = reinitialised(changed, 0)
    assert torch.isfinite(anew(picture()).logits).all()
