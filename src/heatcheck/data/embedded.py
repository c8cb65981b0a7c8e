"""The data that `heatcheck run` uses when it is given none."""

import re
from dataclasses import replace
from pathlib import Path

from heatcheck.core.extras import require
from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError, Modality, Sample
from heatcheck.data.base import Listing, SourceOptions, distinct
from heatcheck.data.folders import with_references
from heatcheck.data.images import picture_sample
from heatcheck.data.labels import Labels
from heatcheck.data.packages import package_folder
from heatcheck.data.sentiment import CLASSES, Split, corpus
from heatcheck.data.sidecars import beside

_TEXTS = 48
_REVIEWS: dict[Split, int] = {"test": 400, "train": 2000}
_SKIMAGE = ("astronaut.png", "camera.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
_PHOTOGRAPHS = (
    ("skimage", "data", _SKIMAGE),
    ("sklearn", "datasets/images", ("china.jpg", "flower.jpg")),
)


@source(
    "images",
    form="images",
    modality="image",
    about="20 labelled ImageNet pictures and 8 unlabelled photographs, from installed packages, with boxes and parts",
    licence="ImageNet's terms (imagenet_*); CC BY 2.0 (china, flower); the others as scikit-image states; boxes and parts Apache-2.0",
    group="embedded",
    position=1,
    default=True,
)
def images(options: SourceOptions) -> Listing:
    """The embedded pictures: foolbox's ImageNet samples with their labels, photographs without.

    Boxes of what they show and of its parts are our own, drawn by hand.
    """
    what = "the embedded data set images"
    require(what, "foolbox", *(package for package, _, _ in _PHOTOGRAPHS), extra="demo")
    samples = package_folder(what, "foolbox", "data")
    paths = {path.name: path for path in samples.glob("imagenet_*_*.jpg")}
    for package, inside, files in _PHOTOGRAPHS:
        folder = package_folder(what, package, inside)
        paths.update({file: folder / file for file in files})
    names = sorted(paths)

    def label(index: int) -> str | None:
        name = names[index]
        return paths[name].stem.split("_")[2] if name.startswith("imagenet_") else None

    def make(index: int) -> tuple[Sample, str | None]:
        return picture_sample(names[index], paths[names[index]]), label(index)

    labels = _imagenet_if_known() if options.classes is None else Labels.given(options.classes)
    listing = Listing(name="images", modality=Modality.IMAGE, names=names, make=make, labels=labels, label=label)
    return with_references(listing, beside((Path(__file__).parent / "annotations",), names))


def _imagenet_if_known() -> Labels:
    try:
        return Labels.imagenet()
    except HeatcheckError:
        return Labels()


@source(
    "texts",
    form="texts",
    modality="text",
    about="48 generated reviews, negative or positive, whose decisive words are known",
    licence="Apache-2.0",
    group="embedded",
    position=1,
    default=True,
)
def texts(options: SourceOptions) -> Listing:
    """The embedded texts: reviews of the sentiment corpus's test split, with their decisive words; every word is a part."""
    samples = [_with_words(sample) for sample in corpus(_TEXTS, seed=0, split="test")]
    return Listing(
        name="texts",
        modality=Modality.TEXT,
        names=[s.name for s in samples],
        make=lambda i: (samples[i], samples[i].label),
        labels=Labels.given(CLASSES if options.classes is None else options.classes),
    )


@source(
    "reviews",
    form="reviews[:SPLIT]",
    modality="text",
    about="generated reviews as those of texts, to learn from and to test on: 400 in test, 2,000 in train",
    licence="Apache-2.0",
    group="embedded",
    position=2,
    splits=("test", "train"),
)
def reviews(split: Split, options: SourceOptions) -> Listing:
    """A part of the sentiment corpus, with the decisive words of each review; no review is in both parts."""
    samples = corpus(_REVIEWS[split], seed=0, split=split)
    return Listing(
        name=f"reviews-{split}",
        modality=Modality.TEXT,
        names=[s.name for s in samples],
        make=lambda i: (samples[i], samples[i].label),
        label=lambda i: samples[i].label,
        labels=Labels.given(CLASSES if options.classes is None else options.classes),
    )


def _with_words(sample: Sample) -> Sample:
    words = list(re.finditer(r"\w+(?:[-']\w+)*", sample.content))
    names = distinct([word[0].lower() for word in words])
    parts = {name: word.span() for name, word in zip(names, words, strict=True)}
    return replace(sample, reference={**sample.reference, "parts": parts})
