"""Pictures of which half carry a yellow square, whose place is the ground truth."""

from typing import Any

import numpy as np
from PIL import Image

from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError, Modality, Sample
from heatcheck.data.base import Listing, SourceOptions
from heatcheck.data.images import decode_image, picture_sample
from heatcheck.data.labels import Labels
from heatcheck.data.load import listing_of
from heatcheck.data.references import picture_with

CLASSES = ("plain", "square")
SIDE, SQUARE, LATTICE = 224, 60, 50
SMALL = 64
"""The longest shorter side of pictures that keep their size, such as those of CIFAR-10."""
YELLOW = (255, 255, 0)


@source(
    "squares",
    form="squares:SOURCE",
    modality="image",
    about="pictures of another source, the first half with a yellow square whose place is known (M4's SynScore)",
    licence="the source's",
    group="images",
    position=4,
)
def squares(where: str, options: SourceOptions) -> Listing:
    """M4's pictures with a synthetic ground truth, made from any source of pictures.

    Pictures are scaled to a shorter side of 256 and cropped to 224 × 224. The first half get a yellow square of
    60 × 60 on a lattice of 50 × 50 places (all of them are used if 2,500 pictures or more carry one), the label 1
    and the square as mask; the others stay plain, with the label 0 and no mask. They belong to a classifier that was
    trained to find the square (`heatcheck train synthetic`), whose preprocessing should keep all of the 224 × 224.
    Pictures of at most 64 pixels are cropped to a square of their own size, and the yellow one is scaled with it: 9 × 9
    on 32 × 32.

    Args:
        where: the source, such as `images` or `folder:PATH`.
        options: what else a user says.
    """
    plain = listing_of(where, SourceOptions())
    if plain.modality is not Modality.IMAGE:
        raise HeatcheckError(f"squares:{where} needs pictures; {where!r} holds {plain.modality}s")
    marked = (len(plain.names) + 1) // 2

    def make(index: int) -> tuple[Sample, Any]:
        sample, _ = plain.make(index)
        if sample.problem is not None:
            return sample, None
        try:
            picture = np.array(framed(decode_image(sample.content)))
        except HeatcheckError as error:
            return Sample(sample.name, sample.digest, sample.content, problem=str(error)), None
        if index >= marked:
            return picture_sample(sample.name, picture), 0
        side = square_side(len(picture))
        left, top = place(index, marked, len(picture))
        picture[top : top + side, left : left + side] = YELLOW
        box = [left, top, left + side, top + side]
        return picture_with(picture_sample(sample.name, picture), {"boxes": [box]}), 1

    return Listing(
        name=f"squares-{plain.name}",
        modality=Modality.IMAGE,
        names=plain.names,
        make=make,
        label=lambda i: int(i < marked),
        labels=Labels.given(CLASSES if options.classes is None else options.classes),
        notes=plain.notes,
    )


def framed(picture: Image.Image) -> Image.Image:
    """The centre of a picture, 224 × 224, after its shorter side was scaled to 256; a small picture is not scaled."""
    side, scaled = min(picture.size), picture
    if side > SMALL:
        scale, side = 256 / side, SIDE
        size = round(picture.width * scale), round(picture.height * scale)
        scaled = picture.resize(size, Image.Resampling.BILINEAR)
    left, top = (scaled.width - side) // 2, (scaled.height - side) // 2
    return scaled.crop((left, top, left + side, top + side))


def square_side(picture: int) -> int:
    """The side of the yellow square on a picture of a given side.

    >>> square_side(224), square_side(32)
    (60, 9)
    """
    return max(1, round(picture * SQUARE / SIDE))


def place(index: int, marked: int, picture: int = SIDE) -> tuple[int, int]:
    """Left and top of the square of one of the marked pictures.

    With 2,500 of them, the paper's: column `index % 50`, row `index // 50`, 3.28 pixels apart on 224. Fewer are spread.

    >>> place(51, 2500), place(1, 2), place(2499, 2500, 32)
    ((3, 3), (0, 82), (22, 22))
    """
    at = index * LATTICE**2 // min(marked, LATTICE**2) % LATTICE**2
    room = picture - square_side(picture)
    return at % LATTICE * room // LATTICE, at // LATTICE * room // LATTICE
