"""Every metric that asks the model, on a linear bag of embeddings: its answers are sums, so that every score has a closed form."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from heatcheck.core import catalogue
from heatcheck.core.types import Attribution
from heatcheck.metrics.base import Maps
from heatcheck.testing.models import bag_of_words, text_inputs
from heatcheck.testing.scenes import batch_of, probe_for, toy_batch, toy_maps

MUTANTS = (
    ("metrics/removal.py", "return self.scores(probe, batch, self.summarise(most) - self.summarise(least), least - most)",
     "return self.scores(probe, batch, self.summarise(most) + self.summarise(least), least - most)",
     "test_metrics_along_an_order"),
    ("metrics/infidelity.py", "((cost * share).mean() / energy)", "(cost.mean() / energy)", "test_infidelity"),
    ("metrics/violation.py", "claim.sign() * drop < 0", "claim.sign() * drop > 0", "test_violation"),
    ("metrics/soft_erasure.py", "uniform >= chances(values, 1 - self.keep)", "uniform >= chances(values, self.keep)",
     "test_soft_erasure_of_what_is_certain"),
)  # fmt: skip
KINDS = ("oracle", "random", "anti_oracle", "random more")
UNITS = ("token", "word", "sentence")


class Sums:
    """One text of a bag of embeddings as a table: what each unit adds to the score of each class.

    Args:
        toy: the bag.
        batch: the texts.
        row: which of them.
        kind: what its units are.
    """

    def __init__(self, toy, batch, row, kind="token"):
        table, weigh = (p.detach().numpy() for p in (toy.module().embed.weight, toy.module().weigh.weight))
        self.target = int(batch.target[row])
        ids, special = batch.x["ids"][row].tolist(), batch.x["special"][row].tolist()
        read = batch.x["attention"][row].tolist()
        own = {t: weigh @ table[i] for t, (i, on) in enumerate(zip(ids, read, strict=True)) if on}
        free = [t for t in own if not special[t]]
        number = {t: k if kind == "token" else int(batch.x[kind][row, t]) for k, t in enumerate(free)}
        self.tokens = [[t for t in free if number[t] == k] for k in sorted(set(number.values()))]
        self.effects = np.array([sum(own[t] for t in unit) for unit in self.tokens])
        self.fixed = sum(own[t] for t in own if special[t])

    def __len__(self):
        return len(self.tokens)

    def left(self, gone, output):
        """The output without some units."""
        scores = self.fixed + sum(e for k, e in enumerate(self.effects) if k not in set(gone))
        if output == "logit":
            return scores[self.target]
        return np.exp(scores[self.target] - scores.max()) / np.exp(scores - scores.max()).sum()

    def drop(self, gone, output):
        return self.left([], output) - self.left(gone, output)

    def of(self, heat):
        """A map's value on each unit."""
        return np.array([sum(float(heat[t]) for t in unit) for unit in self.tokens])

    def order(self, heat):
        """The units, the most relevant first."""
        return sorted(range(len(self)), key=lambda k: -self.of(heat)[k])


@pytest.fixture(scope="module")
def stage():
    toy = bag_of_words()
    batch = toy_batch(toy, 3)
    return toy, batch, toy_maps(toy, batch, KINDS)


def agree(stage, spec, formula, units="token"):
    """Whether a metric gives every map of every text what a formula of the table and the map gives."""
    toy, batch, maps = stage
    scores = catalogue.build("metric", spec)(probe_for(toy, forward=32), batch, maps)
    assert {status for row in scores.status for status in row} == {"ok"}, scores.status
    for i in range(len(batch)):
        sums = Sums(toy, batch, i, units)
        for j, item in enumerate(maps.items):
            want = formula(sums, item.values[i].tolist())
            assert float(scores.value[j, i]) == pytest.approx(want, rel=1e-9, abs=1e-9), (spec, i, item.method)


