"""The report's page: complete, self-contained, the same twice, and whole in odd cases."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import polars as pl
import pytest

from heatcheck import stats
from heatcheck.report import render, write_report
from heatcheck.report.page import page_view
from heatcheck.stats.power import in_words

MUTANTS = (
    (
        "report/samples.py",
        'ordered["score"].reverse() if higher',
        'ordered["score"] if higher',
        "test_many_scores_are_thinned_evenly_and_the_page_says_so",
    ),
    (
        "report/cases.py",
        'self.scores["sample"].unique().drop_nulls().cast(pl.String).sort()',
        'self.scores["sample"].unique().drop_nulls().sort()',
        "test_the_page_does_not_depend_on_how_names_are_kept",
    ),
)
SECTIONS = ("answer", "overview", "metrics", "agreement", "gallery", "samples", "gaps", "facts")
VOID = {"meta", "img", "wbr", "br", "hr", "input", "link"}


class Page(HTMLParser):
    """Every element, the text of every section, and whether tags nest."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.stack, self.scripts, self.styles, self.text = [], [], [], [], []
        self.sections = {}
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.stack and self.stack[-1][0] == tag, (tag, self.stack[-3:], self.getpos())
        self.stack.pop()

    def handle_data(self, data):
        last = self.stack[-1][0] if self.stack else ""
        if last in ("script", "style"):
            (self.scripts if last == "script" else self.styles).append(data)
            return
        self.text.append(data)
        for tag, attrs in self.stack:
            if tag == "section":
                self.sections[attrs["id"]] = self.sections.get(attrs["id"], "") + data


def small(fake, **other):
    few = {
        "grad_cam": (0.8, 4, 1, 1),
        "rise(masks=9)": (0.5, 8, 9, 0),
        "occlusion(units=grid(4))": (0.9, 4, 17, 0),
        "bad": (0, 8, 1, 1),
    }
    return fake(**{"methods": few, "metrics": ("sds", "morf"), "n": 8, "side": 16, "shown": 2} | other)


@pytest.fixture(scope="module")
def html(fake):
    return render(small(fake))


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_every_section_is_there_and_tags_nest(page):
    assert page.stack == []
    assert set(SECTIONS) <= set(page.sections)
    links = {a["href"] for t, a in page.elements if t == "a"}
    assert {f"#{s}" for s in SECTIONS} <= links
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))


def test_nothing_is_loaded_from_anywhere(page):
    for tag, attrs in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form"), tag
        for name in ("src", "href", "srcset", "action", "poster", "data", "xlink:href"):
            value = attrs.get(name)
            assert value is None or value.startswith(("#", "data:image/webp;base64,")), (tag, name, value)
        assert not any(name.startswith("on") for name in attrs) and "style" not in attrs
    assert not any("@import" in s or "url(" in s or "http" in s for s in page.styles)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", "".join(page.scripts))


