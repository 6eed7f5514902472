# Development commands. `make` without a target lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
RUN := $(VENV)/bin/python
DEMO_READY := $(VENV)/.demo-installed
READY := $(VENV)/.installed
ALL_READY := $(VENV)/.all-installed
# The extra of a release of TensorFlow, as in `make test VENV=.venv-tf221 TF=tf221`.
TF ?= tf220
# tf-models-official has no release for TensorFlow 2.21.
OFFICIAL := $(if $(filter tf221,$(TF)),,official,)
# What the commands of the README need: those of the demo, folders of Hugging Face, and Chinese.
DEMO_EXTRAS := .[$(TF),hf,zh]
EXTRAS := .[$(TF),$(OFFICIAL)dev,hf,sentences,zh,zstd]
ALL_EXTRAS := .[$(TF),$(OFFICIAL)dev,gcs,hf,notebooks,openvino,s3,sentences,servers,web,zh,zstd]
# The tests of a file share fixtures, which one process makes once.
# A process that crashes ends the run: with another in its place, pytest-xdist 3.8 waits forever.
IN_PARALLEL := -n 2 --dist loadfile --max-worker-restart 0
LOWEST_VENV := .venv-lowest
LOWEST_READY := $(LOWEST_VENV)/.installed
LOWEST_EXTRAS := .[tf216,dev,gcs,hf,openvino,s3,sentences,wandb,web,zh,zstd]
BEAM_VENV := .venv-beam
BEAM_READY := $(BEAM_VENV)/.installed
BEAM_NEEDS := --editable ".[$(TF),dask]" "hypothesis>=6.136,<7" "pytest>=8.3,<10" "pytest-timeout>=2.3.1,<3"
TPU_VENV := .venv-tpu
TPU_READY := $(TPU_VENV)/.installed
# A variable, because a comma separates the arguments of `call`.
TPU_NEEDS := --editable ".[tf220,dev]"
COMPILERS_VENV := .venv-compilers
COMPILERS := $(CURDIR)/$(COMPILERS_VENV)/bin/python
COMPILERS_READY := $(COMPILERS_VENV)/.installed
JAX := 0.10.2
TRITON_VENV := .venv-triton
TRITON_READY := $(TRITON_VENV)/.installed
DOCS_READY := $(VENV)/.docs-installed

# Silences TensorFlow's start-up messages (CPU features, no CUDA). Errors are still raised in Python.
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: help setup setup-all demo test test-ci test-lowest test-beam test-tpu test-gpu test-kernels test-all lint format types docs bench check clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

setup: $(READY) ## make the virtual environment, with what the demo and the default tests need

setup-all: $(ALL_READY) ## the same with OpenVINO, Gradio, object stores, their servers and notebooks

# Installs into an environment, $(call install,folder,packages). uv takes a quarter of the time; pip is the
# fallback if uv fails, because uv does not read pip's configuration. Without its bytecode, importing TensorFlow
# takes 8 seconds instead of 3.
PIP := -m pip install --quiet --disable-pip-version-check
install = { $(1)/bin/python $(PIP) uv && $(1)/bin/python -m uv pip install --quiet --compile-bytecode --python $(1)/bin/python $(2); } \
  || $(1)/bin/python $(PIP) $(2)

# Each of these runs once, and again when the dependencies change.
$(DEMO_READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "Python 3.10 or newer is needed: make setup PYTHON=/path/to/python3.11"; exit 1; }
	@$(RUN) -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (the first time takes one to three minutes) ..."
	@$(call install,$(VENV),--editable "$(DEMO_EXTRAS)")
	@touch $(DEMO_READY)

$(READY): $(DEMO_READY)
	@echo "Installing what the tests need into $(VENV) ..."
	@$(call install,$(VENV),--editable "$(EXTRAS)")
	@touch $(READY)

$(ALL_READY): $(READY)
	@$(call install,$(VENV),--editable "$(ALL_EXTRAS)")
	@touch $(ALL_READY)

demo: $(DEMO_READY) ## from text to a pre-trained, fine-tuned model, in demo/ (three minutes)
	@$(RUN) examples/demo.py

test: $(READY) ## the default tests (two minutes on two cores); those of missing extras are skipped
	$(RUN) -m pytest $(IN_PARALLEL)

# Tests that compute for more than half a second: whole programs, a kill, a full disk, XLA.
test-ci: $(READY) ## those of whole programs and XLA, which .ci/run runs too (five minutes on two cores)
	$(RUN) -m pytest $(IN_PARALLEL) -m ci --timeout 1800

# In three runs, because TensorFlow keeps compiled functions: a single one needs more than 24 GB of memory.
test-all: $(ALL_READY) test-beam ## all tests, with ten times as many generated ones (an hour)
	failed=; \
	for tier in "not ci and not slow" "ci" "slow and not ci"; do \
	  $(RUN) -m pytest $(IN_PARALLEL) -m "$$tier" --timeout 3600 --hypothesis-profile=thorough \
	    || failed="$$failed, $$tier"; \
	done; \
	[[ -z $$failed ]] || { echo "failed: $${failed#, }"; exit 1; }

