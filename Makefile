# make setup            install packages and the Python environment for all other targets; see .ci/setup
# make browser          install the browser for the tests of report pages (400 MB); without it they are skipped
# make lint             check formatting, lint and types
# make test             run all tests except exhaustive ones; of the slow ones a quarter, chosen by the commit
# make test-fast        run the fast tests, which require only a C compiler
# make test-exhaustive  run full sweeps that other tests sample; PART=2/3: the second of every three tests
# make analyze          run static analysers on generated C; PART=2/3: the second of every three programs
# make audit            check the locked packages for known vulnerabilities
# make docs             build the documentation site in site/; make docs-serve shows it while you write
# make conversions      convert models of PyTorch, Keras and ONNX; installs 7 GB in examples/conversions/build
# make lock             update .ci/requirements/*.lock to the latest versions that pyproject.toml allows
# make release          build dist/: wheel, source distribution and bill of materials

VENV   ?= .venv
BIN    := $(VENV)/bin
PART   ?= 1/1
PYTHON ?= python3
DOCS   := .venv-docs
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
LOCK   := $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes \
          --no-annotate --no-header --default-index https://pypi.org/simple

.PHONY: setup browser prover venv test test-fast test-exhaustive lint format analyze audit docs docs-serve lock release conversions clean
.NOTPARALLEL:

setup:
	.ci/setup dev

browser:
	.ci/setup browser

prover:
	.ci/setup prover

venv:
	@.ci/setup venv

test: venv
	$(PYTEST) -m "not exhaustive"

test-fast: venv
	$(PYTEST) -m "not slow and not exhaustive"

test-exhaustive: venv
	$(PYTEST) -m exhaustive --part $(PART)

lint: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

analyze: venv
	PYTHONPATH=.:.ci $(BIN)/python -m tools.analyze --part $(PART)

audit: venv
	PYTHONPATH=.:.ci $(BIN)/python -m tools.audit

# With --quiet, warnings would not reach --strict.
docs: $(DOCS)/.installed
	$(DOCS)/bin/mkdocs build --strict

docs-serve: $(DOCS)/.installed
	$(DOCS)/bin/mkdocs serve

# Separate environment, which tests do not need. The stamp is written last, when everything is installed.
$(DOCS)/.installed: .ci/requirements/docs.lock
	$(PYTHON) -m venv --clear $(DOCS)
	$(DOCS)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

lock: venv
	$(LOCK) --group build -o .ci/requirements/build.lock
	$(LOCK) pyproject.toml -o .ci/requirements/run.lock
	$(LOCK) pyproject.toml --extra dev --group build -c .ci/requirements/run.lock -c .ci/requirements/build.lock \
	  -o .ci/requirements/dev.lock
	$(LOCK) pyproject.toml --extra docs -c .ci/requirements/dev.lock -o .ci/requirements/docs.lock

release: venv
	PYTHONPATH=.:.ci $(BIN)/python -m tools.release

conversions: venv
	$(MAKE) -C examples/conversions

clean:
	rm -rf build dist site .pytest_cache .ruff_cache .hypothesis examples/*/build
