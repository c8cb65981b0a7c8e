"""What the pages name exists: files, links, commands with their options, make targets, and the Python they show."""

import ast
import importlib
import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import heatcheck as hc
from heatcheck.api.study import Study
from heatcheck.cli import app
from heatcheck.core import catalogue

ROOT = Path(__file__).parents[1]
SOURCE = Path(hc.__file__).parent
NAMES = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"]
NAMES += sorted(
    path.relative_to(ROOT).as_posix() for folder in ("docs", "design") for path in (ROOT / folder).glob("*.md")
)
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in NAMES}
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
USERS_FILES = {"mine.py", "my_squares.py", "studies/*.json"}
"""Files that a page asks its reader to write, and those of a run."""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prose(page: str) -> str:
    return FENCE.sub("", page)


def blocks(page: str, language: str) -> list[str]:
    return [code for kind, code in FENCE.findall(page) if kind == language]


def inline(page: str) -> list[str]:
    """What stands in backticks, on one line each."""
    return [" ".join(code.split()) for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose(page))]


def commands(page: str) -> Iterator[list[str]]:
    """Every command line on the page, without comments and without what it is piped into."""
    shown = [line for code in blocks(page, "") for line in code.splitlines()]
    shown += [line[4:] for line in prose(page).splitlines() if line.startswith("    ")]
    for line in [*shown, *inline(page)]:
        if re.match(r"(heatcheck|make|python) ", line):
            yield shlex.split(re.split(r" \| |…", line)[0], comments=True)


def every(found: str) -> Iterator[tuple[str, list[str]]]:
    for name, page in PAGES.items():
        for line in commands(page):
            if line[0] == found:
                yield name, line


# -- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", prose(PAGES[name]))
    own = [link.partition("#")[0] for link in links if "://" not in link]
    assert [link for link in own if not ((ROOT / name).parent / link).exists()] == []


@pytest.mark.parametrize("name", NAMES)
def test_files_that_are_named_exist(name: str) -> None:
    folders = {path.name for base in (ROOT, SOURCE) for path in base.iterdir() if path.is_dir()}
    missing = []
    for word in inline(PAGES[name]):
        if not re.fullmatch(r"[\w./*-]+", word) or word in USERS_FILES:
            continue
        if "/" in word and word.split("/")[0] in folders:
            places = [ROOT, SOURCE]
        elif "/" not in word and word.endswith((".py", ".md")):
            places, word = [SOURCE, ROOT / "benchmarks", ROOT / "docs", ROOT / "design"], f"**/{word}"
        else:
            continue
        if not any(next(place.glob(word.rstrip("/")), None) for place in places):
            missing.append(word)
    assert missing == []


def test_every_page_is_linked_from_another() -> None:
    linked = {
        ((ROOT / name).parent / link).resolve()
        for name, page in PAGES.items()
        for link in re.findall(r"\]\(([^)#\s]+\.md)[)#]", page)
    }
    assert [name for name in NAMES if name.startswith("design/") and (ROOT / name).resolve() not in linked] == [
        "design/README.md"
    ]


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_a_table_are_as_wide_as_its_head(name: str) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", prose(PAGES[name]), re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1, table.splitlines()[0]


# -- commands ---------------------------------------------------------------------------------------------------


def test_commands_of_heatcheck_parse() -> None:
    group = typer.main.get_command(app)
    seen = 0
    for name, (_, command, *arguments) in every("heatcheck"):
        if command.startswith("-"):
            continue
        assert command in group.commands, f"{name}: heatcheck {command}"
        seen += 1
        if arguments:
            try:
                group.commands[command].make_context(command, list(arguments))
            except Exception as problem:
                pytest.fail(f"{name}: heatcheck {command} {' '.join(arguments)}: {problem}")
    assert seen > 30


def test_a_wrong_option_would_be_noticed() -> None:
    page = "```\nheatcheck run --sampels 3  # a comment\n```\nand `heatcheck list\nmethods | head` and `make  all`"
    assert list(commands(page)) == [
        ["heatcheck", "run", "--sampels", "3"],
        ["heatcheck", "list", "methods"],
        ["make", "all"],
    ]
    with pytest.raises(Exception, match="sampels"):
        typer.main.get_command(app).commands["run"].make_context("run", ["--sampels", "3"])


def test_make_targets_exist() -> None:
    named = {target for _, line in every("make") for target in line[1:]}
    assert len(named) > 5
    assert named - TARGETS == set()


def test_scripts_know_their_options() -> None:
    for name, (_, script, *arguments) in every("python"):
        if script == "-m":
            assert importlib.util.find_spec(arguments[0]), f"{name}: python -m {arguments[0]}"
            continue
        text = (ROOT / script).read_text(encoding="utf-8")
        unknown = [a for a in arguments if a.startswith("--") and f'"{a}"' not in text]
        assert unknown == [], f"{name}: {script}"


# -- Python and TOML --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_python_compiles_and_its_imports_resolve(name: str) -> None:
    for code in blocks(PAGES[name], "python"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(str(node.module))
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
            elif isinstance(node, ast.Import):
                assert [alias.name for alias in node.names if importlib.util.find_spec(alias.name) is None] == []
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "hc":
                assert hasattr(hc, node.attr), node.attr


@pytest.mark.parametrize("name", NAMES)
def test_dotted_names_resolve(name: str) -> None:
    for dotted in set(re.findall(r"\bheatcheck(?:\.\w+)+", PAGES[name])):
        parts, found = dotted.split("."), hc
        for i, part in enumerate(parts[1:], 2):
            if not hasattr(found, part):
                importlib.import_module(".".join(parts[:i]))
            found = getattr(found, part)
    assert [attribute for attribute in re.findall(r"\bhc\.(\w+)", PAGES[name]) if not hasattr(hc, attribute)] == []


def test_studies_and_profiles_are_written_in_known_words() -> None:
    (study,) = blocks(PAGES["README.md"], "toml")
    assert tomllib.loads(study).keys() <= Study.model_fields.keys()


def test_the_readme_counts_right() -> None:
    page = PAGES["README.md"]
    methods = catalogue._shipped("method").values()
    controls = sum(entry.facts["control"] for entry in methods)
    assert f"{len(methods) - controls} methods and {controls}\ncontrols" in page
    assert f"\n{len(catalogue._shipped('metric'))} metrics, " in page
    assert f"in {len(catalogue._shipped('fill'))} ways" in page
