"""Stored maps of networks with patches: the side of a patch is found, and what has none is left out."""

import numpy as np
import pytest
import torch
from torch import nn

import heatcheck as hc
from heatcheck.api.compare import compare
from heatcheck.api.model_specs import patch_in, patch_of
from heatcheck.api.patch_maps import borders
from heatcheck.stats.evidence import NOT_TESTABLE
from heatcheck.stats.patch_borders import border_excess

MUTANTS = (
    ("api/patch_maps.py", "high if high == wide", "high + 1 if high == wide", "test_the_grid_of_attention_maps_counts"),
    ("api/patch_maps.py", "[:most]", "[:]", "test_few_samples_are_read"),
)
X = torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
METHODS = {"ours": "integrated_gradients(steps=3)", "SG": "smoothgrad(samples=3)", "random": "random"}


def ran(folder, models, methods=METHODS, **other):
    bench = hc.Benchmark(models=models, data=X, methods=methods, metrics=["sds"], **other)
    return bench.run(folder, progress="none")


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("patches") / "vit"
    return ran(place, {"net": "small:vit(patch=8, depth=2)"}, {**METHODS, "GA": "generic_attribution"})


def test_the_grid_of_attention_maps_counts(transformer):
    found = borders(transformer)
    assert found.keys() == {("net", "ours"), ("net", "SG")}
    samples = [s["name"] for s in transformer.sections[0].manifest["samples"]]
    own = [border_excess(transformer.map("net", name, "ours"), 8) for name in samples]
    np.testing.assert_array_equal(found["net", "ours"], own)


def test_few_samples_are_read(transformer):
    assert {len(values) for values in borders(transformer, most=2).values()} == {2}


def test_the_spec_counts_where_no_attention_was_mapped(tmp_path, transformer):
    plain = ran(tmp_path / "plain", {"net": "small:vit(patch=8, depth=2)"})
    for key, values in borders(transformer).items():
        np.testing.assert_allclose(borders(plain)[key], values, atol=1e-6)


def test_networks_without_patches_and_runs_without_maps_are_left_out(tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(3072, 5))
    assert borders(ran(tmp_path / "flat", {"resnet18": net})) == {}
    unkept = hc.Benchmark(models=["small:vit(depth=1)"], data=X, methods=METHODS, metrics=["sds"])
    assert borders(unkept.run(tmp_path / "unkept", progress="none", maps="none")) == {}


def test_a_comparison_judges_what_it_finds(transformer):
    told = {c["claim"]: c for c in compare(transformer, "m4", resamples=50).claims}["patches_show"]
    assert told["verdict"] != NOT_TESTABLE
    assert [(part["model"], part["method"]) for part in told["parts"]] == [("net", "ours"), ("net", "SG")]


@pytest.mark.parametrize(
    ("spec", "side"),
    [
        ("timm:vit_small_patch14_dinov2", 14),
        ("torchvision:vit_b_32", 32),
        ("clip_vit_b16", 16),
        ("ViT-L/16", 16),
        ("small:vit(patch=2)", 2),
        ("small:resnet20", 0),
        ("vit_tiny_224", 0),
        ("vgg16", 0),
    ],
)
def test_sides_are_read_from_specs(spec, side):
    assert patch_in(spec) == side


def test_a_label_counts_where_the_spec_says_nothing():
    parent = {"spec": "small:vit(patch=8)", "name": "x"}
    facts = {
        "models": [{"name": "ViT-B/16"}, {"name": "mine", "trained": {"parent": parent}}],
        "study": {"models": {"ViT-B/16": "VisionModel", "mine": "trained:folder"}},
    }
    assert (patch_of(facts, "ViT-B/16"), patch_of(facts, "mine"), patch_of(facts, "other")) == (16, 8, 0)
