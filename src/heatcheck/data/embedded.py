"""The data that `heatcheck run` uses when it is given none."""

from heatcheck.data.base import Listing, Options
from heatcheck.data.images import picture_sample
from heatcheck.data.labels import Labels
from heatcheck.data.packages import package_folder
from heatcheck.data.sentiment import CLASSES, corpus
from heatcheck.types import HeatcheckError, Modality, Sample

_TEXTS = 48
_SKIMAGE = ("astronaut.png", "camera.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
_PHOTOGRAPHS = (
    ("skimage", "data", "scikit-image", _SKIMAGE),
    ("sklearn", "datasets/images", "scikit-learn", ("china.jpg", "flower.jpg")),
)


def images(options: Options) -> Listing:
    """The embedded pictures: foolbox's ImageNet samples with their labels, photographs without."""
    samples = package_folder("foolbox", "data", "--no-deps foolbox")
    paths = {path.name: path for path in samples.glob("imagenet_*_*.jpg")}
    for package, inside, install, files in _PHOTOGRAPHS:
        folder = package_folder(package, inside, install)
        paths.update({file: folder / file for file in files})
    names = sorted(paths)

    def make(index: int) -> tuple[Sample, str | None]:
        name = names[index]
        label = paths[name].stem.split("_")[2] if name.startswith("imagenet_") else None
        return picture_sample(name, paths[name]), label

    labels = _imagenet_if_known() if options.classes is None else Labels.given(options.classes)
    return Listing(name="images", modality=Modality.IMAGE, names=names, make=make, labels=labels)


def _imagenet_if_known() -> Labels:
    try:
        return Labels.imagenet()
    except HeatcheckError:
        return Labels()


def texts(options: Options) -> Listing:
    """The embedded texts: reviews of the sentiment corpus's test split, with their decisive words."""
    samples = corpus(_TEXTS, seed=0, split="test")
    return Listing(
        name="texts",
        modality=Modality.TEXT,
        names=[s.name for s in samples],
        make=lambda i: (samples[i], samples[i].label),
        labels=Labels.given(CLASSES if options.classes is None else options.classes),
    )
