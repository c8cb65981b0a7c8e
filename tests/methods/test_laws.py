"""The web of equalities between methods (laws M1 to M16), each on the smallest network that shows it, in float64."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.types import NotApplicable
from heatcheck.models.architectures.bagnet import patch_side
from heatcheck.models.architectures.bcos import explanation_mode
from heatcheck.testing import models as toys
from heatcheck.testing.scenes import probe_for, toy_batch
from heatcheck.testing.zoo import brief


def maps(spec, model, batch=None):
    """A method's maps, carried to sites."""
    batch = toy_batch(model, 3) if batch is None else batch
    found = catalogue.build("method", spec)(probe_for(model), batch)
    return model.domain.layout(found.values, batch.x, found.interpolation)


def same(a, b, tolerance=1e-9):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * float(b.abs().max()))


EVERY = sorted(catalogue.entries("method"))
LINEAR = {
    "saliency": "weight", "smoothgrad": "weight",
    "input_x_gradient": "worth", "integrated_gradients": "worth", "lrp(composite=epsilon, epsilon=0.0)": "worth",
    "deep_lift": "worth", "gradient_shap": "worth", "idgi": "total", "shapley_sampling(units=pixel, samples=1)": "worth",
    "occlusion(units=pixel)": "worth", "feature_ablation(units=pixel)": "worth", "guided_ig": "worth",
    "kernel_shap(units=grid(2))": "total", "partition_shap(units=grid(2))": "total", "attn_lrp(epsilon=0.0)": "worth",
}  # fmt: skip


@pytest.mark.parametrize("spec", LINEAR)
def test_m1_linear_models_give_weights_or_weight_times_input(spec):
    model = toys.linear()
    batch = toy_batch(model, 3)
    weight = toys.weights_of(model.module(), batch.x, batch.target).sum(1).flatten(1)
    worth = model.contributions(batch.x, batch.target).flatten(1)
    found = maps(spec, model)
    if LINEAR[spec] == "total":
        same(found.sum(1), worth.sum(1))
    else:
        same(found, {"weight": weight, "worth": worth}[LINEAR[spec]])


@pytest.mark.parametrize("spec", [
    "deep_lift", "shapley_sampling(units=grid(2), samples=2)", "partition_shap(units=grid(2))", "idgi",
    "kernel_shap(units=grid(2))", "input_x_gradient", "lrp(composite=epsilon, epsilon=0.0)", "attn_lrp(epsilon=0.0)",
    "integrated_gradients", "integrated_gradients(baseline=uniform)",
])  # fmt: skip
def test_m2_maps_add_up_to_the_change_in_output(spec):
    model = toys.bias_free_relu()
    batch = toy_batch(model, 3)
    probe = probe_for(model)
    fill = "uniform" if "uniform" in spec else "zero"
    total = maps(spec, model, batch).sum(1)
    if fill == "zero":
        drop = probe.clean(batch).read("logit") - probe.deleted(batch, "zero").read("logit")
        same(total, drop, 1e-8)
    else:
        apart = replace(batch, streams=batch.streams.derive("method"))
        drop = probe.clean(batch).read("logit") - probe_for(model).deleted(apart, fill).read("logit")
        same(total, drop, 2e-2)


def test_m3_without_biases_four_methods_are_one():
    model = toys.bias_free_relu()
    want = maps("input_x_gradient", model)
    for spec in ("integrated_gradients", "deep_lift", "lrp(composite=epsilon, epsilon=0.0)", "attn_lrp(epsilon=0.0)"):
        same(maps(spec, model), want)


@pytest.mark.parametrize("spec", [
    "integrated_gradients", "deep_lift", "shapley_sampling(units=grid(4), samples=2)", "occlusion(units=grid(4))",
    "lime(units=grid(2))", "kernel_shap(units=grid(2))", "partition_shap(units=grid(4))", "gradient_shap",
])  # fmt: skip
def test_m4_what_is_ignored_or_equal_to_the_baseline_gets_nothing(spec):
    model = toys.linear()
    batch = toy_batch(model, 2)
    pixels = batch.x["pixels"].clone()
    pixels[..., :4] = 0
    still = replace(batch, x=batch.x.replace(pixels=pixels), altered=True)
    found = maps(spec, model, still).reshape(2, 8, 8)
    assert found[..., :4].abs().max() <= 1e-9 * found.abs().max()


