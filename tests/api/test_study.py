"""Study files: what they mean, and how well their mistakes are answered."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from heatcheck.api.benchmark import Benchmark
from heatcheck.api.study import Study, StudyError
from heatcheck.run.runtime import Runtime, seconds

GOOD = """
models = ["efficientnet_lite0", "timm:resnet50@weights/r50.safetensors"]
data = "folder:pictures"
methods = ["saliency", {id = "rise", samples = 128, fill = {id = "blur", kernel = 3}}]
metrics = "sds, abpc(steps=4)"
samples = 10
out = "runs/mine"
plugins = []

[runtime]
workers = 2
budget = "1h30m"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    return tmp_path


def written(place: Path, text: str) -> Path:
    path = place / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def errors(place: Path, text: str, **changes: object) -> list[str]:
    with pytest.raises(StudyError) as caught:
        Study.load(written(place, text), **changes)
    return str(caught.value).splitlines()


def test_a_good_file_means_what_it_says(place: Path) -> None:
    study = Study.load(written(place, GOOD))
    assert study.models == ("efficientnet_lite0", f"timm:resnet50@{place}/weights/r50.safetensors")
    assert study.data == f"folder:{place}/pictures"
    assert study.methods == ("saliency", "rise(samples=128, fill=blur(kernel=3))")
    assert study.metrics == ("sds", "abpc(steps=4)")
    assert study.out == place / "runs/mine"
    assert (study.samples, study.seed, study.target, study.maps) == (10, 0, None, "keep")
    assert study.runtime == Runtime(workers=2, budget=5400.0)


def test_what_is_not_named_comes_from_the_profile() -> None:
    study = Study.of(models="efficientnet_lite0", data="images", profile="quick")
    assert (study.methods, study.metrics, study.target) == (None, None, None)
    profile = Benchmark.from_study(study).settings(1)
    assert "rise" in profile.methods and "sds" in profile.metrics and profile.target == "predicted"


def test_changes_beat_the_file_and_begin_where_the_process_is(place: Path) -> None:
    study = Study.load(written(place, GOOD), samples=3, workers=5, out="elsewhere", target="7")
    assert (study.samples, study.runtime.workers, study.runtime.budget) == (3, 5, 5400.0)
    assert study.out == Path("elsewhere")
    assert study.target == 7


def test_home_is_spelt_out(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place))
    study = Study.of(models=["hf:~/model"], data="folder:~/pictures", out="~/runs")
    assert (study.models, study.data, study.out) == ((f"hf:{place}/model",), f"folder:{place}/pictures", place / "runs")


@pytest.mark.parametrize(
    ("line", "place_and_message"),
    [
        ('metrics = ["sds", "morff"]', ":5:19: no metric is called 'morff'; did you mean morf?"),
        ('metrics = ["sds",\n  "sds(fil=zero)"]', ":6:3: metric sds has no parameter 'fil'; did you mean fill?"),
        ('metrics = "sds, lerff"', ":5:1: no metric is called 'lerff'; did you mean lerf?"),
        ('metrics = [{id = "abpc", stepps = 3}]', ":5:26: metric abpc has no parameter 'stepps'; did you mean steps"),
        ('metrics = [{id = "sds", fill = {id = "blur", sigm = 3}}]', ":5:46: fill blur has no parameter 'sigm'"),
        ("metrics = [{steps = 3}]", ":5:12: a method or metric written as a table needs its id"),
        ('metrics = [{id = "abpc", steps = [3]}]', ":5:12: abpc: steps is a list"),
        ('metrics = ["sds("]', ":5:12: 'sds(': the bracket is not closed"),
        ("metrics = []", ":5:1: the list is empty; name at least one"),
        ("metrics = ''", ":5:1: the list is empty"),
        ("metrics = [3]", ":5:12: metrics = 3 should be a valid string"),
        ('metrcs = ["sds"]', ":5:1: no setting is called 'metrcs'; did you mean metrics"),
        ('samples = "ten"', ":5:1: samples = 'ten' should be a valid integer"),
        ("samples = 0", ":5:1: samples = 0 should be greater than or equal to 1"),
        (
            'target = "labell"',
            ":5:1: 'labell' is no target; did you mean label?; it is predicted, label, top2, the number of a class, column:N",
        ),
        ("target = -1", ":5:1: -1 is no target"),
        ("target = true", ":5:1: True is no target"),
        ('profile = "quik"', ":5:1: no profile is called 'quik'; did you mean quick?"),
        ("profile = 3", ":5:1: profile = 3 should be a valid string"),
        ('maps = "all"', ":5:1: maps = 'all' should be 'keep', 'gallery' or 'none'"),
        ("plugins = ['absent.py']", ":5:12: plugin "),
        ("runtime.workers = 0", ":5:1: workers = 0 should be a whole number greater than 0, or auto"),
        ("[runtime]\nthreds = 1", ":6:1: no setting is called 'threds'; did you mean threads?"),
        ('[runtime]\nbudget = "2x"', ":6:1: '2x' is not a time; write it as 2h"),
        ("runtime = 3", ":5:1: runtime = 3 should be"),
        ("seed = = 3", ":5:8: invalid value"),
    ],
)
def test_a_mistake_is_answered_with_its_place_and_the_near_name(place: Path, line: str, place_and_message: str) -> None:
    head = '# a study\nmodels = "efficientnet_lite0"\ndata = "folder:pictures"\nmethods = ["saliency"]\n'
    found = errors(place, f"{head}{line}\n")
    assert len(found) == 1
    assert found[0].startswith(f"{place / 'study.toml'}{place_and_message}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'models = "efficientnet_lite"',
            ":1:1: no model is called 'efficientnet_lite'; did you mean efficientnet_lite",
        ),
        ('models = ["timm:x", "tim:y"]', ":1:21: no model is called 'tim:y'; did you mean timm?"),
        ('models = "timm:x"\ndata = "folder:absent"', ":2:1: data: there is no "),
        (
            'models = "timm:x"\ndata = "foldr:pictures"',
            ":2:1: data: 'foldr:pictures' is neither a source nor a path; did you",
        ),
        ('models = "timm:x"\ndata = "tensor"', ":2:1: data: "),
    ],
)
def test_models_and_data_are_looked_up_too(place: Path, line: str, message: str) -> None:
    found = errors(place, line if "data" in line else f'{line}\ndata = "images"')
    assert len(found) == 1
    assert found[0].startswith(f"{place / 'study.toml'}{message}")


