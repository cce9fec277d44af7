# Tasks. Each installs what it needs into .venv; `make demo`, `make test`, `make lint` and `make crash` need only
# Python 3.11, and `make test-real` (so `make check` and `make nightly`) installs other programs as well.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN)

.PHONY: help demo test crash test-real check nightly lint listings picture confusables screens scenes bench lock coverage mutants clean

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

# Let Python and pytest cache bytecode, even if the environment forbids it: it halves the time of collecting tests.
test coverage mutants: export PYTHONDONTWRITEBYTECODE :=
# Put the tests' folders into memory if possible: only the crash tests need a disk.
test: export PYTEST_DEBUG_TEMPROOT ?= $(shell test -w /dev/shm && echo /dev/shm)
test: $(VENV)/.dev  ## the tests that need nothing but Python, and the CPU time they take
	$(BIN)/python tests/cpu.py $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests --ignore tests/real --ignore tests/crash --ignore tests/browser

crash: $(VENV)/.dev  ## kill dispatchers, the vault's tools and servers at every step
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/crash

test-real: $(VENV)/.browser  ## the tests against real programs, browsers and mail collections, which it installs
	bash tests/real/install
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile tests/real tests/browser tests/contract --providers emulate

lint: $(VENV)/.browser  ## formatting, lint, types, and which room imports which
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

check: export POSTROOM_EXAMPLES ?= 100
check: export POSTROOM_CRASH ?= 50
check: lint test crash test-real  ## everything that must pass before a change lands (lint, test, crash, test-real)

nightly: export POSTROOM_EXAMPLES ?= 1000
nightly: export POSTROOM_CRASH ?= 100
nightly: lint test crash test-real  ## the same with the full counts of kills and ten times the examples

listings: $(VENV)/.runtime  ## write anew what servers list, after a change of a tool or its arguments
	$(BIN)/python -m scripts.listings

picture: $(VENV)/.runtime  ## redraw docs/desk.svg
	$(BIN)/python scripts/picture.py

confusables: $(VENV)/.runtime  ## write the table of confusable letters anew, from ICU (Debian: libicu72)
	$(BIN)/python scripts/confusables.py

screens: $(VENV)/.browser  ## retake the screenshots of the page in docs/, in a real browser
	bash tests/real/install
	$(BIN)/python -m scripts.screens

scenes: $(VENV)/.browser  ## take screenshots of every state of the page into .scenes/, light and dark, wide and phone
	bash tests/real/install
	$(BIN)/python -m scripts.scenes .scenes

bench: $(VENV)/.dev  ## speed and size, as ratios against baselines of the same run
	$(BIN)/python -m bench

coverage: export COVERAGE_FILE := $(CURDIR)/.coverage
coverage: $(VENV)/.dev  ## which lines and branches the tests reach, room by room, child processes included
	$(BIN)/coverage erase
	-COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml COVERAGE_DURATIONS=$(CURDIR)/.durations.json $(BIN)/python -m pytest -p tests.tracing -n $(WORKERS) --dist worksteal -o timeout=600 tests --ignore tests/real --ignore tests/crash --ignore tests/browser
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered
	$(BIN)/coverage json --quiet -o - | $(BIN)/python -m tests.rooms

mutants: $(VENV)/.dev  ## which of 200 small changes to the code the tests notice (after make coverage; some minutes)
	$(BIN)/python -m tests.mutants --count 200 --seed 23

lock: $(VENV)/.dev  ## update the lock files in requirements/ (installs uv into a folder of its own)
	$(PYTHON) -m venv $(VENV)/lock && $(VENV)/lock/bin/pip --quiet install uv
	bash requirements/lock $(VENV)/lock/bin/uv

clean:          ## remove what these tasks made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage* .durations.json mutants.json .scenes