@pytest.mark.parametrize(
    "spec", [brief(m) for m in EVERY if "linear" in catalogue.find("method", m).facts["properties"]]
)
def test_m5_methods_that_say_so_are_linear_in_the_model(spec):
    catalogue_check("check_linear", spec)


@pytest.mark.parametrize(
    "spec", [brief(m) for m in EVERY if "implementation_invariant" in catalogue.find("method", m).facts["properties"]]
)
def test_m6_methods_that_say_so_see_only_the_function(spec):
    catalogue_check("check_implementation_invariant", spec)


def with_doubled_relu(net):
    """The same function: what is above zero passes twice and is taken away once."""
    net[4] = nn.Sequential(Doubled(), net[4])
    return net


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * torch.relu(x) - torch.relu(x)


def with_turned_channels(net):
    """The same function: channels are turned after the first convolution and back again before its ReLU."""
    turn, _ = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    there, back = (nn.Conv2d(4, 4, 1, bias=False).double() for _ in range(2))
    there.weight.data, back.weight.data = turn[..., None, None], turn.T[..., None, None]
    net[1] = nn.Sequential(there, back, net[1])
    return net


@pytest.mark.parametrize(
    ("id", "rewrite"),
    [("guided_backprop", with_doubled_relu), ("deconvolution", with_doubled_relu), ("lrp", with_turned_channels)],
)
def test_m6_and_these_do_not(id, rewrite):
    model = toys.bias_free_relu()
    other = model.with_network(rewrite, "written otherwise")
    batch = toy_batch(model, 2)
    same(other.logits(batch.x), model.logits(batch.x))
    assert not torch.allclose(maps(id, model, batch), maps(id, other, batch), rtol=1e-3)


@pytest.mark.parametrize("spec", ["integrated_gradients", "occlusion(units=grid(2))", "kernel_shap(units=grid(2))"])
def test_m7_symmetric_inputs_change_places(spec):
    catalogue_check("check_symmetric", spec)


def catalogue_check(name, spec):
    from heatcheck.testing import method_checks as checks

    getattr(checks, name)(catalogue.build("method", spec))


MODELS = (toys.gap_linear, toys.tiny_vit, toys.bcos, toys.bagnet)


def applicable(spec):
    """The toys that a method applies to."""
    found = []
    for make in MODELS:
        try:
            maps(spec, make(), toy_batch(make(), 1))
        except NotApplicable:
            continue
        found.append(make())
    return found


@pytest.mark.parametrize("id", EVERY)
def test_m8_and_m10_a_batch_gives_what_each_sample_gives_alone(id):
    for model in applicable(brief(id)):
        batch = toy_batch(model, 3)
        together = maps(brief(id), model, batch)
        for i in (2, 0, 1):
            assert torch.equal(maps(brief(id), model, batch.take([i]))[0], together[i])


@pytest.mark.parametrize("id", EVERY)
def test_m9_other_targets_have_other_maps_unless_said_otherwise(id):
    free = "target_free" in catalogue.find("method", id).facts["properties"]
    for model in applicable(brief(id)):
        batch = toy_batch(model, 3)
        other = replace(batch, target=(batch.target + 1) % 3)
        one, two = maps(brief(id), model, batch), maps(brief(id), model, other)
        assert torch.equal(one, two) == free or not (one.any() or two.any()), model.name


@pytest.mark.parametrize("id", EVERY)
def test_m11_the_network_is_left_as_it_was_even_after_a_failure(id):
    for model in applicable(brief(id)):
        network = model.module()
        before = fingerprint(network)
        maps(brief(id), model)
        assert fingerprint(network) == before

        broken = copy.deepcopy(model)
        last = [m for m in broken.module().modules() if isinstance(m, nn.Linear | nn.Conv2d)][-1]
        handle = last.register_forward_hook(fail)
        before = fingerprint(broken.module())
        if catalogue.find("method", id).facts["uses"]:
            with pytest.raises(RuntimeError, match="on purpose"):
                maps(brief(id), broken)
        assert fingerprint(broken.module()) == before
        handle.remove()


