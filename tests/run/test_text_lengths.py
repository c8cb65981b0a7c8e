"""Runs over texts of many lengths: texts of one length are computed together, and nothing else depends on it."""

import json

import pytest
from tests.models.conftest import bert_folder

import heatcheck as hc
from heatcheck.core.progress import Silent
from heatcheck.core.types import Sample
from heatcheck.models.lengths import Rounding
from heatcheck.models.text import TextModel
from heatcheck.probe.calls import Calls
from heatcheck.run import plan as planner
from heatcheck.run.execution import chunks_of
from heatcheck.run.expected import Effort, Gauge

from .conftest import bits

__all__ = ["bert_folder"]

MUTANTS = (
    (
        "run/setup.py",
        'model.round_by(begun.get("rounding"))',
        "model.round_by(None)",
        "test_a_run_goes_on_with_the_rounding_that_it_was_begun_with",
    ),
    (
        "run/execution.py",
        "key=sizes.__getitem__",
        "key=lambda i: i",
        "test_samples_of_one_size_share_chunks_and_the_first_come_first",
    ),
    (
        "domain/text.py",
        '(0, x["ids"].shape[1] - values.shape[1])',
        "(0, 0)",
        "test_runs_with_other_roundings_are_merged_and_go_on",
    ),
    (
        "run/manifest.py",
        '"notes": part.remarks',
        '"notes": list(grid.model.notes)',
        "test_what_is_cut_off_is_in_the_terminal_the_record_and_the_report",
    ),
    (
        "run/expected.py",
        "groupby(sorted(samples, key=size), size)",
        "[(0, samples)]",
        "test_every_length_has_its_own_forecast_and_progress_is_a_share_of_the_time",
    ),
    (
        "run/expected.py",
        "LOOK if size else 1",
        "1",
        "test_short_texts_of_one_size_take_different_numbers_of_passes",
    ),
    (
        "run/task.py",
        "session.watch.tick(n * sites)",
        "session.watch.tick(n * 16)",
        "test_every_length_has_its_own_forecast_and_progress_is_a_share_of_the_time",
    ),
    (
        "run/plan.py",
        "scale * own / most_sites",
        "scale",
        "test_a_plan_takes_less_time_for_shorter_texts",
    ),
)
WORDS = ("good", "bad", "film", "the", "was", "a", "plot", "it", "is")
TEXTS = [" ".join(WORDS[(i * k) % 9] for k in range(1, 1 + (3, 20, 7, 3, 21, 9, 8, 2)[i % 8])) for i in range(11)]
METHODS = ["saliency", "occlusion", "lime(samples=8)", "smoothgrad(samples=3)"]
METRICS = ["sds", "morf(steps=4)", "infidelity(samples=8)"]


def bench(folder, texts=TEXTS, metrics=METRICS):
    return hc.Benchmark(models={"bert": f"hf:{folder}"}, data=list(texts), methods=METHODS, metrics=metrics)


def run(folder, out, texts=TEXTS, metrics=METRICS, **options):
    return bench(folder, texts, metrics).run(out, batch=4, progress="none", **options)


def by_text(result, texts):
    """Every score by the sample's text; lists name samples by their places."""
    rows = result.scores().select("sample", "method", "metric", "score", "status").rows()
    shown = dict(zip(sorted({row[0] for row in rows}), texts, strict=True))
    return {(shown[sample], method, metric): rest for sample, method, metric, *rest in rows}


def sized(sizes):
    return [Sample(str(i), str(i), size) for i, size in enumerate(sizes)]


def test_samples_of_one_size_share_chunks_and_the_first_come_first():
    samples = sized([9, 5] * 8 + [7])
    chunks = list(chunks_of(samples, 1, lambda sample: sample.content))
    assert [[s.content for s in chunk] for chunk in chunks] == [[9, 9, 5, 5, 5, 7], [5] * 5, [9] * 6]


