"""Random sets of units: different, the sample's own, and as many as a plan says."""

from itertools import combinations
from math import comb

import pytest
import torch

from heatcheck.core.types import Streams
from heatcheck.metrics.subsets import LISTED, deletion_masks, subset_asks, subset_count, subset_sums, subsets
from heatcheck.probe.asks import Shape

MUTANTS = (
    (
        "metrics/subsets.py",
        "if chosen.numpy().tobytes() not in seen:",
        "if True:",
        "test_sets_are_different_and_as_large_as_asked",
    ),
    ("metrics/subsets.py", "[:size]", "[: size + 1]", "test_every_kind_of_draw_is_covered"),
    (
        "metrics/subsets.py",
        "return ~units.take(rows[i]).spread(gone.to",
        "return units.take(rows[i]).spread(gone.to",
        "test_a_question_deletes_its_set_and_nothing_else",
    ),
    ("metrics/subsets.py", "found * (n - j) // (j + 1)", "found * (n - j)", "test_sets_are_counted_up_to_a_limit"),
    (
        "metrics/subsets.py",
        "subset().nonzero().flatten()).sum(-1)",
        "subset().nonzero().flatten()).mean(-1)",
        "test_sums_are_those_of_the_members",
    ),
    ("metrics/subsets.py", "if size == 1 and number == n:", "if size == 1:", "test_a_plan_names_as_many_as_are_asked"),
)
STREAMS = Streams(0, ("a", "b"))


@pytest.mark.parametrize(
    ("n", "size", "wanted"), [(1, 1, 5), (5, 2, 100), (5, 5, 3), (9, 1, 24), (12, 2, 60), (40, 2, 90), (300, 1, 30)]
)
def test_sets_are_different_and_as_large_as_asked(n, size, wanted):
    sets = [tuple(s().nonzero().flatten().tolist()) for s in subsets(STREAMS, 0, n, size, wanted)]
    assert len(set(sets)) == len(sets) == min(wanted, comb(n, size))
    assert all(len(s) == size for s in sets)
    if comb(n, size) <= wanted:
        assert sorted(sets) == list(combinations(range(n), size))


def test_every_kind_of_draw_is_covered():
    """All sets listed, some of a list, drawn until they differ, drawn without a look."""
    assert comb(5, 2) < 100 < LISTED * 100
    assert 60 < comb(12, 2) < LISTED * 60
    assert LISTED * 90 < comb(40, 2) < 1e18
    big = [s() for s in subsets(STREAMS, 0, 3000, 300, 20)]
    assert all(int(s.sum()) == 300 for s in big) and len({s.numpy().tobytes() for s in big}) == 20


@pytest.mark.parametrize(("n", "size"), [(5, 2), (40, 2), (3000, 300)])
def test_draws_belong_to_the_sample_and_fewer_are_the_first_of_more(n, size):
    def drawn(streams, row, wanted):
        return [s().tolist() for s in subsets(streams, row, n, size, wanted)]

    assert drawn(STREAMS, 1, 4) == drawn(Streams(0, ("b",)), 0, 4)
    if n > 5:
        assert drawn(STREAMS, 0, 4) != drawn(STREAMS, 1, 4) != drawn(Streams(1, ("a", "b")), 1, 4)
        assert drawn(STREAMS, 0, 10)[:4] == drawn(STREAMS, 0, 4)


@pytest.mark.parametrize(("n", "size"), [(0, 1), (3, 0), (3, 4), (7, 3), (7, 4), (7, 7), (60, 30)])
def test_sets_are_counted_up_to_a_limit(n, size):
    assert subset_count(n, size, 50) == (min(50, comb(n, size)) if size else 0)


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize(("size", "wanted"), [(1, 2), (1, 100), (2, 5), (2, 100), (3, 4)])
def test_a_plan_names_as_many_as_are_asked(toys, kind, size, wanted):
    model, batch = toys.stage(kind)
    probe = toys.probe_on(model)
    units = probe.units("cell", batch)
    fill = model.domain.default_fill
    sets = [subsets(batch.streams, i, n, min(n, size), wanted) for i, n in enumerate(units.count.tolist())]
    probe.deletions(batch, fill, deletion_masks(units, sets))
    named = 0
    for i, n in enumerate(units.count.tolist()):
        shape = Shape(model.domain, batch.x.take(torch.tensor([i])))
        named += len(subset_asks(fill, units.name, shape, min(n, size), wanted))
    assert probe.spent.forwards == named == sum(map(len, sets))


def test_a_question_deletes_its_set_and_nothing_else(toys):
    model, batch = toys.stage("text")
    units = model.domain.units("word", batch.x)
    sets = [subsets(batch.streams, i, n, 1, 9) for i, n in enumerate(units.count.tolist())]
    masks = deletion_masks(units, sets)
    keep = masks.keep(torch.arange(len(masks.rows)))
    flat = [(i, s) for i, own in enumerate(sets) for s in own]
    for (i, subset), mask in zip(flat, keep, strict=True):
        (unit,) = subset().nonzero().flatten().tolist()
        assert torch.equal(mask, units.index[i] != unit)


def test_sums_are_those_of_the_members():
    values = torch.randn(3, 9, generator=torch.Generator().manual_seed(0))
    sets = subsets(STREAMS, 0, 9, 4, 7)
    got = subset_sums(values, sets)
    assert got.shape == (3, 7) and got.dtype == torch.float64
    for j, subset in enumerate(sets):
        assert got[:, j].tolist() == pytest.approx(values.double()[:, subset()].sum(1).tolist(), abs=1e-12)
    assert subset_sums(values, []).shape == (3, 0)
