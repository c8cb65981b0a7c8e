"""Small text classifiers of every family that methods must work on, with tokenizers trained on a few sentences."""

import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from heatcheck.core.types import Inputs, Sample, TextPair, digest_of
from heatcheck.models.networks import private_copy
from heatcheck.models.text import TextModel
from heatcheck.models.vision_shim import load_transformers

SENTENCES = (
    "A gripping film with a weak ending, but the two leads are wonderful to watch.",
    "The plot was bad and the jokes were worse; nobody in the cinema laughed.",
    "It is a short check of the good and the bad.",
    "What a wonderful, funny and moving story! The children loved it.",
)
TEXT = SENTENCES[2]
_BERT = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
_ROBERTA = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
    "cls_token": "<s>",
    "sep_token": "</s>",
}
_XLNET = {
    "unk_token": "<unk>",
    "sep_token": "<sep>",
    "cls_token": "<cls>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}


@dataclass(frozen=True)
class Family:
    """How a small classifier of a family is made.

    Args:
        kind: what transformers calls it.
        cuts: how its tokenizer cuts words: `wordpiece`, `bpe` or `unigram`.
        marks: its special tokens by role, in the order of their ids.
        single: what its tokenizer makes of a text, `$A`, with the type of each token.
        pair: what it makes of two.
        config: what else its network is told.
        side: where it pads.
    """

    kind: str
    cuts: str
    marks: dict[str, str]
    single: str
    pair: str
    config: dict[str, Any] = field(default_factory=dict)
    side: str = "right"


def _like_bert(kind: str, cuts: str = "wordpiece", **config: Any) -> Family:
    return Family(kind, cuts, _BERT, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", config)


_DISENTANGLED = {
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "position_biased_input": False,
    "max_relative_positions": 16,
    "type_vocab_size": 0,
}
_HEADS = {"num_key_value_heads": 1}
_END = {"eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}

FAMILIES: dict[str, Family] = {
    "BERT": _like_bert("Bert"),
    "DistilBERT": _like_bert("DistilBert", dim=16, n_heads=2, n_layers=2, hidden_dim=24),
    "RoBERTa": Family("Roberta", "bpe", _ROBERTA, "<s> $A </s>", "<s> $A </s> </s> $B </s>", {"type_vocab_size": 1}),
    "ERNIE": _like_bert("Ernie", use_task_id=True),
    "ALBERT": _like_bert("Albert", "unigram", embedding_size=8),
    "ELECTRA": _like_bert("Electra", embedding_size=8),
    "DeBERTa": _like_bert("Deberta", "bpe", **_DISENTANGLED),
    "DeBERTa-v2": _like_bert(
        "DebertaV2", "unigram", **_DISENTANGLED, position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True
    ),
    "ModernBERT": _like_bert("ModernBert", "bpe", local_attention=8, num_hidden_layers=4),
    "MPNet": Family(
        "MPNet",
        "wordpiece",
        {**_ROBERTA, "unk_token": "[UNK]"},
        "<s> $A </s>",
        "<s> $A </s> </s> $B </s>",
    ),
    "XLNet": Family(
        "XLNet",
        "unigram",
        _XLNET,
        "$A <sep> <cls>:2",
        "$A <sep> $B:1 <sep>:1 <cls>:2",
        {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "max_position_embeddings": None},
        side="left",
    ),
    "GPT-2": Family("GPT2", "bpe", _END, "$A", "$A $B", {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 128}),
    "Llama": Family(
        "Llama", "unigram", {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}, "<s> $A", "<s> $A <s> $B", _HEADS
    ),
    "Qwen2": Family(
        "Qwen2", "bpe", {**_END, "pad_token": "<|endoftext|>"}, "$A", "$A $B", _HEADS, side="left"
    ),
}  # fmt: skip
"""Encoders first, then the decoders, whose head reads the last token."""


_INSIDE = "##"
"""How WordPiece marks a piece that does not begin a word."""


def learnt(words: Sequence[str], steps: int, inside: str = "") -> tuple[list[str], list[tuple[str, str]]]:
    """The pieces that byte-pair encoding finds in words, and what it joined; of equally frequent pairs, the first by name.

    (The trainers of `tokenizers` choose among these at random.)
    """
    cut = Counter((word[0], *(inside + c for c in word[1:])) for word in words)
    pieces, joined = sorted({piece for word in cut for piece in word}), []
    for _ in range(steps):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, times in cut.items():
            for pair in pairwise(word):
                pairs[pair] += times
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        joined.append(best)
        pieces.append(best[0] + best[1].removeprefix(inside))
        cut = Counter({_merged(word, best, pieces[-1]): times for word, times in cut.items()})
    return pieces, joined


def _merged(word: tuple[str, ...], pair: tuple[str, str], whole: str) -> tuple[str, ...]:
    found: list[str] = []
    for piece in word:
        if found and (found[-1], piece) == pair:
            found[-1] = whole
        else:
            found.append(piece)
    return tuple(found)


@cache
def _trained(cuts: str, marks: tuple[str, ...], unknown: str) -> str:
    """A tokenizer that has seen the sentences, as JSON."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    splitters = {
        "wordpiece": pre_tokenizers.BertPreTokenizer(),
        "bpe": pre_tokenizers.ByteLevel(add_prefix_space=False),
        "unigram": pre_tokenizers.Metaspace(),
    }
    seen = [s.lower() if cuts == "wordpiece" else s for s in SENTENCES]
    words = [word for sentence in seen for word, _ in splitters[cuts].pre_tokenize_str(sentence)]
    if cuts == "wordpiece":
        pieces, _ = learnt(words, 60, _INSIDE)
        letters = [f"{before}{c}" for c in string.ascii_lowercase + ".,!?;" for before in ("", _INSIDE)]
        vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys([*marks, *letters, *pieces]))}
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
        tokenizer.normalizer, tokenizer.decoder = normalizers.BertNormalizer(lowercase=True), decoders.WordPiece()
    elif cuts == "bpe":
        pieces, joined = learnt(words, 80)
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys([*marks, *letters, *pieces]))}
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=joined))
        tokenizer.decoder = decoders.ByteLevel()
    else:
        pieces, _ = learnt(words, 60)
        own = [*marks, *pieces]
        tokenizer = Tokenizer(
            models.Unigram([(p, -1 - i / 1000) for i, p in enumerate(own)], unk_id=own.index(unknown))
        )
        tokenizer.decoder = decoders.Metaspace()
    tokenizer.pre_tokenizer = splitters[cuts]
    tokenizer.add_special_tokens(list(marks))
    written: str = tokenizer.to_str()
    return written


def tokenizer_of(family: Family, side: str | None = None) -> Any:
    """A fast tokenizer of a family that pads on a side, by default on the family's own."""
    from tokenizers import Tokenizer, processors

    marks = tuple(dict.fromkeys(family.marks.values()))
    own = Tokenizer.from_str(_trained(family.cuts, marks, family.marks["unk_token"]))
    own.post_processor = processors.TemplateProcessing(
        single=family.single, pair=family.pair, special_tokens=[(m, own.token_to_id(m)) for m in marks]
    )
    names = ["input_ids", *(["token_type_ids"] if ":1" in family.pair else []), "attention_mask"]
    return load_transformers().PreTrainedTokenizerFast(
        tokenizer_object=own,
        **family.marks,
        padding_side=side or family.side,
        model_max_length=120,
        model_input_names=names,
    )


def network_of(family: Family, vocabulary: int, pad: int | None, **more: Any) -> Any:
    """A small network of a family, with random weights that are always the same."""
    transformers = load_transformers()
    facts = {
        "vocab_size": vocabulary,
        **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0),
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 130,
        "pad_token_id": pad,
        "num_labels": 3,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        told = {name: fact for name, fact in {**facts, **family.config, **more}.items() if fact is not None}
        config = getattr(transformers, f"{family.kind}Config")(**told)
        network = getattr(transformers, f"{family.kind}ForSequenceClassification")(config).eval()
        for weight in network.parameters():
            weight.data.add_(0.2 * torch.randn(weight.shape))
    return network


class SmallText(TextModel):
    """A small text classifier that brings its own texts, so that methods can be checked on it."""

    adds_up = False

    def inputs(self, n: int, seed: int = 0) -> Inputs:
        """`n` texts of one length; the first ones are the same whatever `n` is."""
        texts = [SENTENCES[(i + seed) % len(SENTENCES)] for i in range(n)]
        length = max(self.encode(said(text))["ids"].shape[1] for text in SENTENCES)
        return Inputs.cat([self.encode(said(text), length) for text in texts])

    def with_network(self, change: Callable[[nn.Module], nn.Module], name: str) -> "SmallText":
        """The same classifier around a changed copy of its network."""
        twin = self.around(change(private_copy(self.module())))
        twin.name = name
        return twin


@cache
def small_text(name: str, side: str | None = None) -> SmallText:
    """A small classifier of a family; every call gives the same one."""
    family = FAMILIES[name]
    tokenizer = tokenizer_of(family, side)
    model = SmallText(network_of(family, len(tokenizer), tokenizer.pad_token_id), tokenizer, name)
    model.check()
    return model


def said(text: str | TextPair, **facts: Any) -> Sample:
    """A text, or a pair of texts, as a sample."""
    return Sample("text", digest_of(*([text] if isinstance(text, str) else text)), text, **facts)


def text_for(name: str) -> Inputs:
    """A text as a small classifier reads it."""
    return small_text(name).encode(said(TEXT))
