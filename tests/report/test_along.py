"""Ranks along training: what the chart draws, what the sentence claims, what the terminal prints."""

import io
import re

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from tests.report.conftest import METHODS, build

from heatcheck import stats
from heatcheck.report.along import along_view, verdict
from heatcheck.report.html import render
from heatcheck.report.terminal import AlongTable
from heatcheck.stats import AlongTraining, Checkpoint, Coefficient

MUTANTS = (
    ("report/along.py", "(rank - 0.5) / methods", "(rank - 1) / methods", "test_lines_go_through_the_ranks"),
    ("report/along.py", "(c.epoch - first) / (last - first)", "c.epoch / last", "test_lines_go_through_the_ranks"),
    ("report/along.py", "while found and", "if found and", "test_the_sentence_says_when_it_settles"),
    (
        "report/along.py",
        "if low >= 0.7:",
        "if high >= 0.7:",
        "test_the_sentence_claims_what_the_interval_allows",
    ),
)


class Named:
    def __init__(self, name):
        self.name = self.head = name
        self.css = "s0 d0"


def case(ranks, *, tau=None, w=Coefficient(0.95, 0.91, 1.0), n=50, accuracy=0.5):
    """A case with given ranks, and correlations with the last ranking if they matter."""
    ranks = np.array(ranks, dtype=float)
    many, methods = ranks.shape
    tau = [1.0] * many if tau is None else tau
    blank = tuple(Coefficient(None if i == 0 else 0.5, 0.25, 0.75) for i in range(many))
    return AlongTraining(
        training="trained:t",
        data="pics",
        metric="sds",
        checkpoints=tuple(Checkpoint(f"trained:t@{i}", f"{i:02d}", 10 * i, 2.0 + i, accuracy) for i in range(many)),
        methods=tuple(f"m{k}" for k in range(methods)),
        ranks=ranks,
        means=-ranks / 10,
        tau_last=tuple(Coefficient(t, t, t) for t in tau),
        rho_last=tuple(Coefficient(t, t, t) for t in tau),
        tau_before=blank,
        rho_before=blank,
        w=w,
        n=n,
    )


def said(*args, **options):
    return "".join(part.text for part in verdict(case(*args, **options)))


class TestChart:
    def test_lines_go_through_the_ranks(self):
        view = along_view(case([[2, 1], [1, 2], [1, 2]]), {"m0": Named("m0"), "m1": Named("m1")})
        assert [(d.left, d.top) for d in view.lines[0].dots] == [(0, 75), (50, 25), (100, 25)]
        assert view.lines[0].line == "M0 75C25 75 25 25 50 25C75 25 75 25 100 25"
        assert [at for at, _, _ in view.ticks] == [0, 50, 100]
        assert [(e, a) for _, e, a in view.ticks] == [("2", "50 %"), ("3", "50 %"), ("4", "50 %")]
        assert view.places == ((25, "1"), (75, "2"))

    def test_names_of_tied_methods_do_not_overlap(self):
        view = along_view(case([[1.5, 1.5, 3]] * 3), {f"m{k}": Named(f"m{k}") for k in range(3)})
        assert [line.label for line in view.lines] == [16.67, 50, 83.33]
        assert [line.last for line in view.lines] == ["1.5", "1.5", "3"]

    def test_checkpoints_of_one_epoch_stand_apart(self):
        one = case([[1, 2]] * 3)
        same = [Checkpoint(c.model, c.name, c.step, 1.0) for c in one.checkpoints]
        view = along_view(
            AlongTraining(**{**vars(one), "checkpoints": tuple(same)}), {"m0": Named("a"), "m1": Named("b")}
        )
        assert view.ticks == ((0, "1", ""), (50, "1", ""), (100, "1", ""))
        assert view.rows[0].accuracy == "–"

    def test_the_table_has_both_correlations_with_their_intervals(self):
        row = along_view(case([[1, 2]] * 3), {"m0": Named("a"), "m1": Named("b")}).rows[1]
        assert row.before == (("0.50", "0.25 to 0.75"), ("0.50", "0.25 to 0.75"))


