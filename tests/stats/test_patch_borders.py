"""The grid of patches in maps: by hand, by numpy's correlation, and on maps that have one or have none."""

import numpy as np
import pytest

from heatcheck.stats.patch_borders import autocorrelation, border_excess

MUTANTS = (
    (
        "stats/patch_borders.py",
        "at - (before + behind) / 2",
        "at + (before + behind) / 2",
        "test_maps_without_a_grid_have_no_excess",
    ),
    ("stats/patch_borders.py", "(across + down) / 2", "across", "test_it_is_numpys_correlation_over_both_axes"),
)


def noise(seed, side=224):
    return np.random.default_rng(seed).normal(size=(side, side))


def smooth(seed, side=224, width=24):
    """Noise in circles of about so many pixels."""
    wave = np.fft.fftfreq(side)
    keep = np.exp(-(wave[:, None] ** 2 + wave**2) * (np.pi * width) ** 2)
    return np.fft.ifft2(np.fft.fft2(noise(seed, side)) * keep).real


def gridded(seed, patch=16, side=224, strength=1.0):
    """Noise that is stronger on the lines between patches."""
    line = np.arange(side) % patch < 2
    return noise(seed, side) * (1 + strength * np.maximum(line[:, None], line))


def test_it_is_numpys_correlation_over_both_axes():
    values = np.abs(smooth(0, 40, 4)) + np.arange(40) / 40
    across = np.corrcoef(values[:, :-5].ravel(), values[:, 5:].ravel())[0, 1]
    down = np.corrcoef(values[:-5].ravel(), values[5:].ravel())[0, 1]
    assert autocorrelation(values, 5) == pytest.approx((across + down) / 2)
    size = [autocorrelation(np.abs(values - 0.5), lag) for lag in (6, 8, 10)]
    assert border_excess(values - 0.5, 8) == pytest.approx(size[1] - (size[0] + size[2]) / 2)


@pytest.mark.parametrize("patch", [8, 14, 16, 32])
def test_a_grid_is_found_at_its_own_side_only(patch):
    maps = [gridded(i, patch) for i in range(4)]
    assert min(border_excess(a, patch) for a in maps) > 0.03
    assert max(border_excess(a, patch // 2 * 2 - 3) for a in maps) < 0.03


def test_maps_without_a_grid_have_no_excess():
    for make in (noise, smooth):
        values = [border_excess(make(i), 16) for i in range(12)]
        assert np.mean(values) < 0.003
    assert max(abs(border_excess(noise(i), 16)) for i in range(12)) < 0.012


def test_signs_do_not_count():
    values = gridded(1)
    assert border_excess(values, 16) == border_excess(-values, 16) == border_excess(np.abs(values), 16)


@pytest.mark.parametrize(("values", "patch"), [(np.ones((64, 64)), 16), (noise(0, 31), 16), (noise(0), 1)])
def test_what_has_no_grid_to_look_for(values, patch):
    assert np.isnan(border_excess(values, patch))
