"""Texts in tables: CSV, TSV, JSON lines, Parquet."""

import codecs
import csv
import io
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heatcheck.core.sources import source
from heatcheck.core.spec import suggest
from heatcheck.core.types import HeatcheckError, Modality, Sample, TextPair
from heatcheck.data.base import Listing, SourceOptions, TextColumnArg, numbered
from heatcheck.data.labels import Labels, as_index, as_number, is_missing
from heatcheck.data.places import existing
from heatcheck.data.references import text_with
from heatcheck.data.texts import text_sample

TEXT_COLUMNS = (
    "text",
    "sentence",
    "review",
    "content",
    "document",
    "comment",
    "body",
    "message",
    "sms",
    "tweet",
)
PAIR_COLUMNS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text", "text_pair"),
    ("text_a", "text_b"),
)
"""Two columns that are a pair of texts where a table has both."""
LABEL_COLUMNS = ("label", "labels", "target", "class", "sentiment", "category", "polarity", "gold_label", "y")
_LONGEST_CELL = 10**8
_FEW = 10
"""Rows of a table in which every label may occur once."""
_START = 2**16
"""Bytes by which a file is known as text or not."""
_STRAY = 16
"""Bytes that are no text and may yet all belong to one bad text of a file."""
_CONTROL = bytes({*range(32), 127} - {*b"\t\n\v\f\r\x1b"})
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class Row:
    """A row by column, and what is wrong with it, if anything."""

    cells: Mapping[str, Any]
    problem: str | None = None


@source(
    "csv",
    form="csv:FILE",
    modality="text",
    about="texts in a comma-separated table",
    group="texts",
    position=1,
    suffixes=(".csv",),
    columns=True,
)
def csv_table(where: str, options: SourceOptions) -> Listing:
    """Texts in a comma-separated file, with or without a header."""
    path = existing(where, "file")
    return _listing(path, read_table(path, ",", header=_named(options)), options)


@source(
    "tsv",
    form="tsv:FILE",
    modality="text",
    about="texts in a tab-separated table, such as SST-2",
    group="texts",
    position=2,
    suffixes=(".tsv",),
    columns=True,
)
def tsv_table(where: str, options: SourceOptions) -> Listing:
    """Texts in a tab-separated file, with or without a header.

    Quotes are read as in CSV, unless that fails or swallows lines that are rows by themselves.
    """
    path = existing(where, "file")
    return _listing(path, read_table(path, "\t", header=_named(options)), options)


@source(
    "jsonl",
    form="jsonl:FILE",
    modality="text",
    about="texts as JSON objects, one per line or in a list; they may have spans and parts",
    group="texts",
    position=3,
    suffixes=(".jsonl", ".ndjson", ".json"),
    columns=True,
)
def jsonl_table(where: str, options: SourceOptions) -> Listing:
    """Texts as JSON objects, one per line or in one list.

    Besides text and label they may have `spans` (of characters, `[[start, end], …]`), `parts` (spans by name) and
    `without` (the texts without these parts, by name).
    """
    path = existing(where, "file")
    text = file_text(path)
    rows = _listed(text)
    if rows is None:
        rows = [_object(line) for line in text.split("\n") if line.strip()]
        if path.suffix.lower() == ".json":
            _check_lines(path, rows)
    return _listing(path, rows, options)


@source(
    "parquet",
    form="parquet:FILE",
    modality="text",
    about="texts in a Parquet table; it may have spans and parts, as JSON lines may",
    group="texts",
    position=4,
    suffixes=(".parquet",),
    columns=True,
)
def parquet_table(where: str, options: SourceOptions) -> Listing:
    """Texts in a Parquet file, such as those that data sets on the hub consist of."""
    import polars as pl

    path = existing(where, "file")
    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise HeatcheckError(f"{str(path)!r} cannot be read as Parquet: {str(error).splitlines()[0]}") from error
    return _listing(path, [Row(cells) for cells in frame.iter_rows(named=True)], options)


def _listed(text: str) -> list[Row] | None:
    """The rows of a file that is one JSON list; None for any other."""
    if not text.lstrip().startswith("["):
        return None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return [Row(value) if isinstance(value, dict) else Row({}, "the item is not a JSON object") for value in values]


def _object(line: str) -> Row:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Row({}, f"the line is not JSON: {error}")
    return Row(value) if isinstance(value, dict) else Row({}, "the line is not a JSON object")


