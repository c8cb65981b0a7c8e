"""Benchmarks on the objects that users have, and on data of which nothing can be read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import heatcheck as hc
from heatcheck.api.benchmark import NothingScoredError
from heatcheck.core.types import HeatcheckError

X = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2, 0])
GRID: dict[str, Any] = {"methods": ["saliency", "random"], "metrics": ["sds"]}
FAST: dict[str, Any] = {"batch": 4, "progress": "none"}

MUTANTS = (("api/benchmark.py", "        demand_scores(result)\n", "", "test_a_run_of_which_every_cell_failed_raises"),)


@pytest.fixture
def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
        ).eval()


@pytest.fixture
def pics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "pics"
    folder.mkdir()
    for i in range(3):
        Image.fromarray(np.full((16, 16, 3), 40 * i, dtype=np.uint8)).save(folder / f"{i}.png")
    return folder


def test_pictures_that_no_model_can_read_raise_with_the_cause_and_the_remedy(net: nn.Module, pics: Path) -> None:
    with pytest.raises(hc.HeatcheckError, match=r"cannot read the 3 pictures of 'pics': .*preprocess="):
        hc.Benchmark(models=[net], data="folder:pics").run()


def test_a_model_that_can_read_none_of_the_samples_says_why(net: nn.Module, tmp_path: Path) -> None:
    texts = [torch.zeros(3, 2, 2), torch.zeros(3, 2, 2)]

    class Picky(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return net(x)

    def refuse(sample: Any) -> Any:
        raise KeyError("pixels")

    model = hc.load_model(Picky())
    model.encode = refuse
    bench = hc.Benchmark(models=[model], data=texts, **GRID)
    with pytest.raises(
        hc.HeatcheckError,
        match=r"can read none of the 2 samples of 'pictures': 2 × KeyError: 'pixels', such as '00000'",
    ):
        bench.run(tmp_path / "run", **FAST)


def test_broken_files_raise_before_a_model_is_loaded(pics: Path) -> None:
    for path in pics.iterdir():
        path.write_bytes(b"")
    with pytest.raises(
        hc.HeatcheckError,
        match=r"none of the 3 samples of 'pics' can be read: 3 × the file is empty, such as '0.png'; check",
    ):
        hc.Benchmark(models="there is no such model", data="folder:pics").run()
    with pytest.raises(hc.HeatcheckError, match="the only sample of 'texts' cannot be read: 1 × the text is empty"):
        hc.Benchmark(models="there is no such model", data=[""]).run()


def test_a_run_of_which_every_cell_failed_raises(net: nn.Module, tmp_path: Path) -> None:
    bench = hc.Benchmark(models=[net], data=X, target=7, **GRID)
    with pytest.raises(
        NothingScoredError,
        match="nothing could be scored, 8 of 8 cells failed: 8 × target 7 is not a class of a model with 3, such as '00000'",
    ) as caught:
        bench.run(tmp_path / "run", **FAST)
    assert caught.value.result.failed == 8


def test_skips_alone_do_not_raise(net: nn.Module, tmp_path: Path) -> None:
    data = [(x, 0) if i == 0 else x for i, x in enumerate(X)]
    bench = hc.Benchmark(models=[net], data=data, target="label", **GRID)
    statuses = bench.run(tmp_path / "run", **FAST).scores()["status"]
    assert {s for s in statuses if s != "ok"} == {"skipped: target='label', but the sample has no label"}


def test_labels_that_nobody_has_are_refused_as_targets(net: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(HeatcheckError, match="no sample of 'tensors' has a label; use target predicted"):
        hc.Benchmark(models=[net], data=X, target="label", **GRID).run(tmp_path / "run", **FAST)


def test_without_a_folder_the_run_is_in_one_named_after_models_and_data(net: nn.Module, pics: Path) -> None:
    hc.Benchmark(models={"mine": net}, data=X, **GRID).run(**FAST)
    assert Path("runs/mine-tensors/run.json").is_file()


@pytest.mark.parametrize(
    "data",
    [
        DataLoader(TensorDataset(X, Y), batch_size=3),
        DataLoader(TensorDataset(X, Y), batch_size=3, shuffle=True),
        {"pixel_values": X, "labels": Y},
        zip(X, Y, strict=True),
        (X.numpy(), Y.numpy()),
    ],
    ids=["loader", "shuffled", "batch", "iterator", "arrays"],
)
def test_every_form_of_the_same_data_gives_the_same_scores(data: Any, net: nn.Module, tmp_path: Path) -> None:
    wanted = hc.Benchmark(models=[net], data=(X, Y), target="label", **GRID).run(tmp_path / "plain", **FAST)
    bench = hc.Benchmark(models=[net], data=data, target="label", **GRID)
    assert bench.plan(calibrate=False, **FAST).samples == 4
    found = bench.run(tmp_path / "other", **FAST)
    assert found.scores()["score"].to_list() == wanted.scores()["score"].to_list()
    assert found.scores()["target"].to_list() == [0, 0, 1, 1, 2, 2, 0, 0]


def test_an_iterator_is_not_read_again_for_another_number(net: nn.Module) -> None:
    bench = hc.Benchmark(models=[net], data=iter(X), **GRID)
    assert bench.plan(samples=2, calibrate=False, **FAST).samples == 2
    with pytest.raises(
        hc.HeatcheckError, match="was read before, for another number of samples, and can be read only once"
    ):
        bench.plan(samples=3, calibrate=False, **FAST)
