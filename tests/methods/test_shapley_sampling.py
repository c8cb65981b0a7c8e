"""Shapley value sampling, order by order, against the subset formula and Captum, and by its laws."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from captum.attr import ShapleyValues, ShapleyValueSampling
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Streams
from heatcheck.methods.shapley_sampling import orders
from heatcheck.testing.models import additive, additive_text, bag_of_words, linear, one_head_attention, text_inputs
from heatcheck.testing.scenes import batch_of, probe_for, toy_batch

MUTANTS = (
    (
        "methods/shapley_sampling.py",
        "<= (which % between)",
        "< (which % between)",
        "test_few_units_get_shapleys_own_values",
    ),
    (
        "methods/shapley_sampling.py",
        "for end in (nothing, whole)",
        "for end in (whole, nothing)",
        "test_where_units_add_up_one_order_is_enough",
    ),
    (
        "methods/shapley_sampling.py",
        "drawn.flip(1)",
        "drawn.flip(0)",
        "test_one_pair_of_orders_is_exact_where_units_meet_in_twos",
    ),
    (
        "methods/shapley_sampling.py",
        "gather(1, turn)",
        "gather(1, turn.argsort(1))",
        "test_following_the_same_orders_gives_the_same",
    ),
)


def worth(net, x, target, side, there):
    """The logit when only the cells `there` of a `side` × `side` grid are left, the rest zero."""
    keep = torch.tensor([float(m in there) for m in range(side * side)], dtype=x.dtype).reshape(side, side)
    keep = keep.repeat_interleave(8 // side, 0).repeat_interleave(8 // side, 1)
    with torch.no_grad():
        return float(net((x * keep)[None])[0, target])


def follow(net, x, target, side, order):
    """What each cell adds when cells come in one after another."""
    gain, there = torch.zeros(side * side, dtype=torch.float64), set()
    for m in order:
        before = worth(net, x, target, side, there)
        there.add(m)
        gain[m] = worth(net, x, target, side, there) - before
    return gain


def exact(net, x, target, side):
    """Shapley's formula over all subsets."""
    n = side * side
    value = torch.zeros(n, dtype=torch.float64)
    for m in range(n):
        others = [k for k in range(n) if k != m]
        for size in range(n):
            share = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
            for there in itertools.combinations(others, size):
                gain = worth(net, x, target, side, {*there, m}) - worth(net, x, target, side, set(there))
                value[m] += share * gain
    return value


def cells(side):
    return torch.arange(side * side).reshape(1, 1, side, side).repeat_interleave(8 // side, 2).repeat_interleave(
        8 // side, 3
    )  # fmt: skip


