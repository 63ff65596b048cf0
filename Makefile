# Every target prepares what it needs by itself; only Python (3.11 or newer), pip and make are assumed.
#   make demo                        the main job, in minutes
#   make test                        lint, types and tests
#   make test PYTHON=python3.13      the same on another Python (in a virtual environment of its own)
PYTHON ?= python3
VENV ?= .venv$(if $(filter-out python3,$(notdir $(PYTHON))),-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
WORKERS ?= 2
# One thread a process: two runs use two cores well, and results repeat.
export OMP_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1
export MKL_NUM_THREADS = 1

.PHONY: demo test test-integrations bench docs parity lint clean help

help:
	@sed -n 's/^#   //p' Makefile

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "advice needs Python 3.11 or newer, found " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.runtime: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@ $(VENV)/.runtime

demo: $(VENV)/.runtime
	$(BIN)/advice demo

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n $(WORKERS) tests

clean:
	rm -rf .venv* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
