"""ImageNet's thousand classes, as the installed timm lists them."""

from functools import cache

from heatcheck.data.packages import package_folder


@cache
def imagenet_wnids() -> tuple[str, ...]:
    """The WordNet ids (`n01440764` …) in index order."""
    return tuple(_listed("imagenet_synsets.txt").split())


@cache
def imagenet_classes() -> tuple[str, ...]:
    """The class names (`tench, Tinca tinca` …) in index order."""
    names = dict(line.split("\t", 1) for line in _listed("imagenet_synset_to_lemma.txt").splitlines())
    return tuple(names[wnid].strip() for wnid in imagenet_wnids())


def _listed(file: str) -> str:
    folder = package_folder("the list of ImageNet's classes", "timm", "data/_info")
    return (folder / file).read_text(encoding="utf-8")
