"""Texts as samples."""

from collections.abc import Mapping
from typing import Any

from heatcheck.core.types import Sample, digest_of


def text_sample(name: str, text: Any, reference: Mapping[str, Any] | None = None) -> Sample:
    """A sample of a text, filed under a digest of its UTF-8 bytes."""
    if not isinstance(text, str):
        problem = "there is no text" if text is None else f"a {type(text).__name__} is not a text"
        return Sample(name, digest_of("no text", name), "", problem=problem)
    digest = digest_of(text.encode(errors="surrogatepass"))
    return Sample(name, digest, text, reference=reference or {}, problem=_problem(text))


def _problem(text: str) -> str | None:
    if not text.strip():
        return "the text is empty"
    if any("\ud800" <= c <= "\udfff" for c in text):
        return "the text is not valid UTF-8"
    return None
