"""What papers ask beyond their claims, answered as tables of one run, or of several side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from heatcheck.api.joined_runs import JoinedRuns
from heatcheck.api.result import Result
from heatcheck.stats.disagreement import between_methods, mean_disagreement
from heatcheck.stats.evidence import Evidence, NotTestable
from heatcheck.stats.factors import along_factors, best_and_accuracy, stability
from heatcheck.stats.m4 import best_faithfulness, costs, metric_correlation, overall_score, sensitivity, wide
from heatcheck.stats.model_by_method import M4_PARTS, model_by_method
from heatcheck.stats.separation import separation

MAPPED = 64
"""Samples per model whose maps are compared."""

Maps = dict[str, dict[str, dict[str, np.ndarray]]]
"""Stored maps by model, sample and method."""


def questions(paper: str, evidence: Evidence, runs: Sequence[Result], maps: Maps) -> dict[str, pl.DataFrame]:
    """The tables that belong to a paper, by name; those without a row are left out.

    Args:
        paper: the name that users write.
        evidence: of the runs.
        runs: for what is asked of them side by side.
        maps: what `maps_by_sample` returned.
    """
    if paper == "m4":
        found = _m4(evidence)
    elif paper == "idsds":
        found = _idsds(evidence)
    elif paper == "perturbation":
        found = _perturbation(runs, maps)
    else:
        found = {}
    return {name: table for name, table in found.items() if table.height}


def _idsds(evidence: Evidence) -> dict[str, pl.DataFrame]:
    """Models along what they differ in and beside their accuracy, and how stable rankings are."""
    try:
        metric, _, _ = evidence.single_deletion()
    except NotTestable:
        return {}
    found = {"accuracy": best_and_accuracy(evidence, metric)}
    if evidence.scores["data"].n_unique() == 1:
        found |= {"factors": along_factors(evidence, metric), "stability": stability(evidence)}
    return found


def _perturbation(runs: Sequence[Result], maps: Maps) -> dict[str, pl.DataFrame]:
    """Which perturbation separates methods from random and from each other, and how far maps disagree."""
    tables = []
    for run in runs:
        found = separation(run.scores(), run.stats_facts)
        tables.append(found.select(pl.lit(run.name).alias("run"), pl.all()))
    pairs = [
        between_methods(list(samples.values())).select(pl.lit(model).alias("model"), pl.all())
        for model, samples in maps.items()
    ]
    return {
        "separation": pl.concat(tables),
        "disagreement": pl.concat(pairs) if pairs else pl.DataFrame(),
    }


def disagreements(maps: Maps) -> dict[str, np.ndarray]:
    """Per model, the mean of 1 − Spearman between methods' maps, of each sample."""
    found: dict[str, np.ndarray] = {}
    for model, samples in maps.items():
        values = [mean_disagreement(of) for of in samples.values() if len(of) > 1]
        if values:
            found[model] = np.array(values)
    return found


def maps_by_sample(runs: Sequence[Result], joined: JoinedRuns | None = None, most: int = MAPPED) -> Maps:
    """Stored maps by model, sample and method, of at most so many samples of each model; controls are left out.

    Args:
        runs: whose maps; of a model that several have, the first that keeps some.
        joined: the same runs, whose names models get; None for one run.
        most: samples per model.
    """
    found: Maps = {}
    for i, run in enumerate(runs):
        own: Maps = {}
        controls = {m["name"] for m in run.facts["methods"] if m.get("control")}
        for section in run.sections:
            names = [s["name"] for s in section.manifest["samples"]][:most]
            for model in (m["name"] for m in section.manifest["models"]):
                shown = joined.models[joined.names[i], model] if joined else model
                for method in (m["label"] for m in section.manifest["methods"] if m["label"] not in controls):
                    for name in names:
                        values = section.map(model, name, method)
                        if values is not None:
                            own.setdefault(shown, {}).setdefault(name, {})[method] = values
        found |= {model: samples for model, samples in own.items() if model not in found}
    return found


def device_of(numerics: Mapping[str, Any]) -> str:
    """Where a model computed, from its record: the name of a GPU behind its number.

    >>> device_of({"device": "cuda:0", "capability": "NVIDIA A100"}), device_of({"device": "cpu", "capability": "x86_64"})
    ('cuda:0 (NVIDIA A100)', 'cpu')
    """
    device, name = str(numerics.get("device", "")), str(numerics.get("capability", ""))
    return f"{device} ({name})" if device.startswith("cuda") and name else device


def _m4(evidence: Evidence) -> dict[str, pl.DataFrame]:
    """M4's questions, asked of runs."""
    facts = evidence.run
    parts = {m["name"]: m["id"] for m in facts["metrics"] if m["id"] in M4_PARTS}
    cells = model_by_method(evidence.board, evidence.facts, facts["skipped"])
    signs = {name: evidence.facts.sign(name) for name in parts}
    overall = overall_score(cells, signs)
    modality = {m["name"]: m["modality"] for m in facts["models"]}
    best = [
        best_faithfulness(overall.filter(pl.col("model").is_in([m for m in modality if modality[m] == kind]))).select(
            pl.lit(str(kind)).alias("modality"), pl.all()
        )
        for kind in dict.fromkeys(modality.values())
    ]
    peaks = facts.get("peaks") or dict.fromkeys(modality, facts["peak_bytes"])
    devices = {model: device_of(numerics) for model, numerics in facts["numerics"].items()}
    return {
        "table1": wide(cells, list(parts)),
        "table2": costs(evidence.board, peaks, devices),
        "metric_correlation": metric_correlation(cells, signs),
        "best_faithfulness": pl.concat(best) if best else pl.DataFrame(),
        "sensitivity": sensitivity(cells, signs),
        "overall": overall,
    }
