"""Text classifiers: tokens, words, sentences, padding, and two roads to the same logits."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from heatcheck.core.types import Batch, HeatcheckError, Inputs, NotApplicable, Sample, Streams
from heatcheck.fills.text import Mask, Pad, Remove, Unk
from heatcheck.models.load import load_model
from heatcheck.models.text import TextModel
from heatcheck.models.tokens import dense, sentences, token_mask
from heatcheck.models.vision_shim import load_transformers

from .conftest import WORDS, save_text_model, say

REVIEW = "The films was good. It is a badder plot!"


@pytest.fixture(scope="module")
def bert(bert_folder):
    return load_model(f"hf:{bert_folder}")


@pytest.fixture(scope="module")
def text_models(tmp_path_factory):
    """A small random network of a family, made once."""
    made = {}

    def get(kind):
        if kind not in made:
            made[kind] = load_model(f"hf:{save_text_model(tmp_path_factory.mktemp(kind), kind, **FAMILIES[kind][1])}")
        return made[kind]

    return get


def batch_of(x):
    zeros = torch.zeros(len(x), dtype=torch.long)
    return Batch(x=x, target=zeros, label=zeros, streams=Streams(0, ("d",) * len(x)))


def test_tokens_words_and_sentences(bert):
    tokens = bert.tokens(say(REVIEW))
    assert " ".join(tokens.text) == "[CLS] the film ##s was good . it is a bad ##der plot ! [SEP]"
    assert tokens.word == (-1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 10, -1)
    assert [REVIEW[a:b] for a, b in tokens.offsets[1:4]] == ["The", "film", "s"]
    x = bert.encode(say(REVIEW))
    assert x["sentence"][0].tolist() == [-1] + [0] * 6 + [1] * 7 + [-1] * 2
    assert x["word"][0].tolist() == [*tokens.word, -1]
    assert x["special"][0].tolist() == [True] + [False] * 13 + [True] * 2
    assert x["attention"][0].tolist() == [1] * 15 + [0]
    assert bert.domain.units("word", x).count.tolist() == [11]


def test_shapes_do_not_depend_on_neighbours_but_on_length(bert):
    short, long = say("good"), say("good " * 20)
    assert bert.encode(short).shape_key() == bert.encode(say("bad film")).shape_key()
    assert bert.encode(short)["ids"].shape == (1, 4)
    assert bert.encode(long)["ids"].shape == (1, 24)


def test_long_texts_are_cut_and_it_is_told(bert):
    tokens = bert.tokens(say("good " * 100))
    assert bert.longest == 40
    assert (len(tokens.ids), tokens.text[-1], tokens.cut) == (40, "[SEP]", 62)
    assert bert.encode(say("good " * 100))["ids"].shape == (1, 40)
    assert bert.tokens(say("good")).cut == 0


@pytest.mark.parametrize("kind", ["Bert", "Roberta", "DistilBert"])
def test_ids_and_their_embeddings_give_the_same_logits(tmp_path, kind):
    names = DISTILBERT if kind == "DistilBert" else {}
    model = load_model(f"hf:{save_text_model(tmp_path, kind, **names)}")
    x = model.encode(say(REVIEW))
    with torch.inference_mode():
        assert_close(model.logits(x), model.logits(model.domain.with_leaf(x, model.domain.leaf(x))))
    assert len(model.attention_blocks()) == 2


DISTILBERT = {"dim": 16, "n_heads": 2, "n_layers": 2, "hidden_dim": 24}
FAMILIES = {
    "Bert": (0, {}),
    "Roberta": (1, {}),
    "XLMRoberta": (1, {}),
    "Camembert": (1, {}),
    "Data2VecText": (1, {}),
    "DistilBert": (None, DISTILBERT),
    "MPNet": (2, {}),
    "Longformer": (1, {"attention_window": 8, "max_position_embeddings": 49}),
    "IBert": (1, {}),
    "Electra": (0, {}),
    "Albert": (0, {"embedding_size": 8}),
    "Deberta": (0, {}),
    "DebertaV2": (0, {}),
    "ModernBert": (0, {}),
    "XLM": (0, {"emb_dim": 16, "n_layers": 2, "n_heads": 2}),
}
"""The place of the first token (None where a network cannot be told places), and how to make a small network."""


@pytest.mark.parametrize("fill", [Pad(), Unk(), Mask()], ids=str)
@pytest.mark.parametrize("kind", FAMILIES)
def test_deleted_tokens_do_not_move_the_others(text_models, kind, fill):
    """The answer to each deletion is the network's own at explicit places: those that every token had before.

    RoBERTa and others count places over ids that are no padding; for MPNet, that is id 1 (here [UNK]).
    """
    model = text_models(kind)
    first, _ = FAMILIES[kind]
    x = model.encode(say(REVIEW))
    n, width = int(x["attention"].sum()), x["ids"].shape[1]
    free = (~x["special"][0]).nonzero()[:, 0]
    keep = torch.ones(len(free), width, dtype=torch.bool)
    keep[torch.arange(len(free)), free] = False
    many = x.take(torch.zeros(len(free), dtype=torch.long))
    gone = fill.erase(model.domain, many, keep, fill.full(model.domain, batch_of(many)))
    places = {} if first is None else {"position_ids": (torch.arange(width) + first).expand(len(free), -1)}
    with torch.inference_mode():
        truth = model.module()(input_ids=gone["ids"], attention_mask=gone["attention"], **places).logits
        got = model.logits(gone)
    assert_close(got, truth, rtol=1e-4, atol=1e-5)
    assert (got - got.mean(0)).abs().max() > 1e-3 and n == len(free) + 2


@pytest.mark.parametrize("kind", FAMILIES)
def test_padding_and_the_token_limit_of_each_family(text_models, kind):
    model = text_models(kind)
    with torch.inference_mode():
        x = model.encode(say(REVIEW))
        assert_close(model.logits(model.encode(say(REVIEW), 40)), model.logits(x), rtol=1e-4, atol=1e-5)
        longest = FAMILIES[kind][1].get("max_position_embeddings", 48) - (FAMILIES[kind][0] or 0)
        model.tokenizer.model_max_length = 10**9
        again = TextModel(model.module(), model.tokenizer, "again")
        assert again.longest == (longest if kind != "XLM" else again.longest)
        model.logits(again.encode(say("good " * 60)))


def test_networks_that_moved_tokens_before_are_others_now(text_models):
    """Results of releases that moved the tokens of MPNet must not be taken for today's; all others stay what they are."""
    assert {k for k in FAMILIES if "positions" in text_models(k).preprocessing} == {"MPNet", "Longformer", "IBert"}


class Counting(nn.Module):
    """Adds up words times their place, which it counts over attended tokens."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(len(WORDS), 4)
        self.config = SimpleNamespace()

    def get_input_embeddings(self):
        return self.words

    def forward(self, input_ids=None, inputs_embeds=None, attention_mask=None):
        embeds = self.words(input_ids) if inputs_embeds is None else inputs_embeds
        place = attention_mask.cumsum(1) * attention_mask
        return (embeds * place[..., None]).sum(1)


def test_a_network_that_counts_attended_tokens_is_refused(bert):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = TextModel(Counting(), bert.tokenizer, "counting")
    with pytest.raises(HeatcheckError, match="counting moves the tokens behind a hidden one to other places"):
        model.check()


@pytest.mark.parametrize(
    ("kind", "config", "reason"),
    [
        ("FNet", {}, "answers a text otherwise when padding is added on its right"),
        ("Nystromformer", {}, "answers a text otherwise when padding is added on its right"),
        (
            "Esm",
            {"vocab_size": len(WORDS), "mask_token_id": 4},
            "answers word embeddings otherwise than their token ids",
        ),
    ],
)
def test_other_networks_are_refused_with_a_sentence(tmp_path, kind, config, reason):
    with pytest.raises(HeatcheckError, match=rf"{reason}.*use an encoder such as BERT or RoBERTa"):
        load_model(f"hf:{save_text_model(tmp_path, kind, **config)}")


def test_removed_tokens_leave_no_trace(bert):
    x, shorter = bert.encode(say("a b good")), bert.encode(say("a good"))
    keep = torch.ones(x["ids"].shape, dtype=torch.bool)
    keep[0, 2] = False
    gone = Remove().erase(bert.domain, x, keep, Remove().full(bert.domain, batch_of(x)))
    with torch.inference_mode():
        assert_close(bert.logits(gone), bert.logits(shorter))


def test_padding_does_not_change_the_answer(bert):
    x = bert.encode(say("the film was good"))
    bare = Inputs({k: v[:, :6] for k, v in x.tensors.items()})
    with torch.inference_mode():
        assert_close(bert.logits(x), bert.logits(bare))


def test_spans_become_a_mask_over_tokens(bert):
    sample = say(REVIEW, reference={"spans": [(14, 18), (28, 34)]})
    assert [REVIEW[a:b] for a, b in sample.reference["spans"]] == ["good", "badder"]
    x = bert.encode(sample)
    mask = bert.references(sample, x)["mask"]
    assert mask.shape == (16,)
    assert [t for t, m in zip(bert.tokens(sample).text, mask.tolist(), strict=False) if m] == ["good", "bad", "##der"]
    plain = say("good", reference={"other": 1})
    assert bert.references(plain, x) == {"other": 1}


def test_overlap_counts_and_touching_does_not():
    offsets, special = [(0, 0), (0, 3), (4, 7), (8, 9)], [True, False, False, False]
    assert token_mask([(3, 5)], offsets, special).tolist() == [False, False, True, False]
    assert token_mask([(0, 9)], offsets, special).tolist() == [False, True, True, True]


def test_sentences_end_where_people_end_them():
    text = 'He said "no." Then 3.5 left... Gone!'
    starts = [text.index(w) for w in ("He", "no", "Then", "3", "5", "left", "Gone", "!")]
    offsets = [(s, s + 1) for s in starts]
    assert sentences(text, offsets, [False] * 8) == (0, 0, 1, 1, 1, 1, 2, 2)


@given(st.lists(st.one_of(st.none(), st.integers(0, 5))))
def test_dense_numbers_have_no_gaps(labels):
    numbers = dense(labels)
    found = sorted({n for n in numbers if n >= 0})
    assert found == list(range(len(found)))
    assert all((a is None) == (n == -1) for a, n in zip(labels, numbers, strict=True))


def test_token_ids_are_taken_as_they_are(bert):
    ids = bert.encode(say(REVIEW))["ids"]
    x = bert.encode(Sample("ready", "d", ids[0]))
    with torch.inference_mode():
        assert torch.equal(bert.logits(x), bert.logits(bert.encode(say(REVIEW))))
    assert x["special"].sum() == 3
    assert bert.domain.units("word", x).count.tolist() == [13]
    unknown = torch.tensor([2, 1, 4, 3])  # [CLS] [UNK] [MASK] [SEP]
    assert bert.encode(Sample("ready", "d", unknown))["special"][0].tolist() == [True, False, False, True]


def test_what_is_no_text_is_refused(bert):
    with pytest.raises(HeatcheckError, match="reads texts, but sample 'n' is a picture"):
        bert.encode(Sample("n", "d", Path("n.png")))
    with pytest.raises(HeatcheckError, match="reads texts, but sample 'n' is a int"):
        bert.encode(Sample("n", "d", 3))
    with pytest.raises(HeatcheckError, match="sees no token"):
        bert.encode(say("\u200b"))


def test_texts_have_no_spatial_layers(bert):
    with pytest.raises(NotApplicable, match="no spatial"):
        bert.layers(bert.encode(say("good")))


def test_identity_knows_weights_and_tokenizer_but_not_the_folder(bert_folder, tmp_path):
    same = load_model(f"hf:{save_text_model(tmp_path / 'same')}")
    other = load_model(f"hf:{save_text_model(tmp_path / 'other', seed=1)}")
    bert = load_model(f"hf:{bert_folder}")
    assert bert.identity == same.identity != other.identity
    bert.encode(say("good " * 100))  # truncation changes the tokenizer's state
    assert TextModel(bert.module(), bert.tokenizer, "again").identity == bert.identity
    cased = bert.tokenizer.__class__.from_pretrained(bert_folder, do_lower_case=False)
    assert TextModel(bert.module(), cased, "cased").identity != bert.identity


def test_randomised_twins_have_their_own_embedding(bert):
    twin = bert.randomised("", seed=1)
    x = bert.encode(say(REVIEW))
    assert not torch.equal(twin.domain.leaf(x), bert.domain.leaf(x))
    with torch.inference_mode():
        assert_close(twin.logits(x), twin.logits(twin.domain.with_leaf(x, twin.domain.leaf(x))))
    assert twin.identity != bert.identity


def test_class_names_come_from_the_configuration(tmp_path, bert):
    named = save_text_model(tmp_path, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1})
    assert load_model(f"hf:{named}").classes == ("no", "yes")
    assert bert.classes is None


def test_a_headless_checkpoint_is_refused(tmp_path):
    transformers = load_transformers()
    folder = save_text_model(tmp_path)
    network = transformers.BertForSequenceClassification.from_pretrained(folder)
    network.bert.save_pretrained(folder)
    with pytest.raises(HeatcheckError, match="no image or sequence classifier"):
        load_model(f"hf:{folder}")
    config = transformers.AutoConfig.from_pretrained(folder)
    config.architectures = ["BertForSequenceClassification"]
    config.save_pretrained(folder)
    with pytest.raises(HeatcheckError, match=r"lacks weights of BertForSequenceClassification: classifier\.bias"):
        load_model(f"hf:{folder}")