def by_cell(values, side):
    """The sum over each cell of a map, cells in reading order."""
    return values.reshape(len(values), side, 8 // side, side, 8 // side).sum((2, 4)).flatten(1)


def test_following_the_same_orders_gives_the_same(lab):
    net, samples = lab.network(), lab.batch(lab.pictures(2))
    want = []
    for i, (x, t) in enumerate(zip(samples.x["pixels"], samples.target, strict=True)):
        turns = orders(16, 2, samples.streams.generator(i, "shapley-orders")).tolist()
        assert turns[2:] == [turn[::-1] for turn in turns[:2]] and turns[0] != turns[1]
        want.append(torch.stack([follow(net, x, t, 4, turn) for turn in turns]).mean(0))
    got = lab.explain("shapley_sampling(samples=2)", net, samples).values
    torch.testing.assert_close(by_cell(got, 4), torch.stack(want), rtol=1e-9, atol=1e-10)
    assert torch.equal(got[:, ::2, ::2], got[:, 1::2, 1::2])


def test_captum_following_the_same_orders_gives_the_same(lab):
    net, samples = lab.network(), lab.batch(lab.pictures(1))
    turns = orders(16, 3, samples.streams.generator(0, "shapley-orders")).tolist()
    theirs = ShapleyValueSampling(net)
    theirs.permutation_generator = lambda _features, _samples: iter(turns)
    want = theirs.attribute(samples.x["pixels"], target=samples.target, feature_mask=cells(4), n_samples=6)
    got = 4 * lab.explain("shapley_sampling(samples=3)", net, samples).values
    torch.testing.assert_close(got, want[:, 0].detach().double(), rtol=1e-5, atol=1e-6)


def test_few_units_get_shapleys_own_values(lab):
    net, samples = lab.network(), lab.batch(lab.pictures(2))
    want = [exact(net, x, t, 2) for x, t in zip(samples.x["pixels"], samples.target, strict=True)]
    got = lab.explain("shapley_sampling(units=grid(2))", net, samples).values
    torch.testing.assert_close(by_cell(got, 2), torch.stack(want), rtol=1e-9, atol=1e-10)
    theirs = ShapleyValues(net).attribute(samples.x["pixels"], target=samples.target, feature_mask=cells(2))
    torch.testing.assert_close(16 * got, theirs[:, 0].detach().double(), rtol=1e-5, atol=1e-6)


def test_on_average_sampled_values_are_shapleys(lab):
    net, x = lab.network(), lab.pictures(1)
    want = by_cell(lab.explain("shapley_sampling(units=grid(2))", net, x).values, 2)
    many = lab.batch(x.expand(120, -1, -1, -1), [0] * 120)
    many = replace(many, streams=Streams(0, tuple(map(str, range(120)))))
    draws = by_cell(lab.explain("shapley_sampling(units=grid(2), samples=2)", net, many, forward=60).values, 2)
    error = draws.std(0) / 120**0.5
    assert draws.std(0).min() > 1e-3
    assert ((draws.mean(0) - want[0]).abs() < 4 * error + 1e-12).all()


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_values_sum_to_the_drop_whatever_the_number_of_orders(lab, seed, samples):
    net, batch = lab.network(seed), lab.batch(lab.pictures(2, seed))
    got = lab.explain(f"shapley_sampling(samples={samples}, fill=channel_mean)", net, batch).values
    probe = probe_for(lab.wrap(net))
    drop = probe.clean(batch).read("logit") - probe.deleted(batch, "channel_mean").read("logit")
    torch.testing.assert_close(got.sum((1, 2)), drop, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("make", [additive, additive_text])
def test_where_units_add_up_one_order_is_enough(lab, make):
    toy = make()
    samples = toy_batch(toy, 4)
    got = lab.explain("shapley_sampling(samples=1)", toy, samples).values
    torch.testing.assert_close(got, toy.contributions(samples.x, samples.target), rtol=1e-9, atol=1e-10)


def test_a_linear_model_gives_weight_times_input(lab):
    toy = linear()
    samples = toy_batch(toy, 2)
    got = lab.explain("shapley_sampling(samples=1, units=pixel)", toy, samples).values
    torch.testing.assert_close(got, toy.contributions(samples.x, samples.target), rtol=1e-9, atol=1e-10)


class Pairs(nn.Module):
    """Every two cells of a 4 × 4 grid meet: a game in which one antithetic pair of orders is exact."""

    def __init__(self, seed):
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.meet = nn.Parameter(torch.randn(16, 16, generator=rng, dtype=torch.float64))

    def forward(self, x):
        seen = nn.functional.avg_pool2d(x, 2).sum(1).flatten(1)
        score = torch.einsum("bi,ij,bj->b", seen, self.meet, seen)
        return torch.stack([score, -score], 1)


def test_one_pair_of_orders_is_exact_where_units_meet_in_twos(lab):
    net, samples = Pairs(0), lab.batch(lab.pictures(2), [0, 0])
    seen = nn.functional.avg_pool2d(samples.x["pixels"], 2).sum(1).flatten(1)
    met = seen[:, :, None] * (net.meet + net.meet.T).detach() * seen[:, None] / 2
    got = lab.explain("shapley_sampling(samples=1)", net, samples).values
    torch.testing.assert_close(by_cell(got, 4), met.sum(2), rtol=1e-9, atol=1e-10)


def test_equal_units_get_equal_values_over_all_orders(lab):
    class Mirror(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = lab.network()

        def forward(self, x):
            return self.net(x) + self.net(x.roll(4, 3))

    x = lab.pictures(2)
    got = lab.explain("shapley_sampling(units=grid(2))", Mirror(), lab.batch(x, [0, 0])).values
    turned = lab.explain("shapley_sampling(units=grid(2))", Mirror(), lab.batch(x.roll(4, 3), [0, 0])).values
    torch.testing.assert_close(turned, got.roll(4, 2), rtol=1e-9, atol=1e-10)


def test_the_ends_are_shared(lab):
    model, samples = lab.wrap(lab.network()), lab.batch(lab.pictures(3))
    probe = probe_for(model)
    probe.clean(samples)
    probe.deleted(samples, "zero")
    before = probe.spent.forwards
    catalogue.build("method", "shapley_sampling(samples=2)")(probe, samples)
    assert probe.spent.forwards - before == 3 * 2 * 2 * 15


def test_words_divide_what_the_text_is_worth(lab):
    toy = one_head_attention()
    samples = toy_batch(toy, 3)
    probe = probe_for(toy)
    got = catalogue.build("method", "shapley_sampling(units=word, samples=2)")(probe, samples).values
    drop = probe.clean(samples).read("logit") - probe.deleted(samples, "pad").read("logit")
    torch.testing.assert_close(got.sum(1), drop, rtol=1e-9, atol=1e-10)
    assert (got[samples.x["special"]] == 0).all()
    assert torch.equal(got[:, 1], got[:, 2])


@pytest.mark.parametrize("id", ["shapley_sampling", "kernel_shap", "partition_shap", "lime", "feature_ablation"])
def test_texts_of_one_word_and_of_none(lab, id):
    toy = bag_of_words()
    for words in ([], [7]):
        samples = batch_of(toy, text_inputs(torch.tensor(words, dtype=torch.long), 12))
        got = lab.explain(id, toy, samples).values
        torch.testing.assert_close(got, toy.contributions(samples.x, samples.target), rtol=1e-9, atol=1e-10)


def test_orders_are_permutations():
    drawn = orders(9, 20, torch.Generator().manual_seed(0))
    assert drawn.shape == (40, 9) and torch.equal(drawn.sort(1).values, torch.arange(9).expand(40, 9))
    assert {tuple(o) for o in orders(3, 3, torch.Generator()).tolist()} == set(itertools.permutations(range(3)))
    assert len(orders(4, 11, torch.Generator())) == 22
    assert orders(0, 5, torch.Generator()).shape == (1, 0)


def test_no_orders_are_refused():
    with pytest.raises(SpecError, match="samples=0"):
        catalogue.build("method", "shapley_sampling(samples=0)")
