"""A trial or a few of every fault of the campaign; `make faults` makes them in full number."""

import json
import random

import pytest

from . import damage, kills
from .campaign import BEGIN, END, PAGE, ROWS, SEEN, Row, Tally, markdown
from .harness import Lab

pytestmark = pytest.mark.filterwarnings("ignore::heatcheck.run.store.StoreWarning")
FAST = [row for row in ROWS if row.fast]
SLOW = [row for row in ROWS if not row.fast and row.number != "26"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory):
    with Lab(tmp_path_factory.mktemp("lab"), pictures=12) as made:
        yield made


@pytest.mark.parametrize("row", FAST, ids=lambda row: row.name)
def test_a_fault_is_survived(lab: Lab, row: Row) -> None:
    tally = row.run(lab, row.fast, seed=1)
    assert tally.failures == []
    assert tally.tried or row.name == "full_disks"


@pytest.mark.slow
@pytest.mark.parametrize("row", SLOW, ids=lambda row: row.name)
def test_a_fault_of_processes_is_survived(lab: Lab, row: Row) -> None:
    assert row.run(lab, 1, seed=1).failures == []


@pytest.mark.slow
def test_a_long_run_is_killed_and_resumed(lab: Lab) -> None:
    assert list(kills.soak(lab, 4, random.Random(0), pictures=100)) == [None] * 6


def test_the_laboratory_sees_a_wrong_score(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the laboratory compares with is compared in earnest."""
    out = lab.fresh(lab.reference)
    assert lab.problems(out) is None
    chunk = next((out / "chunks").iterdir())
    chunk.unlink()
    assert "other scores" in str(lab.problems(out))
    assert lab.resumed(out) is None
    (out / ".tmp-1-00").write_text("half")
    assert "left behind" in str(lab.problems(out))


def test_the_laboratory_sees_a_store_that_checks_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    out = lab.fresh(lab.reference)
    monkeypatch.setattr(damage, "bits_of", lambda lab: [])
    assert "wrong scores" in str(damage.damaged(lab, out, "chunks/none"))


def test_the_published_table_is_the_one_that_was_seen() -> None:
    table = markdown([Tally(**row) for row in json.loads(SEEN.read_text())])
    assert PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0].strip() == table
