# Two commands on a fresh machine: `make run` and `make test`. Each sets up what it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM := false
# Two single-threaded processes use two cores better than one process with two threads.
export OMP_NUM_THREADS := 1
# Where the environment forbids compiled files, each of the many processes of the tests would compile the package anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test test-slow test-all faults mutants studies check bench docs clean

# pip is silent but for its errors; each step says in a line what it does. A registry far away takes longer.
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install -qq -c constraints.txt

.venv/.base: pyproject.toml constraints.txt $(wildcard tools/torchvision_repair/*.py tools/torchvision_repair/*.toml)
	@echo 'Setting up .venv, once; about 2 minutes.'
	@$(PYTHON) -m venv .venv
	@echo '  1 of 3: torch (about 1 minute) …'
	@$(PIP) torch==2.13.0
	@echo '  2 of 3: heatcheck with its demo, model and pictures included (about 1 minute) …'
	@$(PIP) -e '.[demo]'
	@echo '  3 of 3: a repair for torchvision beside a CPU build of torch (seconds) …'
	@$(PIP) --no-deps --force-reinstall ./tools/torchvision_repair
	@touch $@

.venv/.dev: .venv/.base
	@echo 'Adding what the tests need to .venv, once (about 1 minute) …'
	@$(PIP) -e '.[dev]'
	@touch $@

run: .venv/.base  ## a real model on real pictures: a leaderboard and an HTML report
	$(BIN)/heatcheck run

test: .venv/.dev  ## everything but the tests marked slow, and the examples in docstrings
	$(BIN)/python -m pytest -m 'not slow' -n 2 --dist worksteal -q --durations=20 --doctest-modules tests src/heatcheck

# Many of them wait for processes that they started, so three share two cores.
test-slow: .venv/.dev  ## the tests marked slow: real models, kills, minutes
	$(BIN)/python -m pytest -m slow -n 3 --dist worksteal -q --durations=20 tests

test-all: test test-slow

faults: .venv/.dev  ## kill, damage and starve a toy run hundreds of times; writes the table in docs/reliability.md (half an hour)
	$(BIN)/python -m tests.faults.campaign --write

mutants: .venv/.dev  ## break every formula once: each must fail the test that it names
	HEATCHECK_MUTANTS=all $(BIN)/python -m pytest -m slow -n 2 --dist worksteal -q tests/test_mutants.py

studies: .venv/.dev  ## trainings and runs after the papers, at a size for two cores; needs CIFAR-10, ImageNet pictures and movie reviews (hours)
	$(BIN)/python -m studies.idsds_imagenet
	$(BIN)/python -m studies.idsds_cifar
	$(BIN)/python -m studies.idsds_table
	$(BIN)/python -m studies.synthetic
	$(BIN)/python -m studies.birds
	$(BIN)/python -m studies.checkpoints
	$(BIN)/python -m studies.race
	$(BIN)/python -m studies.meta_rank
	$(BIN)/python -m studies.roar
	$(BIN)/python -m studies.m4_text

check: .venv/.dev  ## lint and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

.venv/.bench: .venv/.dev
	@echo 'Adding the packages that we compare with to .venv, once (seconds) …'
	@$(PIP) pandas
	@$(PIP) --no-deps lime==0.2.0.1 quantus==0.6.0 grad-cam==1.5.7 ttach==0.0.3
	@$(PIP) --no-deps ferret-xai==0.4.2 transformers-interpret==0.10.0
	@touch $@

bench: .venv/.bench  ## overhead over the bare model passes, and time against other people's methods and metrics
	$(BIN)/python benchmarks/grid.py
	$(BIN)/python benchmarks/grid.py --peers --samples 16
	$(BIN)/python benchmarks/methods.py
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/metrics.py --growth
	$(BIN)/python benchmarks/text.py
	$(BIN)/python benchmarks/text.py --padding --samples 40

docs: .venv/.dev  ## pages that are written by the code
	$(BIN)/python -m heatcheck.testing.zoo docs/architectures.md
	$(BIN)/python docs/pages.py docs
	$(BIN)/python -m heatcheck.api.costs src/heatcheck/cli/costs.json

clean:
	rm -rf .venv runs dist .mypy_cache .ruff_cache .hypothesis