@pytest.mark.parametrize("workers", [1, 3])
def test_every_sample_is_in_one_chunk_of_at_most_eight(workers):
    samples = sized([(7 * i) % 5 for i in range(21)])
    chunks = list(chunks_of(samples, workers, lambda sample: sample.content))
    assert sorted(int(s.name) for chunk in chunks for s in chunk) == list(range(21))
    assert all(len(chunk) <= 8 for chunk in chunks) and len(chunks) == 3
    assert [chunk[0].name for chunk in chunks] == sorted(
        (min(c, key=lambda s: int(s.name)).name for c in chunks), key=int
    )
    assert list(chunks_of([], workers, lambda sample: 0)) == []
    plain = list(chunks_of(samples, workers))
    assert [s for chunk in plain for s in chunk] == samples, "where all have one size, the data's order is kept"


class Watched(Silent):
    """Keeps how many passes were announced, and after each call which share of them was told."""

    def __init__(self):
        self.announced, self.told, self.shares = 0, 0, []

    def begin(self, what, passes, done=0):
        self.announced = passes

    def advance(self, passes):
        self.told += passes
        self.shares.append(self.told / self.announced)


def test_every_length_has_its_own_forecast_and_progress_is_a_share_of_the_time(bert_folder, tmp_path, monkeypatch):
    """One long text among short ones, in their chunk: nearly all passes are the long one's, and each takes longer."""
    tokens, timed = [], Calls._timed

    def counted(self, run, x, *rest):
        tokens.append(x["ids"].numel())
        return timed(self, run, x, *rest)

    texts = [*TEXTS[:3], "good film " * 30, *TEXTS[5:8]]
    found = hc.Benchmark(
        models={"bert": f"hf:{bert_folder}"}, data=texts, methods=["occlusion", "lime(samples=8)"], metrics=["sds"]
    )
    shown = Watched()
    monkeypatch.setattr(Calls, "_timed", counted)
    result = found.run(tmp_path / "run", batch=1, progress=shown, workers=1)
    made = result.facts["passes"]["forwards"]
    assert result.facts["passes"]["backwards"] == 0
    assert shown.announced == pytest.approx(made, rel=0.1)
    during = tokens[-len(shown.shares) :]
    true = [sum(during[: i + 1]) / sum(during) for i in range(len(during))]
    assert len(during) == made
    assert max(abs(a - b) for a, b in zip(shown.shares, true, strict=True)) < 0.1
    even = [(i + 1) / made for i in range(made)]
    assert max(abs(a - b) for a, b in zip(even, true, strict=True)) > 0.2, "counting passes would not do"


def test_short_texts_of_one_size_take_different_numbers_of_passes(bert_folder, tmp_path):
    """Of two words LIME tries every set, of five it draws: the first text says nothing of those that are padded like it."""
    texts = ["good film", "a bad film it was", "the plot was good", "it is a bad plot", "the film was bad"]
    found = hc.Benchmark(
        models={"bert": f"hf:{bert_folder}"}, data=texts, methods=["lime(samples=30)"], metrics=["sds"]
    )
    shown = Watched()
    made = found.run(tmp_path / "run", batch=8, progress=shown, workers=1).facts["passes"]["forwards"]
    assert shown.announced == pytest.approx(made, rel=0.05)


def test_work_is_told_as_whole_passes_and_none_is_lost():
    shown = Watched()
    shown.begin("", 10)
    gauge = Gauge(shown, Effort(10, 400))
    for _ in range(100):
        gauge.advance(4)
    assert shown.told == 10 and shown.shares[49] == 0.5
    Gauge(Silent(), Effort()).advance(5)


def test_a_plan_takes_less_time_for_shorter_texts(bert_folder, monkeypatch):
    timed = []
    monkeypatch.setattr(planner, "rates", lambda part, x: timed.append(x["ids"].shape[1]) or (1.0, 1.0))

    def plan(*texts):
        found = hc.Benchmark(
            models={"bert": f"hf:{bert_folder}"}, data=list(texts), methods=["random"], metrics=["sds"]
        )
        return found.plan(batch=4)

    short, long = "a good film", "good film " * 15
    alone = plan(long)
    assert plan(short, long).seconds - alone.seconds == pytest.approx(plan(short).seconds * timed[-1] / timed[0])
    assert timed == [32, 32, 8], "the longest text is timed"


