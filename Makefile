# What CI runs is `make check`; each part can be run by itself.
PYTHON ?= python

.PHONY: check lint types layers test format

check: lint types layers test

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types:
	$(PYTHON) -m mypy

layers:
	lint-imports

test:
	$(PYTHON) -m pytest

format:
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .
