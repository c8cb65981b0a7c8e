"""What `print(result.leaderboard())` shows."""

import math

import polars as pl
import pytest

from heatcheck import stats
from heatcheck.core.spec import SpecError
from heatcheck.report.board import Leaderboard
from heatcheck.report.notes import notes
from heatcheck.stats.leaderboard import LEADERBOARD

from .test_terminal import small


def board(fake, **options):
    return small(fake, **options).leaderboard()


def test_it_shows_what_readers_want_and_fits(fake):
    made = board(fake)
    text = str(made)
    assert text == repr(made) and max(map(len, text.splitlines())) <= 80
    for words in ("method", "mean ± interval", "rank", "ties", "against random", "seconds", "mean rank"):
        assert words in text
    for row in made.full.filter("ranked").iter_rows(named=True):
        assert row["method"][:30] in text
    assert "control" in text and "higher is better" in text


def test_methods_that_are_not_told_apart_share_a_letter(fake):
    made = board(fake)
    metric = made.full["metric"][0]
    block = next(part for part in str(made).split("\n\n") if f"· {metric}," in part)
    column = block.splitlines()[1].index("ties")
    shown = [line[column:].split(" ")[0] for line in block.splitlines()[3:]]
    assert shown == [letters or "" for letters in made.full.filter(pl.col("metric") == metric)["group"]]
    assert "a" in shown


def test_all_columns_are_in_full(fake):
    full = board(fake).full
    assert isinstance(full, pl.DataFrame) and full.columns == list(LEADERBOARD)


def test_every_row_is_there_in_order(fake):
    made = board(fake)
    metric = made.full["metric"][0]
    block = next(part for part in str(made).split("\n\n") if f"· {metric}," in part)
    names = [line.split()[0].rstrip("…") for line in block.splitlines()[3:]]
    methods = made.full.filter(pl.col("metric") == metric)["method"].to_list()
    assert [method.startswith(name) for method, name in zip(methods, names, strict=True)] == [True] * len(methods)


def test_a_rank_set_stands_beside_its_rank_unless_it_is_one_rank():
    facts = stats.Facts({"sds": True})
    row = dict.fromkeys(LEADERBOARD)
    row |= {"model": "net", "data": "pics", "metric": "sds", "control": False, "circular": False, "ranked": True}
    row |= {"mean": 0.5, "low": 0.4, "high": 0.6, "heavy_tail": True, "n_ok": 30, "n": 30, "beats_random": True}
    rows = [row | {"method": "a", "rank": 1.0, "rank_low": 1.0, "rank_high": 3.0, "seconds": 0.25}]
    rows += [row | {"method": "b", "rank": 2.0, "rank_low": 2.0, "rank_high": 2.0, "beats_random": False}]
    rows += [
        row
        | {
            "method": "c",
            "rank": 3.0,
            "rank_low": 3.0,
            "rank_high": 3.0,
            "beats_random": False,
            "loses_to_random": True,
        }
    ]
    made = Leaderboard(pl.DataFrame(rows, schema=LEADERBOARD), facts)
    lines = str(made).splitlines()
    assert lines[3].split() == ["a", "0.500", "±0.100!", "1", "(1–3)", "better", "0.25"]
    assert lines[4].split() == ["b", "0.500", "±0.100!", "2", "not", "better", "–"]
    assert lines[5].split()[-2:] == ["worse", "–"]
    assert "! heavy tail" in str(made)


def test_names_are_text_in_a_notebook(fake):
    made = board(fake)
    evil = made.full.with_columns(method=pl.lit("<script>x</script>"))
    page = Leaderboard(evil, made.facts)._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page and "<table>" in page


def test_an_empty_board_says_so():
    empty = stats.leaderboard(pl.DataFrame(schema=dict.fromkeys(stats.table.COLUMNS, pl.String)), stats.Facts({}))
    assert str(Leaderboard(empty, stats.Facts({}))) == "No scores yet."


