# Every target sets itself up in .venv. `make demo` needs Python 3.11 or newer; `make test` also a JDK 17 and Maven, or Docker.
# ARGS goes to what the target runs: make demo ARGS="--messages 50000", make test ARGS="tests/inbox -k claim".

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The variables, unlike a flag, hold for what builds the package too: pip up to 25.2 takes the first there, later ones the second.
INSTALL := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-lowest bench lint constraints clean

help: ## Say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## Run the demo: kill a worker half-way, count the effects
	@$(BIN)/consumer-idem demo $(ARGS)

test: lint ## Run linters and tests, with real PostgreSQL and real Kafka
	$(BIN)/pytest $(ARGS)

test-long: $(VENV)/.test ## Run the soaks
	$(BIN)/pytest -m long --timeout 3600 $(ARGS)

test-lowest: $(VENV)/.test ## Run the tests with the oldest dependencies that pyproject.toml allows
	$(INSTALL) uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-lowest
	$(BIN)/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct --editable '.[test]'
	.venv-lowest/bin/python -m pytest $(ARGS)

bench: $(VENV)/.bench ## Measure against hand-written loops (about an hour)
	$(BIN)/python -m tests.bench $(ARGS)

lint: $(VENV)/.test ## Run the linters alone
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

constraints: $(VENV)/.test ## Pin the newest versions of everything
	$(INSTALL) uv
	(sed '/^[^#]/d' constraints.txt && printf '%s\n' uv hatchling editables | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras \
		--no-header --no-annotate --no-emit-package consumer-idem --upgrade pyproject.toml -) > constraints.new
	mv constraints.new constraints.txt

clean: ## Remove the environments
	rm -rf $(VENV) .venv-lowest

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "consumer_idem needs Python 3.11 or newer, and $(PYTHON) is: $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name a newer one: make PYTHON=/path/to/python $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[test]'
	@touch $@ $(VENV)/.demo

$(VENV)/.bench: $(VENV)/.test
	$(INSTALL) --editable '.[bench]'
	@touch $@
