# `make check` is what CI runs: the tests hold the linter, the types and the layering as well.
# It also fails where the tests run too little of the package (pyproject.toml says how little).
PYTHON ?= python

.PHONY: check coverage lint types layers format schema glossary remedies

check:
	$(PYTHON) -m pytest -n auto --cov

# What the unit tests alone run of the package, with the lines that they leave out.
coverage:
	$(PYTHON) -m pytest --cov --cov-report=term-missing:skip-covered tests/unit tests/cli

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

schema:
	$(PYTHON) -m tracelab.report.json_schema > tracelab/report/report.schema.json

glossary:
	$(PYTHON) -m tracelab.render.glossary > tracelab/docs/glossary.md

remedies:
	$(PYTHON) -m tracelab.render.remedies > tracelab/docs/remedies.md
