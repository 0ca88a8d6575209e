# Two commands set up everything themselves: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CONSTRAINTS := constraints.txt

.PHONY: demo test check test-slow bench-gpu clean

demo: $(VENV)/.installed  ## Run the smoke suite and print its tables
	$(BIN)/synthbench run --suite smoke --results demo/results
	$(BIN)/synthbench report --suite smoke --results demo/results --out demo/reports
	@cat demo/reports/full.md
	@echo "Tables: demo/reports (start at demo/reports/README.md), rows: demo/results"

test: $(VENV)/.installed-test  ## Every check that every push must pass
	$(MAKE) check BIN=$(BIN)

check:  ## The same in an environment that is ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m "not slow and not gpu"
	$(BIN)/synthbench report --suite paper --check

test-slow: $(VENV)/.installed-test  ## Tests that train to a threshold
	$(BIN)/pytest -m slow

bench-gpu:  ## What is to be measured on a GPU: each call takes minutes, and the same call again goes on where it stopped
	synthbench doctor
	synthbench bench suite --device cuda --json > results/bench-suite-cuda.json
	synthbench run --suite paper --device cuda --seeds 42-44 --results results/cuda

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) torch
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable ".[test]"
	touch $@

clean:  ## Remove the environment, what demo wrote and caches
	rm -rf $(VENV) demo build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
