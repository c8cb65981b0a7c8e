"""Partition SHAP, against Owen's values over a tree written out by hand, and by its laws."""

import itertools
import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Streams
from heatcheck.domain.base import Units
from heatcheck.methods.partition_shap import contexts, halve, places, price, tree
from heatcheck.testing.models import additive, additive_text, one_head_attention
from heatcheck.testing.scenes import batch_of, probe_for, toy_batch

MUTANTS = (
    (
        "methods/partition_shap.py",
        "(paths[i].high - paths[i].low).mean(1)",
        "(paths[i].high - paths[i].low)[:, 0]",
        "test_the_whole_tree_gives_owens_values",
    ),
    (
        "methods/partition_shap.py",
        "gain / group.bincount(minlength=len(gain))",
        "gain",
        "test_a_budget_that_is_too_small_for_all_units_cuts_the_tree",
    ),
    (
        "methods/partition_shap.py",
        "(at.amax(0) - at.amin(0)).argmax()",
        "(at.amax(0) - at.amin(0)).argmin()",
        "test_cuts_lie_between_rows_or_columns",
    ),
    (
        "methods/partition_shap.py",
        "for kind in (*nature, torch.arange(len(where))):",
        "for kind in (*nature[1:], torch.arange(len(where))):",
        "test_texts_are_split_between_sentences_then_words_then_tokens",
    ),
    (
        "methods/partition_shap.py",
        "2 * met[gaps] - met[-1] - 1",
        "2 * gaps - len(group)",
        "test_a_sentence_is_worth_the_same_whatever_of_it_plays",
    ),
    (
        "methods/partition_shap.py",
        "high[half] = torch.where(leads, between, high[half])",
        "high[half] = torch.where(leads, high[half], between)",
        "test_the_whole_tree_gives_owens_values",
    ),
)


def picture_tree(rows, columns):
    """Halve a block of cells of a 4 × 4 grid across its longer side, rows first."""
    if len(rows) == len(columns) == 1:
        return rows[0] * 4 + columns[0]
    if len(rows) >= len(columns):
        cut = len(rows) // 2
        return picture_tree(rows[:cut], columns), picture_tree(rows[cut:], columns)
    cut = len(columns) // 2
    return picture_tree(rows, columns[:cut]), picture_tree(rows, columns[cut:])


def halved(parts):
    """Halve a row of parts, each a tree of its own; an odd one goes to the second half."""
    cut = len(parts) // 2
    return parts[0] if len(parts) == 1 else (halved(parts[:cut]), halved(parts[cut:]))


def text_tree(tokens, sentence, word):
    """A text is halved between sentences, a sentence between words, a word between tokens."""

    def runs(some, kind):
        return [list(run) for _, run in itertools.groupby(some, lambda t: kind[t])]

    return halved([halved([halved(w) for w in runs(s, word)]) for s in runs(tokens, sentence)])


def leaves(node):
    return {node} if isinstance(node, int) else leaves(node[0]) | leaves(node[1])


def orders(node):
    """Every order of the leaves that visits one half of each fork after the other."""
    if isinstance(node, int):
        return [(node,)]
    pairs = [(a, b) for a in orders(node[0]) for b in orders(node[1])]
    return [a + b for a, b in pairs] + [b + a for a, b in pairs]


def owen(node, value):
    """Owen's values: what a leaf adds, averaged over each group beside its branch being there or not."""
    out = {}

    def descend(node, before, weight):
        if isinstance(node, int):
            out[node] = out.get(node, 0) + weight * (value(before | {node}) - value(before))
            return
        for half, other in (node, node[::-1]):
            descend(half, before, weight / 2)
            descend(half, before | leaves(other), weight / 2)

    descend(node, frozenset(), 1.0)
    return torch.tensor([out[m] for m in sorted(out)], dtype=torch.float64)


def picture_game(net, x, target):
    """The worth of sets of cells of a 4 × 4 grid, each asked once."""
    held = {}

    def value(there):
        if there not in held:
            keep = torch.tensor([float(m in there) for m in range(16)]).double().reshape(4, 4)
            keep = keep.repeat_interleave(2, 0).repeat_interleave(2, 1)
            with torch.no_grad():
                held[there] = float(net((x * keep)[None])[0, target])
        return held[there]

    return value


