# Two commands set up everything themselves: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CONSTRAINTS := constraints.txt

comma := ,
PYTEST := $(BIN)/pytest -rs --numprocesses auto --maxprocesses 8 --dist worksteal
REQUIRE := SYNTHBENCH_REQUIRE="$$SYNTHBENCH_REQUIRE,example,mlxtend,pinned-torch,ray,submitit$(if $(filter Linux,$(shell uname)),$(comma)triton$(comma)pinned-triton)"

.PHONY: demo test check coverage test-end-to-end test-other-processor test-slow bench-gpu clean

demo: $(VENV)/.installed  ## Let three mechanisms climb three ladders, and report on them
	$(BIN)/synthbench run --suite climb-small --results demo/results
	$(BIN)/synthbench report --suite climb-small --results demo/results --out demo/reports

test: $(VENV)/.installed-test  ## Every quick check
	$(REQUIRE) $(MAKE) check BIN=$(BIN)

check:  ## The same in an environment that is ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -m "not slow and not gpu and not end_to_end"
	$(BIN)/python docs/generate.py --check
	$(BIN)/synthbench report --suite paper --check
	$(BIN)/synthbench report --suite paper --mech all --seeds 42-44 --out reports/paper-all --check
	$(BIN)/synthbench report --suite climb --check
	$(BIN)/synthbench report --suite peers --check
	$(BIN)/synthbench report --suite digits --check
	$(BIN)/synthbench report --suite digits-short --check
	$(BIN)/synthbench report --suite labels --check
	$(BIN)/synthbench report --suite labels-short --check
	$(BIN)/synthbench report --suite text --check
	$(BIN)/synthbench validity --check
	$(BIN)/synthbench bench report --check

coverage: $(VENV)/.installed-test  ## Which lines of the package the tests of CI reach
	$(PYTEST) -m "not slow and not gpu" --cov --cov-report=term

test-end-to-end: $(VENV)/.installed-test  ## Whole commands as a user meets them, and checks that take seconds each
	$(REQUIRE) $(PYTEST) -m end_to_end

# Libraries choose their code by the processor, and so the last bits of every result. A test that passes because of
# those bits fails on another machine. Here all of them take the code for the oldest x86-64, without AVX and FMA:
# PyTorch, OpenBLAS (of NumPy and SciPy), MKL (of PyTorch) and NumPy. Other architectures have no such switches.
OLDEST := ATEN_CPU_CAPABILITY=default OPENBLAS_CORETYPE=Prescott MKL_CBWR=COMPATIBLE \
	NPY_DISABLE_CPU_FEATURES="X86_V3 X86_V4 AVX512_ICL AVX512_SPR"
MATHEMATICS := tests/forms tests/mechanisms tests/positions tests/blocks tests/test_gallery.py \
	tests/contract/test_golden.py tests/contract/test_golden_training.py

test-other-processor: $(VENV)/.installed-test  ## The tests of the mathematics as the oldest x86-64 processor rounds
ifeq ($(shell uname -m),x86_64)
	$(OLDEST) $(PYTEST) -m "not slow and not gpu and not end_to_end" $(MATHEMATICS)
else
	@echo "nothing to do: only x86-64 can take the place of another processor"
endif

test-slow: $(VENV)/.installed-test  ## Tests that train to a threshold
	$(BIN)/pytest -m slow

# In a checkout, in any environment that can import synthbench, installed or from this folder, and has a CUDA build of torch:
# `make bench-gpu PYTHON=python3`. A call ends within ten minutes and says if there is more to do; the same call again
# goes on. `python3 -m benchmarks.campaign --device cuda --dry-run` prints the steps, docs/benches.md what they are for.
bench-gpu:  ## What is to be measured on a GPU
	$(PYTHON) -m benchmarks.campaign --device cuda --budget 540

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
