"""Lengths of texts: rounded up as little as batches allow, cut where a user or the model says so, and that is told."""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Attribution, Batch, HeatcheckError, Sample, Streams
from heatcheck.metrics.base import Maps
from heatcheck.models.lengths import Extent, Rounding, padding_share
from heatcheck.models.load import load_model
from heatcheck.models.request import Request
from heatcheck.models.text_description import describe, described
from heatcheck.probe.numerics import Numerics
from heatcheck.probe.probe import Probe

from .conftest import say

MUTANTS = (
    ("models/lengths.py", "-(-n // step) * step", "(n // step + 1) * step", "test_lengths_are_rounded_up_to_the_grid"),
    ("models/lengths.py", "small: int = 4", "small: int = 32", "test_at_most_a_tenth_of_real_texts_is_padding"),
    ("models/lengths.py", "span[0] < self.last", "span[1] <= self.last", "test_a_span_is_read_if_a_part_of_it_is"),
    (
        "models/lengths.py",
        "extent.tokens + extent.cut for extent",
        "extent.tokens for extent",
        "test_what_is_cut_off_is_told",
    ),
    (
        "models/text.py",
        "if ids.numel() > self.longest:",
        "if False:",
        "test_token_ids_that_cannot_be_read_cost_their_sample",
    ),
    (
        "models/text.py",
        "int(ids.max()) < known",
        "int(ids.max()) < 99999",
        "test_token_ids_that_cannot_be_read_cost_their_sample",
    ),
)
SST2 = [
    *(4, 5, 8, 9, 9, 9, 10, 10, 11, 11, 11, 11, 12, 12, 13, 13, 13, 13, 15, 15, 16, 17, 17, 17, 18, 18, 18, 19, 19, 19),
    *(19, 19, 20, 20, 20, 20, 21, 21, 22, 22, 22, 23, 23, 23, 24, 24, 24, 24, 25, 25, 25, 25, 25, 26, 26, 27, 27, 28),
    *(28, 28, 28, 29, 29, 29, 30, 30, 30, 30, 31, 31, 31, 32, 33, 33, 33, 33, 33, 33, 34, 35, 35, 35, 36, 36, 36, 37),
    *(37, 38, 39, 40, 40, 40, 41, 42, 44, 47, 49, 51, 51, 53),
]
MOVIES = [
    *(292, 305, 333, 380, 400, 485, 486, 514, 519, 550, 558, 561, 657, 667, 669, 730, 737, 751, 755, 769, 777, 877),
    *(888, 916, 940, 940, 948, 950, 952, 980, 1024, 1049, 1059, 1062, 1117, 1149, 1172, 1194, 1308, 1613),
]
"""Tokens of 100 sentences of SST-2's dev set and of 40 movie reviews of ERASER's val set, drawn at random, by MiniLM."""


@pytest.fixture(scope="module")
def bert(bert_folder):
    return load_model(f"hf:{bert_folder}")


@given(n=st.integers(1, 5000))
def test_lengths_are_rounded_up_to_the_grid(n):
    length = Rounding().up(n)
    assert n <= length < n + (4 if n <= 64 else 16)
    assert length % (4 if n <= 64 else 16) == 0
    assert Rounding().up(length) == length and Rounding().up(n + 1) >= length


@pytest.mark.parametrize("lengths", [SST2, MOVIES], ids=["sst2", "movies"])
@pytest.mark.parametrize("longest", [256, 512])
def test_at_most_a_tenth_of_real_texts_is_padding(bert, lengths, longest):
    """Counted over token-passes: once for each text, and once for each of its tokens, as where each is deleted alone."""
    model = copy.copy(bert)
    model.longest = longest
    seen = [min(n, longest) for n in lengths]
    assert padding_share((n, model.padded(n)) for n in seen) <= 0.1
    assert padding_share((n, model.padded(n)) for n in seen for _ in range(n)) <= 0.1


def test_without_texts_nothing_is_padding():
    assert padding_share([]) == 0.0


def test_a_rounding_belongs_to_the_numerics_and_not_to_the_identity(bert):
    before, sample = bert.identity, say("good film")
    assert bert.encode(sample)["ids"].shape == (1, 4) and "shortest" not in bert.preprocessing
    try:
        bert.round_by([8, 16, 16])
        assert bert.encode(sample)["ids"].shape == (1, 8) and bert.size(sample) == 8 and bert.identity == before
    finally:
        bert.round_by(None)
    assert bert.rounding == Rounding() and bert.size(sample) == 4


def test_sizes_are_those_of_the_inputs(bert):
    for text in ("good", "good film " * 12, "good " * 100):
        assert bert.size(say(text)) == bert.encode(say(text))["ids"].shape[1]
    assert bert.size(say("\u200b")) == 0, "a text without tokens has a status, and no size"
    assert bert.size(Sample("ready", "", torch.arange(7))) == 7


@pytest.mark.parametrize(
    ("span", "read"), [((0, 4), True), ((18, 30), True), ((20, 30), False), ((0, 40), True), ((19, 20), True)]
)
def test_a_span_is_read_if_a_part_of_it_is(span, read):
    assert Extent(6, 3, 0, 20).shows(span) is read
    assert Extent(9, 0, 0, 20).shows(span), "of a text that is read to its end, everything is seen"


def test_the_beginning_may_be_cut_off():
    extent = Extent(6, 3, 12, 40)
    assert not extent.shows((3, 12)) and extent.shows((3, 13))


