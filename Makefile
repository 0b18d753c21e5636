# run     etude on this repository, in the browser (ARGS="--no-browser" and the like go to `etude serve`)
# test    what the tests need, then the tests
# check   what CI runs: format, lint, types, layers, the page's bundle, tests
# web     build the page from web/src into etude/server/static

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
INSTALLED_DEV := $(VENV)/installed-dev
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: run test check web clean
.DELETE_ON_ERROR:

run: $(INSTALLED)
	@$(BIN)/etude serve . $(ARGS)

test: $(INSTALLED_DEV)
	@$(BIN)/python dev/prepare_tests.py
	$(BIN)/python -m pytest

check: $(INSTALLED_DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/ty check
	$(BIN)/python -m pytest tests/architecture
	@$(BIN)/python dev/check_web_bundle.py
	@$(MAKE) --no-print-directory test

web:
	cd web && npm ci --no-audit --no-fund && npm run typecheck && npm run build

clean:
	rm -rf $(VENV) web/node_modules

$(VENV)/pyvenv.cfg:
	@command -v $(PYTHON) >/dev/null || { echo "etude needs Python 3.11 or newer; there is no $(PYTHON) here. Install it, or name one: make PYTHON=…" >&2; exit 2; }
	@$(PYTHON) dev/check_python.py
	@echo "creating $(VENV) and installing etude into it (a minute or two, once)"
	@rm -rf $(VENV) && $(PYTHON) -m venv $(VENV)

$(INSTALLED): $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	@$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(INSTALLED_DEV): $(INSTALLED)
	@$(PIP) install --constraint constraints.txt --editable ".[dev]"
	@touch $@
