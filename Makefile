# `make check` is what CI runs: the tests hold the linter, the types and the layering as well.
PYTHON ?= python

.PHONY: check lint types layers format

check:
	$(PYTHON) -m pytest

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:
	$(PYTHON) -m mypy

layers:
	lint-imports

format:
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .
