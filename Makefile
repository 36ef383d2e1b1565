# The commands a person types. Each sets up what it needs in .venv first.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: run test kills fuzz mutants check bench bench-compare performance results docs pictures package install clean

run: install  ## the demo: SGD and BCSC on real handwritten digits
	$(BIN)/bcsc demo

test: install  ## every test, the slow ones too
	$(BIN)/python -m pytest -n auto

kills: install  ## kill -9 at 200 random moments, over all methods, bases and masks; a few minutes
	$(BIN)/python -m tests.kills

fuzz: install  ## thousands of damaged and hostile files, new ones every time; a quarter of an hour
	$(BIN)/python -m pytest -n auto --hypothesis-profile=thorough tests/unit/runs/test_hostile_files.py tests/unit/cli/test_hostile_folders.py

mutants: install  ## change the code that is trusted most in small ways: does a test notice? Half an hour or more; can be stopped
	$(BIN)/python -m tests.mutants

check: install  ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 src
	$(BIN)/mypy --platform darwin src
	$(BIN)/lint-imports

bench: install  ## the six goals of docs/performance.md, twice, into benchmarks/results; about a quarter of an hour on two quiet cores
	$(BIN)/python -m benchmarks

bench-compare: install  ## measure again, and compare with the newest record in benchmarks/results
	$(BIN)/python -m benchmarks --out build/bench --compare $(lastword $(sort $(wildcard benchmarks/results/*.json)))

performance: install  ## docs/performance.md from the newest record in benchmarks/results
	$(BIN)/python -m benchmarks --page docs/performance.md

results: install  ## docs/results.md with its figures, and the table of docs/why.md, from what is in records
	$(BIN)/bcsc report records --markdown docs/results.md
	$(BIN)/python records/trajectories/measure.py --show

docs: install  ## the documentation site in build/site, with warnings as errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "The site is in build/site: open build/site/index.html"

pictures: install  ## the pictures of the tutorial, from the blocks and batches that the library draws
	$(BIN)/python -m website.pictures

package: install  ## the wheel and the sdist, installed where nothing else is: the core alone, then everything
	.ci/package

install: $(READY)  ## .venv with bcsc and all it needs

$(READY): pyproject.toml constraints.txt
	@echo "Setting up .venv with bcsc, torch and what the tests need: some minutes, the first time."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	: > $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
