# Two commands do it all on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One process for each core, each with a part of the tests in their order, since those of a file share its fixtures; who
# is done early takes over from the others.
PARALLEL := -n auto --dist worksteal
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help setup demo check format test-fast test test-slow bench results clean

help:
	@echo "make demo       train a small federation, serve two requests, audit them, write two reports"
	@echo "make test       every check and every real part once"
	@echo "make setup      install what all of these need; after it none needs a network"
	@echo "make check      lint, format and types"
	@echo "make test-fast  the daily tests"
	@echo "make test-slow  faults, kills, many repetitions"
	@echo "make bench      measure speed, as ratios, and render docs/performance.md"
	@echo "make results    render docs/results from their cells"

setup: $(VENV)/.dev $(VENV)/.browser $(VENV)/.postgres

# python3 -m venv needs Debian's python3-venv; install it when we are root and it is missing.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fedforget needs Python 3.11 or newer; set PYTHON=/path/to/python3.11."; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq python3-venv; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Report and console are looked at in a real browser: Debian's chromium, installed when we are root and it is missing.
$(VENV)/.browser: $(VENV)/bin/python
	@{ command -v chromium && command -v chromedriver; } >/dev/null || test "$$(id -u)" != 0 || { apt-get update -qq && apt-get install -y -qq chromium chromium-driver >/dev/null; }
	@touch $@

# The ledger is tested on a real PostgreSQL too: Debian's, installed in the same way; the tests start it themselves.
$(VENV)/.postgres: $(VENV)/bin/python
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || test "$$(id -u)" != 0 || { apt-get update -qq && apt-get install -y -qq postgresql >/dev/null; }
	@touch $@

demo: $(VENV)/.demo
	$(BIN)/fedforget demo --out demo

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-fast: $(VENV)/.dev
	$(BIN)/python -m pytest $(PARALLEL) -m "not real and not slow" --doctest-modules src tests

test: check $(VENV)/.browser $(VENV)/.postgres
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow" --doctest-modules src tests

test-slow: $(VENV)/.dev $(VENV)/.postgres
	$(BIN)/python -m pytest $(PARALLEL) -m slow tests

bench: $(VENV)/.dev
	$(BIN)/fedforget bench --out benchmarks/performance-cpu.json
	$(BIN)/python -m fedforget.experiments performance benchmarks/performance-*.json

results: $(VENV)/.dev
	$(BIN)/python -m fedforget.experiments render docs/results
	$(BIN)/python -m fedforget.experiments performance benchmarks/performance-*.json

clean:
	rm -rf $(VENV) build dist demo
