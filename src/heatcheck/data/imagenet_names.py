"""ImageNet's thousand classes, as the installed timm lists them."""

from functools import cache

from heatcheck.data.packages import package_folder


@cache
def imagenet_wnids() -> tuple[str, ...]:
    """The WordNet ids (`n01440764` …) in index order."""
    text = (package_folder("timm", "data/_info", "timm") / "imagenet_synsets.txt").read_text(encoding="utf-8")
    return tuple(text.split())


@cache
def imagenet_classes() -> tuple[str, ...]:
    """The class names (`tench, Tinca tinca` …) in index order."""
    text = (package_folder("timm", "data/_info", "timm") / "imagenet_synset_to_lemma.txt").read_text(encoding="utf-8")
    names = dict(line.split("\t", 1) for line in text.splitlines())
    return tuple(names[wnid].strip() for wnid in imagenet_wnids())
