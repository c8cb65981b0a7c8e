"""Every image method on real ImageNet networks: its claims, the laws between methods, Captum and TorchCAM.

`test_real_models.py` looks at the published procedures on one of these networks, the files of `tests/methods` at each
method on toys. Here every method meets networks as they are: batch normalisation, ReLU6, residuals, concatenations,
overlapping max-pools, pictures whose side no grid divides. Methods do little work, which leaves claims as they are.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.types import OK, Attribution, Batch, Inputs, NotApplicable, Streams, digest_of_tensor
from heatcheck.models.base import Model
from heatcheck.models.torch_model import TorchModel
from heatcheck.models.vision_shim import load_torchvision
from heatcheck.probe.deletions import Masks
from heatcheck.testing.scenes import probe_for
from heatcheck.testing.watch import state_of

pytestmark = pytest.mark.slow

FILES = {"resnet50_v1": "resnet50_v1_imagenet.safetensors", "squeezenet1_0_v1": "squeezenet1_0_imagenet.safetensors"}
NETWORKS = ("efficientnet_lite0", *FILES)
FEW_CHANNELS = {
    "efficientnet_lite0": "blocks.0",
    "resnet50_v1": "maxpool",
    "squeezenet1_0_v1": "features.3.squeeze_activation",
}
"""Where methods that ask a question per channel look. Score-CAM gives nothing but zeros at some convolutions before
their activation, such as the first of ResNet-50's blocks."""

METHODS = sorted(id for id, entry in catalogue.entries("method").items() if "image" in entry.facts["on"])
WORK = {"samples": 4, "steps": 8, "designs": 2, "units": "grid(3)"}
"""Small numbers for what costs time."""
OWN_WORK = {"lime": {"samples": 8}, "shapley_sampling": {"samples": 1, "units": "grid(3)"}}
"""LIME keeps the segments of the picture as its units; one order of the players and its reverse are complete too."""

ATTENTION = "needs attention between tokens, and this network has none"
SKIPS = {
    **dict.fromkeys(("attention_grad_cam", "bt_head", "bt_token", "generic_attribution", "legrad"), ATTENTION),
    **dict.fromkeys(("rollout", "transformer_attribution"), ATTENTION),
    "bagnet": "needs a BagNet",
    "bcos": "needs a B-cos network",
}
"""What no convolutional network of the usual kind can be asked, and the reason that must be given."""

EXACT = 1e-5
"""How far a complete map's sum may be from what it divides, relative to that: rounding in float32 is below 1e-6."""
LINE = {"efficientnet_lite0": (128, 0.1), "resnet50_v1": (50, 0.05), "squeezenet1_0_v1": (32, 0.01)}
"""Steps and tolerance of integrated gradients, which are as complete as a sum of gradients is an integral. Where units
bend often along the line that takes many: eight steps on the first two miss half of the output."""
QUADRATURE = ("integrated_gradients",)
"""Complete methods that `LINE` is for."""


@dataclass(frozen=True)
class Scene:
    """A network and two of the default pictures.

    Args:
        id: the network's name.
        model: the network.
        three: picture 1 for the class predicted, picture 0 for the class predicted, picture 0 for the runner-up.
    """

    id: str
    model: Model
    three: Batch

    def explain(self, spec: str, batch: Batch | None = None) -> Attribution:
        """A method's maps from a probe that nobody has used, in calls of two."""
        probe = probe_for(self.model, forward=2, backward=2)
        return catalogue.build("method", spec)(probe, self.three if batch is None else batch)

    def sites(self, found: Attribution) -> torch.Tensor:
        """Maps of the batch carried to sites."""
        return self.model.domain.layout(found.values, self.three.x, found.interpolation)


def spec_of(id: str, network: str) -> str:
    """A method with little work."""
    known = catalogue.find("method", id).params
    chosen = OWN_WORK.get(id, {k: v for k, v in WORK.items() if k in known})
    if id in ("score_cam", "ablation_cam"):
        chosen = {"layer": FEW_CHANNELS[network]}
    told = ", ".join(f"{k}={v}" for k, v in chosen.items())
    return f"{id}({told})" if told else id


def load(id: str, shared: Path | None, **how: object) -> Model:
    """A network of `NETWORKS`; those that do not come with pip need the shared folder."""
    if id not in FILES:
        return hc.load_model(id, **how)
    path = shared / "weights" / FILES[id]
    if not path.is_file():
        pytest.skip(f"no {path}")
    return hc.load_model(f"{id}@{path}", **how)


def batch_for(pictures: Inputs, targets: torch.Tensor) -> Batch:
    digests = tuple(digest_of_tensor(row) for row in pictures["pixels"])
    return Batch(pictures, targets, targets.clone(), Streams(0, digests))


