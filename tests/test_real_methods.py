"""Every image method on real ImageNet networks: its claims, the laws between methods, Captum and TorchCAM.

`test_real_models.py` looks at the published procedures on one of these networks, the files of `tests/methods` at each
method on toys. Here every method meets networks as they are: batch normalisation, ReLU6, residuals, concatenations,
overlapping max-pools, pictures whose side no grid divides. Methods do little work, which leaves claims as they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import heatcheck as hc
from heatcheck import catalogue
from heatcheck.engine.probe import Masks
from heatcheck.models.base import Explained
from heatcheck.testing.scenes import probe_for
from heatcheck.testing.watch import state_of
from heatcheck.types import OK, Attribution, Batch, Inputs, NotApplicable, Streams, digest_of_tensor

pytestmark = pytest.mark.slow

FILES = {"resnet50_v1": "resnet50_v1_imagenet.safetensors", "squeezenet1_0_v1": "squeezenet1_0_imagenet.safetensors"}
NETWORKS = ("efficientnet_lite0", *FILES)
FEW_CHANNELS = {
    "efficientnet_lite0": "blocks.0",
    "resnet50_v1": "layer1.0.conv1",
    "squeezenet1_0_v1": "features.3.squeeze_activation",
}
"""Where methods that ask a question per channel look."""

METHODS = sorted(id for id, entry in catalogue.entries("method").items() if "image" in entry.facts["on"])
WORK = {"samples": 4, "steps": 8, "designs": 2, "units": "grid(3)"}
"""Small numbers for what costs time."""
OWN_WORK = {"lime": {"samples": 8}}
"""LIME keeps the segments of the picture as its units."""

ATTENTION = "needs attention between tokens, and this network has none"
SKIPS = {
    **dict.fromkeys(("attention_grad_cam", "bt_head", "bt_token", "generic_attribution", "legrad"), ATTENTION),
    **dict.fromkeys(("rollout", "transformer_attribution"), ATTENTION),
    "bagnet": "needs a BagNet",
    "bcos": "needs a B-cos network",
}
"""What no convolutional network of the usual kind can be asked, and the reason that must be given."""

SUMS = {"deep_lift": 1e-5, "idgi": 1e-5, "kernel_shap": 1e-5, "partition_shap": 1e-5, "shapley_sampling": 1e-5}
"""How far a complete map's sum may be from what it divides, relative to that, in float32. Integrated gradients are left
to a test of their own: they are only as complete as their sum of a few gradients is an integral."""


@dataclass(frozen=True)
class Scene:
    """A network and two of the default pictures.

    Args:
        id: the network's name.
        model: the network.
        three: picture 1 for the class predicted, picture 0 for the class predicted, picture 0 for the runner-up.
    """

    id: str
    model: Explained
    three: Batch

    def explain(self, spec: str, batch: Batch | None = None) -> Attribution:
        """A method's maps from a probe that nobody has used, in calls of two."""
        probe = probe_for(self.model, forward=2, backward=2)
        return catalogue.build("method", spec)(probe, self.three if batch is None else batch)

    def sites(self, found: Attribution, batch: Batch | None = None) -> torch.Tensor:
        """Maps carried to sites."""
        batch = self.three if batch is None else batch
        return self.model.domain.layout(found.values, batch.x, found.interpolation)


def spec_of(id: str, network: str) -> str:
    """A method with little work."""
    known = catalogue.find("method", id).params
    chosen = OWN_WORK.get(id, {k: v for k, v in WORK.items() if k in known})
    if id in ("score_cam", "ablation_cam"):
        chosen = {"layer": FEW_CHANNELS[network]}
    told = ", ".join(f"{k}={v}" for k, v in chosen.items())
    return f"{id}({told})" if told else id


def load(id: str, shared: Path | None, **how: object) -> Explained:
    """A network of `NETWORKS`; those that do not come with pip need the shared folder."""
    if id not in FILES:
        return hc.load_model(id, **how)
    path = shared / "weights" / FILES[id] if shared else Path(FILES[id])
    if not path.is_file():
        pytest.skip(f"no {path}")
    return hc.load_model(f"{id}@{path}", **how)


def batch_for(model: Explained, pictures: Inputs, targets: torch.Tensor) -> Batch:
    digests = tuple(digest_of_tensor(row) for row in pictures["pixels"])
    return Batch(pictures, targets, targets.clone(), Streams(0, digests))


def pictures_for(model: Explained, n: int) -> Inputs:
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
    three = batch_for(model, x.take(torch.tensor([1, 0, 0])), torch.stack([first[1], first[0], second[0]]))
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
    if "complete" in claims and id != "integrated_gradients":
        torch.testing.assert_close(sites.double().sum(1), divided(scene, spec), rtol=SUMS[id], atol=0)


def divided(scene: Scene, spec: str) -> torch.Tensor:
    """What a complete map divides: the output less what is left of it when all units are deleted.

    A grid whose cells do not fill the picture leaves a margin that belongs to no unit and is never deleted.
    """
    unit = catalogue.build("method", spec).resolve(scene.model.domain)
    probe, batch, params = probe_for(scene.model, forward=2), scene.three, unit.params()
    partition = probe.units(params.get("units", "pixel"), batch).index
    gone = Masks(torch.arange(len(batch)), lambda i: partition[i] < 0)
    fill = next(params[k] for k in ("baseline", "fill") if k in params)
    return probe.clean(batch).read(unit.output) - probe.deletions(batch, fill, gone).read(unit.output)


def test_every_claim_of_completeness_is_looked_at():
    claimed = {id for id in METHODS if "complete" in catalogue.find("method", id).facts["properties"]}
    assert claimed == {*SUMS, "integrated_gradients"}
    assert set(SKIPS) < set(METHODS)
