"""What papers ask beyond their claims, answered as tables of one run, or of several side by side."""

from collections.abc import Sequence

import numpy as np
import polars as pl

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


def questions(paper: str, result: Result, evidence: Evidence, others: Sequence[Result] = ()) -> dict[str, pl.DataFrame]:
    """The tables that belong to a paper, by name; those without a row are left out.

    Args:
        paper: the name that users write.
        result: the run.
        evidence: of the run.
        others: further runs, for what is asked of several side by side.
    """
    if paper == "m4":
        found = _m4(result, evidence)
    elif paper == "idsds":
        found = _idsds(evidence)
    elif paper == "perturbation":
        found = _perturbation(result, others)
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


def _perturbation(result: Result, others: Sequence[Result]) -> dict[str, pl.DataFrame]:
    """Which perturbation separates methods from random and from each other, and how far maps disagree."""
    tables = []
    for run in (result, *others):
        found = separation(run.scores(), run.stats_facts)
        tables.append(found.select(pl.lit(run.name).alias("run"), pl.all()))
    pairs = [
        between_methods(list(samples.values())).select(pl.lit(model).alias("model"), pl.all())
        for model, samples in maps_by_sample(result).items()
    ]
    return {
        "separation": pl.concat(tables),
        "disagreement": pl.concat(pairs) if pairs else pl.DataFrame(),
    }


def disagreements(result: Result, most: int = MAPPED) -> dict[str, np.ndarray]:
    """Per model, the mean of 1 − Spearman between methods' maps, of each of some samples; controls are left out."""
    found: dict[str, np.ndarray] = {}
    for model, samples in maps_by_sample(result, most).items():
        values = [mean_disagreement(maps) for maps in samples.values() if len(maps) > 1]
        if values:
            found[model] = np.array(values)
    return found


def maps_by_sample(result: Result, most: int = MAPPED) -> Maps:
    """Stored maps by model, sample and method, of at most so many samples of each model; controls are left out."""
    found: Maps = {}
    controls = {m["name"] for m in result.facts["methods"] if m.get("control")}
    for section in result.sections:
        names = [s["name"] for s in section.manifest["samples"]][:most]
        for model in section.manifest["models"]:
            for method in (m["label"] for m in section.manifest["methods"] if m["label"] not in controls):
                for name in names:
                    values = section.map(model["name"], name, method)
                    if values is not None:
                        found.setdefault(model["name"], {}).setdefault(name, {})[method] = values
    return found


def _m4(result: Result, evidence: Evidence) -> dict[str, pl.DataFrame]:
    """M4's questions, asked of this run."""
    facts = result.facts
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
    device = str(facts["environment"].get("device", facts["environment"].get("machine", "")))
    return {
        "table1": wide(cells, list(parts)),
        "table2": costs(evidence.board, facts["peak_bytes"] or None, device),
        "metric_correlation": metric_correlation(cells, signs),
        "best_faithfulness": pl.concat(best) if best else pl.DataFrame(),
        "sensitivity": sensitivity(cells, signs),
        "overall": overall,
    }