def pictures_for(model: Model, n: int) -> Inputs:
    samples = [s for s in hc.load_data("images") if s.label is not None][:n]
    return Inputs.cat([model.encode(s) for s in samples])


@pytest.fixture(scope="module", params=NETWORKS)
def scene(request) -> Iterator[Scene]:
    """A network with its pictures; when every method has had it, it must be as it was."""
    id = request.param
    shared = request.getfixturevalue("shared") if id in FILES else None
    model = load(id, shared)
    if id == "resnet50_v1":  # at 128 pixels it costs a third, and nothing here depends on the size
        usual = model.preprocessing
        model = load(id, shared, preprocess=hc.Preprocess(mean=usual["mean"], std=usual["std"], size=128))
    x = pictures_for(model, 2)
    with torch.inference_mode():
        first, second = model.logits(x).topk(2).indices.T.clone()
    three = batch_for(x.take(torch.tensor([1, 0, 0])), torch.stack([first[1], first[0], second[0]]))
    before = state_of(model.module())
    yield Scene(id, model, three)
    after = state_of(model.module())
    for what, value in before.items():
        assert after[what] == value, f"a method changed the {what} of {id}"


@pytest.mark.parametrize("id", METHODS)
def test_a_method_keeps_its_claims(scene, id):
    """Maps are finite and fit; company and order change no bit; what the method declares holds."""
    spec = spec_of(id, scene.id)
    if id in SKIPS:
        with pytest.raises(NotApplicable, match=SKIPS[id]):
            scene.explain(spec)
        return
    found = scene.explain(spec)
    if catalogue.build("method", id).reads_references:  # and these pictures have none
        assert all("needs a reference" in status for status in found.status)
        return
    assert found.status == (OK,) * 3
    assert bool(torch.isfinite(found.values).all())
    assert found.values.ndim == 3
    sites = scene.sites(found)
    assert sites.shape == scene.model.domain.deletable(scene.three.x).shape

    alone = scene.explain(spec, scene.three.take([1])).values
    assert torch.equal(alone, found.values[1:2]), f"{spec} alone differs by {(alone - found.values[1:2]).abs().max()}"

    claims = catalogue.find("method", id).facts["properties"]
    assert torch.equal(found.values[1], found.values[2]) == ("target_free" in claims)
    if "nonnegative" in claims:
        assert float(found.values.min()) >= 0
    else:
        assert float(found.values.max()) > 0
    if "complete" in claims and id not in QUADRATURE:
        torch.testing.assert_close(sites.double().sum(1), divided(scene, spec, scene.three), rtol=EXACT, atol=0)


@pytest.mark.parametrize("id", QUADRATURE)
def test_an_integral_is_complete_when_its_steps_are_many(scene, id):
    steps, tolerance = LINE[scene.id]
    spec, one = f"{id}(steps={steps})", scene.three.take([1])
    total = scene.explain(spec, one).values.double().sum((1, 2))
    torch.testing.assert_close(total, divided(scene, spec, one), rtol=tolerance, atol=0)


def divided(scene: Scene, spec: str, batch: Batch) -> torch.Tensor:
    """What a complete map divides: the output less what is left of it when all units are deleted.

    A grid whose cells do not fill the picture leaves a margin that belongs to no unit and is never deleted.
    """
    unit = catalogue.build("method", spec).resolve(scene.model.domain)
    probe, params = probe_for(scene.model, forward=2), unit.params()
    partition = probe.units(params.get("units", "pixel"), batch).index
    gone = Masks(torch.arange(len(batch)), lambda i: partition[i] < 0)
    fill = next(params[k] for k in ("baseline", "fill") if k in params)
    return probe.clean(batch).read(unit.output) - probe.deletions(batch, fill, gone).read(unit.output)


# -- the same as others, in double precision ---------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A network in double precision, as Heatcheck and as another library takes it, and one picture."""

    scene: Scene
    net: nn.Module

    @property
    def x(self) -> torch.Tensor:
        """The picture, to be differentiated by."""
        return self.scene.three.x["pixels"].clone().requires_grad_()

    @property
    def target(self) -> torch.Tensor:
        """The class predicted."""
        return self.scene.three.target

    def near(self, spec: str, theirs: torch.Tensor, tolerance: float) -> None:
        """Fail unless maps agree, relative to the largest value."""
        ours = self.scene.explain(spec).values
        known = theirs.detach()
        assert float(known.abs().max()) > 0
        torch.testing.assert_close(ours, known, rtol=0, atol=tolerance * float(known.abs().max()))