@pytest.mark.parametrize("paper", [False, True])
def test_a_metric_outside_the_mean_rank_says_why(fake, paper):
    run = small(fake)
    run.facts["paper"] = paper
    scores = run._scores
    worse = pl.when(pl.col("method") == "random").then(99.0).otherwise("score")
    higher = next(m["name"] for m in run.facts["metrics"] if m["better"] == "higher")
    run._scores = scores.with_columns(score=pl.when(pl.col("metric") == higher).then(worse).otherwise("score"))
    text = " ".join(str(run.leaderboard()).split())
    assert ("random has the best mean of all" in text) == (not paper)


@pytest.mark.parametrize("n", [3, 12])
def test_below_the_table_stands_what_the_terminal_says(fake, n):
    run = small(fake, n=n)
    text = " ".join(str(run.leaderboard()).split())
    for note in notes(run.leaderboard().full, stats.Facts.of(run.facts)):
        assert note.text in text
    assert ("With 3 samples, no method can be significantly better than random; use more." in text) == (n == 3)
    assert "lime not ranked under morf, sds: coverage" in text and "failed: RuntimeError: the solver did not" in text


def test_a_note_names_its_model_unless_it_concerns_all(fake):
    run = small(fake, models=("one", "two"), spoil=False)
    gone = (pl.col("method") == "bad") & (pl.col("model") == "two")
    everywhere = pl.col("method") == "lime"
    status = pl.when(gone).then(pl.lit("failed: x")).when(everywhere).then(pl.lit("failed: y")).otherwise("status")
    run._scores = run.scores().with_columns(score=pl.when(~gone & ~everywhere).then("score"), status=status)
    lines = str(run.leaderboard()).splitlines()
    assert "two: bad not ranked under morf, sds: failed: x" in lines
    assert lines.count("lime not ranked under morf, sds: failed: y") == 1


def test_many_reasons_are_counted(fake):
    made = board(fake, methods={f"m{i}": (0.5, 4, 1, 1) for i in range(12)}, metrics=("sds",), spoil=False)
    reason = pl.format("failed: {}", "method")
    full = made.full.with_columns(
        ranked=pl.lit(False), reason=reason, beats_random=pl.lit(None, pl.Boolean), heavy_tail=True
    )
    lines = str(Leaderboard(full, made.facts)).splitlines()
    assert sum("not ranked under" in line for line in lines) == 8
    assert "… and 4 more; result.leaderboard().full has all reasons" in lines
    assert any(line.startswith("! heavy tail") for line in lines)


def test_an_interval_that_reaches_the_end_of_the_range_shows_its_ends(fake):
    made = board(fake, metrics=("sds",), spoil=False)
    full = made.full.with_columns(mean=pl.lit(0.5), low=pl.lit(0.2), high=pl.lit(1.0))
    assert "0.500 [0.200, 1.000]" in str(Leaderboard(full, made.facts))
    assert "0.500 ±0.400" in str(Leaderboard(full, stats.Facts({"sds": True})))


def test_the_table_of_means_has_a_column_per_metric_with_the_best_bold(fake):
    made = board(fake)
    table = made.table("means")
    for entry in made.full.iter_rows(named=True):
        i = table.frame["method"].to_list().index(entry["method"])
        assert table.frame[entry["metric"]][i] == entry["mean"]
        cell = (i, entry["metric"])
        assert (cell in table.best) == (entry["rank"] == 1)
        assert (cell in table.tied) == (entry["ranked"] and entry["rank_low"] == 1 and entry["rank"] > 1)
        assert cell not in table.shown or table.shown[cell].startswith("(") == (not entry["ranked"])
    controls = made.full.filter("control")["method"].unique().to_list()
    assert set(table.frame["method"][-len(controls) :]) == set(controls)
    text = table.markdown().decode()
    assert text.splitlines()[0] == "| method | morf ↓ | sds ↑ |"
    assert f"{made.full['model'][0]} on {made.full['data'][0]}" in text.replace("\\", "")
    assert text.count("**") == 2 * len(table.best) > 0 and "±" in text and "not ranked" in text


