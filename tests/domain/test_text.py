"""Texts: tokens, words and sentences; special tokens never go."""

from dataclasses import replace

import pytest
import torch

from heatcheck.core.types import HeatcheckError, Inputs, NotApplicable
from heatcheck.testing import bag_of_words, toy_batch
from heatcheck.testing.models import CLS, FIRST_WORD, PAD, SEP, padded, text_inputs

MODEL = bag_of_words()
DOMAIN = MODEL.domain


def texts(*lengths, tokens=12):
    return Inputs.cat([text_inputs(torch.arange(n) + FIRST_WORD, tokens) for n in lengths])


@pytest.mark.parametrize("name", ["token", "word", "sentence", "site", "cell", "segment"])
def test_units_number_sites_without_gaps_and_leave_special_tokens_out(name):
    x = texts(5, 9, 1)
    units = DOMAIN.units(name, x)
    for i, count in enumerate(units.count.tolist()):
        index = units.index[i]
        assert sorted(set(index.tolist()) - {-1}) == list(range(count))
        assert torch.equal(index == -1, x["special"][i])


def test_what_units_are():
    x = texts(5)
    assert DOMAIN.units("token", x).index.tolist() == [[-1, 0, 1, 2, 3, 4, -1, -1, -1, -1, -1, -1]]
    assert DOMAIN.units("word", x).index.tolist() == [[-1, 0, 0, 1, 1, 2, -1, -1, -1, -1, -1, -1]]
    assert DOMAIN.units("sentence", x).index.tolist() == [[-1, 0, 0, 0, 0, 1, -1, -1, -1, -1, -1, -1]]
    assert [DOMAIN.units(role, x).name for role in ("site", "cell", "segment")] == ["token", "token", "word"]


def test_an_empty_text_has_no_units():
    units = DOMAIN.units("token", texts(0))
    assert units.count.tolist() == [0]
    assert not units.valid.any()
    assert not DOMAIN.windows(texts(0)).valid.any()


def test_special_tokens_are_never_deleted():
    x = texts(4)
    full = Inputs({**x.tensors, "ids": torch.full_like(x["ids"], PAD), "attention": torch.zeros_like(x["attention"])})
    gone = DOMAIN.delete(x, torch.zeros(1, 12, dtype=torch.bool), full)
    assert gone["ids"].tolist() == [[CLS, *[PAD] * 4, SEP, *[PAD] * 6]]
    assert gone["attention"].tolist() == [[1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]]
    soft = DOMAIN.delete(x, torch.zeros(1, 12, dtype=torch.float64), full)
    assert torch.equal(soft["attention"], gone["attention"])
    assert torch.equal(soft["embeds"][:, [0, 5]], DOMAIN.embed(x["ids"])[:, [0, 5]])


def test_soft_mixing_interpolates_embeddings():
    x = texts(4)
    full = x.replace(ids=torch.where(x["special"], x["ids"], FIRST_WORD + 9))
    share = torch.linspace(0.1, 0.9, 12, dtype=torch.float64)[None]
    soft = DOMAIN.delete(x, share, full)["embeds"]
    here, there = DOMAIN.embed(x["ids"]), DOMAIN.embed(full["ids"])
    part = torch.where(x["special"], 1.0, share)[..., None]
    torch.testing.assert_close(soft, there + part * (here - there))


def test_hard_mixing_stays_in_ids_and_is_exact_for_given_embeddings():
    x = texts(4)
    full = x.replace(ids=torch.where(x["special"], x["ids"], FIRST_WORD + 9))
    keep = torch.ones(1, 12, dtype=torch.bool)
    keep[0, 2] = False
    mixed = DOMAIN.delete(x, keep, full)
    assert "embeds" not in mixed
    assert mixed["ids"][0, 2] == FIRST_WORD + 9
    point = DOMAIN.with_leaf(x, DOMAIN.leaf(x) * 2)
    moved = DOMAIN.delete(point, keep, full)["embeds"]
    assert torch.equal(moved[0, 1], 2 * DOMAIN.embed(x["ids"])[0, 1])
    assert torch.equal(moved[0, 2], DOMAIN.embed(full["ids"])[0, 2])


