"""ARCHITECTURE.md against the code: the floors, the path of one chunk, and that nothing is done twice on it."""

import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

import heatcheck as hc
from heatcheck.cli import app
from heatcheck.domain.component import Component
from heatcheck.models.vision_shim import load_timm
from heatcheck.run.reader import RunReader
from heatcheck.run.rehearsal import reason_against
from heatcheck.stats import leaderboard

SOURCE = Path(hc.__file__).parent
PAGE = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
STEP = re.compile(r"^(\d+)\. `([\w/]+\.py)`: `([\w.]+)` \S", re.MULTILINE)
MODEL = "timm:test_resnet@weights.safetensors"


class Step(NamedTuple):
    """A function of heatcheck: its file under the package, and its qualified name."""

    file: str
    function: str


STEPS = [Step(file, function) for _, file, function in STEP.findall(PAGE)]


def helpers() -> list[str]:
    """The files that the page names as used along the path."""
    (paragraph,) = re.findall(r"^Used along the path.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`]+)`", paragraph)


class Trace:
    """Calls of heatcheck's functions in order; a generator counts once, and what a muted function calls not at all."""

    def __init__(self, muted: CodeType) -> None:
        self.calls: list[Step] = []
        self.resolved: Counter[tuple[str, str]] = Counter()
        self.counts: Counter[CodeType] = Counter()
        self._muted = muted
        self._within: FrameType | None = None
        self._generators: set[FrameType] = set()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "return" and frame is self._within:
            self._within = None
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(str(SOURCE)) or frame in self._generators:
            return
        if code.co_flags & inspect.CO_GENERATOR:
            self._generators.add(frame)
        self.counts[code] += 1
        if code is Component.resolve.__code__:
            component = frame.f_locals["self"]
            self.resolved[component.kind, component.id] += 1
        if self._within is None:
            self.calls.append(Step(Path(code.co_filename).relative_to(SOURCE).as_posix(), code.co_qualname))
            if code is self._muted:
                self._within = frame

    def of(self, function: Callable[..., Any]) -> Any:
        """What a function gives while its calls are recorded."""
        sys.setprofile(self)
        try:
            return function()
        finally:
            sys.setprofile(None)
            self._generators.clear()


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """A real run of saliency under sds on two pictures, after one that imported everything."""
    folder = tmp_path_factory.mktemp("trace")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = load_timm().create_model("test_resnet", pretrained=False, num_classes=7)
    save_file(network.state_dict(), folder / "weights.safetensors")
    (folder / "photos").mkdir()
    for i in range(2):
        pixels = np.random.default_rng(i).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{i}.png")
    line = f"run --models {MODEL} --data folder:photos --methods saliency --metrics sds --batch 4 -j 1 -q --out".split()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert CliRunner().invoke(app, [*line, "first"]).exit_code == 0
        trace = Trace(reason_against.__code__)
        done = trace.of(lambda: CliRunner().invoke(app, [*line, "second"]))
        assert done.exit_code == 0, done.output
    return trace


def test_the_floors_are_the_packages() -> None:
    named = re.findall(r"^\| `(\w+)` \| \S", PAGE, re.MULTILINE)
    assert sorted(named) == sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


def test_the_page_is_one_page() -> None:
    assert len(PAGE.splitlines()) < 110
    assert 20 <= len(STEPS) <= 30
    assert [int(number) for number, *_ in STEP.findall(PAGE)] == list(range(1, len(STEPS) + 1))


def test_the_steps_are_called_in_their_order(trace: Trace) -> None:
    first = {}
    for i, call in enumerate(trace.calls):
        first.setdefault(call, i)
    assert [step for step in STEPS if step not in first] == []
    assert sorted(STEPS, key=first.__getitem__) == STEPS


def test_every_file_on_the_path_is_named(trace: Trace) -> None:
    start, end = trace.calls.index(STEPS[0]), trace.calls.index(STEPS[-1])
    known = [step.file for step in STEPS] + helpers()
    used = dict.fromkeys(call.file for call in trace.calls[start : end + 1])
    assert [file for file in used if not any(fnmatch(file, pattern) for pattern in known)] == []
    assert [p for p in helpers() if not any(fnmatch(file, p) for file in used)] == []


def test_no_component_is_resolved_twice(trace: Trace) -> None:
    counts = {key: n for key, n in trace.resolved.items() if key[0] != "fill"}
    assert counts == {("method", "saliency"): 1, ("method", "random"): 1, ("metric", "sds"): 1}


def test_scores_and_leaderboard_are_made_once(tmp_path: Path) -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    pictures = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    bench = hc.Benchmark(models=network, data=pictures, methods=["saliency", "random"], metrics=["sds"])
    result = type(bench.run(tmp_path / "run", batch=4, progress="none")).open(tmp_path / "run")

    def use_everything() -> None:
        result.report()
        result.leaderboard()
        _ = result.failed
        result.check()

    trace = Trace(reason_against.__code__)
    trace.of(use_everything)
    assert trace.counts[leaderboard.__code__] == 1
    assert trace.counts[RunReader._table.__code__] == 1
