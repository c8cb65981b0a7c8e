"""Every fill against a slow definition, and the laws that all of them obey."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import ndimage

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError, Inputs, NotApplicable
from heatcheck.domain.image import ImageDomain
from heatcheck.profiles import load_profile
from heatcheck.testing import additive, one_head_attention, probe_for, toy_batch
from heatcheck.testing.models import CLS, FIRST_WORD, MASK, PAD, SEP, UNK, text_inputs
from heatcheck.testing.scenes import batch_of

IMAGE, TEXT = additive((3, 16, 16)), one_head_attention()
MODELS = {"image": IMAGE, "text": TEXT}
CASES = [
    (id, m)
    for id, entry in sorted(catalogue.entries("fill").items())
    if "needs" not in entry.facts  # networks that are not shipped have tests of their own
    for m in entry.facts["on"]
]


def full_of(spec, model, batch):
    return catalogue.build("fill", spec).full(model.domain, batch)


def erased(spec, model, batch, keep):
    unit = catalogue.build("fill", spec)
    return unit.erase(model.domain, batch.x, keep, unit.full(model.domain, batch))


# -- laws --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("id", "modality"), CASES)
def test_keeping_everything_changes_nothing(id, modality):
    model = MODELS[modality]
    batch = toy_batch(model, 2)
    kept = erased(id, model, batch, torch.ones(model.domain.deletable(batch.x).shape, dtype=torch.bool))
    for name, tensor in batch.x.tensors.items():
        assert torch.equal(kept[name], tensor)


@pytest.mark.parametrize(("id", "modality"), [case for case in CASES if case[0] != "remove"])
def test_deleting_everything_gives_the_full_deletion(id, modality):
    model = MODELS[modality]
    batch = toy_batch(model, 2)
    full = full_of(id, model, batch)
    gone = erased(id, model, batch, torch.zeros(model.domain.deletable(batch.x).shape, dtype=torch.bool))
    assert torch.equal(model.domain.leaf(gone), model.domain.leaf(full))
    assert torch.equal(probe_for(model).logits(gone), probe_for(model).logits(full))


@pytest.mark.parametrize(
    ("id", "modality"),
    [case for case in CASES if case[0] not in ("blur", "folded_blur", "channel_mean", "superpixel_mean")],
)
def test_deleting_what_already_equals_the_fill_changes_nothing(id, modality):
    """Not for fills that are made from the picture itself: they change when a part of it does."""
    model = MODELS[modality]
    batch = toy_batch(model, 2)
    sites = model.domain.deletable(batch.x).shape
    half = torch.ones(sites, dtype=torch.bool)
    half[:, : sites[1] // 3] = False
    once = erased(id, model, batch, half)
    seen = half if id != "remove" else once["attention"] > 0  # what was removed has moved to the end
    twice = erased(id, model, batch.with_inputs(once), seen)
    for name in once.tensors:
        assert torch.equal(once[name], twice[name])


@pytest.mark.parametrize(("id", "modality"), CASES)
def test_a_fill_does_not_depend_on_neighbours_or_order(id, modality):
    model = MODELS[modality]
    batch = toy_batch(model, 3)
    full = full_of(id, model, batch)
    for order in ([2, 0, 1], [1]):
        part = full_of(id, model, batch.take(order))
        for name in part.tensors:
            assert torch.equal(part[name], full.take(torch.tensor(order))[name])


def test_fills_of_the_other_modality_say_so():
    for id, entry in catalogue.entries("fill").items():
        for modality, model in MODELS.items():
            if modality not in entry.facts["on"]:
                with pytest.raises(NotApplicable, match=f"{id}.*{modality}"):
                    catalogue.build("fill", id).resolve(model.domain)


# -- pictures ----------------------------------------------------------------------------------------------------

IMAGENET = ImageDomain(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


@pytest.mark.parametrize(
    ("id", "colour"),
    [("black", (-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225)), ("grey127", (0.0569, 0.1876, 0.4091))],
)
def test_pixel_space_colours_are_normalised_as_the_model_does(id, colour):
    pixels = full_of(id, _with(IMAGENET), toy_batch(IMAGE, 2))["pixels"]
    expected = torch.tensor(colour, dtype=torch.float64)[None, :, None, None].expand_as(pixels)
    torch.testing.assert_close(pixels, expected, atol=1e-4, rtol=0)
    byte = 0 if id == "black" else 127
    back = (pixels[0, :, 0, 0] * torch.tensor(IMAGENET.std) + torch.tensor(IMAGENET.mean)) * 255
    torch.testing.assert_close(back, torch.full((3,), float(byte), dtype=torch.float64), atol=1e-4, rtol=0)


class _with:
    def __init__(self, domain):
        self.domain = domain


@pytest.mark.parametrize("id", ["black", "grey127"])
def test_pixel_space_colours_need_the_normalisation(id):
    with pytest.raises(HeatcheckError, match=r"normalisation is not known.*preprocess"):
        full_of(id, _with(ImageDomain()), toy_batch(IMAGE, 1))


def test_zero_is_zero_after_normalisation():
    assert not full_of("zero", IMAGE, toy_batch(IMAGE, 2))["pixels"].any()


def test_channel_mean_is_each_channels_own():
    batch = toy_batch(IMAGE, 2)
    pixels = full_of("channel_mean", IMAGE, batch)["pixels"]
    for b in range(2):
        for c in range(3):
            mean = batch.x["pixels"][b, c].numpy().mean()
            np.testing.assert_allclose(pixels[b, c].numpy(), mean, atol=1e-12)


@pytest.mark.parametrize("spec", ["blur", "blur(kernel=11, sigma=5)", "blur(compat=true)"])
@pytest.mark.parametrize("size", [16, 56])
def test_blur_equals_a_zero_padded_gaussian_filter(spec, size):
    unit = catalogue.build("fill", spec)
    rng = torch.Generator().manual_seed(0)
    pixels = torch.randn(2, 3, size, size, generator=rng, dtype=torch.float64)
    batch = toy_batch(IMAGE, 2).with_inputs(Inputs({"pixels": pixels}))
    scale = size / 224
    half = max(1, round((unit.kernel // 2) * scale))
    exponent = 1 / (2 * unit.sigma * scale) ** 2 if unit.compat else 1 / (2 * (unit.sigma * scale) ** 2)
    taps = np.array([math.exp(-(d**2) * exponent) for d in range(-half, half + 1)])
    kernel = np.outer(taps, taps) / taps.sum() ** 2
    got = unit.full(IMAGE.domain, batch)["pixels"].numpy()
    for b in range(2):
        for c in range(3):
            slow = ndimage.convolve(pixels[b, c].numpy(), kernel, mode="constant", cval=0.0)
            np.testing.assert_allclose(got[b, c], slow, atol=1e-12)


def test_blur_at_224_has_the_published_kernel():
    point = torch.zeros(1, 1, 224, 224, dtype=torch.float64)
    point[..., 112, 112] = 1
    batch = toy_batch(IMAGE, 1).with_inputs(Inputs({"pixels": point}))
    spread = full_of("blur", IMAGE, batch)["pixels"][0, 0]
    assert torch.nonzero(spread[112]).flatten().tolist() == list(range(112 - 25, 112 + 26))
    ratio = float(spread[112, 112 + 20] / spread[112, 112])
    assert ratio == pytest.approx(math.exp(-0.5 * (20 / 41) ** 2), rel=1e-9)


def authors_kernel(size, deviation):
    """`gkern` of RISE's evaluation code: a point in the middle of a square, filtered inside that square."""
    point = np.zeros((size, size))
    point[size // 2, size // 2] = 1
    return ndimage.gaussian_filter(point, deviation)


@pytest.mark.parametrize(("size", "taps", "deviation"), [(224, 11, 5.0), (448, 21, 10.0), (112, 5, 2.5)])
def test_the_folded_blur_is_that_of_the_authors_of_rise(size, taps, deviation):
    rng = torch.Generator().manual_seed(0)
    pixels = torch.randn(1, 2, size, size, generator=rng, dtype=torch.float64)
    batch = toy_batch(IMAGE, 1).with_inputs(Inputs({"pixels": pixels}))
    kernel = torch.from_numpy(authors_kernel(taps, deviation))[None, None].expand(2, 1, -1, -1)
    want = torch.nn.functional.conv2d(pixels, kernel, padding=taps // 2, groups=2)
    torch.testing.assert_close(full_of("folded_blur", IMAGE, batch)["pixels"], want, rtol=0, atol=1e-12)
    plain = full_of("blur(kernel=11, sigma=5.0)", IMAGE, batch)["pixels"]
    assert (plain - want).abs().max() > 0.01


def test_the_profile_rise_inserts_into_the_authors_blur():
    spec = load_profile("rise").apply("metric", "insertion")
    assert "fill=folded_blur(kernel=11, sigma=5.0)" in spec


def test_uniform_noise_belongs_to_the_sample_and_the_seed():
    batch = toy_batch(IMAGE, 3)
    noise = full_of("uniform", IMAGE, batch)["pixels"]
    assert noise.min() >= -1 and noise.max() <= 1
    assert abs(float(noise.mean())) < 0.05 and float(noise.std()) == pytest.approx(1 / math.sqrt(3), abs=0.02)
    assert not torch.equal(noise[0], noise[1])
    assert torch.equal(full_of("uniform", IMAGE, batch.take([1]))["pixels"][0], noise[1])
    other = full_of("uniform", IMAGE, toy_batch(IMAGE, 3, seed=1))["pixels"]
    assert not torch.equal(other, noise)


def test_gaussian_noise_has_the_deviation_asked_for():
    batch = toy_batch(IMAGE, 3)
    noise = full_of("noise", IMAGE, batch)["pixels"]
    assert abs(float(noise.mean())) < 0.05 and float(noise.std()) == pytest.approx(1, abs=0.05)
    assert not torch.equal(noise[0], noise[1])
    torch.testing.assert_close(full_of("noise(sigma=0.25)", IMAGE, batch)["pixels"], noise / 4)
    added = full_of("noise(additive=true, sigma=2)", IMAGE, batch)["pixels"]
    torch.testing.assert_close(added, batch.x["pixels"] + 2 * noise)
    with pytest.raises(SpecError, match=r"sigma=-1.0 is a deviation"):
        catalogue.build("fill", "noise(sigma=-1)")


@pytest.mark.parametrize("id", ["uniform", "noise"])
def test_shared_noise_is_one_draw_for_all_samples(id):
    batch = toy_batch(IMAGE, 3)
    noise = full_of(f"{id}(shared=true)", IMAGE, batch)["pixels"]
    assert torch.equal(noise, noise[:1].expand_as(noise)) and noise.std() > 0.5
    assert torch.equal(full_of(f"{id}(shared=true)", IMAGE, batch.take([2]))["pixels"], noise[:1])
    for other in (replace(batch.streams, seed=1), batch.streams.derive("method")):
        assert not torch.equal(full_of(f"{id}(shared=true)", IMAGE, replace(batch, streams=other))["pixels"], noise)
    assert not torch.equal(full_of(id, IMAGE, batch)["pixels"][:1], noise[:1])


# -- texts -------------------------------------------------------------------------------------------------------


def one_text():
    return batch_of(TEXT, text_inputs(torch.tensor([7, 8, 9, 10]), 12))


def without_second_and_fourth():
    keep = torch.ones(1, 12, dtype=torch.bool)
    keep[0, [2, 4]] = False
    return keep


@pytest.mark.parametrize(("id", "token", "attended"), [("mask", MASK, 1), ("unk", UNK, 1), ("pad", PAD, 0)])
def test_tokens_are_replaced_in_place(id, token, attended):
    x = erased(id, TEXT, one_text(), without_second_and_fourth())
    assert x["ids"].tolist() == [[CLS, 7, token, 9, token, SEP, *[PAD] * 6]]
    assert x["attention"].tolist() == [[1, 1, attended, 1, attended, 1, *[0] * 6]]


def test_remove_closes_the_gap():
    x = erased("remove", TEXT, one_text(), without_second_and_fourth())
    assert x["ids"].tolist() == [[CLS, 7, 9, SEP, *[PAD] * 8]]
    assert x["attention"].tolist() == [[1] * 4 + [0] * 8]
    shorter = batch_of(TEXT, text_inputs(torch.tensor([7, 9]), 12))
    assert torch.equal(probe_for(TEXT).logits(x), probe_for(TEXT).logits(shorter.x))


def test_remove_carries_given_embeddings_along():
    batch = one_text()
    point = batch.with_inputs(TEXT.domain.with_leaf(batch.x, 3 * TEXT.domain.leaf(batch.x)))
    x = erased("remove", TEXT, point, without_second_and_fourth())
    assert torch.equal(x["embeds"][0, 2], 3 * TEXT.domain.embed(torch.tensor([9]))[0])


def test_remove_cannot_delete_a_part_of_a_token():
    with pytest.raises(HeatcheckError, match=r"remove.*soft"):
        erased("remove", TEXT, one_text(), torch.full((1, 12), 0.5))


def test_padding_hides_tokens_from_attention():
    x = erased("pad", TEXT, one_text(), without_second_and_fourth())
    weights = TEXT.module().weights(TEXT.domain.leaf(x), x["attention"])
    assert not weights[:, :, [2, 4]].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 12, dtype=torch.float64))