def test_owens_values_are_those_of_all_orders_of_the_tree():
    """The two ways to say it agree on any game, so that the reference itself is checked."""
    rng = torch.Generator().manual_seed(0)
    worth = {
        frozenset(s): float(torch.randn((), generator=rng))
        for k in range(6)
        for s in itertools.combinations(range(5), k)
    }
    node = ((0, 1), (2, (3, 4)))
    every = orders(node)
    assert len(set(every)) == len(every) == 2**4
    gain = torch.zeros(5, dtype=torch.float64)
    for order in every:
        for k, m in enumerate(order):
            gain[m] += worth[frozenset(order[: k + 1])] - worth[frozenset(order[:k])]
    torch.testing.assert_close(owen(node, worth.__getitem__), gain / len(every))


def test_the_whole_tree_gives_owens_values(lab):
    net, samples = lab.network(), lab.batch(lab.pictures(2))
    node = picture_tree(range(4), range(4))
    want = [
        owen(node, picture_game(net, x, t)).reshape(4, 4) / 4
        for x, t in zip(samples.x["pixels"], samples.target, strict=True)
    ]
    for budget in (170, 1000):
        got = lab.explain(f"partition_shap(samples={budget})", net, samples).values
        torch.testing.assert_close(got[:, ::2, ::2], torch.stack(want), rtol=1e-9, atol=1e-10)
        assert torch.equal(got[:, ::2, ::2], got[:, 1::2, 1::2])
    less = lab.explain("partition_shap(samples=169)", net, samples).values
    assert (less[:, ::2, ::2] - torch.stack(want)).abs().max() > 1e-6


def texts(toy, seed=0):
    """Texts of the toy, cut into sentences of one to five tokens and words of one to three."""
    x = toy.inputs(4, seed)
    draw = random.Random(seed)
    for name in ("word", "sentence"):
        x = x.replace(**{name: x[name].clone()})
    for i, free in enumerate(~x["special"]):
        at, numbers = free.nonzero()[:, 0].tolist(), {"word": -1, "sentence": -1}
        for k, site in enumerate(at):
            ends = k == 0 or draw.random() < 0.3
            numbers["sentence"] += ends
            numbers["word"] += ends or draw.random() < 0.5
            for name, number in numbers.items():
                x[name][i, site] = number
    return batch_of(toy, x)


def text_game(toy, x, target):
    """The worth of sets of tokens of one text; the others are hidden."""

    def value(there):
        attention = x["attention"].clone()
        attention[0, [s for s in (~x["special"][0]).nonzero()[:, 0].tolist() if s not in there]] = 0
        with torch.no_grad():
            return float(toy.logits(x.replace(attention=attention))[0, target])

    return value


