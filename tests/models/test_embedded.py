"""The embedded defaults: real weights from pip, and a classifier trained once."""

import multiprocessing
from pathlib import Path

import pytest
import torch

from heatcheck.core.cache import cache_folder, cached_folder
from heatcheck.core.types import HeatcheckError
from heatcheck.data.load import load_data
from heatcheck.data.sentiment import corpus
from heatcheck.models import embedded
from heatcheck.models.load import load_model
from heatcheck.training import defaults


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HEATCHECK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_folder_follows_the_environment(monkeypatch):
    monkeypatch.delenv("HEATCHECK_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/heatcheck")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "heatcheck"
    monkeypatch.setenv("HEATCHECK_CACHE", "~/mine")
    assert cache_folder() == Path.home() / "mine"


def test_a_cached_folder_is_made_once(cache):
    made = []

    def make(folder):
        made.append(folder)
        (folder / "file").write_text("whole")

    for _ in range(2):
        assert (cached_folder("thing", make) / "file").read_text() == "whole"
    assert len(made) == 1
    assert [p.name for p in cache.iterdir()] == ["thing"]


def test_a_failure_leaves_nothing(cache):
    def fail(folder):
        (folder / "half").touch()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cached_folder("thing", fail)
    assert list(cache.iterdir()) == []


def test_the_first_of_two_stays(cache):
    def slow(folder):
        (folder / "who").write_text("second")
        cached_folder("thing", lambda f: (f / "who").write_text("first"))

    assert (cached_folder("thing", slow) / "who").read_text() == "first"
    assert [p.name for p in cache.iterdir()] == ["thing"]


def _race(number, barrier, place):
    def make(folder):
        for part in range(20):
            (folder / str(part)).write_text(str(number))
        barrier.wait()

    found = cached_folder("thing", make)
    (place / f"seen-{number}").write_text(",".join(sorted({p.read_text() for p in found.iterdir()})))


def test_processes_do_not_hurt_each_other(cache, tmp_path):
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)
    racers = [context.Process(target=_race, args=(i, barrier, tmp_path)) for i in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    seen = {p.read_text() for p in tmp_path.glob("seen-*")}
    assert len(list(tmp_path.glob("seen-*"))) == 4
    assert len(seen) == 1
    assert seen <= {"0", "1", "2", "3"}
    assert [p.name for p in cache.iterdir()] == ["thing"]


def test_lite0_is_the_packages_network(picture):
    model = load_model("efficientnet_lite0")
    assert model.encode(picture)["pixels"].shape == (1, 3, 224, 224)
    assert model.class_name(0) == "tench, Tinca tinca"
    assert model.identity == load_model("efficientnet_lite0").identity


@pytest.mark.slow
def test_lite0_knows_the_default_pictures():
    model = load_model("efficientnet_lite0")
    labelled = [s for s in load_data("images") if s.label is not None]
    with torch.inference_mode():
        right = sum(int(model.logits(model.encode(s)).argmax()) == s.label for s in labelled)
    assert len(labelled) == 20
    assert right >= 17


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "file", "least"),
    [
        ("resnet50_v1", "resnet50_v1_imagenet.safetensors", 0.76),
        ("squeezenet1_0_v1", "squeezenet1_0_imagenet.safetensors", 0.68),
    ],
)
def test_the_old_networks_know_imagenet(shared, spec, file, least):
    weights, pictures = shared / "weights" / file, shared / "data" / "imagenet-val-300"
    if not weights.is_file() or not pictures.is_dir():
        pytest.skip(f"no {weights} or {pictures}")
    model = load_model(f"{spec}@{weights}")
    samples = load_data(f"imagenet:{pictures}", samples=100)
    with torch.inference_mode():
        right = sum(int(model.logits(model.encode(s)).argmax()) == s.label for s in samples)
    assert right / len(samples) >= least


@pytest.mark.slow
def test_the_text_default_is_trained_once_and_right(cache, monkeypatch):
    before = torch.get_rng_state()
    model = defaults.load_model("minilm_sentiment")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == 1
    monkeypatch.setitem(defaults.TRAINERS, "minilm_sentiment", lambda *_: pytest.fail("trained again"))
    assert defaults.load_model("minilm_sentiment").identity == model.identity
    held_out = corpus(200, seed=5, split="test")
    with torch.inference_mode():
        right = sum(int(model.logits(model.encode(s)).argmax()) == s.label for s in held_out)
    assert right / len(held_out) >= 0.95
    assert model.classes == ("negative", "positive")


def test_another_recipe_is_another_folder(cache, monkeypatch):
    def train(backbone, folder):
        (folder / "done").touch()

    with pytest.raises(HeatcheckError, match="minilm_sentiment is not trained yet"):
        embedded.sentiment_folder()
    first = embedded.sentiment_folder(train)
    assert embedded.sentiment_folder() == first
    monkeypatch.setattr(embedded, "SENTIMENT_RECIPE", embedded.SENTIMENT_RECIPE + 1)
    assert embedded.sentiment_folder(train) != first
