"""What is used where no model or no data are named."""

import json
from pathlib import Path

import pytest

import heatcheck as hc
from heatcheck.api import benchmark
from heatcheck.api.defaults import with_embedded
from heatcheck.cli.explain import is_written_out
from heatcheck.cli.options import study_of
from heatcheck.core.types import HeatcheckError

MUTANTS = (
    ("data/catalogue.py", "return modality_of_data(place)", 'return "image"', "test_the_model_follows_the_data"),
    (
        "models/catalogue.py",
        "if source is None or not source.reads:",
        "if True:",
        "test_the_data_follow_the_model",
    ),
    (
        "api/benchmark.py",
        "models=default_model(data.modality)",
        'models=default_model("image")',
        "test_a_benchmark_of_objects_gets_the_default_of_their_modality",
    ),
)
PICTURES, TEXTS = (["efficientnet_lite0"], "images"), (["minilm_sentiment"], "texts")


def test_the_model_follows_the_data(tmp_path: Path) -> None:
    (tmp_path / "reviews.tsv").write_text("text\tlabel\ngood\t1\n")
    (tmp_path / "photos").mkdir()
    texts = ("texts", "csv:absent.csv", f"{tmp_path}/reviews.tsv", "test_part(seed=3):texts", "train_part:eraser:x:val")
    for data in texts:
        assert with_embedded(None, data) == (TEXTS[0], data)
    for data in ("images", "squares:folder:x", "test_part:folder:x", str(tmp_path / "photos"), "nonsense:x", "birds"):
        assert with_embedded(None, data) == (PICTURES[0], data)
    assert with_embedded(None, None) == PICTURES


def test_the_data_follow_the_model(tmp_path: Path) -> None:
    kinds = {"pictures": "ViTForImageClassification", "texts": "BertForSequenceClassification"}
    for name, architecture in kinds.items():
        (tmp_path / name).mkdir()
        config = {"model_type": architecture.partition("For")[0].lower(), "architectures": [architecture]}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    assert with_embedded([f"hf:{tmp_path}/texts"], None)[1] == "texts"
    assert with_embedded([f"hf:{tmp_path}/pictures"], None)[1] == "images"
    assert with_embedded(["minilm_sentiment"], None)[1] == "texts"
    assert with_embedded(["timm:resnet18@w.pt", "minilm_sentiment"], None)[1] == "images"
    assert with_embedded(["absent"], None)[1] == "images"


def test_a_command_line_names_one_and_gets_the_other() -> None:
    study = study_of(None, data="texts")
    assert (list(study.models), study.data, str(study.out)) == (*TEXTS, "runs/minilm_sentiment-texts")
    study = study_of(None, models=["minilm_sentiment"])
    assert (list(study.models), study.data) == TEXTS
    study = study_of(None)
    assert (list(study.models), study.data, str(study.out)) == (*PICTURES, "runs/default")


def test_a_benchmark_of_objects_gets_the_default_of_their_modality(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(spec: str, **_: object) -> None:
        raise HeatcheckError(f"asked for {spec}")

    monkeypatch.setattr(benchmark, "load_model", loaded)
    for data, model in (("texts", TEXTS[0]), (["a good film"], TEXTS[0]), (iter(["good", "bad"]), TEXTS[0])):
        with pytest.raises(HeatcheckError, match=f"asked for {model[0]}"):
            hc.Benchmark(data=data, methods=["random"], metrics=["sds"]).setup()
    assert hc.Benchmark(models="minilm_sentiment")._complete(None).data == "texts"
    assert hc.Benchmark()._complete(None).data == "images"


@pytest.mark.parametrize("text", ["a good film", "v1.0 was good", "It ends. I left.", "word " * 5000])
def test_several_words_are_a_text(text: str) -> None:
    assert is_written_out(text)


def test_a_file_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "my cat").write_bytes(b"")
    for name in (f"{tmp_path}/my cat", "absent cat.JPG", "absent.jpg", "good"):
        assert not is_written_out(name)
