"""Text classifiers of transformers: tokens with their words, sentences and places in the text."""

import contextlib
import copy
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from heatcheck.core.types import HeatcheckError, Inputs, NotApplicable, Sample, TextPair, digest_of
from heatcheck.data.references import spans_of
from heatcheck.domain.text import TextDomain, padding_of, with_start, words_of
from heatcheck.models.base import Layer, TorchModel
from heatcheck.models.last_token import answer_at_last, reads_last_token
from heatcheck.models.lengths import Rounding
from heatcheck.models.text_questions import (
    CLASSIFIER,
    alike,
    extra_inputs,
    first_position,
    hidden,
    hiding_moves_others,
    knows_types,
    reads_last_place,
    unpadded,
    word_embedding,
)
from heatcheck.models.words import trimmed, words

_UNLIMITED = 512
"""Tokens read by a model that states no limit."""
_SENTENCE_END = re.compile(r"[.!?]+[\"'”’)\]]*(?=\s|$)")


@dataclass(frozen=True)
class Tokens:
    """A text as a model reads it, without padding.

    Args:
        text: each token as its tokenizer spells it.
        offsets: where each stands in the text, spaces in front of it left out; `(0, 0)` for special tokens. Of a pair
            of texts, where it stands in both, joined.
        special: which are added by the tokenizer, such as [CLS].
        word: the word each belongs to, -1 for special ones.
        sentence: likewise the sentence.
        cut: how many tokens the text has beyond what the model can read.
        types: which part of a pair each belongs to, as the network is told; empty where it is not.
    """

    ids: tuple[int, ...]
    text: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    special: tuple[bool, ...]
    word: tuple[int, ...]
    sentence: tuple[int, ...] = ()
    cut: int = 0
    types: tuple[int, ...] = ()


class Extent(NamedTuple):
    """How much of a text a model reads.

    Args:
        tokens: how many tokens, special ones included.
        cut: how many are cut off.
        first: the place in the text where the first of them begins.
        last: the place behind the last of them.
    """

    tokens: int
    cut: int = 0
    first: int = 0
    last: int = 0

    def shows(self, span: tuple[int, int]) -> bool:
        """Whether a part of a span of characters is read, as far as the text's ends decide it."""
        return not self.cut or (span[0] < self.last and self.first < span[1])


