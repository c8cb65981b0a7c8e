"""Overlays and coloured tokens, on maps whose picture is known."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from heatcheck.report.exhibits import RENDERERS, Exhibits, overlay, picture, render_exhibit, robust, text

GREY = np.full((40, 60, 3), 120, dtype=np.uint8)


def pixels(exhibit):
    data = base64.b64decode(exhibit["src"].removeprefix("data:image/webp;base64,"))
    image = Image.open(io.BytesIO(data))
    assert image.size == (exhibit["width"], exhibit["height"])
    return np.asarray(image.convert("RGB"), dtype=float)


def test_a_map_is_scaled_by_its_99th_percentile():
    values = np.r_[np.full(98, 1.0), -2.0, 1000.0]
    scaled = robust(values)
    assert scaled.max() == 1 and scaled.min() < 0
    assert robust(np.array([0.0, np.nan, np.inf, 2.0])).tolist() == [0, 0, 0, 1]
    assert not robust(np.zeros(4)).any() and robust(np.zeros(0)).size == 0


def test_a_rare_spike_is_not_lost_to_the_percentile():
    values = np.zeros(1000)
    values[3] = -5
    assert robust(values)[3] == -1


def test_warm_is_for_and_cold_is_against():
    heat = np.zeros((4, 6))
    heat[:, :2], heat[:, 4:] = 1.0, -1.0
    shown = pixels(overlay(GREY, heat, 60))
    left, middle, right = shown[20, 5], shown[20, 30], shown[20, 55]
    assert left[0] - left[2] > 80 and right[2] - right[0] > 60
    assert np.ptp(middle) < 25


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_scale_of_a_map_does_not_show(scale):
    heat = np.linspace(-1, 1, 24).reshape(4, 6)
    assert overlay(GREY, heat * scale, 48) == overlay(GREY, heat, 48)


def test_no_heat_leaves_the_greyed_picture():
    shown = pixels(overlay(GREY, np.zeros((2, 2)), 60))
    assert np.ptp(shown, axis=-1).max() < 6


@pytest.mark.parametrize("shape", [(1, 1), (7, 7), (40, 60), (300, 300)])
def test_any_resolution_fits_the_picture(shape):
    made = overlay(GREY, np.ones(shape), 48)
    assert (made["width"], made["height"]) == (48, 32)
    assert pixels(picture(GREY, 48)).shape == (32, 48, 3)


def test_each_exhibit_is_made_once():
    class RunSource:
        asked = 0

        def display(self, model, sample):
            self.asked += 1
            return {"kind": "image", "rgb": GREY}

        def map(self, model, sample, method):
            return np.ones((2, 2)) if method == "m" else None

    exhibits = Exhibits(RunSource())
    assert exhibits.map("a", "b", "m", 32) is exhibits.map("a", "b", "m", 32)
    assert exhibits.map("a", "b", "other", 32) is None
    assert exhibits.sample("a", "b", 32)["width"] == 32
    assert exhibits._source.asked == 1


def test_what_all_sites_share_does_not_show():
    heat = np.linspace(0, 1, 24).reshape(4, 6)
    assert overlay(GREY, heat + 3, 48) == overlay(GREY, heat, 48)
    assert robust(np.array([1.0, 2.0, 3.0])).tolist()[0] == 0 and robust(np.array([-1.0, 2.0]))[0] < 0


def test_red_beside_blue_is_never_purple():
    flat = np.full((32, 48, 3), 120, dtype=np.uint8)
    stripes = lambda width: np.where(np.arange(48) // width % 2, 1.0, -1.0) * np.ones((32, 1))  # noqa: E731
    wide = pixels(overlay(flat, stripes(2), 48))[16]
    lean = wide[:, 0] - wide[:, 2]
    assert (lean[2::4] > 40).all() and (lean[0::4] < -40).all()
    assert np.ptp(pixels(overlay(flat, stripes(1), 48)), axis=-1).max() < 25  # cancels within a block


def test_each_kind_of_display_has_a_renderer(monkeypatch):
    image = {"kind": "image", "rgb": GREY}
    words = {"kind": "text", "tokens": ["a", "b"], "special": [False, False]}  # as earlier releases stored it
    heat = np.array([1.0, -1.0])
    assert render_exhibit(image, None, 32) == picture(GREY, 32)
    assert render_exhibit(image, heat.reshape(1, 2), 32) == overlay(GREY, heat.reshape(1, 2), 32)
    assert render_exhibit(image, heat, 32) is None  # a map of another shape than the picture's
    assert render_exhibit(words, heat, 32) == text(words, heat)
    sound = {"kind": "sound", "wave": [0.0]}
    with pytest.raises(ValueError, match="no renderer for samples of kind 'sound' \\(known: image, text\\)"):
        render_exhibit(sound, None, 32)
    monkeypatch.setitem(RENDERERS, "sound", lambda display, _heat, _edge: {"kind": "sound", "wave": display["wave"]})
    assert render_exhibit(sound, None, 32) == {"kind": "sound", "wave": [0.0]}


def test_a_map_is_shown_without_its_picture():
    class OnlyMaps:
        def display(self, model, sample):
            return None

        def map(self, model, sample, method):
            return {"picture": np.eye(8), "text": np.ones(5)}.get(sample)

    exhibits = Exhibits(OnlyMaps())
    shown = exhibits.map("net", "picture", "grad_cam", 64)
    assert (shown["kind"], shown["width"], shown["height"]) == ("image", 64, 64)
    assert exhibits.map("net", "text", "grad_cam", 64) is None  # a text's values mean nothing without its words
    assert exhibits.map("net", "gone", "grad_cam", 64) is None
