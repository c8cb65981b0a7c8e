"""Pictures: partitions, mixing, windows and layouts, against slow definitions."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.core.types import HeatcheckError, Inputs, NotApplicable
from heatcheck.domain.image import ImageDomain, grid_cells, superpixels

DOMAIN = ImageDomain(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def pictures(n=2, h=16, w=16, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return Inputs({"pixels": torch.randn(n, 3, h, w, generator=rng, dtype=torch.float64)})


@pytest.mark.parametrize("name", ["pixel", "grid(4)", "grid(3)", "slic(20)", "quickshift", "site", "cell", "segment"])
def test_units_number_sites_without_gaps_or_overlaps(name):
    x = pictures()
    units = DOMAIN.units(name, x)
    for index, count in zip(units.index, units.count.tolist(), strict=True):
        assert sorted(set(index.tolist()) - {-1}) == list(range(count))
    assert units.width >= int(units.count.max())
    assert torch.equal(units.area.sum(1).long(), (units.index >= 0).sum(1))


def test_roles_have_names():
    assert [DOMAIN.units(role, pictures()).name for role in ("site", "cell", "segment")] == [
        "pixel",
        "grid(4)",
        "slic(50)",
    ]


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 6))
def test_grid_cells_are_equal_and_the_remainder_belongs_to_none(h, w, side):
    if side > min(h, w):
        with pytest.raises(HeatcheckError, match=rf"grid\({side}\).*{h}×{w}"):
            DOMAIN.units(f"grid({side})", pictures(1, h, w))
        return
    cell, (rows, columns) = grid_cells(h, w, side), (h // side, w // side)
    for y in range(h):
        for x in range(w):
            inside = y < rows * side and x < columns * side
            assert int(cell[y, x]) == ((y // rows) * side + x // columns if inside else -1)


def test_the_remainder_is_never_deleted():
    x = pictures(1, 10, 10)
    units = DOMAIN.units("grid(4)", x)
    assert units.area.tolist() == [[4.0] * 16]
    keep = units.spread(torch.zeros(1, 16, dtype=torch.bool), outside=True)
    gone = DOMAIN.delete(x, keep, x.replace(pixels=torch.zeros_like(x["pixels"])))["pixels"]
    assert torch.equal(gone[:, :, 8:], x["pixels"][:, :, 8:])
    assert torch.equal(gone[..., 8:], x["pixels"][..., 8:])
    assert not gone[:, :, :8, :8].any()


def test_sums_over_units_equal_a_loop():
    x = pictures(2, 10, 9)
    units = DOMAIN.units("grid(2)", x)
    values = torch.randn(3, 2, 90, generator=torch.Generator().manual_seed(1))
    got = units.sum(values)
    for m in range(3):
        for b in range(2):
            for u in range(4):
                expected = values[m, b][units.index[b] == u].double().sum()
                torch.testing.assert_close(got[m, b, u], expected, rtol=1e-12, atol=1e-12)


def test_spread_gives_every_site_the_value_of_its_unit():
    units = DOMAIN.units("grid(2)", pictures(2, 5, 5))
    values = torch.arange(8.0).reshape(2, 4)
    spread = units.spread(values, outside=-7.0)
    for b in range(2):
        for s, u in enumerate(units.index[b].tolist()):
            assert spread[b, s] == (-7.0 if u < 0 else values[b, u])


@pytest.mark.parametrize("kind", ["slic", "quickshift"])
def test_superpixels_are_the_same_every_time_and_their_number_is_recorded(kind):
    rng = torch.Generator().manual_seed(3)
    rgb = torch.rand(24, 24, 3, generator=rng)
    first, second = superpixels(kind, 12, rgb), superpixels(kind, 12, rgb)
    assert torch.equal(first, second)
    x = Inputs({"pixels": rgb.permute(2, 0, 1)[None]})
    units = ImageDomain(mean=(0.0,) * 3, std=(1.0,) * 3).units(f"{kind}(12)" if kind == "slic" else kind, x)
    assert int(units.count[0]) == len(set(first.flatten().tolist()))


def test_superpixels_do_not_depend_on_neighbours():
    x = pictures(3)
    together = DOMAIN.units("slic(10)", x)
    for i in range(3):
        alone = DOMAIN.units("slic(10)", x.take(torch.tensor([i])))
        assert torch.equal(alone.index[0], together.index[i])
        assert alone.count[0] == together.count[i]


def test_a_flat_picture_still_has_segments():
    flat = Inputs({"pixels": torch.zeros(1, 3, 16, 16)})
    assert int(DOMAIN.units("quickshift", flat).count[0]) > 1


def test_units_of_texts_do_not_exist_here():
    with pytest.raises(NotApplicable, match=r"'token'.*image.*grid"):
        DOMAIN.units("token", pictures())
    with pytest.raises(HeatcheckError, match="grid-4"):
        DOMAIN.units("grid-4", pictures())


def test_hard_mixing_is_exact_and_soft_mixing_interpolates():
    x, full = pictures(), pictures(seed=1)
    keep = torch.rand(2, 256, generator=torch.Generator().manual_seed(2)) < 0.5
    hard = DOMAIN.delete(x, keep, full)["pixels"]
    mask = keep.reshape(2, 1, 16, 16).expand(-1, 3, -1, -1)
    assert torch.equal(hard[mask], x["pixels"][mask])
    assert torch.equal(hard[~mask], full["pixels"][~mask])
    share = torch.rand(2, 256, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    soft = DOMAIN.delete(x, share, full)["pixels"]
    part = share.reshape(2, 1, 16, 16)
    torch.testing.assert_close(soft, full["pixels"] + part * (x["pixels"] - full["pixels"]))


def test_there_are_1235_windows_at_224_as_in_m4():
    windows = DOMAIN.windows(Inputs({"pixels": torch.zeros(1, 3, 224, 224)}))
    assert windows.box.shape == (1, 1235, 4)
    assert windows.valid.all()
    sides = (windows.box[0, :, 1] - windows.box[0, :, 0]).tolist()
    assert {s: sides.count(s) for s in set(sides)} == {32: 25**2, 64: 21**2, 128: 13**2}
    starts = windows.box[0, :, 0]
    assert not (starts % 8).any()


@pytest.mark.parametrize(("h", "w"), [(16, 16), (12, 20), (30, 2), (1, 1)])
def test_window_sums_and_masks_equal_brute_force(h, w):
    windows = DOMAIN.windows(pictures(2, h, w))
    values = torch.randn(2, h * w, generator=torch.Generator().manual_seed(0))
    sums = windows.sums(values)
    for b in range(2):
        rows = torch.full((windows.box.shape[1],), b)
        keep = windows.keep(rows, torch.arange(len(rows)))
        for k, (top, bottom, left, right) in enumerate(windows.box[b].tolist()):
            inside = torch.zeros(h, w, dtype=torch.bool)
            inside[top:bottom, left:right] = True
            assert inside.any() and bottom <= h and right <= w
            assert torch.equal(keep[k], ~inside.flatten())
            expected = values[b].double()[inside.flatten()].sum()
            torch.testing.assert_close(sums[b, k], expected, rtol=0, atol=1e-9)


def test_layout_keeps_full_maps_and_carries_coarse_ones():
    x = pictures(1, 8, 8)
    full = torch.randn(1, 8, 8)
    assert torch.equal(DOMAIN.layout(full, x, "bilinear"), full.flatten(1))
    coarse = torch.tensor([[[0.0, 1.0], [2.0, 3.0]]])
    nearest = DOMAIN.layout(coarse, x, "nearest").reshape(8, 8)
    assert torch.equal(nearest, coarse[0].repeat_interleave(4, 0).repeat_interleave(4, 1))
    smooth = DOMAIN.layout(coarse, x, "bilinear").reshape(8, 8)
    place = (np.arange(8) + 0.5) / 4 - 0.5
    slow = 2 * place.clip(0, 1)[:, None] + place.clip(0, 1)[None]
    np.testing.assert_allclose(smooth.numpy(), slow, atol=1e-6)


@pytest.mark.parametrize(("coarse", "fine"), [((7, 7), (224, 224)), ((8, 5), (30, 41)), ((14, 14), (9, 10))])
def test_carried_maps_are_torchs_and_keep_plateaus_exactly(coarse, fine):
    x = pictures(2, *fine)
    values = torch.randn(2, *coarse, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    theirs = torch.nn.functional.interpolate(values[:, None], fine, mode="bilinear", align_corners=False)
    torch.testing.assert_close(DOMAIN.layout(values, x, "bilinear"), theirs.flatten(1), rtol=1e-9, atol=1e-9)
    flat = torch.full((2, *coarse), 0.1)
    assert torch.equal(DOMAIN.layout(flat, x, "bilinear"), torch.full((2, fine[0] * fine[1]), 0.1))


def test_reductions_follow_their_definitions():
    values = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    a = values.numpy()
    for how, slow in {
        "sum": a.sum(1),
        "sum_abs": np.abs(a).sum(1),
        "mean_abs": np.abs(a).mean(1),
        "mean_square": (a**2).mean(1),
        "l2": np.sqrt((a**2).sum(1)),
    }.items():
        np.testing.assert_allclose(DOMAIN.reduce(values, how).numpy(), slow, atol=1e-12)
    with pytest.raises(HeatcheckError, match="'median'"):
        DOMAIN.reduce(values, "median")


def test_edges_are_where_colours_change():
    pixels = torch.zeros(1, 3, 8, 8)
    pixels[..., 4:] = 1
    edges = DOMAIN.edges(Inputs({"pixels": pixels})).reshape(8, 8)
    assert torch.equal(edges.sum(0) > 0, torch.tensor([False] * 3 + [True] * 2 + [False] * 3))
    assert torch.allclose(edges[:, 3], torch.ones(8))


def test_colours_come_back_from_normalised_space():
    rgb = torch.rand(1, 4, 4, 3, generator=torch.Generator().manual_seed(0))
    mean, std = torch.tensor(DOMAIN.mean), torch.tensor(DOMAIN.std)
    x = Inputs({"pixels": ((rgb - mean) / std).permute(0, 3, 1, 2)})
    torch.testing.assert_close(DOMAIN.to_rgb(x), rgb)
    unknown = ImageDomain().to_rgb(x)
    assert unknown.min() == 0 and unknown.max() == 1


def test_a_grid_has_cells():
    with pytest.raises(HeatcheckError, match="at least one"):
        DOMAIN.units("grid(0)", pictures(1, 8, 8))
