"""Break each formula once: the test that names it must notice.

A test file lists its mutants as `MUTANTS`: the source file under `src/heatcheck`, a piece of it that occurs once, what is
written there instead, and the test of the same file that must fail then. Each is broken in a copy of the package.

`make mutants` breaks all of them. Otherwise a twentieth is broken, another one with every commit; HEATCHECK_MUTANTS=all or a
number (the seed of the twentieth) decides it.
"""

import ast
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "heatcheck"
FAILED = 1
"""What pytest exits with where tests ran and some failed."""
HANGS = 300.0
"""Seconds after which a test counts as hanging under its mutant: it needs a bound of its own."""


def mutants_of(path):
    """The `MUTANTS` of a test file, read without importing it."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "MUTANTS":
            return ast.literal_eval(node.value)
    return ()


def nodes_of(path):
    """The tests of a file, by name: functions, classes and their methods, and tests that are assigned."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    inner = {n.name: f"{c.name}::{n.name}" for c in classes for n in c.body if hasattr(n, "name")}
    assigned = {getattr(target, "id", "") for node in body if isinstance(node, ast.Assign) for target in node.targets}
    return inner | {node.name: node.name for node in body if hasattr(node, "name")} | {name: name for name in assigned}


CASES = [
    pytest.param(path, *mutant, id=f"{path.parent.name}-{path.stem}-{i}")
    for path in sorted(TESTS.rglob("test_*.py"))
    for i, mutant in enumerate(mutants_of(path))
]


def chosen():
    """All mutants, or a twentieth of them."""
    wanted = os.environ.get("HEATCHECK_MUTANTS", "")
    if wanted == "all":
        return CASES
    if not wanted:
        told = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=TESTS.parent, capture_output=True, text=True, check=False
        )
        wanted = told.stdout.strip() or "0"
    return random.Random(wanted).sample(CASES, -(-len(CASES) // 20))


@pytest.mark.parametrize(("tests", "file", "old", "new", "test"), CASES)
def test_mutants_fit_the_source(tests, file, old, new, test):
    assert (SOURCE / file).read_text(encoding="utf-8").count(old) == 1, f"{tests.name}: {old!r} is not once in {file}"
    assert old != new
    assert test in nodes_of(tests), f"{tests.name} has no {test}"


@pytest.mark.slow
@pytest.mark.parametrize(("tests", "file", "old", "new", "test"), chosen())
def test_a_broken_formula_fails_its_test(tests, file, old, new, test, tmp_path):
    copy = tmp_path / "src" / "heatcheck"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    broken = (copy / file).read_text(encoding="utf-8").replace(old, new)
    (copy / file).write_text(broken, encoding="utf-8")
    options = ("-x", "-q", "-n0", "-m", "not slow", f"--rootdir={TESTS.parent}")
    command = [sys.executable, "-m", "pytest", *options, f"{tests}::{nodes_of(tests)[test]}"]
    env = {**os.environ, "PYTHONPATH": str(copy.parent), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=TESTS.parent, env=env, capture_output=True, text=True, check=False, timeout=HANGS)
    if ran.returncode == 0 and " skipped in " in ran.stdout.splitlines()[-1] and " passed" not in ran.stdout:
        pytest.skip(f"{test} is skipped on this machine")
    assert ran.returncode == FAILED, f"{file} with {new!r} in place of {old!r} passed {test}:\n{ran.stdout[-2000:]}"
