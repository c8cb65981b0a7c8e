"""Text classifiers: tokens, words, sentences, padding, and two roads to the same logits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from heatcheck.core.types import Batch, HeatcheckError, Inputs, NotApplicable, Sample, Streams
from heatcheck.fills.text import Pad, Remove
from heatcheck.models.load import load_model
from heatcheck.models.text import TextModel, dense, padded_length, sentences, token_mask
from heatcheck.models.vision_shim import load_transformers

from .conftest import save_text_model, say

REVIEW = "The films was good. It is a badder plot!"


@pytest.fixture(scope="module")
def bert(bert_folder):
    return load_model(f"hf:{bert_folder}")


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
    assert bert.encode(short)["ids"].shape == (1, 16)
    assert bert.encode(long)["ids"].shape == (1, 32)


@given(n=st.integers(1, 600), longest=st.integers(1, 600))
def test_padded_lengths(n, longest):
    n = min(n, longest)
    length = padded_length(n, longest)
    assert n <= length <= longest
    assert length in (16, 32, 64, 128, 256, 512, 1024, longest)
    assert length == 16 or length == longest or length < 2 * n


def test_long_texts_are_cut_and_it_is_told(bert):
    tokens = bert.tokens(say("good " * 100))
    assert bert.longest == 40
    assert (len(tokens.ids), tokens.text[-1], tokens.cut) == (40, "[SEP]", 62)
    assert bert.encode(say("good " * 100))["ids"].shape == (1, 40)
    assert bert.tokens(say("good")).cut == 0


@pytest.mark.parametrize("kind", ["Bert", "Roberta", "DistilBert"])
def test_ids_and_their_embeddings_give_the_same_logits(tmp_path, kind):
    names = {"dim": 16, "n_heads": 2, "n_layers": 2, "hidden_dim": 24} if kind == "DistilBert" else {}
    model = load_model(f"hf:{save_text_model(tmp_path, kind, **names)}")
    x = model.encode(say(REVIEW))
    with torch.inference_mode():
        assert_close(model.logits(x), model.logits(model.domain.with_leaf(x, model.domain.leaf(x))))
    assert len(model.attention_blocks()) == 2


def test_deleted_tokens_do_not_move_the_others(tmp_path):
    """RoBERTa counts positions over tokens that are no padding; a deletion must not shift them."""
    model = load_model(f"hf:{save_text_model(tmp_path, 'Roberta')}")
    x = model.encode(say("a b c good"))
    keep = torch.ones(1, 16, dtype=torch.bool)
    keep[0, 2] = False
    gone = Pad().erase(model.domain, x, keep, Pad().full(model.domain, batch_of(x)))
    with torch.inference_mode():
        assert_close(model.logits(gone), model.logits(model.domain.with_leaf(gone, model.domain.leaf(gone))))


def test_removed_tokens_leave_no_trace(bert):
    x, shorter = bert.encode(say("a b good")), bert.encode(say("a good"))
    keep = torch.ones(1, 16, dtype=torch.bool)
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


def test_decoders_that_read_the_last_token_are_refused(tmp_path):
    folder = save_text_model(tmp_path, "GPT2", n_embd=16, n_layer=1, n_head=2, n_positions=48)
    with pytest.raises(HeatcheckError, match="answers word embeddings otherwise"):
        load_model(f"hf:{folder}")


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
