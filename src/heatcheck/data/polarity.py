"""Texts in two folders, `pos/` and `neg/`: the layout of the review polarity corpora and of IMDB (`aclImdb`)."""

from pathlib import Path

from heatcheck.core.sources import source
from heatcheck.core.types import HeatcheckError, Modality, Sample, digest_of
from heatcheck.data.base import Listing, SourceOptions, causes
from heatcheck.data.catalogue import split_place
from heatcheck.data.labels import ClassesArg, Labels
from heatcheck.data.places import existing
from heatcheck.data.texts import text_sample

SPLITS = ("test", "train")
"""Parts of a corpus that has them as subfolders, the first by default."""
CLASSES = ("negative", "positive")
_FOLDERS = {"neg": CLASSES[0], "pos": CLASSES[1]}
_WRAPPERS = ("aclImdb", "txt_sentoken", "review_polarity/txt_sentoken")
"""Folders in which published archives wrap the two."""
_LONGEST_FILE = 100_000_000
_LEGACY = "it is not UTF-8 and was read as Latin-1"


@source(
    "polarity",
    form="polarity:PATH[:SPLIT]",
    modality="text",
    about="a folder with pos/ and neg/, a text per file, such as the review polarity corpora and aclImdb; splits test, train where they are subfolders",
    group="texts",
    position=4,
    splits=SPLITS,
    present="splits_of",
    recognises="is_polarity",
)
def polarity(where: str, options: SourceOptions) -> Listing:
    """Texts whose folder says whether they are negative or positive.

    Files end in `.txt` and are UTF-8. One that is not is read as Latin-1, and that is said; one that is no text in
    either is a sample with a problem.

    Args:
        where: the folder, or one that wraps it as `aclImdb/` or `txt_sentoken/`; then, after a colon, `test` (as
            without) or `train`, where it has them as subfolders.
        options: what else a user says.
    """
    place, split = split_place(where, SPLITS)
    root = _root(existing(place, "folder"))
    present = _splits(root)
    if split and split not in present:
        has = f"has the splits {', '.join(present)}" if present else "has no splits: write it without one"
        raise HeatcheckError(f"{where!r}: {str(root)!r} {has}")
    split = split or next(iter(present), "")
    folder = root / split
    if not _has_both(folder):
        raise HeatcheckError(f"{str(folder)!r} has no subfolders pos and neg with texts (.txt)")
    names = sorted(f"{inner}/{path.name}" for inner in _FOLDERS for path in _texts(folder / inner))
    legacy: dict[str, None] = {}

    def label(index: int) -> str:
        return _FOLDERS[names[index].partition("/")[0]]

    def make(index: int) -> tuple[Sample, str]:
        sample, is_legacy = _read(names[index], folder / names[index])
        if is_legacy:
            legacy[names[index]] = None
        return sample, label(index)

    def noticed() -> tuple[str, ...]:
        found = causes((_LEGACY, name) for name in legacy)
        return (f"some files have another encoding: {found}",) if found else ()

    return Listing(
        name=f"{root.resolve().name}-{split}" if split else root.resolve().name,
        modality=Modality.TEXT,
        names=names,
        make=make,
        label=label,
        labels=_labels(options.classes),
        notes=_left_aside(folder),
        noticed=noticed,
    )


def is_polarity(root: Path) -> bool:
    """Whether a folder holds texts in `pos/` and `neg/`, itself or in its splits."""
    inner = _root(root)
    return _has_both(inner) or bool(_splits(inner))


def splits_of(where: str) -> tuple[str, ...]:
    """The splits that a corpus has."""
    return _splits(_root(existing(where, "folder")))


def _root(folder: Path) -> Path:
    return next((inner for name in _WRAPPERS if (inner := folder / name).is_dir()), folder)


def _splits(root: Path) -> tuple[str, ...]:
    return tuple(split for split in SPLITS if _has_both(root / split))


def _has_both(folder: Path) -> bool:
    return all(next(iter(_texts(folder / inner)), None) is not None for inner in _FOLDERS)


def _texts(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.suffix.lower() == ".txt" and not path.name.startswith(".")]


def _left_aside(folder: Path) -> tuple[str, ...]:
    """A note on other subfolders, and on files that are no texts."""
    others = sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name not in (*_FOLDERS, *SPLITS))
    files = [p for inner in _FOLDERS for p in (folder / inner).iterdir() if p.suffix.lower() != ".txt"]
    said = [f"subfolders beside pos and neg are not read: {', '.join(others)}"] if others else []
    if files:
        said.append(f"{len(files)} files that do not end in .txt are not read, such as {min(p.name for p in files)!r}")
    return tuple(said)


def _labels(classes: ClassesArg) -> Labels:
    """The two classes, under the names that a user gives them."""
    given = Labels.given(CLASSES if classes is None else classes)
    known = given.classes or ()
    return Labels(known, {name: i for i, name in enumerate(CLASSES) if name not in known})


def _read(name: str, path: Path) -> tuple[Sample, bool]:
    """The text in a file, and whether it is in the old encoding."""
    try:
        if path.stat().st_size > _LONGEST_FILE:
            return _unreadable(name, f"the file is larger than {_LONGEST_FILE // 10**6} MB"), False
        raw = path.read_bytes()
    except OSError as error:
        return _unreadable(name, f"the file cannot be read: {error.strerror}"), False
    try:
        return text_sample(name, raw.decode("utf-8-sig")), False
    except UnicodeDecodeError:
        pass
    text = raw.decode("latin-1")
    if any(c < " " and not c.isspace() for c in text):
        return _unreadable(name, "the file is no text: it is not UTF-8 and has control characters"), False
    return text_sample(name, text), True


def _unreadable(name: str, problem: str) -> Sample:
    return Sample(name, digest_of("unreadable", name), "", problem=problem)
