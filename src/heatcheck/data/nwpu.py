"""NWPU-RESISC45: 45 kinds of places, seen from above."""

from dataclasses import replace
from pathlib import Path

from heatcheck.core.sources import source
from heatcheck.data.base import Listing, SourceOptions
from heatcheck.data.catalogue import split_place
from heatcheck.data.folders import picture_listing
from heatcheck.data.labels import Labels
from heatcheck.data.parts import SHARE, part, restricted
from heatcheck.data.places import existing

SPLITS = ("test", "train")
"""Parts of the data set, the first by default."""
# fmt: off
CLASSES = (
    "airplane", "airport", "baseball_diamond", "basketball_court", "beach", "bridge", "chaparral", "church",
    "circular_farmland", "cloud", "commercial_area", "dense_residential", "desert", "forest", "freeway",
    "golf_course", "ground_track_field", "harbor", "industrial_area", "intersection", "island", "lake", "meadow",
    "medium_residential", "mobile_home_park", "mountain", "overpass", "palace", "parking_lot", "railway",
    "railway_station", "rectangular_farmland", "river", "roundabout", "runway", "sea_ice", "ship", "snowberg",
    "sparse_residential", "stadium", "storage_tank", "tennis_court", "terrace", "thermal_power_station", "wetland",
)
# fmt: on


@source(
    "nwpu",
    form="nwpu:PATH[:SPLIT]",
    modality="image",
    about="NWPU-RESISC45, 45 class folders; splits test, train: a fifth of each class is tested on, nwpu(seed=3):PATH another one",
    group="images",
    position=3,
    splits=SPLITS,
    params=("seed", "share"),
    recognises="is_nwpu",
)
def nwpu(where: str, options: SourceOptions, *, seed: int = 0, share: float = SHARE) -> Listing:
    """Aerial pictures in a folder per class. None of them is published as a test picture, so a seed decides.

    Args:
        where: the folder; then, after a colon, `test` (as without) or `train`.
        options: what else a user says.
        seed: which pictures of each class are tested on.
        share: how many, between 0 and 1.
    """
    place, split = split_place(where, SPLITS)
    split = split or SPLITS[0]
    root = existing(place, "folder")
    whole = picture_listing(root, root, options, Labels(CLASSES))
    chosen = part(whole, f"{split}_part", seed=seed, share=share)
    labels = Labels(CLASSES) if options.classes is None else Labels.given(options.classes)
    return replace(restricted(whole, chosen), name=f"{root.resolve().name}-{split}", labels=labels)


def is_nwpu(root: Path) -> bool:
    """Whether a folder's subfolders are the 45 classes."""
    return {path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")} == set(CLASSES)
