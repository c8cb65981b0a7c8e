"""Agreement with a mask, against scikit-learn."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn import metrics as sk

from heatcheck.metrics.synscore import average_precision, roc_auc
from heatcheck.types import NotApplicable


@settings(deadline=None)
@given(
    st.integers(2, 30).flatmap(
        lambda n: st.tuples(
            hnp.arrays(np.float64, n, elements=st.one_of(st.integers(-2, 2).map(float), st.floats(-1, 1))),
            hnp.arrays(np.bool_, n).filter(lambda y: 0 < y.sum() < len(y)),
        )
    )
)
def test_both_kinds_are_scikit_learns(pair):
    values, inside = pair
    own = torch.from_numpy(values), torch.from_numpy(inside)
    assert float(roc_auc(*own)) == pytest.approx(sk.roc_auc_score(inside, values), abs=1e-12)
    assert float(average_precision(*own)) == pytest.approx(sk.average_precision_score(inside, values), abs=1e-12)


def with_masks(batch, masks):
    return replace(batch, references=tuple({} if m is None else {"mask": m} for m in masks))


def test_known_answers(toys):
    """X4, X5: the mask itself, a constant map, and a negated one."""
    model = toys.bent()
    batch = toys.pictures(model, 2)
    mask = torch.zeros(6, 6, dtype=torch.bool)
    mask[1:4, 2:5] = True
    batch = with_masks(batch, [mask, mask])
    right = mask.double().expand(2, 6, 6)
    maps = toys.maps_of(model, batch, right, torch.ones(2, 6, 6), -right)
    assert toys.score("synscore", model, batch, maps).value.tolist() == [[1.0, 1.0], [0.5, 0.5], [0.0, 0.0]]
    ap = toys.score("synscore(kind=ap)", model, batch, maps).value
    assert ap[:2].tolist() == [[1.0, 1.0], [0.25, 0.25]]


def test_a_map_of_any_resolution_is_carried_to_sites(toys):
    model = toys.bent()
    batch = with_masks(toys.pictures(model, 1), [torch.eye(6, dtype=torch.bool)])
    maps = toys.random_maps(model, batch, 2, shape=(3, 3))
    got = toys.score("synscore", model, batch, maps).value
    for j in range(2):
        assert got[j, 0] == pytest.approx(sk.roc_auc_score(np.eye(6).ravel(), maps.sites()[j, 0].numpy()), abs=1e-12)


def test_random_maps_are_right_half_the_time(toys):
    model = toys.bent()
    batch = toys.pictures(model, 1)
    mask = torch.rand(6, 6, generator=torch.Generator().manual_seed(0)) < 0.4
    batch = with_masks(batch, [mask])
    got = toys.score("synscore", model, batch, toys.random_maps(model, batch, 300)).value
    assert float(got.mean()) == pytest.approx(0.5, abs=4 * float(got.std()) / 300**0.5)


def test_special_tokens_do_not_count(toys):
    model = toys.words()
    batch = toys.sentences(model, (4,))
    mask = torch.tensor([[True, True, False, True, False, True]])[0]
    batch = with_masks(batch, [mask])
    maps = toys.random_maps(model, batch, 3)
    got = toys.score("synscore", model, batch, maps).value
    for j in range(3):
        own = maps.items[j].values[0, 1:5].numpy()
        assert got[j, 0] == pytest.approx(sk.roc_auc_score(mask[1:5].numpy(), own), abs=1e-12)


def test_masks_that_say_nothing_are_reasons(toys):
    model = toys.bent()
    batch = toys.pictures(model, 4)
    some = torch.zeros(6, 6, dtype=torch.bool)
    batch = with_masks(batch, [some, None, torch.eye(5, dtype=torch.bool), torch.eye(6, dtype=torch.bool)])
    scores = toys.score("synscore", model, batch, toys.random_maps(model, batch, 1))
    assert scores.status[0] == (
        "undefined: the mask holds everything or nothing",
        "skipped: synscore needs a reference 'mask', and none was given",
        "undefined: the mask has 25 sites, the input 36",
        "ok",
    )
    assert scores.value[0].isnan().tolist() == [True, True, True, False]
    with pytest.raises(NotApplicable, match="needs a reference 'mask'"):
        toys.score("synscore", model, batch.take([1]), toys.random_maps(model, batch.take([1]), 1))
