# Two commands matter: `make demo` and `make test`. Both set everything up in .venv first.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# numpy<2, which the embedded server needs, has wheels for these Pythons.
PYTHON_RANGE := >=3.11,<3.13
# Of the machine with a GPU, where test-gpu runs: it has requirements/gpu.txt.
PYTHON ?= python3
TEST_DEVICE ?= gpu:0
GPU_TESTS ?= $(wildcard tests/gpu/test_*.py)
PACKAGES := workflow loader training exporter triton_models serving
UV := $(shell command -v uv 2>/dev/null || echo $(VENV)-uv/bin/uv)
export UV_PYTHON_DOWNLOADS := never
export UV_SYSTEM_CERTS := true
# Where the home folder cannot be written to, or there is none, uv keeps its cache beside the environment.
UV_CACHE := $(or $(UV_CACHE_DIR),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/uv)
ifneq ($(shell mkdir -p '$(UV_CACHE)' 2>/dev/null && test -w '$(UV_CACHE)' && echo yes),yes)
export UV_CACHE_DIR := $(CURDIR)/$(VENV)-uv/cache
endif
# TensorFlow's start-up chatter hides the messages that matter.
export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: help env docs demo test lint types contracts tests test-long test-gpu test-frameworks test-torch test-versions test-numpy2 bench bench-scaling bench-serving bench-peers fuzz faults soak audit dist lock clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | awk -F ':.*?## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# Where Python must not keep what it compiles, each process would compile TensorFlow anew, for seconds.
COMPILE := $(if $(PYTHONDONTWRITEBYTECODE),--compile-bytecode)

env: $(STAMP)  ## Create .venv with exact, hashed versions

$(STAMP): requirements/cpu.txt pyproject.toml
	@command -v $(UV) >/dev/null || (python3 -m venv $(VENV)-uv && $(VENV)-uv/bin/pip install --quiet uv)
	$(UV) venv --quiet --allow-existing --python '$(PYTHON_RANGE)' $(VENV)
	$(UV) pip sync --quiet $(COMPILE) --python $(BIN)/python --require-hashes --build-constraints requirements/cpu.txt requirements/cpu.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@# The way to the checkout is relative, since the embedded server's Python reads it as ASCII, as
	@# Python itself does under LC_ALL=C.
	@cd $(VENV)/lib/python*/site-packages && realpath --relative-to=. "$$OLDPWD" > _editable_impl_parquet_to_triton.pth
	@touch $@

demo: env  ## Train, export, serve and prove the MovieLens ensemble
	$(BIN)/python examples/movielens.py $(DEMO)

# mypy takes one core for half a minute, in which tests that wait for servers leave one.
test: env lint contracts  ## Lint, types, import contracts and every test but the long ones
	@$(MAKE) --no-print-directory -j 2 types tests

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: env
	$(BIN)/mypy $(PACKAGES) examples benchmarks docs/site

contracts: env
	$(BIN)/lint-imports --no-cache

# Tests start some hundred processes, each of which would compile the packages anew.
tests test-long: export PYTHONDONTWRITEBYTECODE :=

# A process that a test ends would be replaced, and then pytest-xdist waits forever for groups that it takes for
# unfinished: the run ends there, and names the test. Three processes for two cores, as many tests wait for servers.
PARALLEL := -n 3 --dist loadgroup --max-worker-restart=0

tests: env
	$(BIN)/pytest $(PARALLEL) -m "not long and not gpu" tests

LONG_PART ?= 1/1
test-long: env  ## The tests that take minutes: faults at every step, longer training; LONG_PART=2/3 is a third of them
	LONG_PART=$(LONG_PART) $(BIN)/pytest $(PARALLEL) -m long tests

# Runs whose length is given.
PATIENT := -o faulthandler_timeout=0

# Of the calls at which a process is killed, every one or every n-th.
FAULTS_EVERY ?= 1
faults: env build/calls.so  ## Faults at each call, and the tests of each goal in docs/reliability.md, as a table
	LD_PRELOAD=$(abspath build/calls.so) FAULTS_EVERY=$(FAULTS_EVERY) \
	  $(BIN)/pytest -q --goals $(PATIENT) --timeout=3600 $$($(BIN)/python tests/faults/goals.py)

build/calls.so: tests/faults/calls.c
	@mkdir -p build
	$(CC) -Wall -O2 -shared -fPIC -o $@ $< -ldl

SOAK_SECONDS ?= 600
soak: env  ## A server under load, publications and crashing clients for SOAK_SECONDS, as a table
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/pytest -q -s $(PATIENT) --timeout=0 tests/faults/test_soak.py

FUZZ_SECONDS ?= 100
fuzz: env  ## Random damage of files and requests for FUZZ_SECONDS, all readers together; FUZZ_SEED repeats a run
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/pytest -q $(PATIENT) --timeout=0 tests/attacks/test_fuzzed_*.py

# A process for each file, and a new one after a test that hung or ended it: others keep their GPU.
# A thread ends a test that hangs outside of Python, and faulthandler one that lets no thread run.
GPU_PYTEST := -m pytest -n 1 --timeout-method=thread -o faulthandler_timeout=250
test-gpu:  ## The tests that need an NVIDIA GPU, all or GPU_TESTS=tests/gpu/test_verbs.py, with PYTHON=...
	@failed=0; for file in $(GPU_TESTS); do \
	  TEST_DEVICE=$(TEST_DEVICE) $(PYTHON) $(GPU_PYTEST) $$file || failed=1; \
	done; exit $$failed

# The wheel without CUDA, which lies outside of PyPI; or --find-links with a folder that has it.
TORCH_WHEELS ?= --torch-backend cpu
test-frameworks:  ## The loaders of PyTorch and JAX, in an environment of its own
	@command -v $(UV) >/dev/null || (python3 -m venv $(VENV)-uv && $(VENV)-uv/bin/pip install --quiet uv)
	$(UV) venv --quiet --allow-existing --python '$(PYTHON_RANGE)' $(VENV)-frameworks
	$(UV) pip install --quiet --python $(VENV)-frameworks/bin/python $(TORCH_WHEELS) -r requirements/frameworks.in --editable '.[cpu]'
	@# PyTorch ends a process in which JAX was imported before.
	@failed=0; for file in tests/frameworks/test_*.py; do \
	  $(VENV)-frameworks/bin/python -m pytest $$file || failed=1; \
	done; exit $$failed

test-torch: env  ## Networks of PyTorch, trained in an environment of its own (1.5 GB), exported and served
	$(UV) venv --quiet --allow-existing --python '$(PYTHON_RANGE)' $(VENV)-torch
	$(UV) pip install --quiet --python $(VENV)-torch/bin/python $(TORCH_WHEELS) -r requirements/torch.in --editable '.[onnx,serve]'
	TORCH_PYTHON=$(abspath $(VENV)-torch/bin/python) $(BIN)/pytest tests/exporter/network/test_torch_networks.py tests/examples/test_pytorch.py

# The oldest versions that pyproject.toml admits, or the newest ones.
RESOLUTION ?= lowest-direct
RESOLUTION_TESTS ?= tests/test_versions.py tests/workflow/ops tests/workflow/fit tests/conformance tests/exporter tests/serving/test_client.py tests/end_to_end/test_parity.py
RESOLVED := $(VENV)-$(RESOLUTION)
test-versions:  ## The versions of RESOLUTION=lowest-direct or highest, in an environment of their own
	@command -v $(UV) >/dev/null || (python3 -m venv $(VENV)-uv && $(VENV)-uv/bin/pip install --quiet uv)
	@mkdir -p build
	$(UV) pip compile --quiet --upgrade --no-header --python-version 3.11 --python-platform x86_64-manylinux_2_35 --resolution $(RESOLUTION) \
	  --extra cpu --extra serve --extra onnx --extra dask --extra objects --extra faiss --extra docs --extra dev pyproject.toml -o build/$(RESOLUTION).txt
	$(UV) venv --quiet --allow-existing --python 3.11 $(RESOLVED)
	$(UV) pip install --quiet --python $(RESOLVED)/bin/python -r build/$(RESOLUTION).txt --editable .
	RESOLUTION=$(RESOLUTION) $(RESOLVED)/bin/python -m pytest $(PARALLEL) -m "not long and not gpu" $(RESOLUTION_TESTS)

# A GPU needs an older Polars, and the embedded server an older NumPy: here it is that of .venv, as for all with NumPy 2.
NUMPY2_TESTS ?= tests/workflow tests/conformance tests/loader tests/serving/inputs tests/exporter/write \
  tests/end_to_end/test_parity.py
