"""Six numbers are enough for every output."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.core.types import HeatcheckError, NotApplicable
from heatcheck.probe.answers import OUTPUTS, Answers, scalar

MUTANTS = (
    (
        "probe/answers.py",
        "return logit - torch.where(winner == self.target, second, first)",
        "return logit - first",
        "test_outputs_equal_their_definitions",
    ),
    (
        "probe/answers.py",
        "return (logit - lse).exp()",
        "return logit.exp()",
        "test_outputs_equal_their_definitions",
    ),
    (
        "probe/answers.py",
        "return (own - logits.logsumexp(1)).exp()",
        "return own.exp()",
        "test_what_methods_differentiate_is_what_metrics_read",
    ),
    ("probe/answers.py", "return F.logsigmoid(logit)", "return logit", "test_a_label_is_read_without_the_others"),
    (
        "probe/answers.py",
        "torch.where(self.label < 0, torch.nan, (winner == self.label).double())",
        "(winner == self.label).double()",
        "test_accuracy_without_a_label_is_no_number",
    ),
)


def answers(logits, target, label=None):
    label = target if label is None else label
    return Answers(Answers.compress(logits, target), target, label)


def by_definition(logits, target, label, output):
    """One row at a time, from all logits."""
    out = []
    for row, t, y in zip(logits.double(), target.tolist(), label.tolist(), strict=True):
        others = torch.cat([row[:t], row[t + 1 :]])
        out.append(
            {
                "logit": row[t],
                "prob": row.softmax(0)[t],
                "logprob": row.log_softmax(0)[t],
                "margin": row[t] - others.max(),
                "accuracy": (row.argmax() == y).double(),
            }[output]
        )
    return torch.stack(out)


@pytest.mark.parametrize("output", OUTPUTS)
@given(st.integers(2, 7), st.integers(0, 10**6), st.sampled_from([1.0, 50.0]))
def test_outputs_equal_their_definitions(output, classes, seed, scale):
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(9, classes, generator=rng) * scale
    target, label = torch.randint(0, classes, (2, 9), generator=rng)
    got = answers(logits, target, label).read(output)
    torch.testing.assert_close(got, by_definition(logits, target, label, output), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("output", [o for o in OUTPUTS if o != "accuracy"])
def test_what_methods_differentiate_is_what_metrics_read(output):
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(9, 5, generator=rng, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, 5, (9,), generator=rng)
    value = scalar(logits, target, output)
    torch.testing.assert_close(value.detach(), answers(logits, target).read(output))
    (grad,) = torch.autograd.grad(value.sum(), logits)
    assert torch.isfinite(grad).all()


def test_accuracy_without_a_label_is_no_number():
    logits = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    got = answers(logits, torch.tensor([1, 1]), torch.tensor([-1, 1])).read("accuracy")
    assert got[0].isnan() and got[1] == 1


@pytest.mark.parametrize("output", ["prob", "logprob", "margin", "accuracy"])
def test_one_number_is_no_probability(output):
    """A softmax over one number is 1 whatever the number: no score may be made of it."""
    logits, target = torch.tensor([[3.0]]), torch.tensor([0])
    with pytest.raises(NotApplicable, match=f"output={output}, but the model gives one number per input"):
        answers(logits, target).read(output)
    with pytest.raises(NotApplicable, match=output):
        scalar(logits, target, output)
    assert answers(logits, target).read("logit").item() == scalar(logits, target, "logit").item() == 3


@pytest.mark.parametrize("output", ["logit", "prob", "logprob"])
@given(st.integers(1, 5), st.integers(0, 10**6), st.sampled_from([1.0, 50.0]))
def test_a_label_is_read_without_the_others(output, labels, seed, scale):
    """What two classes with the logits 0 and its own would give, for metrics and methods alike."""
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(9, labels, generator=rng, dtype=torch.float64) * scale
    target = torch.randint(0, labels, (9,), generator=rng)
    own = logits.gather(1, target[:, None])
    truth = by_definition(torch.cat([0 * own, own], 1), torch.ones(9).long(), target, output)
    got = Answers(Answers.compress(logits, target), target, target, multi_label=True).read(output)
    torch.testing.assert_close(got, truth, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(scalar(logits, target, output, multi_label=True), truth, rtol=1e-12, atol=1e-14)


def test_unknown_outputs_are_named():
    got = answers(torch.zeros(1, 2), torch.tensor([0]))
    with pytest.raises(HeatcheckError, match=r"'softmax'.*logit, prob"):
        got.read("softmax")
    with pytest.raises(HeatcheckError, match=r"'softmax'.*logit, prob"):
        scalar(torch.zeros(1, 2), torch.tensor([0]), "softmax", multi_label=True)
    with pytest.raises(HeatcheckError, match=r"'accuracy' cannot be explained"):
        scalar(torch.zeros(1, 2), torch.tensor([0]), "accuracy")


def test_rows_can_be_read_as_an_array():
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    got = answers(logits, torch.zeros(6, dtype=torch.long))
    assert torch.equal(got.reshape(2, 3).read("logit"), got.read("logit").reshape(2, 3))
