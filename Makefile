# Every target prepares what it needs by itself; only Python (3.11 or newer), pip and make are assumed.
#   make demo                        DDPG beside ADVICE: table, figure, video, report; in minutes
#   make test                        lint, types and the tests that are not marked as slow
#   make test-slow                   the tests that are marked as slow
#   make parity                      our tasks beside the published Safety Gymnasium (needs a python3.10)
#   make test PYTHON=python3.12      the same on another Python (in a virtual environment of its own)
#   make test-newest                 the same on Python 3.13, with the newest versions that there are for it
#   make test-lowest                 the tests on Python 3.11 with the lowest versions that pyproject.toml allows
#   make test CONSTRAINTS=requirements-tested.txt   the same with the versions tested last
#   make test-integrations           the tests of the extras: Stable-Baselines3, Ray, a browser
#   make bench                       every benchmark, one after the other
#   make docs                        the documentation, into site/
#   make reproduce                   every study of the paper, then the report (days of one core)
PYTHON ?= python3
VENV ?= .venv$(if $(filter-out python3,$(notdir $(PYTHON))),-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
WORKERS ?= 2
TESTS ?= tests --ignore=tests/extras
# A file's tests go to one worker: what they share, and what JAX traces for them, is made once.
PYTEST = -m pytest -n $(WORKERS) --dist loadfile
# The first python$(1) here that really runs (a pyenv shim may not), or nothing.
find_python = $(shell for python in python$(1) $(HOME)/.pyenv/versions/$(1)*/bin/python$(1); do \
	"$$python" -c '' 2>/dev/null && echo "$$python" && break; done)
# One thread a process: two runs use two cores well, and results repeat.
export OMP_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1
export MKL_NUM_THREADS = 1

.PHONY: demo test test-slow test-lowest test-newest test-integrations test-extras bench docs parity reproduce lint clean help

help:
	@sed -n 's/^#   //p' Makefile

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "advice needs Python 3.11 or newer, found " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.runtime: pyproject.toml | $(BIN)/python
	@began=$$(date +%s); echo "installing into $(VENV)"; $(BIN)/python -m pip install --quiet -e . \
		&& echo "the installation took $$(($$(date +%s) - began)) s"
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(addprefix -c ,$(CONSTRAINTS)) -e '.[dev]'
	@touch $@ $(VENV)/.runtime

demo: $(VENV)/.runtime
	@began=$$(date +%s); $(BIN)/advice demo && echo "the demo took $$(($$(date +%s) - began)) s (the installation not counted)"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python $(PYTEST) -m 'not slow' $(TESTS)

test-slow: $(VENV)/.dev
	$(BIN)/python $(PYTEST) -m slow $(TESTS)

test-newest:
	@$(MAKE) test PYTHON="$(or $(call find_python,3.13),$(error make test-newest: no python3.13 found))"

# Warnings of newer versions are not theirs, so they are no errors here; neither is another layout of code.
test-lowest: pyproject.toml | .venv-lowest/bin/python
	.venv-lowest/bin/python .ci/lowest.py > .venv-lowest/lowest.txt
	.venv-lowest/bin/python -m pip install --quiet -c .venv-lowest/lowest.txt -e '.[dev]'
	.venv-lowest/bin/python $(PYTEST) -W default -m 'not slow' $(TESTS)

.venv-lowest/bin/python:
	"$(or $(call find_python,3.11),$(error make test-lowest: no python3.11 found))" -m venv .venv-lowest

# torch first and by version: a plain request would pull gigabytes of CUDA
TORCH ?= torch==2.13.0
$(VENV)/.extras: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet '$(TORCH)'
	$(BIN)/python -m pip install --quiet -e '.[dev,sb3,ray,foreign,wandb]' 'playwright>=1.48'
	@touch $@

test-extras: test-integrations

test-integrations: $(VENV)/.extras
	@command -v chromium chromium-browser google-chrome >/dev/null || \
		echo "no Chromium found: install it (Debian: apt-get install chromium) for the browser tests"
	SCREENSHOTS="$${SCREENSHOTS:-$(CURDIR)/build/screenshots}" $(BIN)/python -m pytest -n $(WORKERS) tests/extras tests/envs/test_signals.py

bench: $(VENV)/.dev
	@for script in env_throughput guard_latency shield_fit update_speed method_speed training_speed checkpoint_cost \
		wrapper_overhead report_speed grid_scaling guard_soak kill_resume attack grid_faults; do \
		echo "== $$script"; $(BIN)/python benchmarks/$$script.py || exit 1; done

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

reproduce: $(VENV)/.runtime
	$(BIN)/advice bench --suite paper --seeds 5 --out runs/paper
	$(BIN)/advice report runs/paper --out reports/paper

# The original runs on Python 3.10 only.
PEER_PYTHON ?= $(call find_python,3.10)

.venv-peer/.ready:
	@test -n "$(PEER_PYTHON)" || { echo "make parity: no python3.10 found; name one with PEER_PYTHON=/path/to/python3.10"; exit 1; }
	$(PEER_PYTHON) -m venv .venv-peer
	.venv-peer/bin/python -m pip install --quiet safety-gymnasium==1.0.0
	@touch $@

parity: $(VENV)/.runtime .venv-peer/.ready
	$(BIN)/python benchmarks/parity.py .venv-peer/bin/python

clean:
	rm -rf .venv* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
