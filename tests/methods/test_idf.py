"""The rarity of words, against scikit-learn, and as part of a run."""

import math
from collections import Counter

import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.identity import digest
from heatcheck.core.types import HeatcheckError, NotApplicable
from heatcheck.data.documents import corpus_of, find_corpus, load_corpus
from heatcheck.data.load import load_data
from heatcheck.methods.idf import Counts

MUTANTS = (
    ("methods/idf.py", "(1 + self.documents)", "self.documents", "test_scikit_learn_gives_the_same"),
    ("methods/idf.py", "document in corpus.documents for word in _words(model, document)",
     "document in corpus.documents for word in list(_words(model, document)) * 2", "test_scikit_learn_gives_the_same"),
    ("models/text.py", "endless.longest = sys.maxsize", "endless.longest = self.longest",
     "test_documents_are_counted_whole"),
    ("methods/idf.py", 'known["params"] |= {"corpus": OWN, "text_column": ""}', 'known["params"] |= {}',
     "test_what_is_counted_decides_the_identity_and_where_it_lies_does_not"),
)  # fmt: skip

DOCUMENTS = ["good good films", "bad film", "the film was good", "it is bad"]


@pytest.fixture(scope="module")
def model(text_model):
    return text_model("Bert", longest=8)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """The documents in a file, of which the first three are explained."""
    path = tmp_path_factory.mktemp("data") / "documents.csv"
    path.write_text("said,label\n" + "\n".join(f"{text},{i % 2}" for i, text in enumerate(DOCUMENTS)))
    return path


def explained(model, corpus, texts):
    method = catalogue.build("method", "idf").for_corpus(lambda: corpus)
    return hc.explain(model, texts, method=method).values


def test_scikit_learn_gives_the_same(model):
    vectorizer = TfidfVectorizer(token_pattern=r"\w+", smooth_idf=True)
    vectorizer.fit(DOCUMENTS)
    want = dict(zip(vectorizer.get_feature_names_out(), vectorizer.idf_, strict=True))
    corpus = corpus_of(load_data([*DOCUMENTS, " "]).samples)  # what cannot be read is no document
    got = explained(model, corpus, ["good films", "the bad film"])
    tokens = [
        [0, want["good"], want["films"] / 2, want["films"] / 2, 0],
        [0, want["the"], want["bad"], want["film"], 0],
    ]
    torch.testing.assert_close(got[:, :5].double(), torch.tensor(tokens, dtype=torch.float64), rtol=1e-6, atol=0)
    assert not got[:, 5:].any()


def test_a_word_is_as_rare_as_the_documents_that_hold_it():
    counts = Counts(4, Counter({(1,): 4, (2, 3): 1}))
    assert [counts.idf(w) for w in ((1,), (2, 3), (9,))] == [1.0, math.log(5 / 2) + 1, math.log(5) + 1]


def test_documents_are_counted_whole(model):
    """The model reads eight tokens; the rest of a document counts all the same."""
    long = " ".join(["good"] * 20 + ["bad"])
    got = explained(model, corpus_of(load_data([long, "film"]).samples), ["bad", "it"])
    torch.testing.assert_close(got[:, 1].double(), torch.tensor([math.log(3 / 2) + 1, math.log(3) + 1]).double())


def test_what_is_counted_decides_the_identity_and_where_it_lies_does_not(table, tmp_path):
    copy = tmp_path / "elsewhere.csv"
    copy.write_text(table.read_text())
    more = tmp_path / "more.csv"
    more.write_text(table.read_text() + "\nit was good,1")
    here, there, other = (
        catalogue.build("method", "idf", corpus=f"csv:{path}", text_column="said").for_corpus(load_corpus)
        for path in (table, copy, more)
    )
    assert here.name != there.name and digest(here.identity()) == digest(there.identity())
    assert digest(other.identity()) != digest(here.identity())
    assert catalogue.build("method", here.name) == here
    with pytest.raises(HeatcheckError, match="have changed since the run began"):
        find_corpus("0" * 64, f"csv:{table}", "said")


def test_one_text_has_no_documents_to_compare_with(model):
    with pytest.raises(NotApplicable, match=r"write idf\(corpus=DATA\), such as idf\(corpus=texts\)"):
        hc.explain(model, "good", method="idf")
    with pytest.raises(NotApplicable, match="name the data by a spec"):
        hc.explain(model, "good", method=f"idf(digest={'ab' * 32})")
    assert hc.explain(model, "good", method="idf(corpus=texts)").values[0, 1] > 1


def test_a_run_counts_all_of_its_data_and_does_not_rank_it(model, table, tmp_path):
    bench = hc.Benchmark(
        models={"tiny": model}, data=f"csv:{table}", text_column="said", label_column="label",
        methods=["idf", "saliency"], metrics=["sds"],
    )  # fmt: skip
    few = bench.setup(samples=2)
    method = dict(few.methods)["idf"]
    assert (method.corpus, method.text_column) == (f"csv:{table}", "said")
    assert method == dict(bench.setup().methods)["idf"] and few.record["methods"]["idf"] == method.name
    board = bench.run(tmp_path / "run", samples=2, progress="none", workers=1).leaderboard()
    rows = {row["method"]: row for row in board.full.to_dicts()}
    assert rows["idf"]["n_ok"] and not rows["idf"]["ranked"] and rows["saliency"]["ranked"]


def test_texts_in_memory_can_be_counted_too(model):
    bench = hc.Benchmark(models={"tiny": model}, data=DOCUMENTS, methods=["idf"], metrics=["sds"])
    method = dict(bench.setup(samples=1).methods)["idf"]
    assert len(find_corpus(method.digest, "").documents) == 4