test-lowest: $(LOWEST_READY) ## the default tests with the lowest releases that pyproject.toml allows
	$(LOWEST_VENV)/bin/python -m pytest $(IN_PARALLEL)

$(LOWEST_READY): pyproject.toml .ci/lowest.txt
	@$(PYTHON) -m venv $(LOWEST_VENV)
	@$(call install,$(LOWEST_VENV),--constraint .ci/lowest.txt --editable "$(LOWEST_EXTRAS)")
	@touch $(LOWEST_READY)

# Apache Beam requires older releases of protobuf and pyarrow than those of $(VENV).
test-beam: $(BEAM_READY) ## the tests of Apache Beam and Dask, in an environment of their own
	$(BEAM_VENV)/bin/python -m pytest -m "slow or not slow" --timeout 600 tests/data/test_beam.py

$(BEAM_READY): pyproject.toml
	@$(PYTHON) -m venv $(BEAM_VENV)
	@$(call install,$(BEAM_VENV),$(BEAM_NEEDS))
	@touch $(BEAM_READY)

# Environments of their own: `tensorflow-tpu` has the files of `tensorflow`, and looks for a TPU where it
# finds libtpu, which is one of the compilers. Those for GPUs need no other package of CUDA.
test-tpu: ## compile all steps with Google's TPU compiler, without a TPU (six minutes)
	@$(MAKE) --no-print-directory $(COMPILERS_READY) $(TPU_READY) \
	  || { echo "skipped: cannot install $(COMPILERS_VENV) and $(TPU_VENV)"; exit 0; }; \
	ALBERT_COMPILER=$(COMPILERS) $(TPU_VENV)/bin/python -m pytest -m slow tests/test_compiled_programs.py

test-gpu: $(READY) ## compile all steps with XLA's GPU compiler, without a GPU (five minutes)
	@$(MAKE) --no-print-directory $(COMPILERS_READY) \
	  || { echo "skipped: cannot install $(COMPILERS_VENV)"; exit 0; }; \
	ALBERT_COMPILER=$(COMPILERS) $(RUN) -m pytest -m slow tests/test_compiled_programs.py tests/benchmarks

test-kernels: $(READY) $(TRITON_READY) ## compare Triton's kernels with the formula, without a GPU (a minute)
	ALBERT_TRITON=$(CURDIR)/$(TRITON_VENV)/bin/python $(RUN) -m pytest -m slow tests/model/test_kernels_triton.py

# The interpreter of this release needs PyTorch, for a CPU, and no newer NumPy.
$(TRITON_READY):
	@$(PYTHON) -m venv $(TRITON_VENV)
	@$(TRITON_VENV)/bin/python $(PIP) --extra-index-url https://download.pytorch.org/whl/cpu \
	  "torch==2.13.0+cpu" "numpy>=2,<2.3" setuptools
	@$(TRITON_VENV)/bin/python $(PIP) --no-deps triton==3.4.0
	@touch $(TRITON_READY)

$(TPU_READY): pyproject.toml
	@$(PYTHON) -m venv $(TPU_VENV)
	@echo "Installing into $(TPU_VENV) (the first time takes about three minutes) ..."
	@$(call install,$(TPU_VENV),$(TPU_NEEDS))
	@$(TPU_VENV)/bin/python -m pip uninstall --quiet --yes tensorflow libtpu
	@$(TPU_VENV)/bin/python $(PIP) --force-reinstall \
	  --no-deps tensorflow-tpu==2.20.0
	@touch $(TPU_READY)

$(COMPILERS_READY):
	@$(PYTHON) -m venv $(COMPILERS_VENV)
	@echo "Installing into $(COMPILERS_VENV) (the first time takes about two minutes) ..."
	@$(COMPILERS) $(PIP) "jax[tpu]==$(JAX)"
	@$(COMPILERS) $(PIP) --no-deps \
	  jax-cuda12-plugin==$(JAX) jax-cuda12-pjrt==$(JAX) "nvidia-cuda-nvcc-cu12==12.9.*"
	@touch $(COMPILERS_READY)

lint: $(READY) ## ruff (rules and formatting), and the layers of the package
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(VENV)/bin/lint-imports

format: $(READY) ## ruff: repair and format
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

types: $(READY) ## mypy
	$(RUN) -m mypy

# Zensical, the successor of mkdocs-material, reads mkdocs.yml and mkdocstrings (tried: 0.0.73), but has no
# hooks. Without docs/hooks.py, the home page and the tables of settings are missing.
docs: $(DOCS_READY) ## the documentation site, in site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build

$(DOCS_READY): $(READY)
	@$(call install,$(VENV),--editable ".[docs]")
	@touch $(DOCS_READY)

BENCHMARKS = $(sort $(wildcard benchmarks/bench_*.py))
bench: $(READY) ## every benchmark, one JSON line a run; tables with BENCH_FLAGS=--results=docs/notebook/speed.md
	@for script in $(BENCHMARKS); do $(RUN) $$script $(BENCH_FLAGS) || exit; done

check: lint types test ## what has to pass before a commit

clean: ## remove caches and build products; .venv, demo and data stay
	rm -rf build dist site .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
