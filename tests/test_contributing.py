"""The examples of CONTRIBUTING.md are complete: each is one new file, and nothing else has to be touched."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import heatcheck

SOURCE = Path(heatcheck.__file__).parent
PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = {
    file: f"{code}\n"
    for file, code in re.findall(r"```(?:python|toml)\n# src/heatcheck/(\S+)\n(.*?)\n```", PAGE, re.DOTALL)
}
RUN = """
import torch
import heatcheck as hc
network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
pictures = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
def run(**study):
    study = {"models": network, "data": pictures, "methods": ["saliency", "random"], "metrics": ["sds"], **study}
    result = hc.Benchmark(**study).run("run", batch=4, progress="none")
    assert result.scores()["status"].unique().to_list() == ["ok"], result.scores()["status"].unique()
    return result
"""
TEXT_MODEL = """
from heatcheck.models.text import TextModel
from heatcheck.models.vision_shim import load_transformers
transformers = load_transformers()
words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'good', 'bad', 'film']
open('vocab.txt', 'w').write(chr(10).join(words))
tokenizer = transformers.BertTokenizerFast('vocab.txt', model_max_length=16)
sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=len(words))
torch.manual_seed(0)
model = TextModel(transformers.BertForSequenceClassification(transformers.BertConfig(**sizes)), tokenizer, 'tiny')
"""
CHECKS = {
    "methods/squared_gradient.py": (
        "methods",
        "squared_gradient",
        "from heatcheck.testing import check_method\ncheck_method('squared_gradient')\n"
        "run(methods=['squared_gradient', 'saliency'])\n"
        "a = hc.explain(network, pictures, method='squared_gradient(reduction=mean_abs)').values\n"
        "g = hc.explain(network, pictures, method='saliency(reduction=mean_square)').values\n"
        "assert torch.allclose(a, g)",
    ),
    "metrics/top_drop.py": (
        "metrics",
        "top_drop",
        "from heatcheck.testing import check_metric\ncheck_metric('top_drop')\n"
        "found = run(methods=['oracle', 'random'], metrics=['top_drop']).scores()\n"
        "best, chance = (found.filter(method=m)['score'].mean() for m in ('oracle', 'random'))\n"
        "assert best > chance",
    ),
    "fills/mirror.py": (
        "fills",
        "mirror",
        "run(metrics=['sds(fill=mirror)'])\n"
        "same = pictures + pictures.flip(-1)\n"
        "assert hc.score(network, same, ['random'], metric='sds(fill=mirror)').isnan().all()",
    ),
    "data/paragraphs.py": (
        "data",
        "paragraphs",
        "open('texts.txt', 'w').write('good film\\n\\n\\n\\nbad film')\n"
        "data = hc.load_data('paragraphs:texts.txt')\n"
        "assert [s.content for s in data] == ['good film', '', 'bad film']\n"
        "assert [s.problem for s in data] == [None, 'the text is empty', None]\n" + TEXT_MODEL + "\n"
        "open('texts.txt', 'w').write('good film\\n\\nbad film')\n"
        "run(models=model, data='paragraphs:texts.txt')",
    ),
    "models/strongest_colour.py": (
        "models",
        "strongest_colour",
        "from PIL import Image\nimport os\nos.mkdir('photos')\n"
        "for name, colour in (('a', (200, 0, 9)), ('b', (0, 0, 90))):\n"
        "    photo = Image.effect_noise((40, 40), 60).convert('RGB')\n"
        "    Image.blend(photo, Image.new('RGB', (40, 40), colour), 0.7).save(f'photos/{name}.png')\n"
        "result = run(models='strongest_colour', data='folder:photos', methods=['input_x_gradient', 'random'])\n"
        "assert result.scores()['target'].unique().sort().to_list() == [0, 2]",
    ),
    "profiles/sketch.toml": (
        "profiles",
        "sketch",
        "result = run(methods=None, metrics=None, profile='sketch')\n"
        "assert set(result.scores()['method']) == {'saliency', 'RISE', 'random'}\n"
        "assert 'rise(samples=16)' in {m['name'] for m in result.manifest['methods']}",
    ),
}
"""By file: the list that shows it, its id, and what is done with it."""


def contents(package: Path) -> dict[str, str]:
    files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(package).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_every_example_is_tried() -> None:
    assert list(EXAMPLES) == list(CHECKS)


QUICK = "methods/squared_gradient.py"
"""The example that the fast tests add; the others are as slow as several test files."""


@pytest.mark.parametrize(
    "file", [file if file == QUICK else pytest.param(file, marks=pytest.mark.slow) for file in CHECKS]
)
def test_one_new_file_is_enough(file: str, tmp_path: Path) -> None:
    kind, id, check = CHECKS[file]
    package = tmp_path / "src" / "heatcheck"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    before = contents(package)
    assert file not in before
    (package / file).write_text(EXAMPLES[file], encoding="utf-8")
    listed = (
        "import io, json, contextlib\nfrom heatcheck.cli import app\nout = io.StringIO()\n"
        f"with contextlib.redirect_stdout(out):\n    app(['list', {kind!r}, '--json'], standalone_mode=False)\n"
        f"assert {id!r} in {{row['id'] for row in json.loads(out.getvalue())}}\n"
    )
    where = f"import heatcheck\nassert heatcheck.__file__ == {str(package / '__init__.py')!r}, heatcheck.__file__\n"
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", where + listed + RUN + check],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    after = contents(package)
    assert after.keys() - before.keys() == {file}
    assert {name: after[name] for name in before} == before
