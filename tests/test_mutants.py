"""Break each formula once: the tests beside it must notice.

A test file of data, fills, metrics or models lists its mutants as `MUTANTS`: the source file under
`src/heatcheck`, a piece of it that occurs once, and what is written there instead. Each is broken in a copy of the
package, and the file's own tests are run on the copy.
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "heatcheck"
FAILED = 1
"""What pytest exits with where tests ran and some failed."""


def mutants_of(path):
    """The `MUTANTS` of a test file, read without importing it."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "MUTANTS":
            return ast.literal_eval(node.value)
    return ()


FOLDERS = ("data", "fills", "metrics", "models")
FILES = sorted(path for folder in FOLDERS for path in (TESTS / folder).glob("test_*.py"))
CASES = [
    pytest.param(path, *mutant, id=f"{path.parent.name}-{path.stem}-{i}")
    for path in FILES
    for i, mutant in enumerate(mutants_of(path))
]


@pytest.mark.parametrize(("tests", "file", "old", "new"), CASES)
def test_mutants_fit_the_source(tests, file, old, new):
    assert (SOURCE / file).read_text(encoding="utf-8").count(old) == 1, f"{tests.name}: {old!r} is not once in {file}"
    assert old != new


@pytest.mark.slow
@pytest.mark.parametrize(("tests", "file", "old", "new"), CASES)
def test_a_broken_formula_fails_its_tests(tests, file, old, new, tmp_path):
    copy = tmp_path / "src" / "heatcheck"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    broken = (copy / file).read_text(encoding="utf-8").replace(old, new)
    (copy / file).write_text(broken, encoding="utf-8")
    options = ("-x", "-q", "-n0", "-m", "not slow", f"--rootdir={TESTS.parent}")
    command = [sys.executable, "-m", "pytest", *options, str(tests)]
    env = {**os.environ, "PYTHONPATH": str(copy.parent), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=TESTS.parent, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == FAILED, f"{file} with {new!r} in place of {old!r} passed its tests:\n{ran.stdout[-2000:]}"