def test_what_is_cut_off_is_told(bert):
    long = say("good " * 60, reference={"spans": [(0, 4), (250, 254), (295, 299)]})  # 38 words are read: 190 characters
    short = say("a bad film", reference={"spans": [(2, 5)]})
    told = bert.unread([short, long, say("\u200b"), replace(long, reference={"spans": "no spans"})])
    assert "reads 40 tokens, and 1 of 2 texts is longer" in told  # 22 of 62 + 5 tokens
    assert "33% of all tokens and 2 of 4 rationale spans (50%)" in told
    alone = bert.unread([replace(long, reference={})])
    assert "the text is longer" in alone and "rationale" not in alone
    assert "2 of 2 texts are longer" in bert.unread([long, long])
    assert bert.unread([short]) == "" and bert.unread([]) == ""
    few = bert.unread([say("good " * 39), *(say(f"{'film ' * 37}{word}") for word in ("a", "bad", "c", "the"))])
    assert "1 of 5 texts is longer" in few and "cut off, 1 token;" in few


def test_the_spans_that_count_are_those_that_are_read(bert):
    sample = say("good " * 60, reference={"spans": [(5, 9), (250, 254)]})
    mask = bert.references(sample, bert.encode(sample))["mask"]
    assert mask.nonzero()[:, 0].tolist() == [2]
    gone = replace(sample, reference={"spans": [(250, 254)]})
    assert not bert.references(gone, bert.encode(gone))["mask"].any()


def test_rationale_metrics_count_the_spans_that_are_read(bert):
    metric = catalogue.build("metric", "rationale_f1").resolved_on(bert.domain)

    def scored(spans):
        sample = say("good " * 60, reference={"spans": spans})
        x = bert.encode(sample)
        batch = Batch(x, torch.zeros(1).long(), torch.zeros(1).long(), Streams(0, ("",)), (bert.references(sample, x),))
        later = Attribution(torch.arange(40.0)[None])
        found = metric(Probe(bert, Numerics(forward=1)), batch, Maps([later], bert.domain, batch))
        return found.value.item(), found.status[0][0]

    assert scored([(185, 189), (250, 254)]) == scored([(185, 189)]) == (1.0, "ok")  # the last word that is read
    assert scored([(250, 254)])[1] == "undefined: the mask is empty"


@pytest.mark.parametrize("asked", ["tokens=12", {"tokens": 12}])
def test_a_user_may_have_texts_cut_shorter(bert, bert_folder, asked):
    cut = load_model(f"hf:{bert_folder}", preprocess=asked)
    assert cut.longest == 12 and cut.identity != bert.identity
    text = say("good film . " * 10)
    assert cut.encode(text)["ids"].shape == (1, 12)
    assert cut.encode(text)["ids"][0, :11].equal(bert.encode(text)["ids"][0, :11])
    assert cut.tokens(text).cut == 20 and "reads 12 tokens" in cut.unread([text])
    more = load_model(f"hf:{bert_folder}", preprocess="tokens=4000")
    assert more.longest == 40 and more.identity == bert.identity, "a model sees no more than it can read"


def test_objects_and_trained_models_are_cut_too(bert, tmp_path):
    assert load_model((bert.module(), bert.tokenizer), preprocess="tokens=12").longest == 12
    describe(bert.module(), bert.tokenizer, ["bad", "good"], tmp_path)
    assert described(tmp_path, bert.module().state_dict(), "weights", Request(name="trained", tokens=12)).longest == 12


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("tokens=2", "tokens=2: .* adds 2 special tokens to each text; ask for more"),
        ("tokens=0", "tokens= is one whole number, such as 256"),
        ("tokens=1 2", "tokens= is one whole number, such as 256"),
        ("tokens=many", "tokens='many' are no whole numbers"),
        ("imagenet,tokens=9", "tokens= is for texts, and everything else for pictures"),
        ({"tokens": -1}, "tokens=-1 must be a whole number"),
        ({"tokens": 5, "size": 3}, "preprocess="),
        ("imagenet", "reads texts: this preprocess= is for pictures; write tokens=N"),
    ],
)
def test_what_cannot_be_cut_is_refused(bert_folder, asked, told):
    with pytest.raises((HeatcheckError, SpecError), match=told):
        load_model(f"hf:{bert_folder}", preprocess=asked)


def test_pictures_are_not_cut(net):
    with pytest.raises(HeatcheckError, match="reads images: preprocess='tokens=9' is for texts"):
        load_model(net, preprocess="tokens=9")


def test_token_ids_that_cannot_be_read_cost_their_sample(bert, bert_folder, tmp_path):
    """Ids that were tokenized without truncation, or by another tokenizer, stand first: the others are measured."""
    start, end = bert.tokenizer.cls_token_id, bert.tokenizer.sep_token_id
    long = [{"input_ids": [start, *([5 + k] * bert.longest), end], "label": 1} for k in range(2)]
    good = [{"input_ids": [start, 5 + k, 6, 7, end], "label": 0} for k in range(6)]
    foreign = {"input_ids": [start, 99_998, end], "label": 0}
    bench = hc.Benchmark(
        models={"bert": f"hf:{bert_folder}"},
        data=hc.load_data([*long, foreign, *good]),
        methods=["saliency"],
        metrics=["morf(steps=2)"],
    )
    told = bench.run(tmp_path, progress="none").samples().sort("sample")["status"].to_list()
    assert told[3:] == ["ok"] * 6
    assert all(f"has {bert.longest + 2} token ids, and bert reads {bert.longest}" in why for why in told[:2])
    assert "truncation=True" in told[0] and "another tokenizer's" in told[2]
