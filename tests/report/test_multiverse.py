"""The multiverse on the page and in words: what it says, what it draws, and that strings stay strings."""

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from heatcheck.api.expansion import expand
from heatcheck.report import render
from heatcheck.report.multiverse import grouped, multiverse_view, percent, verdict
from heatcheck.report.page import page_view
from heatcheck.stats import Facts, Rankings, Universe, rankings, universes_of

FACTORS = {"fill": ["zero", "blur"], "steps": [4, 8], "sign": ["signed", "abs"]}
SIGNED = ("saliency", "deep_lift")
UNSIGNED = ("grad_cam",)
EVIL = "</script><img src=x onerror=alert(1)>\u202e"


def made_up(fake, *, word=lambda name: name, n=6, turn=True):
    """A run of eight universes; blur turns the order of the methods round."""
    made = expand("morf", FACTORS)
    labels = {"signed": {}, "abs": {word(m): word(f"{m} · abs") for m in SIGNED}}
    merit = {"saliency": 1.0, "deep_lift": 2.0, "grad_cam": 3.0}
    source = fake(models=("net",), metrics=("morf",), methods={}, n=n, shown=1)
    everyone = [*merit, *(f"{m} · abs" for m in SIGNED), "random"]
    rng = np.random.default_rng(0)
    rows = []
    for label in made.metrics:
        for method in everyone:
            good = merit.get(method.partition(" ·")[0], 0.0)
            good = 4 - good if turn and "blur" in label and good else good
            for i in range(n):
                score = good + 0.1 * rng.normal()
                rows.append(("r", "net", "pics", f"s{i}", 1, word(method), word(label), score, "ok", 0.1, 3, 1))
    source._scores = pl.DataFrame(rows, schema=source._scores.schema, orient="row")
    source._curves = {}
    source.facts["methods"] = [
        {"name": word(m), "id": m.partition(" ")[0], "control": m == "random", "summary": "", "paper": "", "cost": ""}
        for m in everyone
    ]
    source.facts["metrics"] = [
        {"name": word(m), "id": "morf", "better": "higher", "within": [-1, 1], "summary": ""} for m in made.metrics
    ]
    source.facts["circular"] = []
    record = made.record()
    record["universes"] = [{**u, "label": word(u["label"]), "metric": word(u["metric"])} for u in record["universes"]]
    for u in record["universes"]:
        u["levels"] = {k: v if k == "sign" else word(v) for k, v in u["levels"].items()}
    record["left_out"] = [{"label": word("morf · word"), "reason": word("units='word' do not exist")}]
    source.facts["multiverse"] = {**record, "methods": labels}
    return source


@pytest.fixture(scope="module")
def source(fake):
    return made_up(fake)


@pytest.fixture(scope="module")
def page(source):
    return render(source)


def test_the_page_shows_every_ranking(source, page):
    view = page_view(source).cases[0].multiverse
    assert view.count == 8 and view.w and len(view.labels) == 8
    assert {r.method.name for r in view.rows} == {"saliency", "deep_lift", "grad_cam"}
    drawn = page[page.index('id="multiverse"') : page.index('id="answer"')]
    assert len(re.findall(r'<rect class="r\d"', drawn)) == 3 * 8
    assert len(re.findall(r'<rect class="on"', drawn)) == 3 * 8  # each universe has one level of each factor
    assert f"<b>{view.w}</b>" in drawn
    assert '<a href="#multiverse">' in page
    assert view.chance[:2] == ("4", "4") and len(view.chance[2]) == 8  # behind all three methods


def test_the_factor_that_changes_the_ranking_most_comes_first(source):
    fill, *rest = page_view(source).cases[0].multiverse.factors
    assert (fill.name, fill.bar, fill.tau) == ("fill", 100.0, "−1.00") and fill.swapped == "100 %"
    assert all(f.swapped == "0 %" and f.bar == 0 for f in rest)
    assert [level.w for level in fill.levels] == ["1.00", "1.00"]
    assert sorted(at for level in fill.levels for at in level.at) == list(range(8))


def test_similar_rankings_are_neighbours(source):
    labels = page_view(source).cases[0].multiverse.labels
    fills = ["blur" in label for label in labels]
    assert fills in ([False] * 4 + [True] * 4, [True] * 4 + [False] * 4)


def test_what_gives_no_ranking_is_on_the_page(page):
    assert "units=&#39;word&#39; do not exist" in page and "Without a ranking" in page


def test_a_plain_run_has_no_such_section(fake):
    page = render(fake(metrics=("sds", "morf")))
    assert 'id="multiverse"' not in page and "#multiverse" not in page


def test_hostile_names_stay_text(fake):
    page = render(made_up(fake, word=lambda name: name if name == "random" else name + EVIL))
    assert "<img src=x" not in page and "\u202e" not in page
    assert page.count("</script>") == 2


def test_the_same_run_gives_the_same_bytes(source, page):
    assert render(source) == page


# -- words -------------------------------------------------------------------------------------------------------


def verdict_of(long, means, n=8, noise=0.0):
    rng = np.random.default_rng(0)
    frames = [
        long({**{m: v + noise * rng.normal(size=n) for m, v in row.items()}, "random": np.zeros(n)}, metric=f"m{u}")
        for u, row in enumerate(means)
    ]
    universes = [Universe(f"u{u}", f"m{u}", {"fill": f"f{u}"}) for u in range(len(means))]
    facts = Facts({f"m{u}": True for u in range(len(means))})
    (case,) = rankings(pl.concat(frames), facts, universes, resamples=50)
    return "".join(part.text for part in verdict(case))