def test_neighbours_and_order_change_no_bit(bert_folder, tmp_path):
    whole = by_text(run(bert_folder, tmp_path / "a"), TEXTS)
    some = TEXTS[8:2:-1]
    other = by_text(run(bert_folder, tmp_path / "b", some), some)
    assert other == {key: whole[key] for key in other} and len(other) == len(some) * 5 * 3


def test_a_run_goes_on_with_the_rounding_that_it_was_begun_with(bert_folder, tmp_path, monkeypatch):
    run(bert_folder, tmp_path / "whole")
    with monkeypatch.context() as other:
        other.setattr(TextModel, "rounding", Rounding(8, 32, 32))
        run(bert_folder, tmp_path / "other")
        run(bert_folder, tmp_path / "begun", TEXTS[:4])
    run(bert_folder, tmp_path / "begun")
    (numerics,) = hc.Result.open(tmp_path / "begun").facts["numerics"].values()
    assert numerics["rounding"] == [8, 32, 32]
    assert bits(tmp_path / "begun") == bits(tmp_path / "other")
    (numerics,) = hc.Result.open(tmp_path / "whole").facts["numerics"].values()
    assert numerics["rounding"] == [4, 64, 16] and bits(tmp_path / "whole") != bits(tmp_path / "other")
    mine, theirs = (by_text(hc.Result.open(tmp_path / name), TEXTS) for name in ("whole", "other"))
    assert mine.keys() == theirs.keys()
    for key, (score, status) in mine.items():
        assert theirs[key][1] == status == "ok" and theirs[key][0] == pytest.approx(score, rel=1e-4, abs=1e-5), key


@pytest.mark.slow
def test_another_run_lends_its_rounding(bert_folder, tmp_path, monkeypatch):
    with monkeypatch.context() as other:
        other.setattr(TextModel, "rounding", Rounding(8, 32, 32))
        run(bert_folder, tmp_path / "theirs")
    run(bert_folder, tmp_path / "mine", numerics=str(tmp_path / "theirs"))
    assert bits(tmp_path / "mine") == bits(tmp_path / "theirs")


def test_runs_with_other_roundings_are_merged_and_go_on(bert_folder, tmp_path, monkeypatch):
    run(bert_folder, tmp_path / "a", TEXTS[:6])
    with monkeypatch.context() as other:
        other.setattr(TextModel, "rounding", Rounding(8, 32, 32))
        run(bert_folder, tmp_path / "b", TEXTS[6:])
    (note,) = hc.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "all").notes
    assert "(rounding [8, 32, 32] instead of [4, 64, 16])" in note and note.endswith("--numerics makes them equal")
    result = run(bert_folder, tmp_path / "all", metrics=[*METRICS, "complexity"])
    assert result.scores()["status"].unique().to_list() == ["ok"]
    assert len(result.scores().filter(metric="complexity")) == len(TEXTS) * 5


def test_what_is_cut_off_is_in_the_terminal_the_record_and_the_report(bert_folder, tmp_path, capsys):
    texts = ["good film " * 30, "a bad film"]
    found = hc.Benchmark(
        models={"bert": f"hf:{bert_folder}"}, data=texts, methods=["saliency"], metrics=["sds"], preprocess="tokens=12"
    )
    result = found.run(tmp_path / "run", batch=4, progress="lines")
    told = "bert reads 12 tokens, and 1 of 2 texts is longer: what lies beyond is cut off, 75% of all tokens"
    assert told in " ".join(capsys.readouterr().err.split())
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert [told in note for note in record["models"][0]["notes"]] == [True]
    assert record["study"]["preprocess"] == "at most 12 tokens"
    assert told in " ".join(result.report().read_text(encoding="utf-8").split())
    short = found.run(tmp_path / "short", samples=1, batch=4, progress="none")
    assert bool(short.facts["notes"]) == (short.manifest["samples"][0]["digest"] == record["samples"][0]["digest"])
