"""The tables of a ranking over cases, with the best and the tied marked."""

import math
from collections.abc import Iterator, Sequence

import polars as pl

from heatcheck import stats
from heatcheck.report.tables import Cell, MarkedTable
from heatcheck.report.wording import rank as as_rank
from heatcheck.stats import Facts


def counted(n: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "case"), counted(2, "case")
    ('1 case', '2 cases')
    """
    return f"{n} {noun}{'' if n == 1 else 's'}"


def ranking_tables(
    facts: Facts,
    table: stats.CaseTable,
    board: stats.MetaBoard,
    agreement: stats.MetaAgreement,
    factor: stats.FactorRankings | None,
    along: Sequence[stats.AlongTraining],
    orders: pl.DataFrame,
    random: stats.CasesAgainstRandom,
    by_share: pl.DataFrame,
) -> Iterator[MarkedTable]:
    """All tables: leaderboard, wins, scores and ranks by case, agreement, removal orders, accuracy by share, ranks by factor and checkpoint."""
    methods = board.methods
    yield _leaderboard(board, random)
    yield _wins(board)
    yield _scores(facts, table, methods)
    order = [table.methods.index(m) for m in methods]
    ranks = pl.DataFrame(
        [
            {**_case(case), **{m: _known(table.ranks[i, k]) for m, k in zip(methods, order, strict=True)}}
            for i, case in enumerate(table.cases)
        ],
        infer_schema_length=None,
    )
    yield MarkedTable("ranks", "Ranks of methods in every case.", ranks, dict.fromkeys(methods, 1))
    yield _agreement(agreement, len(table.cases))
    by_case = stats.agreement_tables(agreement)
    if not by_case["cases"].is_empty():
        yield MarkedTable("case_agreement", "Every case beside the mean ranking of the others.", by_case["cases"])
    if not by_case["orders"].is_empty():
        yield MarkedTable("morf_lerf", "Agreement of MoRF and LeRF within models and data sets.", by_case["orders"])
    if not orders.is_empty():
        yield MarkedTable(
            "removal_orders",
            "The area under the LeRF curve minus that under the MoRF curve; below 0, the model falls faster when the least relevant units go first.",
            orders,
        )
    if not by_share.is_empty():
        yield MarkedTable(
            "accuracy_by_share",
            "Accuracy in per cent by the share of units removed, with intervals over samples.",
            by_share.with_columns(pl.col("share") * 100),
            {"share": 0, "accuracy": 1, "low": 1, "high": 1},
            heads={"share": "removed, %", "accuracy": "accuracy, %"},
            hidden=("metric",),
        )
        yield _at_shares(by_share)
    if factor is not None:
        frame = pl.DataFrame(factor.rows(), infer_schema_length=None).with_columns(pl.col(pl.Null).cast(pl.Float64))
        yield MarkedTable(f"ranks_by_{factor.factor}", f"Ranks by {factor.factor}.", frame, {"rank": 1, "mean_rank": 2})
    for i, case in enumerate(along):
        rows = [{**case.key, **row} for row in case.by_checkpoint()]
        ranked = [dict(zip(case.methods, ranks.tolist(), strict=True)) for ranks in case.ranks]
        frame = pl.DataFrame([{**row, **r} for row, r in zip(rows, ranked, strict=True)], infer_schema_length=None)
        caption = f"Ranks along {case.training} on {case.data}, {case.metric}."
        yield MarkedTable(f"checkpoints_{i + 1}", caption, frame, dict.fromkeys(case.methods, 1))


def _at_shares(by_share: pl.DataFrame) -> MarkedTable:
    """A row per case and method, a column per share."""
    keys = ["model", "data", "protocol", "method"]
    shares = by_share["share"].unique().sort().to_list()
    wide = by_share.pivot("share", index=keys, values="accuracy", maintain_order=True)
    heads = {str(share): f"{100 * share:.3g} %" for share in shares}
    frame = wide.select(*keys, *(pl.col(old).alias(new) for old, new in heads.items()))
    caption = "Accuracy in per cent after the share of units at the head of each column was removed."
    return MarkedTable("accuracy_at_shares", caption, frame, dict.fromkeys(heads.values(), 0))


AGREEMENTS = {
    "kendall_w": "Kendall's W",
    "tau": "mean Kendall's τ",
    "spearman": "mean Spearman's ρ",
    "top": "same best method",
    "bottom": "same worst method",
    "morf_lerf_tau": "MoRF and LeRF, τ",
}
"""What the numbers over all cases are called."""


def _agreement(agreement: stats.MetaAgreement, cases: int) -> MarkedTable:
    """Every number with both intervals; columns of those that nothing has are left out."""
    rows = [
        {
            "measure": AGREEMENTS[name],
            **between.record("value"),
            "samples_low": within.low,
            "samples_high": within.high,
        }
        for name, (between, within) in agreement.measures.items()
    ]
    frame = pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.col(pl.Null).cast(pl.Float64))
    empty = [n for n in frame.columns[2:] if frame[n].null_count() == frame.height]
    return MarkedTable(
        "agreement",
        f"Agreement of {counted(cases, 'case')}.",
        frame,
        heads={
            "value_low": "low, models and data",
            "value_high": "high, models and data",
            "samples_low": "low, samples",
            "samples_high": "high, samples",
        },
        hidden=tuple(empty),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _case(case: stats.MetaCase) -> dict[str, object]:
    return {"model": case.model, "data": case.data, "protocol": case.protocol.name}


def _leaderboard(board: stats.MetaBoard, random: stats.CasesAgainstRandom) -> MarkedTable:
    frame = board.table().drop("tied", "tied_over")
    if random.tested:
        frame = frame.join(random.columns(board.methods), on="method", maintain_order="left")
    if board.kappa[0].low is None:
        frame = frame.drop("kappa_low", "kappa_high", "bradley_terry_low", "bradley_terry_high")
    if board.kappa_samples[0].low is None:
        frame = frame.drop("samples_low", "samples_high")
    highest = ("kappa", "bradley_terry", "mean_rank", "borda", "borda_share", "kemeny")
    best: set[Cell] = set()
    for column in highest:
        values = frame[column]
        top = values.min() if column in ("mean_rank", "kemeny") else values.max()
        best |= {(i, column) for i, value in enumerate(values) if value == top}
    tied = frozenset((i, "kappa") for i, t in enumerate(board.tied) if t)
    caption = f"Methods over {counted(board.of, 'case')}, best κ first."
    if tied:
        caption += f" Ties are over other {board.tied_over}."
    return MarkedTable(
        "leaderboard",
        caption,
        frame,
        {**dict.fromkeys(frame.columns, 2), "borda": 1, "first": 1, "last": 1},
        frozenset(best),
        tied,
        {
            "kappa": "κ",
            "kappa_low": "κ low, models and data",
            "kappa_high": "κ high, models and data",
            "samples_low": "κ low, samples",
            "samples_high": "κ high, samples",
            "bradley_terry": "Bradley–Terry",
            "bradley_terry_low": "BT low",
            "bradley_terry_high": "BT high",
            "mean_rank": "mean rank",
            "borda_share": "share won",
            "not_better": "not better than random",
            "tested": "tested against random",
        },
    )


def _wins(board: stats.MetaBoard) -> MarkedTable:
    rows = [
        {
            "method": a,
            **{
                b: None if i == k or not board.cases[i, k] else float(board.wins[i, k])
                for k, b in enumerate(board.methods)
            },
        }
        for i, a in enumerate(board.methods)
    ]
    schema = {"method": pl.String, **dict.fromkeys(board.methods, pl.Float64)}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    met = sorted({int(n) for n in board.cases.ravel() if n})
    if met == [board.of]:
        caption = f"In how many of {counted(board.of, 'case')} the row beats the column, ties half."
    else:
        caption = f"In how many of {counted(board.of, 'case')}, or of those after the slash where fewer rank both, the row beats the column, ties half."
    shown = {
        (i, b): won_of(float(board.wins[i, k]), int(board.cases[i, k]), board.of)
        for i, _ in enumerate(board.methods)
        for k, b in enumerate(board.methods)
        if i != k and board.cases[i, k]
    }
    return MarkedTable("wins", caption, frame, dict.fromkeys(board.methods, 1), shown=shown)


def won_of(won: float, met: int, of: int) -> str:
    """In how many cases one method beats another, with the number of cases that rank both where some do not.

    >>> won_of(2.5, 7, of=7), won_of(3, 4, of=7)
    ('2.5', '3/4')
    """
    return as_rank(won) if met == of else f"{as_rank(won)}/{met}"


def _scores(facts: Facts, table: stats.CaseTable, methods: Sequence[str]) -> MarkedTable:
    """Mean scores of every case; the best of each row in bold, those whose set of ranks holds rank 1 marked."""
    order = [table.methods.index(m) for m in methods]
    best: set[Cell] = set()
    tied: set[Cell] = set()
    rows = []
    for i, case in enumerate(table.cases):
        higher = facts.higher_is_better[case.protocol.name]
        better = "higher" if higher else "lower"
        unit = case.protocol.unit
        rows.append(
            {
                **_case(case),
                "samples": case.n,
                "better": f"{better}, {unit}" if unit else better,
                **{m: _known(table.means[i, k]) for m, k in zip(methods, order, strict=True)},
            }
        )
        ranks = table.ranks[i, order]
        first = min(r for r in ranks.tolist() if not math.isnan(r))
        best |= {(i, m) for m, r in zip(methods, ranks, strict=True) if r == first}
        ranked = [k for k, r in enumerate(ranks) if not math.isnan(r)]
        low, _ = stats.rank_sets(table.scores[i][[order[k] for k in ranked]], seed=0, resamples=1000, level=0.95)
        tied |= {(i, methods[k]) for k, at in zip(ranked, low, strict=True) if at == 1 and (i, methods[k]) not in best}
    frame = pl.DataFrame(rows, infer_schema_length=None)
    caption = "Mean scores of every case; areas under curves of accuracy in per cent."
    return MarkedTable("scores", caption, frame, dict.fromkeys(methods, 3), frozenset(best), frozenset(tied))