def _check_lines(path: Path, rows: Sequence[Row]) -> None:
    """Refuse a file of JSON in another form.

    Raises:
        HeatcheckError: none of several lines is an object; says which forms are read.
    """
    if len(rows) > 1 and all(row.problem is not None for row in rows):
        raise HeatcheckError(
            f'{str(path)!r} holds neither a JSON object per line, such as {{"text": …, "label": …}}, nor one whole list of them'
        )


def read_table(path: Path, delimiter: str, header: bool = False) -> list[Row]:
    """A table's rows; columns without a header are called by their position.

    Args:
        path: the file.
        delimiter: what separates cells.
        header: whether the first row is surely a header; else it is one if it looks like one.
    """
    lines = _cells(file_text(path), delimiter)
    if not lines:
        return []
    if header or _looks_like_header(lines):
        columns, lines = [cell.strip() for cell in lines[0]], lines[1:]
    else:
        columns = [str(i) for i in range(len(lines[0]))]
    return [_row(columns, line) for line in lines]


def _looks_like_header(lines: Sequence[Sequence[str]]) -> bool:
    """Whether the first line has a usual column name, or a word above a column of numbers."""
    first, rest = lines[0], [line for line in lines[1:] if len(line) == len(lines[0])]
    if any(cell.strip().lower() in _USUAL for cell in first):
        return True
    numeric = (all(as_number(line[i]) is not None for line in rest) for i in range(len(first)))
    return bool(rest) and any(n and as_number(cell) is None for n, cell in zip(numeric, first, strict=True))


def _row(columns: Sequence[str], line: Sequence[str]) -> Row:
    if len(line) == len(columns):
        return Row(dict(zip(columns, line, strict=True)))
    cells = dict(zip(columns, [*line, *[""] * len(columns)], strict=False))
    advice = "quote cells that hold a separator" if len(line) > len(columns) else "a cell is missing"
    return Row(cells, f"the row has {len(line)} cells, the table {len(columns)} columns: {advice}")