def fail(*_):
    raise RuntimeError("on purpose")


def fingerprint(network):
    """Everything that a method could leave changed."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [
        (name, m.training, [len(getattr(m, h)) for h in hooks], sorted(k for k in vars(m) if not k.startswith("__")))
        for name, m in network.named_modules()
    ] + [(name, p.requires_grad, p.grad is None, p.sum().item()) for name, p in network.named_parameters()]


def test_m12_behind_average_pooling_three_cams_are_one_and_add_up():
    model = toys.gap_linear()
    batch = toy_batch(model, 3)
    cams = [
        catalogue.build("method", f"{id}(relu=false)")(probe_for(model), batch).values
        for id in ("grad_cam", "xgrad_cam", "hires_cam")
    ]
    same(cams[1], cams[0], 1e-6)
    bias = model.module()[4].bias[batch.target]
    logit = model.logits(batch.x).gather(1, batch.target[:, None])[:, 0]
    cells = cams[0][0].numel()
    same(cams[2].flatten(1).sum(1), logit - bias)
    same(cams[0].flatten(1).sum(1), cells * (logit - bias) / cells)


def test_m13_grad_cam_pp_in_closed_form_behind_average_pooling():
    model = toys.gap_linear()
    batch = toy_batch(model, 3)
    net = model.module()
    maps_ = net[1](net[0](batch.x["pixels"]))
    cells = maps_.shape[2] * maps_.shape[3]
    slope = (net[4].weight[batch.target] / cells)[..., None, None].expand_as(maps_)
    alpha = 1 / (2 + slope * maps_.sum((2, 3), keepdim=True))
    weight = (alpha * slope.relu()).sum((2, 3), keepdim=True)
    want = (weight * maps_).sum(1)
    same(catalogue.build("method", "grad_cam_pp(relu=false)")(probe_for(model), batch).values, want)


@pytest.mark.parametrize("spec", ["saliency", "input_x_gradient", "integrated_gradients(steps=5)", "deep_lift"])
def test_m14_a_picture_turned_on_a_torus_has_its_map_turned(lab, spec):
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.Tanh(), nn.Conv2d(4, 3, 3, padding=1,
        padding_mode="circular"), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    ).double()  # fmt: skip
    x = lab.pictures(2)
    a = lab.explain(spec, net, lab.batch(x, [0, 1])).values
    b = lab.explain(spec, net, lab.batch(x.roll((3, 2), (2, 3)), [0, 1])).values
    same(b, a.roll((3, 2), (1, 2)))


def test_m15_attention_rows_sum_to_one_and_maps_are_not_negative():
    model = toys.tiny_vit()
    batch = toy_batch(model, 3)
    for id in ("rollout", "generic_attribution", "bt_head(steps=3)", "bt_token(steps=3)", "legrad"):
        assert maps(id, model, batch).min() >= 0
    for id in ("rollout", "generic_attribution"):
        none = maps(f"{id}(start=2)", model, batch)
        assert not none.any()  # no layer is left: the class token has seen itself alone


def test_m16_bagnet_maps_average_to_the_logit_and_bcos_maps_add_up_to_it():
    model = toys.bagnet()
    batch = toy_batch(model, 2)
    every_pixel = catalogue.build("method", "bagnet")(probe_for(model), batch).values
    side = patch_side((True, True, False, False))
    centres = torch.arange(side // 2, every_pixel.shape[1] - side // 2, 8)
    logit = model.logits(batch.x).gather(1, batch.target[:, None])[:, 0]
    same(every_pixel[:, centres][:, :, centres].flatten(1).mean(1), logit)

    model = toys.bcos()
    batch = toy_batch(model, 2)
    logit = model.logits(batch.x).gather(1, batch.target[:, None])[:, 0]
    with explanation_mode(model.module()):
        same(model.logits(batch.x).gather(1, batch.target[:, None])[:, 0], logit, 1e-12)
    same(maps("bcos", model, batch).sum(1), logit - model.module().logit_bias, 1e-6)