def test_zero_embeds_nothing_but_keeps_special_tokens():
    batch = one_text()
    embeds = full_of("zero", TEXT, batch)["embeds"]
    assert not embeds[0, 1:5].any()
    assert torch.equal(embeds[0, [0, 5]], TEXT.domain.embed(torch.tensor([CLS, SEP])))


def test_noise_embeds_noise_but_keeps_special_tokens():
    batch = one_text()
    embeds = full_of("noise", TEXT, batch)["embeds"]
    assert embeds[0, 1:5].std() == pytest.approx(1, abs=0.4)
    assert torch.equal(embeds[0, [0, 5]], TEXT.domain.embed(torch.tensor([CLS, SEP])))


def test_a_tokenizer_without_the_token_says_so():
    domain = replace(TEXT.domain, mask=None)
    with pytest.raises(HeatcheckError, match=r"no mask token.*unk"):
        full_of("mask", _with(domain), one_text())


def test_word_ids_are_words():
    assert max(PAD, CLS, SEP, MASK, UNK) < FIRST_WORD


@pytest.mark.parametrize("spec", ["blur(sigma=0)", "blur(sigma=-1)", "blur(kernel=0)", "folded_blur(kernel=0)"])
def test_a_blur_has_a_width(spec):
    with pytest.raises(SpecError, match="must be above 0"):
        catalogue.build("fill", spec)