def test_all_mistakes_are_told_at_once(place: Path) -> None:
    found = errors(place, 'models = 3\ndata = "images"\nsamples = "x"\nmethod = 1\n', seed="x", batch=0)
    assert [line.removeprefix(str(place / "study.toml")).split(" ")[0] for line in found] == [
        ":1:1:",
        ":3:1:",
        "--seed:",
        "--batch:",
        ":4:1:",
    ]


def test_a_unit_parameter_is_not_taken_for_an_option_of_its_name(place: Path) -> None:
    text = 'models = "timm:x"\ndata = "images"\nmethods = [{id = "rise", samples = "x"}]\n'
    assert errors(place, text, samples=3) == [
        f"{place / 'study.toml'}:3:26: method rise: samples='x' is not a whole number"
    ]


def test_what_is_missing_is_named(place: Path) -> None:
    assert errors(place, "seed = 1\n") == [
        f"{place / 'study.toml'}: models is missing; see `heatcheck list models`",
        f"{place / 'study.toml'}: data is missing; see `heatcheck list data`",
    ]
    with pytest.raises(StudyError, match=r"absent\.toml: No such file"):
        Study.load(place / "absent.toml")


def test_options_are_named_as_the_command_line_calls_them() -> None:
    with pytest.raises(StudyError, match=r"^--metrics: no metric is called 'sdss'"):
        Study.of(models="timm:x", data="images", metrics="sdss")
    with pytest.raises(StudyError, match=r"^--plugin: plugin"):
        Study.of(models="timm:x", data="images", plugins=["none.py"])


def test_units_of_ones_own(place: Path) -> None:
    (place / "mine.py").write_text(
        "import heatcheck as hc\n"
        "@hc.method('study_own')\n"
        "def study_own(model, x, target, *, times: int = 2):\n"
        "    return times * x\n"
    )
    text = 'models = "timm:x"\ndata = "images"\nplugins = ["mine.py"]\nmethods = ["study_own(times=3)"]\n'
    assert Study.load(written(place, text)).methods == ("study_own(times=3)",)
    assert "has no parameter 'tims'" in errors(place, text.replace("times=3", "tims=3"))[0]


def test_a_plugin_that_fails_says_why(place: Path) -> None:
    (place / "broken.py").write_text("1 / 0\n")
    found = errors(place, 'models = "timm:x"\ndata = "images"\nplugins = ["broken.py"]\n')
    assert found[0].startswith(f"{place / 'study.toml'}:3:12: plugin ")
    assert "failed (broken.py, line 1): ZeroDivisionError: division by zero" in found[0]


@pytest.mark.parametrize(
    ("text", "value"), [("2h", 7200), ("90s", 90), ("1h30m", 5400), ("1.5min", 90), (7, 7), ("1h 5s", 3605)]
)
def test_times(text: object, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "2", "h", "2d", "-1s", None, True])
def test_what_is_no_time(text: object) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        seconds(text)


@pytest.mark.parametrize("table", [Study, Runtime])
def test_every_setting_is_identity_or_runtime(table: type[BaseModel]) -> None:
    uses = {name: (field.json_schema_extra or {}).get("use") for name, field in table.model_fields.items()}
    assert set(uses.values()) <= {"identity", "runtime"}, uses


def test_a_study_cannot_change() -> None:
    study = Study.of(models="timm:x", data="images")
    with pytest.raises(ValueError, match="frozen"):
        study.seed = 3


def test_reading_a_study_imports_nothing_heavy(place: Path) -> None:
    path = written(place, GOOD)
    code = (
        "import sys; from heatcheck.api.study import Study; Study.load(sys.argv[1]);"
        "print([m for m in ('torch', 'numpy', 'scipy', 'polars', 'transformers', 'timm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
