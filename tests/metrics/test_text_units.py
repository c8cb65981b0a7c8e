"""Metrics of texts on tokens, words or sentences: they see no more than the sum over each."""

from dataclasses import replace

import pytest
import torch

from heatcheck.core import catalogue
from heatcheck.metrics.pscore import UNITS_OF
from heatcheck.testing import check_metric
from heatcheck.testing.models import additive_text

MUTANTS = (
    (
        "metrics/base.py",
        "total = units.sum(self.sites())",
        "total = units.sum(self.sites().abs())",
        "test_only_the_sum_over_a_unit_counts",
    ),
    (
        "metrics/base.py",
        "if found.units == domain.resolve_units(usual) else found",
        "if found.units else found",
        "test_other_units_have_other_scores",
    ),
    (
        "metrics/base.py",
        'if self.units == SITE:\n            del known["params"]["units"]',
        'if self.units != SITE:\n            del known["params"]["units"]',
        "test_metrics_of_sites_keep_the_identity_that_they_had",
    ),
)
ON_UNITS = (
    *("morf", "lerf", "abpc", "infidelity", "sds", "synscore", "comprehensiveness", "sufficiency", "violation"),
    *("soft_comprehensiveness", "soft_sufficiency", "rationale_f1", "rationale_iou_f1", "rationale_auprc"),
)
"""What a text can be scored with on tokens, words and sentences, by name: none of them may lose its units."""
SITES_FIRST = (
    *("infidelity", "synscore", "pointing_game", "relevance_mass", "relevance_rank"),
    *("average_drop", "increase_in_confidence"),
)
"""Metrics that had no units once, and need nothing but maps."""
SITES_BEFORE = (*SITES_FIRST, "max_sensitivity", "avg_sensitivity", "local_lipschitz")
"""All metrics that had no units once."""


def having_units():
    """Every metric of texts that has units and needs nothing that these toys lack."""
    for id, entry in sorted(catalogue.entries("metric").items()):
        lacking = {"method", "label", "retraining", "models"} & set(entry.facts["needs"])
        if "units" in entry.params and "text" in entry.facts["on"] and not lacking:
            yield id


def read(toys):
    """Texts of four to nine tokens, two to a word and four to a sentence, with the first word marked."""
    model = toys.words(bent=True)
    batch = toys.sentences(model, (9, 6, 8))
    place = torch.arange(batch.x["ids"].shape[1]).expand(3, -1) - 1
    x = batch.x.replace(sentence=torch.where(batch.x["special"], -1, place // 4))
    mask = (x["word"] == 0) | (x["word"] == 2)
    return model, replace(batch, x=x, references=tuple({"mask": own} for own in mask))


@pytest.mark.parametrize("units", ["word", "sentence"])
@pytest.mark.parametrize("id", having_units())
def test_only_the_sum_over_a_unit_counts(toys, id, units):
    model, batch = read(toys)
    maps = toys.random_maps(model, batch, 2)
    unit = batch.x[units]
    first = (unit >= 0) & (unit != torch.cat([torch.full_like(unit[:, :1], -1), unit[:, :-1]], 1))
    gathered = []
    for a in maps.items:
        total = torch.zeros_like(a.values)
        for row in range(len(batch)):
            for at in torch.nonzero(first[row]).flatten().tolist():
                total[row, at] = a.values[row][unit[row] == unit[row, at]].sum()
        gathered.append(total)
    spec = f"{id}(units={units})"
    spread, at_the_start = (toys.score(spec, model, batch, m) for m in (maps, toys.maps_of(model, batch, *gathered)))
    assert spread.status == at_the_start.status
    assert torch.allclose(spread.value, at_the_start.value, atol=1e-9, equal_nan=True)
    assert units == "sentence" or "ok" in spread.status[0]


@pytest.mark.parametrize("id", ON_UNITS)
def test_what_a_text_is_scored_with_has_units(id):
    assert id in set(having_units())


def test_models_are_compared_on_words_and_sentences():
    """Two models cut a text into different tokens: `pscore` aligns what they have in common, under a name of its own."""
    assert set(UNITS_OF.values()) == {"word", "sentence"}
    assert {"sites", *UNITS_OF} < set(catalogue.find("metric", "pscore").choices["on"])


@pytest.mark.parametrize("id", [*SITES_FIRST, "sds", "abpc"])
def test_other_units_have_other_scores(toys, id):
    model, batch = read(toys)
    maps = toys.random_maps(model, batch, 8)
    tokens, words, sentences = (
        toys.score(f"{id}(units={units})", model, batch, maps).value for units in ("token", "word", "sentence")
    )
    assert not torch.equal(tokens[:, 0], words[:, 0]) and not torch.equal(words[:, 0], sentences[:, 0])


@pytest.mark.parametrize("id", SITES_BEFORE)
def test_metrics_of_sites_keep_the_identity_that_they_had(toys, id):
    """What was stored before they had units is found: neither their name nor their identity speaks of sites."""
    domain = toys.words().domain
    for spec in (id, f"{id}(units=token)", f"{id}(units=cell)"):
        own = toys.metric(spec).resolve(domain)
        assert "units" not in own.name and "units" not in own.identity()["params"]
    assert toys.metric(f"{id}(units=word)").resolve(domain).identity()["params"]["units"] == "word"


@pytest.mark.parametrize("units", ["word", pytest.param("sentence", marks=pytest.mark.slow)])
@pytest.mark.parametrize("id", sorted({*ON_UNITS, *SITES_BEFORE}))
def test_the_contract_holds_on_units(id, units):
    check_metric(f"{id}(units={units})", [additive_text(24)])
