"""Pictures with a yellow square."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heatcheck.core.types import HeatcheckError
from heatcheck.data import load_data, region
from heatcheck.data.squares import place, square_side

MUTANTS = (
    (
        "data/squares.py",
        "at % LATTICE * room // LATTICE, at // LATTICE * room // LATTICE",
        "at // LATTICE * 3, at % LATTICE * 3",
        "test_places_are_the_papers",
    ),
    ("data/squares.py", "if side > SMALL:", "if side > 0:", "test_small_pictures_keep_their_size"),
    ("data/squares.py", "picture * SQUARE / SIDE", "SQUARE", "test_small_pictures_keep_their_size"),
    ("data/squares.py", "if index >= marked:", "if index < marked:", "test_half_of_the_pictures_carry_a_square"),
)


def test_places_are_the_papers() -> None:
    for i in range(2500):
        assert place(i, 2500) == (int((i % 50) * 3.28), int((i // 50) * 3.28))
    assert {place(i, 5000) for i in range(5000)} == {place(i, 2500) for i in range(2500)}
    assert max(max(place(i, 2500)) for i in range(2500)) + 60 <= 224


def test_half_of_the_pictures_carry_a_square(tmp_path: Path) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    for i in range(5):
        Image.fromarray(rng.integers(0, 200, (90 + 40 * i, 100, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    (tmp_path / "5.png").write_bytes(b"broken")
    data = load_data(f"squares:folder:{tmp_path}")
    assert data.classes == ("plain", "square") and data.name == f"squares-{tmp_path.name}"
    assert [s.label for s in data] == [1, 1, 1, 0, 0, None] and data[5].problem
    for sample in data[:5]:
        assert sample.content.shape == (224, 224, 3)
        yellow = (sample.content == (255, 255, 0)).all(-1)
        if sample.label:
            assert np.array_equal(yellow, region(sample.reference["boxes"], (224, 224))) and yellow.sum() == 3600
        else:
            assert not yellow.any() and sample.reference == {}
    again = load_data(f"squares:{tmp_path}", samples=2)
    assert {s.digest for s in again} <= {s.digest for s in data}


def test_small_pictures_keep_their_size(tmp_path: Path) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    own = rng.integers(0, 200, (4, 32, 40, 3), dtype=np.uint8)
    for i, picture in enumerate(own):
        Image.fromarray(picture).save(tmp_path / f"{i}.png")
    for i, sample in enumerate(load_data(f"squares:folder:{tmp_path}")):
        middle = own[i][:, 4:36]
        yellow = (sample.content == (255, 255, 0)).all(-1)
        assert sample.content.shape == (32, 32, 3) and yellow.sum() == (81 if i < 2 else 0)
        assert np.array_equal(sample.content[~yellow], middle[~yellow])
        if i < 2:
            assert np.array_equal(yellow, region(sample.reference["boxes"], (32, 32)))


@pytest.mark.parametrize("side", [8, 28, 32, 64, 224])
def test_squares_lie_inside_pictures_and_reach_both_ends(side: int) -> None:
    square = square_side(side)
    places = [place(i, 2500, side) for i in range(2500)]
    assert min(map(min, places)) == 0 and side - square - 4 <= max(map(max, places)) <= side - square


def test_the_embedded_pictures_can_carry_squares() -> None:
    data = load_data("squares:images", samples=2, seed=None)
    assert [s.label for s in data] == [1, 1]


def test_texts_and_unknown_sources_are_refused() -> None:
    with pytest.raises(HeatcheckError, match="needs pictures; 'texts' holds texts"):
        load_data("squares:texts")
    with pytest.raises(HeatcheckError, match="data='nowhere' is neither"):
        load_data("squares:nowhere")