def file_text(path: Path) -> str:
    """A file as UTF-8; bytes that are none stay in, for the samples that have them to say so.

    Raises:
        HeatcheckError: it cannot be read, or is no text file.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise HeatcheckError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    _check_text(path, content[:_START])
    return content.decode("utf-8-sig", errors="surrogateescape").replace("\r\n", "\n")


def _check_text(path: Path, start: bytes) -> None:
    """Refuse a file that begins with too many bytes that no text has.

    Texts in another encoding have bytes that are no UTF-8, but no control characters: they stay, as do a few bad texts.

    Raises:
        HeatcheckError: over a tenth of the bytes are control characters or no UTF-8, and over a hundredth the former.
    """
    control = len(start) - len(start.translate(None, _CONTROL))
    stray = control + sum("\udc80" <= c <= "\udcff" for c in start.decode(errors="surrogateescape"))
    many = stray > max(_STRAY, 0.1 * len(start)) and control > 0.01 * len(start)
    if many and not start.startswith(_UTF_16):
        raise HeatcheckError(
            f"{str(path)!r} is no text file: {stray / len(start):.0%} of its first {len(start):,} bytes are control "
            "characters or no UTF-8; unpack it if it is packed, and save tables and texts as UTF-8"
        )


def _cells(text: str, delimiter: str) -> list[list[str]]:
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        if delimiter == "\t":
            return _tab_separated(text)
        try:
            return _quoted(text, delimiter, strict=True)
        except csv.Error:
            return _quoted(text, delimiter, strict=False)
    finally:
        csv.field_size_limit(before)


def _tab_separated(text: str) -> list[list[str]]:
    """Rows with quotes read as quotes, unless that fails or swallows lines that are rows by themselves."""
    plain = [line.split("\t") for line in text.split("\n") if line]
    try:
        quoted = _quoted(text, "\t", strict=True)
    except csv.Error:
        return plain
    even = len({len(row) for row in plain}) == 1
    return plain if even and len(plain) != len(quoted) else quoted


def _quoted(text: str, delimiter: str, strict: bool) -> list[list[str]]:
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=strict) if row]


_USUAL = frozenset((*TEXT_COLUMNS, *LABEL_COLUMNS, *(name for pair in PAIR_COLUMNS for name in pair)))


def _named(options: SourceOptions) -> bool:
    asked = (*asked_columns(options.text_column, ()), options.label_column)
    return any(isinstance(c, str) and not c.isdecimal() for c in asked)


def asked_columns(asked: TextColumnArg, columns: Collection[str]) -> tuple[str | int, ...]:
    """The column or the two columns that a user names for the texts, which may be there or not.

    Raises:
        HeatcheckError: there are more than two, or one twice.

    >>> asked_columns("premise, hypothesis", ["premise", "hypothesis"]), asked_columns("a,b", ["a,b"]), asked_columns(2, [])
    (('premise', 'hypothesis'), ('a,b',), (2,))
    """
    if asked is None:
        return ()
    if isinstance(asked, str):
        whole = asked in columns or "," not in asked
        found: tuple[str | int, ...] = (asked,) if whole else tuple(part.strip() for part in asked.split(","))
    else:
        found = (asked,) if isinstance(asked, int) else tuple(asked)
    if len(found) not in (1, 2) or len(set(found)) != len(found):
        raise HeatcheckError(f"text_column={asked!r}: name one column, or the two of a pair of texts")
    return found


def usual_pair(columns: Iterable[str]) -> tuple[str, ...]:
    """The two columns that are a pair of texts by their usual names; empty if there are none."""
    by_name = {column.lower(): column for column in columns}
    return next(((by_name[a], by_name[b]) for a, b in PAIR_COLUMNS if a in by_name and b in by_name), ())


def text_of(cells: Mapping[str, Any], columns: Sequence[str]) -> Any:
    """What a row has in one column, or in two as a pair."""
    found: list[Any] = [cells.get(column) for column in columns]
    return TextPair(*found) if len(found) == 2 else found[0] if found else None


def _listing(path: Path, rows: Sequence[Row], options: SourceOptions) -> Listing:
    return table_listing(path.stem, repr(str(path)), rows, options)


def table_listing(name: str, called: str, rows: Sequence[Row], options: SourceOptions) -> Listing:
    """The texts of a table's rows; which columns are used is noted.

    Args:
        name: the data set's name.
        called: what messages call the table.
        rows: its rows.
        options: the columns that the user names, and the classes.
    """
    cells = [(column, value) for row in rows for column, value in row.cells.items()]
    structured = {column for column, value in cells if isinstance(value, list | dict)}
    plain = (c for c, v in cells if not isinstance(v, list | dict) and not (v is None and c in structured))
    columns = list(dict.fromkeys(plain))
    listed = dict.fromkeys(column for column, value in cells if isinstance(value, list))
    lists = [column for column in listed if column not in columns]
    chosen = _choose(columns, lists, rows, options, called)
    names = numbered(len(rows))
    written = [row.cells.get(chosen.label) if chosen.label is not None else None for row in rows]

    def make(index: int) -> tuple[Sample, Any]:
        row = rows[index]
        sample = text_sample(names[index], text_of(row.cells, chosen.texts))
        sample = text_with(sample, _reference(row.cells))
        return (sample, written[index]) if row.problem is None else (_faulty(sample, row.problem), None)

    return Listing(
        name=name,
        modality=Modality.TEXT,
        names=names,
        make=make,
        labels=Labels.of(written, options.classes),
        notes=chosen.notes(columns, options.labels_count),
    )


def _reference(cells: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object's spans and parts; the cells of a table are plain texts."""
    return {kind: cells[kind] for kind in ("spans", "parts", "without") if isinstance(cells.get(kind), list | dict)}


def _faulty(sample: Sample, problem: str) -> Sample:
    return Sample(sample.name, sample.digest, sample.content, problem=problem)


@dataclass(frozen=True)
class _Columns:
    """The columns that hold texts and labels, and whether names said so or only the cells."""

    texts: tuple[str, ...]
    label: str | None
    guessed: bool = False

    def notes(self, columns: Sequence[str], labels_count: bool) -> tuple[str, ...]:
        if not self.texts:
            return ()
        labels = ", no labels" if self.label is None else f", labels are column {self.label!r}"
        used = (*self.texts, self.label) if labels_count else self.texts
        unused = [column for column in columns if column not in used]
        rest = f"; not used: {', '.join(unused)}" if unused else ""
        remedy = _OTHERS if self.guessed or (unused and self.label is None and labels_count) else ""
        bare = list(columns) == [str(i) for i in range(len(columns))]
        head = "the first row is no header but a sample; " if bare else ""
        texts = f"column {self.texts[0]!r}"
        if len(self.texts) == 2:
            texts = f"pairs of columns {self.texts[0]!r} and {self.texts[1]!r}"
        return (f"{head}texts are {texts}{labels if labels_count else ''}{rest}{remedy}",)