class TextModel(TorchModel):
    """A transformers sequence classifier with its tokenizer: an encoder, or a decoder whose head reads the last token.

    Its attention is computed eagerly, so that its weights can be read. Texts are padded on the side that the tokenizer
    says; the network gets them without padding in front, so that every token has the place it has in the text alone.

    A tokenizer without a padding token (GPT-2's) pads with the token that ends a text, as is usual, else with the unknown
    one, else with id 0. What is hidden from attention is never read, so any would do, but the baseline of integrated
    gradients and a text all of whose tokens are hidden do show it.

    Args:
        network: the classifier; takes `input_ids` or `inputs_embeds`, and `attention_mask`.
        tokenizer: a fast tokenizer, which knows where each token stands.
        name: what tables call it.
        classes: class names.
        tokens: how many tokens of a text are read, special ones included; None for as many as the network can.
    """

    domain: TextDomain
    rounding = Rounding()

    def __init__(
        self,
        network: nn.Module,
        tokenizer: Any,
        name: str,
        *,
        classes: tuple[str, ...] | None = None,
        tokens: int | None = None,
    ) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise HeatcheckError(
                f"{name}: {type(tokenizer).__name__} does not say where its tokens stand; use a fast tokenizer: "
                "transformers.AutoTokenizer.from_pretrained(FOLDER) gives one where the folder has a tokenizer.json, and "
                'transformers.PreTrainedTokenizerFast(tokenizer_file="tokenizer.json") reads such a file by itself'
            )
        domain = TextDomain(
            embed=word_embedding(network, name),
            spell=tokenizer.convert_ids_to_tokens,
            pad=filler(tokenizer),
            mask=tokenizer.mask_token_id,
            unk=tokenizer.unk_token_id,
            specials=special_ids(tokenizer),
            in_front=not reads_last_place(network),
        )
        super().__init__(network, name, domain, classes=classes)
        self.tokenizer = tokenizer
        self.types = knows_types(network)
        """Whether the network is told which part of a pair a token belongs to."""
        self.side = tokenizer.padding_side if self.domain.in_front else "left"
        """Where texts are padded: on the tokenizer's side, unless the network reads the last place whatever is there."""
        self._attend_eagerly()
        self._own_embedding()
        self._extents: dict[str, Extent] = {}
        self.longest = self._limit() if tokens is None else min(tokens, self._limit())
        if tokens is not None and self.longest <= (added := tokenizer.num_special_tokens_to_add()):
            raise HeatcheckError(f"tokens={tokens}: {name} adds {added} special tokens to each text; ask for more")
        self.preprocessing = {"tokenizer": tokenizer_digest(tokenizer), "longest": self.longest}
        if self._positions_were_moved():
            self.preprocessing["positions"] = "kept"

    def _attend_eagerly(self) -> None:
        """Have attention computed step by step, also where the user's network computes it in one fused step."""
        change = getattr(self._network, "set_attn_implementation", None)
        if change and getattr(self._network.config, "_attn_implementation", "eager") != "eager":
            change("eager")

    def _own_embedding(self) -> None:
        self.domain = replace(self.domain, embed=word_embedding(self._network, self.name))

    def call(self, network: nn.Module, x: Inputs) -> Any:
        """The network's answer to word embeddings, whose places are their own.

        Some networks (RoBERTa, MPNet, Longformer) count places over those ids that are no padding, so that all tokens
        behind one that is replaced by padding would move.
        """
        embeds = x["embeds"] if "embeds" in x else word_embedding(network, self.name)(x["ids"])
        attention = self.domain.entering(x["attention"], x)
        given = {"inputs_embeds": self.domain.entering(embeds, x), "attention_mask": attention}
        if "types" in x and self.types:
            given["token_type_ids"] = self.domain.entering(x["types"], x)
        if reads_last_token(network):
            text = self.domain.entering(~padding_of(x), x) if "special" in x else None
            return answer_at_last(network, given, text)
        return network(**given, **extra_inputs(network, attention))

    def by_ids(self, x: Inputs) -> Float[Tensor, "n c"]:
        """The network's answer to token ids, as its author calls it; nothing but questions to the network uses this."""
        types = {"token_type_ids": x["types"]} if "types" in x and self.types else {}
        out = self._network(input_ids=x["ids"], attention_mask=x["attention"], **types)
        logits: Tensor = getattr(out, "logits", out)
        return logits

    def _limit(self) -> int:
        """How many tokens the model can read: as many as it has places for, and as its tokenizer says."""
        places = getattr(self._network.config, "max_position_embeddings", None)
        if isinstance(places, int) and places > 0:
            with contextlib.suppress(Exception):  # `check` says what is wrong with a network that cannot read this
                places -= first_position(self._network, places, lambda: self.logits(self._example()))
        limits = [v for v in (places, self.tokenizer.model_max_length) if isinstance(v, int) and 0 < v < 1_000_000]
        return min(limits, default=_UNLIMITED)

    def _example(self) -> Inputs:
        """A few tokens, whatever the vocabulary."""
        ids = [i for i in range(1, 6) if i != self.domain.pad][:4]
        return self._ready(Sample("example", "", torch.tensor(ids)))

    def _positions_were_moved(self) -> bool:
        """Whether releases that asked by ids, and looked for positions by one attribute, moved this network's tokens.

        Such results must not be taken for today's: the network's identity is another.
        """
        if reads_last_token(self._network) or any(
            hasattr(m, "create_position_ids_from_input_ids") for m in self._network.modules()
        ):
            return False
        try:
            with torch.inference_mode():
                gone = hidden(self._example(), 1, self.domain.token_id("pad"))
                return not alike(self.by_ids(gone), self.logits(gone))
        except Exception:  # `check` says what is wrong
            return False

    def encode(self, sample: Sample, at_least: int = 0) -> Inputs:
        """Tokens padded to a length that the sample and the rounding decide, never above the model's limit.

        Args:
            sample: the text, or the pair of texts.
            at_least: a length to pad to where the text needs less.
        """
        if isinstance(sample.content, Tensor):
            return self._ready(sample)
        tokens = self.tokens(sample)
        length = max(at_least, self.padded(len(tokens.ids)))
        rows: dict[str, tuple[Sequence[int], int]] = {
            "ids": (tokens.ids, self.domain.token_id("pad")),
            "attention": ([1] * len(tokens.ids), 0),
            "word": (tokens.word, -1),
            "sentence": (tokens.sentence, -1),
            "special": (tokens.special, True),
            "begin": ([begin for begin, _ in tokens.offsets], 0),
            "end": ([end for _, end in tokens.offsets], 0),
        }
        if any(tokens.types):
            rows["types"] = (tokens.types, self.tokenizer.pad_token_type_id)
        x = Inputs({name: self._padded(torch.tensor([own]), length, blank) for name, (own, blank) in rows.items()})
        return x.replace(start=torch.tensor([length - len(tokens.ids)])) if self.side == "left" else x

    def _padded(self, values: Shaped[Tensor, "... t"], length: int, blank: int) -> Shaped[Tensor, "... s"]:
        """Values of tokens, padded on the model's side."""
        spare = length - values.shape[-1]
        beside = (spare, 0) if self.side == "left" else (0, spare)
        return torch.nn.functional.pad(values, beside, value=blank)

    def padded(self, n: int) -> int:
        """The length that a text of `n` tokens is padded to."""
        return min(self.rounding.up(n), self.longest) if self.rounding else n

    def size(self, sample: Sample) -> int:
        if isinstance(sample.content, Tensor):
            return sample.content.numel()
        try:
            return self.padded(self.extent(sample).tokens)
        except Exception:  # its status tells why it cannot be read
            return 0

    def extent(self, sample: Sample) -> Extent:
        """How much of a text is read; found out once."""
        if sample.digest not in self._extents:
            tokens = self.tokens(sample)
            read = [place for place, odd in zip(tokens.offsets, tokens.special, strict=True) if not odd]
            first, last = min(start for start, _ in read), max(end for _, end in read)
            self._extents[sample.digest] = Extent(len(tokens.ids), tokens.cut, first, last)
        return self._extents[sample.digest]

    def unread(self, samples: Iterable[Sample]) -> str:
        found: list[tuple[Extent, list[tuple[int, int]]]] = []
        for sample in samples:
            with contextlib.suppress(Exception):  # its status tells what is wrong with it
                spans = spans_of(sample.reference["spans"]) if "spans" in sample.reference else []
                found.append((self.extent(sample), spans))
        long = sum(extent.cut > 0 for extent, _ in found)
        if not long:
            return ""
        lost = sum(extent.cut for extent, _ in found)
        share = lost / sum(extent.tokens + extent.cut for extent, _ in found)
        marked = [(extent, span) for extent, spans in found for span in spans]
        gone = sum(not extent.shows(span) for extent, span in marked)
        told = f"{share:.0%} of all tokens" if share >= 0.01 else f"{lost} token{'' if lost == 1 else 's'}"
        if marked:
            told += f" and {gone} of {len(marked)} rationale spans ({gone / len(marked):.0%})"
        longer = "the text is" if len(found) == 1 else f"{long} of {len(found)} texts {'is' if long == 1 else 'are'}"
        return (
            f"{self.name} reads {self.longest} tokens, and {longer} longer: what lies beyond is cut off, {told}; maps and "
            "metrics are about what is left"
        )

    def _ready(self, sample: Sample) -> Inputs:
        """Token ids as they are: every token is a word, and all of them are one sentence."""
        ids = sample.content.reshape(1, -1).long()
        special = torch.isin(ids, torch.tensor(sorted(self.domain.specials), dtype=torch.long))
        pad = self.tokenizer.pad_token_id
        attention = torch.ones_like(ids) if pad is None else (ids != pad).long()
        word = torch.where(special, -1, (~special).long().cumsum(1) - 1)
        return with_start(
            Inputs(
                {
                    "ids": ids,
                    "attention": attention,
                    "special": special,
                    "word": word,
                    "sentence": torch.where(special, -1, 0),
                }
            )
        )

    def tokens(self, sample: Sample) -> Tokens:
        """The text's tokens, and where they stand in it; both parts of a pair are cut alike where they are too long."""
        if not isinstance(sample.content, str | TextPair):
            raise HeatcheckError(
                f"{self.name} reads texts, but sample {sample.name!r} is a {type(sample.content).__name__}"
            )
        wanted = {
            "return_offsets_mapping": True,
            "return_special_tokens_mask": True,
            "padding": False,
            "verbose": False,
        }
        pair = sample.content if isinstance(sample.content, TextPair) else None
        given = texts_of(sample.content)
        found = self.tokenizer(*given, truncation=False, **wanted)
        total = len(found["input_ids"])
        if total > self.longest:
            found = self.tokenizer(*given, truncation="longest_first", max_length=self.longest, **wanted)
        ids = tuple(found["input_ids"])
        special = tuple(bool(s) for s in found["special_tokens_mask"])
        if all(special):
            raise HeatcheckError(f"{self.name} sees no token in sample {sample.name!r}")
        text, shift = (pair.joined, len(pair.first) + 1) if pair else ("".join(given), 0)
        part = [None if s else p for s, p in zip(special, found.sequence_ids(), strict=True)]
        moved = [
            (a + shift * bool(p), b + shift * bool(p)) for (a, b), p in zip(found["offset_mapping"], part, strict=True)
        ]
        offsets = tuple((0, 0) if p is None else trimmed(text, span) for span, p in zip(moved, part, strict=True))
        own = [None if s else w for s, w in zip(special, found.word_ids(), strict=True)]
        return Tokens(
            ids=ids,
            text=tuple(self.tokenizer.convert_ids_to_tokens(list(ids))),
            offsets=offsets,
            special=special,
            word=words(text, moved, own, part),
            sentence=sentences(text, offsets, special, [len(pair.first)] if pair else ()),
            cut=total - len(ids),
            types=tuple(found.get("token_type_ids", ())) if self.types else (),
        )

    def words(self, sample: Sample) -> set[tuple[int, ...]]:
        if isinstance(sample.content, Tensor):
            return super().words(sample)
        endless = copy.copy(self)
        endless.longest = sys.maxsize
        tokens = endless.tokens(sample)
        return set(words_of(tokens.ids, tokens.word))

    def references(self, sample: Sample, x: Inputs) -> Mapping[str, Any]:
        """Spans of characters become masks over the tokens that overlap them.

        `spans` become `mask`, and `span_masks` for each by itself that the model reads; `parts` one mask each, stacked, with their `part_names`; texts `without` each of these
        parts are encoded, as long as the longest of them needs. What the model cannot read is an empty mask.
        """
        known = sample.reference
        if not known.keys() & {"spans", "parts", "without"} or not isinstance(sample.content, str | TextPair):
            return known
        tokens = self.tokens(sample)

        def seen(spans: Any) -> Bool[Tensor, " t"]:
            return self._padded(token_mask(spans_of(spans), tokens.offsets, tokens.special), x["ids"].shape[1], False)

        found = {kind: value for kind, value in known.items() if kind not in ("parts", "without")}
        if "spans" in known and "mask" not in known:
            each = [seen([span]) for span in spans_of(known["spans"])]
            found["span_masks"] = tuple(mask for mask in each if mask.any())
            found["mask"] = seen(known["spans"])
        if parts := known.get("parts"):
            found["parts"] = torch.stack([seen(spans) for spans in parts.values()])
            found["part_names"] = tuple(parts)
            if without := known.get("without"):
                texts = [Sample(name, "", without[name]) for name in parts]
                length = max(self.encode(text)["ids"].shape[1] for text in texts)
                found["without"] = Inputs.cat([self.encode(t, max(length, x["ids"].shape[1])) for t in texts])
        return found

    def display(self, sample: Sample, x: Inputs) -> dict[str, Any]:
        """Tokens as the domain shows them, with the piece of the text that each stands for and what people marked."""
        shown = self.domain.display(x)
        places = slice(shown["first"], shown["first"] + len(shown["tokens"]))
        mask = self.references(sample, x).get("mask")
        if mask is not None:
            shown["rationale"] = torch.as_tensor(mask).flatten()[places].bool().tolist()
        if not isinstance(sample.content, Tensor):
            text = getattr(sample.content, "joined", sample.content)
            shown["pieces"] = pieces(text, self.tokens(sample).offsets)
        return shown

    def layers(self, x: Inputs) -> list[Layer]:
        raise NotApplicable(f"{self.name} reads texts: it has no spatial feature maps")

    def check(self) -> None:
        """Refuse a network whose answers cannot be compared when tokens are deleted.

        It must answer word embeddings as it answers their token ids, a padded text as the text, and must not move the
        tokens behind a hidden one.
        """
        text = Sample("check", digest_of("check"), "A short check.")
        x = self.encode(text)
        wider, bare = self.encode(text, min(2 * x["ids"].shape[1], self.longest)), unpadded(x)
        try:
            with torch.inference_mode():
                by_ids, by_embeds, padded = self.by_ids(bare), self.logits(bare), self.logits(wider)
                moves = hiding_moves_others(self.logits, bare, self.domain.token_id("pad"))
        except Exception as problem:
            why = f"{type(problem).__name__}: {str(problem).strip().splitlines()[0] if str(problem).strip() else ''}"
            raise HeatcheckError(
                f"{self.name} cannot be asked about word embeddings ({why}), so its inputs cannot be explained; {CLASSIFIER}"
            ) from problem
        if not alike(by_ids, by_embeds):
            raise HeatcheckError(
                f"{self.name} answers word embeddings otherwise than their token ids, so its inputs cannot be explained; "
                f"{CLASSIFIER}"
            )
        if not alike(by_embeds, padded):
            raise HeatcheckError(
                f"{self.name} answers a text otherwise when padding is added on its {self.side}, so that "
                f"its answers to texts of different lengths cannot be compared; {CLASSIFIER}"
            )
        if moves:
            raise HeatcheckError(
                f"{self.name} moves the tokens behind a hidden one to other places, so that what a deletion costs cannot "
                f"be told from what the move costs; {CLASSIFIER}"
            )


