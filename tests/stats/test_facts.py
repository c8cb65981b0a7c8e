"""What statistics need to know about a run, from its record."""

import pytest

from heatcheck.stats import Facts, outside_mean_rank

MUTANTS = (
    ('stats/facts.py', 'm["better"] == "higher"', 'm["better"] != "higher"', 'test_facts_of_a_run'),
    ('stats/facts.py', 'return 1.0 if self.higher_is_better', 'return -1.0 if self.higher_is_better', 'test_the_sign_is_the_direction'),
    ('stats/facts.py', 'families.keys() - found - of_model', 'families.keys() - found', 'test_metrics_of_form_and_sanity_do_not_count'),
)  # fmt: skip

RUN = {
    "methods": [
        {"name": "saliency", "id": "saliency"},
        {"name": "sobel", "id": "sobel", "control": True},
        {"name": "noise", "id": "random", "control": True},
    ],
    "metrics": [
        {"name": "sds", "better": "higher", "family": "deletion"},
        {"name": "morf", "better": "lower", "family": "deletion"},
        {"name": "sparseness", "better": "higher", "family": "form"},
        {"name": "accuracy", "better": "higher", "family": "model", "invariant": ["map"]},
    ],
    "circular": [["occlusion", "sds"]],
}


def test_facts_of_a_run():
    facts = Facts.of(RUN)
    assert facts.higher_is_better == {"sds": True, "morf": False, "sparseness": True, "accuracy": True}
    assert facts.controls == {"sobel", "noise"} and facts.random == "noise"
    assert facts.circular == {("occlusion", "sds")}
    assert facts.of_model == {"accuracy"} and facts.outside_mean_rank == {"sparseness"}
    assert Facts.of({}) == Facts({})
    assert Facts.of({"paper": True}).paper and not facts.paper


def test_random_by_name_goes_before_random_by_id():
    methods = [{"name": "noise", "id": "random"}, {"name": "random", "id": "random"}]
    assert Facts.of({"methods": methods}).random == "random"


def test_the_sign_is_the_direction():
    facts = Facts.of(RUN)
    assert (facts.sign("sds"), facts.sign("morf")) == (1, -1)
    with pytest.raises(ValueError, match="no direction for metric 'iou'"):
        facts.sign("iou")


def test_random_is_a_control():
    facts = Facts({}, controls=frozenset({"sobel"}))
    assert facts.is_control("random") and facts.is_control("sobel") and not facts.is_control("saliency")


def test_metrics_of_form_and_sanity_do_not_count():
    families = {"sds": "deletion", "sparseness": "form", "mprt": "sanity", "old": None}
    assert outside_mean_rank(families) == {"sparseness", "mprt"}
    assert outside_mean_rank({"sparseness": "form", "mprt": "sanity"}) == frozenset()
    assert outside_mean_rank({"sparseness": "form", "part": "deletion"}, frozenset({"part"})) == frozenset()
    assert outside_mean_rank({}) == frozenset()