def test_the_policy_allows_exactly_our_script_and_style(page):
    policy = next(a["content"] for t, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(part.split(" ", 1) for part in policy.split("; "))
    digest = lambda text: f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"  # noqa: E731
    data, script = page.scripts
    assert rules == {
        "default-src": "'none'",
        "script-src": digest(script),
        "style-src": digest(page.styles[0]),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    json.loads(data, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_the_answer_says_what_the_numbers_say(fake):
    def merit(row):
        return {"grad_cam": 0.8, "rise": 0.5, "occlusion": 0.9, "bad": 0.0, "random": 0.0}.get(
            row.partition("(")[0], 0.1
        )

    run = small(fake, metrics=("sds",), n=20, spoil=False)
    jitter = pl.col("sample").rank("dense").cast(pl.Float64) % 7 / 1000
    level = pl.col("method").map_elements(merit, return_dtype=pl.Float64)
    swap = pl.when(pl.col("method") == "bad").then(-jitter).otherwise(jitter)
    run._scores = run._scores.with_columns(score=level + swap)
    answer = re.sub(r"\s+", "", Page(render(run)).sections["answer"])
    for expected in (
        "Use grad_cam: it has the best mean rank, 1.00 over 1 metric.",
        "is significantly better than each of the 2 others under some metric, and worse than none under any",
        "It is better than a random map under the one metric. A map of grad_cam takes 2 passes (0.02 s).",
        "No metric finds bad better than a random map.",
        "Best grad_cam May be as good as it none: each of the others is significantly worse than some method",
        "Not better than random bad Worse than random bad Circular, not ranked occlusion(units=grid(4))",
    ):
        assert expected.replace(" ", "") in answer, expected


def levels(run, known, paper=True):
    """The run with the same score on every sample: `known[metric, method]`, or 0. A paper's metrics all count."""
    run.facts["paper"] = paper
    score = pl.struct("metric", "method").map_elements(
        lambda r: known.get((r["metric"], r["method"].partition("(")[0]), 0.0), return_dtype=pl.Float64
    )
    run._scores = run._scores.with_columns(score=score)
    return run


def answer_of(run):
    """Whether the answer says something, blanks aside."""
    answer = re.sub(r"\s+", "", Page(render(run)).sections["answer"])
    return lambda text: text.replace(" ", "") in answer


def test_ties_are_called_ties(fake):
    # Lower is better for morf: the two share its first place, and grad_cam has that of sds alone.
    known = {("sds", "grad_cam"): 0.8, ("sds", "rise"): 0.5, ("morf", "bad"): 0.9, ("morf", "occlusion"): 0.9}
    says = answer_of(levels(small(fake, spoil=False, n=12), known))
    assert says("Use grad_cam: it has the best mean rank, 1.00 over 2 metrics.")
    assert says("Best, tied grad_cam rise(masks=9) May be as good as them no others: these 2 share the best rank")
    says = answer_of(levels(small(fake, spoil=False, n=12), {k: v for k, v in known.items() if k[0] == "morf"}))
    assert says("Use grad_cam or rise(masks=9): nothing here tells them apart, and grad_cam costs least.")
    assert not says("significantly worse than some method")


def test_worse_than_random_is_said_only_where_it_is_so(fake):
    known = {("sds", "bad"): -0.5, ("sds", "grad_cam"): 0.5}
    run = levels(small(fake, spoil=False, metrics=("sds",), n=12), known)
    says = answer_of(run)
    assert says("Not better than random occlusion(units=grid(4)) rise(masks=9) bad")
    assert says("Worse than random bad Circular")
    run = levels(small(fake, spoil=False, metrics=("sds",), n=12), {("sds", "grad_cam"): 0.5})
    assert not answer_of(run)("Worse than random bad")


@pytest.mark.parametrize(("n", "least"), [(2, "1"), (3, "0.5"), (6, "0.062"), (7, "")])
def test_too_few_samples_are_called_too_few(fake, n, least):
    says = answer_of(small(fake, spoil=False, n=n))  # four methods are tested: 4 / 2ⁿ is the smallest p-value
    assert says(f"With {n} samples, no method can be significantly better than random") == bool(least)
    assert says(f"the smallest p-value that the test can give is {least}, above") or not least
    assert not least or not says("No metric finds")


@pytest.mark.parametrize("families", [("deletion", "form"), ("form", "sanity")])
def test_form_and_sanity_do_not_count_in_the_mean_rank(fake, families):
    run = levels(small(fake, spoil=False, n=12), {("sds", "grad_cam"): 0.8, ("morf", "rise"): -0.8})
    for metric, family in zip(run.facts["metrics"], families, strict=True):
        metric["family"] = family
    says = answer_of(run)
    assert says("Use grad_cam: it has the best mean rank, 1.00 over 1 metric.") == ("deletion" in families)
    without = says("morf does not count in the mean rank, as it does not measure faithfulness")
    assert without == ("deletion" in families)


def test_a_metric_that_prefers_random_is_shown_with_its_reason_and_does_not_count(fake):
    good = {("morf", name): -0.8 for name in ("grad_cam", "rise", "bad", "occlusion")}
    run = levels(
        small(fake, spoil=False, n=12), {**good, ("sds", "random"): 0.9, ("sds", "grad_cam"): 0.8}, paper=False
    )
    says = answer_of(run)
    assert says("nothing here tells them apart") and says(
        "sds does not count in the mean rank, as random has the best mean"
    )
    none = levels(small(fake, spoil=False, n=12), {("sds", "random"): 0.9, ("sds", "grad_cam"): 0.8}, paper=False)
    says = answer_of(none)
    assert says("No method can be recommended: no metric counts in the mean rank, as none finds most") and not says(
        "no metric ranks at least two methods"
    )


def test_the_names_of_metrics_break_after_underscores(fake):
    html = render(small(fake, word=lambda kind, name: f"very_{name}" if kind == "metric" else name))
    assert "<bdi>very_<wbr>sds</bdi>" in html
    assert 'class="scrollbox"' in html


def test_a_circular_score_is_shown_and_not_ranked(page):
    board = page.sections["metrics"]
    assert "circular" in board and "the same queries to the model as this metric" in board
    assert "◌" in page.sections["overview"]


def test_a_metric_says_what_its_samples_tell_apart_and_effects_against_random(fake, html):
    run = small(fake)
    board = run.leaderboard().full
    for row in stats.detectable_on(board).iter_rows(named=True):
        assert (
            f"<bdi>{in_words(row)}</bdi>. With so many samples, such a difference is found in four runs of five."
            in html
        )
    sizes = board.filter(pl.col("random_effect").is_not_null())
    assert html.count('class="num wide roomy sizes"') == board.height
    for effect, share in sizes.select("random_effect", "random_share").iter_rows():
        assert f'sizes">{effect:.2f}<small>{100 * share:.0f} %</small>'.replace("-", "−") in html.replace("-", "−")


def test_gaps_have_their_reasons(page):
    gaps = page.sections["gaps"]
    assert "undefined: the map's units, or the drops, are all equal" in gaps
    assert "needs attention layers, and the model has none" in gaps
    assert "failed: cannot identify image file" in gaps


def test_curves_are_drawn_for_metrics_that_have_them(page):
    assert page.sections["metrics"].count("Curves.") == 1
    lines = [a for t, a in page.elements if t == "path" and a.get("class") == "line"]
    assert len(lines) == 7  # four methods, three controls with scores


def test_the_drill_down_knows_best_and_worst(fake):
    run = small(fake, metrics=("morf",), spoil=False)
    case = json.loads(Page(render(run)).scripts[0])["cases"][0]
    row = case["methods"].index("grad_cam")
    mine = run.scores().filter(pl.col("method") == "grad_cam").sort("score")
    cell = case["cells"][f"{row}:0"]
    names = [case["samples"][str(i)]["name"] for i, _ in cell["best"] + cell["worst"]]
    order = mine["sample"].to_list()
    assert names == [*order[:3], *order[:-4:-1]]  # lower is better; the worst first among the worst
    assert cell["best"][0][1] == pytest.approx(mine["score"][0], rel=1e-5)


def test_the_same_run_gives_the_same_bytes(fake, tmp_path, html):
    again = write_report(small(fake), tmp_path / "deep" / "report.html")
    assert again.read_text(encoding="utf-8") == html
    assert [p.name for p in again.parent.iterdir()] == ["report.html"]


def test_a_failed_write_leaves_the_old_file(fake, tmp_path):
    target = tmp_path / "report.html"
    target.write_text("old")
    run = small(fake)
    run.facts = {**run.facts, "metrics": []}
    with pytest.raises(ValueError, match="no direction for metric"):
        write_report(run, target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_title_replaces_the_name(fake):
    page = Page(render(small(fake), title="Ours & theirs"))
    assert "Ours & theirs" in page.text


def long_names(kind, name):
    return name if kind in ("created", "version") else f"{name}{'_very_long' * 40}"


@pytest.mark.parametrize(
    "options",
    [
        {"methods": {"saliency": (0.4, 8, 1, 1)}},
        {"n": 1, "shown": 1},
        {"n": 0, "shown": 0},
        {"metrics": ()},
        {"metrics": ("sds",)},
        {"methods": {}},
        {"shown": 0},
        {"text": True, "models": ("a", "b")},
        {"word": long_names},
        {"methods": {f"m{i}(k={i})": (i / 60, 4, i, 0) for i in range(60)}, "metrics": ("morf",), "shown": 1},
    ],
    ids=[
        "one-method",
        "one-sample",
        "no-sample",
        "no-metric",
        "no-curves",
        "controls-only",
        "no-maps",
        "text",
        "long",
        "sixty",
    ],
)
def test_odd_runs_have_a_whole_page(fake, options):
    page = Page(render(small(fake, **options)))
    assert page.stack == [] and set(SECTIONS) <= set(page.sections)
    json.loads(page.scripts[0])


def test_a_run_in_which_everything_failed(fake):
    run = small(fake)
    run._scores = run._scores.with_columns(score=pl.lit(None, pl.Float64), status=pl.lit("failed: out of memory"))
    run._curves, run._maps = {}, {}
    page = Page(render(run))
    assert "No method can be recommended: no metric ranks" in page.sections["answer"]
    assert "0 of" in page.sections["gaps"] and "failed: out of memory" in page.sections["gaps"]


def test_scores_that_claim_to_be_ok_and_are_not_finite(fake):
    run = small(fake, spoil=False)
    run._scores = run._scores.with_columns(
        score=pl.when(pl.col("method") == "bad").then(float("nan")).otherwise("score")
    )
    page = Page(render(run))
    assert "undefined: the score is not finite" in page.sections["gaps"]
    json.loads(page.scripts[0], parse_constant=lambda name: pytest.fail(name))


def test_the_page_stays_small(fake):
    many = {f"m{i}(k={i})": (i / 60, 4, i, 0) for i in range(60)}
    html = render(small(fake, methods=many, n=30, shown=0))
    assert len(re.sub(r"data:image/webp;base64,[A-Za-z0-9+/=]*", "", html)) < 3_000_000


def test_torch_is_never_imported():
    code = "import heatcheck.report, heatcheck.report.terminal, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum])
def test_the_page_does_not_depend_on_how_names_are_kept(fake, kind):
    result = fake(models=("one", "two"), n=12, side=32)
    plain = render(result)
    scores = result.scores()
    for name in [c for c, dtype in scores.schema.items() if dtype == pl.String]:
        kept = pl.Enum(sorted(scores[name].unique(), reverse=True)) if kind is pl.Enum else kind
        scores = scores.with_columns(pl.col(name).cast(kept))
    result._scores = scores
    assert render(result) == plain


def test_many_scores_are_thinned_evenly_and_the_page_says_so(fake):
    result = fake(metrics=("sds",), n=500, shown=1, side=32)
    case = page_view(result).data["cases"][0]
    cell = case["cells"]["0:0"]
    mine = (pl.col("method") == case["methods"][0]) & (pl.col("metric") == "sds")
    scores = sorted(result.scores().filter(mine)["score"])
    assert (cell["n"], len(cell["strip"]), case["metrics"][0]["better"]) == (500, 160, "higher")
    assert cell["strip"] == [scores[round(i * 499 / 159)] for i in range(160)]
    assert [v for _, v in cell["best"]] == scores[:-4:-1] and [v for _, v in cell["worst"]] == scores[:3]
    assert "evenly spaced from the lowest score to the highest" in render(result)