def texts_of(content: str | TextPair) -> tuple[str, ...]:
    """The text, or the two texts, that a tokenizer is given."""
    return (content,) if isinstance(content, str) else tuple(content)


def read_together(tokenizer: Any, contents: Sequence[str | TextPair], longest: int, *, in_front: bool = True) -> Inputs:
    """Texts, or pairs of them, as one batch for training.

    Args:
        tokenizer: cuts them up.
        contents: the texts.
        longest: how many tokens of each are read.
        in_front: whether padding follows behind them; else it comes before them.
    """
    read = [tokenizer(*texts_of(c), truncation="longest_first", max_length=longest, verbose=False) for c in contents]
    blanks = {"input_ids": filler(tokenizer), "attention_mask": 0, "token_type_ids": tokenizer.pad_token_type_id}
    names = {"input_ids": "ids", "attention_mask": "attention", "token_type_ids": "types"}

    def joined(name: str) -> Tensor:
        rows = [torch.tensor(found[name], dtype=torch.long) for found in read]
        side = "right" if in_front else "left"
        return torch.nn.utils.rnn.pad_sequence(rows, True, blanks[name], padding_side=side)

    return Inputs({names[name]: joined(name) for name in names if name in read[0]})


def filler(tokenizer: Any) -> int:
    """The id that stands where nothing is read: the padding token's, else that of the end of a text, else of the unknown."""
    known = (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id)
    return next((int(token) for token in known if token is not None), 0)


