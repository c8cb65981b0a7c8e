"""The long table cut into matrices, against the definition, row by row."""

from collections import Counter, defaultdict

import numpy as np
import polars as pl
import pytest

from heatcheck.stats import Facts, missing_scores, rows_by
from heatcheck.stats.table import COSTS, NOT_FINITE, groups

MUTANTS = (
    ("stats/table.py", "if len(found) == len(cell):", "if True:", "test_matrices_are_the_definition"),
    ("stats/table.py", "has_sample = column >= 0", "has_sample = column >= -1", "test_matrices_are_the_definition"),
    ("stats/table.py", '.sort("len", "status", descending=[False, True])', '.sort("status")', "test_matrices_are_the_definition"),
    ("stats/table.py", "place_of[number] = each", "place_of[number[::-1]] = each", "test_matrices_are_the_definition"),
    ("stats/table.py", "known = ok & np.isfinite(value)", "known = np.isfinite(value)", "test_matrices_are_the_definition"),
)  # fmt: skip
STATUSES = ("ok", "ok", "ok", "failed: a", "failed: b", "undefined: c")


def random_table(seed, n=400):
    """Rows in any order: several per cell, none for some, scores that are no numbers, samples without a name."""
    rng = np.random.default_rng(seed)

    def some(*names):
        return rng.choice(names, n).tolist()

    status = some(*STATUSES)
    score = np.where(rng.random(n) < 0.05, np.nan, rng.normal(size=n).round(2))
    rows = {
        "run": some("r", "q"),
        "model": some("net", "other"),
        "data": some("pics"),
        "sample": [None if s == "none" else s for s in some(*(f"s{i}" for i in range(12)), "none")],
        "target": rng.integers(0, 12, n).tolist(),
        "method": some("a", "b", "Ä", "random"),
        "metric": some("sds", "morf"),
        "score": [None if i % 17 == 0 else x for i, x in enumerate(score.tolist())],
        "status": [None if i % 31 == 0 else s for i, s in enumerate(status)],
        "seconds": [None if i % 13 == 0 else x for i, x in enumerate(rng.random(n).tolist())],
        "forwards": rng.integers(0, 9, n).tolist(),
        "backwards": [None] * n,
    }
    return pl.DataFrame(rows, schema_overrides={"backwards": pl.Float64})


def defined(scores):
    """Per group: methods, samples, {cell: scores}, {method: costs of ok rows}, {method: statuses of the others}."""
    found = defaultdict(lambda: (defaultdict(list), defaultdict(list), defaultdict(Counter)))
    for row in scores.iter_rows(named=True):
        cells, costs, problems = found[row["model"], row["data"], row["metric"]]
        ok = row["status"] == "ok" and row["score"] is not None and np.isfinite(row["score"])
        if row["sample"] is not None:
            cells[row["method"], row["sample"]].append(row["score"] if ok else None)
        costs[row["method"]] += [[row[c] for c in COSTS]] if ok else []
        if not ok:
            problems[row["method"]][NOT_FINITE if row["status"] in ("ok", None) else row["status"]] += 1
    return dict(found)


def kept_as(kind, table):
    """Names as strings, categories, or enumerated against their order."""
    names = [c for c, dtype in table.schema.items() if dtype == pl.String]
    if kind == "enum":
        orders = {c: sorted(table[c].drop_nulls().unique(), reverse=True) for c in names}
        return table.with_columns(pl.col(c).cast(pl.Enum(["unused", *orders[c]])) for c in names)
    return table.with_columns(pl.col(names).cast(pl.Categorical)) if kind == "categorical" else table


@pytest.mark.parametrize("kind", ["string", "categorical", "enum"])
@pytest.mark.parametrize("seed", range(3))
def test_matrices_are_the_definition(kind, seed):
    scores = random_table(seed)
    expected = defined(scores)
    made = list(groups(kept_as(kind, scores), Facts({"sds": True, "morf": False})))
    assert [(g.model, g.data, g.metric) for g in made] == sorted(expected)
    for group in made:
        cells, costs, problems = expected[group.model, group.data, group.metric]
        samples = sorted({sample for _, sample in cells})
        assert list(group.methods) == sorted(problems.keys() | costs.keys()) and group.n == len(samples)
        for i, method in enumerate(group.methods):
            for k, sample in enumerate(samples):
                values = cells.get((method, sample), [None])
                whole = None not in values
                assert group.scores[i, k] == pytest.approx(np.mean(values)) if whole else np.isnan(group.scores[i, k])
            for c in range(len(COSTS)):
                known = [row[c] for row in costs[method] if row[c] is not None]
                assert group.costs[i, c] == pytest.approx(np.mean(known) if known else np.nan, nan_ok=True)
            ordered = sorted(problems[method].items(), key=lambda item: (-item[1], item[0]))
            assert group.problems[i] == (ordered[0][0] if ordered else None)


@pytest.mark.parametrize("kind", ["categorical", "enum"])
def test_missing_scores_do_not_depend_on_how_names_are_kept(kind):
    scores = random_table(3)
    assert missing_scores(kept_as(kind, scores)).equals(missing_scores(scores))


def test_rows_are_found_by_name_and_sorted():
    table = kept_as("enum", pl.DataFrame({"a": ["y", "x", "y", None], "b": ["1", "1", "2", "1"]}))
    found = [(names, rows.to_list()) for names, rows in rows_by(table, ("a", "b"))]
    assert found == [((None, "1"), [3]), (("x", "1"), [1]), (("y", "1"), [0]), (("y", "2"), [2])]


def test_a_table_without_rows_has_no_group():
    assert list(groups(random_table(0).clear(), Facts({}))) == []
