"""The tables of a ranking over cases, with the best and the tied marked."""

import math
from collections.abc import Iterator, Sequence

import polars as pl

from heatcheck import stats
from heatcheck.report.tables import Cell, MarkedTable
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
) -> Iterator[MarkedTable]:
    """All tables: leaderboard, wins, scores and ranks by case, agreement, removal orders, ranks by factor and checkpoint."""
    methods = board.methods
    yield _leaderboard(board)
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
    coefficients = {
        "Kendall's W": agreement.w,
        "Kendall's W (interval over samples)": agreement.w_samples,
        "mean Kendall's τ": agreement.tau,
        "mean Spearman's ρ": agreement.rho,
        "same best method": agreement.top,
        "same worst method": agreement.bottom,
        "MoRF and LeRF, τ": agreement.order_tau,
    }
    rows = [{"measure": name, **c.record("value")} for name, c in coefficients.items()]
    yield MarkedTable(
        "agreement",
        f"Agreement of {counted(len(table.cases), 'case')}.",
        pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.col(pl.Null).cast(pl.Float64)),
        heads={"value_low": "low", "value_high": "high"},
    )
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
    if factor is not None:
        frame = pl.DataFrame(factor.rows(), infer_schema_length=None).with_columns(pl.col(pl.Null).cast(pl.Float64))
        yield MarkedTable(f"ranks_by_{factor.factor}", f"Ranks by {factor.factor}.", frame, {"rank": 1, "mean_rank": 2})
    for i, case in enumerate(along):
        rows = [{**case.key, **row} for row in case.by_checkpoint()]
        ranked = [dict(zip(case.methods, ranks.tolist(), strict=True)) for ranks in case.ranks]
        frame = pl.DataFrame([{**row, **r} for row, r in zip(rows, ranked, strict=True)], infer_schema_length=None)
        caption = f"Ranks along {case.training} on {case.data}, {case.metric}."
        yield MarkedTable(f"checkpoints_{i + 1}", caption, frame, dict.fromkeys(case.methods, 1))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _case(case: stats.MetaCase) -> dict[str, object]:
    return {"model": case.model, "data": case.data, "protocol": case.protocol.name}


def _leaderboard(board: stats.MetaBoard) -> MarkedTable:
    frame = board.table().drop("tied")
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
    return MarkedTable(
        "leaderboard",
        f"Methods over {counted(board.of, 'case')}, best κ first.",
        frame,
        {**dict.fromkeys(frame.columns, 2), "borda": 1, "first": 1, "last": 1},
        frozenset(best),
        tied,
        {
            "kappa": "κ",
            "kappa_low": "κ low",
            "kappa_high": "κ high",
            "samples_low": "κ low, samples",
            "samples_high": "κ high, samples",
            "bradley_terry": "Bradley–Terry",
            "bradley_terry_low": "BT low",
            "bradley_terry_high": "BT high",
            "mean_rank": "mean rank",
            "borda_share": "share won",
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
    caption = f"In how many of {counted(board.of, 'case')} the row beats the column, ties half."
    return MarkedTable("wins", caption, frame, dict.fromkeys(board.methods, 1))


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
