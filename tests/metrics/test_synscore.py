"""Agreement with a mask, against scikit-learn."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn import metrics as sk

from heatcheck.core.spec import SpecError
from heatcheck.core.types import NotApplicable
from heatcheck.metrics.synscore import average_precision, roc_auc

MUTANTS = (
    ("metrics/synscore.py", 'if self.kind == "auc" else', 'if self.kind == "ap" else', "test_known_answers"),
    ("metrics/synscore.py", "ranks - p * (p + 1) / 2", "ranks - p * p / 2", "test_known_answers"),
    ("metrics/synscore.py", "(gained * precision).sum()", "precision.sum()", "test_known_answers"),
    ("metrics/synscore.py", "ordered[1:] != ordered[:-1]", "ordered[1:] == ordered[1:]", "test_known_answers"),
    (
        "metrics/localisation.py",
        "moved(CPU, maps.on(units), ",
        'moved(CPU, maps.on(units, "mean"), ',
        "test_on_words_and_sentences_it_is_that_of_their_sums",
    ),
    (
        "metrics/localisation.py",
        "units_inside(self.region(mask.reshape(shape)), units, i)",
        "~units_inside(~self.region(mask.reshape(shape)), units, i)",
        "test_a_planted_word_counts_once",
    ),
)


def slow_auc(values, inside):
    """The share of pairs, one site inside and one outside, that the map puts in the right order."""
    pairs = [(a, b) for a in values[inside] for b in values[~inside]]
    return sum((a > b) + 0.5 * (a == b) for a, b in pairs) / len(pairs)


def slow_ap(values, inside):
    """Precision at each threshold, weighted by the recall gained there."""
    area = recall = 0.0
    for threshold in sorted(set(values.tolist()), reverse=True):
        shown = values >= threshold
        hits = (shown & inside).sum()
        area += (hits / inside.sum() - recall) * hits / shown.sum()
        recall = hits / inside.sum()
    return area


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


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("kind", "slow"), [("auc", slow_auc), ("ap", slow_ap)])
@pytest.mark.parametrize("on", ["image", "text"])
def test_agrees_with_the_definition(toys, on, kind, slow, ties):
    model, batch = toys.stage(on)
    free = model.domain.deletable(batch.x)
    rng = torch.Generator().manual_seed(2)
    batch = with_masks(batch, list(torch.rand(*free.shape, generator=rng) < 0.4))
    maps = toys.random_maps(model, batch, 3, ties=ties)
    scores = toys.score(f"synscore(kind={kind})", model, batch, maps)
    assert scores.status == (("ok",) * 3,) * 3
    for j in range(3):
        for i in range(3):
            values, inside = maps.sites()[j, i, free[i]].numpy(), batch.references[i]["mask"][free[i]].numpy()
            assert scores.value[j, i] == pytest.approx(slow(values, inside), abs=1e-9)


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


def test_m4s_square_is_a_fourteenth_of_the_picture():
    """A random map's average precision is about the prevalence, 3600 / 50176 = 0.0717; its AUC a half."""
    inside = torch.zeros(224, 224, dtype=torch.bool)
    inside[100:160, 30:90] = True
    prevalence = float(inside.double().mean())
    assert prevalence == pytest.approx(0.0717, abs=5e-5)
    values = torch.rand(224 * 224, generator=torch.Generator().manual_seed(0))
    assert float(roc_auc(values, inside.flatten())) == pytest.approx(0.5, abs=0.015)
    assert float(average_precision(values, inside.flatten())) == pytest.approx(prevalence, abs=0.004)
    flat = torch.ones(224 * 224)
    assert float(roc_auc(flat, inside.flatten())) == 0.5
    assert float(average_precision(flat, inside.flatten())) == pytest.approx(prevalence, abs=1e-12)
    quarter = torch.nn.functional.avg_pool2d(inside.double()[None, None], 32)
    bled = torch.nn.functional.interpolate(quarter, (224, 224), mode="bilinear", align_corners=False).flatten()
    assert 0.9 < float(roc_auc(bled, inside.flatten())) < 1, "a coarse map bleeds over the border"


