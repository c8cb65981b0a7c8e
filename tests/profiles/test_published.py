"""What papers printed, as the package has it: every file has a source, and known cells are where they belong."""

import csv
import os
from pathlib import Path

import pytest

from heatcheck.core.papers import PAPERS
from heatcheck.core.spec import SpecError
from heatcheck.profiles.published import FOLDER, PAPERS_BY_PROFILE, paper_key, published_scores, published_tables

MUTANTS = (
    (
        "profiles/published/__init__.py",
        'in (None, "", "0")',
        'in (None, "")',
        "test_doubtful_cells_are_marked_and_others_are_not",
    ),
    ("profiles/published/__init__.py", '{"B-cos": "B-cos ResNet-50", ', "{", "test_known_cells_are_where_they_belong"),
)


def test_every_file_has_a_source_and_every_source_a_file():
    tables = published_tables()
    assert {table.name for table in tables} == {path.stem for path in FOLDER.glob("*.csv")}
    assert all(table.rows and table.about and table.where and table.paper in PAPERS for table in tables)
    assert sorted(PAPERS_BY_PROFILE.values()) == sorted({PAPERS_BY_PROFILE[name] for name in PAPERS_BY_PROFILE})
    assert "NeurIPS 2024, Table 4" in published_tables("idsds")[1].source


def test_known_cells_are_where_they_belong():
    idsds = {(r["method"], r["metric"]): r for r in published_scores("idsds")}
    assert len(idsds) == 21 + 3 * 19
    assert idsds["IG-U", "idsds"]["value"] == 0.255
    assert idsds["BagNet-33", "idsds"]["model"] == "BagNet-33"
    assert idsds["B-cos", "idsds"]["model"] == "B-cos ResNet-50"
    assert idsds["IG", "part_deletion"] == {
        "table": "Table 7",
        "model": "ResNet-50",
        "method": "IG",
        "metric": "part_deletion",
        "value": 0.587,
        "doubt": "",
    }
    m4 = {(r["model"], r["method"], r["metric"]): r for r in published_scores("m4")}
    assert len(m4) == 35 * 5
    assert m4["VGG16", "GradCAM", "infidelity"]["value"] == 208.3502
    assert published_scores("metarank") == published_scores("perturbation") == []


def test_doubtful_cells_are_marked_and_others_are_not():
    m4 = published_scores("m4")
    doubted = {(r["model"], r["method"]) for r in m4 if r["doubt"]}
    assert ("VGG16", "GradCAM") in doubted
    assert len(doubted) == 6
    assert not any(r["doubt"] for r in published_scores("idsds"))
    times = next(table for table in published_tables("m4") if table.where == "Table 2")
    assert sum(row["doubtful"] == "1" for row in times.rows) == 6


def test_an_unknown_paper_is_named_and_the_known_ones_are():
    with pytest.raises(SpecError, match="'idsd' to compare with; did you mean idsds"):
        paper_key("idsd")


WIDE = {
    "IDSDS": "idsds_table4_idsds",
    "IDS": "idsds_table5_ids",
    "SDS": "idsds_table6_sds",
    "FunnyBirds": "idsds_table7_funnybirds",
}


def test_the_wide_table_has_the_same_numbers_and_no_others(shared):
    """`idsds_tables4to7_wide.csv` is left out of the package: Tables 4 to 7 side by side, and empty cells."""
    with (shared / "spec" / "published" / "idsds_tables4to7_wide.csv").open(encoding="utf-8", newline="") as file:
        wide = list(csv.DictReader(file))
    assert wide[0].keys() == {"method", *WIDE}
    tables = {table.name: table for table in published_tables("idsds")}
    for column, name in WIDE.items():
        long = {row["method"]: row[column] for row in tables[name].rows}
        assert {row["method"]: row[column] for row in wide if row[column]} == long
    assert len(wide) == 21 and "idsds_tables4to7_wide" not in tables


@pytest.mark.skipif("HEATCHECK_SHARED" not in os.environ, reason="the collected tables are not here")
def test_the_package_has_the_collected_tables_unchanged():
    source = Path(os.environ["HEATCHECK_SHARED"]) / "spec" / "published"
    for table in published_tables():
        with (source / f"{table.name}.csv").open(encoding="utf-8", newline="") as file:
            assert tuple(csv.DictReader(file)) == table.rows