def counts(n, steps):
    return [k * n // steps for k in range(steps + 1)]


def trapezoid(curve):
    return sum((a + b) / 2 for a, b in pairwise(curve)) / (len(curve) - 1)


def falls(sums, order, output, steps=4):
    return np.mean([sums.drop(order[:k], output) for k in counts(len(sums), steps)])


def erased(sums, order, output, *, keep):
    top = [math.ceil(len(sums) * q / 100) for q in (1, 5, 10, 20, 50)]
    return np.mean([sums.drop(order[k:] if keep else order[:k], output) for k in top])


ORDERED = {
    "morf": lambda s, o, f: falls(s, o, f),
    "lerf": lambda s, o, f: falls(s, o[::-1], f),
    "abpc": lambda s, o, f: falls(s, o, f) - falls(s, o[::-1], f),
    "deletion": lambda s, o, f: trapezoid([s.left(o[:k], f) for k in counts(len(s), 4)]),
    "insertion": lambda s, o, f: trapezoid([s.left(o[k:], f) for k in counts(len(s), 4)]),
    "ids": lambda s, o, f: np.mean([s.left(o[::-1][:k], f) for k in counts(len(s), 4)[:-1]]),
    "comprehensiveness": lambda s, o, f: erased(s, o, f, keep=False),
    "sufficiency": lambda s, o, f: erased(s, o, f, keep=True),
}


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("output", ["logit", "prob"])
@pytest.mark.parametrize("id", ORDERED)
def test_metrics_along_an_order(stage, id, output, units):
    steps = "" if id in ("comprehensiveness", "sufficiency") else "steps=4, "
    spec = f"{id}({steps}units={units}, output={output})"
    agree(stage, spec, lambda sums, heat: ORDERED[id](sums, sums.order(heat), output), units)


@pytest.mark.parametrize("units", ["token", "word"])
def test_irof(stage, units):
    def formula(sums, heat):
        order = sorted(range(len(sums)), key=lambda k: -sums.of(heat)[k] / len(sums.tokens[k]))
        return 1 - np.mean([sums.left(order[:k], "prob") for k in range(len(sums) + 1)]) / sums.left([], "prob")

    agree(stage, f"irof(units={units})", formula, units)


@pytest.mark.parametrize("output", ["logit", "prob"])
@pytest.mark.parametrize("units", ["token", "word"])
def test_sds(stage, units, output):
    def formula(sums, heat):
        return spearmanr(sums.of(heat), [sums.drop([k], output) for k in range(len(sums))]).statistic

    agree(stage, f"sds(units={units}, output={output})", formula, units)


@pytest.mark.parametrize("output", ["logit", "prob"])
@pytest.mark.parametrize("units", UNITS)
def test_violation(stage, units, output):
    def formula(sums, heat):
        strongest = int(np.abs(sums.of(heat)).argmax())
        return float(sums.of(heat)[strongest] * sums.drop([strongest], output) < 0)

    agree(stage, f"violation(units={units}, output={output})", formula, units)


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("more", ["scale=optimal", "scale=none", "centered=true", "normalised=true"])
def test_infidelity(stage, more, units):
    """Over all runs of one to five tokens, words or sentences; the true map predicts the logit without error."""

    def formula(sums, heat):
        n = len(sums)
        runs = [range(k, k + size) for size in range(1, min(5, n) + 1) for k in range(n - size + 1)]
        cost = np.array([sums.drop(run, "logit") for run in runs])
        share = np.array([sum(sums.of(heat)[k] for k in run) for run in runs])
        if "centered" in more:
            cost, share = cost - cost.mean(), share - share.mean()
        if "scale=none" not in more:
            share = share * (cost * share).sum() / (share**2).sum()
        return ((cost - share) ** 2).mean() / ((cost**2).mean() if "normalised" in more else 1)

    agree(stage, f"infidelity({more}, units={units})", formula, units)
    toy, batch, maps = stage
    found = catalogue.build("metric", f"infidelity({more}, units={units})")(probe_for(toy, forward=32), batch, maps)
    assert (found.value[0] < 1e-12).all() and (found.value[1] > 1e-3).all()


@pytest.mark.parametrize(
    "spec", ["faithfulness_correlation(samples=20, share=0.3)", "sensitivity_n(samples=20, sizes=4)"]
)
def test_sums_over_subsets_are_their_drops(stage, spec):
    """What a subset costs is the sum of the true map, so that the two correlate perfectly."""
    toy, batch, maps = stage
    found = catalogue.build("metric", spec)(probe_for(toy, forward=32), batch, maps)
    assert found.value[0].tolist() == pytest.approx([1] * 3, abs=1e-9)
    assert found.value[2].tolist() == pytest.approx([-1] * 3, abs=1e-9)
    assert (found.value[1].abs() < 0.999).all()


def test_part_deletion(stage):
    toy, batch, maps = stage
    found = catalogue.build("metric", "part_deletion(raw=true)")(probe_for(toy), batch, maps)
    for i in range(len(batch)):
        sums, parts = Sums(toy, batch, i), batch.references[i]["parts"]
        inside = [[k for k, unit in enumerate(sums.tokens) if part[unit[0]]] for part in parts]
        drops = [sums.drop(own, "logit") for own in inside]
        for j, item in enumerate(maps.items):
            heat = sums.of(item.values[i].tolist())
            want = spearmanr([heat[own].sum() for own in inside], drops).statistic
            assert float(found.value[j, i]) == pytest.approx(want, abs=1e-9)


def text_of(toy, n):
    """One text of n tokens, with the larger half of them marked by a map of zeros and ones."""
    x = text_inputs(torch.arange(6, 6 + n), n + 4)
    batch = batch_of(toy, x)
    sums = Sums(toy, batch, 0)
    best = sums.order(toy.contributions(x, batch.target)[0].tolist())[: n // 2]
    heat = torch.zeros(1, x["ids"].shape[1], dtype=torch.float64)
    heat[0, [sums.tokens[k][0] for k in best]] = 1
    return batch, sums, best, heat


@pytest.mark.parametrize("output", ["logit", "prob"])
def test_soft_erasure_of_what_is_certain(output):
    """A map of zeros and ones whose mean is the share to delete leaves nothing to chance."""
    toy = bag_of_words()
    batch, sums, best, heat = text_of(toy, 8)
    maps = Maps([Attribution(heat, batch.target, method="half")], toy.domain, batch)
    rest = [k for k in range(8) if k not in best]
    for id, gone in (("soft_comprehensiveness", best), ("soft_sufficiency", rest)):
        metric = catalogue.build("metric", f"{id}(samples=3, output={output})")
        assert float(metric(probe_for(toy), batch, maps).value) == pytest.approx(sums.drop(gone, output), abs=1e-9)
    few = best[:1]
    one = torch.zeros_like(heat)
    one[0, sums.tokens[few[0]][0]] = 1
    maps = Maps([Attribution(one, batch.target, method="one")], toy.domain, batch)
    for id, keep, gone in (
        ("soft_comprehensiveness", 1 - 1 / 8, few),
        ("soft_sufficiency", 1 / 8, [k for k in range(8) if k not in few]),
    ):
        metric = catalogue.build("metric", f"{id}(samples=3, keep={keep}, output={output})")
        assert float(metric(probe_for(toy), batch, maps).value) == pytest.approx(sums.drop(gone, output), abs=1e-9)


@pytest.mark.parametrize("id", ["soft_comprehensiveness", "soft_sufficiency"])
def test_soft_erasure_in_expectation(id):
    r"""The fall of a logit is $\sum_i P(i \text{ is deleted})\, c_i$ on average; within 4 standard errors of 600 draws."""
    toy = bag_of_words()
    batch, sums, _, _ = text_of(toy, 8)
    maps = toy_maps(toy, batch, ("random", "constant"))
    draws = 600
    found = catalogue.build("metric", f"{id}(samples={draws}, output=logit)")(probe_for(toy, forward=64), batch, maps)
    worth = sums.effects[:, sums.target]
    for j, item in enumerate(maps.items):
        heat = sums.of(item.values[0].tolist())
        chance = certain_to_even(heat, 4)
        gone = chance if id == "soft_comprehensiveness" else 1 - chance
        error = math.sqrt((chance * (1 - chance) * worth**2).sum() / draws)
        assert float(found.value[j, 0]) == pytest.approx((gone * worth).sum(), abs=4 * error)
        assert error < 0.2 * np.abs(worth).max()


def certain_to_even(heat, total):
    """Chances in proportion to a map scaled to between 0 and 1, cut at 1, that add up to `total`; by bisection."""
    if np.ptp(heat) == 0:
        return np.full(len(heat), total / len(heat))
    scaled = (heat - heat.min()) / np.ptp(heat)
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1, middle * scaled).sum() < total else (low, middle)
    return np.minimum(1, high * scaled)


@pytest.mark.parametrize("id", ["max_sensitivity", "avg_sensitivity", "local_lipschitz"])
def test_the_gradient_of_a_bag_is_the_same_everywhere(stage, id):
    toy, batch, _ = stage
    method = catalogue.build("method", "saliency")
    maps = Maps([method(probe_for(toy), batch)], toy.domain, batch, [method])
    found = catalogue.build("metric", f"{id}(samples=2)")(probe_for(toy), batch, maps)
    assert found.value.abs().max() < 1e-9