NUMPY2_PYTHON ?= $(PYTHON_RANGE)
test-numpy2: env  ## The locked versions with NumPy 2 and Polars 2, in an environment of their own
	@command -v $(UV) >/dev/null || (python3 -m venv $(VENV)-uv && $(VENV)-uv/bin/pip install --quiet uv)
	$(UV) venv --quiet --allow-existing --python '$(NUMPY2_PYTHON)' $(VENV)-numpy2
	@mkdir -p build
	sed -E '/^(numpy|nvidia-pytriton)==/,/[^\\]$$/d' requirements/cpu.txt > build/numpy2.txt
	$(UV) pip sync --quiet --python $(VENV)-numpy2/bin/python --require-hashes --build-constraints build/numpy2.txt build/numpy2.txt
	$(UV) pip install --quiet --python $(VENV)-numpy2/bin/python --no-deps --no-build-isolation \
	  'numpy>=2.4,<2.6' 'polars==2.1.*' 'polars-runtime-32==2.1.*' --editable .
	TRITONSERVER_PYTHON=$(abspath $(BIN)/python) \
	  $(VENV)-numpy2/bin/pytest $(PARALLEL) -m "not long and not gpu" $(NUMPY2_TESTS)

docs: env  ## The site in build/site: guides, reference, figures; a broken link or an undocumented public name fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: env  ## Measure workflow, loader and training against their alternatives
	$(BIN)/python -m benchmarks.workflow
	$(BIN)/python -m benchmarks.loader
	$(BIN)/python -m benchmarks.training files mlp wide
	$(BIN)/python -m benchmarks.auc
	$(BIN)/python -m benchmarks.charts

bench-scaling: env  ## Measure every operator and verb over sizes, wide tables and many files; what grows faster than its data fails
	$(BIN)/python -m benchmarks.scaling $(SCALING)
	$(BIN)/python -m benchmarks.scaling_shape

bench-serving: env  ## Measure every runtime on the embedded server, and start-up
	$(BIN)/python -m benchmarks.serving
	$(BIN)/python -m benchmarks.start_up

bench-peers: env  ## The same beside NVTabular 23.08, in an environment of its own
	$(UV) venv --quiet --allow-existing --python 3.11 $(VENV)-nvtabular
	$(UV) pip install --quiet --python $(VENV)-nvtabular/bin/python -r requirements/peers.in
	$(BIN)/python -m benchmarks.workflow --peers --rows 1000000
	$(BIN)/python -m benchmarks.loader

# Without --strict a package that the database cannot be asked about counts as sound.
audit: env  ## Images by digest, SBOMs in build/, known vulnerabilities (asks PyPI)
	$(BIN)/pytest -q tests/docker tests/attacks/test_no_unsafe_code.py
	@mkdir -p build
	@for name in cpu gpu; do \
	  PYTHONWARNINGS=ignore $(BIN)/cyclonedx-py requirements requirements/$$name.txt --pyproject pyproject.toml --mc-type library \
	    --output-reproducible --sv 1.6 --validate -o build/sbom-$$name.json || exit 1; \
	  echo "build/sbom-$$name.json: $$(grep -c '"purl"' build/sbom-$$name.json) packages, valid CycloneDX 1.6"; \
	done
	@for name in cpu gpu; do \
	  $(BIN)/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r requirements/$$name.txt \
	    || { echo "Expected no known vulnerability in requirements/$$name.txt, and an answer for each package."; exit 1; }; \
	done

lock:  ## Resolve requirements/*.txt anew
	$(UV) pip compile --quiet --generate-hashes --no-header --python-version 3.11 --python-platform x86_64-manylinux_2_35 \
	  --extra cpu --extra serve --extra onnx --extra dask --extra objects --extra faiss --extra docs --extra release --extra dev \
	  requirements/build.in pyproject.toml -o requirements/cpu.txt
	$(UV) pip compile --quiet --generate-hashes --no-header --python-version 3.12 --python-platform x86_64-manylinux_2_35 \
	  --extra gpu --extra dask --extra objects --extra dev requirements/build.in pyproject.toml -o requirements/gpu.txt

dist: env  ## Wheel and source archive in dist/, checked as the package index would
	rm -rf dist
	$(UV) build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz

clean:
	rm -rf $(VENV) $(VENV)-uv $(VENV)-nvtabular $(VENV)-frameworks $(VENV)-torch $(VENV)-lowest-direct $(VENV)-highest demo_output models build .mypy_cache .ruff_cache .pytest_cache
