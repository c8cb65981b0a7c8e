"""All documents of a data set, for methods that compare a sample with others."""

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from heatcheck.core.types import HeatcheckError, NotApplicable, Sample, digest_of
from heatcheck.data.load import load_data

_HERE: dict[str, "Corpus"] = {}
"""Corpora of this process, by digest."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """The documents of a data set that can be read, whichever of them a run explains.

    Args:
        documents: the documents; one that is there twice counts twice.
        spec: the data set's spec; empty where the documents are objects of this process.
        text_column: where it is a table, the column with the texts, or the two of a pair with a comma between; empty where
            their names say it.
    """

    documents: tuple[Sample, ...] = field(repr=False)
    spec: str = ""
    text_column: str = ""

    @cached_property
    def digest(self) -> str:
        """A digest of all contents, whatever their names and order."""
        return digest_of(*sorted(document.digest for document in self.documents))


def corpus_of(documents: tuple[Sample, ...], spec: str = "", text_column: str = "") -> Corpus:
    """A corpus of samples that are loaded already; it can be found again in this process."""
    corpus = Corpus(tuple(d for d in documents if d.problem is None), spec, text_column)
    _HERE[corpus.digest] = corpus
    return corpus


def no_documents() -> Corpus:
    """A corpus without documents, to find out whether a method would work if there were some."""
    return corpus_of(())


@lru_cache(maxsize=4)
def load_corpus(spec: str, text_column: str = "") -> Corpus:
    """All documents of a data set, by its spec.

    Raises:
        HeatcheckError: there is no such data set.
    """
    return corpus_of(load_data(spec, text_column=text_column or None).samples, spec, text_column)


def find_corpus(digest: str, spec: str, text_column: str = "") -> Corpus:
    """The corpus of this digest: at hand, else loaded.

    Raises:
        NotApplicable: it existed only in the process that the run began in.
        HeatcheckError: what the spec names has changed.
    """
    if digest in _HERE:
        return _HERE[digest]
    if not spec:
        raise NotApplicable("the documents to compare with are not at hand here; name the data by a spec or a path")
    corpus = load_corpus(spec, text_column)
    if digest and corpus.digest != digest:
        raise HeatcheckError(f"the documents of {spec!r} have changed since the run began")
    return corpus