def test_models_are_in_the_table_where_there_are_several(fake):
    table = board(fake, models=("one", "two")).table("means")
    assert table.columns[:2] == ["model", "method"]
    assert {i for i, _ in table.best} & set(range(table.frame.height // 2, table.frame.height)), (
        "each model has its best"
    )


@pytest.mark.parametrize("ending", ["csv", "parquet", "md", "tex"])
@pytest.mark.parametrize("name", ["means", "leaderboard"])
def test_tables_are_written_as_the_ending_says(fake, tmp_path, name, ending):
    made = board(fake)
    file = made.save(tmp_path / f"a.{ending}", name)
    if ending in ("csv", "parquet"):
        found = pl.read_csv(file) if ending == "csv" else pl.read_parquet(file)
        assert found.columns == made.table(name).frame.columns and found.height == made.table(name).frame.height
    if name == "leaderboard" and ending == "parquet":
        beaten = [None if row is None else "; ".join(row) for row in made.full["beaten_by"].to_list()]
        assert found["beaten_by"].to_list() == beaten and any(beaten)
    if ending in ("md", "tex"):
        assert "beaten" not in file.read_text() and "grad" in file.read_text()


def test_a_leaderboard_says_how_many_samples_a_difference_needs(fake):
    made = board(fake, models=("one", "two"), spoil=False)
    rows = stats.detectable_on(made.full).filter(pl.col("metric") == "sds").rows(named=True)
    each = [stats.samples_needed(0.05, r["spread"], tests=math.comb(r["methods"], 2)) for r in rows]
    assert len(each) == 2 and made.samples_needed("sds", 0.05) == max(each) > min(each)
    assert made.samples_needed("sds", max(r["difference"] for r in rows)) <= rows[0]["samples"] + 1
    with pytest.raises(
        SpecError, match="'pixels' does not rank two methods on two samples here; those that do: morf, sds"
    ):
        made.samples_needed("pixels", 0.05)
    with pytest.raises(SpecError, match="a difference of 0 cannot be looked for"):
        made.samples_needed("sds", 0)


def test_a_note_tells_what_samples_can_find_and_how_far_the_best_is_ahead(fake):
    made = board(fake, metrics=("sds",), spoil=False)
    texts = [note.text for note in notes(made.full, made.facts)]
    (row,) = stats.detectable_on(made.full).rows(named=True)
    pairs = math.comb(row["methods"], 2)
    price = float(f"{stats.samples_needed(row['difference'] / 4, row['spread'], tests=pairs):.2g}")
    apart = f"means that differ by {row['difference']:.2g} (sds); a quarter of that would need about {price:.0f}"
    assert f"{row['samples']} samples tell apart {apart}" in texts
    best, other = made.full.filter("ranked").rows(named=True)[:2]
    size = stats.against_others(small(fake, metrics=("sds",), spoil=False).scores(), made.facts, best["method"])
    size = size.row(by_predicate=pl.col("method") == other["method"], named=True)
    won = f"{best['method']} before {other['method']}, better on {100 * size['share']:.0f} % of the samples"
    assert f"best and next: {won}, effect {size['effect']:.2f} (sds)" in texts


def test_the_long_table_has_the_effect_against_random(fake):
    text = board(fake).table("leaderboard").markdown().decode()
    assert "| effect against random | better than random |" in text.splitlines()[0]
    assert "Effect: mean difference, in standard deviations of the differences." in text


def test_other_endings_and_tables_are_refused(fake, tmp_path):
    with pytest.raises(SpecError, match=r"'a\.xlsx': a table is written as \.csv, \.parquet, \.md, \.tex"):
        board(fake).save("a.xlsx")
    with pytest.raises(SpecError, match="no table 'scores'; choose means or leaderboard"):
        board(fake).save(tmp_path / "a.csv", "scores")