def special_ids(tokenizer: Any) -> frozenset[int]:
    """The ids of tokens that belong to no text: begin, end, separators and padding; the unknown and mask tokens do."""
    ids = (getattr(tokenizer, f"{role}_token_id") for role in ("cls", "sep", "bos", "eos", "pad"))
    return frozenset(int(i) for i in ids if i is not None)


def tokenizer_digest(tokenizer: Any) -> str:
    """Digest of everything that decides how a text is cut up; truncation and padding are this adapter's own."""
    facts = json.loads(tokenizer.backend_tokenizer.to_str())
    for mine in ("truncation", "padding"):
        facts.pop(mine, None)
    return digest_of(json.dumps(facts, sort_keys=True))


def dense(labels: Sequence[int | None]) -> tuple[int, ...]:
    """The labels numbered 0, 1, 2 … in order of appearance; -1 where there is none."""
    numbers: dict[int, int] = {}
    return tuple(-1 if v is None else numbers.setdefault(v, len(numbers)) for v in labels)


def sentences(
    text: str, offsets: Sequence[tuple[int, int]], special: Sequence[bool], also: Sequence[int] = ()
) -> tuple[int, ...]:
    """The sentence of each token: a new one begins after `.`, `!` or `?` followed by a space, and where one ends `also`."""
    ends = [*(m.end() for m in _SENTENCE_END.finditer(text)), *also]
    return dense(
        [None if s else sum(end <= start for end in ends) for (start, _), s in zip(offsets, special, strict=True)]
    )


def pieces(text: str, offsets: Sequence[tuple[int, int]]) -> list[str]:
    """What each token stands for in the text, with the space before it; joined, they are the text.

    Of tokens that share a character, as bytes of an emoji do, the first has it.

    >>> pieces("Uneven,  at best.", [(0, 0), (0, 2), (2, 6), (6, 7), (9, 11), (12, 16), (16, 17), (0, 0)])
    ['', 'Un', 'even', ',', '  at', ' best', '.', '']
    """
    found, end = [], 0
    for start, stop in offsets:
        found.append(text[end:stop] if stop > max(start, end) else "")
        end = max(end, stop)
    return found


def token_mask(
    spans: Sequence[Sequence[int]], offsets: Sequence[tuple[int, int]], special: Sequence[bool]
) -> Bool[Tensor, " t"]:
    """Which tokens overlap a span of characters (end excluded)."""
    return torch.tensor(
        [
            not odd and any(start < span[1] and span[0] < end for span in spans)
            for (start, end), odd in zip(offsets, special, strict=True)
        ]
    )