def pair_of(id: str, model: Model, change=lambda net: net) -> Pair:
    """A pair with nothing in place, because hooks do not bear it, and whatever else is to be changed."""
    net = copy.deepcopy(model.module()).double()
    for part in net.modules():
        if hasattr(part, "inplace"):
            part.inplace = False
    net = change(net)
    x = Inputs({"pixels": pictures_for(model, 1)["pixels"].double()})
    with torch.inference_mode():
        target = net(x["pixels"]).argmax(1).clone()
    return Pair(Scene(id, TorchModel(net, id, model.domain), batch_for(x, target)), net)


@pytest.fixture(scope="module", params=list(FILES))
def pair(request, shared) -> Pair:
    return pair_of(request.param, load(request.param, shared))


def test_captum_gives_the_same_gradients(pair):
    from captum.attr import InputXGradient, IntegratedGradients, Saliency

    x, target = pair.x, pair.target
    pair.near("saliency", Saliency(pair.net).attribute(x, target, abs=False).sum(1), 1e-9)
    pair.near("input_x_gradient", InputXGradient(pair.net).attribute(x, target).sum(1), 1e-9)
    theirs = IntegratedGradients(pair.net).attribute(x, target=target, n_steps=4, internal_batch_size=2)
    pair.near("integrated_gradients(steps=4)", theirs.sum(1), 1e-6)  # its weights of the steps are in single precision


def test_captum_gives_the_same_behind_relus(pair):
    from captum.attr import Deconvolution, GuidedBackprop

    for spec, theirs in (("guided_backprop", GuidedBackprop), ("deconvolution", Deconvolution)):
        with pytest.warns(UserWarning, match="Setting backward hooks on ReLU"):
            known = theirs(pair.net).attribute(pair.x, pair.target)
        pair.near(spec, known.sum(1), 1e-9)


def test_captum_gives_the_same_deep_lift_where_no_pools_overlap(shared):
    """Its rule for max-pools loses what overlapping windows share, so both see pools that average instead."""
    from captum.attr import DeepLift

    def averaging(net: nn.Module) -> nn.Module:
        for name, part in list(net.features.named_children()):
            if isinstance(part, nn.MaxPool2d):
                net.features.set_submodule(name, nn.AvgPool2d(3, 2, ceil_mode=True))
        return net

    id = "squeezenet1_0_v1"
    pair = pair_of(id, load(id, shared), averaging)
    with pytest.warns(UserWarning, match="Setting forward, backward hooks"):
        known = DeepLift(pair.net).attribute(pair.x, torch.zeros_like(pair.x), target=pair.target)
    pair.near("deep_lift", known.sum(1), 1e-9)


@pytest.mark.parametrize(
    ("spec", "theirs"),
    [
        ("grad_cam", "GradCAM"),
        ("xgrad_cam", "XGradCAM"),
        ("layer_cam", "LayerCAM"),
        ("grad_cam_pp(torchcam_compat=true)", "GradCAMpp"),
    ],
)
def test_torchcam_gives_the_same(pair, spec, theirs):
    load_torchvision()
    from torchcam import methods

    layer = {"resnet50_v1": "layer4", "squeezenet1_0_v1": "features"}[pair.scene.id]
    with getattr(methods, theirs)(pair.net, layer, input_shape=tuple(pair.x.shape[1:])) as extractor:
        (known,) = extractor(pair.target.tolist(), pair.net(pair.x), normalized=False)
    pair.near(str(catalogue.build("method", spec, layer=layer)), known, 1e-9)


# -- equalities between methods ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cam", ["xgrad_cam", "hires_cam"])
def test_behind_pooling_and_one_linear_layer_cams_agree(scene, cam):
    """All three networks end so; SqueezeNet's linear layer comes first."""
    known = scene.explain("grad_cam").values
    torch.testing.assert_close(scene.explain(cam).values, known, rtol=0, atol=1e-4 * float(known.max()))


def test_relevance_by_plain_shares_is_input_times_gradient(pair):
    """Biases keep their share, activations and max-pools hand on: layer by layer that is the chain rule."""
    known = pair.scene.explain("input_x_gradient").values
    pair.near("lrp(composite=epsilon, epsilon=0.0)", known, 1e-9)
    other = pair.scene.explain("lrp").values
    assert float((other - known).abs().max()) > 0.1 * float(known.abs().max())


def test_the_oracle_is_occlusion_and_its_opposite(scene):
    one = scene.three.take([0])
    known = scene.explain("occlusion", one).values
    assert torch.equal(scene.explain("oracle", one).values, known)
    assert torch.equal(scene.explain("anti_oracle", one).values, -known)


def test_the_tables_name_methods_that_exist():
    claimed = {id for id in METHODS if "complete" in catalogue.find("method", id).facts["properties"]}
    assert set(QUADRATURE) < claimed
    assert set(SKIPS) | set(OWN_WORK) < set(METHODS)
