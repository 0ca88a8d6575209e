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
	@echo "Page: $(CURDIR)/demo/reports/index.html"

test: $(VENV)/.installed-test  ## Every check that every push must pass
	SYNTHBENCH_REQUIRE="$$SYNTHBENCH_REQUIRE,example" $(MAKE) check BIN=$(BIN)

check:  ## The same in an environment that is ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m "not slow and not gpu" -rs --numprocesses auto --maxprocesses 8 --dist worksteal
	$(BIN)/python docs/generate.py --check
	$(BIN)/synthbench report --suite paper --check
	$(BIN)/synthbench report --suite paper --mech all --seeds 42-44 --out reports/paper-all --check
	$(BIN)/synthbench report --suite core-mini --check

test-slow: $(VENV)/.installed-test  ## Tests that train to a threshold
	$(BIN)/pytest -m slow

# In an environment of your own with a CUDA build of torch: `pip install -e .` there, then `make bench-gpu PYTHON=python3`.
# A call takes minutes; the same call again keeps the timings that are there and runs only the rows that are missing.
bench-gpu: results/bench-suite-cuda.json  ## What is to be measured on a GPU
	$(PYTHON) -m synthbench run --suite paper --device cuda --results results/cuda --timeout 300

results/bench-suite-cuda.json:
	$(PYTHON) -m synthbench doctor
	$(PYTHON) -m synthbench bench suite --device cuda --members 64 --json > $@.tmp
	mv $@.tmp $@

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) torch
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable ".[test]"
	$(BIN)/pip install --quiet --no-deps ./tests/plugin
	touch $@

clean:  ## Remove the environment, what demo wrote and caches
	rm -rf $(VENV) demo build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
