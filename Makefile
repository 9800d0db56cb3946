# make setup   a virtual environment in .venv with everything the tests need, and the cross tools (Debian, Ubuntu)
# make test    all tests
# make lint    formatting, lint and types

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# apt-get needs root; in a container that is usually who we are.
SUDO   := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

PACKAGES = python3-venv gcc clang cmake make gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm

.PHONY: setup tools venv test test-fast lint format clean

setup: tools venv

# Nothing is asked of apt if all the tools are there already.
tools:
	@if (for tool in cc clang cmake arm-none-eabi-gcc qemu-system-arm; do command -v $$tool >/dev/null || exit 1; done; \
	      $(PYTHON) -c "import ensurepip" 2>/dev/null); \
	then echo "cross tools: present"; \
	else $(SUDO) apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $(PACKAGES); fi

venv: $(BIN)/microfold

$(BIN)/microfold: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

test: venv
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

test-fast: venv
	$(BIN)/python -m pytest -n 2 -m "not slow"

lint: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis examples/*/build
