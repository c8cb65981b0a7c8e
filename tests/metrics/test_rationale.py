"""Maps against marked tokens, against scikit-learn and known answers."""

from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from heatcheck.core.types import NotApplicable

MUTANTS = (
    (
        "metrics/rationale.py",
        "2 * top_hits(values, inside, k)",
        "2 * top_hits(-values, inside, k)",
        "test_known_answers",
    ),
    (
        "metrics/rationale.py",
        "return average_precision(values, inside)",
        "return average_precision(-values, inside)",
        "test_known_answers",
    ),
    (
        "metrics/localisation.py",
        "probe.units(self.units, batch)",
        'probe.units("site", batch)',
        "test_words_carry_the_sum_of_their_tokens_and_are_marked_by_one_of_them",
    ),
)
BOTH = ("rationale_f1", "rationale_auprc")


def slow_f1(values, marked):
    """F1 of the top tokens, as many as are marked, for every order in which equal ones may be taken."""
    k = int(marked.sum())
    found = []
    for order in permutations(range(len(values))):
        if all(values[a] >= values[b] for a, b in pairwise(order)):
            picked = np.zeros(len(values), dtype=bool)
            picked[list(order[:k])] = True
            found.append(sk.f1_score(marked, picked))
    return np.mean(found)


def slow_auprc(values, marked):
    return sk.average_precision_score(marked, values)


SLOW = dict(zip(BOTH, (slow_f1, slow_auprc), strict=True))


def marked(toys, seed=0, lengths=(4, 6, 3, 5)):
    """Texts with a rationale each: at least one token, never all of them."""
    model = toys.words()
    batch = toys.sentences(model, lengths)
    rng = torch.Generator().manual_seed(seed)
    masks = []
    for n in lengths:
        picked = 1 + torch.randperm(n, generator=rng)[: 1 + int(torch.randint(0, n - 1, (1,), generator=rng))]
        mask = torch.zeros(batch.x["ids"].shape[1], dtype=torch.bool)
        mask[picked] = True
        masks.append(mask)
    return model, replace(batch, references=tuple({"mask": m} for m in masks))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("id", BOTH)
def test_agrees_with_the_definition_on_tokens(toys, id, ties):
    model, batch = marked(toys)
    maps = toys.random_maps(model, batch, 4, ties=ties)
    got = toys.score(id, model, batch, maps).value
    for j in range(4):
        for i in range(4):
            free = ~batch.x["special"][i]
            values, truth = maps.items[j].values[i, free].numpy(), batch.references[i]["mask"][free].numpy()
            assert got[j, i] == pytest.approx(SLOW[id](values, truth), abs=1e-9)


@pytest.mark.parametrize("id", BOTH)
def test_words_carry_the_sum_of_their_tokens_and_are_marked_by_one_of_them(toys, id):
    model, batch = marked(toys, seed=2)
    maps = toys.random_maps(model, batch, 4)
    scores = toys.score(f"{id}(units=word)", model, batch, maps)
    compared = 0
    for i in range(4):
        word = batch.x["word"][i].numpy()
        truth = np.array([batch.references[i]["mask"].numpy()[word == w].any() for w in range(word.max() + 1)])
        for j in range(4):
            values = np.array([maps.items[j].values[i].numpy()[word == w].sum() for w in range(word.max() + 1)])
            if truth.all():
                assert scores.status[j][i] == "undefined: the mask covers everything"
            else:
                assert scores.value[j, i] == pytest.approx(SLOW[id](values, truth), abs=1e-9)
                compared += 1
    assert compared >= 8


@pytest.mark.parametrize("id", BOTH)
def test_known_answers(toys, id):
    """X4, X5: the rationale itself scores 1, a constant map the rationale's share, for any length of text."""
    model, batch = marked(toys)
    right = torch.stack([r["mask"] for r in batch.references]).double()
    got = toys.score(id, model, batch, toys.maps_of(model, batch, right, torch.ones_like(right))).value
    share = right.sum(1) / (~batch.x["special"]).sum(1)
    assert torch.allclose(got, torch.stack([torch.ones(4, dtype=torch.float64), share]), atol=1e-12)


def test_random_maps_score_the_share_and_less_than_the_truth(toys):
    model, batch = marked(toys, lengths=(6,))
    share = float(batch.references[0]["mask"].sum()) / 6
    got = toys.score("rationale_f1", model, batch, toys.random_maps(model, batch, 400)).value
    assert float(got.mean()) == pytest.approx(share, abs=4 * float(got.std()) / 400**0.5)
    assert float(got.min()) >= 0 and float(got.max()) <= 1


def test_as_many_tokens_as_are_marked_makes_precision_recall_and_rank_accuracy_one_number(toys):
    model, batch = marked(toys)
    maps = toys.random_maps(model, batch, 3)
    f1, rank = (toys.score(id, model, batch, maps).value for id in ("rationale_f1", "relevance_rank"))
    assert torch.equal(f1, rank)


@settings(max_examples=10, deadline=None)
@given(values=st.lists(st.integers(-3, 3), min_size=8, max_size=8))
def test_increasing_changes_of_the_map_change_nothing(toys, values):
    """X2."""
    model, batch = marked(toys, lengths=(6,))
    a = torch.tensor([values], dtype=torch.float64)
    for id in BOTH:
        plain, bent = toys.score(id, model, batch, toys.maps_of(model, batch, a, a**3 + 2 * a - 1)).value[:, 0].tolist()
        assert plain == bent


@pytest.mark.parametrize("id", BOTH)
def test_rationales_that_say_nothing_are_reasons(toys, id):
    model, batch = marked(toys)
    none, every = torch.zeros_like(batch.x["special"][0]), ~batch.x["special"][1]
    batch = replace(batch, references=({"mask": none}, {"mask": every}, {}, batch.references[3]))
    assert toys.score(id, model, batch, toys.random_maps(model, batch, 1)).status[0] == (
        "undefined: the mask is empty",
        "undefined: the mask covers everything",
        f"skipped: {id} needs a reference 'mask', and none was given (docs/references.md says how to add one)",
        "ok",
    )


@pytest.mark.parametrize("id", BOTH)
def test_only_texts_have_rationales(toys, id):
    model, batch = toys.stage("image")
    with pytest.raises(NotApplicable, match="defined for text, not for image"):
        toys.score(id, model, batch, toys.random_maps(model, batch, 1))
    model, batch = marked(toys)
    with pytest.raises(NotApplicable, match=r"units='grid\(2\)' do not exist for a text"):
        toys.score(f"{id}(units=grid(2))", model, batch, toys.random_maps(model, batch, 1))