_OTHERS = " (--text-column and --label-column, in Python text_column= and label_column=, name others)"


def _choose(
    columns: Sequence[str], lists: Sequence[str], rows: Sequence[Row], options: SourceOptions, called: str
) -> _Columns:
    """The columns of texts and labels; labels that are lists of classes only where there are no others."""
    if options.label_column in lists:
        return replace(_plain(columns, rows, options, None, called), label=str(options.label_column))
    label = _usual(columns, LABEL_COLUMNS)
    if options.label_column is not None:
        label = _named_column(options.label_column, columns, "label_column", called)
    chosen = _plain(columns, rows, options, label, called)
    return chosen if chosen.label is not None else replace(chosen, label=_usual(lists, LABEL_COLUMNS))


def _plain(
    columns: Sequence[str], rows: Sequence[Row], options: SourceOptions, label: str | None, called: str
) -> _Columns:
    asked = asked_columns(options.text_column, columns)
    texts = tuple(_named_column(column, columns, "text_column", called) for column in asked) or usual_pair(columns)
    if not texts:
        text = _usual(columns, TEXT_COLUMNS)
        if text is None:
            return _guess(columns, rows, label, called)
        texts = (text,)
    if label in texts:
        raise HeatcheckError(f"{called}: column {label!r} cannot hold both the texts and the labels")
    if len(set(texts)) != len(texts):
        raise HeatcheckError(f"text_column={options.text_column!r}: both are column {texts[0]!r} of {called}")
    return _Columns(texts, label)


def _usual(columns: Sequence[str], usual: Iterable[str]) -> str | None:
    """The first column with a usual name."""
    by_name = {column.lower(): column for column in reversed(columns)}
    return next((by_name[name] for name in usual if name in by_name), None)


def _named_column(asked: str | int, columns: Sequence[str], option: str, called: str) -> str:
    """The column a user asked for, by name or position."""
    if asked in columns:
        return str(asked)
    position = as_index(asked)
    if position is not None and -len(columns) <= position < len(columns):
        return columns[position]
    near = suggest(str(asked), columns)
    hint = near if "did you mean" in near else ""
    raise HeatcheckError(f"{option}={asked!r}: {called} has no such column; it has {', '.join(columns)}{hint}")


def _guess(columns: Sequence[str], rows: Sequence[Row], label: str | None, called: str) -> _Columns:
    """The text and label column where names say nothing; of two, the one with numbers or fewer values is the label.

    A column that numbers the rows is neither.
    """
    left = [column for column in columns if column != label and not (len(columns) > 1 and _numbers_rows(column, rows))]
    if len(left) <= 1:
        return _Columns(tuple(left), label, guessed=len(columns) > 1)
    if len(left) == 2 and label is None:
        numeric = [column for column in left if _holds_numbers(column, rows)]
        counts = {column: len({str(row.cells.get(column)) for row in rows}) for column in left}
        if len(numeric) == 1 or min(counts.values()) < len(rows) or len(rows) <= _FEW:
            label = numeric[0] if len(numeric) == 1 else min(left, key=counts.__getitem__)
            return _Columns(tuple(column for column in left if column != label), label, guessed=True)
    raise HeatcheckError(
        f"{called}: which column holds the texts? Say --text-column (in Python text_column=), one of "
        f"{', '.join(columns)}; and --label-column, if there are labels"
    )


def _numbers_rows(column: str, rows: Sequence[Row]) -> bool:
    """Whether it has another integer in every row, of more rows than a table with a row per class would have."""
    numbers = {as_index(row.cells.get(column)) for row in rows}
    return len(rows) > _FEW and None not in numbers and len(numbers) == len(rows)


def _holds_numbers(column: str, rows: Sequence[Row]) -> bool:
    cells = [row.cells.get(column) for row in rows]
    present = [cell for cell in cells if not is_missing(cell)]
    return sum(as_number(cell) is not None for cell in present) * 2 > len(present)
