# Two commands set up everything themselves: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CONSTRAINTS := constraints.txt

comma := ,
space := $(comma:,=) $(comma:,=)
PYTEST := $(BIN)/pytest -rs --numprocesses auto --maxprocesses 8 --dist worksteal
# The modules that annotate shapes. Checking them was two fifths of the time of the quick tests, so that is done where those
# of mathematics, tasks and training run again, and in the end-to-end tests. The types of all others mypy knows.
CHECKED := \
	synthbench.bench.fidelity,synthbench.blocks, \
	synthbench.contract.causality,synthbench.contract.tasks,synthbench.data,synthbench.forms,synthbench.layers, \
	synthbench.mechanisms,synthbench.positions,synthbench.reports.aggregates,synthbench.reports.cells, \
	synthbench.first_verdict,synthbench.reports.leaderboard,synthbench.reports.interim, \
	synthbench.reports.render.figures,synthbench.reports.render.page.charts,synthbench.reports.statistics, \
	synthbench.reports.variants,synthbench.results.store,synthbench.runner.held_out, \
	synthbench.tasks,synthbench.training,beartype.beartype
SHAPES := --jaxtyping-packages=$(subst $(space),,$(CHECKED))
REQUIRE := SYNTHBENCH_REQUIRE="$$SYNTHBENCH_REQUIRE,every_eval_ever,example,mlxtend,pinned-torch,ray,submitit$(if $(filter Linux,$(shell uname)),$(comma)triton$(comma)pinned-triton$(comma)procfs)"

# READMEs, tables of categories and cells of reports are committed, and the page of the main suite; `make site` builds everything.
REPORT = $(BIN)/synthbench report
REPORTS := paper paper-all core core.extra peers text
$(foreach name,$(REPORTS),$(eval rows_of_$(name) := --suite $(name)))
rows_of_paper-all := --suite paper --mech all --seeds 42-44
formats = --out reports/$1 --format $(or $(formats_of_$1),$(committed))
committed := md,tex,csv
formats_of_core := md,tex,csv,json,html
formats_of_paper-all := csv
formats_of_core.extra := csv

STUDIES := core.choose language_models.compare validity.page climb.page depth.page disputes.page real.page \
	peers.page prototypes.page predictions.page papers.differences.page

.PHONY: demo test check reports site coverage test-end-to-end test-other-processor test-slow bench-gpu clean

demo: $(VENV)/.installed  ## Train three mechanisms on three ladders, and report on them
	$(BIN)/synthbench run --suite core-small --results demo/results
	$(BIN)/synthbench report --suite core-small --results demo/results --out demo/reports

test: $(VENV)/.installed-test  ## Every quick check
	$(REQUIRE) $(MAKE) check BIN=$(BIN)

check:  ## The same in an environment that is ready: all steps, then a list of those that failed
	@.ci/each \
		'$(BIN)/ruff format --check .' \
		'$(BIN)/ruff check .' \
		'$(BIN)/mypy' \
		'$(BIN)/lint-imports' \
		'$(PYTEST) -m "not slow and not gpu and not end_to_end"' \
		'$(BIN)/python .ci/together "docs/generate.py --check" \
			$(foreach name,$(REPORTS),"synthbench report $(rows_of_$(name)) $(call formats,$(name)) --check") \
			$(foreach name,$(STUDIES),"-m studies.$(name) --check") \
			"synthbench bench report --no-figures --check"'

reports:  ## Write what is committed of the reports
	$(foreach name,$(REPORTS),$(REPORT) $(rows_of_$(name)) $(call formats,$(name)) &&) true
	$(foreach name,$(STUDIES),$(BIN)/python -m studies.$(name) &&) true
	$(BIN)/synthbench bench report --no-figures

site: $(VENV)/.installed  ## Every report in full, with its page and figures, and a front page, in site/
	$(foreach name,$(REPORTS),$(REPORT) $(rows_of_$(name)) --out site/$(name) &&) \
		$(BIN)/synthbench bench report --out site/bench && \
		$(BIN)/python docs/pages.py site

coverage: $(VENV)/.installed-test  ## Which lines of the package the tests of CI reach
	$(PYTEST) $(SHAPES) -m "not slow and not gpu" --cov --cov-report=term

test-end-to-end: $(VENV)/.installed-test  ## Whole commands as a user meets them, and checks that take seconds each
	$(REQUIRE)$(comma)shapes $(PYTEST) $(SHAPES) -m end_to_end

# Libraries choose their code by the processor, and so the last bits of every result. A test that passes because of
# those bits fails on another machine. Here all of them take the code for the oldest x86-64, without AVX and FMA:
# PyTorch, OpenBLAS (of NumPy and SciPy), MKL (of PyTorch) and NumPy. Other architectures have no such switches.
# Normally distributed numbers that tests and layers draw move by up to four units in the last place too.
OLDEST := ATEN_CPU_CAPABILITY=default OPENBLAS_CORETYPE=Prescott MKL_CBWR=COMPATIBLE \
	NPY_DISABLE_CPU_FEATURES="X86_V3 X86_V4 AVX512_ICL AVX512_SPR"
MOVED := -p tests.moved
MATHEMATICS := tests/forms tests/mechanisms tests/positions tests/blocks tests/tasks tests/training tests/studies/test_figures.py \
	tests/contract/test_golden.py tests/contract/test_golden_training.py \
	tests/reports/test_build.py tests/reports/test_ladder.py tests/reports/test_rounding.py

test-other-processor: $(VENV)/.installed-test  ## The tests of mathematics with shapes checked, as the oldest x86-64 processor rounds
ifeq ($(shell uname -m),x86_64)
	$(OLDEST) $(PYTEST) $(SHAPES) $(MOVED) -m "not slow and not gpu and not end_to_end" $(MATHEMATICS)
else
	@echo "as this processor rounds: only x86-64 can take the place of another one"
	$(PYTEST) $(SHAPES) $(MOVED) -m "not slow and not gpu and not end_to_end" $(MATHEMATICS)
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
	# Its schema needs pydantic alone; the package asks for Python 3.12 and 100 MB of adapters.
	$(BIN)/pip install --quiet --no-deps --ignore-requires-python every-eval-ever==0.3.0
	touch $@

clean:  ## Remove the environment, what demo wrote and caches
	rm -rf $(VENV) demo build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
