"""A text's maps and scores are the same, whatever length it is padded to."""

import contextlib
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tests.models.conftest import save_text_model, say

from heatcheck.core import catalogue
from heatcheck.core.types import Batch, Inputs, NotApplicable, Streams
from heatcheck.metrics.base import Maps
from heatcheck.models.load import load_model
from heatcheck.models.text import TextModel
from heatcheck.probe.numerics import Numerics
from heatcheck.probe.probe import Probe
from heatcheck.testing.models import padded, tiny_bert
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    ("domain/text.py", "draw(row, (last - first, size))", "draw(row, (tokens, size))[:last]", "test_a_handful"),
    (
        "domain/text.py",
        "before[:, right] - before[:, left] == length",
        "before[:, right] - before[:, left] <= length",
        "test_units_and_windows_do_not_see_padding",
    ),
)
REVIEW = "The films was good. It is a badder plot! The film was bad, the plot was good, it is short."
HANDFUL = (
    "smoothgrad(samples=3)",
    "kernel_shap(samples=12)",
    "lime(samples=12)",
    "integrated_gradients(steps=4)",
    "random",
)
METRICS = ("morf(steps=4)", "infidelity(samples=6)", "sds", "complexity")
SCORED = ("saliency", "smoothgrad", "random")
"""Methods whose maps are scored: some metrics explain anew, again and again."""
WIDE, CALLS = 512, Numerics(forward=8, backward=4)
FEW = {
    **dict.fromkeys(("lime", "kernel_shap", "rise", "hsic", "partition_shap"), "samples=24"),
    **dict.fromkeys(("smoothgrad", "smoothgrad_sq", "vargrad", "gradient_shap", "shapley_sampling"), "samples=3"),
    **dict.fromkeys(("integrated_gradients", "guided_ig", "idgi", "blur_ig"), "steps=4"),
    "sobol": "designs=2",
    **dict.fromkeys(("morf", "lerf", "abpc", "deletion", "insertion", "ids"), "steps=4"),
    **dict.fromkeys(("infidelity", "faithfulness_correlation", "sensitivity_n"), "samples=6"),
    **dict.fromkeys(("max_sensitivity", "avg_sensitivity", "local_lipschitz"), "samples=2"),
    **dict.fromkeys(("soft_comprehensiveness", "soft_sufficiency"), "samples=4"),
}
"""Fewer draws than by default: one that padding changed would show in each."""


def widened(batch: Batch, tokens: int) -> Batch:
    """The same texts with more padding."""
    room = tokens - batch.x["ids"].shape[1]
    marks = tuple({kind: F.pad(mark, (0, room)) for kind, mark in own.items()} for own in batch.references)
    return replace(batch, x=padded(batch.x, tokens), references=marks)


def near(found, reference):
    """Whether numbers agree to 1e-5 of the largest."""
    return torch.allclose(found, reference, rtol=1e-5, atol=1e-5 * float(reference.abs().max()), equal_nan=True)


def compared(probe, batches, methods, metrics):
    """Which maps and scores differ between two paddings of the same texts, and how many were compared."""
    short, _ = batches
    seen = short.x["attention"].bool()
    tokens = seen.shape[1]
    maps, differing, count = [], [], 0
    for method in methods:
        try:
            here, there = (method(probe(), batch) for batch in batches)
        except NotApplicable:
            continue
        count += 1
        if here.status != there.status or not near(there.values[:, :tokens][seen], here.values[seen]):
            differing.append(method.name)
        maps.append((method, here, there))
    scored = [both for both in maps if both[0].id in SCORED]
    for metric in metrics:
        sides = []
        for side, batch in enumerate(batches):
            asked = probe()
            given = Maps([both[1 + side] for both in scored], asked.domain, batch, [both[0] for both in scored])
            with contextlib.suppress(NotApplicable):
                sides.append(metric(asked, batch, given))
        if not sides:
            continue
        count += 1
        if sides[0].status != sides[1].status or not near(sides[1].value, sides[0].value):
            differing.append(metric.name)
    return differing, count


def test_a_handful():
    toy = tiny_bert()
    batch = toy_batch(toy, 2)
    methods = [catalogue.build("method", name).resolved_on(toy.domain) for name in HANDFUL]
    metrics = [catalogue.build("metric", name).resolved_on(toy.domain) for name in METRICS]
    found = compared(lambda: probe_for(toy), (batch, widened(batch, 32)), methods, metrics)
    assert found == ([], len(HANDFUL) + len(METRICS))


def test_units_and_windows_do_not_see_padding():
    toy = tiny_bert()
    x = toy_batch(toy, 2).x
    wide = padded(x, 40)
    for name in ("token", "word", "sentence"):
        short, long = toy.domain.units(name, x), toy.domain.units(name, wide)
        assert torch.equal(short.count, long.count)
        assert torch.equal(long.index[:, : x["ids"].shape[1]], short.index)
    windows = [toy.domain.windows(inputs) for inputs in (x, wide)]
    for row in range(2):
        boxes = [{tuple(box) for box in w.box[row][w.valid[row]].tolist()} for w in windows]
        assert boxes[0] == boxes[1]


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> TextModel:
    """A small BERT of transformers that reads 512 tokens, in double precision."""
    folder = save_text_model(tmp_path_factory.mktemp("bert"), max_position_embeddings=WIDE, num_hidden_layers=1)
    given = load_model(f"hf:{folder}")
    given.tokenizer.model_max_length = WIDE
    return TextModel(given.module().double(), given.tokenizer, "bert")


def read(model: TextModel, at_least: int) -> Batch:
    """A text with a rationale, without padding up to its own length, and with padding up to another."""
    sample = say(REVIEW, reference={"spans": [(14, 18), (31, 37)]})
    x = model.encode(sample, at_least)
    if not at_least:
        n = int(x["attention"].sum())
        x = Inputs({name: value[:, :n] for name, value in x.tensors.items()})
    mask = model.references(sample, x)["mask"]
    return Batch(x, torch.tensor([1]), torch.tensor([1]), Streams(0, ("review",)), ({"mask": mask},))


def applying(kind: str, model: TextModel):
    """Every component that is made for texts, with few draws."""
    for name in catalogue.entries(kind):
        spec = f"{name}({FEW[name]})" if name in FEW else name
        try:
            found = catalogue.build(kind, spec).resolved_on(model.domain)
        except NotApplicable:
            continue
        if not (kind == "metric" and (found.across_models or found.composite)):
            yield found


@pytest.fixture(scope="module")
def both(bert) -> tuple[Batch, Batch]:
    """The text without padding, and with padding up to as many tokens as the model reads."""
    short, wide = read(bert, 0), read(bert, WIDE)
    assert (short.x["ids"].shape[1], wide.x["ids"].shape[1]) == (29, WIDE)
    with torch.inference_mode():
        assert near(bert.logits(wide.x), bert.logits(short.x))
    return short, wide


@pytest.mark.slow
def test_every_method_on_a_bert_padded_to_512(bert, both):
    found = compared(lambda: Probe(bert, CALLS), both, list(applying("method", bert)), [])
    assert found[0] == [] and found[1] >= 25, found


@pytest.mark.slow
def test_every_metric_on_a_bert_padded_to_512(bert, both):
    methods = [method for method in applying("method", bert) if method.id in SCORED]
    found = compared(lambda: Probe(bert, CALLS), both, methods, list(applying("metric", bert)))
    assert found[0] == [] and found[1] >= 20, found
