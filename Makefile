# `make check` is what CI runs: the tests hold the linter, the types and the layering as well.
PYTHON ?= python

.PHONY: check lint types layers format coverage schema

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

coverage:
	$(PYTHON) -m pytest --cov=tracelab --cov-report=term:skip-covered --cov-fail-under=90 tests/unit tests/cli

schema:
	$(PYTHON) -m tracelab.report.json_schema > tracelab/report/report.schema.json
