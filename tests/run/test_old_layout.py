"""A run folder of the earlier layout opens, is resumed and reported with the same numbers."""

import shutil
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import heatcheck as hc

from .old_layout import METHODS, METRICS, inputs, network

FIXTURES = Path(__file__).parents[1] / "fixtures"
CELL = [pl.col("sample").cast(pl.String), "target", pl.col("method", "metric").cast(pl.String), "score", "status"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(FIXTURES / "old_layout", tmp_path / "old_layout")


def stored(name: str) -> pl.DataFrame:
    return pl.read_json(FIXTURES / f"old_layout.{name}.json", infer_schema_length=None)


def bench() -> hc.Benchmark:
    return hc.Benchmark(models={"toy": network()}, data=inputs(), methods=METHODS, metrics=METRICS)


def test_its_scores_are_read_bit_for_bit(folder):
    result = hc.Result.open(folder)
    assert_frame_equal(result.scores().select(CELL), stored("scores").select(CELL), check_exact=True)


def test_its_leaderboard_is_the_same(folder):
    board, before = hc.Result.open(folder).leaderboard().full, stored("board")
    inferred = {"low", "high", "rank_low", "rank_high", "random_p"}  # intervals and tests have been improved since
    same = [c for c in before.columns if c != "seconds" and c not in inferred]
    assert_frame_equal(board.select(same), before.select(same), check_dtypes=False)


def test_it_is_resumed_without_a_pass(folder):
    chunks = sorted((folder / "chunks").iterdir())
    result = bench().run(folder, batch=4, progress="none")
    assert sorted((folder / "chunks").iterdir()) == chunks
    assert (
        result.manifest["passes"]["forwards"] == hc.Result.open(FIXTURES / "old_layout").manifest["passes"]["forwards"]
    )
    assert_frame_equal(result.scores().select(CELL), stored("scores").select(CELL), check_exact=True)


def test_another_metric_reuses_its_maps_and_answers(folder):
    before = hc.Result.open(folder).manifest["passes"]
    more = hc.Benchmark(models={"toy": network()}, data=inputs(), methods=METHODS, metrics=[*METRICS, "complexity"])
    after = more.run(folder, batch=4, progress="none")
    assert after.manifest["passes"]["forwards"] == before["forwards"]
    assert after.scores().filter(pl.col("metric") == "complexity")["status"].unique().to_list() == ["ok"]


def test_computed_anew_it_has_the_same_scores(tmp_path):
    """On another processor the last bits of a convolution differ; small differences of outputs feel them most."""
    fresh = bench().run(tmp_path / "new", batch=4, progress="none").scores()
    kind = pl.col("status").str.extract(r"^(\w+)")  # reasons may be worded better
    fresh, before = (table.select(CELL).with_columns(status=kind) for table in (fresh, stored("scores")))
    assert_frame_equal(fresh, before, rel_tol=1e-4, abs_tol=1e-7)


def test_it_is_reported_with_its_pictures(folder, tmp_path):
    result = hc.Result.open(folder)
    assert len(result.gallery()) == 5
    page = result.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "integrated_gradients(steps=4)" in page and "data:image/webp" in page
