"""Text classifiers of transformers, asked about word embeddings."""

import contextlib
import copy
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from heatcheck.core.types import HeatcheckError, Inputs, NotApplicable, Sample, TextPair, digest_of
from heatcheck.data.references import spans_of
from heatcheck.domain.text import TextDomain, padding_of, with_start, words_of
from heatcheck.models.base import Layer
from heatcheck.models.last_token import answer_at_last, reads_last_token
from heatcheck.models.lengths import Extent, Rounding, cut_off
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
    vocabulary_size,
    word_embedding,
)
from heatcheck.models.tokens import Tokens, filler, pieces, special_ids, token_mask, tokenized, tokenizer_digest
from heatcheck.models.torch_model import TorchModel

_UNLIMITED = 512
"""Tokens read by a model that states no limit."""


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
            self._check_ids(sample)
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
        try:
            if isinstance(sample.content, Tensor):
                self._check_ids(sample)
                return sample.content.numel()
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
        told = cut_off(found)
        if not told:
            return ""
        return f"{self.name} reads {self.longest} tokens, and {told}; maps and metrics are about what is left"

    def _check_ids(self, sample: Sample) -> None:
        """Refuse token ids that the network has no place or no embedding for; where to cut them is the tokenizer's to know."""
        ids, known = sample.content, vocabulary_size(self._network)
        if ids.numel() > self.longest:
            raise HeatcheckError(
                f"sample {sample.name!r} has {ids.numel()} token ids, and {self.name} reads {self.longest}; tokenize with "
                f"truncation=True, max_length={self.longest}, or give the text itself"
            )
        if known and ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < known:
            raise HeatcheckError(
                f"sample {sample.name!r} has token ids from {int(ids.min())} to {int(ids.max())}, and {self.name} knows 0 to "
                f"{known - 1}; they are another tokenizer's: give the text itself"
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
            kind = "picture" if isinstance(sample.content, Path) else type(sample.content).__name__
            raise HeatcheckError(f"{self.name} reads texts, but sample {sample.name!r} is a {kind}")
        found = tokenized(self.tokenizer, sample.content, self.longest, types=self.types)
        if all(found.special):
            raise HeatcheckError(f"{self.name} sees no token in sample {sample.name!r}")
        return found

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
