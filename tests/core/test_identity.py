"""What decides a result changes its key; the way it is written does not."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.core import catalogue
from heatcheck.core.identity import canonical, digest
from heatcheck.core.types import Sample
from heatcheck.domain.image import ImageDomain
from heatcheck.run.lacking import context_of
from heatcheck.run.packing import map_row, score_row
from heatcheck.testing import bag_of_words, gap_linear, linear

MUTANTS = (
    (
        "run/lacking.py",
        'digest({"label": sample.label, "reference": plain(sample.reference)})',
        'digest({"reference": plain(sample.reference)})',
        "test_label_and_reference_are_what_a_score_is_compared_with",
    ),
    (
        "run/packing.py",
        "return f\"{sample['digest']}:{sample['target']}\"",
        "return f\"{sample['digest']}\"",
        "test_a_maps_row_is_its_sample_and_target",
    ),
    ("core/identity.py", "sort_keys=True", "sort_keys=False", "test_the_order_of_keys_does_not_matter"),
    (
        "domain/component.py",
        'return {"id": self.id, "version": version, "params": params}',
        'return {"id": self.id, "version": version}',
        "test_every_parameter_of_a_component_is_part_of_its_identity",
    ),
)

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), values, max_size=4))
def test_the_order_of_keys_does_not_matter(record):
    assert digest(record) == digest(dict(reversed(record.items())))


@given(values, values)
def test_equal_digests_mean_equal_text(a, b):
    assert (digest(a) == digest(b)) == (canonical(a) == canonical(b))


def test_known_digest():
    assert canonical({"b": [1, 2.5, None], "a": "é"}) == '{"a":"\\u00e9","b":[1,2.5,null]}'
    assert digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.mark.parametrize("bad", [math.nan, math.inf, object(), {1, 2}])
def test_what_has_no_canonical_form_is_refused(bad):
    with pytest.raises((ValueError, TypeError)):
        digest({"x": bad})


SAMPLE = {"digest": "s", "target": 3, "context": "c", "label": 1, "name": "cat"}


@pytest.mark.parametrize("changed", [{"digest": "t"}, {"target": 4}])
def test_a_maps_row_is_its_sample_and_target(changed):
    assert map_row({**SAMPLE, **changed}) != map_row(SAMPLE)


@pytest.mark.parametrize("changed", [{"digest": "t"}, {"target": 4}, {"context": "d"}])
def test_a_scores_row_is_its_sample_target_and_what_it_is_compared_with(changed):
    assert score_row({**SAMPLE, **changed}) != score_row(SAMPLE)


def test_a_samples_name_is_no_part_of_a_row():
    renamed = {**SAMPLE, "name": "dog"}
    assert (map_row(renamed), score_row(renamed)) == (map_row(SAMPLE), score_row(SAMPLE))


@pytest.mark.parametrize(
    "changed", [{"label": 2}, {"label": None}, {"reference": {"mask": torch.zeros(2, 2)}}, {"reference": {}}]
)
def test_label_and_reference_are_what_a_score_is_compared_with(changed):
    sample = Sample("cat", "s", None, 1, {"mask": torch.ones(2, 2)})
    assert context_of(replace(sample, **changed)) != context_of(sample)
    assert context_of(replace(sample, name="dog", content="other")) == context_of(sample)


@pytest.mark.parametrize("other", ["smoothgrad(samples=4)", "smoothgrad(of=input_x_gradient)", "smoothgrad(sigma=0.1)"])
def test_every_parameter_of_a_component_is_part_of_its_identity(other):
    plain, changed = (catalogue.build("method", spec).resolve(ImageDomain()) for spec in ("smoothgrad", other))
    assert digest(plain.identity()) != digest(changed.identity())
    assert digest(plain.identity()) == digest(catalogue.build("method", plain.name).identity())


def test_a_models_identity_is_its_weights_architecture_and_dtype():
    assert gap_linear().identity == gap_linear().identity
    double = gap_linear()
    others = [
        gap_linear(seed=1),
        gap_linear(classes=4),
        linear(),
        bag_of_words(),
        double.with_network(lambda net: net.float(), "gap_linear"),
    ]
    assert len({m.identity for m in (double, *others)}) == 6


def test_a_models_name_is_not_part_of_its_identity():
    assert gap_linear().with_network(lambda net: net, "another name").identity == gap_linear().identity


def test_a_randomised_model_is_another():
    model = gap_linear()
    one, two = model.randomised("0", 1), model.randomised("0", 2)
    assert len({model.identity, one.identity, two.identity}) == 3
    assert model.randomised("0", 1).identity == one.identity
