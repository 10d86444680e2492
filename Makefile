# On a fresh machine `make demo` and `make test` need only make and Python 3.11 or newer.

SHELL := /bin/bash
BIN := .venv/bin
READY := .venv/.ready
GOLDEN ?= ../shared/golden
PYTEST := $(BIN)/python -m pytest -n 2 -q

# Each candidate is run: a pyenv shim may exist and still fail, a system Python may lack venv.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests and tools read and write text as UTF-8 in any locale; the package itself says so wherever it does. Python up to
# 3.12 reads the environment's .pth files in the locale's encoding all the same, and takes the locale C for C.UTF-8.
export PYTHONUTF8 := 1
export LC_CTYPE := C
unexport LC_ALL

.PHONY: demo test test-op lint test-slow test-targets test-libraries test-jax-newest jax-suite library-suites corpora test-golden test-aarch64 bench bench-quick bench-collectives bench-lower bench-workloads dist docs lock jaxlib-0.4.30 clean
.DELETE_ON_ERROR:

demo: $(READY)
	$(BIN)/python examples/demo.py

# The pytest summary must stay the last line printed.
test: lint
	$(PYTEST) -m "not slow"

# The tests of one op alone, in seconds: make test-op OP=gather
test-op: $(READY)
	$(BIN)/python -m tests.op "$(OP)"

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff check --preview --select PLW1514  # encodings are said
	$(BIN)/codespell src docs tests bench README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md
	$(BIN)/python -m tests.prose
	$(BIN)/lint-imports --no-logo
	$(BIN)/pyright --pythonpath $(BIN)/python  # for its version of Python: newer NumPys' types name newer Pythons'

test-slow: .venv/.libraries
	$(PYTEST) -m slow

# The tests of machine code on each target that this machine can run (tests/targets.py): a line of figures for each.
test-targets: $(READY)
	$(BIN)/python -m tests.targets -n 2 -m "not slow" tests/cpu

# flax, optax, equinox, diffrax and numpyro on the platform hlokit, mujoco-mjx on hlokit as JAX's CPU
test-libraries: .venv/.libraries
	$(PYTEST) tests/jax/libraries

# A sample of the own tests of libraries of JAX: goes on where it was stopped. MIRROR: a folder with git snapshots
# OWNER+NAME/repo; OUT: the logs; NAMES: some libraries only. Writes docs/libraries.md.
library-suites: .venv-libraries/.ready
	.venv-libraries/bin/python -m tests.jax.libraries.own --mirror "$(MIRROR)" --out "$(OUT)" $(NAMES)
	.venv-libraries/bin/python -m tests.jax.libraries.own --out "$(OUT)" --table docs/libraries.md

.venv-libraries/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-libraries
	.venv-libraries/bin/python -m pip install -q --upgrade "pip>=25.1"
	.venv-libraries/bin/python -m pip install -q --editable . --group library-suites
	@touch $@

.venv/.libraries: $(READY)
	$(BIN)/python -m pip install -q --group libraries
	@touch $@

# Programs of Keras, TensorFlow, transformers and libraries of JAX beside these: goes on where it was stopped, and takes
# hours. OUT: what is found; NAMES: families or programs. Writes docs/corpora.md.
corpora: $(READY) .venv-corpora/.ready
	$(BIN)/python -m tests.corpora.run --python $(abspath .venv-corpora/bin/python) --out "$(or $(OUT),build/corpora)" \
		--table docs/corpora.md $(NAMES)

.venv-corpora/.ready: tests/corpora/requirements.txt
	$(PYTHON) -m venv .venv-corpora
	.venv-corpora/bin/python -m pip install -q --upgrade "pip>=25.1"
	.venv-corpora/bin/python -m pip install -q --requirement tests/corpora/requirements.txt
	@touch $@

# The platform with the newest JAX, on another Python
test-jax-newest: $(READY) .venv-newest/.hlokit
	HLOKIT_JAX_PYTHON=$(abspath .venv-newest/bin/python) $(PYTEST) tests/jax/pjrt
	.venv-newest/bin/python -m pytest -q tests/jax/interop -m "not slow"

.venv-newest/.hlokit: .venv-newest/.ready pyproject.toml
	.venv-newest/bin/python -m pip install -q --editable . pytest flatbuffers
	@touch $@

# JAX's own tests: goes on where it was stopped, and takes hours. MIRROR: a folder with the git snapshot jax-ml+jax/repo;
# OUT: the logs; FILES: some only; MODE: hlokit, x64 or cpu, else all. Writes docs/jax_tests.md.
jax-suite: .venv-jax-suite/.ready
	.venv-jax-suite/bin/python -m tests.jax.suite.run --mirror "$(MIRROR)" --out "$(OUT)" $(FILES) $(addprefix --mode ,$(MODE))
	.venv-jax-suite/bin/python -m tests.jax.suite.table --out "$(OUT)"

