"""Inputs, batches, attributions, scores and random streams."""

import dataclasses

import pytest
import torch

from heatcheck.core.types import OK, Attribution, Inputs, Scores, Streams, digest_of, digest_of_tensor
from heatcheck.testing import gap_linear, toy_batch


def test_digests_separate_their_parts():
    assert digest_of("ab", "c") != digest_of("a", "bc")
    assert digest_of("a") == digest_of(b"a")
    assert digest_of() != digest_of("")


def test_a_tensors_digest_is_its_content():
    a = torch.arange(6.0)
    assert digest_of_tensor(a) == digest_of_tensor(a.clone())
    assert digest_of_tensor(a) == digest_of_tensor(torch.arange(12.0)[::2] / 2)
    others = [a.double(), a.reshape(2, 3), -a, a.int()]
    assert len({digest_of_tensor(t) for t in (a, *others)}) == 5


def test_draws_belong_to_the_sample_and_the_purpose():
    def draw(g):
        return torch.rand(4, generator=g)

    streams = Streams(0, ("a", "b", "c"))
    noise = streams.draw("noise", draw)
    assert torch.equal(noise, streams.draw("noise", draw))
    assert torch.equal(streams.take([2, 0]).draw("noise", draw), noise[[2, 0]])
    assert not torch.equal(streams.draw("ties", draw), noise)
    assert not torch.equal(Streams(1, ("a", "b", "c")).draw("noise", draw), noise)
    assert not torch.equal(noise[0], noise[1])


def test_drawing_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    Streams(0, ("a",)).draw("noise", lambda g: torch.rand(4, generator=g))
    assert torch.equal(torch.get_rng_state(), before)


def test_inputs_are_taken_joined_and_compared_by_shape():
    x = Inputs({"a": torch.arange(6).reshape(3, 2), "b": torch.arange(3)})
    assert len(x) == 3 and "a" in x and "c" not in x
    again = Inputs.cat([x.take(slice(0, 1)), x.take(torch.tensor([1, 2]))])
    assert all(torch.equal(again[k], x[k]) for k in ("a", "b"))
    assert x.take(torch.tensor([2, 2]))["b"].tolist() == [2, 2]
    assert x.replace(b=torch.zeros(3))["b"].tolist() == [0, 0, 0]
    assert x.shape_key() == x.take(torch.tensor([0])).shape_key()
    assert x.shape_key() != Inputs({"a": torch.zeros(3, 4), "b": torch.zeros(3)}).shape_key()


def test_a_part_of_a_batch_carries_everything_along():
    batch = toy_batch(gap_linear(), 4)
    part = batch.take([3, 1])
    assert torch.equal(part.x["pixels"], batch.x["pixels"][[3, 1]])
    assert part.target.tolist() == batch.target[[3, 1]].tolist()
    assert part.streams.digests == (batch.streams.digests[3], batch.streams.digests[1])
    assert torch.equal(part.references[0]["mask"], batch.references[3]["mask"])
    assert not part.altered
    assert batch.with_inputs(batch.x).altered and batch.with_inputs(batch.x).take([0]).altered


def test_a_part_of_maps_carries_its_statuses_along():
    maps = Attribution(torch.arange(3.0)[:, None], torch.tensor([5, 6, 7]), status=(OK, "failed: x", OK))
    part = maps.take([1, 0])
    assert part.values.tolist() == [[1], [0]]
    assert part.target.tolist() == [6, 5]
    assert part.status == ("failed: x", OK)
    assert Attribution(torch.zeros(2, 3)).status == (OK, OK)


def test_scores_without_statuses_get_them_from_their_values():
    scores = Scores(torch.tensor([[1.0, torch.nan], [torch.inf, 0.0]]))
    assert [[s == OK for s in row] for row in scores.status] == [[True, False], [False, True]]
    assert scores.status[0][1].startswith("undefined: ")


@pytest.mark.parametrize("thing", [toy_batch(gap_linear(), 1), Scores(torch.zeros(1, 1)), Streams(0, ())])
def test_nouns_are_frozen(thing):
    field = dataclasses.fields(thing)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(thing, field, None)
