"""Texts as samples."""

from collections.abc import Mapping
from typing import Any

from heatcheck.core.types import Sample, TextPair, digest_of


def text_sample(name: str, text: Any, reference: Mapping[str, Any] | None = None) -> Sample:
    """A sample of a text or of a pair of texts, filed under a digest of its UTF-8 bytes."""
    if isinstance(text, TextPair):
        return _pair_sample(name, text, reference)
    if not isinstance(text, str):
        problem = "there is no text" if text is None else f"a {type(text).__name__} is not a text"
        return Sample(name, digest_of("no text", name), "", problem=problem)
    digest = digest_of(text.encode(errors="surrogatepass"))
    return Sample(name, digest, text, reference=reference or {}, problem=_problem(text))


def _pair_sample(name: str, pair: TextPair, reference: Mapping[str, Any] | None) -> Sample:
    """A pair is filed under the digest of its parts, which no single text has; what is wrong with one says with which."""
    parts = [text_sample(name, part) for part in pair]
    wrong = [
        f"{which}: {part.problem}"
        for which, part in zip(("first text", "second text"), parts, strict=True)
        if part.problem is not None
    ]
    readable = all(isinstance(part, str) for part in pair)
    digest = digest_of(*(part.encode(errors="surrogatepass") for part in pair)) if readable else parts[0].digest
    content = pair if readable else TextPair("", "")
    return Sample(name, digest, content, reference=reference or {}, problem="; ".join(wrong) or None)


def characters(content: str | TextPair) -> str:
    """The characters that the spans of a text count; of a pair, those of both, joined."""
    return content if isinstance(content, str) else content.joined


def _problem(text: str) -> str | None:
    if not text.strip():
        return "the text is empty"
    if any("\ud800" <= c <= "\udfff" for c in text):
        return "the text is not valid UTF-8"
    return None
