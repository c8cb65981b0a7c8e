"""The rarity of words: a control for texts."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import Batch, HeatcheckError, NotApplicable, Sample
from heatcheck.data.documents import Corpus, find_corpus, load_corpus
from heatcheck.domain.base import Domain
from heatcheck.methods.base import Method, method, spread_density
from heatcheck.models.base import Model
from heatcheck.probe.probe import Probe

OWN = "auto"


@method(
    "idf",
    family="control",
    on=("text",),
    uses=("encoder",),
    properties=("nonnegative", "target_free"),
    control=True,
    elsewhere="a picture has no words; try input_magnitude",
)
@dataclass(frozen=True, kw_only=True, repr=False)
class InverseDocumentFrequency(Method):
    r"""How rare each word is among the documents of the data, whatever the model does with it.

    $\mathrm{idf}(w) = \ln\big((1 + N) / (1 + n_w)\big) + 1$

    $n_w$ of $N$ documents have the word. They are counted whole, also beyond what the model reads; a word is what the model's tokenizer makes of it,
    so that capitals count where they count for the model. Each token gets its word's value divided by the word's tokens;
    special tokens get 0. Scikit-learn has the same formula.

    Args:
        corpus: the data set that is counted, by its spec; `auto` is all of the run's data, also where the run explains only
            some of its samples.
        text_column: where it is a table, the column with the texts.
        digest: of its documents, which a run fills in: it decides the maps, where the documents lie does not.

    Paper: sparckjones1972.
    Cost per sample: nothing; the documents are read and cut into words once per process.
    """

    corpus: str = "auto"
    text_column: str = ""
    digest: str = ""

    def for_corpus(self, corpus: Callable[[], Corpus]) -> "InverseDocumentFrequency":
        found = corpus() if self.corpus == OWN else load_corpus(self.corpus, self.text_column)
        return replace(self, corpus=found.spec or OWN, text_column=found.text_column, digest=found.digest)

    def identity(self) -> dict[str, Any]:
        known = super().identity()
        if self.digest:
            known["params"] |= {"corpus": OWN, "text_column": ""}
        return known

    def resolve(self, domain: Domain) -> "InverseDocumentFrequency":
        if self.corpus == OWN and not self.digest:
            raise NotApplicable(
                f"{self.id} counts words in many documents, and there is no data set here; write {self.id}(corpus=DATA), "
                f"such as {self.id}(corpus=texts)"
            )
        return cast(InverseDocumentFrequency, super().resolve(domain))

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        corpus = find_corpus(self.digest, "" if self.corpus == OWN else self.corpus, self.text_column)
        counts = counted(probe.model, corpus)
        units = probe.units("word", batch)
        values = torch.zeros(len(batch), units.width, dtype=torch.float64)
        for own, words in zip(values, probe.domain.words(batch.x), strict=True):
            own[: len(words)] = torch.tensor([counts.idf(word) for word in words], dtype=torch.float64)
        return spread_density(probe, batch, units, values.to(probe.device))


class Counts(NamedTuple):
    """In how many of a corpus's documents each word stands.

    >>> round(Counts(3, Counter({(7,): 1})).idf((7,)), 4)
    1.6931
    """

    documents: int
    holding: Counter[tuple[int, ...]]

    def idf(self, word: tuple[int, ...]) -> float:
        """A word's inverse document frequency, as if one more document had every word."""
        return math.log((1 + self.documents) / (1 + self.holding[word])) + 1


_COUNTED: dict[tuple[str, str], Counts] = {}
_MOST = 8
"""How many counts a process keeps."""


def counted(model: Model, corpus: Corpus) -> Counts:
    """The counts of a corpus under a model's tokenizer, made once per process; randomised copies of a model share them.

    Raises:
        NotApplicable: the model is given tokens and cuts up no text.
    """
    if model.preprocessing is None:
        raise NotApplicable(f"needs other texts to compare with, but {model.name} has no tokenizer to read them with")
    key = (model.lineage, corpus.digest)
    if key not in _COUNTED:
        while len(_COUNTED) >= _MOST:
            del _COUNTED[next(iter(_COUNTED))]
        holding = Counter(word for document in corpus.documents for word in _words(model, document))
        _COUNTED[key] = Counts(len(corpus.documents), holding)
    return _COUNTED[key]


def _words(model: Model, document: Sample) -> set[tuple[int, ...]]:
    """A document's words; none where the model sees no token in it."""
    try:
        return model.words(document)
    except HeatcheckError:
        return set()
