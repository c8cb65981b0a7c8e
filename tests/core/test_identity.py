"""What decides a result changes its key; the way it is written does not."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.core.identity import canonical, digest, map_key
from heatcheck.testing import bag_of_words, gap_linear, linear

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


FACTS = {"model": "m", "sample": "s", "target": 3, "method": {"id": "saliency", "version": 1}, "seed": 0}


@pytest.mark.parametrize(
    ("field", "other"),
    [("model", "n"), ("sample", "t"), ("target", 4), ("method", {"id": "saliency", "version": 2}), ("seed", 1)],
)
def test_every_field_of_a_maps_key_counts(field, other):
    assert map_key(**FACTS) == map_key(**FACTS)
    assert map_key(**{**FACTS, field: other}) != map_key(**FACTS)


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
