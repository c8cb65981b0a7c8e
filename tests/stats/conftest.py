"""A scores table from a matrix, so that tests state numbers and nothing else."""

import numpy as np
import polars as pl
import pytest

SCHEMA = {
    "run": pl.String,
    "model": pl.String,
    "data": pl.String,
    "sample": pl.String,
    "target": pl.Int64,
    "method": pl.String,
    "metric": pl.String,
    "score": pl.Float64,
    "status": pl.String,
    "seconds": pl.Float64,
    "forwards": pl.Int64,
    "backwards": pl.Int64,
}


def build(scores, *, model="net", data="pics", metric="sds", status="undefined: constant map", **other):
    """`scores` maps a method to its numbers per sample; None becomes a row that is not ok."""
    rows = [
        {
            "run": "r",
            "model": model,
            "data": data,
            "sample": f"s{i:05d}",
            "target": 0,
            "method": method,
            "metric": metric,
            "score": None if value is None or np.isnan(value) else float(value),
            "status": status if value is None or np.isnan(value) else "ok",
            "seconds": 1.0,
            "forwards": 2,
            "backwards": 3,
        }
        | other
        for method, values in scores.items()
        for i, value in enumerate(values)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


@pytest.fixture(scope="session")
def long():
    return build
