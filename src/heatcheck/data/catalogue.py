"""Every data source and what it is: a table that can be listed without importing torch."""

import importlib
from dataclasses import asdict, dataclass
from typing import Any

OWN = "its owner's"
SPLITS = ("test", "val", "train")
"""Parts of a corpus in ERASER's layout, the first by default."""


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """The metadata block of a data source.

    Args:
        id: its name, and the prefix of its spec where it takes a place.
        form: how it is written.
        modality: image, text, or either.
        about: what it is, in a line.
        licence: under which terms its contents may be used.
        loader: `module:function` that lists its samples.
    """

    id: str
    form: str
    modality: str
    about: str
    licence: str
    loader: str

    def load(self) -> Any:
        """The loader, imported now."""
        module, name = self.loader.split(":")
        return getattr(importlib.import_module(f"heatcheck.data.{module}"), name)

    def record(self) -> dict[str, str]:
        """What `list data --json` shows."""
        return {k: v for k, v in asdict(self).items() if k != "loader"}


_SOURCES = (
    DataSource(
        id="images",
        form="images",
        modality="image",
        about="20 labelled ImageNet pictures and 8 unlabelled photographs, from installed packages, with boxes and parts",
        licence="ImageNet's terms (imagenet_*); CC BY 2.0 (china, flower); the others as scikit-image states; boxes and parts Apache-2.0",
        loader="embedded:images",
    ),
    DataSource(
        id="texts",
        form="texts",
        modality="text",
        about="48 generated reviews, negative or positive, whose decisive words are known",
        licence="Apache-2.0",
        loader="embedded:texts",
    ),
    DataSource(
        id="folder",
        form="folder:PATH",
        modality="image",
        about="a folder of pictures: flat, with a subfolder per class, or with a labels.csv; masks, boxes, parts",
        licence=OWN,
        loader="folders:folder",
    ),
    DataSource(
        id="imagenet",
        form="imagenet:PATH",
        modality="image",
        about="ImageNet: val/nXXXXXXXX/*.JPEG, or pictures with a labels.csv (file, label, wnid, name)",
        licence="ImageNet's terms of access",
        loader="folders:imagenet",
    ),
    DataSource(
        id="yolo",
        form="yolo:PATH",
        modality="image",
        about="pictures with YOLO boxes or polygons, such as COCO's: masks of the main class, every class a part",
        licence=OWN,
        loader="yolo:yolo",
    ),
    DataSource(
        id="squares",
        form="squares:SOURCE",
        modality="image",
        about="pictures of another source, the first half with a yellow square whose place is known (M4's SynScore)",
        licence="the source's",
        loader="squares:squares",
    ),
    DataSource(
        id="files",
        form="files:LIST.txt",
        modality="image",
        about="a list of pictures, one path per line, each with a label after a tab or comma if it is known",
        licence=OWN,
        loader="folders:files",
    ),
    DataSource(
        id="csv",
        form="csv:FILE",
        modality="text",
        about="texts in a comma-separated table",
        licence=OWN,
        loader="tables:csv_table",
    ),
    DataSource(
        id="tsv",
        form="tsv:FILE",
        modality="text",
        about="texts in a tab-separated table, such as SST-2",
        licence=OWN,
        loader="tables:tsv_table",
    ),
    DataSource(
        id="jsonl",
        form="jsonl:FILE",
        modality="text",
        about="texts as JSON objects, one per line; they may have spans and parts",
        licence=OWN,
        loader="tables:jsonl_table",
    ),
    DataSource(
        id="eraser",
        form="eraser:PATH[:SPLIT]",
        modality="text",
        about="texts with human rationales in ERASER's layout, a folder or a tar archive; splits test, val, train",
        licence=OWN,
        loader="eraser:eraser",
    ),
    DataSource(
        id="tensor",
        form="a torch Tensor, or (tensor, labels)",
        modality="image or text",
        about="inputs that are ready for the model: floats [n, c, h, w] or token ids [n, t]",
        licence=OWN,
        loader="items:tensors",
    ),
    DataSource(
        id="sequence",
        form="a list of texts, paths, pictures or (item, label) pairs",
        modality="image or text",
        about="samples held in memory; dicts may carry masks, boxes, parts or spans",
        licence=OWN,
        loader="items:sequence",
    ),
    DataSource(
        id="torch",
        form="a torch Dataset",
        modality="image or text",
        about="items (picture | tensor | text, label), or dicts with such entries",
        licence=OWN,
        loader="items:torch_dataset",
    ),
)


def sources() -> dict[str, DataSource]:
    """All data sources by id."""
    return {source.id: source for source in _SOURCES}


def split_spec(data: str) -> tuple[str, str, str]:
    """What a spec says before the path it names, that path, and what it says after it.

    >>> split_spec("squares:folder:val"), split_spec("eraser:movies.tar.gz:val"), split_spec("images")
    (('squares:folder:', 'val', ''), ('eraser:', 'movies.tar.gz', ':val'), ('images', '', ''))
    """
    id, colon, place = data.partition(":")
    form = getattr(sources().get(id), "form", "")
    if form == id and not colon:
        return data, "", ""
    if not colon or not form.startswith(f"{id}:"):
        return "", data, ""
    if form == f"{id}:SOURCE":
        before, place, after = split_spec(place)
        return f"{id}:{before}", place, after
    rest, colon, split = place.rpartition(":")
    if form.endswith("[:SPLIT]") and colon and split in SPLITS:
        return f"{id}:", rest, f":{split}"
    return f"{id}:", place, ""
