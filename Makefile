# Two commands on a fresh machine: `make run` and `make test`. Each sets up what it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM := false
# Two single-threaded processes use two cores better than one process with two threads.
export OMP_NUM_THREADS := 1

.PHONY: run test test-slow test-all mutants check bench docs clean

.venv/.base: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt torch==2.13.0
	$(BIN)/pip install -q -c constraints.txt -e '.[demo]'
	$(BIN)/pip install -q -c constraints.txt --no-deps foolbox
	touch $@

.venv/.dev: .venv/.base
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

run: .venv/.base  ## a real model on real pictures: a leaderboard and an HTML report
	$(BIN)/heatcheck run

test: .venv/.dev  ## everything but the tests marked slow, and the examples in docstrings
	$(BIN)/python -m pytest -m 'not slow' -n 2 --dist worksteal -q --doctest-modules tests src/heatcheck

test-slow: .venv/.dev  ## the tests marked slow: real models, kills, minutes
	$(BIN)/python -m pytest -m slow -n 2 --dist worksteal -q tests

test-all: test test-slow

mutants: .venv/.dev  ## break every formula once: each must fail the test that it names
	HEATCHECK_MUTANTS=all $(BIN)/python -m pytest -m slow -n 2 --dist worksteal -q tests/test_mutants.py

check: .venv/.dev  ## lint and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

.venv/.bench: .venv/.dev
	$(BIN)/pip install -q pandas
	$(BIN)/pip install -q --no-deps lime==0.2.0.1 quantus==0.6.0 grad-cam==1.5.7 ttach==0.0.3
	touch $@

bench: .venv/.bench  ## overhead over the bare model passes, and time against other people's methods and metrics
	$(BIN)/python benchmarks/grid.py
	$(BIN)/python benchmarks/grid.py --peers --samples 16
	$(BIN)/python benchmarks/methods.py
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/metrics.py --growth

docs: .venv/.dev  ## pages that are written by the code
	$(BIN)/python -m heatcheck.testing.zoo docs/architectures.md
	$(BIN)/python docs/pages.py docs

clean:
	rm -rf .venv runs dist .mypy_cache .ruff_cache .hypothesis
