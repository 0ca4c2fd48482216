# Two commands do all the set-up on a fresh machine with Python and make: `make demo` and `make test`.
PYTHON ?= python3
TEXT ?= Hello! This is oscine, speaking on your own machine.
# Extra flags for pip, for example to choose another torch build.
PIP_FLAGS ?=

VENV := .venv
PY := $(VENV)/bin/python
INSTALL := $(PY) -m pip install --disable-pip-version-check --quiet --constraint constraints.txt $(PIP_FLAGS)

INSTALLED_FROM := pyproject.toml constraints.txt hatch_build.py $(wildcard src/oscine/kernels/*.h src/oscine/families/*/backends/*.c)

.PHONY: demo test check install clean
.DEFAULT_GOAL := demo

demo: $(VENV)/installed  ## speak a sentence with the bundled voice into hello.wav
	@$(PY) -m oscine say "$(TEXT)" -o hello.wav

test: $(VENV)/installed-dev  ## format, lint, types, import layers, tests
	@scripts/check

check: test

install: $(VENV)/installed

$(PY):
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "oscine needs Python 3.11 or newer, this is " + sys.version'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(INSTALLED_FROM) | $(PY)
	$(INSTALL) --editable .
	@touch $@

$(VENV)/installed-dev: $(INSTALLED_FROM) | $(PY)
	$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/installed

clean:  ## remove the virtual environment and what was made
	rm -rf $(VENV) hello.wav .pytest_cache .mypy_cache .ruff_cache