.venv-jax-suite/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-jax-suite
	.venv-jax-suite/bin/python -m pip install -q --upgrade "pip>=25.1"
	.venv-jax-suite/bin/python -m pip install -q --editable . --group jax-suite
	@touch $@

test-golden: $(READY)
	$(PYTEST) -m golden_full --golden="$(GOLDEN)"

# Machine code for aarch64 under QEMU: a sample, SAMPLE=--all for all. Needs apt-get and dpkg-deb, but no root.
test-aarch64: $(READY)
	$(BIN)/python -m tests.aarch64.run $(if $(wildcard $(GOLDEN)/*.jsonl),--golden "$(GOLDEN)") $(SAMPLE)

# The report goes to build/bench: run.json, run.md, run.svg. Narrow it: make bench ONLY=gemm
bench bench-quick: .venv/.bench $(if $(NEWEST),.venv-newest/.ready)
	HLOKIT_BENCH_NEWEST=$(if $(NEWEST),$(abspath .venv-newest/bin/python)) \
		$(BIN)/python -m bench.run $(if $(findstring quick,$@),--quick) $(if $(ONLY),--only "$(ONLY)") \
		--json build/bench/run.json --markdown build/bench/run.md --svg build/bench/run.svg

# The newest jaxlib wants Python 3.12: where there is one, it takes part in the benchmark
NEWEST ?= $(shell for p in python3.14 python3.13 python3.12 $(wildcard ~/.pyenv/versions/3.1[2-9].*/bin/python); do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo $$p && break; done)

.venv-newest/.ready:
	@test -n "$(NEWEST)" || { echo "the newest JAX needs Python 3.12 or newer with venv" >&2; exit 1; }
	$(NEWEST) -m venv .venv-newest
	.venv-newest/bin/python -m pip install -q jax
	@touch $@

# Whole programs through JAX, about 40 minutes a round: goes on where it was stopped. ONLY, ROUNDS, CONDITIONS narrow it.
bench-workloads: .venv/.workloads
	$(BIN)/python -m bench.workloads $(if $(ONLY),--only "$(ONLY)") $(addprefix --rounds ,$(ROUNDS)) \
		$(addprefix --conditions ,$(CONDITIONS)) --to build/workloads

.venv/.workloads: $(READY)
	$(BIN)/python -m pip install -q --group workloads
	@touch $@

# Collectives over 4 replicas, against XLA
bench-collectives: .venv/.bench
	$(BIN)/python -m bench.collectives

# The programs' HLO in tests/data/bench, after a change of bench/programs or of the version of JAX
bench-lower: .venv/.bench
	$(BIN)/python -m bench.lower

.venv/.bench: $(READY)
	$(BIN)/python -m pip install -q --group bench
	@touch $@

# What a release uploads: an sdist and a wheel, checked
dist: $(READY)
	$(BIN)/python -m pip install -q --group release
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*

docs: $(READY)
	$(BIN)/python -m pip install -q --group docs
	$(BIN)/sphinx-build -q -W --keep-going docs build/docs
	$(BIN)/python -m tests.site build/docs
	@echo "build/docs/index.html"

# Only the public index may be recorded: no configuration or environment of this host.
lock: $(READY)
	$(BIN)/python -m pip install -q uv
	env -u UV_INDEX -u UV_EXTRA_INDEX_URL -u UV_FIND_LINKS $(BIN)/uv lock --no-config
	@! grep -nE 'file:|path = "/' uv.lock

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "hlokit needs Python 3.11 or newer with venv, and none was found." \
		"Install one, or name it: make PYTHON=/path/to/python3"; exit 1; } >&2
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -q --editable . --group dev
	@touch $@

# The other witness of tests/xla_client, which needs a Python of its own time.
jaxlib-0.4.30: .venv-0.4.30/.ready

.venv-0.4.30/.ready:
	@for p in python3.12 python3.11 python3.10; do $$p -c 'import venv, ensurepip' 2>/dev/null && break; p=; done; \
		test -n "$$p" || { echo "jaxlib 0.4.30 needs Python 3.10, 3.11 or 3.12 with venv" >&2; exit 1; }; \
		$$p -m venv .venv-0.4.30
	.venv-0.4.30/bin/python -m pip install -q jaxlib==0.4.30 "numpy<2.3"
	@touch $@

clean:
	rm -rf .venv .venv-0.4.30 .venv-jax-suite .venv-corpora build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