@pytest.mark.parametrize("seed", range(4))
def test_texts_are_split_between_sentences_then_words_then_tokens(seed):
    toy = one_head_attention()
    samples = texts(toy, seed)
    got = catalogue.build("method", "partition_shap")(probe_for(toy), samples).values
    for i in range(4):
        x = samples.x.take(torch.tensor([i]))
        tokens = (~x["special"][0]).nonzero()[:, 0].tolist()
        node = text_tree(tokens, x["sentence"][0].tolist(), x["word"][0].tolist())
        want = owen(node, text_game(toy, x, samples.target[i]))
        torch.testing.assert_close(got[i, tokens], want, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_a_sentence_is_worth_the_same_whatever_of_it_plays(seed):
    toy = one_head_attention()
    samples = texts(toy, seed)
    by = {
        kind: catalogue.build("method", f"partition_shap(units={kind})")(probe_for(toy), samples).values
        for kind in ("token", "word", "sentence")
    }
    assert not torch.allclose(by["token"], by["sentence"], rtol=1e-3)
    for small, large in (("token", "word"), ("word", "sentence"), ("token", "sentence")):
        units = toy.domain.units(large, samples.x)
        torch.testing.assert_close(units.sum(by[small]), units.sum(by[large]), rtol=1e-9, atol=1e-10)


def test_words_that_come_again_are_kept_together_where_that_can_be():
    nature = [torch.tensor([0, 1, 0, 2, 2, 2, 2, 2])]
    where = torch.stack([torch.zeros(8), torch.arange(8)], 1).double()
    first, second = halve(torch.arange(8), where, nature)
    assert (first.tolist(), second.tolist()) == ([0, 1, 2], [3, 4, 5, 6, 7])
    first, second = halve(first, where, nature)
    assert (first.tolist(), second.tolist()) == ([0], [1, 2])


def test_on_average_a_small_budget_gives_the_same(lab):
    net, x = lab.network(), lab.pictures(1)
    want = lab.explain("partition_shap", net, x).values[0, ::2, ::2]
    many = lab.batch(x.expand(60, -1, -1, -1), [0] * 60)
    many = replace(many, streams=Streams(0, tuple(map(str, range(60)))))
    for budget in (15, 40):
        draws = lab.explain(f"partition_shap(samples={budget})", net, many, forward=60).values[:, ::2, ::2]
        assert draws.std(0).max() > 1e-3
        assert ((draws.mean(0) - want).abs() < 5 * draws.std(0) / 60**0.5 + 1e-12).all()


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 200))
def test_values_sum_to_the_drop_at_any_budget(lab, seed, budget):
    net, batch = lab.network(seed), lab.batch(lab.pictures(2, seed))
    probe = probe_for(lab.wrap(net))
    method = catalogue.build("method", f"partition_shap(samples={budget}, fill=channel_mean)")
    got = method(probe, batch).values
    assert probe.spent.forwards <= 2 * (budget + 2)
    drop = probe.clean(batch).read("logit") - probe.deleted(batch, "channel_mean").read("logit")
    torch.testing.assert_close(got.sum((1, 2)), drop, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("make", [additive, additive_text])
@pytest.mark.parametrize("budget", [15, 60, 1000])
def test_where_units_add_up_it_is_the_truth(lab, make, budget):
    toy = make()
    samples = toy_batch(toy, 4)
    got = lab.explain(f"partition_shap(samples={budget})", toy, samples).values
    torch.testing.assert_close(got, toy.contributions(samples.x, samples.target), rtol=1e-9, atol=1e-10)


def test_a_budget_that_is_too_small_for_all_units_cuts_the_tree(lab):
    """Three splits make quadrants; where effects add up, each is worth the sum of what it holds."""
    toy = additive()
    samples = toy_batch(toy, 3)
    truth = toy.contributions(samples.x, samples.target)
    want = truth.reshape(3, 2, 4, 2, 4).mean((2, 4)).repeat_interleave(4, 1).repeat_interleave(4, 2)
    for units in ("pixel", "grid(4)"):
        got = lab.explain(f"partition_shap(samples=3, units={units})", toy, samples).values
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-10)


def test_prices_are_those_of_the_tree(lab):
    domain = lab.wrap(lab.network()).domain
    x = lab.batch(lab.pictures(1)).x
    levels = tree(domain.units("grid(4)", x), (8, 8), 1000)
    assert [len(level.split) for level in levels] == [1, 2, 4, 8]
    assert [price(levels, c) for c in (1, 2, 4, 8, 16)] == [15, 30, 58, 106, 170]
    assert [contexts(levels, n) for n in (1, 15, 29, 30, 105, 106, 169, 170, 9999)] == [1, 1, 1, 2, 4, 8, 8, 16, 16]
    assert len(tree(domain.units("grid(4)", x), (8, 8), 6)) == 2
    assert len(tree(domain.units("grid(4)", x), (8, 8), 7)) == 3


def test_cuts_lie_between_rows_or_columns(lab):
    x = lab.batch(lab.pictures(1)).x
    units = lab.wrap(lab.network()).domain.units("grid(3)", x)
    where = places(units, (8, 8))
    torch.testing.assert_close(
        where[[0, 1, 3, 8]], torch.tensor([[0.5, 0.5], [0.5, 2.5], [2.5, 0.5], [4.5, 4.5]]).double()
    )
    first, second = halve(torch.arange(9), where)
    assert first.tolist() == [0, 1, 2] and second.tolist() == [3, 4, 5, 6, 7, 8]
    first, second = halve(second, where)
    assert first.tolist() == [3, 6] and second.tolist() == [4, 5, 7, 8]


def test_units_in_one_place_are_halved_as_they_are_numbered():
    ring = torch.tensor([[0, 0, 0, 0, 1, 0, 0, 0, 0]])
    levels = tree(Units("rings", ring, torch.tensor([2]), 2), (3, 3), 10)
    assert levels[0].group.tolist() == [0, 1] and levels[0].split.tolist() == [[0, 1]]


def test_no_samples_are_refused():
    with pytest.raises(SpecError, match="samples=0"):
        catalogue.build("method", "partition_shap(samples=0)")