@pytest.fixture(scope="module")
def long():
    columns = ("run", "model", "data", "sample", "target", "method", "metric", "score", "status")

    def table(scores, metric):
        rows = [
            ("r", "net", "pics", f"s{i}", 0, m, metric, float(v), "ok")
            for m, vs in scores.items()
            for i, v in enumerate(vs)
        ]
        costs = [pl.lit(1.0).alias(c) for c in ("seconds", "forwards", "backwards")]
        return pl.DataFrame(rows, schema=columns, orient="row").with_columns(costs)

    return table


def test_the_verdict_in_words(long):
    firm = verdict_of(long, [{"a": 3, "b": 2, "c": 1}] * 3)
    assert "hardly depends" in firm and "over 3 universes, Kendall's W of 3 methods is 1.00" in firm
    assert "a comes first in all of them." in firm and "No single choice changes the order of any two methods." in firm
    torn = verdict_of(long, [{"a": 3, "b": 2, "c": 1}, {"a": 1, "b": 2, "c": 3}], noise=0.1)
    assert "There is no stable ranking" in torn and "1 other method comes first in others." in torn
    assert "The fill matters most: changing it alone reverses 100 % of the pairs of methods." in torn
    assert "in 3 pairs, either method is significantly better in some universe." in torn


@pytest.mark.parametrize(
    ("low", "w", "high", "claim"),
    [
        (0.92, 0.95, 1.0, "hardly depends"),
        (0.75, 0.95, 1.0, "is mostly stable"),
        (0.25, 0.81, 0.81, "6 samples are too few to say whether the ranking is stable: over"),
        (0.3, 0.55, 0.72, "6 samples are too few to say whether the ranking is stable: over"),
        (0.3, 0.45, 0.6, "depends strongly"),
        (0.1, 0.2, 0.4, "There is no stable ranking"),
        (None, 1.0, None, "6 samples are too few to say whether the ranking is stable: over"),
    ],
)
def test_the_verdict_claims_no_more_than_the_interval(source, low, w, high, claim):
    case = replace(case_of(source), low=low, w=w, high=high)
    assert claim in "".join(part.text for part in verdict(case))


def case_of(source):
    record = source.facts["multiverse"]
    facts = Facts({u["metric"]: True for u in record["universes"]})
    return rankings(source._scores, facts, universes_of(record), resamples=20)[0]


@pytest.mark.parametrize(
    ("swapped", "words"),
    [
        ({"fill": 0.171, "units": 0.169}, "The fill and the units matter equally: changing one of them alone reverses 17 % of the pairs of methods. "),
        ({"fill": 0.3, "units": 0.3, "sign": 0.1}, "The fill and the units matter most: changing one of them alone reverses 30 % of the pairs of methods; the sign matters least (10 %). "),
        ({"fill": 0.3, "units": 0, "sign": 0}, "The fill matters most: changing it alone reverses 30 % of the pairs of methods; the units and the sign matter least (0 %). "),
        ({"fill": 0.3}, "The fill matters most: changing it alone reverses 30 % of the pairs of methods. "),
        ({"fill": 0, "units": 0}, "No single choice changes the order of any two methods. "),
    ],
)  # fmt: skip
def test_factors_that_matter_equally_are_named_together(source, monkeypatch, swapped, words):
    monkeypatch.setattr(Rankings, "by_factor", lambda _: [{"factor": f, "swapped": s} for f, s in swapped.items()])
    assert words in "".join(part.text for part in verdict(case_of(source)))


def test_the_verdict_says_what_it_cannot_say(long):
    assert "fewer than two universes" in verdict_of(long, [{"a": 2, "b": 1}])
    assert "all methods tie" in verdict_of(long, [{"a": 1, "b": 1}] * 2)
    few = verdict_of(long, [{"a": 2, "b": 1}] * 2, n=3)
    assert few.startswith("3 samples are too few to say whether the ranking is stable: over 2 universes")
    assert "With 3 samples, no method can be significantly better than random; use more." in few


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0 %"), (0.004, "<1 %"), (0.5, "50 %"), (0.996, ">99 %"), (1, "100 %")]
)
def test_almost_all_is_not_all(share, text):
    assert percent(share) == text


def test_each_reason_is_listed_once():
    left = [("a", "the same as b"), ("c", "no units"), ("d", "the same as e")]
    assert grouped(left) == (("the same as another universe", ("a", "d")), ("no units", ("c",)))


def test_nothing_ranked_is_a_page_all_the_same(fake):
    empty = made_up(fake)
    status = pl.lit("failed: boom").alias("status")
    empty._scores = empty._scores.with_columns(pl.lit(None, dtype=pl.Float64).alias("score"), status)
    page = render(empty)
    assert "Agreement cannot be measured" in page and "failed: boom" in page
    (case,) = rankings(empty._scores, Facts(dict.fromkeys({u["metric"] for u in empty.facts["multiverse"]["universes"]}, True)), [])  # fmt: skip
    assert multiverse_view(case, "morf", [], []).rows == ()