def test_windows_are_runs_of_one_to_five_tokens():
    x = texts(6, 3)
    windows = DOMAIN.windows(x)
    for b, n in enumerate((6, 3)):
        found = {tuple(box[2:]) for box, ok in zip(windows.box[b].tolist(), windows.valid[b], strict=True) if ok}
        assert found == {(1 + i, 1 + i + k) for k in range(1, 6) for i in range(n - k + 1)}
    values = torch.randn(2, 12)
    sums = windows.sums(values)
    for k, (_, _, left, right) in enumerate(windows.box[0].tolist()):
        torch.testing.assert_close(sums[:, k], values[:, left:right].double().sum(1), atol=1e-9, rtol=0)


def test_layout_refuses_maps_of_another_length():
    with pytest.raises(HeatcheckError, match=r"7 tokens.*12"):
        DOMAIN.layout(torch.zeros(1, 7), texts(3), "bilinear")


def test_units_of_pictures_do_not_exist_here():
    with pytest.raises(NotApplicable, match=r"'grid'.*text.*sentence"):
        DOMAIN.units("grid(4)", texts(3))


def test_the_leaf_is_the_embedding_and_reduces_over_coordinates():
    x = toy_batch(MODEL, 2).x
    assert torch.equal(DOMAIN.leaf(x), MODEL.module().embed(x["ids"]))
    torch.testing.assert_close(DOMAIN.reduce(DOMAIN.leaf(x), "sum"), DOMAIN.leaf(x).sum(-1))


def test_edges_are_distances_to_neighbours():
    x = texts(3)
    leaf = DOMAIN.leaf(x)[0]
    edges = DOMAIN.edges(x)[0]
    for i in range(5):
        near = [torch.linalg.vector_norm(leaf[i] - leaf[j]) for j in (i - 1, i + 1) if 0 <= j < 5]
        torch.testing.assert_close(edges[i], sum(near) / 2)
    assert (edges[5:] == 0).all()


def test_padding_is_neither_drawn_nor_measured():
    x = texts(3, 7)
    wide = padded(x, 40)

    def noise(x):
        rngs = [torch.Generator().manual_seed(i) for i in range(len(x))]
        return DOMAIN.leaf_noise(x, lambda row, shape: torch.randn(tuple(shape), generator=rngs[row]))

    assert torch.equal(noise(wide)[:, :12], noise(x)) and not noise(wide)[:, 12:].any()
    assert noise(x)[0, :5].all() and not noise(x)[0, 5:].any()
    with torch.no_grad():
        loud = replace(DOMAIN, embed=lambda ids: torch.where(ids[..., None] == PAD, 99.0, DOMAIN.embed(ids)))
    words = DOMAIN.leaf(x)[0, :5]
    assert loud.leaf_range(x)[0] == words.max() - words.min()
    assert torch.equal(loud.leaf_range(wide), loud.leaf_range(x))


def test_a_hidden_token_keeps_the_noise_of_the_others():
    x = texts(5)
    hidden = x.replace(attention=x["attention"].clone().index_fill(1, torch.tensor([2]), 0))
    drawn = [
        DOMAIN.leaf_noise(v, lambda row, shape: torch.arange(shape[0] * shape[1]).double().reshape(tuple(shape)))
        for v in (x, hidden)
    ]
    assert torch.equal(*drawn)


def test_coarse_cells_cover_the_tokens_and_no_padding():
    x = texts(3)
    cells = torch.tensor([[[0.0, 1.0]]])
    got = DOMAIN.enlarged(cells, x)
    torch.testing.assert_close(got[0, :5], torch.tensor([0.0, 0.1, 0.5, 0.9, 1.0]))
    assert (got[0, 5:] == 0).all()
    assert torch.equal(DOMAIN.enlarged(cells, padded(x, 40))[:, :12], got)
    assert DOMAIN.coarse_shape(x, 20) == DOMAIN.coarse_shape(padded(x, 40), 20) == (1, 20)


def test_what_decides_a_text_is_what_is_read_of_it():
    x = texts(3, 7)
    assert [c.tolist() for c in DOMAIN.content(x)] == [c.tolist() for c in DOMAIN.content(padded(x, 40))]
    assert DOMAIN.content(x)[0].shape == (1, 5)
