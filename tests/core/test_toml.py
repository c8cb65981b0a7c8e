"""Places in TOML files, against what tomllib reads."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.core.toml import Keys, TomlError, read

WILD = """# a comment = [1]
title = "a ] b # \\" c" # = x
"quoted key".'and.other' = 1
many = [ "x", # one
  '''multi
line ] ''', {id = "rise", samples = 3, of = {id="lime"}}, [1, [2]],
]
text = \"\"\"
fake = 1
[fake]\"\"\"\"\"
when = 1979-05-27 07:32:00

[ runtime ]
workers = 2
deep.er.key = 1
[runtime.more]
a = -1.5e3
[[row]]
a = 1
[row.sub]
z = true
[[ row ]]
a = 2
[[row.inner]]
b = 3
"""


def paths(value: Any, at: Keys = ()) -> set[Keys]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = {at} if at else set()
    for key, inner in items:
        found |= paths(inner, (*at, key))
    return found


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_key_and_item_has_a_place_and_nothing_else_has(tmp_path: Path) -> None:
    document = read(write(tmp_path, WILD))
    assert set(document.offsets) == paths(document.values) | {("row",)}


@pytest.mark.parametrize(
    ("keys", "line", "column"),
    [
        (("title",), 2, 1),
        (("quoted key", "and.other"), 3, 1),
        (("many", 0), 4, 10),
        (("many", 1), 5, 3),
        (("many", 2, "samples"), 6, 27),
        (("many", 3, 1, 0), 6, 64),
        (("runtime",), 13, 1),
        (("runtime", "workers"), 14, 1),
        (("runtime", "more", "a"), 17, 1),
        (("row", 1, "inner", 0, "b"), 25, 1),
    ],
)
def test_a_place_is_line_and_column_of_the_key(tmp_path: Path, keys: Keys, line: int, column: int) -> None:
    path = write(tmp_path, WILD)
    assert read(path).at(keys) == f"{path}:{line}:{column}: "


def test_what_is_not_written_is_placed_at_what_holds_it(tmp_path: Path) -> None:
    path = write(tmp_path, WILD)
    assert read(path).at(("runtime", "absent", 3)) == f"{path}:13:1: "
    assert read(path).at(("absent",)) == f"{path}: "


words = st.text(st.characters(codec="utf-8", exclude_characters="\x7f", min_codepoint=32), max_size=6)
values = st.recursive(
    st.integers(-99, 99) | st.booleans() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


def dump(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{dump(k)} = {dump(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", # ] comment\n".join(map(dump, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@settings(max_examples=60, deadline=None)
@given(document=st.dictionaries(words, values, max_size=4))
def test_generated_documents(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    text = "\n".join(f"{dump(key)} = {dump(value)}" for key, value in document.items())
    got = read(write(tmp_path_factory.mktemp("toml"), text))
    assert got.values == document
    assert set(got.offsets) == paths(document)


def test_lines_that_end_as_on_windows_count_once(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_bytes(b"a = 1\r\nb = 2\r\n")
    assert read(path).at(("b",)) == f"{path}:2:1: "


@pytest.mark.parametrize(
    ("text", "place"), [("a = 1\nb = = 2\n", ":2:5: "), ("a = [1,\n", ":2:1: "), ("a = 1\na = 2\n", ":2:6: ")]
)
def test_what_is_not_toml_is_placed_too(tmp_path: Path, text: str, place: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(TomlError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}{place}")


def test_no_file_and_no_text(tmp_path: Path) -> None:
    with pytest.raises(TomlError, match="No such file"):
        read(tmp_path / "none.toml")
    (tmp_path / "study.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(TomlError, match="not a UTF-8"):
        read(tmp_path / "study.toml")
