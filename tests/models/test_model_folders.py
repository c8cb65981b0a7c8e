"""A folder that transformers saved a model to is a model by its path alone, as the folder of a training is."""

import json
from pathlib import Path

import pytest

import heatcheck as hc
from heatcheck.api.benchmark import label_models
from heatcheck.api.defaults import with_embedded
from heatcheck.api.study import Study
from heatcheck.core.types import HeatcheckError
from heatcheck.models.catalogue import full_spec
from heatcheck.models.load import load_model
from heatcheck.models.vision_shim import load_transformers

MUTANTS = (
    (
        "models/catalogue.py",
        "    if named is not None and not named.is_family:\n        return spec\n",
        "",
        "test_a_models_name_is_never_a_folder",
    ),
    (
        "models/catalogue.py",
        'name.partition("@")[0] if source.takes_checkpoint else name',
        'name.partition("@")[0]',
        "test_a_sign_in_a_folders_name_belongs_to_it",
    ),
    (
        "api/study.py",
        "        if value not in models() and holds_transformers(folder / Path(value).expanduser()):\n"
        "            return path(value)\n",
        "",
        "test_a_study_files_paths_begin_at_the_file",
    ),
)


@pytest.fixture
def beside(bert_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place where the process is, with the folder `my-bert` in it."""
    (tmp_path / "my-bert").symlink_to(bert_folder)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("written", ["my-bert", "./my-bert", "{}/my-bert", "~/my-bert"])
def test_a_path_is_the_model_in_it(beside: Path, written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(beside))
    spec = written.format(beside)
    model, same = load_model(spec), load_model(f"hf:{beside}/my-bert")
    assert (model.name, model.identity, model.classes) == (spec, same.identity, same.classes)
    assert with_embedded([spec], None) == ([spec], "texts")
    assert list(label_models([spec])) == [spec]


def test_a_path_object_is_one_too(beside: Path) -> None:
    assert load_model(Path("my-bert")).identity == load_model("./my-bert").identity
    assert label_models([beside / "my-bert"]) == {f"{beside}/my-bert": f"{beside}/my-bert"}


def test_it_is_run_by_its_path(beside: Path) -> None:
    bench = hc.Benchmark(
        models="./my-bert", data=["the film was good", "a bad film"], methods=["random"], metrics=["morf"]
    )
    scores = bench.run(beside / "out", progress="none").scores()
    assert scores["model"].unique().to_list() == ["./my-bert"] and set(scores["status"]) == {"ok"}


def test_a_body_without_a_head_begins_a_training_only(bert_folder: Path, tmp_path: Path) -> None:
    transformers = load_transformers()
    transformers.AutoModel.from_pretrained(bert_folder).save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(bert_folder).save_pretrained(tmp_path)
    with pytest.raises(
        HeatcheckError, match=r"BertModel: no image or sequence classifier; .* heatcheck train text --model"
    ):
        load_model(str(tmp_path))
    assert load_model(str(tmp_path), headless=True).fresh_head


def test_a_models_name_is_never_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("minilm_sentiment", "timm"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"model_type": "bert"}')
    monkeypatch.chdir(tmp_path)
    assert full_spec("minilm_sentiment") == "minilm_sentiment"
    assert full_spec("./minilm_sentiment") == "hf:minilm_sentiment"
    assert full_spec("timm") == "hf:timm"  # names no model by itself


def test_a_training_is_a_training_whatever_else_is_there(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "training.json").write_text("{}")
    assert full_spec(f"{tmp_path}@03") == f"trained:{tmp_path}@03"


def test_a_sign_in_a_folders_name_belongs_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "bert@v2"
    folder.mkdir()
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
    (folder / "config.json").write_text(json.dumps(config))
    assert with_embedded([str(folder)], None)[1] == "texts"


def test_a_study_files_paths_begin_at_the_file(beside: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (beside / "study.toml").write_text('models = ["my-bert", "./my-bert", "minilm_sentiment"]\ndata = "texts"\n')
    study = Study.load(beside / "study.toml")
    assert study.models == (f"{beside}/my-bert", f"{beside}/my-bert", "minilm_sentiment")


@pytest.mark.parametrize("config", [None, "{", "[]", '{"architecture": "resnet50"}'])
def test_another_folder_is_said_to_be_none(tmp_path: Path, config: str | None) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(
        HeatcheckError, match=r"is a folder without a model: it has neither a config\.json .*training\.json"
    ):
        load_model(str(tmp_path))
