# Tasks. `make demo` and `make test` set up all that they need on a machine with Python 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN)

.PHONY: help demo test crash test-real check nightly lint picture screens bench lock coverage mutants clean

help:           ## show these tasks
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(BIN)/python requirements/runtime.txt requirements/build.txt pyproject.toml
	@echo "Installing what requirements/ locks into $(VENV)"
	@$(PIP) install --require-hashes -r requirements/runtime.txt -r requirements/build.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements/dev.txt
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.browser: $(VENV)/.dev requirements/browser.txt
	@$(PIP) install --require-hashes -r requirements/browser.txt
	@touch $@

demo: $(VENV)/.runtime  ## try it with sample mail, in a folder of its own
	@$(BIN)/python -m postroom demo

# pytest keeps the tests that it has rewritten: half of what collecting them costs.
test coverage mutants: export PYTHONDONTWRITEBYTECODE :=
# In memory where there is such a folder: a test that kills nothing need not wait for a disk.
test: export PYTEST_DEBUG_TEMPROOT ?= $(shell test -w /dev/shm && echo /dev/shm)
test: $(VENV)/.dev  ## the tests that need nothing but Python, and the CPU time they take
	$(BIN)/python tests/cpu.py $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests --ignore tests/real --ignore tests/crash --ignore tests/browser

crash: $(VENV)/.dev  ## dispatchers, the vault's tools and servers, killed at every step
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/crash

test-real: $(VENV)/.browser  ## the tests against real programs, browsers and collections, which it installs
	bash tests/real/install
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile tests/real tests/browser tests/contract --providers emulate

lint: $(VENV)/.browser  ## format, lint, types, rooms
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

check: export POSTROOM_EXAMPLES ?= 100
check: lint test crash test-real  ## all that must hold before a change lands, with reduced counts

nightly: export POSTROOM_EXAMPLES ?= 1000
nightly: export POSTROOM_CRASH ?= 100
nightly: lint test crash test-real  ## the same with the full counts of kills and examples

picture: $(VENV)/.runtime  ## draw docs/desk.svg anew
	$(BIN)/python docs/picture.py

screens: $(VENV)/.browser  ## make the pictures of the page in docs/ anew, in a real browser
	bash tests/real/install
	$(BIN)/python docs/screens.py

bench: $(VENV)/.dev  ## speed and size, as ratios against baselines of the same run
	$(BIN)/python -m bench

coverage: export COVERAGE_FILE := $(CURDIR)/.coverage
coverage: $(VENV)/.dev  ## which branches the tests reach, room by room, child processes included
	$(BIN)/coverage erase
	-COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml COVERAGE_DURATIONS=$(CURDIR)/.durations.json $(BIN)/python -m pytest -p tests.tracing -n $(WORKERS) --dist worksteal -o timeout=600 tests --ignore tests/real --ignore tests/crash --ignore tests/browser
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered
	$(BIN)/coverage json --quiet -o - | $(BIN)/python -m tests.rooms

mutants: $(VENV)/.dev  ## which of 200 small changes of the code the tests notice (after make coverage; half an hour)
	$(BIN)/python -m tests.mutants --count 200 --seed 23

lock: $(VENV)/.dev  ## resolve the locks anew (brings uv into its own folder)
	$(PYTHON) -m venv $(VENV)/lock && $(VENV)/lock/bin/pip --quiet install uv
	bash requirements/lock $(VENV)/lock/bin/uv

clean:          ## remove what these tasks made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
