"""From a bare decoder, and from pairs of texts, to a trained classifier in a benchmark."""

import csv
from pathlib import Path

import torch

import heatcheck as hc
from heatcheck.core.types import TextPair
from heatcheck.models.last_token import reads_last_token
from heatcheck.models.text import TextModel
from heatcheck.models.vision_shim import without_bars
from heatcheck.testing.text_zoo import FAMILIES, SENTENCES, network_of, tokenizer_of

MUTANTS = (
    ("models/text.py", "        if reads_last_token(network):\n", "        if False:\n", "test_a_decoder_learns_and_is_measured"),
    ("models/text.py", 'if "types" in x and self.types:\n            given', "if False:\n            given",
     "test_a_pair_model_learns_and_is_measured"),
)  # fmt: skip
QUICK = {"epochs": 2, "batch": 4, "lr": 1e-3, "tokens": 48}


def bare(folder: Path, name: str) -> str:
    """The spec of a family's network without a head, in a folder."""
    tokenizer = tokenizer_of(FAMILIES[name])
    network = network_of(FAMILIES[name], len(tokenizer), tokenizer.pad_token_id, num_labels=2)
    with without_bars():
        network.base_model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return f"hf:{folder}"


def table(file: Path, *columns: str) -> str:
    """The spec of a table with sixteen rows, whose texts begin with a word that decides the label."""
    with file.open("w", newline="") as to:
        rows = csv.writer(to)
        rows.writerow([*columns, "label"])
        for i in range(16):
            word = ("good", "bad")[i % 2]
            texts = [f"{word} {SENTENCES[(i // 2 + k) % len(SENTENCES)]}" for k in range(len(columns))]
            rows.writerow([*texts, ("yes", "no")[i % 2]])
    return f"csv:{file}"


def trained(model: str, data: str, out: Path) -> TextModel:
    """The model that a short training gives."""
    done = hc.train("text", model=model, data=data, out=out, settings=QUICK, device="cpu", threads=1, progress="none")
    assert done.record.finished and done.record.parent.new_head
    found = done.model
    assert isinstance(found, TextModel) and set(found.classes or ()) == {"no", "yes"}
    assert found.trained is not None and found.trained["recipe"] == "text"
    return found


def measured(model: str, data: str, out: Path) -> None:
    """Maps and scores of a trained model in a benchmark are all there."""
    bench = hc.Benchmark(
        models=[model], data=data, methods=["saliency", "occlusion"], metrics=["morf(steps=2)", "sds"], samples=3
    )
    scores = bench.run(out, workers=1, batch=4, progress="none").scores()
    assert scores["status"].unique().to_list() == ["ok"] and scores["sample"].n_unique() == 3
    assert scores.filter(scores["method"] == "occlusion")["score"].std() > 0


def test_a_decoder_learns_and_is_measured(tmp_path: Path) -> None:
    data = table(tmp_path / "texts.csv", "text")
    model = trained(bare(tmp_path / "gpt2", "GPT-2"), data, tmp_path / "out")
    assert reads_last_token(model.module())
    text = hc.load_data(data)[0]
    x = model.encode(text)
    own = model.tokenizer(text.content, return_tensors="pt")
    with torch.inference_mode():
        answer = model.module().score(model.module().base_model(**own)[0][:, -1])
        torch.testing.assert_close(model.logits(x), answer, rtol=1e-4, atol=1e-5)
    measured(f"trained:{tmp_path / 'out'}", data, tmp_path / "run")


def test_a_pair_model_learns_and_is_measured(tmp_path: Path) -> None:
    data = table(tmp_path / "pairs.csv", "premise", "hypothesis")
    model = trained(bare(tmp_path / "bert", "BERT"), data, tmp_path / "out")
    pair = hc.load_data(data)[0]
    assert isinstance(pair.content, TextPair)
    own = model.tokenizer(*pair.content, return_tensors="pt")
    assert own["token_type_ids"].any()
    with torch.inference_mode():
        answer = model.module()(**own).logits
        torch.testing.assert_close(model.logits(model.encode(pair)), answer, rtol=1e-4, atol=1e-5)
    measured(f"trained:{tmp_path / 'out'}", data, tmp_path / "run")