@settings(max_examples=15, deadline=None)
@given(values=st.lists(st.integers(-3, 3), min_size=36, max_size=36))
def test_increasing_changes_keep_both_and_negation_mirrors_the_auc(toys, values):
    """X2."""
    model = toys.bent()
    batch = with_masks(toys.pictures(model, 1), [torch.eye(6, dtype=torch.bool)])
    a = torch.tensor(values, dtype=torch.float64).reshape(1, 6, 6)
    maps = toys.maps_of(model, batch, a, torch.exp(a) - 5, -a)
    for kind in ("auc", "ap"):
        plain, bent, negated = toys.score(f"synscore(kind={kind})", model, batch, maps).value[:, 0].tolist()
        assert plain == bent and 0 <= plain <= 1
        assert kind == "ap" or negated == pytest.approx(1 - plain, abs=1e-12)


def test_an_unknown_kind_is_refused_as_a_metrics(toys):
    with pytest.raises(SpecError, match="metric synscore: kind='f1' is not one of auc, ap"):
        toys.metric("synscore(kind=f1)")


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
        "undefined: the mask is empty",
        "skipped: synscore needs a reference 'mask', and none was given (docs/references.md says how to add one)",
        "undefined: the mask has 25 sites, the input 36",
        "ok",
    )
    assert scores.value[0].isnan().tolist() == [True, True, True, False]
    with pytest.raises(NotApplicable, match="needs a reference 'mask'"):
        toys.score("synscore", model, batch.take([1]), toys.random_maps(model, batch.take([1]), 1))


# -- units -------------------------------------------------------------------------------------------------------


def in_words(toys, words, **other):
    """A text whose tokens belong to the given words; a sentence has two words."""
    model = toys.words()
    batch = toys.sentences(model, (len(words),), **other)
    word = torch.tensor([[-1, *words, -1]])
    return model, replace(batch, x=batch.x.replace(word=word, sentence=torch.where(word < 0, -1, word // 2)))


@pytest.mark.parametrize(("kind", "slow"), [("auc", slow_auc), ("ap", slow_ap)])
@pytest.mark.parametrize("units", ["word", "sentence"])
def test_on_words_and_sentences_it_is_that_of_their_sums(toys, units, kind, slow):
    model, batch = in_words(toys, [0, 0, 0, 1, 2, 2, 3, 4, 4, 4, 4, 5, 6, 6, 7])
    number = batch.x[units][0]
    for seed in range(3):
        mask = torch.rand(17, generator=torch.Generator().manual_seed(seed)) < 0.2
        own = with_masks(batch, [mask])
        maps = toys.random_maps(model, own, 2, seed=seed)
        got = toys.score(f"synscore(kind={kind}, units={units})", model, own, maps)
        every = range(int(number.max()) + 1)
        inside = np.array([any(mask[t] for t in range(17) if number[t] == u) for u in every])
        for j in range(2):
            heat = maps.items[j].values[0].tolist()
            sums = np.array([sum(heat[t] for t in range(17) if number[t] == u) for u in every])
            assert got.value[j, 0] == pytest.approx(slow(sums, inside), abs=1e-12)


def test_a_planted_word_counts_once(toys):
    """Three pieces of which the map finds one: a third of the marked tokens, but all of the marked words."""
    model, batch = in_words(toys, [0, 1, 2, 2, 2, 3])
    batch = with_masks(batch, [batch.x["word"][0] == 2])
    heat = torch.tensor([[0.0, 1, 1, 5, 0, 0, 1, 0]], dtype=torch.float64)
    maps = toys.maps_of(model, batch, heat)
    by_token, by_word = (float(toys.score(s, model, batch, maps).value) for s in ("synscore", "synscore(units=word)"))
    assert by_token == pytest.approx(1 / 3) and by_word == 1
    first = with_masks(batch, [torch.arange(8) == 3])
    assert float(toys.score("synscore(units=word)", model, first, maps).value) == 1, "one piece marks the word"


def test_words_of_one_token_are_tokens(toys):
    model, batch = in_words(toys, list(range(7)))
    batch = with_masks(batch, [torch.arange(9) % 3 == 1])
    maps = toys.random_maps(model, batch, 3)
    for kind in ("auc", "ap"):
        tokens, words = (
            toys.score(f"synscore(kind={kind}{u})", model, batch, maps).value for u in ("", ", units=word")
        )
        assert torch.equal(tokens, words)