class TestSentence:
    def test_the_sentence_claims_what_the_interval_allows(self):
        same = [[1, 2]] * 3
        assert "3 checkpoints, the ranking hardly changes: Kendall's W of 2" in said(same)
        assert "stays mostly the same" in said(same, w=Coefficient(0.95, 0.75, 1.0))
        assert "50 samples are too few to say whether the ranking is stable" in said(
            same, w=Coefficient(0.8, 0.5, 0.95)
        )
        assert "changes in part" in said(same, w=Coefficient(0.7, 0.6, 0.75))
        assert "there is no stable ranking" in said(same, w=Coefficient(0.3, 0.2, 0.4))
        assert "1 sample is too few" in said(same, w=Coefficient(1.0), n=1)
        assert said(same, w=Coefficient(None)).startswith("Agreement cannot be measured: all methods tie")

    def test_the_sentence_says_when_it_settles(self):
        ranks = [[1, 2]] * 5
        assert "From epoch 4 on, they resemble the last one" in said(ranks, tau=[0.9, 0.2, 0.8, 0.9, 1])
        assert "All rankings resemble the last one" in said(ranks, tau=[0.9, 0.8, 0.8, 0.9, 1])
        assert "Even the last but one differs from the last" in said(ranks, tau=[1, 1, 1, 0.7, 1])

    def test_who_comes_first(self):
        assert said([[2, 1], [1, 2], [1, 2]]).endswith("m0 comes first at 2 of the 3 checkpoints.")
        assert said([[1, 2]] * 3).endswith("m0 comes first at all checkpoints.")


def run(many=6, n=10, metrics=("sds", "morf"), shown=1, side=16, seed=0):
    """A made-up run over checkpoints of one training, whose ranking settles."""
    names = [f"trained:runs/r20@{i + 1:02d}" for i in range(many)]
    fake = build(models=names, metrics=metrics, n=n, shown=shown, side=side)
    rng = np.random.default_rng(seed)
    early = {m: rng.uniform() for m in METHODS}
    moment = {name: (i + 1) / many for i, name in enumerate(names)}
    rows = []
    for row in fake._scores.iter_rows(named=True):
        if row["method"] in early and row["score"] is not None:
            t = min(1.0, 1.6 * moment[row["model"]])
            merit = (1 - t) * early[row["method"]] + t * METHODS[row["method"]][0]
            row["score"] = (merit if row["metric"] == "sds" else 1 - merit) + 0.12 * rng.normal()
        rows.append(row)
    fake._scores = pl.DataFrame(rows, schema=fake._scores.schema)
    same = {"recipe": "plain", "variant": "small", "settings": {"seed": 0}, "parent": {"name": "small:resnet20"}}
    for i, m in enumerate(fake.facts["models"]):
        reached = {"step": 60 * (i + 1), "epoch": 12 * (i + 1) / many, "accuracy": 0.93 - 0.6 * 0.6 ** (i + 1)}
        m["trained"] = {
            **same,
            "data": "d",
            "held_out": "h",
            "samples": 9,
            "checkpoint": f"{i + 1:02d}",
            "reached": reached,
        }
    return fake


@pytest.fixture(scope="module")
def fake():
    return run(many=3, n=6)


class TestPage:
    def test_every_metric_has_a_chart_and_a_table(self, fake):
        page = render(fake)
        section = page[page.index('id="along"') : page.index('id="answer"')]
        assert "Ranks along training" in section and section.count('class="bump"') == 2
        assert section.count('data-panel="along-0-') == 2 == section.count('data-tab="along-0-')
        ranked = [m for m in METHODS if not m.startswith(("occlusion", "lime"))]  # circular, and failing too often
        assert section.count('class="series') == 2 * len(ranked) + 1  # morf ranks occlusion, too
        assert re.search(r"left out: .*lime", section, re.DOTALL)
        assert '<a href="#along">Training</a>' in page
        assert "style=" not in section  # the page's policy allows none

    def test_other_runs_have_none(self):
        page = render(build(models=("a", "b", "c"), metrics=("sds",), n=4, shown=1, side=16))
        assert 'id="along"' not in page and "#along" not in page


def test_the_terminal_prints_ranks_and_correlations(fake):
    trainings = stats.trajectories(fake.facts)
    cases = stats.along_training(fake.scores(), stats.Facts.of(fake.facts), trainings)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(AlongTable(cases))
    text = console.export_text()
    assert "Ranks along training  trained:runs/r20 · sample pictures" in text
    assert "sds: Over 3 checkpoints" in text and "τ with the last" in text
    assert re.search(r"epoch +4 +8 +12", text) and re.search(r"accuracy +57 % ", text)
    narrow = Console(width=34, record=True, file=io.StringIO())
    narrow.print(AlongTable(cases[:1]))
    text = narrow.export_text()
    assert text.count("τ with the last") == 3 and max(map(len, text.splitlines())) <= 34
