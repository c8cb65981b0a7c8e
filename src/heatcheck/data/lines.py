"""Texts in a plain file, one per line."""

from heatcheck.core.sources import source
from heatcheck.core.types import Modality, Sample
from heatcheck.data.base import Listing, SourceOptions, numbered
from heatcheck.data.labels import Labels
from heatcheck.data.places import existing
from heatcheck.data.tables import file_text
from heatcheck.data.texts import text_sample


@source(
    "lines",
    form="lines:FILE.txt",
    modality="text",
    about="texts without labels, one per line",
    group="texts",
    position=4,
    suffixes=(".txt",),
)
def lines(where: str, options: SourceOptions) -> Listing:
    """Texts without labels, one per line; empty lines are no texts."""
    path = existing(where, "file")
    texts = [line for line in file_text(path).split("\n") if line.strip()]
    names = numbered(len(texts))

    def make(index: int) -> tuple[Sample, None]:
        return text_sample(names[index], texts[index]), None

    return Listing(
        name=path.stem,
        modality=Modality.TEXT,
        names=names,
        make=make,
        label=lambda index: None,
        labels=Labels.of((), options.classes),
        notes=("every line is a text, without a label",),
    )
